# SPDX-License-Identifier: Apache-2.0
"""``flextrace export``: a trace becomes a compressed archive, or jobs of fio, which other programs can use."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.expansion import ARCHIVE_SUFFIX, expanded, is_archive
from characterize.units import format_bytes
from replayer.run import prepare

JOB_SUFFIX = ".fio"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="trace (.iotrace; for fio also an archive of one)")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT",
        help="its name says the format: NAME.parquet, an archive from which 'flextrace import' makes the same trace; "
        "NAME.fio, a job for fio, with one I/O log for each thread in the directory NAME.iolog",
    )
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="for fio: lay out the files that it will read and write here"
    )
    parser.add_argument("--force", action="store_true", help="overwrite OUT if it exists")


def run(arguments: argparse.Namespace) -> int:
    """Write the archive or the jobs, say what is in them."""
    trace, output = arguments.trace, arguments.output
    suffix = output.suffix.lower()
    if suffix not in (ARCHIVE_SUFFIX, JOB_SUFFIX):
        raise FlextraceError(
            f"{output}: no format is known by this name: use NAME{ARCHIVE_SUFFIX} or NAME{JOB_SUFFIX}", 2
        )
    if output.exists() and not arguments.force:
        raise FlextraceError(f"{output} exists already: choose another name or give --force", 2)
    if output.exists() and trace.exists() and output.samefile(trace):
        raise FlextraceError(f"{output} is the trace that is read: choose another name", 2)
    if suffix == JOB_SUFFIX:
        if not arguments.directory:
            raise FlextraceError("fio needs the files that it reads and writes: name a directory by --directory", 2)
        said, after = write_jobs(trace, output, arguments.directory, force=arguments.force), f"fio {output}"
    else:
        if arguments.directory:
            raise FlextraceError(f"--directory is for fio: omit it, or write NAME{JOB_SUFFIX}", 2)
        if is_archive(trace):
            raise FlextraceError(f"{trace} is an archive already: copy it, or expand it with 'flextrace import'", 2)
        said, after = write_archive(trace, output, force=arguments.force), f"flextrace characterize {output}"
    for line in said:
        print(f"flextrace export: {line}", file=sys.stderr)
    print(f"next: {after}", file=sys.stderr)
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


def write_jobs(trace: Path, output: Path, directory: Path, *, force: bool) -> list[str]:
    """Write a job file and its logs, and lay out the files that they name; returns what to say about them."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.formats import fio_iolog  # noqa: PLC0415

    with expanded(trace) as path:
        opened = trace_file.open(path)
        exported = fio_iolog.write(opened, output, directory, force=force)
        image = prepare(path, directory)["image"]
    lines = [f"warning: {warning}" for warning in opened.warnings]
    lines.append(f"{output}: {exported.operations} data operations and syncs of {len(exported.logs)} threads")
    lines.append(f"{directory}: {image['files']} files of {format_bytes(image['bytes'])}, out of the page cache")
    lines += [f"left out: {count} {what}" for what, count in exported.left_out.items()]
    lines += [f"warning: {count} {what}" for what, count in exported.changed.items()]
    if created := exported.created_files:
        lines.append(f"warning: {created} files are not there at the start: fio makes those that a thread writes first")
    if len(exported.logs) > 1:
        lines.append("fio keeps the order and the times of each thread, but no order across threads")
    return lines
