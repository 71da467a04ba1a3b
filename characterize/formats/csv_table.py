# SPDX-License-Identifier: Apache-2.0
"""Turns a CSV table with a line of column names into chunks of records; `characterize.formats.csv_export` writes one.

What the columns mean is said in `characterize.formats.named_columns`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from characterize.errors import FlextraceError
from characterize.formats.compressed import head_of
from characterize.formats.lines import LineShape, records_of_lines
from characterize.formats.named_columns import Meaning, TableRecords, meaning_of
from characterize.formats.reading import Chunk, Reading

HEADER_BYTES_MAX = 16 << 10
_ENOUGH = {"start", "op"}


def looks_like(head: bytes) -> bool:
    """Whether the first line names columns among which are a time and an operation."""
    names = _names(head)
    return len(names) >= 4 and meaning_of(names, None).names >= _ENOUGH


def _names(head: bytes) -> list[str]:
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    try:
        return [name.strip() for name in next(csv.reader([first]), [])]
    except csv.Error:  # a carriage return in the middle, or a field without an end
        return []


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read a table.

    Raises
    ------
    FlextraceError
        A column that is needed is not there, or a line is malformed.
    """
    names = _names(head_of(reading.path, HEADER_BYTES_MAX))
    if not names:
        raise FlextraceError(f"{reading.path} has no requests: not even a line of column names")
    meaning = meaning_of(names, reading)
    table = TableRecords(reading, meaning)
    for records in records_of_lines(reading, _shape(names, meaning), table.draft, header=True):
        yield table.chunk(records)


def _shape(names: list[str], meaning: Meaning) -> LineShape:
    kinds = {"integer": " (integer)", "time": " (number)"}
    fields = (name + kinds.get(it.kind, "") for name, it in zip(names, meaning.fields, strict=True))
    expected = f"{len(names)} fields: {','.join(fields)}"
    return LineShape(meaning.fields, expected, ",", quoted=True, units=meaning.units)
