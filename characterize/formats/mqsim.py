# SPDX-License-Identifier: Apache-2.0
"""Turns an ASCII trace of the SSD simulator MQSim into chunks of BLOCK records.

Five numbers a line, separated by blanks: arrival in ns, device, first sector and number of sectors of 512 bytes,
1 = read or 0 = write. Durations and threads are not in the format.
"""

from __future__ import annotations

from collections.abc import Iterator

from characterize.formats.arrivals import arrival_chunks, arrival_shape
from characterize.formats.lines import DECIMAL
from characterize.formats.reading import Chunk, Reading
from characterize.layout import BlockOp

_OPS = {"1": BlockOp.READ, "0": BlockOp.WRITE}
_EXPECTED = "arrival, device, sector, sectors, 1|0"
SHAPE = arrival_shape(DECIMAL, "[01]", _EXPECTED)


def looks_like(head: bytes) -> bool:
    """Whether a file begins like one of this format: as DiskSim's, but for whole numbers as times."""
    return arrival_shape(r"\d{1,18}", "[01]", _EXPECTED).fits(head)


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format."""
    return arrival_chunks(reading, SHAPE, lambda text: _OPS.get(text, 0), "1 (read) or 0 (write)")
