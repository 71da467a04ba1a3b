# SPDX-License-Identifier: Apache-2.0
"""``flextrace characterize``: a trace becomes numbers, as text or as one JSON document."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

_LAYERS = {"vfs": ("vfs",), "block": ("block",), "both": ("vfs", "block")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", type=Path, metavar="FILE", help="trace (.iotrace)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output (default: text)")
    parser.add_argument(
        "--layer",
        choices=_LAYERS,
        default="both",
        help="the application's layer, the block layer, both (default: both)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the numbers; 3 if records were lost while recording."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.characterization import characterize  # noqa: PLC0415
    from characterize.text import render  # noqa: PLC0415

    result = characterize(trace_file.open(arguments.file))
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
    if result.lost:
        lost = sum(result.lost.values())
        print(
            f"flextrace characterize: {arguments.file}: {lost} records were LOST while recording; "
            "these numbers are not trustworthy: record again with a larger --memory",
            file=sys.stderr,
        )
        return 3
    return 0
