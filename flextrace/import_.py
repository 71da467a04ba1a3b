# SPDX-License-Identifier: Apache-2.0
"""``flextrace import``: a trace of another tool becomes a flextrace trace."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.formats import FORMATS, read_foreign


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", type=Path, metavar="FILE", help="trace of another tool")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help="trace to write (.iotrace)")
    formats = "; ".join(f"{name}: {what}" for name, (_, what) in FORMATS.items())
    parser.add_argument("--from", dest="format", choices=FORMATS, required=True, help=formats)
    parser.add_argument("--force", action="store_true", help="overwrite OUT if it exists")


def run(arguments: argparse.Namespace) -> int:
    """Read, write, say what is in it."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.layout import RecordKind  # noqa: PLC0415

    if arguments.output.exists() and not arguments.force:
        raise FlextraceError(f"{arguments.output} exists already: choose another name or give --force", 2)
    trace = read_foreign(arguments.file, arguments.format)
    trace_file.write(trace, arguments.output, force=arguments.force)
    print(f"wrote {len(trace.arrays[RecordKind.BLOCK])} block requests to {arguments.output}", file=sys.stderr)
    print("durations and threads are not in that format: numbers that need them will be null", file=sys.stderr)
    print(f"next: flextrace characterize {arguments.output}", file=sys.stderr)
    return 0
