# SPDX-License-Identifier: Apache-2.0
"""Turns a comparison into a section of the report: its table, the conditions of every row, and its bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from characterize.units import format_bytes
from selfscale.comparing.comparison import remarks_of
from selfscale.reporting.comparison_figures import comparison_bars
from selfscale.reporting.report_parts import Cell, Section, Table, name_of_file


def comparison_section(number: int, document: Mapping[str, Any]) -> Section:
    """The table of one comparison, its conditions and its bars."""
    columns = document["columns"]
    headings = ["", *(f"{column['title']}, {column['unit'].replace('us', 'µs')}" for column in columns.values())]
    values, conditions = [], []
    for row in document["rows"]:
        marked = not row["trustworthy"]
        values.append(
            [Cell(row["label"], row["made_by"], marked)]
            + [_comparison_cell(row, name, column["scale"], marked) for name, column in columns.items()]
        )
        limit = row["memory_limit_bytes"]
        conditions.append(
            [
                Cell(row["label"], marked=marked),
                Cell("none" if limit is None else format_bytes(limit)),
                Cell("not measured" if row["coldFrac"] is None else f"{row['coldFrac']:.1%}"),
                Cell(row["page_cache"]),
            ]
        )
    remarks = [
        [Cell(" / ".join(labels), marked=doubt), Cell(text, marked=doubt)]
        for doubt, text, labels in remarks_of(document)
    ]
    section = Section(f"comparison-{number}", f"Comparison: {name_of_file(document.get('trace'))}")
    section.sentences = [
        "The same work by several means (thesis, table 3.2): value, error against the application, range of the runs.",
        "A row marked with ! ran under other conditions than the application: its error is not its model's alone.",
    ]
    section.tables = [
        Table("Performance", headings, values),
        Table("Conditions", ["", "memory limit", "cold reads (coldFrac)", "page cache at the start"], conditions),
        Table("Remarks", ["row", "remark"], remarks),
        Table(
            "What the columns mean",
            ["column", "meaning"],
            [[Cell(column["title"]), Cell(column["meaning"])] for column in columns.values()],
            collapsed=True,
        ),
    ]
    section.figures = [comparison_bars(document)]
    return section


def _comparison_cell(row: Mapping[str, Any], name: str, scale: float, marked: bool) -> Cell:
    value, error = row["median"][name], row["error"][name]
    if value is None:
        return Cell("-")
    below = "" if error is None else f"{error:+.1%}" if abs(error) < 1 else f"{error:+.0%}"
    if row["repetitions"] > 1:
        low, high = row["low"][name] * scale, row["high"][name] * scale
        below += f" ({_short(low)} to {_short(high)})"
    return Cell(_short(value * scale), below.strip(), marked)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
