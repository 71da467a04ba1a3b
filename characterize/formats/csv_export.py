# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into a CSV table, a row for each operation or block request; `characterize.formats.csv_table` reads it.

Layer vfs: data operations and what else was done with a file, in the order of the starts; where no data moves,
``offset`` and ``bytes`` are the argument and the length of `characterize.layout.Fileop`. They have a sign, as a program
gives them: a call may be asked for -1, and fail. Layer block: block requests.
Times are ns, places and sizes bytes (sectors have 512). A number that was not measured is an empty field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from characterize.device_name import device_name
from characterize.errors import FlextraceError
from characterize.layout import (
    NOT_MEASURED_U32,
    NOT_MEASURED_U64,
    BlockOp,
    Fileop,
    IoOp,
    RecordKind,
    name_of,
)
from characterize.requests import Layer
from characterize.trace import Trace
from characterize.trace_files.new_file import new_file

ROWS_AT_ONCE = 1 << 18
# Their argument is the number of a name, which no row has.
_WITH_TWO_NAMES = (Fileop.RENAME, Fileop.LINK, Fileop.SYMLINK)


@dataclass(frozen=True)
class ExportedTable:
    """What was written: `rows`; `left_out`: operations that name two files, which a row cannot say."""

    layer: Layer
    rows: int
    left_out: int


def write(trace: Trace, output: Path, layer: Layer | None = None, *, force: bool = False) -> ExportedTable:
    """Write the table of one layer.

    Parameters
    ----------
    trace : Trace
    output : Path
    layer : {"vfs", "block"} or None
        None = vfs where the trace has operations, else block.
    force : bool
        Overwrite.

    Raises
    ------
    FlextraceError
        The layer is empty, a path has a line break, or the file exists or cannot be written.
    """
    layer = layer or ("vfs" if len(trace.io) or len(trace.fileops) else "block")
    tables, left_out = _tables_of_files(trace) if layer == "vfs" else (_tables_of_blocks(trace), 0)
    rows = 0
    with new_file(output, force=force) as stream:
        for table in tables:
            csv.write_csv(
                table,
                stream,
                csv.WriteOptions(include_header=rows == 0, quoting_style="needed", batch_size=ROWS_AT_ONCE),
            )
            rows += len(table)
        if not rows:
            raise FlextraceError(
                f"{trace.path or 'the trace'} has nothing at the layer {layer}: choose another by --layer"
            )
    return ExportedTable(layer, rows, left_out)


def _tables_of_blocks(trace: Trace) -> Iterator[pa.Table]:
    blocks = trace.arrays[RecordKind.BLOCK]
    blocks = blocks[np.argsort(blocks["start_ns"], kind="stable")]
    for first in range(0, len(blocks), ROWS_AT_ONCE):
        rows = blocks[first : first + ROWS_AT_ONCE]
        columns = {
            "start_ns": _integers(rows["start_ns"]),
            "duration_ns": _integers(rows["duration_ns"]),
            "queued_ns": _integers(rows["queued_ns"], NOT_MEASURED_U64),
            "device": _names(rows["device"], device_name),
            "op": _names(rows["op"], lambda op: name_of(BlockOp, op)),
            **{name: _integers(rows[name]) for name in ("sector", "bytes", "thread", "process")},
            **{name: _integers(rows[name]) for name in ("form", "flags", "status", "cause")},
        }
        yield _without_durations(trace, pa.table(columns))


def _tables_of_files(trace: Trace) -> tuple[Iterator[pa.Table], int]:
    io, fileops = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILEOP]
    said = ~np.isin(fileops["op"], _WITH_TWO_NAMES)
    named = fileops[said]
    starts = np.concatenate([io["start_ns"], named["start_ns"]])
    order = np.argsort(starts, kind="stable")
    for file in np.unique(np.concatenate([io["file"], named["file"]])).tolist():
        path = trace.paths.get(file, "")
        if fault := _fault(path):
            raise FlextraceError(f"the path {path!r} {fault}: it cannot stand in a CSV table; write NAME.parquet")

    def tables() -> Iterator[pa.Table]:
        for first in range(0, len(order), ROWS_AT_ONCE):
            part = order[first : first + ROWS_AT_ONCE]
            yield _without_durations(trace, _table_of_files(trace, io, named, part))

    return tables(), int((~said).sum())


def _fault(path: str) -> str:
    """Why a path cannot be in a line of text; empty if it can."""
    try:
        path.encode()
    except UnicodeEncodeError:  # surrogates, which stand for bytes that are not UTF-8
        return "is not UTF-8"
    return "has a line break" if "\n" in path or "\r" in path else ""


def _table_of_files(trace: Trace, io: np.ndarray, fileops: np.ndarray, part: np.ndarray) -> pa.Table:
    moves = part < len(io)
    data, others = io[part[moves]], fileops[part[~moves] - len(io)]

    def both(name: str, other: str = "") -> np.ndarray:
        values = np.zeros(len(part), np.uint64 if data.dtype[name].kind == "u" else np.int64)
        values[moves], values[~moves] = data[name], others[other or name]
        return values

    missed = np.full(len(part), NOT_MEASURED_U32, np.uint64)
    missed[moves] = data["missed_bytes"]
    ops = np.where(moves, 0, 1 << 8) + both("op").astype(np.int64)
    return pa.table(
        {
            "start_ns": _integers(both("start_ns")),
            "duration_ns": _integers(both("duration_ns")),
            "op": _names(ops, lambda op: name_of(Fileop, op & 0xFF) if op >> 8 else name_of(IoOp, op)),
            "file": _integers(both("file")),
            "path": _names(both("file"), lambda file: trace.paths.get(file, "")),
            "offset": _integers(both("offset", "argument").view(np.int64)),
            "bytes": _integers(both("asked_bytes", "length").view(np.int64)),
            "result": pa.array(both("result")),
            **{name: _integers(both(name)) for name in ("thread", "process", "flags", "source", "id")},
            "processor_share": _integers(both("processor_share")),
            "missed_bytes": _integers(missed, NOT_MEASURED_U32),
        }
    )


def _integers(values: np.ndarray, absent: int | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(values), mask=None if absent is None else values == absent)


def _names(values: np.ndarray, name: Callable[[int], str]) -> pa.Array:
    """Names of numbers; each is looked up once."""
    known, place = np.unique(values, return_inverse=True)
    texts = [name(number).encode("utf-8", "surrogateescape") for number in known.tolist()]
    return pa.DictionaryArray.from_arrays(
        pa.array(place.astype(np.int32)), pa.array(texts, pa.binary())
    ).dictionary_decode()


def _without_durations(trace: Trace, table: pa.Table) -> pa.Table:
    """Of a trace that has not run the times are an order or a schedule: nobody measured how long anything took."""
    unknown = not trace.measured or trace.header.metadata.get("durations") == "unknown"
    return table.drop_columns("duration_ns") if unknown else table
