# SPDX-License-Identifier: Apache-2.0
"""Turns a directory on a machine into that machine's profile: ``flextrace scale``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import math
import os
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError
from characterize.units import format_duration, parse_duration, parse_size
from flextrace import measuring
from replayer.run import make_directory

if TYPE_CHECKING:
    from selfscale.explore import Exploration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``flextrace scale``."""
    parser.add_argument("--directory", type=Path, required=True, metavar="DIR", help="measure the file system of DIR")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="PROFILE.json", help="write the profile here"
    )
    parser.add_argument(
        "--memory",
        type=parse_size,
        metavar="SIZE",
        help="measure inside a memory control group of SIZE (needs root), whose small page cache makes it short; "
        "without it, files of four times the machine's memory are needed",
    )
    parser.add_argument(
        "--budget",
        type=parse_duration,
        default=600.0,
        metavar="DURATION",
        help="time for all points together (default 10m)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of workloads and of their order (default 0)")
    parser.add_argument(
        "--random", type=int, default=0, metavar="N", help="also measure N random workloads twice and print the errors"
    )
    parser.add_argument("--cost", type=float, metavar="N", help="of the machine, in any currency, for 'flextrace rank'")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run with the same settings")
    parser.add_argument("--force", action="store_true", help="overwrite the profile, and forget an interrupted run")
    parser.add_argument(
        "--keep-image", action="store_true", help=f"leave the files of DIR/{measuring.IMAGE}, for another run"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure; an interrupted run leaves a usable profile with ``complete`` false and can be resumed."""
    from selfscale.environment import cache_limit_bytes, environment  # noqa: PLC0415 (only when something is measured)
    from selfscale.explore import Exploration  # noqa: PLC0415
    from selfscale.journal import Journal  # noqa: PLC0415
    from selfscale.plan import Settings  # noqa: PLC0415

    _check(arguments)
    chosen = {
        "directory": str(arguments.directory.resolve()),
        "memory_bytes": arguments.memory,
        "budget_s": arguments.budget,
        "seed": arguments.seed,
        "random": arguments.random,
    }
    cache_bytes, cpus = cache_limit_bytes(arguments.memory), len(os.sched_getaffinity(0))
    machine = {"cache_bytes": cache_bytes, "cpus": cpus, "spent_s": 0.0}
    settings = Settings(cache_bytes, arguments.budget, cpus, arguments.seed, arguments.random)
    measuring.check_space(arguments.directory, arguments.memory, settings)
    code = 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(measuring.terminated_as_interrupted())
        group = None
        if arguments.memory:
            from replayer.confine import MemoryGroup  # noqa: PLC0415

            group = stack.enter_context(MemoryGroup(arguments.memory))
        image = stack.enter_context(measuring.image_directory(arguments.directory, keep=arguments.keep_image))
        if not arguments.resume:
            machine["spent_s"] = measuring.lay_out(settings, image, _say)
        journal = Journal(_journal_path(arguments), chosen, machine, resume=arguments.resume)
        if arguments.resume:
            _say(f"resuming behind {len(journal.points)} points")
            measuring.lay_out(settings, image, _say)
        settings = Settings(
            seed=arguments.seed, random_points=arguments.random, budget_s=arguments.budget, **journal.machine
        )
        progress = stack.enter_context(measuring.Progress(arguments.budget, len(journal.points), _say))
        exploration = Exploration(settings, progress.wrap(journal.wrap(measuring.measure_in(image, group))))
        try:
            exploration.run()
        except KeyboardInterrupt:
            code = 130
        progress.close()
        _finish(arguments, exploration, environment(arguments.directory, arguments.memory), chosen)
    if code == 0:
        journal.remove()
    if code == 0 and exploration.complete:
        return 0
    if code:
        _say(f"interrupted; continue with: flextrace scale --resume {_same_options(arguments)}")
        return code
    _say(
        "the budget ended before every curve had its ends: predictions will be poor; use a larger --budget and --force"
    )
    return 3


def _check(arguments: argparse.Namespace) -> None:
    """Refuse before the work starts what would fail after it.

    Raises
    ------
    FlextraceError
        The output or the journal is in the way, the directory or a value is not usable.
    """
    if arguments.budget < 5:
        raise FlextraceError(
            f"a budget of {format_duration(arguments.budget)} pays for no profile: give at least 5s", 2
        )
    if arguments.cost is not None and not 0 < arguments.cost < math.inf:
        raise FlextraceError(f"--cost {arguments.cost:g}: give a number above 0, or leave it out", 2)
    if arguments.random < 0:
        raise FlextraceError(f"--random {arguments.random}: give a number of workloads, or leave it out", 2)
    make_directory(arguments.directory)
    if not os.access(arguments.directory, os.W_OK | os.X_OK):
        raise FlextraceError(
            f"cannot measure in {arguments.directory}: it is not writable; choose another directory", 2
        )
    if not arguments.output.resolve().parent.is_dir():
        raise FlextraceError(f"cannot write {arguments.output}: its directory does not exist; create it", 2)
    if arguments.resume or arguments.force:
        return
    if arguments.output.exists():
        raise FlextraceError(f"{arguments.output} exists already: choose another name, or give --force or --resume", 2)
    if _journal_path(arguments).exists():
        raise FlextraceError(
            f"{_journal_path(arguments)} holds an interrupted run: continue it with --resume, forget it with --force",
            2,
        )


def _journal_path(arguments: argparse.Namespace) -> Path:
    return arguments.output.with_name(arguments.output.name + ".points.ndjson")


def _same_options(arguments: argparse.Namespace) -> str:
    words = ["--directory", str(arguments.directory), "-o", str(arguments.output), "--budget", f"{arguments.budget:g}"]
    words += ["--memory", str(arguments.memory)] if arguments.memory else []
    words += [] if arguments.cost is None else ["--cost", f"{arguments.cost:g}"]
    words += ["--random", str(arguments.random)] if arguments.random else []
    words += ["--seed", str(arguments.seed)] if arguments.seed else []
    return shlex.join(words)


def _finish(
    arguments: argparse.Namespace, exploration: Exploration, environment: dict[str, Any], chosen: dict[str, Any]
) -> None:
    """Write the profile and say what it found."""
    from selfscale.findings import findings  # noqa: PLC0415
    from selfscale.predict import record_scores  # noqa: PLC0415

    profile = exploration.profile()
    profile.environment = environment
    profile.settings = {**chosen, "spent_s": exploration.spent_s}
    if arguments.cost is not None:
        profile.settings["cost"] = arguments.cost
    profile.tool_version = version("flextrace")
    profile.command = ["flextrace", *sys.argv[1:]]
    profile.created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record_scores(profile)
    profile.save(arguments.output)
    for line in findings(profile):
        print(line, file=sys.stderr)
    _say(f"{len(profile.measured)} points in {format_duration(exploration.spent_s)} are in {arguments.output}")
    if exploration.complete:
        _say(f"next: flextrace predict {shlex.quote(str(arguments.output))} --trace TRACE.iotrace")


def _say(text: str) -> None:
    print(f"flextrace scale: {text}", file=sys.stderr)
