# SPDX-License-Identifier: Apache-2.0
"""Turns an Alibaba block trace (2020) into chunks of BLOCK records.

``device_id,opcode,offset,length,timestamp`` by its README: opcode ``R`` or ``W``, offset and length in bytes,
timestamp in microseconds since 1970. Durations and threads are not in the format.
"""

from __future__ import annotations

from collections.abc import Iterator

from characterize.formats.block_records import READ_OR_WRITE, block_draft
from characterize.formats.lines import Columns, Draft, Field, LineShape, number_of_text, records_of_lines
from characterize.formats.reading import Chunk, Reading
from characterize.layout import RecordKind

SHAPE = LineShape(
    (
        Field("device", "integer"),
        Field("op", "text", "[RW]"),
        Field("offset", "integer"),
        Field("size", "integer"),
        Field("time", "time"),
    ),
    "device_id,R|W,offset,length,timestamp",
    ",",
    header="device_id,opcode,offset,length,timestamp",
)
looks_like = SHAPE.fits


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format."""
    for records in records_of_lines(reading, SHAPE, _convert):
        yield Chunk({RecordKind.BLOCK: records})


def _convert(columns: Columns) -> Draft:
    op = number_of_text(columns["op"], lambda text: READ_OR_WRITE.get(text, 0))
    draft = block_draft(
        start_ns=columns["time"], device=columns["device"], offset=columns["offset"], size=columns["size"], op=op
    )
    draft.require(op > 0, "R or W")
    return draft
