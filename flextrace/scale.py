# SPDX-License-Identifier: Apache-2.0
"""Turns a directory on a machine, or a block device, into that machine's profile: ``flextrace scale``."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError
from characterize.trace_files.new_file import check_directory_of, check_replaceable, without_empty
from characterize.trace_files.provenance import command_words, created_now, tool_version
from characterize.units import format_duration, parse_duration, parse_fraction, parse_positive, parse_seed
from flextrace.options import access_options
from flextrace.output.measuring_progress import Progress
from flextrace.output.scale_text import missing_of, much_before, spent_of, what_next, wrapped
from flextrace.output.talk import say
from flextrace.runs import measuring
from flextrace.runs.alone import alone_with
from flextrace.runs.resuming import check_nothing_is_lost, end_of, journal_path, kept, reason_of, told_how_to_go_on
from replayer.run import make_directory
from replayer.running.confine import MemoryGroup, parse_limit

if TYPE_CHECKING:
    from selfscale.exploring.journal import Journal
    from selfscale.exploring.plan import Settings
    from selfscale.exploring.self_scaling import SelfScaling
    from selfscale.measuring.access import Access
    from selfscale.profile import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``flextrace scale``."""
    _add_target_arguments(parser.add_argument_group("what is measured"))
    access_options.add_arguments(parser.add_argument_group("how requests reach storage"))
    _add_point_arguments(parser.add_argument_group("which points, and how well"))
    _add_output_arguments(parser.add_argument_group("output"))


def _add_target_arguments(target: argparse._ArgumentGroup) -> None:
    place = target.add_mutually_exclusive_group(required=True)
    place.add_argument("--directory", type=Path, metavar="DIR", help="measure the file system of DIR")
    place.add_argument(
        "--device",
        metavar="DEV",
        help="measure a block device that nobody uses, without file system and page cache; only reads, unless --write "
        "is given",
    )
    target.add_argument(
        "--memory",
        type=parse_limit,
        metavar="SIZE",
        help="measure inside a memory control group of SIZE, so that the page cache is small and the run short (needs "
        "root, or a control group that is delegated); without it, files of about ten times the machine's memory",
    )


def _add_point_arguments(points: argparse._ArgumentGroup) -> None:
    points.add_argument(
        "--budget",
        type=parse_duration,
        default=600.0,
        metavar="TIME",
        help="for laying out files and all points together (default: 10m); from 100s on storage is measured by itself, "
        "too, so that applications can be simulated",
    )
    points.add_argument(
        "--focal",
        choices=("middle", "knee"),
        default="middle",
        help="what curves are measured around: the middle of every performance region, which is best to predict from "
        "(default); or the one point where every parameter has 75 %% of its largest throughput, to see which workloads "
        "perform well",
    )
    points.add_argument(
        "--stop-rule",
        choices=("confidence", "raidperf"),
        default="confidence",
        help="when a point has been measured: its 95 %% confidence half-width is within --target, transient and drift "
        "apart (default); or Lee's raidPerf rule, less than 1 %% change over two intervals, each 20 %% longer",
    )
    points.add_argument(
        "--target",
        type=parse_fraction,
        metavar="SHARE",
        help="half-width of the 95 %% confidence interval of a point's throughput, as a share of it, at which the "
        "point has been measured (default: 5%%)",
    )
    points.add_argument(
        "--random",
        type=int,
        default=0,
        metavar="N",
        help="also measure N random workloads twice, and print the errors of predictions and repetitions (default: 0)",
    )
    points.add_argument(
        "--seed", type=parse_seed, default=0, metavar="N", help="of the workloads and their order (default: 0)"
    )


def _add_output_arguments(output: argparse._ArgumentGroup) -> None:
    output.add_argument(
        "-o", "--output", type=Path, required=True, metavar="PROFILE.json", help="write the profile here"
    )
    output.add_argument(
        "--cost", type=parse_positive, metavar="N", help="what the machine costs, in any currency, for 'rank --by cost'"
    )
    output.add_argument("--resume", action="store_true", help="continue an interrupted run with the same settings")
    output.add_argument("--force", action="store_true", help="overwrite the profile, and forget an interrupted run")
    output.add_argument(
        "--keep-image", action="store_true", help=f"leave the files of DIR/{measuring.IMAGE}, for another run"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure; a run that is interrupted or fails leaves a usable profile that says so, and can be resumed."""
    from selfscale.profiles.steadiness import DISTRUSTED_SHARE, unsteady  # noqa: PLC0415 (only when something is measured)

    with without_empty(arguments.directory), contextlib.ExitStack() as stack:
        _check(arguments)
        access = access_options.access_of(arguments)
        chosen = _chosen(arguments, access)
        again = f"scale --resume {_same_options(arguments)}"
        if access.device:
            measuring.try_device(access, arguments.confirm)
        with told_how_to_go_on(again, _say) if arguments.resume else contextlib.nullcontext():
            exploration, journal, progress, environment = _begin(arguments, access, chosen, stack)
        ends = [end_of(exploration.run)]
        progress.close()
        missing = missing_of(exploration, arguments.random)
        found = unsteady(exploration.points)
        if _worth_a_profile(arguments.output, exploration, journal, ends[0]):
            profile = exploration.profile()
            profile.environment = environment
            profile.settings = {**chosen, "spent_s": exploration.spent_s}
            del profile.settings["disk"]  # a serial number is nothing to give away
            profile.ended_early = reason_of(ends[0]) if ends[0] else missing
            ends.append(end_of(lambda: _finish(arguments, profile)))
        whole = all(end is None for end in ends)
        if whole:
            journal.remove()
        # What was done is told also where something cannot be cleaned up, or that is interrupted.
        left = end_of(stack.close)
    if not whole:
        if left is not None:
            _say(reason_of(left))
        return _unfinished(ends, journal, again)
    for line in what_next(arguments.output, missing, exploration, found):
        _say(line)
    if left is not None:
        raise left
    return 3 if missing or found.above(DISTRUSTED_SHARE) else 0


def _chosen(arguments: argparse.Namespace, access: Access) -> dict[str, Any]:
    """What was asked for, and is the same where a run is resumed."""
    from selfscale.measuring.stop_rule import TARGET  # noqa: PLC0415

    return {
        "directory": str(arguments.directory.resolve()) if arguments.directory else None,
        **_place(arguments),
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


def _begin(
    arguments: argparse.Namespace, access: Access, chosen: dict[str, Any], stack: contextlib.ExitStack
) -> tuple[SelfScaling, Journal, Progress, dict[str, Any]]:
    """Prepare all that is measured with, anew or for what a journal lacks; what is to be cleaned up is on the stack.

    Returns
    -------
    exploration : SelfScaling
    journal : Journal
    progress : Progress
        Of the exploration, on a terminal from now on.
    environment : dict
        Of the profile: its directory may vanish.
    """
    from selfscale.exploring.journal import Journal  # noqa: PLC0415
    from selfscale.measuring.environment import host  # noqa: PLC0415
    from selfscale.measuring.stop_rule import stopping_of  # noqa: PLC0415

    path, journal, resumed_s = journal_path(arguments.output), None, 0.0
    stack.enter_context(alone_with(path, resume=arguments.resume))
    if arguments.resume:
        needed = ["cache_bytes", "cpus", "spent_s", *(() if access.cached else ("span_bytes",))]
        journal = Journal(path, chosen, {}, resume=True, needed=needed, host=host())
    machine = journal.machine if journal else _machine(arguments, access)
    settings = _settings(arguments, machine)
    if arguments.directory:
        measuring.check_space(arguments.directory, arguments.memory, settings)
    group = stack.enter_context(MemoryGroup(arguments.memory)) if arguments.memory else None
    image = stack.enter_context(measuring.image_directory(arguments.directory, keep=arguments.keep_image))
    if arguments.fill and journal is None:
        measuring.fill_device(access, arguments.confirm, settings, _say)
    spent_s = measuring.lay_out(settings, image, _say, budget_s=math.inf if journal else arguments.budget)
    spent_s += measuring.age_cache(settings, image, group, access, _say, budget_s=arguments.budget)
    if said := much_before(spent_s, arguments.budget):
        _say(said)
    environment = _environment(arguments)
    if journal is None:
        machine["spent_s"] = spent_s
        journal = Journal(path, chosen, machine, resume=False, host=host())
    else:
        resumed_s = spent_s
        _say(f"resuming behind {len(journal.points)} points")
    before_s = machine["spent_s"] + resumed_s + sum(point.resumed_s for point in journal.points)
    progress = stack.enter_context(Progress(settings.budget_s - before_s, len(journal.points), _say))
    measure = measuring.measure_in(image, group, access, arguments.confirm, journal.points, **stopping_of(chosen))
    measure = progress.wrap(journal.wrap(measure, resumed_s))
    exploration = _benchmark(arguments)(_settings(arguments, machine), measure, journal.informative)
    return exploration, journal, progress, environment


def _place(arguments: argparse.Namespace) -> dict[str, str | None]:
    """What is measured, beside its name: a run must not be resumed below an empty mount point, nor on another disk."""
    from selfscale.measuring.environment import identity_of, mount_of  # noqa: PLC0415

    if arguments.device:
        return {"mounted": None, "disk": identity_of(arguments.device)}
    kind, device, _ = mount_of(arguments.directory)
    return {"mounted": f"{kind} of {device}", "disk": identity_of(device)}


def _unfinished(ends: Sequence[BaseException | None], journal: Journal, again: str) -> int:
    """Say how to go on behind what ended a run early.

    Raises
    ------
    FlextraceError
        It was a failure, and not only an interruption.
    """
    if failures := [end for end in ends if isinstance(end, Exception)]:
        raise kept(failures, journal, again) from failures[0]
    _say(f"interrupted; continue with: flextrace {again}")
    return 130


def _worth_a_profile(output: Path, exploration: SelfScaling, journal: Journal, end: BaseException | None) -> bool:
    """Whether no earlier profile of the same run may hold more; without a point, whether nothing failed or is there."""
    measured = len(exploration.points) + len(exploration.storage)
    return measured >= len(journal.points) and (measured > 0 or not (isinstance(end, Exception) or output.exists()))


def _machine(arguments: argparse.Namespace, access: Access) -> dict[str, Any]:
    """What the ranges of workloads follow from; a resumed run keeps it."""
    from selfscale.measuring.access import direct_block_bytes  # noqa: PLC0415
    from selfscale.measuring.environment import cache_limit_bytes  # noqa: PLC0415

    machine: dict[str, Any] = {
        "cache_bytes": cache_limit_bytes(arguments.memory),
        "cpus": len(os.sched_getaffinity(0)),
        "spent_s": 0.0,
        "read_only": not access.writes,
        "stable_writes": access.stable,
    }
    if access.mode == "device":
        from replayer.devices.device_trace import geometry_of  # noqa: PLC0415
        from selfscale.measuring.measurable_sizes import PAGE_BYTES  # noqa: PLC0415

        machine["block_bytes"] = geometry_of(Path(arguments.device)).block_bytes
        if machine["block_bytes"] > PAGE_BYTES:
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
    from selfscale.exploring.plan import END_SHARE, Settings  # noqa: PLC0415

    budget_s = (1 - END_SHARE) * arguments.budget
    return Settings(seed=arguments.seed, random_points=arguments.random, budget_s=budget_s, **machine)


def _benchmark(arguments: argparse.Namespace) -> type[SelfScaling]:
    from selfscale.explore import Exploration  # noqa: PLC0415
    from selfscale.exploring.knee import KneeExploration  # noqa: PLC0415

    return KneeExploration if arguments.focal == "knee" else Exploration


def _environment(arguments: argparse.Namespace) -> dict[str, Any]:
    from selfscale.measuring.environment import device_environment, environment  # noqa: PLC0415

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
    if arguments.random < 0:
        raise FlextraceError(f"--random {arguments.random}: give a number of workloads, or leave it out", 2)
    if arguments.target is not None and (arguments.target == 0 or arguments.stop_rule != "confidence"):
        raise FlextraceError("--target needs a share above 0, such as 5%, and --stop-rule confidence", 2)
    access_options.check(arguments)
    measuring.check_run_options(arguments, arguments.device)
    check_directory_of(arguments.output)
    check_replaceable(arguments.output)
    check_nothing_is_lost(arguments, arguments.output)
    if arguments.directory:
        make_directory(arguments.directory)
        measuring.check_kept(arguments.output, arguments.directory)


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
    from selfscale.exploring.good_ranges import knee_sentences  # noqa: PLC0415
    from selfscale.predict import record_scores  # noqa: PLC0415
    from selfscale.profiles.conclusions import record_findings  # noqa: PLC0415
    from selfscale.reporting.findings import findings  # noqa: PLC0415

    if arguments.cost is not None:
        profile.settings["cost"] = arguments.cost
    profile.tool_version = tool_version()
    profile.command = command_words()
    profile.created = created_now()
    record_findings(profile)
    profile.save(arguments.output)
    lacks = "" if profile.complete else ", which is not complete"
    spent = spent_of(profile.settings["spent_s"], arguments.budget)
    count = len(profile.measured)
    _say(f"{count} point{'s are' if count != 1 else ' is'} in {arguments.output}{lacks}, after {spent}")
    record_scores(profile)
    profile.save(arguments.output)
    print("\n".join(wrapped(findings(profile) + knee_sentences(profile))), file=sys.stderr)


def _say(text: str) -> None:
    say("scale", text)
