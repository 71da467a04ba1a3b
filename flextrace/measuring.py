# SPDX-License-Identifier: Apache-2.0
"""Turns a directory, or a block device, into measured points, with progress: what ``scale`` and ``validate`` share."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import math
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError
from characterize.units import format_bytes
from replayer.run import SAME_S

if TYPE_CHECKING:
    from replayer.confine import MemoryGroup
    from selfscale.access import Access
    from selfscale.journal import Journal
    from selfscale.measure import Point
    from selfscale.plan import Settings, Step

IMAGE = "flextrace-scale-image"
DISK_MARGIN = 1.05
SPAN_BYTES, SPAN_BYTES_PER_BUDGET_S = 1 << 30, 2 << 20
"""Largest uniqueBytes of direct I/O on files unless it is named: more only takes longer to lay out."""
SPAN_BYTES_MIN = 16 << 20
DEVICE_MARGIN_BYTES = 1 << 16
"""Files that are laid end to end begin at multiples of 4 KiB: at most 16 of them."""


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """A service manager's SIGTERM and a closed terminal's SIGHUP save the partial profile as Ctrl-C does.

    What comes right behind another one is the same: it would interrupt what that one has saved and cleaned up.
    """
    last_s = -math.inf

    def interrupt(number: int, frame: Any) -> None:
        nonlocal last_s
        if time.monotonic() - last_s > SAME_S:
            last_s = time.monotonic()
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in (signal.SIGINT, signal.SIGHUP):
        if before[number] == signal.SIG_IGN:  # by a shell that runs it in the background, by nohup
            del before[number]
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def told_how_to_go_on(again: str, say: Callable[[str], None]) -> Iterator[None]:
    """For a resumed run that is interrupted before it measures."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"the run so far is kept; continue with: flextrace {again}")
        raise


def check_device_options(device: str | None, write: bool, confirm: str | None) -> None:
    """Refuse, as 'flextrace replay --device' does, to write a device that was not named twice.

    Raises
    ------
    FlextraceError
    """
    if (write or confirm) and not device:
        raise FlextraceError("--write and --confirm are for a block device: give --device as well", 2)
    if write and not confirm:
        raise FlextraceError("--write overwrites the device: repeat its serial number, or size, by --confirm", 2)
    if confirm and not write:
        raise FlextraceError("--confirm is for --write, which overwrites the device: give that as well", 2)


def try_device(access: Access, confirm: str | None) -> None:
    """Have the engine read the first page of a device: one that may not be used is refused before anything else.

    Raises
    ------
    FlextraceError
        What the guard of the replay engine says (docs/decisions/0011-block-replay.md).
    """
    from characterize.workload import Workload  # noqa: PLC0415
    from selfscale.measure import measure  # noqa: PLC0415

    first_page = Workload(4096.0, 0.0, 1.0, 4096.0, 1.0)
    measure(first_page, None, access=access, confirm=confirm, min_seconds=0.05, max_seconds=0.1)


def span_bytes(access: Access, directory: Path | None, settings: Settings, wanted_bytes: float | None) -> float:
    """Largest uniqueBytes where the page cache takes no part.

    Raises
    ------
    FlextraceError
        There is too little of it, or less than is wanted.
    """
    from dataclasses import replace  # noqa: PLC0415

    from replayer.device_trace import geometry_of  # noqa: PLC0415
    from selfscale.plan import align_down  # noqa: PLC0415

    if directory is None:
        room = float(geometry_of(Path(str(access.device))).size_bytes - DEVICE_MARGIN_BYTES)
        span, where = room if wanted_bytes is None else wanted_bytes, str(access.device)
    else:
        whole = replace(settings, span_bytes=float(SPAN_BYTES))
        room = SPAN_BYTES * (free_bytes(directory) / DISK_MARGIN / whole.image_bytes)
        usual = min(SPAN_BYTES, SPAN_BYTES_PER_BUDGET_S * settings.budget_s, room)
        span, where = max(SPAN_BYTES_MIN, usual) if wanted_bytes is None else wanted_bytes, str(directory)
    if span > room or span < SPAN_BYTES_MIN:
        raise FlextraceError(
            f"cannot touch {format_bytes(span)} of {where}: there is room for {format_bytes(max(0, room))}, and less "
            f"than {format_bytes(SPAN_BYTES_MIN)} tells nothing; give another --span, or another place",
            2 if wanted_bytes is not None and wanted_bytes < SPAN_BYTES_MIN else 1,
        )
    return align_down(span)


def fill_device(access: Access, confirm: str | None, settings: Settings, say: Callable[[str], None]) -> None:
    """Write every place of a device that a workload can touch, see `selfscale.fill`."""
    from selfscale.fill import fill  # noqa: PLC0415
    from selfscale.plan import align_down  # noqa: PLC0415

    fill(align_down(settings.high_bytes + DEVICE_MARGIN_BYTES), access, confirm, say)


@contextlib.contextmanager
def image_directory(directory: Path | None, *, keep: bool) -> Iterator[Path | None]:
    """The directory of the files that are measured, removed afterwards unless it shall be kept; None of a device."""
    if directory is None:
        yield None
        return
    image = directory / IMAGE
    with _alone_in(directory):
        try:
            image.mkdir(exist_ok=True)
        except OSError as error:
            raise FlextraceError(
                f"cannot make directory {image}: {error.strerror}; give another --directory", 2
            ) from error
        try:
            yield image
        finally:
            if not keep:
                shutil.rmtree(image, ignore_errors=True)


def check_kept(output: Path, directory: Path | None) -> None:
    """Refuse an output among the files that are measured, which are removed at the end.

    Raises
    ------
    FlextraceError
    """
    if directory and (directory / IMAGE).resolve() in output.resolve().parents:
        raise FlextraceError(f"cannot write {output}: its directory is removed at the end; choose another", 2)


def check_run_options(arguments: argparse.Namespace, device: str | None) -> None:
    """Refuse options of a run that contradict each other, or mean nothing for a block device.

    Raises
    ------
    FlextraceError
    """
    if arguments.resume and arguments.force:
        raise FlextraceError("--resume continues the interrupted run that --force forgets: give one of both", 2)
    if arguments.keep_image and device:
        raise FlextraceError(f"--keep-image is for files in a directory, of which {device} has none: leave it out", 2)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Keep others out of a directory: the first one to end would remove the files that the other one measures.

    Raises
    ------
    FlextraceError
        Somebody measures, or replays, in it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FlextraceError(
                f"{directory} is used by another run of flextrace: wait for it, or give another directory"
            ) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def check_space(directory: Path, memory_bytes: int | None, settings: Settings) -> None:
    """Refuse a directory that has no room for the files.

    Raises
    ------
    FlextraceError
    """
    from selfscale import storage  # noqa: PLC0415

    # Storage behind a cache is probed, else there are no files but those that are laid out.
    probed_bytes = storage.image_bytes(settings.cache_bytes) if settings.span_bytes is None else 0
    needed = settings.image_bytes * DISK_MARGIN + probed_bytes
    free = free_bytes(directory)
    if needed > free:
        purpose, remedy = "", "take another directory"
        if settings.span_bytes is None:
            purpose = f" to exceed a cache of {format_bytes(settings.cache_bytes)}"
            remedy = ("give a smaller --memory" if memory_bytes else "as root, give --memory SIZE") + f", or {remedy}"
        raise FlextraceError(
            f"cannot measure in {directory}: files of {format_bytes(needed)} are needed{purpose}, {format_bytes(free)} "
            f"are free; {remedy}"
        )


def free_bytes(directory: Path) -> float:
    """Room in a directory, with what the files of an image that was kept have taken."""
    present = sum(file.stat().st_blocks * 512 for file in (directory / IMAGE).glob("f*"))
    return shutil.disk_usage(directory).free + present


def lay_out(settings: Settings, image: Path | None, say: Callable[[str], None]) -> float:
    """Write the files of every workload that can come, unless it is a device; seconds that it took."""
    import characterize  # noqa: PLC0415
    from characterize.workload import Workload  # noqa: PLC0415
    from replayer.run import prepare  # noqa: PLC0415
    from replayer.willy import make_trace  # noqa: PLC0415
    from selfscale.measure import trace_directory  # noqa: PLC0415

    if image is None:
        return 0.0
    say(f"laying out {format_bytes(settings.image_bytes)} in {image}")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flextrace-scale-", dir=trace_directory()) as scratch:
        for count, unique_bytes in settings.layout:
            trace = Path(scratch) / f"layout-{count}.iotrace"
            workload = Workload(unique_bytes, 0.0, 1.0, 4096.0, float(count))
            characterize.write(make_trace(workload, requests=1000 * count, allow_partial=True), trace)
            prepare(trace, image)
    return time.monotonic() - begin


def age_cache(
    settings: Settings,
    image: Path | None,
    group: MemoryGroup | None,
    access: Access,
    say: Callable[[str], None],
    *,
    budget_s: float = math.inf,
) -> float:
    """Bring the page cache, where it takes part, into the state of one in use (`selfscale.ageing`); seconds it took."""
    from selfscale.ageing import AGEING_S, SHARE_MAX, age  # noqa: PLC0415

    if image is None or not access.cached:
        return 0.0
    return age(settings, image, group, min(AGEING_S, SHARE_MAX * budget_s), say)


def measure_in(
    image: Path | None,
    group: MemoryGroup | None,
    access: Access,
    confirm: str | None = None,
    known: Sequence[Point] = (),
    **stopping: Any,
) -> Callable[[Step], Point]:
    """What measures a step of an exploration in an image directory, or on a device; again, where it was disturbed.

    What is usual is told by the points that are known already, of a run that is resumed; when a run stops, by ``rule``
    and ``target`` (`selfscale.measure.measure`).
    """
    from selfscale import storage  # noqa: PLC0415
    from selfscale.disturbed import undisturbed  # noqa: PLC0415
    from selfscale.measure import measure  # noqa: PLC0415

    device = image.stat().st_dev if image else 0

    def once(request: Step) -> Point:
        if image:
            _check_there(image, device)
        point = measure(
            request.workload,
            image,
            access=access,
            confirm=confirm,
            memory_group=group,
            seed=request.seed,
            max_seconds=request.max_seconds,
            min_seconds=min(1.0, request.max_seconds / 2),
            **stopping,
            **(storage.options_of(request.parameter) if request.role == storage.ROLE else {}),
        )
        if image:
            _check_there(image, device)
        return point

    of_two = undisturbed(once, [point for point in known if point.role != storage.ROLE])

    def step(request: Step) -> Point:
        # Probes of storage have times of their own, and come in rounds.
        point = once(request) if request.role == storage.ROLE else of_two(request)
        return replace(point, cost_s=point.cost_s + request.choosing_s)

    return step


def _check_there(image: Path, device: int) -> None:
    """Refuse to go on where a file system vanished: its mount point is a directory, too, of another one.

    Raises
    ------
    FlextraceError
    """
    try:
        there = image.stat().st_dev == device
    except OSError:
        there = False
    if not there:
        raise FlextraceError(
            f"cannot measure in {image}: it is not there any more; mount its file system again, and leave the "
            "directory alone while it is measured"
        )


def kept(failures: Sequence[Exception], journal: Journal, again: str) -> FlextraceError:
    """The failures of a run as one, with where is what it measured before and how to go on; else nothing is left."""
    code = failures[0].exit_code if isinstance(failures[0], FlextraceError) else 1
    told = "\n".join(map(reason_of, failures))
    if not journal.measured:
        with contextlib.suppress(OSError):
            journal.remove()
        return FlextraceError(told, code)
    place, move = journal.path, ""
    if not journal.is_there():
        try:
            place, move = journal.copy_elsewhere(), f"move it to {journal.path} and "
        except OSError as error:
            return FlextraceError(f"{told}\nwhat was measured before is lost with {journal.path} ({error})", code)
    return FlextraceError(
        f"{told}\nwhat was measured before is kept in {place}; {move}continue with: flextrace {again}", code
    )


def reason_of(end: BaseException) -> str:
    """What ended a run early, in words."""
    if isinstance(end, KeyboardInterrupt):
        return "interrupted"
    return f"cannot read or write: {end}" if isinstance(end, OSError) else str(end)
