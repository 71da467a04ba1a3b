# SPDX-License-Identifier: Apache-2.0
"""The options by which a trace of another tool is read, for every verb that reads one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError
from characterize.formats.reading import TIME_UNITS, ReadOptions
from characterize.formats.registry import FORMATS
from characterize.trace_files.expansion import is_trace_archive
from characterize.trace_files.trace_head import is_foreign, is_trace
from characterize.units import parse_size
from flextrace.options.column_names import parse_columns

if TYPE_CHECKING:
    from characterize.trace import Trace


def add_foreign_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("traces of other tools")
    formats = "; ".join(f"{form.name}: {form.about}" for form in FORMATS.values())
    group.add_argument(
        "--input-format",
        dest="foreign_format",
        choices=FORMATS,
        metavar="FORMAT",
        help=f"format of FILE (default: found from its content). {formats}",
    )
    group.add_argument(
        "--sector-bytes",
        type=parse_size,
        metavar="BYTES",
        help="size of the sectors that FILE counts in (default: the format's, 512)",
    )
    group.add_argument(
        "--time-unit", choices=TIME_UNITS, help="unit of the times in FILE (default: the format's; it is printed)"
    )
    group.add_argument(
        "--columns",
        type=parse_columns,
        default={},
        metavar="NAME=COLUMN,...",
        help="for csv and parquet: what the columns of FILE are, e.g. start=timestamp,offset=lba,bytes=len,op=type",
    )
    group.add_argument(
        "--skip-bad", action="store_true", help="leave malformed lines out and count them; the exit code is then 3"
    )


def read_options(arguments: argparse.Namespace) -> ReadOptions:
    """The options as the readers take them."""
    return ReadOptions(
        format=arguments.foreign_format,
        sector_bytes=arguments.sector_bytes,
        time_unit=arguments.time_unit,
        skip_bad=arguments.skip_bad,
        columns=arguments.columns,
    )


def foreign_options(arguments: argparse.Namespace) -> ReadOptions | None:
    """The options, if any of them was given: FILE is then a trace of another tool, whatever it begins with."""
    options = read_options(arguments)
    return None if options == ReadOptions() else options


def refuse_for_own(arguments: argparse.Namespace, file: Path) -> None:
    """Refuse the options for a trace of flextrace, and for an archive of one.

    Raises
    ------
    FlextraceError
    """
    own = is_trace_archive(file) or is_trace(file)
    if own and foreign_options(arguments) is not None:
        raise FlextraceError(
            f"{file} is a trace of flextrace, which says all of it: omit --input-format, --sector-bytes, --time-unit, "
            "--columns and --skip-bad",
            2,
        )


def assumptions(trace: Trace) -> str:
    """What was taken for granted of a trace of another tool, in one line; empty of any other trace."""
    imported = trace.header.metadata.get("imported")
    if not imported or trace.path is None or not is_foreign(trace.path):
        return ""
    assumed = [f"{name} {imported[name]}" for name in ("time_unit", "sector_bytes") if name in imported]
    return ", ".join(
        [f"read as {imported['format']}", *assumed, *renamed_columns(imported), *stacked_devices(imported)]
    )


def renamed_columns(facts: Mapping[str, Any]) -> list[str]:
    """Columns of a table that were understood by another name than flextrace's own, each in a few words."""
    return [f"column {column} as {name}" for name, column in facts.get("columns", {}).items() if column != name]


def stacked_devices(facts: Mapping[str, Any]) -> list[str]:
    """Devices whose requests other devices of the trace did, too, each in a few words."""
    return [
        f"device {device} is stacked on others: its {count} requests are in no total where those of the others are"
        for device, count in facts.get("stacked", {}).items()
    ]
