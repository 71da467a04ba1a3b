# SPDX-License-Identifier: Apache-2.0
"""Turns a trace file of the Storage Performance Council into chunks of BLOCK records.

``ASU,LBA,Size,Opcode,Timestamp`` and any further fields, by the SPC Trace File Format Specification 1.0.1: number of
the application storage unit, block (whose size the format leaves to its description; 512 bytes in the public ones),
bytes, ``R`` or ``W`` of either case, seconds since the trace began. Durations and threads are not in the format.
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
        Field("offset", "integer"),
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
    return arrival_chunks(reading, SHAPE, lambda text: READ_OR_WRITE.get(text.upper(), 0), "R or W")
