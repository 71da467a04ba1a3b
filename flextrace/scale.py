# SPDX-License-Identifier: Apache-2.0
"""Turns a directory on a machine, or a block device, into that machine's profile: ``flextrace scale``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError
from characterize.new_file import check_replaceable
from characterize.provenance import tool_version
from characterize.units import format_duration, parse_duration, parse_fraction, parse_seed
from flextrace import access_options, measuring
from flextrace.measuring_progress import Progress
from replayer.confine import MemoryGroup, parse_limit
from replayer.run import make_directory

if TYPE_CHECKING:
    from selfscale.access import Access
    from selfscale.journal import Journal
    from selfscale.plan import Settings
    from selfscale.profile import Profile
    from selfscale.self_scaling import SelfScaling
    from selfscale.steadiness import Unsteady

END_SHARE = 0.02
"""Of the budget: what comes behind the last point, the errors of all models above all."""
BEFORE_TOLD = 0.3
"""Of the budget: what may be gone before the first point without being told where too little was left."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``flextrace scale``."""
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--directory", type=Path, metavar="DIR", help="measure the file system of DIR")
    place.add_argument(
        "--device",
        metavar="DEV",
        help="measure a block device that nobody uses, without file system and page cache; only reads, unless --write "
        "is given",
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="PROFILE.json", help="write the profile here"
    )
    parser.add_argument(
        "--memory",
        type=parse_limit,
        metavar="SIZE",
        help="measure inside a memory control group of SIZE, so that the page cache is small and the run short (needs "
        "root, or a control group that is delegated); without it, files of about ten times the machine's memory",
    )
    parser.add_argument(
        "--budget",
        type=parse_duration,
        default=600.0,
        metavar="TIME",
        help="for laying out files and all points together (default: 10m); from 100s on storage is measured by itself, "
        "too, so that applications can be simulated",
    )
    parser.add_argument(
        "--focal",
        choices=("middle", "knee"),
        default="middle",
        help="what curves are measured around: the middle of every performance region, which is best to predict from "
        "(default); or the one point where every parameter has 75 %% of its largest throughput, to see which workloads "
        "perform well",
    )
    access_options.add_arguments(parser.add_argument_group("how requests reach storage"))
    parser.add_argument(
        "--stop-rule",
        choices=("confidence", "raidperf"),
        default="confidence",
        help="when a point has been measured: its 95 %% confidence half-width is within --target, transient and drift "
        "apart (default); or Lee's raidPerf rule, less than 1 %% change over two intervals, each 20 %% longer",
    )
    parser.add_argument(
        "--target",
        type=parse_fraction,
        metavar="SHARE",
        help="half-width of the 95 %% confidence interval of a point's throughput, as a share of it, at which the "
        "point has been measured (default: 5%%)",
    )
    parser.add_argument(
        "--seed", type=parse_seed, default=0, metavar="N", help="of the workloads and their order (default: 0)"
    )
    parser.add_argument(
        "--random",
        type=int,
        default=0,
        metavar="N",
        help="also measure N random workloads twice, and print the errors of predictions and repetitions (default: 0)",
    )
    parser.add_argument(
        "--cost", type=float, metavar="N", help="what the machine costs, in any currency, for 'rank --by cost'"
    )
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run with the same settings")
    parser.add_argument("--force", action="store_true", help="overwrite the profile, and forget an interrupted run")
    parser.add_argument(
        "--keep-image", action="store_true", help=f"leave the files of DIR/{measuring.IMAGE}, for another run"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure; a run that is interrupted or fails leaves a usable profile that says so, and can be resumed."""
    from selfscale.journal import Journal  # noqa: PLC0415 (only when something is measured)
    from selfscale.steadiness import DISTRUSTED_SHARE, unsteady  # noqa: PLC0415
    from selfscale.stop_rule import TARGET, stopping_of  # noqa: PLC0415

    _check(arguments)
    access = access_options.access_of(arguments)
    chosen = {
        "directory": str(arguments.directory.resolve()) if arguments.directory else None,
        "mounted": _mounted(arguments.directory),
        "memory_bytes": arguments.memory,
        "budget_s": arguments.budget,
        "seed": arguments.seed,
        "random": arguments.random,
        "focal": arguments.focal,
        "span_bytes": arguments.span,
        "fill": arguments.fill,
        "access": access.as_document(),
        "stop_rule": arguments.stop_rule,
        "target": TARGET if arguments.target is None else arguments.target,
    }
    if access.device:
        measuring.try_device(access, arguments.confirm)
    journal = Journal(_journal_path(arguments), chosen, {}, resume=True) if arguments.resume else None
    machine = journal.machine if journal else _machine(arguments, access)
    if arguments.directory:
        measuring.check_space(arguments.directory, arguments.memory, _settings(arguments, machine))
    with contextlib.ExitStack() as stack:
        stack.enter_context(measuring.terminated_as_interrupted())
        if journal:
            stack.enter_context(measuring.told_how_to_go_on(f"scale --resume {_same_options(arguments)}", _say))
        group = None
        if arguments.memory:
            group = stack.enter_context(MemoryGroup(arguments.memory))
        image = stack.enter_context(measuring.image_directory(arguments.directory, keep=arguments.keep_image))
        if arguments.fill and journal is None:
            measuring.fill_device(access, arguments.confirm, _settings(arguments, machine), _say)
        settings = _settings(arguments, machine)
        spent_s = measuring.lay_out(settings, image, _say)
        spent_s += measuring.age_cache(settings, image, group, access, _say, budget_s=arguments.budget)
        environment = _environment(arguments)  # while there is one: the directory may vanish
        if journal is None:
            machine["spent_s"] = spent_s
            journal = Journal(_journal_path(arguments), chosen, machine, resume=False)
        else:
            _say(f"resuming behind {len(journal.points)} points")
        settings = _settings(arguments, machine)
        progress = stack.enter_context(Progress(settings.budget_s - settings.spent_s, len(journal.points), _say))
        stopping = stopping_of(chosen)
        measure = measuring.measure_in(image, group, access, arguments.confirm, journal.points, **stopping)
        exploration = _benchmark(arguments)(settings, progress.wrap(journal.wrap(measure)))
        ends = [_end_of(exploration.run)]
        progress.close()
        missing = _missing(exploration, arguments.random)
        found = unsteady(exploration.points)
        if _worth_a_profile(exploration, journal, ends[0]):
            profile = exploration.profile()
            profile.environment = environment
            profile.settings = {**chosen, "spent_s": exploration.spent_s}
            profile.ended_early = measuring.reason_of(ends[0]) if ends[0] else missing
            ends.append(_end_of(lambda: _finish(arguments, profile)))
    if any(end is not None for end in ends):
        return _unfinished(ends, journal, f"scale --resume {_same_options(arguments)}")
    journal.remove()
    for line in _what_next(arguments.output, missing, found, complete=exploration.complete):
        _say(line)
    return 3 if missing or found.above(DISTRUSTED_SHARE) else 0


def _mounted(directory: Path | None) -> str | None:
    """What file system a directory is on: a run that is resumed must not go on below an empty mount point."""
    from selfscale.environment import mount_of  # noqa: PLC0415

    return None if directory is None else "{} of {}".format(*mount_of(directory)[:2])


def _end_of(work: Callable[[], None]) -> KeyboardInterrupt | FlextraceError | OSError | None:
    """What ended some work before it was done; None if nothing did."""
    try:
        work()
    except (KeyboardInterrupt, FlextraceError, OSError) as end:
        return end
    return None


def _unfinished(ends: Sequence[BaseException | None], journal: Journal, again: str) -> int:
    """Say how to go on behind what ended a run early.

    Raises
    ------
    FlextraceError
        It was a failure, and not only an interruption.
    """
    if failures := [end for end in ends if isinstance(end, Exception)]:
        raise measuring.kept(failures, journal, again) from failures[0]
    _say(f"interrupted; continue with: flextrace {again}")
    return 130


def _worth_a_profile(exploration: SelfScaling, journal: Journal, end: BaseException | None) -> bool:
    """Whether there is no failure without a point, and no earlier profile of the same run that may hold more."""
    measured = len(exploration.points) + len(exploration.storage)
    return measured >= len(journal.points) and (measured > 0 or not isinstance(end, Exception))


def _what_next(output: Path, missing: str, found: Unsteady, *, complete: bool) -> list[str]:
    """What to do with a profile that is written, by what is to be trusted of it."""
    from selfscale.steadiness import DISTRUSTED_SHARE, REMEDY, WARNED_SHARE  # noqa: PLC0415

    lines = [f"{missing}; use a larger --budget and --force"] if missing else []
    if found.above(DISTRUSTED_SHARE):
        lines.append(
            f"the machine did not become steady: {found} were not, and predictions from {output} carry that warning; "
            f"{REMEDY}, and --force"
        )
    elif complete:
        if found.above(WARNED_SHARE):
            lines.append(f"predictions will warn that {found} were not steady; {REMEDY}, and --force")
        lines.append(f"next: flextrace predict {shlex.quote(str(output))} --trace TRACE.iotrace")
    return lines


def _missing(exploration: SelfScaling, random_workloads: int) -> str:
    """What the budget did not pay for; empty if it paid for all."""
    if not exploration.complete:
        before_s, budget_s = exploration.settings.spent_s, exploration.settings.budget_s
        told = f"{format_duration(before_s)} of it went to laying out files and ageing the page cache, "
        cause = told if before_s > BEFORE_TOLD * budget_s else ""
        return f"the budget ended before every curve had its ends: {cause}predictions will be poor"
    repeated = sum(point.role == "random" and point.repeat == 1 for point in exploration.points)
    if repeated < random_workloads:
        return (
            f"the budget ended before more than {repeated} of {random_workloads} random workloads had been measured "
            "twice"
        )
    return ""


def _machine(arguments: argparse.Namespace, access: Access) -> dict[str, Any]:
    """What the ranges of workloads follow from; a resumed run keeps it."""
    from selfscale.access import direct_block_bytes  # noqa: PLC0415
    from selfscale.environment import cache_limit_bytes  # noqa: PLC0415

    machine: dict[str, Any] = {
        "cache_bytes": cache_limit_bytes(arguments.memory),
        "cpus": len(os.sched_getaffinity(0)),
        "spent_s": 0.0,
        "read_only": not access.writes,
        "stable_writes": access.stable,
    }
    if access.mode == "device":
        from replayer.device_trace import geometry_of  # noqa: PLC0415
        from selfscale.plan import ALIGN_BYTES  # noqa: PLC0415

        machine["block_bytes"] = geometry_of(Path(arguments.device)).block_bytes
        if machine["block_bytes"] > ALIGN_BYTES:
            raise FlextraceError(
                f"{arguments.device} has blocks of more than 4 KiB, of which workloads consist: it cannot be measured"
            )
    elif access.mode == "direct":
        machine["block_bytes"] = direct_block_bytes(arguments.directory)
    if not access.cached:
        settings = _settings(arguments, machine)
        machine["span_bytes"] = measuring.span_bytes(access, arguments.directory, settings, arguments.span)
    return machine


def _settings(arguments: argparse.Namespace, machine: dict[str, Any]) -> Settings:
    from selfscale.plan import Settings  # noqa: PLC0415

    budget_s = (1 - END_SHARE) * arguments.budget
    try:
        return Settings(seed=arguments.seed, random_points=arguments.random, budget_s=budget_s, **machine)
    except TypeError as error:
        raise FlextraceError(
            f"cannot resume {_journal_path(arguments)}: another version of flextrace wrote it ({error}); start afresh "
            "with --force",
            2,
        ) from error


def _benchmark(arguments: argparse.Namespace) -> type[SelfScaling]:
    from selfscale.explore import Exploration  # noqa: PLC0415
    from selfscale.knee import KneeExploration  # noqa: PLC0415

    return KneeExploration if arguments.focal == "knee" else Exploration


def _environment(arguments: argparse.Namespace) -> dict[str, Any]:
    from selfscale.environment import device_environment, environment  # noqa: PLC0415

    if arguments.device:
        return device_environment(arguments.device)
    return environment(arguments.directory, arguments.memory)


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
    if arguments.target is not None and (arguments.target == 0 or arguments.stop_rule != "confidence"):
        raise FlextraceError("--target needs a share above 0, such as 5%, and --stop-rule confidence", 2)
    access_options.check(arguments)
    measuring.check_run_options(arguments, arguments.device)
    if arguments.directory:
        make_directory(arguments.directory)
        if not os.access(arguments.directory, os.W_OK | os.X_OK):
            raise FlextraceError(
                f"cannot measure in {arguments.directory}: it is not writable; choose another directory", 2
            )
    if not arguments.output.resolve().parent.is_dir():
        raise FlextraceError(f"cannot write {arguments.output}: its directory does not exist; create it", 2)
    measuring.check_kept(arguments.output, arguments.directory)
    check_replaceable(arguments.output)
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
    place = ["--device", arguments.device] if arguments.device else ["--directory", str(arguments.directory)]
    words = [*place, "-o", str(arguments.output), "--budget", f"{arguments.budget!r}"]
    words += ["--focal", arguments.focal] if arguments.focal != "middle" else []
    words += access_options.same(arguments)
    words += ["--stop-rule", arguments.stop_rule] if arguments.stop_rule != "confidence" else []
    words += [] if arguments.target is None else ["--target", f"{arguments.target!r}"]
    words += ["--memory", str(arguments.memory)] if arguments.memory else []
    words += [] if arguments.cost is None else ["--cost", f"{arguments.cost!r}"]
    words += ["--random", str(arguments.random)] if arguments.random else []
    words += ["--seed", str(arguments.seed)] if arguments.seed else []
    words += ["--keep-image"] if arguments.keep_image else []
    return shlex.join(words)


def _finish(arguments: argparse.Namespace, profile: Profile) -> None:
    """Write the profile, also without the errors of its models, which take their time; and say what it found."""
    from selfscale.conclusions import record_findings  # noqa: PLC0415
    from selfscale.findings import findings  # noqa: PLC0415
    from selfscale.good_ranges import knee_sentences  # noqa: PLC0415
    from selfscale.predict import record_scores  # noqa: PLC0415

    if arguments.cost is not None:
        profile.settings["cost"] = arguments.cost
    profile.tool_version = tool_version()
    profile.command = ["flextrace", *sys.argv[1:]]
    profile.created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record_findings(profile)
    profile.save(arguments.output)
    lacks = "" if profile.complete else ", which is not complete"
    spent = format_duration(profile.settings["spent_s"])
    count = len(profile.measured)
    _say(f"{count} point{'s are' if count != 1 else ' is'} in {arguments.output}{lacks}, after {spent}")
    record_scores(profile)
    profile.save(arguments.output)
    for line in findings(profile) + knee_sentences(profile):
        print(line, file=sys.stderr)


def _say(text: str) -> None:
    print(f"flextrace scale: {text}", file=sys.stderr)
