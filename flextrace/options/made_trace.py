# SPDX-License-Identifier: Apache-2.0
"""What makers of traces share, from ``alter`` to ``willy``: options of the output, reading parents, telling of it."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.trace_files.expansion import refuse_archive_name
from characterize.trace_files.new_file import check_new_file
from characterize.trace_files.provenance import command_words
from characterize.units import format_bytes
from flextrace.options.output_format import add_format_argument
from flextrace.output.talk import say

if TYPE_CHECKING:
    from characterize.trace import Trace

SCHEMA = "flextrace.made/1"


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the trace goes and how it is told."""
    output = parser.add_argument_group("output")
    output.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help="the new trace (.iotrace)")
    output.add_argument("--force", action="store_true", help="overwrite OUT")
    add_format_argument(output)


def read_parents(arguments: argparse.Namespace, files: Sequence[Path]) -> list[Trace]:
    """The traces that the output is to be made of, if it can be written; what they warn of is told."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)

    refuse_archive_name(arguments.output)
    check_new_file(arguments.output, force=arguments.force, inputs=files)
    parents = [trace_file.open(file) for file in files]
    for parent in parents:
        for warning in parent.warnings:
            say(arguments.verb, f"warning: {warning}")
    return parents


def make(arguments: argparse.Namespace, files: Sequence[Path], maker: Callable[[list[Trace]], Trace]) -> int:
    """Read traces, write the one that is made of them, print its parameters; 3 if one of them lacks records."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)

    parents = read_parents(arguments, files)
    made = maker(parents)
    made.header.metadata[f"{arguments.verb}_command"] = command_words()
    trace_file.write(made, arguments.output, force=arguments.force)
    lineage = made.header.metadata["lineage"]
    if arguments.format == "json":
        origin = {"schema": SCHEMA, "command": command_words(), "output": str(arguments.output)}
        print(json.dumps(origin | lineage, indent=1))
    else:
        print(render(lineage))
    tell_next(arguments, made)
    return 0 if all(parent.header.complete for parent in parents) else 3


def tell_next(arguments: argparse.Namespace, made: Trace) -> None:
    """Say how to run what was made."""
    quoted = shlex.quote(str(arguments.output))
    say(arguments.verb, f"run it with: flextrace replay {quoted} {_place_of(made)}")


def _place_of(trace: Trace) -> str:
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
        lines.append(f"{name:<12}" + "".join(f" {show_parameter(name, values[name]):>16}" for _, values in columns))
    return "\n".join(lines)


def show_parameter(name: str, value: float | None) -> str:
    """One of the five, with its unit."""
    if value is None:
        return "unknown"
    return format_bytes(value) if name in {"uniqueBytes", "sizeMean"} else f"{value:.4g}"
