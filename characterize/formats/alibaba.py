# SPDX-License-Identifier: Apache-2.0
"""Turns an Alibaba block trace (2020) into chunks of BLOCK records.

``device_id,opcode,offset,length,timestamp`` by its README: opcode ``R`` or ``W``, offset and length in bytes,
timestamp in microseconds since 1970. Durations and threads are not in the format.
"""

from __future__ import annotations

from collections.abc import Iterator

from characterize.formats.arrivals import arrival_chunks
from characterize.formats.block_records import READ_OR_WRITE
from characterize.formats.lines import Field, LineShape
from characterize.formats.reading import Chunk, Reading

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
    return arrival_chunks(reading, SHAPE, lambda text: READ_OR_WRITE.get(text, 0), "R or W")
