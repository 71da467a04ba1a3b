# SPDX-License-Identifier: Apache-2.0
"""Turns a trace file of the Storage Performance Council into chunks of BLOCK records.

``ASU,LBA,Size,Opcode,Timestamp`` and any further fields, by the SPC Trace File Format Specification 1.0.1: number of
the application storage unit, block (whose size the format leaves to its description; 512 bytes in the public ones),
bytes, ``R`` or ``W`` of either case, seconds since the trace began. Durations and threads are not in the format.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from characterize.formats.block_records import READ_OR_WRITE, block_draft
from characterize.formats.lines import Columns, Draft, Field, LineShape, number_of_text, records_of_lines
from characterize.formats.reading import Chunk, Reading
from characterize.layout import RecordKind

SHAPE = LineShape(
    (
        Field("unit", "integer"),
        Field("block", "integer"),
        Field("size", "integer"),
        Field("op", "text", "[rRwW]"),
        Field("time", "time"),
    ),
    "ASU,LBA,Size,R|W,Timestamp",
    ",",
    header="asu,lba,size,opcode,timestamp",
    tail="(?:,.*)?",
)
looks_like = SHAPE.fits


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format."""
    for records in records_of_lines(reading, SHAPE, partial(_convert, reading.sector_bytes)):
        yield Chunk({RecordKind.BLOCK: records})


def _convert(sector_bytes: int, columns: Columns) -> Draft:
    op = number_of_text(columns["op"], lambda text: READ_OR_WRITE.get(text.upper(), 0))
    draft = block_draft(
        start_ns=columns["time"],
        device=columns["unit"],
        offset=columns["block"],
        size=columns["size"],
        op=op,
        sector_bytes=sector_bytes,
    )
    draft.require(op > 0, "R or W")
    return draft
