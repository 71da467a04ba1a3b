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
from contextlib import suppress
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from characterize.expansion import expanded
from characterize.units import format_bytes, format_duration, parse_duration, parse_size
from replayer.confine import MemoryGroup, current_limit
from replayer.run import (
    CACHES,
    DIRECT_CHOICES,
    ENGINES,
    EXIT_NOT_TRUSTWORTHY,
    EXIT_OK,
    LATE_POLICIES,
    ORDERS,
    SYNC_CHOICES,
    TIMINGS,
    replay,
)

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("trace", metavar="FILE", type=Path, help="a trace: recorded, altered, synthetic or imported")
    repeats = parser.add_argument_group("what the replay repeats")
    repeats.add_argument(
        "--timing",
        choices=TIMINGS,
        default="asap",
        help="asap: no waiting (default); think: each thread waits its recorded think time after a completion; "
        "recorded: every operation at its recorded time",
    )
    repeats.add_argument(
        "--order",
        choices=ORDERS,
        help="recorded: an operation waits for all that had ended before it started (default for recorded traces); "
        "thread: only each thread's own order (default for synthetic ones)",
    )
    repeats.add_argument(
        "--speed", type=parse_factor, default=1.0, metavar="F", help="divide recorded times by F (default 1)"
    )
    repeats.add_argument(
        "--late",
        choices=LATE_POLICIES,
        default="catch-up",
        help="what --timing recorded does with operations behind their times: begin at once (default), skip requests "
        "beyond --late-limit, or slip all later times",
    )
    repeats.add_argument(
        "--late-limit", type=parse_duration, metavar="TIME", help="for --late skip, such as 50ms (default 10ms)"
    )
    repeats.add_argument("--loop", action="store_true", help="begin again at the end; needs --max-time")
    repeats.add_argument("--max-time", type=parse_duration, metavar="TIME", help="stop after TIME, such as 30 or 5m")
    how = parser.add_argument_group("how it does it")
    how.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="auto: io_uring where requests of a thread were in flight at once, else sync (default); sync: calls, one "
        "at a time per thread; io_uring: requests of a thread overlap as recorded; null: keeps times and order, does "
        "nothing",
    )
    how.add_argument(
        "--depth", type=int, metavar="N", help="at most N requests in flight per thread (default: as recorded)"
    )
    how.add_argument("--direct", choices=DIRECT_CHOICES, default="recorded", help="O_DIRECT (default: as recorded)")
    how.add_argument(
        "--sync", choices=SYNC_CHOICES, default="recorded", help="O_SYNC, fsync and its kin (default: as recorded)"
    )
    where = parser.add_argument_group("where it begins")
    where.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="for the files of the replay; made if missing (needed, but for --engine null)",
    )
    where.add_argument(
        "--cache",
        choices=CACHES,
        default="recorded",
        help="page cache of the files at the start: recorded (default), warm (everything), cold (nothing), "
        "keep (as it is)",
    )
    where.add_argument(
        "--memory", type=parse_size, metavar="SIZE", help="run in a memory control group, which bounds the page cache"
    )
    where.add_argument("--keep-image", action="store_true", help="leave the files for the next replay")
    where.add_argument("--force-space", action="store_true", help="begin although the space seems too little")
    result = parser.add_argument_group("result")
    result.add_argument("--format", choices=("text", "json"), default="text", help="of stdout (default text)")
    result.add_argument("--output", type=Path, metavar="RESULT.json", help="write the result document there as well")
    result.add_argument("--force", action="store_true", help="overwrite RESULT.json")


def run(arguments: argparse.Namespace) -> int:
    """Replay; 3 when the result is not to be trusted."""
    if arguments.loop and not arguments.max_time:
        raise FlextraceError("--loop never ends by itself: give --max-time as well", 2)
    if not arguments.directory and arguments.engine != "null":
        raise FlextraceError("--directory is needed: it is where the files of the replay are made", 2)
    if arguments.output and arguments.output.exists() and not arguments.force:
        raise FlextraceError(f"{arguments.output} exists already: choose another name or give --force", 2)
    if arguments.output and not arguments.output.parent.is_dir():
        raise FlextraceError(f"cannot write {arguments.output}: there is no directory {arguments.output.parent}", 2)
    with expanded(arguments.trace) as trace:
        document = _replay(arguments, trace) | {"trace": str(arguments.trace)}
    document |= provenance(arguments.trace, arguments.memory)
    text = json.dumps(document, indent=2)
    if arguments.output:
        try:
            arguments.output.write_text(text + "\n")
        except OSError as error:
            raise FlextraceError(f"cannot write {arguments.output}: {error.strerror}") from error
    print(text if arguments.format == "json" else summary(document))
    for warning in document["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    for reason in document["reasons"]:
        print(f"not trustworthy: {reason}", file=sys.stderr)
    return EXIT_OK if document["trustworthy"] else EXIT_NOT_TRUSTWORTHY


def _replay(arguments: argparse.Namespace, trace: Path) -> dict[str, Any]:
    options = {
        "timing": arguments.timing,
        "order": arguments.order,
        "cache": arguments.cache,
        "keep_image": arguments.keep_image,
        "loop": arguments.loop,
        "max_seconds": arguments.max_time,
        "speed": arguments.speed,
        "late": arguments.late,
        "late_limit_ms": arguments.late_limit and arguments.late_limit * 1e3,
        "engine": arguments.engine,
        "depth": arguments.depth,
        "direct": arguments.direct,
        "sync": arguments.sync,
        "force_space": arguments.force_space,
        "finish_on_signal": True,
    }
    if not arguments.memory or arguments.engine == "null":
        return replay(trace, arguments.directory, **options)
    existed = arguments.directory.exists()
    # Laid out and evicted outside of the group: pages stay charged to whoever read them first.
    with MemoryGroup(arguments.memory) as group:
        built = replay(
            trace,
            arguments.directory,
            timing=arguments.timing,
            order=arguments.order,
            phase="prepare",
            force_space=arguments.force_space,
        )
        document = replay(trace, arguments.directory, phase="run", memory_group=group, **options)
    if not existed and not arguments.keep_image:
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


def _times_line(name: str, times: dict[str, Any]) -> str:
    columns = (format_duration(times[f"{key}_ns"] / 1e9) for key in ("mean", "p50", "p99", "p999", "max"))
    return f"  {name:<6}{times['count']:>10} " + "".join(f"{column:>12}" for column in columns)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _engine_line(engine: dict[str, Any]) -> str:
    """Which engine it was and why, and what was not as recorded."""
    line = f"engine        {engine['name']} ({engine['why']})"
    if engine["name"] == "io_uring":
        line += f", {engine['in_flight_max_per_thread']} in flight per thread at most"
    for option in ("direct", "sync"):
        if engine[option] != "recorded":
            line += f", {option} {engine[option]}"
    return line


def _accuracy_lines(accuracy: dict[str, Any]) -> list[str]:
    """How late operations began, and the verdict; nothing where there were no due times."""
    if accuracy["verdict"] == "untimed":
        return []
    limit, margin = (format_duration(accuracy[f"{name}_ns"] / 1e9) for name in ("limit", "spin_margin"))
    lines = [_times_line("late", accuracy["lateness"])]
    if "behind" in accuracy:
        lines.append(_times_line("behind", accuracy["behind"]))
    lines.append(
        f"accuracy      {accuracy['verdict'].replace('_', ' ')}: {accuracy['late_share']:.2%} late by more than "
        f"{limit}; spins {margin} before due times"
    )
    if "behind" in accuracy:
        span, drift, slip = (format_duration(accuracy[f"{name}_ns"] / 1e9) for name in ("schedule", "drift", "slip"))
        lines.append(
            f"  {accuracy['behind_share']:.2%} behind the schedule of {span}, drift {drift} at its end, slip {slip} "
            f"({accuracy['late_policy']})"
        )
    return lines


def summary(document: dict[str, Any]) -> str:
    """The result as text below 80 columns."""
    operations, requests = document["operations"], document["requests"]
    lines = [
        f"{document['trace']} in {document.get('directory', 'nothing: no request was issued')}",
        f"  timing {document['timing']}, order {document['order']}, cache {document['cache']}, "
        f"{document['threads']} threads, ended by {document['stopped']} after {document['passes']:.4g} passes",
        _engine_line(document["engine"]),
        f"operations    {operations['records']} = {operations['done']} done + {operations['short']} short "
        f"+ {operations['failed']} failed + {operations['skipped']} skipped",
    ]
    for name in ("mismatches", "errors", "skipped_reasons"):
        if document[name]:
            lines.append(f"  {name.replace('_', ' ')}: {_counts(document[name])}")
    lines += [
        f"requests      {requests['read']} reads of {format_bytes(document['bytes']['read'])}, "
        f"{requests['write']} writes of {format_bytes(document['bytes']['write'])}",
        f"elapsed       {format_duration(document['elapsed_s'])}, in I/O {format_duration(document['time_in_io_s'])}, "
        f"in sync {format_duration(document['time_in_sync_s'])}",
        f"throughput    {document['throughput_bytes_per_s'] / 1e6:.4g} MB/s of elapsed time, "
        f"{document['throughput_in_io_bytes_per_s'] / 1e6:.4g} MB/s of time in I/O",
        f"  {'':<6}{'count':>10} " + "".join(f"{name:>12}" for name in ("mean", "p50", "p99", "p99.9", "max")),
    ]
    lines += [_times_line(name, times) for name, times in document["response_time"].items() if times["count"]]
    from_due = document.get("response_time_from_due", {})
    lines += [_times_line(f"{name}*", times) for name, times in from_due.items() if times["count"]]
    if any(times["count"] for times in from_due.values()):
        lines.append("  * from the recorded time, with the time that an operation had to wait for its start")
    return "\n".join(lines + _accuracy_lines(document["accuracy"]))
