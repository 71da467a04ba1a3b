# SPDX-License-Identifier: Apache-2.0
"""Turns operations of a trace into those that the engine repeats: the rules of replayer/engine/operation.c.

Only the rules that need nothing but the record are here. What the engine also skips, for what went before (a file that
is gone, a descriptor that is not open), is in the counts of its result.
"""

from __future__ import annotations

import numpy as np

from characterize.layout import FileFlag, Fileop, FileType, IoOp, RecordKind, Source
from characterize.requests import left_out_of, system_files
from characterize.response_time import MS_SYNC
from characterize.trace import Trace

ON_NAMES = (
    *(Fileop.OPEN, Fileop.CLOSE, Fileop.RENAME, Fileop.UNLINK),
    *(Fileop.MKDIR, Fileop.RMDIR, Fileop.LINK, Fileop.SYMLINK),
)

CHANGE_SIZES = (Fileop.TRUNCATE, Fileop.FALLOCATE)

# Failures of the caller: EFAULT, EBADF, EINTR, EAGAIN, and what is internal to the kernel.
_CALLER_ERRORS = (-14, -9, -4, -11)
_KERNEL_RESTART = -512


def _is_caller_error(records: np.ndarray) -> np.ndarray:
    return np.isin(records["result"], _CALLER_ERRORS) | (records["result"] <= _KERNEL_RESTART)


class RepeatedIo:
    """Tells which IO records are repeated.

    Not the pages of programs, what failed by its caller's fault, writes and sides of a splice that failed, nor what
    names no file with data.

    Parameters
    ----------
    facts : Trace
        Its files and paths.
    """

    def __init__(self, facts: Trace) -> None:
        files = facts.arrays[RecordKind.FILE]
        no_data = (files["type"] == FileType.DIRECTORY) | ((files["flags"] & FileFlag.NEW_NAME) != 0)
        self._no_data, self._system = files["file"][no_data], system_files(facts)

    def __call__(self, io: np.ndarray) -> np.ndarray:
        """One bool per record."""
        has_data = (io["file"] != 0) & ~np.isin(io["file"], self._no_data)
        left_out = left_out_of(io, "data", self._system)
        not_again = (io["op"] == IoOp.WRITE) | (io["source"] == Source.SPLICE)
        failed = _is_caller_error(io) | (not_again & (io["result"] < 0))
        return has_data & np.isin(io["op"], list(IoOp)) & ~failed & ~left_out


def repeated_fileops(fileops: np.ndarray) -> np.ndarray:
    """Which FILEOP records are repeated; bool, one per record.

    Not what changed no name or size since it failed, what failed by its caller's fault, names no file, or does nothing
    (msync without MS_SYNC).
    """
    op = fileops["op"]
    nameless = (fileops["file"] == 0) & ~np.isin(op, (Fileop.SYNCFS, Fileop.SYMLINK))
    nameless |= np.isin(op, (Fileop.RENAME, Fileop.LINK, Fileop.SYMLINK)) & (fileops["argument"] == 0)
    failed = np.where(np.isin(op, (*ON_NAMES, *CHANGE_SIZES)), fileops["result"] < 0, _is_caller_error(fileops))
    idle = (op == Fileop.MSYNC) & ((fileops["flags"] >> 16 & MS_SYNC) == 0)
    return ~nameless & ~failed & ~idle
