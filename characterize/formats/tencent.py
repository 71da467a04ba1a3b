# SPDX-License-Identifier: Apache-2.0
"""Turns a trace of Tencent's cloud block storage (2018) into chunks of BLOCK records.

``Timestamp,Offset,Size,IOType,VolumeID`` by its README: seconds since 1970, offset and size in sectors of 512 bytes,
0 = read 1 = write. The order of the lines of one second is kept. Durations and threads are not in the format.
"""

from __future__ import annotations

from collections.abc import Iterator

from characterize.formats.arrivals import arrival_chunks
from characterize.formats.lines import Field, LineShape
from characterize.formats.reading import Chunk, Reading
from characterize.layout import BlockOp

SHAPE = LineShape(
    (
        Field("time", "time"),
        Field("offset", "integer"),
        Field("sectors", "integer", r"\d{1,9}"),
        Field("op", "text", "[01]"),
        Field("device", "integer"),
    ),
    "Timestamp,Offset,Size,0|1,VolumeID",
    ",",
    header="timestamp,offset,size,iotype,volumeid",
)
_OPS = {"0": BlockOp.READ, "1": BlockOp.WRITE}

looks_like = SHAPE.fits


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format."""
    reading.facts["time_resolution_s"] = 1
    return arrival_chunks(reading, SHAPE, lambda text: _OPS.get(text, 0), "0 (read) or 1 (write)")
