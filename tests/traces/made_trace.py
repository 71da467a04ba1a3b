# SPDX-License-Identifier: Apache-2.0
"""Turns rows written by hand into a Trace, for tests whose numbers are computed by hand."""

from typing import Any

import numpy as np

from characterize.layout import NOT_MEASURED_U32, NOT_MEASURED_U64, RECORD_DTYPE, HeaderFlag, IoOp, RecordKind
from characterize.trace import Header, Trace

DEFAULTS: dict[RecordKind, dict[str, Any]] = {
    RecordKind.IO: {"source": 1, "thread": 1, "process": 1, "file": 1, "missed_bytes": NOT_MEASURED_U32},
    RecordKind.FILEOP: {"source": 1, "thread": 1, "process": 1, "file": 1},
    RecordKind.FILE: {"type": 1, "resident_bytes": NOT_MEASURED_U64},
    RecordKind.TASK: {},
    RecordKind.BLOCK: {"form": 1, "device": 8 << 20, "queued_ns": NOT_MEASURED_U64},
    RecordKind.GAP: {},
    RecordKind.BLOCK_DATA: {},
    RecordKind.RESIDENT: {},
    RecordKind.HOLE: {},
    RecordKind.WAKE: {"wakes": 1, "thread": 1, "process": 1},
}


def records(kind: RecordKind, rows: list[dict[str, Any]]) -> np.ndarray:
    """Structured array of one kind from rows of field values."""
    array = np.zeros(len(rows), RECORD_DTYPE[kind])
    array["kind"] = kind
    for index, row in enumerate(rows):
        for name, value in {**DEFAULTS[kind], **row}.items():
            array[name][index] = value
    return array


def read(offset: int, size: int, start: int = 0, duration: int = 1, **fields: Any) -> dict[str, Any]:
    """Row of an IO record that reads; `size` may be a negative errno."""
    row = {"op": IoOp.READ, "offset": offset, "result": size, "asked_bytes": max(size, 0)}
    return {**row, "start_ns": start, "duration_ns": duration, **fields}


def write(offset: int, size: int, start: int = 0, duration: int = 1, **fields: Any) -> dict[str, Any]:
    """Row of an IO record that writes."""
    return {**read(offset, size, start, duration), "op": IoOp.WRITE, **fields}


def made_trace(
    io: list[dict[str, Any]] | None = None,
    *,
    fileops: list[dict[str, Any]] | None = None,
    files: list[dict[str, Any]] | None = None,
    tasks: list[dict[str, Any]] | None = None,
    blocks: list[dict[str, Any]] | None = None,
    gaps: list[dict[str, Any]] | None = None,
    block_data: list[dict[str, Any]] | None = None,
    resident: list[dict[str, Any]] | None = None,
    holes: list[dict[str, Any]] | None = None,
    wakes: list[dict[str, Any]] | None = None,
    paths: dict[int, str] | None = None,
    flags: HeaderFlag | int = 0,
    **header: Any,
) -> Trace:
    """A trace of these rows; `header` goes into `Header` (``metadata``, ``lost``, the four times).

    A row of `block_data` names the row of `blocks` that it is a piece of as ``block`` and has its times and its device.
    """
    pieces = [dict(row) for row in block_data or []]
    owners = [row.pop("block", -1) for row in pieces]
    for row, owner in zip(pieces, owners, strict=True):
        if owner >= 0 and blocks:
            block = {**DEFAULTS[RecordKind.BLOCK], **blocks[owner]}
            row.update({name: block.get(name, 0) for name in ("start_ns", "duration_ns", "device")})
    rows = {
        RecordKind.IO: io,
        RecordKind.FILEOP: fileops,
        RecordKind.FILE: files,
        RecordKind.TASK: tasks,
        RecordKind.BLOCK: blocks,
        RecordKind.GAP: gaps,
        RecordKind.BLOCK_DATA: pieces,
        RecordKind.RESIDENT: resident,
        RecordKind.HOLE: holes,
        RecordKind.WAKE: wakes,
    }
    arrays = {kind: records(kind, given or []) for kind, given in rows.items()}
    header_of = Header(flags=HeaderFlag(flags), **header)
    return Trace(header_of, arrays, paths, block_of_data=np.array(owners, np.int64))
