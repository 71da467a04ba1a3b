# SPDX-License-Identifier: Apache-2.0
"""Turns an ASCII trace of the simulator DiskSim into chunks of BLOCK records.

Five numbers a line, separated by blanks, by DiskSim's manual: arrival in ms with decimals, device, first block and
number of blocks of 512 bytes, flags in hexadecimal, whose lowest bit says read. Durations and threads are not in the
format.
"""

from __future__ import annotations

from collections.abc import Iterator

from characterize.formats.arrivals import arrival_chunks, arrival_shape
from characterize.formats.lines import DECIMAL
from characterize.formats.reading import Chunk, Reading
from characterize.layout import BlockOp

_FLAGS = "[0-9a-fA-F]{1,8}"
_EXPECTED = "arrival (ms), device, block, blocks, flags (hexadecimal)"
_READ_FLAG = 1
SHAPE = arrival_shape(DECIMAL, _FLAGS, _EXPECTED)


def looks_like(head: bytes) -> bool:
    """Whether a file begins like one of this format: as MQSim's, but for times with a point."""
    return arrival_shape(r"\d{1,18}\.\d+", _FLAGS, _EXPECTED).fits(head)


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a file of the format."""
    return arrival_chunks(reading, SHAPE, _op, "flags in hexadecimal")


def _op(flags: str) -> int:
    try:
        return BlockOp.READ if int(flags, 16) & _READ_FLAG else BlockOp.WRITE
    except ValueError:
        return 0
