# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into one without names: what it did is kept, what files, programs and machines are called is hashed.

Each component of a path is hashed by itself with a secret key (HMAC-SHA256, 64 bits), so that two names are equal after
if they were before, and directories stay directories. The directories of the operating system keep their first
component, by which characterize tells programs from data. Numbers (times, sizes, inodes, ids) stay.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from characterize.layout import TRACE_PATH_BYTES_MAX, RecordKind
from characterize.requests import SYSTEM_DIRECTORIES, is_system_path
from characterize.trace import Header, Trace
from characterize.trace_files.whole_file import read_whole

KEY_BYTES_MIN = 16
HASH_DIGITS = 16
COMM_DIGITS = 15
_EXTENSION = re.compile(r".+(\.[A-Za-z0-9]{1,8})")
_DELETED = " (deleted)"
# What says what the user typed or where, and nothing that a reader of the trace needs.
_REMOVED = re.compile(r"(?:.*_)?command|in_cgroup|hostname|bad_examples")
# Words of flextrace's own, by the key they stand under.
_KEPT = frozenset(
    (
        *("made_by", "durations", "durations_of", "flags", "layers", "machine", "stopped_by"),
        *("format", "time_unit", "tool_version", "schema", "form"),
    )
)
_NUMBER_LIKE = re.compile(r"[\d:.,+-]*")


@dataclass
class Names:
    """The hashes that were given.

    Attributes
    ----------
    key : bytes
    keep_extensions : bool
    hash_of : dict of str to str
        Every name (a component of a path, a program, a string of the header) and what stands for it.
    """

    key: bytes
    keep_extensions: bool = False
    hash_of: dict[str, str] = field(default_factory=dict)

    def hashed(self, name: str) -> str:
        """What stands for a name."""
        if name not in self.hash_of:
            content = name.encode("utf-8", "surrogateescape")
            digits = hmac.new(self.key, content, hashlib.sha256).hexdigest()[:HASH_DIGITS]
            extension = _EXTENSION.fullmatch(name) if self.keep_extensions else None
            self.hash_of[name] = digits + (extension[1] if extension else "")
        return self.hash_of[name]

    def path(self, path: str) -> str:
        """A path of as many components."""
        deleted = path.endswith(_DELETED)
        parts = path.removesuffix(_DELETED).split("/")
        # What makes it a path of the system stays readable: it decides what counts as data.
        system = (
            next(prefix for prefix in SYSTEM_DIRECTORIES if path.startswith(prefix)) if is_system_path(path) else ""
        )
        kept = system.count("/")
        hashed = [part if at < kept or part in ("", ".", "..") else self.hashed(part) for at, part in enumerate(parts)]
        return "/".join(hashed) + (_DELETED if deleted else "")


def read_key(file: Path | None, variable: str | None) -> bytes:
    """The secret key, from a file or from an environment variable.

    Raises
    ------
    FlextraceError
        Neither or both are given, or what is there is too short to keep the names secret.
    """
    if (file is None) == (variable is None):
        raise FlextraceError("anonymising needs a secret key: give either --key FILE or --key-env VARIABLE", 2)
    key = read_whole(file, "the key").strip() if file else os.environb.get(os.fsencode(str(variable)), b"")
    if len(key) < KEY_BYTES_MIN:
        raise FlextraceError(
            f"the key in {file or variable} has {len(key)} bytes: names could be guessed; give at least "
            f"{KEY_BYTES_MIN} random ones ('head -c 32 /dev/urandom | base64 > KEY')",
            2,
        )
    return key


def anonymised(trace: Trace, names: Names) -> Trace:
    """The trace without names.

    Parameters
    ----------
    trace : Trace
    names : Names
        Gets the hashes that were given.

    Raises
    ------
    FlextraceError
        A path gets too long, or two names got the same hash (which the chance of 1 in 2^64 for each pair forbids).
    """
    paths = {file: names.path(path) for file, path in trace.paths.items()}
    tasks = trace.arrays[RecordKind.TASK].copy()
    tasks["comm"] = [
        names.hashed(comm.decode("utf-8", "surrogateescape"))[:COMM_DIGITS].encode() if comm else b""
        for comm in tasks["comm"].tolist()
    ]
    header = trace.header
    metadata = {**_of_metadata(header.metadata, names), "anonymised": {"extensions_kept": names.keep_extensions}}
    if len(set(names.hash_of.values())) < len(names.hash_of):
        raise FlextraceError("two names have the same hash: use another key")
    if any(len(path) > TRACE_PATH_BYTES_MAX for path in paths.values()):
        raise FlextraceError(f"a path has more than {TRACE_PATH_BYTES_MAX} bytes when its components are hashed")
    return Trace(
        Header(**{**vars(header), "metadata": metadata}),
        {**trace.arrays, RecordKind.TASK: tasks},
        paths,
        warnings=trace.warnings,
        block_of_data=trace.block_of_data,
    )


def _of_metadata(value: Any, names: Names, key: str = "") -> Any:
    """Numbers and flextrace's own words stay, all other text is hashed."""
    if isinstance(value, dict):
        return {_key(it, names): _of_metadata(value[it], names, it) for it in value if not _REMOVED.fullmatch(str(it))}
    if isinstance(value, list):
        return [_of_metadata(it, names, key) for it in value]
    if not isinstance(value, str) or key in _KEPT or _NUMBER_LIKE.fullmatch(value):
        return value
    return names.path(value) if "/" in value else names.hashed(value)


def _key(key: str, names: Names) -> str:
    """Keys are flextrace's own words or device numbers, but for those that have other characters."""
    return key if re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*|[\d:]+", key) else names.hashed(key)
