# SPDX-License-Identifier: Apache-2.0
"""``flextrace clone``: a trace becomes several independent instances of it that run at the same time."""

from __future__ import annotations

import argparse
from pathlib import Path

from flextrace.options.made_trace import add_output_arguments, make


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", type=Path, metavar="FILE", help="trace, archive of one, or trace of another tool")
    parser.add_argument("--copies", type=int, required=True, metavar="N", help="how many instances")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the trace and print its five parameters."""
    from replayer.merge import clone  # noqa: PLC0415 (pandas is slow to import)

    return make(arguments, [arguments.file], lambda traces: clone(traces[0], arguments.copies))
