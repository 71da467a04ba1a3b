# SPDX-License-Identifier: Apache-2.0
"""Turns ``--columns NAME=COLUMN,...``, of verbs that read tables, into columns by the names that they have here."""

from __future__ import annotations

from characterize.errors import FlextraceError


def parse_columns(text: str) -> dict[str, str]:
    """The columns of a table that have other names, by their own here.

    Raises
    ------
    FlextraceError
        A name or a column is missing, or a name stands there twice.
    """
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    columns = {name.strip(): column.strip() for name, _, column in pairs}
    if not all(columns) or not all(columns.values()):
        raise FlextraceError(f"{text!r} is not understood: give NAME=COLUMN, parted by commas", 2)
    if len(columns) < len(pairs):
        raise FlextraceError(f"{text!r}: a name stands there twice", 2)
    return columns
