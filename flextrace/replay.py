# SPDX-License-Identifier: Apache-2.0
"""``flextrace replay``: turns a trace and a directory into measured I/O, printed as a summary or as JSON."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from characterize.expansion import expanded
from characterize.new_file import check_new_file, write_text
from characterize.units import parse_duration
from replayer.confine import MemoryGroup, current_limit, parse_limit
from replayer.engine_options import EngineOptions
from replayer.result_text import summary
from replayer.run import (
    CACHES,
    COMPUTING_CHOICES,
    DIRECT_CHOICES,
    ENGINES,
    EXIT_INTERRUPTED,
    EXIT_NOT_TRUSTWORTHY,
    EXIT_OK,
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
from selfscale.recorded_replay import recorded_replay

HASH_CHUNK_BYTES = 1 << 20


def parse_factor(text: str) -> float:
    """A positive number; `FlextraceError` (usage) otherwise."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e9:
        raise FlextraceError(f"factor {text!r} is not understood: give a positive number, such as 2", 2)
    return value


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
    result.add_argument("--format", choices=("text", "json"), default="text", help="of stdout (default text)")
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
        "--speed", type=parse_factor, default=1.0, metavar="F", help="divide recorded times by F (default 1)"
    )
    group.add_argument(
        "--late",
        choices=LATE_POLICIES,
        default="catch-up",
        help="what --timing recorded does with operations behind their times: begin at once (default), skip requests "
        "beyond --late-limit, or slip all later times",
    )
    group.add_argument(
        "--late-limit", type=parse_duration, metavar="TIME", help="for --late skip, such as 50ms (default 10ms)"
    )
    group.add_argument("--loop", action="store_true", help="begin again at the end; needs --max-time")
    group.add_argument("--max-time", type=parse_duration, metavar="TIME", help="stop after TIME, such as 30 or 5m")


def _add_engine_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="auto: io_uring where requests of a thread were in flight at once, else sync (default); sync: calls, one "
        "at a time per thread; io_uring: requests of a thread overlap as recorded; null: keeps times and order, does "
        "nothing",
    )
    group.add_argument(
        "--depth", type=int, metavar="N", help="at most N requests in flight per thread (default: as recorded)"
    )
    group.add_argument(
        "--lead",
        type=int,
        metavar="N",
        help="asap: no thread gets more than N operations ahead of the slowest (default: as far as it can)",
    )
    group.add_argument("--direct", choices=DIRECT_CHOICES, default="recorded", help="O_DIRECT (default: as recorded)")
    group.add_argument(
        "--sync", choices=SYNC_CHOICES, default="recorded", help="O_SYNC, fsync and its kin (default: as recorded)"
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
    group.add_argument("--write", action="store_true", help="do the writes as well, which destroys what is on DEV")
    group.add_argument(
        "--confirm", metavar="ID", help="DEV's serial number, or its size in bytes if it has none; needed for --write"
    )
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
    group.add_argument("--source", metavar="MAJOR:MINOR", help="block: of this recorded device, where there are more")
    group.add_argument(
        "--lanes", type=parse_count, metavar="N", help="block: N requests in flight at most (default: as recorded)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Replay; 3 when the result is not to be trusted, 130 when it was interrupted."""
    arguments.directory = arguments.directory or arguments.image
    _check_arguments(arguments)
    _check_device_arguments(arguments)
    with expanded(arguments.trace) as trace, _on_device(arguments, trace) as (placed, notes):
        document = _recorded(arguments, placed) if arguments.record else _replay(arguments, placed)
        document |= notes | {"trace": str(arguments.trace)}
    if not notes.get("device_trace", {}).get("timed", True) and not arguments.lanes:
        document["warnings"].append(
            "the trace does not know how long requests took: replayed one at a time; --lanes N lets N be in flight"
        )
    document |= provenance(arguments.trace, arguments.memory)
    text = json.dumps(document, indent=2)
    if arguments.output:
        write_text(arguments.output, text, force=arguments.force)
    print(text if arguments.format == "json" else summary(document))
    if "fidelity" in document and arguments.output:
        print(f"next: flextrace report -o report.html --replay {arguments.output}", file=sys.stderr)
    for warning in document["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    for reason in document["reasons"]:
        print(f"not trustworthy: {reason}", file=sys.stderr)
    if document["stopped"] == "signal":
        print("flextrace replay: interrupted; the result is of what was replayed until then", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_OK if document["trustworthy"] else EXIT_NOT_TRUSTWORTHY


def _check_arguments(arguments: argparse.Namespace) -> None:
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
        if arguments.device:
            raise FlextraceError("--record compares what happens to files with the trace: leave out --device", 2)
    if arguments.speed != 1 and arguments.timing == "asap":
        raise FlextraceError("--speed divides recorded times, and --timing asap keeps none: give --timing as well", 2)
    if arguments.late_limit is not None and arguments.late != "skip":
        raise FlextraceError("--late-limit is for --late skip: give that as well", 2)
    if arguments.computing != "recorded" and arguments.timing != "think":
        raise FlextraceError("--computing is for think times: give --timing think as well", 2)
    if arguments.memory and arguments.engine == "null":
        raise FlextraceError("--memory bounds the page cache, and the null engine does no I/O: leave it out", 2)
    for path in (arguments.output, arguments.record):
        if isinstance(path, Path) and path.exists() and arguments.trace.exists() and path.samefile(arguments.trace):
            raise FlextraceError(f"{path} is the trace that is read: choose another name for the result", 2)
    if arguments.output:
        check_new_file(arguments.output, force=arguments.force)


def _check_device_arguments(arguments: argparse.Namespace) -> None:
    """Raise `FlextraceError` (usage) where the options for a device do not go together."""
    options = ("write", "confirm", "layer", "source", "lanes")
    given = [f"--{name}" for name in options if getattr(arguments, name)]
    given += ["--fit"] if arguments.fit != "exact" else []
    if given and not arguments.device:
        raise FlextraceError(f"{given[0]} is for a block device: give --device as well", 2)
    if arguments.write and not arguments.confirm:
        raise FlextraceError("--write overwrites the device: repeat its serial number, or size, by --confirm", 2)
    if arguments.confirm and not arguments.write:
        raise FlextraceError("--confirm is for --write, which overwrites the device: give that as well", 2)
    if not arguments.device:
        return
    if arguments.memory and not arguments.directory:
        raise FlextraceError("--memory bounds the page cache, which direct I/O on a device does not use", 2)
    if arguments.directory and set(given) - {"--write", "--confirm"}:
        raise FlextraceError(
            "with --directory the trace stays as it is: leave --fit, --layer, --source, --lanes out", 2
        )


@contextmanager
def _on_device(arguments: argparse.Namespace, trace: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The trace that the engine is to run, and what the result says of its making."""
    if not arguments.device or arguments.directory:
        yield trace, {}
        return
    # pandas and numba are slow to import
    from characterize.stream import open_stream  # noqa: PLC0415
    from replayer.device_trace import geometry_of, make_device_trace  # noqa: PLC0415

    geometry = geometry_of(arguments.device)
    with tempfile.TemporaryDirectory(prefix="flextrace-") as directory:
        placed = Path(directory) / "device.iotrace"
        notes = make_device_trace(
            open_stream(trace),
            placed,
            geometry,
            layer=arguments.layer,
            source=arguments.source,
            lanes=arguments.lanes,
            fit=arguments.fit,
        )
        if not arguments.order and notes["layer"] == "block":
            # Lanes are no threads: only the interval order keeps the recorded depth, and none is to where it is given.
            arguments.order = "thread" if arguments.lanes else "recorded"
        yield placed, {"device_trace": notes}


def _recorded(arguments: argparse.Namespace, trace: Path) -> dict[str, Any]:
    """Replay under the recorder; the result, with the comparison as ``fidelity``."""
    return recorded_replay(
        trace,
        arguments.directory,
        lambda recorder: _replay(arguments, trace, recorder),
        keep_as=arguments.record if isinstance(arguments.record, Path) else None,
        force=arguments.force,
    )


def _replay(arguments: argparse.Namespace, trace: Path, recorder: RecorderCommand | None = None) -> dict[str, Any]:
    options: EngineOptions = {
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
    }
    if not (arguments.memory or recorder) or arguments.engine == "null":
        return replay(trace, arguments.directory, finish_on_signal=True, **options)
    existed = arguments.directory.exists()
    # Laid out and evicted outside of the group: pages stay charged to whoever read them first. And of the recording.
    # With all options, so that those which do not go together are refused before anything is laid out.
    with MemoryGroup(arguments.memory) if arguments.memory else nullcontext() as group:
        built = replay(trace, arguments.directory, **(options | {"phase": "prepare"}))
        document = replay(
            trace,
            arguments.directory,
            memory_group=group,
            recorder=recorder(group) if recorder else (),
            finish_on_signal=True,
            **(options | {"phase": "run"}),
        )
    if not existed and not arguments.image:
        with suppress(OSError):  # somebody put something into it
            arguments.directory.rmdir()
    document["image"]["built_bytes"] = built["image"]["built_bytes"]
    return document


def provenance(trace: Path, memory: int | None) -> dict[str, Any]:
    """What a result needs to be understood later: the command, the input's hash, the machine."""
    digest = hashlib.sha256()
    with trace.open("rb") as stream:
        while chunk := stream.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
    return {
        "command": shlex.join(["flextrace", *sys.argv[1:]]),
        "trace_sha256": digest.hexdigest(),
        "environment": {
            "kernel": platform.release(),
            "cpus": os.cpu_count(),
            "memory_limit_bytes": memory or current_limit(),
        },
    }
