# SPDX-License-Identifier: Apache-2.0
"""``flextrace export``: a trace becomes an archive, a table, jobs of fio or a timeline, with its names or without."""

from __future__ import annotations

import argparse
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from characterize.errors import FlextraceError
from characterize.printable import printable
from characterize.trace_files.expansion import ARCHIVE_SUFFIX, expanded, is_trace_archive
from characterize.trace_files.new_file import check_new_file, new_file
from characterize.trace_files.trace_head import is_foreign
from characterize.units import format_bytes, parse_duration
from flextrace.output.talk import say
from replayer.run import prepare

if TYPE_CHECKING:
    from characterize.requests import Layer
    from characterize.trace import Trace

JOB_SUFFIX, TABLE_SUFFIX, TIMELINE_SUFFIX, TRACE_SUFFIX = ".fio", ".csv", ".json", ".iotrace"
# Options that mean something for outputs of one kind only.
_ONLY_FOR = {
    "directory": (JOB_SUFFIX,),
    "layer": (TABLE_SUFFIX,),
    "begin_s": (TIMELINE_SUFFIX,),
    "end_s": (TIMELINE_SUFFIX,),
}
_OPTION_OF = {"begin_s": "from", "end_s": "to"}
EXAMPLES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument(
        "trace",
        type=Path,
        metavar="TRACE",
        help="trace; also an archive of one, where OUT is none, or a trace of another tool, for NAME.csv and NAME.json",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="OUT",
        help="its name says the format: NAME.parquet, an archive from which 'flextrace import' makes the same trace; "
        "NAME.csv, a table with a row for each operation; NAME.fio, a job for fio, with one I/O log (version 3) for "
        "each thread in the directory NAME.iolog; NAME.json, a timeline for ui.perfetto.dev and chrome://tracing; "
        "NAME.iotrace, a trace, with --anonymise",
    )
    parser.add_argument("--force", action="store_true", help="overwrite OUT if it exists")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="for fio: lay out the files that it will read and write here"
    )
    parser.add_argument(
        "--layer", choices=("vfs", "block"), help="for csv: operations of programs (default), or block requests"
    )
    parser.add_argument(
        "--from", dest="begin_s", type=parse_duration, metavar="TIME", help="for json: since the begin, as 10s"
    )
    parser.add_argument("--to", dest="end_s", type=parse_duration, metavar="TIME", help="for json: what starts before")
    names = parser.add_argument_group("names")
    names.add_argument(
        "--anonymise",
        action="store_true",
        help="hash the components of paths, names of programs and devices, and all text of the header with a key",
    )
    names.add_argument("--key", type=Path, metavar="FILE", help="file with the key; the same key gives the same hashes")
    names.add_argument("--key-env", metavar="VARIABLE", help="environment variable with the key")
    names.add_argument("--keep-extensions", action="store_true", help="leave .db, .log and such readable")
    names.add_argument(
        "--dry-run", action="store_true", help="write nothing; show how many names there are, and examples"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the output, say what is in it; 3 if the trace lacks records."""
    _check(arguments)
    with _named(arguments) as trace:
        if arguments.dry_run:
            return 0
        said, after = _written(trace, arguments)
    warnings, complete = _missing(arguments.trace)
    for line in [*said, *warnings, f"next: {after}"]:
        say("export", line)
    return 0 if complete else 3


def _missing(trace: Path) -> tuple[list[str], bool]:
    """Warnings of a trace that lacks records, and whether it does not. Malformed lines of other tools are no export."""
    from characterize.trace_files.open_header import open_header  # noqa: PLC0415 (pandas is slow to import)

    if is_foreign(trace):
        return [], True
    opened = open_header(trace)
    return [f"warning: {warning}" for warning in opened.warnings], opened.header.complete


def _foreign_warnings(opened: Trace) -> list[str]:
    """What was found in reading a trace of another tool; of a flextrace trace its header says it."""
    if opened.path is None or not is_foreign(opened.path):
        return []
    return [f"warning: {warning}" for warning in opened.warnings]


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what makes no sense, before anything is read or written."""
    trace, output = arguments.trace, arguments.output
    if not arguments.anonymise and (
        arguments.key or arguments.key_env or arguments.dry_run or arguments.keep_extensions
    ):
        raise FlextraceError("--key, --key-env, --keep-extensions and --dry-run are for --anonymise", 2)
    if output is None:
        if arguments.dry_run:
            return
        raise FlextraceError("there is no output: give -o OUT, whose name says the format", 2)
    suffix = output.suffix.lower()
    known = (
        ARCHIVE_SUFFIX,
        TABLE_SUFFIX,
        JOB_SUFFIX,
        TIMELINE_SUFFIX,
        *((TRACE_SUFFIX,) if arguments.anonymise else ()),
    )
    if suffix not in known:
        names = ", ".join(f"NAME{it}" for it in known[:-1])
        raise FlextraceError(f"{output}: no format is known by this name: use {names} or NAME{known[-1]}", 2)
    for name, suffixes in _ONLY_FOR.items():
        if getattr(arguments, name) is not None and suffix not in suffixes:
            raise FlextraceError(f"--{_OPTION_OF.get(name, name)} is for NAME{suffixes[0]}: omit it", 2)
    if arguments.begin_s is not None and arguments.end_s is not None and arguments.end_s <= arguments.begin_s:
        raise FlextraceError(f"--to {arguments.end_s:g}s is not after --from {arguments.begin_s:g}s", 2)
    if not arguments.dry_run:
        check_new_file(output, force=arguments.force, inputs=[trace, *([arguments.key] if arguments.key else [])])
    if suffix == JOB_SUFFIX and not arguments.directory:
        raise FlextraceError("fio needs the files that it reads and writes: name a directory by --directory", 2)
    if suffix == ARCHIVE_SUFFIX and is_trace_archive(trace) and not arguments.anonymise:
        raise FlextraceError(f"{trace} is an archive already: copy it, or expand it with 'flextrace import'", 2)


@contextmanager
def _named(arguments: argparse.Namespace) -> Iterator[Path]:
    """The trace, or a temporary one without names (in memory while it is made)."""
    if not arguments.anonymise:
        yield arguments.trace
        return
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.anonymise import Names, anonymised, read_key  # noqa: PLC0415

    names = Names(read_key(arguments.key, arguments.key_env), arguments.keep_extensions)
    trace = anonymised(trace_file.open(arguments.trace), names)
    say("export", f"{len(names.hash_of)} names, {len(trace.paths)} paths")
    if arguments.dry_run:
        for name, hashed in list(names.hash_of.items())[:EXAMPLES]:
            print(f"{printable(name)} -> {hashed}")
        yield arguments.trace
        return
    with tempfile.TemporaryDirectory(prefix="flextrace-") as directory:
        path = Path(directory) / f"anonymised{TRACE_SUFFIX}"
        yield trace_file.write(trace, path)


def _written(trace: Path, arguments: argparse.Namespace) -> tuple[list[str], str]:
    output, force = arguments.output, arguments.force
    suffix, quoted = output.suffix.lower(), shlex.quote(str(output))
    if suffix == JOB_SUFFIX:
        return write_jobs(trace, output, arguments.directory, force=force), f"fio {quoted}"
    if suffix == ARCHIVE_SUFFIX:
        return write_archive(trace, output, force=force), f"flextrace characterize {quoted}"
    if suffix == TABLE_SUFFIX:
        return write_table(trace, output, arguments.layer, force=force), f"flextrace characterize {quoted}"
    if suffix == TIMELINE_SUFFIX:
        return write_timeline(trace, arguments), f"open {output} in https://ui.perfetto.dev"
    return write_trace(trace, output, force=force), f"flextrace characterize {quoted}"


def write_archive(trace: Path, output: Path, *, force: bool) -> list[str]:
    """Write an archive that was read back and compared; returns what to say about it."""
    from characterize.trace_files.archive import pack  # noqa: PLC0415 (pyarrow is slow to import)

    packed = pack(trace, output, force=force)
    each = f", {packed.archive_bytes / packed.records:.1f} bytes per record" if packed.records else ""
    lines = [f"{output}: {packed.records} records in {format_bytes(packed.archive_bytes)}{each}"]
    if packed.left_out_bytes:
        lines.append(
            f"warning: {trace} was not closed cleanly: the last {format_bytes(packed.left_out_bytes)}, "
            "behind its last whole record, are not in the archive"
        )
    return lines


def write_table(trace: Path, output: Path, layer: Layer | None, *, force: bool) -> list[str]:
    """Write a CSV table; returns what to say about it."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.formats import csv_export  # noqa: PLC0415

    opened = trace_file.open(trace)
    table = csv_export.write(opened, output, layer, force=force)
    lines = _foreign_warnings(opened)
    if not opened.measured:
        lines.append("warning: this trace has not run: its times are an order or a schedule, which a table cannot say")
    lines.append(f"{output}: {table.rows} rows of the layer {table.layer}")
    if table.left_out:
        lines.append(f"left out: {table.left_out} operations with two names (rename, link)")
    return lines


def write_timeline(trace: Path, arguments: argparse.Namespace) -> list[str]:
    """Write events for a viewer; returns what to say about it."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.formats import perfetto  # noqa: PLC0415

    begin_s, end_s = arguments.begin_s or 0.0, arguments.end_s
    count = perfetto.write(trace_file.open(trace), arguments.output, from_s=begin_s, to_s=end_s, force=arguments.force)
    return [f"{arguments.output}: {count} operations and requests"]


def write_trace(trace: Path, output: Path, *, force: bool) -> list[str]:
    """Copy a trace that was made for this; returns what to say about it."""
    with new_file(output, force=force) as stream, trace.open("rb") as source:
        shutil.copyfileobj(source, stream)
    return [f"{output}: {format_bytes(output.stat().st_size)}, without names"]


def write_jobs(trace: Path, output: Path, directory: Path, *, force: bool) -> list[str]:
    """Write a job file and its logs, and lay out the files that they name; returns what to say about them."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.formats import fio_iolog  # noqa: PLC0415

    with expanded(trace) as path:
        opened = trace_file.open(path)
        with fio_iolog.written(opened, output, directory, force=force) as exported:
            image = prepare(path, directory)["image"]
    lines = _foreign_warnings(opened)
    lines.append(f"{output}: {exported.operations} data operations and syncs of {len(exported.logs)} threads")
    lines.append(f"{directory}: {image['files']} files of {format_bytes(image['bytes'])}, out of the page cache")
    lines += [f"left out: {count} {what}" for what, count in exported.left_out.items()]
    lines += [f"warning: {count} {what}" for what, count in exported.changed.items()]
    if created := exported.created_files:
        lines.append(f"warning: {created} files are not there at the start: fio makes those that a thread writes first")
    if len(exported.logs) > 1:
        lines.append("fio keeps the order and the times of each thread, but no order across threads")
    return lines
