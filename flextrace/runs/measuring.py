# SPDX-License-Identifier: Apache-2.0
"""Turns a directory, or a block device, into measured points, with progress: what ``scale`` and ``validate`` share."""

from __future__ import annotations

import argparse
import contextlib
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.errors import FlextraceError
from characterize.units import format_bytes, format_duration
from flextrace.runs.alone import alone_in

if TYPE_CHECKING:
    from replayer.running.confine import MemoryGroup
    from selfscale.exploring.plan import Settings, Step
    from selfscale.measure import Point
    from selfscale.measuring.access import Access

IMAGE = "flextrace-scale-image"
DISK_MARGIN = 1.05
FIRST_PART_BYTES, TOO_LONG_SHARE, TOLD_EVERY_S = 64 << 20, 0.1, 10.0
"""Of the first file, whose next parts are always as large as what is there, so that it is known soon how long all files
will take; of the budget, from which on that is believed; and between two lines that tell it, before which nothing is
refused: where little is laid out, what takes long is to start the engine."""
FILE_REQUESTS = 1000
"""For each file that is laid out, in a trace that is not run."""
SPAN_BYTES, SPAN_BYTES_PER_BUDGET_S = 1 << 30, 2 << 20
"""Largest uniqueBytes of direct I/O on files unless it is named: more only takes longer to lay out."""
SPAN_BYTES_MIN = 16 << 20
DEVICE_MARGIN_BYTES = 1 << 16
"""Files that are laid end to end begin at multiples of 4 KiB: at most 16 of them."""


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
    from replayer.devices.device_trace import geometry_of  # noqa: PLC0415
    from selfscale.measuring.measurable_sizes import align_down  # noqa: PLC0415

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
    """Write every place of a device that a workload can touch, see `selfscale.measuring.fill`."""
    from selfscale.measuring.fill import fill  # noqa: PLC0415
    from selfscale.measuring.measurable_sizes import align_down  # noqa: PLC0415

    fill(align_down(settings.high_bytes + DEVICE_MARGIN_BYTES), access, confirm, say)


@contextlib.contextmanager
def image_directory(directory: Path | None, *, keep: bool) -> Iterator[Path | None]:
    """The directory of the files that are measured, removed afterwards unless it shall be kept; None of a device."""
    if directory is None:
        yield None
        return
    image = directory / IMAGE
    with alone_in(directory):
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


def check_kept(output: Path, directory: Path) -> None:
    """Refuse an output among the files that are measured, which are removed at the end.

    Raises
    ------
    FlextraceError
    """
    if (directory / IMAGE).resolve() in output.resolve().parents:
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


def check_space(directory: Path, memory_bytes: int | None, settings: Settings) -> None:
    """Refuse a directory that has no room for the files.

    Raises
    ------
    FlextraceError
    """
    from selfscale.measuring import storage  # noqa: PLC0415

    # Probes of storage have files of their own, beside those that are laid out.
    probed_bytes = storage.image_bytes(settings.cache_bytes) if settings.storage_s else 0
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


def lay_out(settings: Settings, image: Path | None, say: Callable[[str], None], *, budget_s: float = math.inf) -> float:
    """Write the files of every workload that can come, unless it is a device; seconds that it took.

    Raises
    ------
    FlextraceError
        It takes more than the budget, which is seen when the first tenth of that, and ten seconds, are gone.
    """
    import characterize  # noqa: PLC0415
    from characterize.workload import Workload  # noqa: PLC0415
    from replayer.run import prepare  # noqa: PLC0415
    from replayer.willy import make_trace  # noqa: PLC0415
    from selfscale.exploring.plan import files_bytes  # noqa: PLC0415
    from selfscale.measuring.measurable_sizes import align  # noqa: PLC0415
    from selfscale.measuring.scratch import scratch_directory, willy_bytes  # noqa: PLC0415

    if image is None:
        return 0.0
    say(f"laying out {format_bytes(settings.image_bytes)} in {image}")
    begin = told = time.monotonic()
    high_bytes = settings.high_bytes
    halvings = range(math.ceil(math.log2(max(1.0, high_bytes / FIRST_PART_BYTES))), 0, -1)
    parts = [*((1, align(high_bytes / 2**count)) for count in halvings), *settings.layout]
    place = scratch_directory(willy_bytes(FILE_REQUESTS * settings.process_num_max), "the trace of all files")
    with tempfile.TemporaryDirectory(prefix="flextrace-scale-", dir=place) as scratch:
        for number, (count, unique_bytes) in enumerate(parts, 1):
            trace = Path(scratch) / f"layout-{number}.iotrace"
            workload = Workload(unique_bytes, 0.0, 1.0, 4096.0, float(count))
            characterize.write(make_trace(workload, requests=FILE_REQUESTS * count, allow_partial=True), trace)
            prepare(trace, image)
            now, done_bytes = time.monotonic(), files_bytes(parts[:number])
            whole_s = (now - begin) * settings.image_bytes / done_bytes
            if now - begin > max(TOLD_EVERY_S, TOO_LONG_SHARE * budget_s) and whole_s > budget_s:
                raise FlextraceError(
                    f"cannot measure in {image.parent}: laying out {format_bytes(settings.image_bytes)} takes about "
                    f"{format_duration(whole_s)}, and the budget is {format_duration(budget_s)}: give a larger "
                    "--budget, a smaller --memory (or --span), whose files are smaller, or another directory"
                )
            if now - told > TOLD_EVERY_S:
                told = now
                say(f"{format_bytes(done_bytes)} laid out; ETA {format_duration(whole_s - (now - begin))}")
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
    """Bring the page cache, where it takes part, into the state of one in use (`ageing`); seconds it took."""
    from selfscale.measuring.ageing import AGEING_S, SHARE_MAX, age  # noqa: PLC0415

    if image is None or not access.cached:
        return 0.0
    seconds = min(AGEING_S, SHARE_MAX * budget_s)
    return age(image, group, seconds, say, cache_bytes=settings.cache_bytes, cpus=settings.cpus)


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
    from selfscale.exploring.disturbed import undisturbed  # noqa: PLC0415
    from selfscale.measure import measure  # noqa: PLC0415
    from selfscale.measuring import storage  # noqa: PLC0415

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
