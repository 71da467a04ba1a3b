# SPDX-License-Identifier: Apache-2.0
"""Turns the comparison of a replay with its original into a section of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfscale.comparing.fidelity_text import (
    TIMES,
    account_lines,
    distance_rows,
    example_lines,
    number_lines,
    order_rows,
    time_rows,
)
from selfscale.reporting import fidelity_figures
from selfscale.reporting.report_parts import Cell, Section, Table, name_of_file


def fidelity_section(number: int, document: Mapping[str, Any]) -> Section:
    """Both runs side by side, the distances of their distributions, and how the order was kept.

    Parameters
    ----------
    number : int
        Of the section among its kind.
    document : mapping
        Schema ``flextrace.replay/1`` with ``fidelity``.
    """
    fidelity = document["fidelity"]
    section = Section(f"fidelity-{number}", f"Replay: {name_of_file(document['trace'])}")
    cache = "" if fidelity.get("layer") == "block" else f", page cache {document['cache']}"
    section.sentences = [
        f"The trace and a recording of its replay, timing {document['timing']}, order {document['order']}{cache}: only "
        "what the replay repeats, from the first operation to the last one.",
        *(f"Not trustworthy: {reason}." for reason in fidelity["reasons"]),
        *(f"{line[0].upper()}{line[1:]}." for line in [*account_lines(fidelity), *fidelity["notes"]]),
    ]
    numbers = [_cells(line.name, line.original, line.replay, line.difference) for line in number_lines(fidelity)]
    orders = [
        [Cell(name, meaning), Cell(checked), Cell(violations, marked=violations != "0")]
        for name, meaning, checked, violations in order_rows(fidelity)
    ]
    section.tables = [
        Table("Original and replay", ["", "original", "replay", "difference"], numbers),
        Table("Response times", ["", "run", "count", *TIMES.values()], [_cells(*row) for row in time_rows(fidelity)]),
        Table(
            "Distances of the distributions",
            ["", "KS (largest difference)", "EMD / mean of the original"],
            [_cells(*row) for row in distance_rows(fidelity)],
        ),
        Table("Order", ["rule", "operations checked", "violations"], orders),
    ]
    if examples := example_lines(fidelity):
        section.tables.append(Table("First violations", [""], [[Cell(line, marked=True)] for line in examples]))
    figures = (make(fidelity) for make in _FIGURES)
    section.figures = [figure for figure in figures if figure is not None]
    return section


_FIGURES = (
    fidelity_figures.response_times,
    fidelity_figures.think_times,
    fidelity_figures.in_flight,
    fidelity_figures.lateness,
)


def _cells(*texts: str) -> list[Cell]:
    return [Cell(text) for text in texts]
