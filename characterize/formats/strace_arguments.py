# SPDX-License-Identifier: Apache-2.0
"""Turns the arguments of a call, as strace prints them, into descriptors, paths, flags and numbers."""

from __future__ import annotations

import re
from typing import NamedTuple

_DESCRIPTOR = re.compile(r"(-?\d+)(?:<([^<>]*)>)?")
_STRING = r'"((?:[^"\\]|\\.)*)"'
_PATH = re.compile(rf"(?:(AT_FDCWD|-?\d+)(?:<([^<>]*)>)?, )?{_STRING}")
_MODE = re.compile(r"\b0[0-7]{3,4}\b")
_FLAGS = re.compile(r"O_[A-Z_|]+")
NUMBER_MAX = 2**63 - 1
_LENGTH = re.compile(r"iov_len=(\d+)")
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_LETTERS = {b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_PSEUDO = ("/proc/", "/sys/", "/dev/")
_MEMORY = re.compile(r"/(?:memfd:.*|SYSV[0-9a-f]{8}) \(deleted\)")
_DEVICE = re.compile(r"/dev/(?:shm/|sd|vd|xvd|nvme\d+n|hd|dm-|md|loop|ram|zram|mapper/|sr\d|mmcblk|nbd|disk/)")


def descriptor_of(arguments: str) -> tuple[int, str]:
    """The descriptor at the begin, and the path that -y prints beside it; -1 where there is none."""
    number, _, _ = arguments.partition(",")
    if number.isdecimal():
        return int(number), ""
    found = _DESCRIPTOR.match(arguments)
    return (int(found[1]), unescaped(found[2] or "")) if found else (-1, "")


class Named(NamedTuple):
    """A path, and what it is relative to: a directory where -y prints that, else a descriptor, or -1."""

    path: str
    directory: str = ""
    descriptor: int = -1


def path_in(arguments: str) -> Named:
    """The first path; empty if there is none."""
    return next(iter(paths_in(arguments)), Named(""))


def paths_in(arguments: str) -> list[Named]:
    """All paths."""
    return [
        Named(
            unescaped(found[3]), unescaped(found[2] or ""), int(found[1]) if found[1] not in {None, "AT_FDCWD"} else -1
        )
        for found in _PATH.finditer(arguments)
    ]


def flags_of(name: str, arguments: str) -> tuple[str, int]:
    """Flags of an open, and the mode of what it may create."""
    behind = arguments.rsplit('"', 1)[-1]
    flags, mode = _FLAGS.search(behind), _MODE.search(behind)
    return flags[0] if flags else "", int(mode[0], 8) if mode else 0


def number_of(text: str) -> int:
    """A number of bytes; a call may ask for all that a size_t can say, a record cannot."""
    return max(min(int(text), NUMBER_MAX), -NUMBER_MAX)


def numbers_behind(arguments: str, count: int) -> list[int]:
    """The last arguments as numbers; -1 of one that is none."""
    parts = arguments.rsplit(", ", count)[-count:]
    return [number_of(part) if part.isdecimal() else -1 for part in parts]


def vector_bytes(arguments: str) -> int:
    """Bytes of all buffers of a vectored call."""
    return min(sum(int(length) for length in _LENGTH.findall(arguments)), NUMBER_MAX)


def is_file(path: str) -> bool:
    """Whether a path may be that of a regular file, a directory or a block device."""
    if not path or _MEMORY.fullmatch(path):
        return False
    return not path.startswith(_PSEUDO) or _DEVICE.match(path) is not None


def unescaped(text: str) -> str:
    """A path without the octal and C escapes that strace prints; bytes that are not UTF-8 become surrogates."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_byte_of, text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _byte_of(escape: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = escape.groups()
    if letter:
        return _LETTERS.get(letter, letter)
    return bytes([int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)])
