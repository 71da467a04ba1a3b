# SPDX-License-Identifier: Apache-2.0
"""Turns lines of an arrival, device, sector, sectors and flags, in any order, into chunks of BLOCK records.

What two simulators and one cloud share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from characterize.formats.block_records import block_draft
from characterize.formats.lines import Columns, Draft, Field, LineShape, number_of_text, records_of_lines
from characterize.formats.reading import Chunk, Reading
from characterize.layout import RecordKind


def arrival_shape(time: str, flags: str, expected: str) -> LineShape:
    """A simulator's line: arrival, device, sector, sectors, flags; the patterns of the first and the last differ."""
    numbers = (Field("device", "integer"), Field("sector", "integer"), Field("sectors", "integer"))
    return LineShape((Field("time", "time", time), *numbers, Field("flags", "text", flags)), expected, " ")


def arrival_chunks(
    reading: Reading, shape: LineShape, op_of_flags: Callable[[str], int], expected: str
) -> Iterator[Chunk]:
    """Read lines of the fields ``time, device, sector, sectors, flags``.

    Parameters
    ----------
    reading : Reading
    shape : LineShape
        From `arrival_shape`, or another order of these fields.
    op_of_flags : callable
        Operation that the flags say; 0 = it is none.
    expected : str
        What the flags have to be.
    """

    def convert(columns: Columns) -> Draft:
        op = number_of_text(columns["flags"], op_of_flags)
        draft = block_draft(
            start_ns=columns["time"],
            device=columns["device"],
            offset=columns["sector"],
            size=columns["sectors"].clip(-1, 2**40) * reading.sector_bytes,
            op=op,
            sector_bytes=reading.sector_bytes,
        )
        draft.require(op > 0, expected)
        return draft

    for records in records_of_lines(reading, shape, convert):
        yield Chunk({RecordKind.BLOCK: records})
