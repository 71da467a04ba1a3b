# SPDX-License-Identifier: Apache-2.0
"""``flextrace rank``: which of several measured machines suits an application."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError
from characterize.trace_files.provenance import command_words, provenance_of
from characterize.units import format_duration, format_megabytes
from flextrace.options.output_format import add_format_argument
from flextrace.options.table_settings import add_settings_argument, parse_settings
from flextrace.output.prediction_text import recorded_lines, workload_text, wrapped
from flextrace.output.talk import say

if TYPE_CHECKING:
    from selfscale.predicting.application import Application
    from selfscale.predicting.ranking import Entry, Machine

SCHEMA = "flextrace.ranking/1"
SETS = ("table5.2",)
MERITS = {"throughput": "throughput", "elapsed": "speed (the inverse of elapsed)", "cost": "throughput per cost"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.usage = (
        "flextrace rank [OPTION ...] TRACE PROFILE.json ...\n"
        "       flextrace rank [OPTION ...] --workloads table5.2 PROFILE.json ..."
    )
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="TRACE PROFILE.json ...: a recording of the application, and the machines; only machines with --workloads",
    )
    parser.add_argument(
        "--workloads",
        choices=SETS,
        help="instead of a trace: the thesis's five workloads, with ratios to the first machine",
    )
    parser.add_argument(
        "--by",
        choices=MERITS,
        default="throughput",
        help="the best machine first, by throughput (default), elapsed time, or throughput per cost ('scale --cost')",
    )
    parser.add_argument(
        "--measured-on",
        type=Path,
        metavar="OTHER.json",
        help="the machine that the trace was recorded on: rank by predictions relative to how it ran there; "
        "simulations take from it what requests took",
    )
    add_settings_argument(parser)
    parser.add_argument("--model", default="best", metavar="NAME", help="as for 'flextrace predict' (default: best)")
    add_format_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a table for every workload, the best machine first; 3 if the trace lacks records."""
    paths = arguments.files if arguments.workloads else arguments.files[1:]
    if not paths:
        raise FlextraceError("give at least one profile behind the trace, or --workloads table5.2", 2)
    if arguments.workloads and (arguments.measured_on or arguments.by == "elapsed"):
        raise FlextraceError("--measured-on and --by elapsed need a recording: give a trace instead of --workloads", 2)
    from characterize.document import plain  # noqa: PLC0415 (pandas only after the cheap refusals)
    from selfscale.predicting.mismatches import mismatches, recorded_machine  # noqa: PLC0415
    from selfscale.predicting.ranking import machines_of, rank  # noqa: PLC0415
    from selfscale.profile import Profile  # noqa: PLC0415

    settings = parse_settings(arguments.settings)
    # All are read before anything is made of one of them, which may take minutes.
    profiles = [(path, Profile.load(path, tables=True)) for path in paths]
    origin = Profile.load(arguments.measured_on, tables=True) if arguments.measured_on else None
    application = _application(arguments)
    machines = machines_of(profiles, arguments.model, settings)
    warnings = application.warnings
    for machine in machines:
        warnings += mismatches(application, machine.path, machine.predictor)
    measured_on = None
    if origin is not None:
        path = arguments.measured_on
        measured_on, found = recorded_machine(application, origin, path, arguments.model, settings)
        warnings += found
    warnings = list(dict.fromkeys(warnings))  # it may be one of those that are ranked
    tables = rank(machines, application, arguments.by, measured_on)
    if arguments.format == "json":
        print(json.dumps(plain(_document(arguments, machines, tables, warnings)), indent=1, allow_nan=False))
    else:
        lines = (
            _ratio_lines(machines, tables, arguments.by)
            if arguments.workloads
            else _ranking_lines(application, tables, arguments.by)
        )
        print("\n".join(lines))
    for warning in warnings:
        say("rank", f"warning: {warning}")
    return 0 if application.complete else 3


def _application(arguments: argparse.Namespace) -> Application:
    from selfscale.predicting.application import Application, application_of  # noqa: PLC0415
    from selfscale.predicting.ranking import WORKLOADS  # noqa: PLC0415

    if arguments.workloads:
        return Application(list(WORKLOADS[arguments.workloads].items()))
    return application_of(arguments.files[0], {})


def _ranking_lines(application: Application, tables: list[list[Entry]], by: str) -> list[str]:
    from selfscale.predicting.ranking import ratio_to, told_apart, unsimulated  # noqa: PLC0415

    lines, unsure = [], False
    for entries in tables:
        lines += [f"{entries[0].estimate.basis}:", *wrapped(workload_text(entries[0].estimate.workload))]
        lines.append(
            f"  {'machine':20}{'MB/s':>10}{'90 % interval':>20}{'of first':>10}{'elapsed':>14}{'MB/s per cost':>16}"
        )
        for entry in entries:
            throughput, ratio = entry.throughput, ratio_to(entry, entries[0], by)
            apart = entry is entries[0] or told_apart(ratio)
            unsure |= not apart
            interval = f"{format_megabytes(throughput.low)} to {format_megabytes(throughput.high)}"
            elapsed = format_duration(entry.elapsed_s.value) if entry.elapsed_s else "-"
            cost = format_megabytes(entry.per_cost) if math.isfinite(entry.per_cost) else "-"
            lines.append(
                f"  {entry.machine.name:20}{format_megabytes(throughput.value):>10}{interval:>20}"
                f"{_of_first(ratio.ratio) + ('' if apart else ' ~'):>10}{elapsed:>14}{cost:>16}"
            )
        lines += _outside_lines(entries)
    if unsure:
        lines.append(
            f"~ the 90 % interval of its {MERITS[by]}, as a ratio to the first machine's, includes 1: not told apart"
        )
    return lines + recorded_lines(application, None, unsimulated(entry.machine for entry in tables[0]))


def _of_first(ratio: float) -> str:
    return f"{ratio:.3g}" if math.isfinite(ratio) else "-"


def _ratio_lines(machines: list[Machine], tables: list[list[Entry]], by: str) -> list[str]:
    """Throughputs and, behind them, ratios to the first machine, of these or of their cost (thesis, figure 5.13)."""
    from selfscale.predicting.ranking import ratio_to  # noqa: PLC0415

    first = machines[0]
    what = "" if by == "throughput" else f"the {MERITS[by]} of "
    lines = [f"MB/s, and times {what}{first.name} (thesis, table 5.2 and section 5.5)"]
    lines.append(f"  {'workload':18}" + "".join(f"{machine.name[:19]:>20}" for machine in machines))
    for entries in tables:
        of = {entry.machine.path: entry for entry in entries}
        cells = []
        for machine in machines:
            entry = of[machine.path]
            ratio = ratio_to(entry, of[first.path], by).ratio
            times = f"{ratio:.3g}x" if math.isfinite(ratio) else "-"
            mark = "" if entry.estimate.prediction.inside_range else " !"
            cells.append(f"{format_megabytes(entry.throughput.value)} ({times}){mark}")
        lines.append(f"  {entries[0].estimate.basis:18}" + "".join(f"{cell:>20}" for cell in cells))
    outside = [line for entries in tables for line in _outside_lines(entries, entries[0].estimate.basis + ", ")]
    return lines + (["! OUTSIDE what was measured of that machine:", *outside] if outside else [])


def _outside_lines(entries: list[Entry], of: str = "") -> list[str]:
    return [
        line
        for entry in entries
        if not entry.estimate.prediction.inside_range
        for line in wrapped(f"{of}{entry.machine.name}: {'; '.join(entry.estimate.prediction.notes)}")
    ]


def _document(
    arguments: argparse.Namespace, machines: list[Machine], tables: list[list[Entry]], warnings: list[str]
) -> dict[str, Any]:
    from selfscale.predicting.ranking import ratio_to  # noqa: PLC0415

    def cells(entries: list[Entry]) -> list[dict[str, Any]]:
        first = next(entry for entry in entries if entry.machine is machines[0]) if arguments.workloads else entries[0]
        return [
            {
                "machine": entry.machine.name,
                "throughput": asdict(entry.throughput),
                "elapsed_s": asdict(entry.elapsed_s) if entry.elapsed_s else None,
                "per_cost": entry.per_cost,
                "ratio": asdict(ratio_to(entry, first, arguments.by)),
                "relative": asdict(entry.relative) if entry.relative else None,
                "prediction": entry.estimate.prediction.as_document(),
            }
            for entry in entries
        ]

    return {
        "schema": SCHEMA,
        **provenance_of(None if arguments.workloads else arguments.files[0]),
        "command": command_words(),
        "by": arguments.by,
        "ratio_to": machines[0].name if arguments.workloads else "the first of the order",
        "measured_on": provenance_of(arguments.measured_on)["input"],
        "machines": [
            {"name": machine.name, "cost": machine.cost, **(provenance_of(machine.path)["input"] or {})}
            for machine in machines
        ],
        "workloads": [
            {
                "basis": entries[0].estimate.basis,
                "workload": entries[0].estimate.workload.as_document(),
                "order": cells(entries),
            }
            for entries in tables
        ],
        "warnings": warnings,
    }
