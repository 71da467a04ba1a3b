# SPDX-License-Identifier: Apache-2.0
"""Turns fio's I/O logs, versions 2 and 3, into chunks of IO and FILEOP records of one thread.

Version 3 is ``TIME PATH ACTION [OFFSET BYTES]``, version 2 the same without a time, but with the action ``wait``, whose
offset is one. fio 3.33 writes and replays version 3 in microseconds; the waits of version 2 it takes as moments in
milliseconds since the begin, whatever its documentation says (docs/decisions/0014). A log of version 2 without waits is
an order and nothing more. Durations are not in the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from characterize.errors import FlextraceError
from characterize.formats.compressed import head_of
from characterize.formats.file_numbers import FileNumbers
from characterize.formats.file_operations import FILEOP_BASE, Moments, divided, operations_draft
from characterize.formats.lines import Columns, Draft, Field, LineShape, number_of_text, records_of_lines
from characterize.formats.reading import TIME_DIGITS, Chunk, Reading
from characterize.layout import Fileop, IoOp

_FIRST_LINE = re.compile(rb"fio version ([23]) iolog\s*\n")
_PUNCH_HOLE_KEEP_SIZE = 3 << 16
"""FALLOC_FL_* in the high half of the flags: what a trim is on a file."""

_NO_OPERATION = 2 * FILEOP_BASE
_WAIT = _NO_OPERATION + 1
_OPS = {
    "read": IoOp.READ,
    "write": IoOp.WRITE,
    "add": _NO_OPERATION,
    "wait": _WAIT,
    "open": FILEOP_BASE + Fileop.OPEN,
    "close": FILEOP_BASE + Fileop.CLOSE,
    "sync": FILEOP_BASE + Fileop.FSYNC,
    "datasync": FILEOP_BASE + Fileop.FDATASYNC,
    "sync_file_range": FILEOP_BASE + Fileop.SYNC_FILE_RANGE,
    "trim": FILEOP_BASE + Fileop.FALLOCATE,
}
_DEFAULT_UNIT = {2: "ms", 3: "us"}
_FIELDS = (Field("path", "text"), Field("action", "text"), Field("offset", "integer"), Field("size", "integer"))
_PATTERN = rf"(?P<path>\S+)\s+(?P<action>{'|'.join(_OPS)})(?:\s+(?P<offset>\d{{1,18}})\s+(?P<size>\d{{1,18}}))?"
SHAPES = {
    2: LineShape(_FIELDS, "PATH ACTION [OFFSET BYTES]", pattern=r"\s*" + _PATTERN),
    3: LineShape(
        (Field("time", "integer"), *_FIELDS),
        "TIME PATH ACTION [OFFSET BYTES]",
        pattern=r"\s*(?P<time>\d{1,15})\s+" + _PATTERN,
    ),
}
THREAD = 1


def looks_like(head: bytes) -> bool:
    """Whether a file begins with the line that says the version."""
    return _FIRST_LINE.match(head) is not None


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a log.

    Raises
    ------
    FlextraceError
        The first line names no version of 2 and 3, or a line is malformed.
    """
    first = _FIRST_LINE.match(head_of(reading.path, 64))
    if not first:
        raise FlextraceError(f"{reading.path} line 1: expected 'fio version 2 iolog' or 'fio version 3 iolog'")
    log = _Log(reading, int(first[1]))
    for records in records_of_lines(reading, SHAPES[log.version], log.draft, header=True):
        yield log.chunk(records)
    log.end()


class _Log:
    def __init__(self, reading: Reading, version: int):
        self.version = version
        self.reading = reading
        unit = reading.options.time_unit or _DEFAULT_UNIT[version]
        if unit not in TIME_DIGITS:
            raise FlextraceError(f"--time-unit {unit}: of the times of fio choose s, ms, us or ns", 2)
        self.ns_per_unit = 10 ** TIME_DIGITS[unit]
        reading.time_unit = unit
        reading.facts["version"] = version
        # fio lays its files out before it runs.
        self.files = FileNumbers(reading.file_sizes, writes_overwrite=True)
        self.waited_ns = 0
        self._order = Moments()

    def draft(self, columns: Columns) -> Draft:
        """Records of lines; those that say no operation have kind 0."""
        op = number_of_text(columns["action"], lambda text: _OPS.get(text, 0))
        offset, size = columns["offset"], columns["size"]
        needs_place = (op < FILEOP_BASE) | (op == _WAIT)
        draft = operations_draft(
            start_ns=self._starts(columns, op),
            op=op,
            file=number_of_text(columns["path"], self.files.number),
            offset=offset.clip(0),
            size=size.clip(0),
            result=np.where(op < FILEOP_BASE, size.clip(0), 0),
        )
        draft.require(~needs_place | (offset >= 0), "an offset and a size behind read, write and wait")
        records = draft.records
        records["thread"] = records["process"] = THREAD
        records["flags"] = np.where(op == _OPS["trim"], _PUNCH_HOLE_KEEP_SIZE, 0)
        records["kind"] = np.where(op >= _NO_OPERATION, 0, records["kind"])
        return draft

    def _starts(self, columns: Columns, op: np.ndarray) -> np.ndarray:
        if self.version == 3:
            time = columns["time"]
            return np.where(time < 2**63 // self.ns_per_unit, time, -1) * self.ns_per_unit
        waits = np.where(op == _WAIT, columns["offset"].clip(0, 2**62 // self.ns_per_unit) * self.ns_per_unit, 0)
        return np.maximum.accumulate(np.concatenate([[self.waited_ns], waits]))[1:]

    def chunk(self, records: np.ndarray) -> Chunk:
        """The chunk of such records."""
        if len(records):
            self.waited_ns = max(self.waited_ns, int(records["start_ns"].max()))
        return self.files.chunk(divided(self._order.kept(records[records["kind"] != 0])))

    def end(self) -> None:
        """Say what the times are."""
        self.reading.untimed = self.version == 2 and not self.waited_ns
