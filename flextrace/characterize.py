# SPDX-License-Identifier: Apache-2.0
"""``flextrace characterize``: a trace becomes numbers, as text or as one JSON document."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from flextrace.foreign_options import add_foreign_arguments, assumptions, foreign_options

_LAYERS = {"vfs": ("vfs",), "block": ("block",), "both": ("vfs", "block")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="trace (.iotrace), an archive of one, or a trace of another tool"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output (default: text)")
    parser.add_argument(
        "--layer",
        choices=_LAYERS,
        default="both",
        help="the application's layer, the block layer, both (default: both)",
    )

    parser.add_argument(
        "--mmap",
        choices=("data", "all", "none"),
        default="data",
        help="accesses to mapped files that count as requests: of data (default: all but pages read of programs, "
        "libraries and other files of the operating system), all, none",
    )
    add_foreign_arguments(parser, "--from")


def run(arguments: argparse.Namespace) -> int:
    """Print the numbers; 3 if records were lost while recording."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.characterization import characterize  # noqa: PLC0415
    from characterize.text import render  # noqa: PLC0415

    trace = trace_file.open(arguments.file, foreign_options(arguments))
    if assumed := assumptions(trace):
        print(f"flextrace characterize: {arguments.file}: {assumed}", file=sys.stderr)
    result = characterize(trace, arguments.mmap)
    layers = _LAYERS[arguments.layer]
    if arguments.format == "json":
        document = result.as_document()
        document["command"] = shlex.join(["flextrace", "characterize", *sys.argv[2:]])
        document["layers"] = {name: document["layers"][name] for name in layers}
        print(json.dumps(document, indent=1, allow_nan=False))
        for warning in result.warnings:
            print(f"flextrace characterize: warning: {warning}", file=sys.stderr)
    else:
        print(render(result, layers))
    if bad_lines := trace.header.metadata.get("imported", {}).get("bad_lines"):
        print(
            f"flextrace characterize: {arguments.file}: {bad_lines} malformed lines were left out; these numbers are "
            "not trustworthy",
            file=sys.stderr,
        )
        return 3
    if not result.trustworthy:
        lost = sum(result.lost.values()) or "some"
        exact = ", ".join(result.layers["vfs"].from_totals)
        print(
            f"flextrace characterize: {arguments.file}: {lost} records were LOST while recording; these numbers are "
            f"not trustworthy{f' (but {exact} of the application, which are exact)' if exact else ''}: "
            "record again with a larger --ring-bytes",
            file=sys.stderr,
        )
        return 3
    return 0
