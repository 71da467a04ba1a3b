# SPDX-License-Identifier: Apache-2.0
"""``flextrace import``: a trace of another tool, or an archive of a trace, becomes a flextrace trace."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.expansion import is_archive, refuse_archive_name
from characterize.formats import FORMATS, read_foreign


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", type=Path, metavar="FILE", help="trace of another tool, or an archive (.parquet)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help="trace to write (.iotrace)")
    formats = "; ".join(f"{name}: {what}" for name, (_, what) in FORMATS.items())
    parser.add_argument("--from", dest="format", choices=FORMATS, help=f"not needed for an archive. {formats}")
    parser.add_argument("--force", action="store_true", help="overwrite OUT if it exists")


def run(arguments: argparse.Namespace) -> int:
    """Read, write, say what is in it."""
    file, output = arguments.file, arguments.output
    refuse_archive_name(output)
    if output.exists() and not arguments.force:
        raise FlextraceError(f"{output} exists already: choose another name or give --force", 2)
    if output.exists() and file.exists() and output.samefile(file):
        raise FlextraceError(f"{output} is the file that is read: choose another name", 2)
    if is_archive(file):
        if arguments.format:
            raise FlextraceError(f"{file} is an archive, not a trace in the format {arguments.format}: omit --from", 2)
        said = _import_archive(file, output, force=arguments.force)
    else:
        if not file.exists():
            raise FlextraceError(f"cannot read {file}: there is no such file")
        if not arguments.format:
            raise FlextraceError(
                f"{file} is not an archive of a trace: say which format it has by --from ({', '.join(FORMATS)})", 2
            )
        said = _import_foreign(file, arguments.format, output, force=arguments.force)
    for line in [*said, f"next: flextrace characterize {output}"]:
        print(line, file=sys.stderr)
    return 0


def _import_archive(file: Path, output: Path, *, force: bool) -> list[str]:
    from characterize.archive import unpack  # noqa: PLC0415 (pyarrow is slow to import)

    return [f"wrote {unpack(file, output, force=force)} records to {output}"]


def _import_foreign(file: Path, name: str, output: Path, *, force: bool) -> list[str]:
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.layout import RecordKind  # noqa: PLC0415

    trace = read_foreign(file, name)
    trace_file.write(trace, output, force=force)
    return [
        f"wrote {len(trace.arrays[RecordKind.BLOCK])} block requests to {output}",
        "durations and threads are not in that format: numbers that need them will be null",
    ]
