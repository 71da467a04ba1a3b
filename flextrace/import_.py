# SPDX-License-Identifier: Apache-2.0
"""``flextrace import``: a trace of another tool, or an archive of a trace, becomes a flextrace trace."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from characterize.errors import FlextraceError
from characterize.trace_files.expansion import is_trace_archive, refuse_archive_name
from characterize.trace_files.new_file import check_new_file
from characterize.trace_files.provenance import sha256_of
from characterize.trace_files.trace_head import is_trace
from characterize.units import format_duration
from flextrace.options.foreign_options import (
    add_foreign_arguments,
    read_options,
    refuse_for_own,
    renamed_columns,
    stacked_devices,
)
from flextrace.output.talk import say

if TYPE_CHECKING:
    from characterize.trace import Header


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", type=Path, metavar="FILE", help="trace of another tool, or an archive (.parquet)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help="trace to write (.iotrace)")
    parser.add_argument("--force", action="store_true", help="overwrite OUT if it exists")
    add_foreign_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read, write, say what is in it; 3 if malformed lines were left out, or an archive's trace lacks records."""
    file, output = arguments.file, arguments.output
    refuse_archive_name(output)
    check_new_file(output, force=arguments.force, inputs=[file])
    if is_trace(file) and not arguments.foreign_format:
        raise FlextraceError(f"{file} is a flextrace trace already: there is nothing to import", 2)
    if is_trace_archive(file):
        refuse_for_own(arguments, file)
        said, exit_code = _import_archive(file, output, force=arguments.force)
    else:
        said, exit_code = _import_foreign(arguments)
    for line in [*said, f"next: flextrace characterize {shlex.quote(str(output))}"]:
        say("import", line)
    return exit_code


def _import_archive(file: Path, output: Path, *, force: bool) -> tuple[list[str], int]:
    from characterize.trace_files.archive import unpack  # noqa: PLC0415 (pyarrow is slow to import)
    from characterize.trace_files.open_header import open_header  # noqa: PLC0415

    said = [f"wrote {unpack(file, output, force=force)} records to {output}"]
    opened = open_header(output)
    return [*said, *(f"warning: {warning}" for warning in opened.warnings)], 0 if opened.header.complete else 3


def _import_foreign(arguments: argparse.Namespace) -> tuple[list[str], int]:
    from characterize.formats.foreign import ForeignTrace  # noqa: PLC0415
    from characterize.trace_files.trace_writer import write_chunks  # noqa: PLC0415

    began = time.monotonic()
    foreign = ForeignTrace(arguments.file, read_options(arguments))
    chunks = ((chunk.arrays, chunk.paths) for chunk in foreign.chunks())

    def hashed_header() -> Header:
        made = foreign.header()
        made.metadata["imported"]["sha256"] = sha256_of(arguments.file)
        return made

    write_chunks(chunks, hashed_header, arguments.output, force=arguments.force, file_sizes=foreign.reading.file_sizes)
    seconds = time.monotonic() - began
    header, reading = foreign.header(), foreign.reading
    what = "block requests" if reading.records == "block" else "operations on files"
    span = format_duration((header.end_monotonic_ns - header.start_monotonic_ns) / 1e9)
    said = [
        f"format {reading.format.name}: {reading.format.about}",
        *(f"taken for granted: {name} {value}" for name, value in reading.assumed.items()),
        *(f"taken for granted: {column}" for column in renamed_columns(reading.facts)),
        f"wrote {foreign.records} {what} over {span} to {arguments.output} "
        f"({foreign.records / max(seconds, 1e-3):.3g} a second)",
    ]
    said += [
        f"{name.replace('_', ' ')}: {value}" for name, value in reading.facts.items() if name.startswith("left_out")
    ]
    said += stacked_devices(reading.facts)
    if not reading.durations_known:
        said.append("durations are not in that format: numbers that need them will be null")
    said += [f"warning: {warning}" for warning in foreign.warnings()]
    return said, 3 if reading.bad_count else 0
