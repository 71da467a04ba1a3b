# SPDX-License-Identifier: Apache-2.0
"""``flextrace doctor``: whether recording works here, what is lost, and what to do about it."""

from __future__ import annotations

import argparse
import errno
import json
import os
import platform
import stat
import textwrap
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from characterize.trace_files.provenance import command_words
from flextrace.checks.check import Check, Status, Verdict, verdict_of
from flextrace.checks.groups import group_checks
from flextrace.checks.host import Host
from flextrace.checks.kernel import kernel_checks
from flextrace.checks.packages import own_version, package_checks, requirements
from flextrace.checks.places import place_checks
from flextrace.checks.recorder import recorder_checks
from flextrace.options.output_format import add_format_argument
from selfscale.measuring.environment import cache_limit_bytes

SCHEMA = "flextrace.doctor/1"
WIDTH = 98
AREAS = ("kernel", "binaries", "privileges", "programs", "control groups", "places", "Python", "recording")
"""In the order in which a remedy for one helps the next; the recording that is tried last depends on most of them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.epilog = "exit codes: 0 recording works here, maybe with limits; 1 it does not; 2 usage"
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where traces and replays shall go (default: the current directory)",
    )
    add_format_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check everything and print it; 1 if recording does not work."""
    checks = examine(absolute(arguments.directory))
    if arguments.format == "json":
        print(json.dumps(as_document(checks, absolute(arguments.directory)), indent=1))
    else:
        print("\n".join(render(checks)))
    return 1 if verdict_of(checks) is Verdict.FAILS else 0


def absolute(directory: Path) -> Path:
    """The directory by a path that holds anywhere.

    Raises
    ------
    FlextraceError
        There is no such directory. One that cannot be entered is no error here: the checks say so.
    """
    try:
        if not stat.S_ISDIR(os.stat(directory).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return Path(os.path.abspath(directory))
    except PermissionError:
        return Path(os.path.abspath(directory))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FlextraceError(
            f"cannot use --directory {directory}: {reason}; name a directory that is there", 2
        ) from error


def examine(directory: Path) -> list[Check]:
    """Every check of this machine, of whoever runs this, and of a directory."""
    host = Host()
    checks = [
        *kernel_checks(host),
        *recorder_checks(host, directory, own_version(), _available_bytes()),
        *group_checks(host),
        *place_checks(directory),
        *package_checks(requirements()),
    ]
    return sorted(checks, key=lambda check: AREAS.index(check.area))


def _available_bytes() -> int | None:
    try:
        return cache_limit_bytes(None)
    except OSError:  # no /proc
        return None


def as_document(checks: list[Check], directory: Path) -> dict[str, Any]:
    """What ``--format json`` prints (schema flextrace.doctor/1)."""
    return {
        "schema": SCHEMA,
        "tool_version": own_version(),
        "command": command_words(),
        "verdict": verdict_of(checks),
        "kernel": platform.release(),
        "user": os.geteuid(),
        "directory": str(directory),
        "checks": [asdict(check) for check in checks],
    }


def render(checks: list[Check]) -> list[str]:
    """One line for each check, by area; the remedy below, once for those in a row that share it; the verdict last."""
    width = max(len(check.name) for check in checks)
    lines = []
    for area, members in groupby(checks, key=lambda check: check.area):
        lines.append(area)
        for remedy, alike in groupby(members, key=lambda check: check.remedy):
            for check in alike:
                lines += textwrap.wrap(
                    f"  {check.status:<4}  {check.name:<{width}}  {check.cause}",
                    WIDTH,
                    subsequent_indent=" " * (width + 10),
                    break_long_words=False,  # paths and names of programs
                    break_on_hyphens=False,
                )
            if remedy:
                lines.append(f"        -> {remedy}")
        lines.append("")
    return [*lines, verdict_line(checks)]


def verdict_line(checks: list[Check]) -> str:
    """The verdict, and what it rests on."""
    failed = [check.name for check in checks if check.status is Status.FAIL]
    limits = [check.name for check in checks if check.status is Status.WARN]
    if failed:
        return f"recording does not work here: {', '.join(failed)}"
    if limits:
        return f"recording works here, with limits: {', '.join(limits)}"
    return "recording works here"
