# SPDX-License-Identifier: Apache-2.0
"""``flextrace export``: a trace becomes a compressed archive that other programs can read as well."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.expansion import ARCHIVE_SUFFIX, is_archive
from characterize.units import format_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="trace (.iotrace)")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT",
        help="its name says the format: NAME.parquet, an archive from which 'flextrace import' makes the same trace",
    )
    parser.add_argument("--force", action="store_true", help="overwrite OUT if it exists")


def run(arguments: argparse.Namespace) -> int:
    """Write the archive, say how small it is."""
    trace, output = arguments.trace, arguments.output
    if output.suffix.lower() != ARCHIVE_SUFFIX:
        raise FlextraceError(f"{output}: no format is known by this name: use NAME{ARCHIVE_SUFFIX}", 2)
    if output.exists() and not arguments.force:
        raise FlextraceError(f"{output} exists already: choose another name or give --force", 2)
    if is_archive(trace):
        raise FlextraceError(f"{trace} is an archive already: copy it, or expand it with 'flextrace import'", 2)
    if output.exists() and trace.exists() and output.samefile(trace):
        raise FlextraceError(f"{output} is the trace that is read: choose another name", 2)
    for line in write_archive(trace, output, force=arguments.force):
        print(f"flextrace export: {line}", file=sys.stderr)
    print(f"next: flextrace characterize {output}", file=sys.stderr)
    return 0


def write_archive(trace: Path, output: Path, *, force: bool) -> list[str]:
    """Write an archive that was read back and compared; returns what to say about it."""
    from characterize.archive import pack  # noqa: PLC0415 (pyarrow is slow to import)

    packed = pack(trace, output, force=force)
    each = f", {packed.archive_bytes / packed.records:.1f} bytes per record" if packed.records else ""
    lines = [f"{output}: {packed.records} records in {format_bytes(packed.archive_bytes)}{each}"]
    if packed.left_out_bytes:
        lines.append(
            f"warning: {trace} was not closed cleanly: the last {format_bytes(packed.left_out_bytes)}, "
            "behind its last whole record, are not in the archive"
        )
    return lines
