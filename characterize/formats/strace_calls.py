# SPDX-License-Identifier: Apache-2.0
"""Which system calls of an strace log are of interest, and what their names and flags stand for."""

from __future__ import annotations

from dataclasses import dataclass

from characterize.layout import Fileop, IoFlag, IoOp

# Plain numbers, since this runs for every call of a log.
READ, WRITE, APPEND = int(IoOp.READ), int(IoOp.WRITE), int(IoFlag.APPEND)
INFERRED, _POSITIONED, _VECTORED = int(IoFlag.OFFSET_INFERRED), int(IoFlag.POSITIONED), int(IoFlag.VECTORED)
NUMBERS_OF_POSITION = 2
"""The size, or the number of buffers, and the position."""


@dataclass(frozen=True)
class Way:
    """How a call moves data: how many of its last arguments are numbers, and what they say."""

    op: int
    numbers: int
    positioned: bool
    vectored: bool

    @property
    def flags(self) -> int:
        """Those of the records."""
        return (_POSITIONED if self.positioned else 0) | (_VECTORED if self.vectored else 0)

    @property
    def has_flags(self) -> bool:
        """Whether the last argument are flags of this call alone."""
        return self.numbers > NUMBERS_OF_POSITION


MOVES = {
    "read": Way(READ, 1, False, False),
    "write": Way(WRITE, 1, False, False),
    "readv": Way(READ, 1, False, True),
    "writev": Way(WRITE, 1, False, True),
    "pread64": Way(READ, 2, True, False),
    "pwrite64": Way(WRITE, 2, True, False),
    "preadv": Way(READ, 2, True, True),
    "pwritev": Way(WRITE, 2, True, True),
    "preadv2": Way(READ, 3, True, True),
    "pwritev2": Way(WRITE, 3, True, True),
}
SYNCS = {"fsync": Fileop.FSYNC, "fdatasync": Fileop.FDATASYNC, "syncfs": Fileop.SYNCFS}
RANGES = {"sync_file_range": Fileop.SYNC_FILE_RANGE, "fadvise64": Fileop.FADVISE}
OPENS = ("open", "openat", "openat2", "creat")
CLONES = ("clone", "clone3", "fork", "vfork")
NAMES = {
    **dict.fromkeys(("rename", "renameat", "renameat2"), Fileop.RENAME),
    **dict.fromkeys(("link", "linkat"), Fileop.LINK),
    **dict.fromkeys(("symlink", "symlinkat"), Fileop.SYMLINK),
    **dict.fromkeys(("unlink", "unlinkat"), Fileop.UNLINK),
    **dict.fromkeys(("mkdir", "mkdirat"), Fileop.MKDIR),
    "rmdir": Fileop.RMDIR,
}
_OTHERS = (
    *("close", "close_range", "dup", "dup2", "dup3", "fcntl", "lseek", "execve", "chdir", "fchdir"),
    *("ftruncate", "truncate", "fallocate", "sync", "sendfile", "copy_file_range", "mmap"),
    *("io_submit", "io_uring_enter", "splice"),
)
SIZES_BY_PATH = ("newfstatat", "statx", "stat", "lstat")
"""Calls that tell the size of a file that a path names, or that an empty path and a descriptor do."""
CALLS = frozenset((*MOVES, *SYNCS, *RANGES, *OPENS, *CLONES, *NAMES, *SIZES_BY_PATH, "fstat", *_OTHERS))
ADVICE = {"RANDOM": 1, "SEQUENTIAL": 2, "WILLNEED": 3, "DONTNEED": 4, "NOREUSE": 5}
FALLOCATE_MODES = {"KEEP_SIZE": 1, "PUNCH_HOLE": 2, "COLLAPSE_RANGE": 8, "ZERO_RANGE": 16, "INSERT_RANGE": 32}
RENAME_FLAGS = {"RENAME_NOREPLACE": 1, "RENAME_EXCHANGE": 2, "RENAME_WHITEOUT": 4}
SYNC_RANGE_FLAGS = {"WAIT_BEFORE": 1, "WRITE": 2, "WAIT_AFTER": 4}
HIGH_HALF = 16
"""Where the flags of a call stand in those of its record."""
SETTABLE = int(IoFlag.APPEND | IoFlag.DIRECT)
"""What fcntl changes of a file that is open; the other flags of records stay."""
_IO_FLAGS = {
    **{f"O_{name}": int(IoFlag[name]) for name in ("APPEND", "DIRECT", "SYNC", "DSYNC")},
    **{f"RWF_{name}": int(IoFlag[name]) for name in ("APPEND", "SYNC", "DSYNC", "NOWAIT", "HIPRI")},
}


def size_after_fallocate(size: int, mode: int, offset: int, length: int) -> int:
    """The size of a file after a call that succeeded; `mode` as of `FALLOCATE_MODES`."""
    if mode & FALLOCATE_MODES["COLLAPSE_RANGE"]:
        return max(size - length, 0)
    if mode & FALLOCATE_MODES["INSERT_RANGE"]:
        return size + length
    return size if mode & FALLOCATE_MODES["KEEP_SIZE"] else max(size, offset + length)


def io_flags(flags: str) -> int:
    """What flags of an open, or of one call (RWF), say of data operations."""
    return sum(_IO_FLAGS.get(word, 0) for word in set(flags.split("|")))
