# SPDX-License-Identifier: Apache-2.0
"""``flextrace report``: a profile, traces, comparisons and recorded replays as one offline HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path

from characterize.errors import FlextraceError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="REPORT.html", help="file to write")
    parser.add_argument("--profile", type=Path, metavar="P.json", help="what 'flextrace scale' wrote")
    parser.add_argument(
        "--trace", type=Path, nargs="+", default=[], action="extend", metavar="T.iotrace", help="traces"
    )
    parser.add_argument(
        "--comparison", type=Path, nargs="+", default=[], action="extend", metavar="C.json", help="'compare -o' wrote"
    )
    parser.add_argument(
        "--replay",
        type=Path,
        nargs="+",
        default=[],
        action="extend",
        metavar="R.json",
        help="'replay --record --output' wrote",
    )
    parser.add_argument("--force", action="store_true", help="overwrite the report")


def run(arguments: argparse.Namespace) -> int:
    """Read the inputs, write the page, print its path."""
    if arguments.output.exists() and not arguments.force:
        raise FlextraceError(f"{arguments.output} exists already: choose another name or give --force", 2)
    if not (arguments.profile or arguments.trace or arguments.comparison or arguments.replay):
        raise FlextraceError("a report of nothing: give --profile, --trace, --comparison or --replay", 2)

    import characterize  # noqa: PLC0415 (pandas and Plotly only after the cheap refusals)
    from selfscale import comparison, fidelity  # noqa: PLC0415
    from selfscale.profile import Profile  # noqa: PLC0415
    from selfscale.report import write_report  # noqa: PLC0415

    path = write_report(
        arguments.output,
        profile=Profile.load(arguments.profile) if arguments.profile else None,
        traces=[characterize.open(trace) for trace in arguments.trace],
        comparisons=[comparison.load(document).document for document in arguments.comparison],
        replays=[fidelity.load(document) for document in arguments.replay],
        force=arguments.force,
    )
    print(path.resolve())
    return 0
