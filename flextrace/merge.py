# SPDX-License-Identifier: Apache-2.0
"""``flextrace merge``: several traces become one in which they run at the same time."""

from __future__ import annotations

import argparse
from pathlib import Path

from flextrace.options.made_trace import add_output_arguments, make


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="traces, archives, traces of other tools")
    parser.add_argument(
        "--align",
        choices=("starts", "clocks"),
        default="starts",
        help="let all begin together, or when they did by the clock of the day (default: starts)",
    )
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the trace and print its five parameters."""
    from replayer.merge import merge  # noqa: PLC0415 (pandas is slow to import)

    return make(arguments, arguments.files, lambda traces: merge(traces, arguments.align))
