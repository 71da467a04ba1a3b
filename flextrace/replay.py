# SPDX-License-Identifier: Apache-2.0
"""``flextrace replay``: turns a trace and a directory into measured I/O, printed as a summary or as JSON."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from characterize.layout import RecordKind
from characterize.trace_files.expansion import expanded
from characterize.units import parse_duration, parse_positive
from flextrace.options.output_format import add_format_argument
from flextrace.options.replay_checks import check_arguments
from flextrace.options.write_options import add_write_arguments
from flextrace.output.replay_progress import INTERVAL_MS, ReplayProgress
from flextrace.output.replay_result import provenance, tell
from replayer.run import (
    CACHES,
    COMPUTING_CHOICES,
    DIRECT_CHOICES,
    ENGINES,
    FITS,
    LATE_POLICIES,
    LAYERS,
    LAYOUTS,
    ORDERS,
    SYNC_CHOICES,
    THREADS_MAX,
    TIMINGS,
    RecorderCommand,
    replay,
)
from replayer.running.confine import parse_limit
from replayer.running.engine_options import EngineOptions
from replayer.running.files import replay_in_files
from selfscale.comparing.recorded_replay import recorded_replay


def parse_count(text: str) -> int:
    """A whole number from 1 on; `FlextraceError` (usage) otherwise."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= THREADS_MAX:
        raise FlextraceError(f"number {text!r} is not understood: give a whole one from 1 to {THREADS_MAX}", 2)
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("trace", metavar="FILE", type=Path, help="a trace: recorded, altered, synthetic or imported")
    _add_schedule_arguments(parser.add_argument_group("what the replay repeats"))
    _add_engine_arguments(parser.add_argument_group("how it does it"))
    _add_start_arguments(parser.add_argument_group("where it begins"))
    _add_device_arguments(parser.add_argument_group("onto a block device"))
    recording = parser.add_argument_group("recording the replay")
    recording.add_argument(
        "--record",
        nargs="?",
        type=Path,
        const=True,
        metavar="REPLAY.iotrace",
        help="record the replay, compare it with the trace and check the order of its operations; with a name, keep "
        "the recording (needs what 'flextrace record' needs)",
    )
    result = parser.add_argument_group("result")
    add_format_argument(result)
    result.add_argument(
        "-o", "--output", type=Path, metavar="RESULT.json", help="write the result document there as well"
    )
    result.add_argument("--force", action="store_true", help="overwrite RESULT.json and REPLAY.iotrace")


def _add_schedule_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--timing",
        choices=TIMINGS,
        default="asap",
        help="asap: no waiting (default); think: each thread waits its recorded think time after a completion; "
        "recorded: every operation at its recorded time",
    )
    group.add_argument(
        "--order",
        choices=ORDERS,
        help="what an operation waits for in other threads; resource: for what had ended before it started and has to "
        "do with the same files or names, or that its thread was woken after (default for recordings); recorded: for "
        "all that had ended before (default for foreign traces and block requests); thread: for nothing (default for "
        "synthetic traces)",
    )
    group.add_argument(
        "--computing",
        choices=COMPUTING_CHOICES,
        default="recorded",
        help="think: in its think times a thread has a processor for as long as when recorded, and computes, and so do "
        "others in place of programs that ran beside and were not recorded (recorded, default), or no others do "
        "(alone), or it only sleeps (off)",
    )
    group.add_argument(
        "--speed", type=parse_positive, default=1.0, metavar="F", help="divide recorded times by F (default: 1)"
    )
    group.add_argument(
        "--late",
        choices=LATE_POLICIES,
        default="catch-up",
        help="what --timing recorded does with operations behind their times: begin at once (default), skip requests "
        "beyond --late-limit, or slip all later times",
    )
    group.add_argument(
        "--late-limit", type=parse_duration, metavar="TIME", help="for --late skip, such as 50ms (default: 10ms)"
    )
    group.add_argument("--loop", action="store_true", help="begin again at the end; needs --max-time")
    group.add_argument("--max-time", type=parse_duration, metavar="TIME", help="stop after TIME, such as 30 or 5m")


def _add_engine_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="auto: io_uring for what AIO or io_uring made, where requests of a thread of another tool's trace "
        "overlap, and with --depth above 1, else sync (default); sync: calls, one at a time per thread; io_uring: for "
        "all, requests of a thread overlap as recorded; null: keeps times and order, does nothing",
    )
    group.add_argument(
        "--depth",
        type=int,
        metavar="N",
        help="at most N requests in flight per thread (default: as recorded, or 1 for synthetic traces)",
    )
    group.add_argument(
        "--lead",
        type=int,
        metavar="N",
        help="asap: no thread gets more than N operations ahead of the slowest (default: as far as it can)",
    )
    group.add_argument("--direct", choices=DIRECT_CHOICES, default="recorded", help="O_DIRECT (default: as recorded)")
    group.add_argument(
        "--sync",
        choices=SYNC_CHOICES,
        default="recorded",
        help="O_SYNC, O_DSYNC and the fsync family: as recorded (default), off, or every write with O_DSYNC or O_SYNC",
    )


def _add_start_arguments(group: argparse._ArgumentGroup) -> None:
    place = group.add_mutually_exclusive_group()
    place.add_argument(
        "--directory", type=Path, metavar="DIR", help="for the files of the replay, which are removed at the end"
    )
    place.add_argument(
        "--image", type=Path, metavar="DIR", help="the same, but the files stay, and the next replay there uses them"
    )
    group.add_argument(
        "--cache",
        choices=CACHES,
        default="recorded",
        help="page cache of the files at the start: recorded (default), warm (everything), cold (nothing), "
        "keep (as it is)",
    )
    group.add_argument(
        "--memory", type=parse_limit, metavar="SIZE", help="run in a memory control group, which bounds the page cache"
    )
    group.add_argument(
        "--data",
        default="random",
        metavar="KIND",
        help="of files and writes: random (default), or compressible[:PERCENT], to that share of its size (50)",
    )
    group.add_argument(
        "--layout",
        choices=LAYOUTS,
        default="any",
        help="blocks of the files: any (default), or recorded: in the order of their places on the device where the "
        "trace knows them (ext4, btrfs, xfs)",
    )
    group.add_argument("--force-space", action="store_true", help="begin although the space seems too little")


def _add_device_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--device",
        type=Path,
        metavar="DEV",
        help="do the trace's I/O on block devices there, or, where it has none, its block requests; only reads, "
        "unless --write is given; with --directory, files go there and only the trace's own block device onto DEV",
    )
    add_write_arguments(group, "do the writes as well, which destroys what is on DEV")
    group.add_argument(
        "--fit",
        choices=FITS,
        default="exact",
        help="addresses: as recorded (exact, default; a DEV that is too small is refused), modulo the size of DEV "
        "(wrap), in proportion to it (scale)",
    )
    group.add_argument(
        "--layer", choices=LAYERS, help="vfs: what programs did on block devices; block: what reached a device"
    )
    group.add_argument(
        "--source",
        metavar="DEVICE",
        help="block: of this recorded MAJOR:MINOR (default: the only one), or all, end to end",
    )
    group.add_argument(
        "--lanes", type=parse_count, metavar="N", help="block: N requests in flight at most (default: as recorded)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Replay; 3 when the result is not to be trusted, 130 when it was interrupted."""
    arguments.directory = arguments.directory or arguments.image
    check_arguments(arguments)
    # What is undone at the end is undone when the result has been told.
    with ExitStack() as cleanup:
        progress = cleanup.enter_context(ReplayProgress(arguments.max_time, loop=arguments.loop))
        progress.step("reading the trace")
        origin = provenance(arguments.trace, arguments.memory)
        trace = cleanup.enter_context(expanded(arguments.trace))
        placed, notes = cleanup.enter_context(_on_device(arguments, trace))
        document = _replay(arguments, trace, placed, cleanup, progress)
        progress.close()
        document |= notes | {"trace": str(arguments.trace)} | origin
        document["warnings"] += _device_warnings(notes.get("device_trace", {}), arguments.lanes)
        return tell(arguments, document)


def _device_warnings(made: dict[str, Any], lanes: int | None) -> list[str]:
    """What to know of the trace that was made for a device."""
    warnings = []
    if not made.get("timed", True) and not lanes:
        warnings.append(
            "the trace does not know how long requests took: replayed one at a time; --lanes N lets N be in flight"
        )
    if above := " or ".join(made.get("stacked", [])):
        warnings.append(
            f"these were the requests of {made['source']}; the trace also has those of devices on top of "
            f"others (dm, md, loop): where its programs used such a one, give --source {above}"
        )
    return warnings


@contextmanager
def _on_device(arguments: argparse.Namespace, trace: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The trace that the engine is to run, and what the result says of its making."""
    if not arguments.device or arguments.directory:
        yield trace, {}
        return
    # pandas and numba are slow to import
    from characterize.stream import open_stream  # noqa: PLC0415
    from replayer.devices.device_trace import geometry_of, make_device_trace  # noqa: PLC0415
    from selfscale.measuring.scratch import device_trace_bytes, scratch_directory  # noqa: PLC0415

    geometry = geometry_of(arguments.device)
    stream = open_stream(trace)
    place = scratch_directory(device_trace_bytes(stream), "the trace as it runs on the device")
    with tempfile.TemporaryDirectory(prefix="flextrace-", dir=place) as directory:
        placed = Path(directory) / "device.iotrace"
        notes = make_device_trace(
            stream,
            placed,
            geometry,
            layer=arguments.layer,
            source=arguments.source,
            lanes=arguments.lanes,
            fit=arguments.fit,
        )
        if arguments.record and notes["layer"] != "block":
            has_blocks = stream.facts.header.count.get(RecordKind.BLOCK)
            way = "give --layer block as well" if has_blocks else "the trace has none; record it in a --directory"
            raise FlextraceError(f"--record onto a device compares block requests: {way}", 2)
        if not arguments.order and notes["layer"] == "block":
            # Lanes are no threads: only the interval order keeps the recorded depth, and none is to where it is given.
            arguments.order = "thread" if arguments.lanes else "recorded"
        yield placed, {"device_trace": notes}


def _replay(
    arguments: argparse.Namespace, trace: Path, placed: Path, cleanup: ExitStack, progress: ReplayProgress
) -> dict[str, Any]:
    """The result of what was placed, made of the trace; recorded, it has the comparison as ``fidelity``."""
    options = _engine_options(arguments)
    in_files = arguments.directory and arguments.engine != "null"
    progress.step("laying out the files" if arguments.directory else "starting")

    def run(recorder: RecorderCommand | None = None) -> dict[str, Any]:
        told = progress.on_interval
        if in_files:
            memory = arguments.memory
            return replay_in_files(
                placed, arguments.directory, options, cleanup, memory_bytes=memory, recorder=recorder, on_interval=told
            )
        command = recorder(None) if recorder else ()
        return replay(placed, arguments.directory, recorder=command, finish_on_signal=True, on_interval=told, **options)

    if not arguments.record:
        return run()
    return recorded_replay(
        placed,
        arguments.directory or arguments.device,
        run,
        cleanup,
        original=None if arguments.directory else trace,
        keep_as=arguments.record if isinstance(arguments.record, Path) else None,
        force=arguments.force,
        on_compare=lambda: progress.step("comparing the replay with the trace"),
    )


def _engine_options(arguments: argparse.Namespace) -> EngineOptions:
    return {
        "timing": arguments.timing,
        "order": arguments.order,
        "cache": arguments.cache,
        "keep_image": bool(arguments.image),
        "data": arguments.data,
        "layout": arguments.layout,
        "loop": arguments.loop,
        "max_seconds": arguments.max_time,
        "computing": arguments.computing,
        "speed": arguments.speed,
        "late": arguments.late,
        "late_limit_ms": arguments.late_limit and arguments.late_limit * 1e3,
        "engine": arguments.engine,
        "depth": arguments.depth,
        "lead": arguments.lead,
        "direct": arguments.direct,
        "sync": arguments.sync,
        "force_space": arguments.force_space,
        "device": arguments.device,
        "confirm": arguments.confirm,
        "interval_ms": INTERVAL_MS,
    }
