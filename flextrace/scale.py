# SPDX-License-Identifier: Apache-2.0
"""Turns a directory on a machine into that machine's profile: ``flextrace scale``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError
from characterize.units import format_bytes, format_duration, parse_duration, parse_size
from replayer.run import make_directory

if TYPE_CHECKING:
    from replayer.confine import MemoryGroup
    from selfscale.explore import Exploration
    from selfscale.measure import Point
    from selfscale.plan import Settings, Step

IMAGE = "flextrace-scale-image"
DISK_MARGIN = 1.05


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
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run with the same settings")
    parser.add_argument("--force", action="store_true", help="overwrite the profile, and forget an interrupted run")
    parser.add_argument("--keep-image", action="store_true", help=f"leave the files of DIR/{IMAGE}, for another run")


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
    _check_space(arguments, settings)
    code = 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(_terminated_as_interrupted())
        group = None
        if arguments.memory:
            from replayer.confine import MemoryGroup  # noqa: PLC0415

            group = stack.enter_context(MemoryGroup(arguments.memory))
        image = stack.enter_context(_image_directory(arguments))
        if not arguments.resume:
            machine["spent_s"] = _lay_out(settings, image)
        journal = Journal(_journal_path(arguments), chosen, machine, resume=arguments.resume)
        if arguments.resume:
            _say(f"resuming behind {len(journal.points)} points")
            _lay_out(settings, image)
        settings = Settings(
            seed=arguments.seed, random_points=arguments.random, budget_s=arguments.budget, **journal.machine
        )
        progress = stack.enter_context(_Progress(arguments.budget, len(journal.points)))
        exploration = Exploration(settings, progress.wrap(journal.wrap(_measure(image, group))))
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


def _check_space(arguments: argparse.Namespace, settings: Settings) -> None:
    needed = settings.image_bytes * DISK_MARGIN
    present = sum(file.stat().st_blocks * 512 for file in (arguments.directory / IMAGE).glob("f*"))
    free = shutil.disk_usage(arguments.directory).free + present
    if needed > free:
        remedy = "give a smaller --memory" if arguments.memory else "as root, give --memory SIZE"
        raise FlextraceError(
            f"cannot measure in {arguments.directory}: files of {format_bytes(needed)} are needed to exceed a cache of "
            f"{format_bytes(settings.cache_bytes)}, {format_bytes(free)} are free; {remedy}, or take another directory"
        )


def _journal_path(arguments: argparse.Namespace) -> Path:
    return arguments.output.with_name(arguments.output.name + ".points.ndjson")


def _same_options(arguments: argparse.Namespace) -> str:
    words = ["--directory", str(arguments.directory), "-o", str(arguments.output), "--budget", f"{arguments.budget:g}"]
    words += ["--memory", str(arguments.memory)] if arguments.memory else []
    words += ["--random", str(arguments.random)] if arguments.random else []
    words += ["--seed", str(arguments.seed)] if arguments.seed else []
    return shlex.join(words)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """A service manager's SIGTERM saves the partial profile as Ctrl-C does."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _image_directory(arguments: argparse.Namespace) -> Iterator[Path]:
    image = arguments.directory / IMAGE
    image.mkdir(exist_ok=True)
    try:
        yield image
    finally:
        if not arguments.keep_image:
            shutil.rmtree(image, ignore_errors=True)


def _lay_out(settings: Settings, image: Path) -> float:
    """Write the files of every workload that can come; seconds that it took."""
    import time  # noqa: PLC0415

    import characterize  # noqa: PLC0415
    from characterize.workload import Workload  # noqa: PLC0415
    from replayer.run import prepare  # noqa: PLC0415
    from replayer.willy import make_trace  # noqa: PLC0415
    from selfscale.measure import trace_directory  # noqa: PLC0415

    _say(f"laying out {format_bytes(settings.image_bytes)} in {image}")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flextrace-scale-", dir=trace_directory()) as scratch:
        for count, unique_bytes in settings.layout:
            trace = Path(scratch) / f"layout-{count}.iotrace"
            workload = Workload(unique_bytes, 0.0, 1.0, 4096.0, float(count))
            characterize.write(make_trace(workload, requests=1000 * count, allow_partial=True), trace)
            prepare(trace, image)
    return time.monotonic() - begin


def _measure(image: Path, group: MemoryGroup | None) -> Any:
    from selfscale.measure import measure  # noqa: PLC0415

    def step(request: Step) -> Point:
        return measure(
            request.workload,
            image,
            memory_group=group,
            seed=request.seed,
            max_seconds=request.max_seconds,
            min_seconds=min(1.0, request.max_seconds / 2),
        )

    return step


def _finish(
    arguments: argparse.Namespace, exploration: Exploration, environment: dict[str, Any], chosen: dict[str, Any]
) -> None:
    """Write the profile and say what it found."""
    from selfscale.findings import findings  # noqa: PLC0415

    profile = exploration.profile()
    profile.environment = environment
    profile.settings = {**chosen, "spent_s": exploration.spent_s}
    profile.tool_version = version("flextrace")
    profile.command = ["flextrace", *sys.argv[1:]]
    profile.created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    profile.save(arguments.output)
    for line in findings(profile):
        print(line, file=sys.stderr)
    _say(f"{len(profile.measured)} points in {format_duration(exploration.spent_s)} are in {arguments.output}")
    if exploration.complete:
        _say(f"next: flextrace predict {shlex.quote(str(arguments.output))} --trace TRACE.iotrace")


class _Progress:
    """A bar with ETA on a terminal, one line a point otherwise."""

    def __init__(self, budget_s: float, known: int):
        self._budget_s = budget_s
        self._known = known
        self._spent_s = 0.0
        self._bar: Any = None

    def __enter__(self) -> _Progress:
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[eta]}"),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None, eta="")
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the bar, so that what is said next stands below it."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def wrap(self, step: Any) -> Any:
        """The same function, telling of every point."""
        from selfscale.measure import describe  # noqa: PLC0415

        def told(request: Step) -> Point:
            if self._bar is not None:
                self._bar.update(self._task, description=describe(request.workload), total=request.planned)
            point: Point = step(request)
            self._spent_s += point.cost_s
            left = (request.planned - request.number) * self._spent_s / request.number
            left = min(left, self._budget_s - self._spent_s)
            eta = f"ETA {format_duration(left)}" if left > 0.5 else "done"
            if self._bar is not None:
                self._bar.update(self._task, completed=request.number, eta=eta)
            elif request.number > self._known:
                _say(f"{request.number}/{request.planned} {describe(request.workload)}: {_outcome(point)}; {eta}")
            return point

        return told


def _outcome(point: Point) -> str:
    text = f"{point.throughput_bytes_per_s / 1e6:.4g} MB/s"
    if point.throughput_bytes_per_s > 0 and point.ci95_half_width_bytes_per_s < float("inf"):
        text += f" +- {point.ci95_half_width_bytes_per_s / point.throughput_bytes_per_s:.1%}"
    return text if point.steady else f"{text} (not steady: {point.reason})"


def _say(text: str) -> None:
    print(f"flextrace scale: {text}", file=sys.stderr)
