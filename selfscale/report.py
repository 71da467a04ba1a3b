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
from characterize.stream import Stream, stream_of
from characterize.trace import Trace
from characterize.trace_files.new_file import new_file
from characterize.trace_files.provenance import tool_version
from selfscale.predicting.prediction_errors import MeasuredAgain
from selfscale.profile import Profile
from selfscale.profiles.steadiness import unsteadiness
from selfscale.reporting.comparison_report import comparison_section
from selfscale.reporting.fidelity_report import fidelity_section
from selfscale.reporting.figures import SHOWN_ROWS
from selfscale.reporting.machine_report import machine_sections
from selfscale.reporting.report_parts import Cell, Section, Table, flat_rows, name_of_file
from selfscale.reporting.trace_report import alterations_section, trace_section


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
        Documents ``flextrace.replay/1`` with ``fidelity`` (`selfscale.comparing.fidelity.load`).
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
        if found := unsteadiness(profile.measured):
            warnings.append(f"{name}: {found}")
    for validation in validations:
        warnings += [f"validation {name_of_file(validation.path)}: {reason}" for reason in validation.warnings]
    return list(dict.fromkeys(warnings))


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
