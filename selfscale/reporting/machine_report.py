# SPDX-License-Identifier: Apache-2.0
"""Turns profiles into the sections of a report: one per machine, and one that puts several side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from characterize.errors import FlextraceError
from characterize.units import format_bytes, format_megabytes
from characterize.workload import PARAMETERS
from selfscale.models.measured import region_of
from selfscale.predicting.cross_validation import Score
from selfscale.predicting.prediction_errors import MeasuredAgain, PredictionErrors, applications_of, errors_of
from selfscale.profile import Profile
from selfscale.profiles import machines
from selfscale.profiles.conclusions import conclude
from selfscale.profiles.repeatability import spreads_of
from selfscale.reporting.figures import format_cell
from selfscale.reporting.findings import conditions
from selfscale.reporting.machines_figures import machines_figures
from selfscale.reporting.prediction_figures import prediction_figures, title_of
from selfscale.reporting.profile_figures import single_parameter_graphs
from selfscale.reporting.report_parts import Cell, Section, Table, flat_rows, name_of_file
from selfscale.reporting.strengths import region_name, strengths


def machine_sections(
    profiles: Sequence[Profile],
    validations: Sequence[MeasuredAgain] = (),
    comparisons: Sequence[Mapping[str, Any]] = (),
) -> list[Section]:
    """All sections about machines.

    Parameters
    ----------
    profiles : sequence of Profile
    validations : sequence of MeasuredAgain
        Each of one of the profiles.
    comparisons : sequence of mapping
        Documents ``flextrace.comparison/1``: applications that predictions of a profile were compared with.

    Raises
    ------
    FlextraceError
        A validation is of none of the profiles.
    """
    for validation in validations:
        if not any(validation.is_of(profile) for profile in profiles):
            raise FlextraceError(
                f"validation {validation.path} was measured for a profile that was made {validation.created}, and "
                "none of those given was: give that profile",
                2,
            )
    sections = [] if len(profiles) < 2 else [side_by_side_section(profiles)]
    for number, (name, profile) in enumerate(zip(machines.names_of(profiles), profiles, strict=True), 1):
        own = next((validation for validation in validations if validation.is_of(profile)), None)
        section = machine_section(profile, own, comparisons)
        if len(profiles) > 1:
            section.anchor, section.title = f"machine-{number}", f"Machine: {name}"
        sections.append(section)
    return sections


def machine_section(
    profile: Profile, validation: MeasuredAgain | None = None, comparisons: Sequence[Mapping[str, Any]] = ()
) -> Section:
    """The single parameter graphs of a machine, how good predictions from it are, and where it was measured."""
    section = Section("machine", "This machine")
    borders = ", ".join(format_bytes(border) for border in profile.boundaries_bytes) or "none found"
    section.sentences = [
        f"{len(profile.measured)} workloads measured by the self-scaling benchmark (thesis, chapter 4); "
        f"borders between performance regions: {borders}.",
        *conditions(profile),
        *strengths(conclude(profile)),
    ]
    section.tables = [*_model_table(profile)]
    if profile.regions:
        section.figures.append(single_parameter_graphs(profile))
    try:
        errors = errors_of(profile, validation.points if validation else None)
    except FlextraceError as error:
        section.sentences.append(f"Figures 5.3 to 5.6 of the thesis (errors of predictions) are not drawn: {error}.")
    else:
        where = f"validation {name_of_file(validation.path)}" if validation else "profile's own random workloads"
        section.tables.append(_error_table(errors, where))
        applications = applications_of(profile, comparisons)
        section.figures += prediction_figures(errors, profile.boundaries_bytes, applications)
    section.tables += [
        Table("Environment", ["what", "value"], flat_rows(profile.environment)),
        *_drift_table(profile),
    ]
    return section


def _drift_table(profile: Profile) -> list[Table]:
    """How far the focal points that were measured again lay apart, in the order of their measurements."""
    cached = profile.access.cached
    rows = [
        [
            Cell(region_name(entry["region"], len(profile.regions), cached=cached)),
            Cell(", ".join(f"{format_megabytes(value)} MB/s" for value in entry["throughput_bytes_per_s"])),
            Cell(f"{entry['spread']:.1%}"),
            Cell(f"{entry['last_to_first']:+.1%}"),
        ]
        for entry in profile.drift.get("reference_points", [])
    ]
    titles = ["region", "throughput, as measured in turn", "(largest - smallest) / mean", "last to first"]
    return [Table("Drift of the reference points", titles, rows, collapsed=True)] if rows else []


def _error_table(errors: PredictionErrors, where: str) -> Table:
    """Table 5.1: errors of every model beside the repeatability."""
    rows = []
    for model in errors.models:
        error = errors.of(model)["error"]
        quantiles = [f"{error.quantile(share):.1%}" for share in (0.5, 0.75, 0.9, 1.0)]
        rows.append([Cell(text) for text in (title_of(errors, model), str(len(error)), *quantiles)])
    rows += [[Cell(model, reason), *[Cell("-")] * 5] for model, reason in errors.unusable.items()]
    headings = ["model", "random workloads", "median error", "75th percentile", "90th percentile", "largest"]
    return Table(f"Errors on random workloads ({where})", headings, rows)


def _model_table(profile: Profile) -> list[Table]:
    """Errors of every model on workloads that it had not learned from, and the repeatability (as thesis table 5.1)."""
    scores = [Score.from_document(score) for score in profile.models.get("scores", [])]
    rows = [_repeatability_row(profile)]
    for score in scores:
        used = " (used for predictions)" if score.model == profile.models.get("best") else ""
        errors = [f"{score.errors[name]:.1%}" if score.errors else "-" for name in ("median", "p75", "p90")]
        regions = ", ".join(f"{part['median']:.1%}" for part in score.by_region) or score.reason
        rows.append([Cell(text) for text in (score.model + used, str(score.count), *errors, regions)])
    titles = ["model", "workloads left out", "median error", "75th percentile", "90th percentile", "median by region"]
    return [Table("Cross-validated errors of the models", titles, rows)] if scores else []


def _repeatability_row(profile: Profile) -> list[Cell]:
    """How far equal measurements lay apart, of all that were measured again."""
    spreads = spreads_of(profile.measured, profile.regions)
    if not spreads:
        return [Cell("repeatability", "nothing was measured twice"), *[Cell("-")] * 5]
    by_region: dict[int, list[float]] = {}
    for workload, spread in spreads.items():
        by_region.setdefault(region_of(profile.regions, workload.unique_bytes), []).append(spread)
    quantiles = [f"{np.quantile(list(spreads.values()), share):.1%}" for share in (0.5, 0.75, 0.9)]
    regions = ", ".join(f"{np.median(by_region[region]):.1%}" for region in sorted(by_region))
    return [Cell(text) for text in ("repeatability", f"{len(spreads)} measured again", *quantiles, regions)]


def side_by_side_section(profiles: Sequence[Profile]) -> Section:
    """Several machines as Chen & Patterson 1994 compare theirs."""
    section = Section("machines", "Machines side by side")
    section.sentences = [
        "Cache sizes and throughput of several machines, as Chen & Patterson compare theirs (UNIX I/O Performance in "
        "Workstations and Mainframes, 1994)."
    ]
    rows = []
    for focal in machines.at_focal_points(profiles).to_dict("records"):
        values = [
            format_bytes(focal[name]) if name in ("uniqueBytes", "sizeMean") else format_cell(focal[name])
            for name in PARAMETERS
        ]
        rate = "not measured" if math.isnan(focal["bytes_per_s"]) else f"{format_megabytes(focal['bytes_per_s'])} MB/s"
        rows.append([Cell(text) for text in (focal["machine"], focal["level"], *values, rate)])
    headings = ["machine", "region", *PARAMETERS, "throughput"]
    section.tables = [Table("Focal vectors", headings, rows)] if rows else []
    section.figures = machines_figures(profiles)
    return section
