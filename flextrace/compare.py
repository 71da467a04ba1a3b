# SPDX-License-Identifier: Apache-2.0
"""``flextrace compare``: one table of an application, its replay, Willy and the prediction (thesis table 3.2)."""

from __future__ import annotations

import argparse
import json
import shlex
import textwrap
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from characterize.trace_files.new_file import check_new_file, without_empty, write_text
from characterize.units import format_bytes, parse_duration, parse_seed
from flextrace.options.output_format import add_format_argument
from flextrace.output.talk import say
from replayer.run import make_directory
from replayer.running.confine import parse_limit

WIDTH, LABEL_WIDTH, CELL_WIDTH = 98, 26, 12
_HEADLINE = "Compare 'throughput in I/O': Willy and the prediction have no think time."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a recording of the application")
    parser.add_argument(
        "--profile", type=Path, required=True, metavar="PROFILE.json", help="of this machine, by 'flextrace scale'"
    )
    parser.add_argument(
        "--directory", type=Path, required=True, metavar="DIR", help="for the files of the replay and of Willy"
    )
    parser.add_argument(
        "--memory", type=parse_limit, metavar="SIZE", help="memory control group to run in (default: the profile's)"
    )
    parser.add_argument(
        "--repeat", type=int, default=3, metavar="N", help="how often each row is measured, in turns (default: 3)"
    )
    parser.add_argument(
        "--max-time", type=parse_duration, default=30.0, metavar="TIME", help="longest run of Willy (default: 30s)"
    )
    parser.add_argument(
        "--timing",
        choices=("think", "asap"),
        default="think",
        help="of the replay: each thread thinks as long as when recorded (default), or not at all",
    )
    parser.add_argument("--seed", type=parse_seed, default=0, metavar="N", help="of Willy's traces (default: 0)")
    add_format_argument(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="write the comparison document")
    parser.add_argument("--force", action="store_true", help="overwrite the output file")


def run(arguments: argparse.Namespace) -> int:
    """Compare, print the table; 3 if a row that claims the application's conditions did not have them."""
    if arguments.repeat < 1:
        raise FlextraceError(f"--repeat {arguments.repeat} runs nothing: give at least 1", 2)
    if arguments.max_time <= 0:
        raise FlextraceError("--max-time needs more than 0 s", 2)
    if arguments.output:
        check_new_file(arguments.output, force=arguments.force, inputs=[arguments.trace, arguments.profile])

    import characterize  # noqa: PLC0415 (pandas only after the cheap refusals)
    from selfscale.compare import compare  # noqa: PLC0415
    from selfscale.profile import Profile  # noqa: PLC0415

    profile = Profile.load(arguments.profile)  # before the trace, which may take long
    trace = characterize.open(arguments.trace)
    for warning in trace.warnings:
        say("compare", f"warning: {warning}")
    with without_empty(arguments.directory):
        make_directory(arguments.directory)
        comparison = compare(
            trace,
            profile,
            arguments.directory,
            memory_bytes=arguments.memory,
            repeat=arguments.repeat,
            seed=arguments.seed,
            timing=arguments.timing,
            max_seconds=arguments.max_time,
            on_step=lambda text: say("compare", text),
        )
    text = json.dumps(comparison.document, indent=1, allow_nan=False)
    try:
        print(text if arguments.format == "json" else format_comparison(comparison.document), flush=True)
    finally:
        # Also where nobody reads what is printed; and after it, since the disk may be full.
        if arguments.output:
            write_text(arguments.output, text, force=arguments.force)
    if arguments.output:
        quoted = shlex.quote(str(arguments.output))
        say("compare", f"next: flextrace report -o report.html --comparison {quoted}")
    return 0 if comparison.trustworthy else 3


def format_comparison(document: dict[str, Any]) -> str:
    """The comparison as text of at most 100 columns: values, errors against the application below them, conditions."""
    columns = document["columns"]
    lines = [f"{'':{LABEL_WIDTH}}" + "".join(f"{word:>{CELL_WIDTH}}" for word in words) for words in _headings(columns)]
    lines.append("-" * (LABEL_WIDTH + CELL_WIDTH * len(columns)))
    for row in document["rows"]:
        mark = "" if row["trustworthy"] else " !"
        cells = "".join(f"{_value(row, name, column):>{CELL_WIDTH}}" for name, column in columns.items())
        lines.append(f"{row['label'] + mark:{LABEL_WIDTH}}{cells}")
        if any(error is not None for error in row["error"].values()):
            cells = "".join(f"{_error(row['error'][name]):>{CELL_WIDTH}}" for name in columns)
            lines.append(f"{'  error':{LABEL_WIDTH}}{cells}")
        if row["repetitions"] > 1:
            cells = "".join(f"{_range(row, name, column):>{CELL_WIDTH}}" for name, column in columns.items())
            label = f"  range of {row['repetitions']} runs"
            lines.append(f"{label:{LABEL_WIDTH}}{cells}")
    lines += ["", *_conditions(document)]
    return "\n".join(lines)


def _headings(columns: dict[str, Any]) -> list[list[str]]:
    """Titles broken at their last space, units below."""
    split = [
        column["title"].rsplit(" ", 1) if column["title"].count(" ") == 1 else column["title"].split(" ", 1)
        for column in columns.values()
    ]
    return [
        [first for first, _ in split],
        [second for _, second in split],
        [column["unit"] for column in columns.values()],
    ]


def _value(row: dict[str, Any], name: str, column: dict[str, Any]) -> str:
    value = row["median"][name]
    return "-" if value is None else f"{_short(value * column['scale'])}"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _error(error: float | None) -> str:
    if error is None:
        return ""
    return f"{error:+.1%}" if abs(error) < 1 else f"{error:+.0%}"


def _range(row: dict[str, Any], name: str, column: dict[str, Any]) -> str:
    low, high = row["low"][name], row["high"][name]
    return "" if low is None else f"{_short(low * column['scale'])}..{_short(high * column['scale'])}"


def _conditions(document: dict[str, Any]) -> list[str]:
    """Memory limit and page cache of every row; then every remark once, with the rows that it is of."""
    from selfscale.comparing.comparison import remarks_of  # noqa: PLC0415

    lines = ["conditions:"]
    for row in document["rows"]:
        limit = "no memory limit" if row["memory_limit_bytes"] is None else format_bytes(row["memory_limit_bytes"])
        cold = "cold share not measured" if row["coldFrac"] is None else f"{row['coldFrac']:.0%} of read bytes cold"
        lines.append(f"  {row['label']:{LABEL_WIDTH}} {limit}; {cold} ({row['page_cache']})")
    for doubt, text, labels in remarks_of(document):
        mark = "!" if doubt else "note:"
        lines += textwrap.wrap(f"{mark} {' / '.join(labels)}: {text}", WIDTH, subsequent_indent="  ")
    lines += textwrap.wrap(f"error = (row - application) / application. {_HEADLINE}", WIDTH)
    if any(not row["trustworthy"] for row in document["rows"]):
        text = "! marks a row under other conditions than the application: its error is not its model's alone."
        lines += textwrap.wrap(text, WIDTH)
    if not document["trustworthy"]:
        lines += textwrap.wrap("NOT TRUSTWORTHY: " + "; ".join(document["reasons"]), WIDTH)
    return lines
