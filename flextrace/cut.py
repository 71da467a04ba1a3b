# SPDX-License-Identifier: Apache-2.0
"""``flextrace cut``: a trace becomes a part of it, whose files begin as they were there."""

from __future__ import annotations

import argparse
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.units import parse_duration
from flextrace.options.made_trace import add_output_arguments, make


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", type=Path, metavar="FILE", help="trace, archive of one, or trace of another tool")
    part = parser.add_argument_group("part", "of several options all hold; of one that is repeated, one")
    part.add_argument("--from", dest="begin_s", type=parse_duration, metavar="TIME", help="since the begin, as 10s")
    part.add_argument("--to", dest="end_s", type=parse_duration, metavar="TIME", help="what starts before")
    part.add_argument("--thread", dest="threads", type=int, action="append", metavar="ID", help="of this thread")
    part.add_argument("--process", dest="processes", type=int, action="append", metavar="ID", help="of this process")
    part.add_argument(
        "--comm", dest="names", action="append", metavar="PATTERN", help="of threads of these names, as 'rocksdb:*'"
    )
    part.add_argument(
        "--path",
        dest="files",
        action="append",
        metavar="PATTERN",
        help="on files of these paths, as '/data/*.db'; those of copies end in a number, as '/data/a.db (2)', and so "
        "'/data/*' takes those of all copies (one copy: --process)",
    )
    part.add_argument(
        "--device", dest="devices", action="append", metavar="MAJOR:MINOR", help="on files of its file system, or to it"
    )
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the part and print its five parameters."""
    from replayer.cut import Selection, cut  # noqa: PLC0415 (pandas is slow to import)

    names = ("begin_s", "end_s", "threads", "processes", "names", "files", "devices")
    selection = Selection(**{name: getattr(arguments, name) for name in names})
    if not selection.as_options():
        raise FlextraceError(
            "nothing to cut: give at least one of --from, --to, --thread, --process, --comm, --path, --device", 2
        )
    if selection.begin_s is not None and selection.end_s is not None and selection.begin_s >= selection.end_s:
        raise FlextraceError(f"--from {selection.begin_s:g}s is not before --to {selection.end_s:g}s", 2)
    return make(arguments, [arguments.file], lambda traces: cut(traces[0], selection))
