# SPDX-License-Identifier: Apache-2.0
"""Turns numbers and texts into the parts that a report is put together from: sections, tables, cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selfscale.reporting.figures import Figure, format_cell


@dataclass
class Cell:
    """A cell of a table: its text, a second smaller line, and whether it is marked as not to be trusted."""

    text: str
    below: str = ""
    marked: bool = False


@dataclass
class Table:
    """A table: title, headings, and rows of cells; ``collapsed`` hides it behind its title."""

    title: str
    headings: list[str]
    rows: list[list[Cell]]
    collapsed: bool = False


@dataclass
class Section:
    """One part of the report.

    Attributes
    ----------
    anchor, title : str
    sentences : list of str
    tables : list of Table
    figures : list of Figure
    """

    anchor: str
    title: str
    sentences: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


def name_of_file(path: Any) -> str:
    """Last part of a path; ``unnamed`` for none."""
    return Path(str(path)).name if path else "unnamed"


def flat_rows(document: Mapping[str, Any], prefix: str = "") -> list[list[Cell]]:
    """Nested documents as rows of (dotted name, value); lists of numbers and texts in one cell, tables left out."""
    rows: list[list[Cell]] = []
    for name, value in document.items():
        if isinstance(value, Mapping):
            rows += flat_rows(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            if not any(isinstance(item, Mapping | list) for item in value):
                rows.append([Cell(f"{prefix}{name}"), Cell(" ".join(format_cell(item) for item in value))])
        else:
            rows.append([Cell(f"{prefix}{name}"), Cell(format_cell(value))])
    return rows
