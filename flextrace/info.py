# SPDX-License-Identifier: Apache-2.0
"""``flextrace info``: what a trace says of itself."""

from __future__ import annotations

import argparse
import json
import shlex
import textwrap
from pathlib import Path
from typing import Any

from characterize.printable import printable
from characterize.trace_files.provenance import command_words
from characterize.units import format_bytes, format_duration
from flextrace.options.output_format import add_format_argument
from flextrace.output.talk import say

WIDTH = 90
PATH_COLUMNS = 42
_SHOWN_APART = (
    *("made_by", "command", "kernel", "devices", "parent", "imported", "declared"),
    *("totals", "in_flight_max", "in_flight_end", "closure", "skips", "skipped", "lost", "programs", "probes", "holes"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", type=Path, metavar="FILE", help="trace, archive of one, or trace of another tool")
    add_format_argument(parser)
    parser.add_argument("--files", type=int, default=20, metavar="N", help="list N files, largest first (default: 20)")


def run(arguments: argparse.Namespace) -> int:
    """Print what the header and the identity records hold; 3 if records were lost, or may be: it was not closed."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.inventory import inventory_of  # noqa: PLC0415

    document = inventory_of(trace_file.open(arguments.file), max(arguments.files, 0))
    for warning in document["warnings"]:
        say("info", f"warning: {warning}")
    if arguments.format == "json":
        print(json.dumps(document | {"command": command_words()}, indent=1, allow_nan=False))
    else:
        # Whatever a program was called, a line stays one.
        print("\n".join(map(printable, _render(document))))
    return 3 if document["lost"] or _uncounted(document) else 0


def _render(document: dict[str, Any]) -> list[str]:
    metadata, clock = document["metadata"], document["clock"]
    source = document["input"]
    lines = [
        f"trace      {source['path']}",
        f"size       {format_bytes(source['bytes'])}, format version {document['version']}",
        f"sha256     {source['sha256']}",
        f"flags      {', '.join(document['flags']) or 'none'}",
        f"times      {'measured' if document['measured'] else 'NOT measured: this trace has not run yet'}",
    ]
    if clock["start"]:
        lines.append(f"recorded   {clock['start']} to {clock['end'] or 'unknown'}")
    if clock["end_monotonic_ns"] > clock["start_monotonic_ns"]:
        lines.append(f"elapsed    {format_duration((clock['end_monotonic_ns'] - clock['start_monotonic_ns']) / 1e9)}")
    if "command" in metadata:
        lines.append(f"command    {_command(metadata['command'])}")
    lines += [
        f"{name.replace('_', ' '):<10} {_inline(metadata[name])}"
        for name in ("made_by", "kernel", "parent", "imported", "declared")
        if name in metadata
    ]
    rest = {name: value for name, value in metadata.items() if name not in _SHOWN_APART}
    lines += [
        f"{name:<10} {_command(value) if name.endswith('_command') else _inline(value)}" for name, value in rest.items()
    ]
    lines = [part for line in lines for part in textwrap.wrap(printable(line), WIDTH, subsequent_indent=" " * 11)]
    lines += _programs(document["programs"])
    lines += ["", "records", *(f"  {kind:<10} {count:>12}" for kind, count in document["records"].items() if count)]
    lines += _losses(document)
    lines += [*_sources(document), *_closure(document), *_skips(document), *_links(document)]
    for device in metadata.get("devices", []):
        lines += textwrap.wrap(printable(f"device     {_inline(device)}"), WIDTH, subsequent_indent=" " * 11)
    if document["threads"]:
        names = (f"{printable(row['comm'])} ({row['threads']} in {row['processes']})" for row in document["threads"])
        lines += ["", *textwrap.wrap("threads    " + ", ".join(names), WIDTH, subsequent_indent=" " * 11)]
    return lines + _holes(document) + _files(document)


def _inline(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _command(value: Any) -> str:
    """A command as a shell takes it; in older traces those of makers are one text already."""
    return shlex.join(map(str, value)) if isinstance(value, list) else _inline(value)


def _uncounted(document: dict[str, Any]) -> bool:
    """Whether records are missing that nobody counted: of a recorder that was killed, or a file that was cut off."""
    return not document["lost"] and bool({"LOST", "INCOMPLETE"} & set(document["flags"]))


def _losses(document: dict[str, Any]) -> list[str]:
    if _uncounted(document):
        return ["", "LOST RECORDS, not counted: numbers made from this trace are not trustworthy"]
    if not document["lost"]:
        return ["  lost                  0"]
    gaps = document["gaps"]
    lines = ["", "LOST RECORDS: numbers made from this trace are not trustworthy"]
    lines += [f"  {kind:<10} {count:>12}" for kind, count in document["lost"].items()]
    if gaps["count"]:
        lines.append(f"  in {gaps['count']} gaps, from {gaps['start_s']:.6f} s to {gaps['end_s']:.6f} s")
    lines += [
        f"    {row['kind']:<10} on CPU {row['cpu']:>3}: {row['lost']} in {row['gaps']} gaps, "
        f"from {row['start_s']:.6f} s to {row['end_s']:.6f} s"
        for row in document["lost_by_cpu"]
    ]
    return lines


def _programs(programs: Any) -> list[str]:
    """What was attached to the kernel: a list of names, of format 1.0 one text."""
    if not programs:
        return []
    text = ", ".join(map(_inline, programs)) if isinstance(programs, list) else _inline(programs)
    return textwrap.wrap(f"programs   {text}", WIDTH, subsequent_indent=" " * 11)


def _sources(document: dict[str, Any]) -> list[str]:
    """Data operations by interface: in the records, and as the recorder counted them."""
    if not document["sources"]:
        return []
    lines = ["", f"sources       {'reads':>10} {'bytes':>10} {'writes':>10} {'bytes':>10} {'failed':>8} {'fileops':>9}"]
    for row in document["sources"]:
        lines.append(
            f"  {row['source']:<11} {row['reads']:>10} {format_bytes(row['read_bytes']):>10} "
            f"{row['writes']:>10} {format_bytes(row['written_bytes']):>10} {row['failed']:>8} {row['fileops']:>9}"
        )
        if row["counted_reads"] is not None:
            lines.append(
                f"    counted   {row['counted_reads']:>10.0f} {format_bytes(row['counted_read_bytes']):>10} "
                f"{row['counted_writes']:>10.0f} {format_bytes(row['counted_written_bytes']):>10}"
            )
    if document["in_flight_max"] is not None:
        lines.append(f"  most in flight at once, as counted: {document['in_flight_max']}")
    if document["in_flight_end"]:
        lines.append(f"  in flight when recording ended, and not in the trace: {document['in_flight_end']}")
    return lines


def _closure(document: dict[str, Any]) -> list[str]:
    """The trace against the kernel's own counters."""
    if not document["closure"]:
        return []
    lines = ["", f"closure                 {'in the trace':>18} {'by the kernel':>18} {'ratio':>10}"]
    for row in document["closure"]:
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.6f}"
        lines.append(f"  {row['of']:<9} {row['account']:<11} {row['seen']:>18} {row['kernel']:>18} {ratio:>10}")
    return lines


def _skips(document: dict[str, Any]) -> list[str]:
    """What was left out on purpose; a line for each reason that occurred."""
    skips = {name: count for name, count in document["skips"].items() if count}
    if not skips:
        return []
    return ["", "left out", *(f"  {name.replace('_', ' '):<20} {count:>12}" for name, count in skips.items())]


def _links(document: dict[str, Any]) -> list[str]:
    """Why the bytes of the block layer moved, in shares."""
    links = document["links"]
    if not links["by_class"]:
        return []
    lines = ["", "block bytes  " + ", ".join(f"{row['class'].lower()} {row['share']:.1%}" for row in links["by_class"])]
    for name, text in (
        ("direct_and_fill", "direct and fill bytes linked to their operation"),
        ("writeback", "write-back bytes linked to the process that dirtied them"),
        ("writeback_to_operation", "write-back bytes linked to the operation that dirtied them"),
    ):
        if links[name]["bytes"]:
            lines.append(f"  {links[name]['linked_share']:>10.4%} of the {text}")
    return [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent=" " * 13) or [""]]


def _holes(document: dict[str, Any]) -> list[str]:
    """What of the files a replay does not fill."""
    holes = document["holes"]
    if not holes["files"] and not holes["files_cut"]:
        return []
    cut = f"; not all of {holes['files_cut']} files are recorded" if holes["files_cut"] else ""
    return ["", f"holes      {format_bytes(holes['bytes'])} in {holes['files']} files, which a replay leaves{cut}"]


def _files(document: dict[str, Any]) -> list[str]:
    if not document["files"]:
        return []
    lines = ["", f"files ({len(document['files'])} of {document['file_count']}, by bytes read and written)"]
    lines.append(f"  {'path':<{PATH_COLUMNS}} {'size':>10} {'reads':>9} {'writes':>9} {'bytes':>10}")
    for row in document["files"]:
        # A path is only a label, of any bytes: what cannot be printed is escaped, what is too long loses its begin.
        path = printable(row["path"]) or f"(file {row['file']})"
        path = path if len(path) <= PATH_COLUMNS else "..." + path[3 - PATH_COLUMNS :]
        size, moved = format_bytes(row["size_bytes"]), format_bytes(row["bytes"])
        lines.append(f"  {path:<{PATH_COLUMNS}} {size:>10} {row['reads']:>9} {row['writes']:>9} {moved:>10}")
    return lines
