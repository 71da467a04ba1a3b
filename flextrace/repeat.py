# SPDX-License-Identifier: Apache-2.0
"""``flextrace repeat``: a trace becomes several passes of it, one after the other."""

from __future__ import annotations

import argparse
from pathlib import Path

from flextrace.options.made_trace import add_output_arguments, make


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", type=Path, metavar="FILE", help="trace, archive of one, or trace of another tool")
    parser.add_argument("--times", type=int, required=True, metavar="N", help="how many passes")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the trace and print its five parameters."""
    from replayer.repeat import repeat  # noqa: PLC0415 (pandas is slow to import)

    return make(arguments, [arguments.file], lambda traces: repeat(traces[0], arguments.times))
