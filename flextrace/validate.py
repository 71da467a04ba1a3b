# SPDX-License-Identifier: Apache-2.0
"""Turns a profile into the errors of predictions from it, measured on the same machine: ``flextrace validate``."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError, is_interrupt
from characterize.trace_files.new_file import check_new_file, without_empty, write_text
from characterize.trace_files.provenance import command_words, provenance_of
from characterize.units import parse_duration, parse_seed
from flextrace.options.output_format import add_format_argument
from flextrace.options.write_options import add_write_arguments, check_write_arguments
from flextrace.output.measuring_progress import Progress
from flextrace.output.talk import say
from flextrace.runs import measuring
from flextrace.runs.alone import alone_with
from flextrace.runs.resuming import check_nothing_is_lost, clean_up, journal_path, kept, told_how_to_go_on
from replayer.run import make_directory
from replayer.running.confine import MemoryGroup, parse_limit

if TYPE_CHECKING:
    from selfscale.measuring.access import Access
    from selfscale.profile import Profile
    from selfscale.validate import ModelErrors

SCHEMA = "flextrace.validation/1"
LABEL_WIDTH = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``flextrace validate``."""
    parser.add_argument("profile", type=Path, metavar="PROFILE.json", help="of this machine, by 'flextrace scale'")
    workloads = parser.add_argument_group("what is measured")
    workloads.add_argument(
        *("--random", "--workloads"),
        dest="workloads",
        type=int,
        default=100,
        metavar="N",
        help="random workloads, each measured twice (default: 100); either name, the first is that of 'scale'",
    )
    workloads.add_argument(
        "--no-orthogonal",
        action="store_true",
        help="leave out the baselines that interpolate in orthogonal samples (thesis 5.4), which need most of the time",
    )
    workloads.add_argument(
        "--max-time", type=parse_duration, default=4.0, metavar="TIME", help="longest run of each (default: 4s)"
    )
    workloads.add_argument(
        "--seed", type=parse_seed, default=0, metavar="N", help="of the workloads and their order (default: 0)"
    )
    place = parser.add_argument_group("where")
    place.add_argument("--directory", type=Path, metavar="DIR", help="where to measure (default: the profile's)")
    place.add_argument(
        "--memory", type=parse_limit, metavar="SIZE", help="memory control group to measure in (default: the profile's)"
    )
    add_write_arguments(place, "needed where the profile is of a device that was written: destroys what is on it")
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE.json",
        help="for points and errors (default: PROFILE-validation.json)",
    )
    output.add_argument("--resume", action="store_true", help="continue an interrupted run with the same settings")
    output.add_argument("--force", action="store_true", help="overwrite the document, and forget an interrupted run")
    output.add_argument(
        "--keep-image", action="store_true", help=f"leave the files of DIR/{measuring.IMAGE}, for another run"
    )
    add_format_argument(output)


def run(arguments: argparse.Namespace) -> int:
    """Measure in two passes, print the table; an interrupted run can be resumed."""
    from selfscale.exploring.journal import Journal  # noqa: PLC0415
    from selfscale.measuring.environment import host  # noqa: PLC0415
    from selfscale.measuring.stop_rule import stopping_of  # noqa: PLC0415 (only when something is measured)
    from selfscale.profile import Profile  # noqa: PLC0415
    from selfscale.validate import plan, validate  # noqa: PLC0415

    profile = Profile.load(arguments.profile)
    output = arguments.output or arguments.profile.with_name(arguments.profile.stem + "-validation.json")
    _check(arguments, profile, output)
    _check_models(profile, arguments.profile)
    directory = _directory(arguments, profile, profile.access.device)
    memory_bytes = arguments.memory or profile.environment.get("memory_limit_bytes")
    with without_empty(directory), contextlib.ExitStack() as stack:
        _try_place(arguments, profile.access, directory, output)
        drawn = {"seed": arguments.seed, "orthogonal": not arguments.no_orthogonal}
        validation = plan(profile, arguments.workloads, seconds=arguments.max_time, **drawn)
        chosen = _chosen(arguments, profile, directory, memory_bytes)
        warnings = _differences(profile, directory, profile.access.device, memory_bytes)
        again = f"validate --resume {_same_options(arguments)}"
        settings = _settings(profile, validation.workloads)
        stack.enter_context(alone_with(journal_path(output), resume=arguments.resume))
        journal = Journal(journal_path(output), chosen, {}, resume=True, host=host()) if arguments.resume else None
        if directory:
            measuring.check_space(directory, memory_bytes, settings)
        stack.enter_context(told_how_to_go_on(again, _say) if journal else contextlib.nullcontext())
        group = stack.enter_context(MemoryGroup(memory_bytes)) if memory_bytes else None
        image = stack.enter_context(measuring.image_directory(directory, keep=arguments.keep_image))
        measuring.lay_out(settings, image, _say)
        measuring.age_cache(settings, image, group, profile.access, _say)
        journal = journal or Journal(journal_path(output), chosen, {}, resume=False, host=host())
        progress = stack.enter_context(Progress(math.inf, len(journal.points), _say))
        measure = measuring.measure_in(
            image, group, profile.access, arguments.confirm, journal.points, **stopping_of(profile.settings)
        )
        try:
            result = validate(profile, validation, progress.wrap(journal.wrap(measure)))
            text = json.dumps(_document(arguments, profile, result, chosen, warnings), indent=1, allow_nan=False)
            write_text(output, text, force=arguments.force or arguments.resume)
        except (KeyboardInterrupt, SystemError) as error:
            if not is_interrupt(error):
                raise
            progress.close()
            clean_up(stack, _say)
            _say(f"interrupted; continue with: flextrace {again}")
            return 130
        except (FlextraceError, OSError) as error:
            raise kept([error], journal, again) from error
        # What was done is told also where something cannot be cleaned up, or that is interrupted.
        progress.close()
        journal.remove()
        workloads = arguments.workloads - result["dropped"]
        print(text if arguments.format == "json" else format_rows(result["rows"], workloads))
        _say(f"every measured point is in {output}{_left_out(result['dropped'])}")
    return 3 if warnings else 0


def _left_out(workloads: int) -> str:
    return f"; workloads that moved nothing in their time, left out of the errors: {workloads}" if workloads else ""


def _chosen(
    arguments: argparse.Namespace, profile: Profile, directory: Path | None, memory_bytes: int | None
) -> dict[str, Any]:
    """What an interrupted run must have had the same to be gone on with."""
    return {
        "profile": str(arguments.profile.resolve()),
        "created": profile.created,
        "directory": str(directory.resolve()) if directory else None,
        "access": profile.access.as_document(),
        "memory_bytes": memory_bytes,
        "workloads": arguments.workloads,
        "max_seconds": arguments.max_time,
        "seed": arguments.seed,
        "orthogonal": not arguments.no_orthogonal,
    }


def _directory(arguments: argparse.Namespace, profile: Profile, device: str | None) -> Path | None:
    """Where it is measured again; None of a device."""
    return None if device else arguments.directory or Path(profile.environment["directory"])


def _check(arguments: argparse.Namespace, profile: Profile, output: Path) -> None:
    """Refuse before the work starts what would fail after it."""
    if arguments.workloads < 1:
        raise FlextraceError(f"--random {arguments.workloads}: give a number of random workloads", 2)
    if arguments.max_time <= 0:
        raise FlextraceError("--max-time needs more than 0 s", 2)
    check_new_file(output, force=True, inputs=[arguments.profile])
    if not profile.regions:
        from selfscale.profile import TO_COMPLETE  # noqa: PLC0415

        raise FlextraceError(f"profile {arguments.profile} has no region to predict from: {TO_COMPLETE}")
    device = profile.settings.get("access", {}).get("device")
    check_write_arguments(device, arguments.write, arguments.confirm)
    measuring.check_run_options(arguments, device)
    if device and profile.range_of("readFrac")[0] < 1 and not arguments.write:
        raise FlextraceError(f"profile {arguments.profile} has writes to {device}: give --write and --confirm", 2)
    if device and (arguments.directory or arguments.memory):
        raise FlextraceError(f"profile {arguments.profile} is of {device}: leave --directory and --memory out", 2)
    if arguments.directory is None and not device and not profile.environment.get("directory"):
        raise FlextraceError(f"profile {arguments.profile} names no directory: give --directory DIR", 2)
    check_nothing_is_lost(arguments, output)


def _try_place(arguments: argparse.Namespace, access: Access, directory: Path | None, output: Path) -> None:
    """Refuse a device that may not be used, and a directory that cannot be made, or has the output among its files."""
    if access.device:
        measuring.try_device(access, arguments.confirm)
    if directory:
        make_directory(directory)
        measuring.check_kept(output, directory)


def _check_models(profile: Profile, path: Path) -> None:
    """Refuse, before hours of measuring, a profile of which no model is to be judged."""
    from selfscale.predict import predictor_of  # noqa: PLC0415

    if profile.lacks:
        _say(f"warning: profile {path} {profile.lacks}")
    predictor_of(path, profile)


def _settings(profile: Profile, workloads: list[Any]) -> Any:
    """Settings whose layout has the files of every workload."""
    from selfscale.exploring.plan import Settings  # noqa: PLC0415

    processes = max(profile.range_of("processNum")[1], *(workload.process_num for workload in workloads))
    span_bytes = profile.range_of("uniqueBytes")[1]
    return Settings(span_bytes / 4, budget_s=0.0, cpus=math.ceil(processes / 2), span_bytes=span_bytes)


def _differences(profile: Profile, directory: Path | None, device: str | None, memory_bytes: int | None) -> list[str]:
    """What is not as it was when the profile was made, so that its errors would be another machine's; it is said."""
    from selfscale.measuring.environment import changed, device_environment, environment  # noqa: PLC0415

    now = environment(directory, memory_bytes) if directory else device_environment(str(device))
    warnings = [
        f"{name} is {now[name]}, the profile was measured with {profile.environment[name]}: errors are not its own"
        for name in changed(profile.environment, now)
    ]
    for warning in warnings:
        _say(f"warning: {warning}")
    return warnings


def format_rows(rows: list[ModelErrors], count: int) -> str:
    """The table of errors as text of at most 100 columns."""
    titles = ("points", "median", "75th", "90th", "largest", "in 90 %")
    lines = [
        f"error on {count} random workloads, |predicted - measured| / measured (thesis 5.3, table 5.1)",
        f"{'':{LABEL_WIDTH}}" + "".join(f"{title:>9}" for title in titles),
    ]
    for row in rows:
        label = row.name + (" (used)" if row.used else "")
        if row.reason:
            lines.append(f"{label:{LABEL_WIDTH}}   {row.reason.split(':')[0]}")
            continue
        cells = [str(row.points) if row.points else "-"]
        cells += [f"{row.errors[name]:.1%}" if row.errors[name] < 10 else "> 10x" for name in ("median", "p75", "p90")]
        cells += [f"{row.errors['max']:.0%}" if row.errors["max"] < 100 else "> 100x"]
        cells += ["-" if row.coverage is None else f"{row.coverage:.0%}"]
        lines.append(f"{label:{LABEL_WIDTH}}" + "".join(f"{cell:>9}" for cell in cells))
    regions = sorted({region for row in rows for region in row.by_region}, key=int)
    if len(regions) > 1:
        lines += ["", "median by region", f"{'':{LABEL_WIDTH}}" + "".join(f"{int(r) + 1:>9}" for r in regions)]
        for row in rows:
            cells = [f"{row.by_region[region]:.1%}" if region in row.by_region else "-" for region in regions]
            lines.append(f"{row.name:{LABEL_WIDTH}}" + "".join(f"{cell:>9}" for cell in cells))
    return "\n".join(lines)


def _document(
    arguments: argparse.Namespace, profile: Profile, result: dict[str, Any], chosen: dict[str, Any], warnings: list[str]
) -> dict[str, Any]:
    from characterize.document import plain  # noqa: PLC0415

    return {
        "schema": SCHEMA,
        **provenance_of(arguments.profile),
        "command": command_words(),
        "settings": chosen,
        "environment": profile.environment,
        "rows": [plain(asdict(row)) for row in result["rows"]],
        "dropped": result["dropped"],
        "points": [point.as_document() for point in result["points"]],
        "warnings": warnings,
    }


def _same_options(arguments: argparse.Namespace) -> str:
    words = [str(arguments.profile), "--random", str(arguments.workloads)]
    words += ["--max-time", f"{arguments.max_time!r}"]
    words += ["--no-orthogonal"] if arguments.no_orthogonal else []
    words += ["--directory", str(arguments.directory)] if arguments.directory else []
    words += ["--memory", str(arguments.memory)] if arguments.memory else []
    words += ["--write", "--confirm", arguments.confirm] if arguments.write else []
    words += ["--seed", str(arguments.seed)] if arguments.seed else []
    words += ["-o", str(arguments.output)] if arguments.output else []
    words += ["--keep-image"] if arguments.keep_image else []
    words += ["--format", arguments.format] if arguments.format != "text" else []
    return shlex.join(words)


def _say(text: str) -> None:
    say("validate", text)
