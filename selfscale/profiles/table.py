# SPDX-License-Identifier: Apache-2.0
"""Turns a CSV file of anybody's measurements into parameters and throughputs, one row for each workload."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from characterize.errors import FlextraceError
from characterize.trace_files.whole_file import read_whole
from characterize.workload import PARAMETERS
from selfscale.models.measured import Z95
from selfscale.profiles.table_columns import EXPECTED, REQUESTS, THROUGHPUT, Column, column_of

DELIMITERS = ",;\t"
SHOWN = 40
"""Characters of a cell in a message."""


@dataclass(frozen=True)
class Table:
    """Measurements; those of the same workload are averaged.

    Attributes
    ----------
    names : list of str
        The parameters: those of the five that there are, in their order, then others.
    values : ndarray, shape (n, len(names))
        Bytes, shares, numbers.
    throughput, half_width_95 : ndarray, shape (n,)
        Bytes per s; the half-width of a mean, infinite where a workload was measured once.
    rows : int
        That were used.
    bad : list of str
        What was wrong with the lines that were left out.
    said : list of str
        What became of columns.
    """

    names: list[str]
    values: np.ndarray
    throughput: np.ndarray
    half_width_95: np.ndarray
    rows: int
    bad: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def read_table(
    path: str | os.PathLike[str],
    columns: Mapping[str, str] | None = None,
    leave_out: Collection[str] = (),
    *,
    skip_bad: bool = False,
) -> Table:
    """Read a table.

    Parameters
    ----------
    path : path-like
        Text with a line of names first; its delimiter is a comma, a semicolon or a tab.
    columns : mapping, optional
        What a column is, with its unit, to its name in the file: ``{"uniqueBytes_mib": "ws"}``.
    leave_out : collection of str
        Names of columns.
    skip_bad : bool
        Leave out, and tell, lines with a cell that cannot be used.

    Raises
    ------
    FlextraceError
        The file cannot be read, lacks a column, or has a cell that cannot be used.
    """
    path = Path(path)
    lines, header = _lines(path)
    meaning, said = _meaning(path, header, dict(columns or {}), set(leave_out)), []
    for index in _of_text(lines, meaning):
        said.append(f"column {header[index]!r} holds no number: left out")
        del meaning[index]
    place = {column.name: index for index, column in meaning.items()}
    if place.keys() >= {THROUGHPUT, REQUESTS}:
        said.append(f"column {header[place[REQUESTS]]!r} is left out for {header[place[THROUGHPUT]]!r}")
        del meaning[place[REQUESTS]]
    rows, bad = [], []
    for number, cells in lines:
        fault = _fault(path, number, cells, header, meaning)
        if fault and not skip_bad:
            raise FlextraceError(f"{fault}; correct it, or leave such lines out with --skip-bad")
        if fault:
            bad.append(fault)
        else:
            rows.append([column.value(cells[index]) for index, column in meaning.items()])
    if not rows:
        raise FlextraceError(f"{path} holds no measurement" + (f": {bad[0]}" if bad else ""))
    return _averaged([column.name for column in meaning.values()], np.array(rows), bad, said)


def _lines(path: Path) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """Lines with their numbers, without empty ones, and the names of the first."""
    try:
        text = io.TextIOWrapper(io.BytesIO(read_whole(path, "table")), encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise FlextraceError(f"{path} is not text in UTF-8: save the table as CSV") from error
    first = next((line for line in text.split("\n") if line.strip()), "")
    reader = csv.reader(io.StringIO(text), delimiter=max(DELIMITERS, key=first.count))
    try:
        lines = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise FlextraceError(f"{path}, line {reader.line_num}: {error}: save the table as CSV") from error
    if not lines:
        raise FlextraceError(f"table {path} is empty: its first line has to name the columns")
    return lines[1:], [name.strip() for name in lines[0][1]]


def _meaning(path: Path, header: list[str], columns: dict[str, str], leave_out: set[str]) -> dict[int, Column]:
    """What is in every column that is used, by its place."""
    missing = [name for name in [*columns.values(), *leave_out] if name not in header]
    if missing:
        raise FlextraceError(f"{path} has no column {missing[0]!r}: it has {', '.join(header)}", 2)
    told = {column: role for role, column in columns.items()}
    meaning: dict[int, Column] = {}
    for index, name in enumerate(header):
        if name in leave_out or not name:
            continue
        column = column_of(told.get(name, name))
        twin = next((header[other] for other, known in meaning.items() if known.name == column.name), None)
        if twin == name:
            raise FlextraceError(
                f"{path} has several columns {name!r}: give each another name in the first line, or leave all of them "
                "out (--leave-out)",
                2,
            )
        if twin is not None:
            raise FlextraceError(
                f"{path}: {twin!r} and {name!r} are both {column.name}: leave one out (--leave-out)", 2
            )
        meaning[index] = column
    names = {column.name for column in meaning.values()}
    if THROUGHPUT not in names and not {REQUESTS, "sizeMean"} <= names:
        raise FlextraceError(
            f"{path} has no throughput: name a column throughput_bytes_per_s or throughput_mb_per_s (or iops beside "
            "sizeMean), or say which one it is with --columns throughput_mb_per_s=COLUMN",
            2,
        )
    order = (*PARAMETERS, THROUGHPUT, REQUESTS)
    ranked = sorted(meaning, key=lambda i: order.index(meaning[i].name) if meaning[i].name in order else len(order))
    return {index: meaning[index] for index in ranked}


def _of_text(lines: list[tuple[int, list[str]]], meaning: dict[int, Column]) -> list[int]:
    """Columns of no known meaning without a single number."""
    return [
        index
        for index, column in meaning.items()
        if column.kind == "number"
        and all(math.isnan(column.value(cells[index])) for _, cells in lines if index < len(cells))
    ]


def _fault(path: Path, number: int, cells: list[str], header: list[str], meaning: dict[int, Column]) -> str:
    """What is wrong with a line; empty if nothing is."""
    if len(cells) != len(header):
        return f"{path}, line {number}: {len(cells)} cells where the first line names {len(header)} columns"
    for index, column in meaning.items():
        if math.isnan(column.value(cells[index])):
            text = (
                f"{_short(cells[index])} is not {EXPECTED[column.kind]}"
                if cells[index].strip()
                else "the cell is empty"
            )
            return f"{path}, line {number}, column {header[index]!r}: {text}"
    return ""


def _short(cell: str) -> str:
    """A cell as it is shown: of one whose quote was never closed, which goes on to the end of the file, the begin."""
    return repr(cell) if len(cell) <= SHOWN else f"{cell[:SHOWN]!r}..."


def _averaged(names: list[str], rows: np.ndarray, bad: list[str], said: list[str]) -> Table:
    """Rows with equal parameters as one, without the parameters that never change."""
    of = {name: rows[:, index] for index, name in enumerate(names)}
    throughput = of[THROUGHPUT] if THROUGHPUT in of else of[REQUESTS] * of["sizeMean"]
    parameters = [name for name in names if name not in {THROUGHPUT, REQUESTS}]
    constant = [name for name in parameters if name not in PARAMETERS and np.ptp(of[name]) == 0]
    said = said + [f"column {name!r} never changes: left out" for name in constant]
    parameters = [name for name in parameters if name not in constant]
    if not any(np.ptp(of[name]) > 0 for name in parameters):
        raise FlextraceError("no parameter of the table changes: there is nothing to learn from")
    values, group, count = np.unique(
        np.column_stack([of[name] for name in parameters]), axis=0, return_inverse=True, return_counts=True
    )
    group = group.ravel()
    mean = np.bincount(group, throughput) / count
    square = np.bincount(group, (throughput - mean[group]) ** 2)
    half_width = np.full(len(count), np.inf)
    several = count > 1
    half_width[several] = Z95 * np.sqrt(square[several] / (count[several] - 1) / count[several])
    return Table(parameters, values, mean, half_width, len(rows), bad, said)
