# SPDX-License-Identifier: Apache-2.0
"""Turns characterized traces into sections of the report: one for each, and one on those that ``alter`` made."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from characterize.characterization import Characterization
from characterize.definitions import DEFINITIONS
from characterize.figure_data import TITLES, figure_data_of
from characterize.layer_characterization import LayerCharacterization
from characterize.links import Links
from characterize.requests import LAYERS, Layer
from characterize.stream import Stream
from characterize.trace import Trace
from characterize.units import format_bytes, format_duration
from characterize.workload import PARAMETERS
from replayer.flexible.manifest import deviation_text
from selfscale.reporting.figures import format_cell
from selfscale.reporting.report_parts import Cell, Section, Table, flat_rows, name_of_file
from selfscale.reporting.trace_figures import trace_figures


def trace_section(number: int, stream: Stream, characterization: Characterization) -> Section:
    """A trace's parameters and figures, layer by layer."""
    facts = stream.facts
    section = Section(f"trace-{number}", f"Trace: {name_of_file(facts.path)}")
    layers = {name: characterization.layers[name] for name in LAYERS if characterization.layers[name].requests}
    command = facts.header.metadata.get("command")
    if command:
        words = shlex.join(map(str, command)) if isinstance(command, list) else command
        section.sentences.append(f"Command: {words}")
    if not layers:
        section.sentences.append("This trace holds no request.")
        return section
    if characterization.elapsed_s > 0:
        section.sentences.append(f"Elapsed time {format_duration(characterization.elapsed_s)}.")
    section.tables = [_parameter_table(layers), *_links_tables(characterization.links), _more_table(layers)]
    for data in figure_data_of(stream, characterization).values():
        section.figures += trace_figures(data)
    return section


def _parameter_table(layers: Mapping[Layer, LayerCharacterization]) -> Table:
    """The five parameters, one column per layer."""
    rows = []
    for parameter in PARAMETERS:
        cells = [Cell(parameter, DEFINITIONS.get(parameter, ""))]
        for layer in layers.values():
            value = layer.parameters.as_document()[parameter]
            in_bytes = parameter in ("uniqueBytes", "sizeMean") and value is not None
            below = "declared" if layer.declared and parameter == "processNum" else ""
            below = format_bytes(value or 0) if in_bytes else below
            low = parameter in layer.lower_bounds
            cells.append(Cell(format_cell(value), below + " (too low: records were lost)" * low, marked=low))
        rows.append(cells)
    return Table("The five parameters", ["parameter", *(TITLES[name] for name in layers)], rows)


def _links_tables(links: Links) -> list[Table]:
    """Why block bytes moved, and of how many it is known who made them move; none where the trace does not say."""
    rows = [
        [Cell(row["class"].lower()), *(Cell(format_bytes(row[f"{way}_bytes"])) for way in ("read", "written"))]
        for row in links.by_class.to_dict("records")
    ]
    linked = [
        [Cell(text) for text in (of, format_bytes(share.bytes), known, f"{share.share:.2%}")]
        for share, of, known in (
            (links.issued, "direct, fill", "their operation"),
            (links.written_back, "write-back", "the process that dirtied them"),
            (links.written_back_to_operation, "write-back", "the operation that dirtied them"),
        )
        if share.bytes
    ]
    tables = [
        Table("Why block bytes moved", ["class", "read", "written"], rows),
        Table("Block bytes whose cause is known", ["class", "bytes", "what is known", "of this share"], linked),
    ]
    return [table for table in tables if table.rows]


def _more_table(layers: Mapping[Layer, LayerCharacterization]) -> Table:
    """Everything else that is one number, collapsed."""
    rows = []
    for name, layer in layers.items():
        document = layer.as_document()
        for part in ("counts", "extended", "sequentiality", "locality", "concurrency", "littles_law"):
            rows += [[Cell(TITLES[name]), *cells] for cells in flat_rows(document[part], f"{part} ")]
        single = {key: value for key, value in document.items() if not isinstance(value, dict | list)}
        rows += [[Cell(TITLES[name]), *cells] for cells in flat_rows(single)]
    return Table("Everything beside them", ["layer", "what", "value"], rows, collapsed=True)


def alterations_section(traces: Sequence[Trace]) -> Section:
    """Wanted, achieved and held parameters of every trace that ``alter`` made, from its lineage."""
    section = Section("alterations", "Alterations")
    rows = []
    for trace in traces:
        lineage = trace.header.metadata.get("lineage", {})
        if "achieved" in lineage:
            rows += [[Cell(name_of_file(trace.path)), *cells] for cells in _altered_rows(lineage)]
    if rows:
        section.sentences = [
            "What each altered trace was to become, and what it is when characterized again (thesis, 6.2). Deviations "
            "of seqFrac and readFrac are differences, all others shares of what was wanted."
        ]
        headings = ["trace", "parameter", "original", "wanted", "achieved", "deviation"]
        section.tables = [Table("Wanted and achieved", headings, rows)]
    return section


def _altered_rows(lineage: Mapping[str, Any]) -> list[list[Cell]]:
    """The five parameters of an altered trace, and the factors of its times where these were changed."""
    before, wanted, achieved, off, changes, times = (
        lineage.get(name) or {} for name in ("before", "wanted", "achieved", "deviation", "changes", "times")
    )

    def deviation(name: str) -> Cell:
        return Cell("-" if off.get(name) is None else deviation_text(name, off[name]))

    rows = [
        [
            Cell(parameter, "bytes" if parameter in ("uniqueBytes", "sizeMean") else ""),
            Cell(format_cell(before.get(parameter))),
            Cell(format_cell(wanted.get(parameter)), changes.get(parameter, "held")),
            Cell(format_cell(achieved.get(parameter))),
            deviation(parameter),
        ]
        for parameter in PARAMETERS
    ]
    return rows + [
        [
            Cell(name),
            Cell("1x"),
            Cell(f"{factor['wanted']:g}x"),
            Cell(f"{factor['achieved']:.4g}x"),
            deviation(name),
        ]
        for name, factor in times.items()
    ]
