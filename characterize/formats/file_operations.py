# SPDX-License-Identifier: Apache-2.0
"""Turns columns of numbers, one operation on a file each, into IO and FILEOP records, and says which cannot be."""

from __future__ import annotations

import numpy as np

from characterize.formats.lines import Draft
from characterize.layout import (
    FILEOP_DTYPE,
    IO_DTYPE,
    NOT_MEASURED_U32,
    TRACE_RECORD_BYTES,
    Fileop,
    IoFlag,
    IoOp,
    RecordKind,
)

FILEOP_BASE = 100
"""Added to the number of an operation that moves no data, so that it is another than those that do."""

_EMPTIES = np.uint32(IoFlag.CREATED | IoFlag.TRUNCATED)
_READ, _WRITE = ("r", "read", "rd", "rs"), ("w", "write", "wr", "ws")


def operation_of(text: str) -> int:
    """``IoOp``, or `FILEOP_BASE` and ``Fileop``, of a name; 0 = none."""
    lower = text.lower()
    if lower in (*_READ, *_WRITE):
        return IoOp.READ if lower in _READ else IoOp.WRITE
    fileop = Fileop.__members__.get(text.upper(), 0)
    return FILEOP_BASE + fileop if fileop else 0


def moves_nothing(op: np.ndarray, result: np.ndarray) -> np.ndarray:
    """Whether operations may have been asked for anything: they move no data, or failed."""
    return (op >= FILEOP_BASE) | (result < 0)


def operations_draft(
    *,
    start_ns: np.ndarray,
    op: np.ndarray,
    file: np.ndarray,
    offset: np.ndarray,
    size: np.ndarray,
    result: np.ndarray,
    duration_ns: np.ndarray | None = None,
    missed_bytes: np.ndarray | None = None,
) -> Draft:
    """Records of operations.

    Parameters
    ----------
    start_ns, duration_ns : ndarray of int64
        As `Draft.set_times` takes them.
    op : ndarray of int64
        From `operation_of`.
    file, offset, size, result : ndarray of int64
        Offset and size stand for the argument and the length where no data moves. Negative ones, of what
        `moves_nothing`, are those above 2^63.
    missed_bytes : ndarray of int64
        Negative = not measured.

    Returns
    -------
    Draft
        IO and FILEOP records, both with the dtype of IO records: `divided` parts them.
    """
    moves = op < FILEOP_BASE
    draft = Draft(np.zeros(len(op), IO_DTYPE))
    anything = moves_nothing(op, result)
    draft.require((offset >= 0) | anything, "an offset of 0 to 2^63 bytes")
    draft.require(~moves | ((size >= 0) & (size < 2**32)), "a size below 2^32 bytes")
    draft.require((result >= -(2**31)) & (result < 2**31), "a result of 32 bits")
    draft.require((file >= 0) & (file < 2**32), "a file number of 32 bits")
    io, fileop = draft.records, np.zeros(len(op), FILEOP_DTYPE)
    io["offset"], io["asked_bytes"] = np.where(anything, offset, offset.clip(0)), size.clip(0, 2**32 - 1)
    io["missed_bytes"] = NOT_MEASURED_U32
    if missed_bytes is not None:
        io["missed_bytes"] = np.where(missed_bytes < 0, NOT_MEASURED_U32, missed_bytes)
    fileop["argument"], fileop["length"] = offset, size
    for records in (io, fileop):
        records["op"], records["file"] = op % FILEOP_BASE, file
        records["result"] = result.clip(-(2**31), 2**31 - 1)
    io["kind"], fileop["kind"] = RecordKind.IO, RecordKind.FILEOP
    whole, other = (records.view(np.uint8).reshape(-1, TRACE_RECORD_BYTES) for records in (io, fileop))
    whole[~moves] = other[~moves]
    # Both kinds have their times at the same place.
    draft.set_times(start_ns, duration_ns)
    return draft


def divided(records: np.ndarray) -> dict[RecordKind, np.ndarray]:
    """The IO and the FILEOP records of an array of both."""
    moves = records["kind"] == RecordKind.IO
    return {RecordKind.IO: records[moves], RecordKind.FILEOP: records[~moves].view(FILEOP_DTYPE)}


class Moments:
    """Lets the order of operations that start together stay, in records that come in pieces.

    In a trace starts tell the order, and of equal ones data comes first. So data that stands behind a sync, or anything
    else but an open that leaves its file as it is, starts a nanosecond later. Such an open may come late: what is used
    is open.
    """

    def __init__(self) -> None:
        # Of the last record: its moment, how many ns it was put off, and whether data has to come behind it.
        self._moment_ns, self._put_off_ns, self._holds = -1, 0, False

    def kept(self, records: np.ndarray) -> np.ndarray:
        """Records as `divided` takes them, changed in place."""
        if not len(records):
            return records
        start, data = records["start_ns"].astype(np.int64), records["kind"] == RecordKind.IO
        opens = (records["op"] == Fileop.OPEN) & ((records["flags"] & _EMPTIES) == 0)
        at_once = start == np.append(self._moment_ns, start[:-1])
        # Such an open is looked through to what stands before it in its moment.
        seen = np.maximum.accumulate(np.where(opens & at_once, 0, np.arange(1, len(start) + 1)))
        holds = np.append(self._holds, np.append(self._holds, ~data & ~opens)[seen])
        steps = np.cumsum(data & holds[:-1] & at_once) + self._put_off_ns
        put_off = steps - np.maximum.accumulate(np.where(at_once, 0, steps))
        self._moment_ns, self._put_off_ns, self._holds = int(start[-1]), int(put_off[-1]), bool(holds[-1])
        records["start_ns"] = start + put_off
        return records
