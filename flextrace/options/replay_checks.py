# SPDX-License-Identifier: Apache-2.0
"""Turns options of ``flextrace replay`` that do not go together into a message, before anything is done."""

from __future__ import annotations

import argparse
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.trace_files.new_file import check_directory_of, check_new_file
from flextrace.options.write_options import check_write_arguments


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raise `FlextraceError` (usage) where the options do not go together, or there is no place for the result."""
    if not arguments.directory and not arguments.device and arguments.engine != "null":
        raise FlextraceError("replay where? give --directory DIR, --image DIR or --device DEV", 2)
    if arguments.max_time is not None and arguments.max_time <= 0:
        raise FlextraceError("--max-time needs more than 0 s", 2)
    if arguments.late_limit is not None and arguments.late_limit <= 0:
        raise FlextraceError("--late-limit needs more than 0 s", 2)
    if arguments.loop and arguments.max_time is None:
        raise FlextraceError("--loop never ends by itself: give --max-time as well", 2)
    if arguments.record:
        if arguments.loop:
            raise FlextraceError("--record compares one pass with the trace: leave out --loop", 2)
        if arguments.engine == "null":
            raise FlextraceError("the null engine issues nothing that could be recorded: leave out --record", 2)
        if arguments.device and arguments.directory:
            raise FlextraceError("--record compares files or a device: leave out --directory or --device", 2)
        if arguments.source == "all":
            raise FlextraceError("--record compares one recorded device with DEV: give --source MAJOR:MINOR", 2)
    if arguments.speed != 1 and arguments.timing == "asap":
        raise FlextraceError("--speed divides recorded times, and --timing asap keeps none: give --timing as well", 2)
    if arguments.late_limit is not None and arguments.late != "skip":
        raise FlextraceError("--late-limit is for --late skip: give that as well", 2)
    if arguments.computing != "recorded" and arguments.timing != "think":
        raise FlextraceError("--computing is for think times: give --timing think as well", 2)
    if arguments.memory and arguments.engine == "null":
        raise FlextraceError("--memory bounds the page cache, and the null engine does no I/O: leave it out", 2)
    if isinstance(arguments.record, Path):
        check_directory_of(arguments.record)
    for path in (arguments.output, arguments.record):
        if isinstance(path, Path) and path.exists() and arguments.trace.exists() and path.samefile(arguments.trace):
            raise FlextraceError(f"{path} is the trace that is read: choose another name for the result", 2)
    if arguments.output:
        check_new_file(arguments.output, force=arguments.force)
        if isinstance(arguments.record, Path) and arguments.record.resolve() == arguments.output.resolve():
            raise FlextraceError(f"{arguments.output} cannot be the result and the recording: name one differently", 2)
    _check_device_arguments(arguments)


def _check_device_arguments(arguments: argparse.Namespace) -> None:
    """Raise `FlextraceError` (usage) where the options for a device do not go together."""
    check_write_arguments(arguments.device, arguments.write, arguments.confirm)
    given = [f"--{name}" for name in ("layer", "source", "lanes") if getattr(arguments, name)]
    given += ["--fit"] if arguments.fit != "exact" else []
    if given and not arguments.device:
        raise FlextraceError(f"{given[0]} is for a block device: give --device as well", 2)
    if arguments.device and arguments.memory and not arguments.directory:
        raise FlextraceError("--memory bounds the page cache, which direct I/O on a device does not use", 2)
    if (
        arguments.device
        and arguments.directory is None
        and (arguments.cache == "warm" or arguments.layout != "any" or arguments.force_space)
    ):
        raise FlextraceError("--cache warm, --layout and --force-space are for files, and a device has none", 2)
    if arguments.directory and given:
        raise FlextraceError(
            "with --directory the trace stays as it is: leave --fit, --layer, --source, --lanes out", 2
        )
