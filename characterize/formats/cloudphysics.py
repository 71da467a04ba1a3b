# SPDX-License-Identifier: Apache-2.0
"""Turns a CloudPhysics CSV (one virtual disk) into chunks of BLOCK records.

A header line, then ``version,time,op,size,lbn``: seconds (resolution 1 s; the order of the lines is the order of the
requests), SCSI opcode in hexadecimal, bytes, logical block of 512 bytes. Durations and threads are not in the format.
"""

from __future__ import annotations

from collections.abc import Iterator

from characterize.formats.arrivals import arrival_chunks
from characterize.formats.lines import Field, LineShape
from characterize.formats.reading import Chunk, Reading
from characterize.formats.scsi import op_of_code

SHAPE = LineShape(
    (
        Field("version", "text", r"\d{1,3}"),
        Field("time", "time"),
        Field("op", "text", "[0-9a-fA-F]{1,2}"),
        Field("size", "integer"),
        Field("offset", "integer"),
    ),
    "version,time,op (hexadecimal),size,lbn",
    ",",
)
HEADER = b"version,time,op,size,lbn"


def looks_like(head: bytes) -> bool:
    """Whether a file begins like one of this format."""
    return head.startswith(HEADER) and SHAPE.fits(head)


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format; opcodes that neither read nor write are no requests."""
    reading.facts["time_resolution_s"] = 1
    return arrival_chunks(reading, SHAPE, _op, "a SCSI opcode in hexadecimal")


def _op(text: str) -> int:
    try:
        return op_of_code(int(text, 16))
    except ValueError:
        return 0
