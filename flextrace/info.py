# SPDX-License-Identifier: Apache-2.0
"""``flextrace info``: what a trace says of itself."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

from characterize.units import format_bytes, format_duration

WIDTH = 90
PATH_COLUMNS = 42
_SHOWN_APART = ("made_by", "command", "kernel", "devices", "parent", "imported", "declared")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", type=Path, metavar="FILE", help="trace (.iotrace)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output (default: text)")
    parser.add_argument("--files", type=int, default=20, metavar="N", help="list N files, largest first (default: 20)")


def run(arguments: argparse.Namespace) -> int:
    """Print what the header and the identity records hold; 3 if records were lost while recording."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.inventory import inventory_of  # noqa: PLC0415

    document = inventory_of(trace_file.open(arguments.file), max(arguments.files, 0))
    for warning in document["warnings"]:
        print(f"flextrace info: warning: {warning}", file=sys.stderr)
    if arguments.format == "json":
        print(json.dumps(document, indent=1, allow_nan=False))
    else:
        print("\n".join(_render(document)))
    return 3 if document["lost"] else 0


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
        command = metadata["command"]
        lines.append(f"command    {shlex.join(command) if isinstance(command, list) else command}")
    lines += [
        f"{name.replace('_', ' '):<10} {_inline(metadata[name])}"
        for name in ("made_by", "kernel", "parent", "imported", "declared")
        if name in metadata
    ]
    rest = {name: value for name, value in metadata.items() if name not in _SHOWN_APART}
    lines += [f"{name:<10} {_inline(value)}" for name, value in rest.items()]
    lines = [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent=" " * 11)]
    lines += ["", "records", *(f"  {kind:<8} {count:>12}" for kind, count in document["records"].items() if count)]
    lines += _losses(document)
    lines += [f"device     {_inline(device)}" for device in metadata.get("devices", [])]
    if document["threads"]:
        names = (f"{row['comm']} ({row['threads']} in {row['processes']})" for row in document["threads"])
        lines += ["", *textwrap.wrap("threads    " + ", ".join(names), WIDTH, subsequent_indent=" " * 11)]
    return lines + _files(document)


def _inline(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _losses(document: dict[str, Any]) -> list[str]:
    if not document["lost"]:
        return ["  lost                0"]
    lines = ["", "LOST RECORDS: numbers made from this trace are not trustworthy"]
    lines += [f"  {kind:<8} {count:>12}" for kind, count in document["lost"].items()]
    lines += [
        f"    {row['kind']:<8} on CPU {row['cpu']:>3}: {row['lost']} in {row['gaps']} gaps"
        for row in document["lost_by_cpu"]
    ]
    return lines


def _files(document: dict[str, Any]) -> list[str]:
    if not document["files"]:
        return []
    lines = ["", f"files ({len(document['files'])} of {document['file_count']}, by bytes read and written)"]
    lines.append(f"  {'path':<{PATH_COLUMNS}} {'size':>10} {'reads':>9} {'writes':>9} {'bytes':>10}")
    for row in document["files"]:
        # A path is only a label, in any encoding: what cannot be printed is escaped, what is too long loses its begin.
        path = row["path"].encode("utf-8", "backslashreplace").decode() or f"(file {row['file']})"
        path = path if len(path) <= PATH_COLUMNS else "..." + path[3 - PATH_COLUMNS :]
        size, moved = format_bytes(row["size_bytes"]), format_bytes(row["bytes"])
        lines.append(f"  {path:<{PATH_COLUMNS}} {size:>10} {row['reads']:>9} {row['writes']:>9} {moved:>10}")
    return lines
