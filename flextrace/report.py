# SPDX-License-Identifier: Apache-2.0
"""``flextrace report``: profiles, validations, traces, comparisons and recorded replays as one offline HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.trace_files.new_file import check_new_file
from flextrace.output.talk import say

INPUTS = {
    "--profile": ("P.json", "the same as PROFILE.json"),
    "--validation": (
        "V.json",
        "by 'flextrace validate', of one of the profiles: errors of predictions are those on its random workloads",
    ),
    "--trace": ("T.iotrace", "traces, to be characterized"),
    "--comparison": ("C.json", "by 'flextrace compare -o'"),
    "--replay": ("R.json", "by 'flextrace replay --record --output'"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the verb."""
    parser.add_argument(
        "profiles",
        type=Path,
        nargs="*",
        metavar="PROFILE.json",
        help="what 'flextrace scale' wrote; several: side by side",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="REPORT.html", help="file to write")
    for option, (metavar, meaning) in INPUTS.items():
        parser.add_argument(option, type=Path, nargs="+", default=[], action="extend", metavar=metavar, help=meaning)
    parser.add_argument("--force", action="store_true", help="overwrite the report")


def run(arguments: argparse.Namespace) -> int:
    """Read the inputs, write the page, print its path; 3 if a trace lacks records."""
    profiles = [*arguments.profiles, *arguments.profile]
    inputs = [*profiles, *arguments.validation, *arguments.trace, *arguments.comparison, *arguments.replay]
    check_new_file(arguments.output, force=arguments.force, inputs=inputs)
    if not (profiles or arguments.trace or arguments.comparison or arguments.replay):
        taken = "; what stands behind --validation is taken for validations" if arguments.validation else ""
        raise FlextraceError(f"a report of nothing: give a profile, --trace, --comparison or --replay{taken}", 2)

    from characterize.stream import open_stream  # noqa: PLC0415 (slow)
    from selfscale.comparing import comparison, fidelity  # noqa: PLC0415
    from selfscale.predicting import prediction_errors  # noqa: PLC0415
    from selfscale.profile import Profile  # noqa: PLC0415
    from selfscale.report import write_report  # noqa: PLC0415

    path = write_report(
        arguments.output,
        profiles=[Profile.load(profile) for profile in profiles],
        validations=[prediction_errors.load(document) for document in arguments.validation],
        traces=(traces := [open_stream(trace) for trace in arguments.trace]),
        comparisons=[comparison.load(document).document for document in arguments.comparison],
        replays=[fidelity.load(document) for document in arguments.replay],
        force=arguments.force,
    )
    print(path.resolve())
    for warning in [warning for trace in traces for warning in trace.facts.warnings]:
        say("report", f"warning: {warning}")
    return 0 if all(trace.facts.header.complete for trace in traces) else 3
