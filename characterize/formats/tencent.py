# SPDX-License-Identifier: Apache-2.0
"""Turns a trace of Tencent's cloud block storage (2018) into chunks of BLOCK records.

``Timestamp,Offset,Size,IOType,VolumeID`` by its README: seconds since 1970, offset and size in sectors of 512 bytes,
0 = read 1 = write. The order of the lines of one second is kept. Durations and threads are not in the format.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from characterize.formats.block_records import block_draft
from characterize.formats.lines import Columns, Draft, Field, LineShape, number_of_text, records_of_lines
from characterize.formats.reading import Chunk, Reading
from characterize.layout import BlockOp, RecordKind

SHAPE = LineShape(
    (
        Field("time", "time"),
        Field("sector", "integer"),
        Field("sectors", "integer", r"\d{1,9}"),
        Field("type", "text", "[01]"),
        Field("volume", "integer"),
    ),
    "Timestamp,Offset,Size,0|1,VolumeID",
    ",",
)
_OPS = {"0": BlockOp.READ, "1": BlockOp.WRITE}


def looks_like(head: bytes) -> bool:
    """Whether a file begins like one of this format."""
    return SHAPE.fits(head)


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format."""
    reading.facts["time_resolution_s"] = 1
    for records in records_of_lines(reading, SHAPE, partial(_convert, reading.sector_bytes)):
        yield Chunk({RecordKind.BLOCK: records})


def _convert(sector_bytes: int, columns: Columns) -> Draft:
    op = number_of_text(columns["type"], lambda text: _OPS.get(text, 0))
    draft = block_draft(
        start_ns=columns["time"],
        device=columns["volume"],
        offset=columns["sector"],
        size=columns["sectors"].clip(-1, 2**40) * sector_bytes,
        op=op,
        sector_bytes=sector_bytes,
    )
    draft.require(op > 0, "0 (read) or 1 (write)")
    return draft
