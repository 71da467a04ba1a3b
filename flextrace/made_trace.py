# SPDX-License-Identifier: Apache-2.0
"""What ``cut``, ``merge``, ``repeat`` and ``clone`` share: options of the output, and writing and telling it."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.expansion import refuse_archive_name
from characterize.new_file import check_new_file
from characterize.units import format_bytes

if TYPE_CHECKING:
    from characterize.trace import Trace

SCHEMA = "flextrace.made/1"


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the trace goes and how it is told."""
    output = parser.add_argument_group("output")
    output.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help="the new trace (.iotrace)")
    output.add_argument("--force", action="store_true", help="overwrite OUT")
    output.add_argument("--format", choices=("text", "json"), default="text", help="of what is printed (default: text)")


def make(arguments: argparse.Namespace, files: Sequence[Path], maker: Callable[[list[Trace]], Trace]) -> int:
    """Read traces, write the one that is made of them, print its parameters; 3 if one of them lacks records."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)

    output = arguments.output
    refuse_archive_name(output)
    check_new_file(output, force=arguments.force, inputs=files)
    parents = [trace_file.open(file) for file in files]
    verb = arguments.verb
    for parent in parents:
        for warning in parent.warnings:
            print(f"flextrace {verb}: warning: {warning}", file=sys.stderr)
    made = maker(parents)
    made.header.metadata[f"{verb}_command"] = shlex.join(["flextrace", *sys.argv[1:]])
    trace_file.write(made, output, force=arguments.force)
    lineage = made.header.metadata["lineage"]
    if arguments.format == "json":
        print(json.dumps({"schema": SCHEMA, "output": str(output), **lineage}, indent=1))
    else:
        print(render(lineage))
    quoted = shlex.quote(str(output))
    print(f"flextrace {verb}: run it with: flextrace replay {quoted} {place_of(made)}", file=sys.stderr)
    return 0 if all(parent.header.complete for parent in parents) else 3


def place_of(trace: Trace) -> str:
    """The option that says where a trace is to be replayed."""
    from characterize.layout import RecordKind  # noqa: PLC0415 (numpy is slow to import)
    from characterize.requests import block_records  # noqa: PLC0415 (pandas is slow to import)

    if len(trace.arrays[RecordKind.IO]) or len(trace.arrays[RecordKind.FILEOP]):
        return "--directory DIR"
    devices = set(block_records(trace)["device"].tolist())
    return "--device DEV" + (" --source all" if len(devices) > 1 else "")


def render(lineage: dict[str, Any]) -> str:
    """The five parameters of the parents and of the new trace, a column each; of many parents the first three."""
    parents = lineage["parents"][:3]
    columns = [(parent["parent"][-16:], parent["parameters"]) for parent in parents]
    columns.append(("made", lineage["parameters"]))
    lines = [f"{'parameter':<12}" + "".join(f" {title:>16}" for title, _ in columns)]
    for name in lineage["parameters"]:
        lines.append(f"{name:<12}" + "".join(f" {_show(name, values[name]):>16}" for _, values in columns))
    return "\n".join(lines)


def _show(name: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    return format_bytes(value) if name in {"uniqueBytes", "sizeMean"} else f"{value:.4g}"
