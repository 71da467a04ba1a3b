# SPDX-License-Identifier: Apache-2.0
"""``flextrace alter``: a trace becomes a flexible trace, and what was changed and held is measured and printed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError
from characterize.trace_files.provenance import command_words
from characterize.units import parse_seed
from flextrace.options.made_trace import add_output_arguments, read_parents, show_parameter, tell_next
from flextrace.output.talk import say

if TYPE_CHECKING:
    from replayer.alter import Manifest

SCHEMA = "flextrace.alteration/1"
OPTIONS = {
    "uniqueBytes": ("--unique-bytes", "such as 64MiB, 2x"),
    "seqFrac": ("--seq-frac", "such as 0.8, 0.5x"),
    "readFrac": ("--read-frac", "such as 0.8, 50%%"),
    "sizeMean": ("--size-mean", "such as 16KiB, 2x"),
    "processNum": ("--process-num", "such as 4, 2x"),
}
TIME_OPTIONS = {
    "timeScale": ("--time-scale", "multiply all times: 2 is half as fast"),
    "thinkScale": ("--think-scale", "multiply the time that threads wait between operations, whose durations stay"),
}
# Of a difference of miss ratios, what is shown of it.
SHOWN_MIN = 0.001


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", type=Path, metavar="FILE", help="trace, archive of one, or trace of another tool")
    wanted = parser.add_argument_group(
        "parameters", "absolute, or relative to the trace's own as in 2x; others are held"
    )
    for name, (option, example) in OPTIONS.items():
        wanted.add_argument(option, dest=name, metavar="X", help=example)
    times = parser.add_argument_group("times", "factors; all five parameters are held")
    for name, (option, meaning) in TIME_OPTIONS.items():
        times.add_argument(option, dest=name, metavar="F", help=meaning)
    parser.add_argument(
        "--nearest",
        action="store_true",
        help="where the wanted or the held is missed by more than 1 %%, write what was reached, say so, and exit with "
        "3 (as does a miss-ratio curve that is not held in any case); what cannot be tried, such as requests smaller "
        "than their alignment, is refused all the same",
    )
    parser.add_argument("--seed", type=parse_seed, default=0, metavar="N", help="equal seed, equal trace (default: 0)")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the flexible trace and print its five parameters.

    3 if one is off, which only --nearest lets happen, if the curve is not held, or if the trace lacks records.
    """
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from replayer.alter import alter, parse_change  # noqa: PLC0415
    from replayer.flexible.curve import CURVE_HELD  # noqa: PLC0415

    known = OPTIONS | TIME_OPTIONS
    changes = {name: parse_change(name, text) for name in known if (text := getattr(arguments, name)) is not None}
    if not changes:
        options = ", ".join(option for option, _ in known.values())
        raise FlextraceError(f"nothing to alter: give at least one of {options}", 2)
    (parent,) = read_parents(arguments, [arguments.file])
    trace, manifest = alter(parent, changes, arguments.seed, nearest=arguments.nearest)
    trace.header.metadata["alter_command"] = command_words()
    trace_file.write(trace, arguments.output, force=arguments.force)
    if arguments.format == "json":
        origin = {"schema": SCHEMA, "command": command_words(), "output": str(arguments.output)}
        print(json.dumps(origin | manifest.as_document(), indent=1))
    else:
        print(render(manifest))
    if manifest.off:
        say(
            "alter",
            f"{arguments.output}: off the wanted value: {manifest.off_text}: change less at once, or use the trace for "
            "what it achieved",
        )
        return 3
    tell_next(arguments, trace)
    if not manifest.curve.held:
        say(
            "alter",
            f"{arguments.output}: the miss-ratio curve is not held: miss ratios moved by "
            f"{manifest.curve.beyond_least:.3f} more than they had to, {CURVE_HELD} are allowed: a replay finds other "
            "shares of its data in the page cache; change less at once, or replay it with --direct on",
        )
    return 0 if parent.header.complete and manifest.curve.held else 3


def render(manifest: Manifest) -> str:
    """The five parameters before and after, as a table, and what moved."""
    from replayer.flexible.curve import CURVE_HELD  # noqa: PLC0415 (pandas is slow to import)
    from replayer.flexible.manifest import deviation_text  # noqa: PLC0415

    before, wanted, achieved = (
        workload.as_document() for workload in (manifest.before, manifest.wanted, manifest.achieved)
    )
    lines = [f"{'parameter':<12} {'before':>12} {'wanted':>12} {'achieved':>12} {'deviation':>10}"]
    for name in OPTIONS:
        values = [show_parameter(name, document[name]) for document in (before, wanted, achieved)]
        off = manifest.deviation.get(name)
        deviation = "" if off is None else deviation_text(name, off)
        held = "" if name in manifest.changes else "  held"
        lines.append(f"{name:<12} {values[0]:>12} {values[1]:>12} {values[2]:>12} {deviation:>10}{held}")
    for name, (want, got) in manifest.times.items():
        lines.append(f"{name:<12} {'1x':>12} {f'{want:g}x':>12} {f'{got:.4g}x':>12} {got / want - 1:>+10.2%}")
    lines.append(f"{'reuse':<12} {manifest.reuse_before:>12.4g} {'':>12} {manifest.reuse:>12.4g}")
    differ = ", all of them in their times" if manifest.times else ""
    differ = " in more than start and thread" if "processNum" in manifest.notes else differ
    lines.append(f"{manifest.moved} of {manifest.requests} requests differ from the parent's{differ}")
    curve = manifest.curve
    least = f", {curve.least_error:.3f} of it unavoidable" if curve.least_error >= SHOWN_MIN else ""
    lines.append(f"miss ratios over cache / uniqueBytes: {curve.mean_error:.3f} apart{least}")
    if curve.scaled_error is not None:
        lines.append(f"  {curve.scaled_error:.3f} in blocks that are scaled with the requests")
    if not curve.held:
        lines.append(f"  which is not held: that is up to {CURVE_HELD} beyond what is unavoidable")
    lines += _rules(manifest.notes)
    return "\n".join(lines)


def _rules(notes: dict[str, Any]) -> list[str]:
    """What was moved so that the other parameters and the miss ratios stay."""
    lines = []
    moved = notes.get("uniqueBytes", {}).get("requests_on_other_files", 0)
    if moved:
        lines.append(f"{moved} requests went to other files, to where data was used as long ago")
    split = notes.get("processNum", {})
    if "elapsed_factor" in split:
        lines.append(
            f"requests stay; their runs were dealt to {split['threads']} threads instead of {split['threads_before']},"
        )
        lines.append(f"  {split['runs_cut']} of them cut; all takes {split['elapsed_factor']:.3g}x the time")
    if "arrivals_faster" in split:
        lines.append(
            f"requests come {split['arrivals_faster']:.3g}x as fast and wait where enough are in flight;"
            f" all takes {split['elapsed']:.3g}x the time"
        )
    return lines
