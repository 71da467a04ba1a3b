# SPDX-License-Identifier: Apache-2.0
"""Turns a profile, traces, comparisons and replays into one HTML file that needs no network and no other file."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from characterize.characterization import Characterization, characterize
from characterize.definitions import DEFINITIONS
from characterize.errors import FlextraceError
from characterize.figure_data import TITLES, figure_data_of
from characterize.layer_characterization import LayerCharacterization
from characterize.links import Links
from characterize.new_file import new_file
from characterize.provenance import tool_version
from characterize.requests import LAYERS, Layer
from characterize.stream import Stream, stream_of
from characterize.trace import Trace
from characterize.units import format_bytes, format_duration
from characterize.workload import PARAMETERS
from selfscale.comparison import remarks_of
from selfscale.comparison_figures import comparison_bars
from selfscale.fidelity_report import fidelity_section
from selfscale.figures import SHOWN_ROWS, format_cell
from selfscale.machine_report import machine_sections
from selfscale.prediction_errors import MeasuredAgain
from selfscale.profile import Profile
from selfscale.report_parts import Cell, Section, Table, flat_rows, name_of_file
from selfscale.trace_figures import trace_figures


def write_report(
    path: str | os.PathLike[str],
    *,
    profiles: Sequence[Profile] = (),
    validations: Sequence[MeasuredAgain] = (),
    traces: Sequence[Trace | Stream] = (),
    comparisons: Sequence[Mapping[str, Any]] = (),
    replays: Sequence[Mapping[str, Any]] = (),
    force: bool = False,
) -> Path:
    """Write the report.

    Parameters
    ----------
    path : path-like
    profiles : sequence of Profile
        Adds the single parameter graphs of each machine, the errors of predictions, and several machines side by side.
    validations : sequence of MeasuredAgain
        What ``flextrace validate`` measured for the profiles; else the errors are those on a profile's random points.
    traces : sequence of Trace or Stream
        Adds the characterization and figures of each; traces made by ``alter`` also stand in the table of alterations.
    comparisons : sequence of mapping
        Documents ``flextrace.comparison/1``.
    replays : sequence of mapping
        Documents ``flextrace.replay/1`` with ``fidelity`` (`selfscale.fidelity.load`).
    force : bool
        Overwrite an existing file.

    Returns
    -------
    Path
        Of the file.

    Raises
    ------
    FlextraceError
        There is nothing to report, a validation is of another profile, or the file exists or cannot be written.
    """
    if not (profiles or traces or comparisons or replays):
        raise FlextraceError("a report of nothing: give a profile, a trace, a comparison or a replay", 2)
    path = Path(path)
    streams = [trace if isinstance(trace, Stream) else stream_of(trace) for trace in traces]
    results = [characterize(stream) for stream in streams]
    characterized = [(stream.facts, one) for stream, one in zip(streams, results, strict=True)]
    sections = [
        _section_of(document, "comparison", "flextrace compare", partial(comparison_section, number, document))
        for number, document in enumerate(comparisons, start=1)
    ]
    sections += [
        _section_of(document, "replay", "flextrace replay --record", partial(fidelity_section, number, document))
        for number, document in enumerate(replays, start=1)
    ]
    sections += machine_sections(profiles, validations, comparisons)
    sections += [
        trace_section(number, *pair) for number, pair in enumerate(zip(streams, results, strict=True), start=1)
    ]
    altered = alterations_section([facts for facts, _ in characterized])
    if altered.tables:
        sections.append(altered)
    sections.append(provenance_section(profiles, validations, characterized, comparisons, replays))
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("selfscale"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.get_template("report.html").render(
        created=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        tool_version=tool_version(),
        sections=sections,
        warnings=_warnings(profiles, validations, characterized, comparisons, replays),
        plotly=get_plotlyjs(),
        shown_rows=SHOWN_ROWS,
    )
    with new_file(path, force=force) as stream:
        stream.write(page.encode("utf-8", errors="backslashreplace"))
    return path


def _section_of(document: Mapping[str, Any], kind: str, maker: str, make: Callable[[], Section]) -> Section:
    """The section of a document, which may have been cut off or edited.

    Raises
    ------
    FlextraceError
        Something in it is missing, or is not what it should be.
    """
    try:
        list(document["reasons"])
        return make()
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise FlextraceError(
            f"the {kind} of {document.get('trace')} is damaged ({error!r}): make it again with '{maker}'"
        ) from error


def _warnings(
    profiles: Sequence[Profile],
    validations: Sequence[MeasuredAgain],
    characterized: Sequence[tuple[Trace, Characterization]],
    comparisons: Sequence[Mapping[str, Any]],
    replays: Sequence[Mapping[str, Any]],
) -> list[str]:
    warnings = [f"{name_of_file(trace.path)}: {warning}" for trace, one in characterized for warning in one.warnings]
    for document in comparisons:
        warnings += [f"comparison of {document.get('trace')}: {reason}" for reason in document["reasons"]]
    for document in replays:
        warnings += [f"replay of {document['trace']}: {reason}" for reason in document["reasons"]]
    for profile in profiles:
        name = f"profile {name_of_file(profile.path)}"
        if profile.lacks:
            warnings.append(f"{name} {profile.lacks}")
        unsteady = sum(not point.steady for point in profile.measured)
        if unsteady:
            warnings.append(f"{unsteady} of {len(profile.measured)} points of {name} were not steady when stopped")
    for validation in validations:
        warnings += [f"validation {name_of_file(validation.path)}: {reason}" for reason in validation.warnings]
    return list(dict.fromkeys(warnings))


# ---- comparison ----


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


# ---- traces ----


def trace_section(number: int, stream: Stream, characterization: Characterization) -> Section:
    """A trace's parameters and figures, layer by layer."""
    facts = stream.facts
    section = Section(f"trace-{number}", f"Trace: {name_of_file(facts.path)}")
    layers = {name: characterization.layers[name] for name in LAYERS if characterization.layers[name].requests}
    command = facts.header.metadata.get("command")
    if command:
        section.sentences.append(f"Command: {' '.join(map(str, command)) if isinstance(command, list) else command}")
    if not layers:
        section.sentences.append("This trace holds no request.")
        return section
    if characterization.elapsed_s > 0:
        section.sentences.append(f"Elapsed time {format_duration(characterization.elapsed_s)}.")
    section.tables = [_parameter_table(layers), *_links_table(characterization.links), _more_table(layers)]
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


def _links_table(links: Links) -> list[Table]:
    """Why block bytes moved; no table where the trace does not say."""
    rows = [
        [Cell(row["class"].lower()), *(Cell(format_bytes(row[f"{way}_bytes"])) for way in ("read", "written"))]
        for row in links.by_class.to_dict("records")
    ]
    for share, text in ((links.issued, "direct and fill: operation"), (links.written_back, "write-back: process")):
        if share.bytes:
            rows.append([Cell(f"linked, {text} known"), Cell(f"{share.share:.2%}"), Cell("")])
    return [Table("Why block bytes moved", ["class", "read", "written"], rows)] if len(links.by_class) else []


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
        lineage = trace.header.metadata.get("lineage")
        if not isinstance(lineage, dict) or "achieved" not in lineage:
            continue
        before, wanted, achieved, off, changes = (
            lineage.get(name) or {} for name in ("before", "wanted", "achieved", "deviation", "changes")
        )
        for parameter in PARAMETERS:
            deviation = off.get(parameter)
            rows.append(
                [
                    Cell(name_of_file(trace.path)),
                    Cell(parameter),
                    Cell(format_cell(before.get(parameter))),
                    Cell(format_cell(wanted.get(parameter)), changes.get(parameter, "held")),
                    Cell(format_cell(achieved.get(parameter))),
                    Cell("-" if deviation is None else f"{deviation:+.2%}"),
                ]
            )
    if rows:
        section.sentences = [
            "What each altered trace was to become, and what it is when characterized again (thesis, 6.2)."
        ]
        headings = ["trace", "parameter", "original", "wanted", "achieved", "deviation"]
        section.tables = [Table("Wanted and achieved", headings, rows)]
    return section


# ---- provenance ----


def provenance_section(
    profiles: Sequence[Profile],
    validations: Sequence[MeasuredAgain],
    characterized: Sequence[tuple[Trace, Characterization]],
    comparisons: Sequence[Mapping[str, Any]],
    replays: Sequence[Mapping[str, Any]],
) -> Section:
    """Where everything came from: files, hashes, commands, versions, environments, definitions."""
    section = Section("provenance", "Provenance")
    for kind, documents in (("Comparison", comparisons), ("Replay", replays)):
        for document in documents:
            kept = {name: value for name, value in document.items() if name not in ("rows", "columns", "fidelity")}
            title = f"{kind} of {name_of_file(document.get('trace'))}"
            section.tables.append(Table(title, ["what", "value"], flat_rows(kept), collapsed=True))
    for profile in profiles:
        kept = {
            "path": profile.path,
            "tool_version": profile.tool_version,
            "command": profile.command,
            "seed": profile.seed,
            "created": profile.created,
            "settings": profile.settings,
        }
        title = f"Profile {name_of_file(profile.path)}"
        section.tables.append(Table(title, ["what", "value"], flat_rows(kept), collapsed=True))
    for validation in validations:
        kept = {"path": validation.path, "profile created": validation.created, "points": len(validation.points)}
        title = f"Validation {name_of_file(validation.path)}"
        section.tables.append(Table(title, ["what", "value"], flat_rows(kept), collapsed=True))
    for trace, one in characterized:
        kept = {**one.provenance, "trace": one.trace, "metadata": trace.header.metadata, "lost": one.lost}
        section.tables.append(
            Table(f"Trace {name_of_file(trace.path)}", ["what", "value"], flat_rows(kept), collapsed=True)
        )
    definitions = [[Cell(name), Cell(meaning)] for name, meaning in DEFINITIONS.items()]
    section.tables.append(Table("Definitions", ["name", "definition"], definitions, collapsed=True))
    return section
