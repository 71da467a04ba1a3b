# SPDX-License-Identifier: Apache-2.0
"""Turns one workload into one measured point: a Willy trace, replayed from a warm cache until its throughput is steady.

Where the trace's own pages are charged
    The trace is written to memory (where that has plenty, `selfscale.measuring.scratch`) before the engine joins the
    memory group, so its pages stay charged to this process and do not narrow the cache that is measured.

What writes need
    Buffered writes cost memory speed until the page cache must write back. A run with writes is measured only after
    it has written `settle_bytes`, so that it cannot end while the cache still absorbs.

Processes that keep step
    Each process has a file of its own. One that is a little ahead has its file used more often and keeps it in the
    cache, which makes it faster still, until one or two processes run from memory and the others starve: which ones,
    and when, is chance. So none gets further ahead than the share `LEAD_SHARE` of its file
    (docs/decisions/0025-processes-keep-step.md).

Where a run begins
    With as much of every file in the cache as the cache can hold of all of them, min(1, M / U): that is what is left
    after any number of requests. Files read in one after the other would end with the last ones cached whole and the
    first ones not at all. Which part of a file matters, too: with the first part of each cached, the accesses of
    requests of 16 KiB doubled within three seconds on a device of 4000 requests/s (`selfscale.measuring.last_used`).

    In files that lie in order, whatever points before have written (`selfscale.measuring.defragment`).

With O_DIRECT, on files or on a device (`selfscale.measuring.access`), there is no cache to be warmed, settled or
confined. Where writes are made stable as they come, no more is dirty than what was written since the sync before, and
little settles.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from characterize.document import plain
from characterize.errors import FlextraceError
from characterize.units import format_bytes
from characterize.workload import Workload
from replayer.result_text import failures
from selfscale.measuring.access import BUFFERED, Access
from selfscale.measuring.computing import computing
from selfscale.measuring.defragment import defragment
from selfscale.measuring.environment import cache_limit_bytes, dirty_limit_bytes
from selfscale.measuring.point_trace import trace_length, write_willy
from selfscale.measuring.scratch import scratch_directory, willy_bytes
from selfscale.measuring.stop_rule import CONFIDENCE, RULES, TARGET, SeriesThroughput

if TYPE_CHECKING:
    from replayer.running.confine import MemoryGroup

INTERVAL_MS = 50
LEAD_SHARE = 1 / 16
LEAD_MIN, LEAD_MAX = 16, 512
"""Requests: with fewer, processes wait for each other's chance; more are not needed."""
REWRITES_MAX = 4.0
"""Times the limit that is written, at most, until so much is dirty."""


@dataclass(frozen=True)
class Point:
    """One measured workload.

    Attributes
    ----------
    workload : Workload
    throughput_bytes_per_s : float
        Bytes over time of the steady window.
    ci95_half_width_bytes_per_s : float
        None in documents where too few intervals were seen.
    interval90_bytes_per_s : tuple of float
        90 % confidence interval of the throughput.
    response_time : dict
        ``read``, ``write`` and ``sync`` of the engine's result (over the whole run, transient included).
    steady : bool
        Whether the stop rule was met; `reason` says why not.
    seconds : float
        Length of the steady window.
    passes : float
        How often the trace was gone through.
    role, region, parameter : str, int or None, str or None
        What the point is for: explore, curve, reference, direction, inform, orthogonal, random, storage, or table where
        it was not measured but given; which region's; which parameter's curve, or which probe of storage.
    repeat : int
        0, or 1 for the second measurement of a random workload.
    elapsed_s : float
        Length of the whole run, transient included.
    cost_s : float
        Wall-clock time of everything that the point needed.
    device_frac : float or None
        Bytes that went to or came from storage in the steady window over those that were moved; None where unknown.
    device_write_frac : float or None
        Those of them that went to storage.
    dirtied_frac : float or None
        Bytes that became dirty over those that were moved: the kernel counts so against its limits on dirty pages. Of a
        large folio of which a part is written it is all.
    device_reads, device_writes : float or None
        Requests that the device had done over those of the workload, whosever they were; None where unknown.
    disturbed_bytes_per_s : float or None
        Throughput of another run of it, which was put aside (`selfscale.exploring.disturbed`); None if there was none.
    resumed_s : float
        Before it, where it is the first one of a run that was resumed: what laying out files and ageing the cache took
        again. It counts to the budget, and is none of its cost.
    """

    workload: Workload
    throughput_bytes_per_s: float
    ci95_half_width_bytes_per_s: float
    response_time: dict[str, Any] = field(default_factory=dict)
    steady: bool = True
    seconds: float = 0.0
    passes: float = 0.0
    interval90_bytes_per_s: tuple[float, float] = (math.nan, math.nan)
    role: str = "explore"
    region: int | None = None
    parameter: str | None = None
    repeat: int = 0
    reason: str = ""
    elapsed_s: float = 0.0
    cost_s: float = 0.0
    device_frac: float | None = None
    device_write_frac: float | None = None
    dirtied_frac: float | None = None
    device_reads: float | None = None
    device_writes: float | None = None
    disturbed_bytes_per_s: float | None = None
    resumed_s: float = 0.0

    def as_document(self) -> dict[str, Any]:
        """The point as it stands in a profile."""
        document = asdict(replace(self, workload=None))  # type: ignore[arg-type]
        document["workload"] = self.workload.as_document()
        document["interval90_bytes_per_s"] = plain(self.interval90_bytes_per_s)
        document["ci95_half_width_bytes_per_s"] = plain(self.ci95_half_width_bytes_per_s)
        return document

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Point:
        """The reverse of `as_document`; unknown keys are ignored."""
        known = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        known["workload"] = Workload.from_document(document["workload"])
        if known.get("ci95_half_width_bytes_per_s") is None:
            known["ci95_half_width_bytes_per_s"] = math.inf
        low, high = known.get("interval90_bytes_per_s") or (None, None)
        known["interval90_bytes_per_s"] = (math.nan if low is None else low, math.nan if high is None else high)
        return cls(**known)


def lead_of(workload: Workload) -> int | None:
    """Requests that a process may be ahead of the slowest one; None of a single one."""
    if workload.process_num <= 1:
        return None
    file_requests = workload.unique_bytes / workload.process_num / workload.size_mean
    return int(min(LEAD_MAX, max(LEAD_MIN, file_requests * LEAD_SHARE)))


def settle_bytes(workload: Workload, limit_bytes: float, dirty_limit: float) -> float:
    """Bytes, read and written, to move before a throughput with writes is what it will stay.

    The page cache absorbs writes until one of three is full of dirty pages: the written working set (from then on
    pages are dirtied again, which costs nothing new), the cache (reclaim must write back), the kernel's limit on dirty
    pages (writers are throttled). As much as the smallest of the three must have become *dirty*: of random writes of W
    bytes U (1 - exp(-W / U)) do.

    Parameters
    ----------
    limit_bytes : float
        Size of the cache: the memory group's limit or the memory available.
    dirty_limit : float
        Dirty bytes at which the kernel throttles writers, or their own syncs make them clean.
    """
    write_share = 1 - workload.read_frac
    if write_share <= 0:
        return 0.0
    unique_bytes = workload.unique_bytes
    absorbed = min(unique_bytes, limit_bytes, dirty_limit)
    if absorbed < unique_bytes:
        absorbed = min(-unique_bytes * math.log1p(-absorbed / unique_bytes), REWRITES_MAX * absorbed)
    if unique_bytes <= limit_bytes:
        return absorbed / write_share
    # Behind the cache, with few writes among the requests, it is the turnover of the cache that ends the absorbing, so
    # waiting for the writes to fill it would be in vain: never more than four times the cache in total.
    return min(absorbed / write_share, 4 * absorbed)


def measure(
    workload: Workload,
    directory: str | os.PathLike[str] | None,
    *,
    access: Access = BUFFERED,
    confirm: str | None = None,
    memory_group: MemoryGroup | None = None,
    seed: int = 0,
    target: float = TARGET,
    min_seconds: float = 1.0,
    max_seconds: float = 30.0,
    rule: str = CONFIDENCE,
    timing: str = "asap",
    others_compute: bool = False,
    make_trace: Callable[..., Any] | None = None,
    replay: Callable[..., dict[str, Any]] | None = None,
) -> Point:
    """Measure one workload.

    Parameters
    ----------
    workload : Workload
    directory : path-like, optional
        The image lies here; files that are there from other points are used again. None for a device.
    access : Access
        How the requests reach storage, and which of the writes are made stable; `make_trace` has syncs of its own.
    confirm : str, optional
        Serial number or size of the device that `access` has written.
    memory_group : MemoryGroup, optional
        An entered group to run in.
    seed : int
        Of the trace.
    target : float
        Half-width of the throughput's 95 % confidence interval, as a share of it, at which to stop.
    min_seconds, max_seconds : float
        Least length of the steady window; end of the run, steady or not.
    rule : {"confidence", "raidperf"}
        See `selfscale.measuring.stop_rule`.
    timing : str
        ``recorded``: requests are issued when the trace says.
    others_compute : bool
        Meanwhile all processors but one are busy with computing.
    make_trace, replay : callable, optional
        Instead of `replayer.willy.make_trace` with `characterize.write`, and `replayer.run.replay`; for tests.

    Raises
    ------
    FlextraceError
        The trace cannot be made or the engine failed; the workload writes where `access` only reads; requests failed.
    """
    if workload.read_frac < 1 and not access.writes:
        raise FlextraceError(f"readFrac {workload.read_frac:g} would write {access.device}: give --write and --confirm")
    run = replay or _engine()
    begin = time.monotonic()
    requests, loop = trace_length(workload, max_seconds, access.sync_frac)
    limit_bytes = cache_limit_bytes(memory_group.limit_bytes if memory_group else None)
    dirty_limit = min(dirty_limit_bytes(limit_bytes), access.dirty_bytes_max(workload))
    settle = settle_bytes(workload, limit_bytes, dirty_limit) if access.cached else 0.0
    stop_rule = RULES[rule](target, min_seconds, settle)
    intervals: list[dict[str, Any]] = []

    def on_interval(line: dict[str, Any]) -> bool:
        seconds = line["t_s"] - (intervals[-1]["t_s"] if intervals else 0.0)
        intervals.append(line)
        return stop_rule.add(seconds, line["bytes"], line["requests"])

    trace_bytes = willy_bytes(requests, (1 - workload.read_frac) * access.sync_frac)
    place = scratch_directory(trace_bytes, "the trace of a workload")
    with tempfile.TemporaryDirectory(prefix="flextrace-scale-", dir=place) as scratch:
        trace = Path(scratch) / "point.iotrace"
        write = make_trace or partial(
            write_willy,
            device=access.device,
            cache_bytes=limit_bytes,
            sync_frac=access.sync_frac,
            dsync=access.dsync,
        )
        write(workload, trace, requests, seed)
        if directory is not None:
            # Outside the group: what is read in while confined would be charged to it, what was read before would not.
            run(trace, directory, phase="prepare", keep_image=True)
            defragment(Path(directory), workload.unique_bytes / workload.process_num)
            evict(Path(directory))
        with computing(len(os.sched_getaffinity(0)) - 1 if others_compute else 0):
            result = run(
                trace,
                directory,
                timing=timing,
                order="thread",
                lead=lead_of(workload),
                phase="run",
                keep_image=directory is not None,
                loop=loop,
                max_seconds=max_seconds,
                interval_ms=INTERVAL_MS,
                memory_group=memory_group,
                on_interval=on_interval,
                **access.replay_options(confirm),
            )
    return _point_of(workload, result, stop_rule.estimate(), intervals, time.monotonic() - begin)


def _point_of(
    workload: Workload,
    result: dict[str, Any],
    estimate: SeriesThroughput,
    intervals: list[dict[str, Any]],
    cost_s: float,
) -> Point:
    if failed := failures(result, "io"):
        full = {"ENOSPC", "EDQUOT"} & result["errors"].keys()
        remedy = "make room there" if full else "look into the kernel's log for the cause, or measure another place"
        raise FlextraceError(f"cannot measure {describe(workload)}: of its requests {failed}; {remedy}")
    # Such as the sync of a directory, where a file system has none: of the requests it says nothing.
    failed = failures(result, "fileop")
    mean = estimate.bytes_per_s
    return Point(
        workload=workload,
        throughput_bytes_per_s=mean,
        ci95_half_width_bytes_per_s=estimate.half_width_95,
        interval90_bytes_per_s=(mean - estimate.half_width_90, mean + estimate.half_width_90),
        response_time={name: result["response_time"].get(name) for name in ("read", "write", "sync")},
        steady=estimate.steady and not failed,
        seconds=estimate.seconds,
        passes=float(result["passes"]),
        reason=f"of its file operations {failed}" if failed else estimate.reason,
        elapsed_s=float(result["elapsed_s"]),
        cost_s=cost_s,
        **_at_device(intervals[estimate.first :]),
    )


def _at_device(intervals: list[dict[str, Any]]) -> dict[str, Any]:
    """What storage did, by the names of the point's attributes; without those that are unknown."""
    moved_bytes, requests = sum(line["bytes"] for line in intervals), sum(line["requests"] for line in intervals)
    if not moved_bytes or any("device_read_bytes" not in line for line in intervals):
        return {}
    read_bytes, dirtied_bytes = (
        sum(line[name] for line in intervals) for name in ("device_read_bytes", "dirtied_bytes")
    )
    written_bytes, counts = dirtied_bytes, {}
    if all("device_write_bytes" in line for line in intervals):
        # Of large folios more became dirty than was written; the device was given more than this replay's data.
        written_bytes = min(dirtied_bytes, sum(line["device_write_bytes"] for line in intervals))
        counts = {name: sum(line[name] for line in intervals) / requests for name in ("device_reads", "device_writes")}
    return {
        "device_frac": (read_bytes + written_bytes) / moved_bytes,
        "device_write_frac": written_bytes / moved_bytes,
        "dirtied_frac": dirtied_bytes / moved_bytes,
        **counts,
    }


def evict(directory: Path) -> None:
    """Write back and drop the cached pages of every file of the image.

    The engine evicts the files that its trace uses. What other points left of other files would stay charged to the
    memory group and narrow the cache.

    Raises
    ------
    FlextraceError
        A file is gone, or its device failed.
    """
    for path in directory.glob("f*"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise FlextraceError(
                f"cannot write {path} back and drop it from the page cache: {error.strerror}; look into the kernel's "
                "log for the cause, or measure another place"
            ) from error


def _engine() -> Callable[..., dict[str, Any]]:
    from replayer.run import replay  # noqa: PLC0415 (tests go without the engine)

    return replay


def describe(workload: Workload) -> str:
    """A workload in one line."""
    return (
        f"uniqueBytes {format_bytes(workload.unique_bytes)}, sizeMean {format_bytes(workload.size_mean)}, "
        f"readFrac {workload.read_frac:.2g}, seqFrac {workload.seq_frac:.2g}, processNum {workload.process_num:g}"
    )
