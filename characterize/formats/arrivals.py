# SPDX-License-Identifier: Apache-2.0
"""Turns lines that are one request's arrival each into chunks of BLOCK records; what simulators and clouds share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from characterize.formats.block_records import block_draft
from characterize.formats.lines import Columns, Draft, Field, LineShape, number_of_text, records_of_lines
from characterize.formats.reading import Chunk, Reading
from characterize.layout import RecordKind


def arrival_shape(time: str, op: str, expected: str) -> LineShape:
    """A simulator's line: arrival, device, sector, sectors, flags; the patterns of the first and the last differ."""
    numbers = (Field("device", "integer"), Field("offset", "integer"), Field("sectors", "integer"))
    return LineShape((Field("time", "time", time), *numbers, Field("op", "text", op)), expected, " ")


def arrival_chunks(
    reading: Reading, shape: LineShape, op_of_text: Callable[[str], int], expected: str
) -> Iterator[Chunk]:
    """Read lines of arrivals.

    Parameters
    ----------
    reading : Reading
    shape : LineShape
        Of the fields ``time``, ``op``, ``offset`` in sectors, ``size`` in bytes or ``sectors``, and, if there are
        several, ``device``.
    op_of_text : callable
        Operation that a text stands for; 0 = none.
    expected : str
        What such texts have to be.
    """

    def convert(columns: Columns) -> Draft:
        op = number_of_text(columns["op"], op_of_text)
        in_bytes = "size" in columns
        draft = block_draft(
            start_ns=columns["time"],
            device=columns.get("device", np.zeros(len(op), np.int64)),
            offset=columns["offset"],
            size=columns["size"] if in_bytes else columns["sectors"].clip(-1, 2**40) * reading.sector_bytes,
            op=op,
            sector_bytes=reading.sector_bytes,
        )
        draft.require(op > 0, expected)
        return draft

    for records in records_of_lines(reading, shape, convert):
        yield Chunk({RecordKind.BLOCK: records})
