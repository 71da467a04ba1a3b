# SPDX-License-Identifier: Apache-2.0
"""Turns a few runs that find nothing cached into what storage takes for reads and for syncs, and a processor for both.

A read or a sync that comes after a pause takes longer than one of many, by what processors and devices take to wake
up, the more the longer the pause was; and where no processor sleeps, since others compute meanwhile, it takes less. An
application computes between two reads, be it for a moment: so does the thread that measures them. Without any pause
the processor that serves its reads may be asleep or awake for seconds (docs/decisions/0026). What is read ahead, and
data that is new, take of a processor what no loop on a warm cache shows: file systems that sum up or compress, and
devices that work in their caller's time, take the most of it. Writes over what is cached such a loop does show, but
among requests of many sizes the formula of points tells little of theirs.

The points of an exploration begin with a warm cache and move as much as they can, so that they say how much storage
moves in a second, but neither how long one request waits that comes alone, nor how fast files are read that nobody has
read before: storage that lets through 4000 requests a second may answer each within 50 us. An application's requests
come alone, and find nothing cached. So these are measured by themselves: `selfscale.simulation` needs them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from characterize.workload import Workload
from selfscale.measure import Point
from selfscale.measuring.measurable_sizes import PAGE_BYTES, align
from selfscale.measuring.point_trace import write_willy
from selfscale.measuring.probe_trace import (
    FIRST_READ_FILE,
    WRITTEN_BYTES,
    write_appends,
    write_new_files,
    write_overwrites,
    write_reads_behind_bursts,
)

ROLE = "storage"
RUN_S = 0.6
"""Of a probe. With what a run costs beside it, a budget of 100 s pays for all of them once."""
BEYOND, READ_BYTES_MAX = 2.0, float(4 << 30)
"""uniqueBytes of what is read: over the cache, and at most. Nothing is cached when a probe begins; of requests in
parallel on fast storage a quarter hit what was read before within `RUN_S` (docs/decisions/0026)."""
LONG_BYTES, SCAN_BYTES, SYNC_UNIQUE_BYTES = 65536.0, 131072.0, 1048576.0
PARALLEL = 4.0
MANY = 8
"""Writes for each of the syncs of many, in the mean: which of them a sync follows is drawn."""
MANY_MEDIAN = math.ceil(math.log(1 / 2) / math.log(1 - 1 / MANY))
"""In the median, as of any number that is drawn so: 6."""
TIMED = {
    "random": ("read", ("p50_ns", "p999_ns")),
    "paused": ("read", ("p50_ns",)),
    "paused long": ("read", ("p50_ns",)),
    "paced scan": ("read", ("mean_ns",)),
    "rested": ("read", ("p50_ns",)),
    "awake": ("read", ("p50_ns",)),
    "behind burst": ("read", ("p50_ns",)),
    "overwrite": ("write", ("p50_ns",)),
    "overwrite long": ("write", ("p50_ns",)),
    "append": ("write", ("p50_ns",)),
    "append long": ("write", ("p50_ns",)),
    "sync": ("sync", ("p50_ns", "p999_ns")),
    "paused sync": ("sync", ("p50_ns",)),
    "sync of many": ("sync", ("p50_ns",)),
    "append sync": ("sync", ("p50_ns",)),
    "directory sync": ("sync", ("mean_ns",)),
}
"""Probes of which response times count: whose, and which."""
BRIEF_NS, PAUSE_NS, REST_NS = 20_000, 200_000, 10_000_000
"""Before a read or a sync: for which a thread computes where reads follow each other; for which it computes so long
that the processor that serves the next one has likely gone to sleep; and for which nobody has anything to do."""
PACE_NS = 2_000_000
"""Between the starts of reads, so that storage is ahead of them."""
NS = 1e9


def probes(cache_bytes: float) -> dict[str, Workload]:
    """What is measured, by name.

    Parameters
    ----------
    cache_bytes : float
        Most that the page cache can hold.
    """
    random = Workload(align(min(BEYOND * cache_bytes, READ_BYTES_MAX)), 0.0, 1.0, float(PAGE_BYTES), 1.0)
    append = Workload(SYNC_UNIQUE_BYTES, 1.0, 0.0, float(PAGE_BYTES), 1.0)
    overwrite = append.replace(seq_frac=0.0)
    return {
        "random": random,
        "parallel": random.replace(process_num=PARALLEL),
        "scan": random.replace(seq_frac=1.0, size_mean=SCAN_BYTES),
        "paced scan": random.replace(seq_frac=1.0, size_mean=SCAN_BYTES),
        "paused": random,
        "paused long": random.replace(size_mean=LONG_BYTES),
        "rested": random,
        "awake": random,
        "behind burst": random,
        "sync": overwrite,
        "paused sync": overwrite,
        "sync of many": overwrite,
        "append sync": append,
        "overwrite": append,
        "overwrite long": append.replace(size_mean=SCAN_BYTES),
        "append": append,
        "append long": append.replace(size_mean=SCAN_BYTES),
        "directory sync": append,
    }


def round_s(overhead_s: float) -> float:
    """What it costs to measure all of them once, each so much beside its run."""
    return len(probes(0.0)) * (RUN_S + overhead_s)


def image_bytes(cache_bytes: float) -> float:
    """Of the files that they use, beside those of the points."""
    read_bytes = probes(cache_bytes)["parallel"].unique_bytes
    return read_bytes + read_bytes / PARALLEL * (PARALLEL - 1) + WRITTEN_BYTES


_COLD = partial(write_willy, cached_share=0.0, first_file=FIRST_READ_FILE)


def _after_computing(gap_ns: int) -> dict[str, Any]:
    """Nothing is cached, and the thread computes for so long before each request."""
    return {"make_trace": partial(_COLD, gap_ns=gap_ns, computing=True), "timing": "think"}


_OPTIONS: dict[str, dict[str, Any]] = {
    "random": _after_computing(BRIEF_NS),
    "paused": _after_computing(PAUSE_NS),
    "paused long": _after_computing(PAUSE_NS),
    "paced scan": _after_computing(PACE_NS),
    "rested": {"make_trace": partial(_COLD, gap_ns=REST_NS), "timing": "recorded"},
    "awake": {**_after_computing(BRIEF_NS), "others_compute": True},
    "behind burst": {"make_trace": write_reads_behind_bursts},
    "sync": {"make_trace": partial(write_willy, sync_frac=1.0)},
    "paused sync": {
        "make_trace": partial(write_willy, sync_frac=1.0, gap_ns=PAUSE_NS, computing=True),
        "timing": "think",
    },
    "sync of many": {"make_trace": partial(write_willy, sync_frac=1 / MANY)},
    "append sync": {"make_trace": partial(write_appends, synced=True)},
    "overwrite": {"make_trace": write_overwrites},
    "overwrite long": {"make_trace": write_overwrites},
    "append": {"make_trace": partial(write_appends, synced=False)},
    "append long": {"make_trace": partial(write_appends, synced=False)},
    "directory sync": {"make_trace": write_new_files},
}


def options_of(name: str | None) -> dict[str, Any]:
    """How `selfscale.measure.measure` measures a probe; where nothing else is said, with nothing cached."""
    return _OPTIONS.get(name or "", {"make_trace": _COLD})


class StorageTimes(NamedTuple):
    """What storage takes, and what goes to it takes of a processor; ns.

    Attributes
    ----------
    read_ns, paused_read_ns, rested_read_ns, awake_read_ns : float
        Until the first page of a request is read, after pauses of `BRIEF_NS`, `PAUSE_NS` and `REST_NS`, and after brief
        ones while all other processors compute.
    read_page_ns : float
        Until each of the next pages is.
    read_busy_ns, read_page_busy_ns : float
        That it is busy with one of many requests, and with a page of a long run.
    behind_burst_ns : float
        That one waits for what was written just before (`selfscale.measuring.probe_trace.BURST_BYTES`).
    held_up_ns : float
        That one in a thousand waits: storage that only lets a number of requests through in a second lets them pass
        for a while, and then holds all up.
    ahead_page_ns : float
        Of the reader's time, for a page that storage had the time to read ahead, its copy included.
    overwrite_call_ns, overwrite_page_ns, append_call_ns, append_page_ns : float
        Of the writer's time, for a request and for each page: of pages that are dirty, and of new ones.
    sync_ns, paused_sync_ns, append_sync_ns, sync_more_ns : float
        The fdatasync of a write that overwrites, of one after a pause of `PAUSE_NS`, of one that appends, for which the
        journal is written, too, and for each more place that was written.
    sync_busy_ns, append_sync_busy_ns, sync_more_busy_ns : float
        That storage is busy with them, where they follow each other.
    sync_held_up_ns : float
        That one in a thousand waits, as `held_up_ns`.
    directory_sync_ns : float
        An fsync of the directory in which a file was made and synced.
    """

    read_ns: float
    paused_read_ns: float
    rested_read_ns: float
    awake_read_ns: float
    read_page_ns: float
    read_busy_ns: float
    read_page_busy_ns: float
    behind_burst_ns: float
    held_up_ns: float
    ahead_page_ns: float
    overwrite_call_ns: float
    overwrite_page_ns: float
    append_call_ns: float
    append_page_ns: float
    sync_ns: float
    paused_sync_ns: float
    append_sync_ns: float
    sync_more_ns: float
    sync_busy_ns: float
    append_sync_busy_ns: float
    sync_more_busy_ns: float
    sync_held_up_ns: float
    directory_sync_ns: float


def storage_times(points: Sequence[Point]) -> StorageTimes | None:
    """What the probes say, the median of each one's rounds; None where one is missing, or moved nothing."""
    rounds: dict[str | None, list[Point]] = {}
    for point in points:
        if point.throughput_bytes_per_s > 0 and _has_times(point):
            rounds.setdefault(point.parameter, []).append(point)
    if not set(probes(0.0)) <= set(rounds):
        return None

    def time_ns(name: str, key: str = "p50_ns") -> float:
        kind, _ = TIMED[name]
        return median(float((point.response_time[kind] or {})[key]) for point in rounds[name])

    def page_ns(name: str) -> float:
        return median(NS * PAGE_BYTES / point.throughput_bytes_per_s for point in rounds[name])

    # What storage can do is the best round: in others read-ahead lost its marks, and every request waited (0026).
    scanned_page_ns = min(
        NS * PAGE_BYTES / (point.throughput_bytes_per_s * (point.device_frac or 1.0)) for point in rounds["scan"]
    )
    more_pages = LONG_BYTES / PAGE_BYTES - 1

    def written_ns(name: str) -> tuple[float, float]:
        """Of a request, and of each page, by writes of one page and of `SCAN_BYTES`."""
        one_ns = time_ns(name)
        page_ns = max(0.0, time_ns(f"{name} long") - one_ns) / (SCAN_BYTES / PAGE_BYTES - 1)
        return max(0.0, one_ns - page_ns), page_ns

    overwrite_call_ns, overwrite_page_ns = written_ns("overwrite")
    append_call_ns, append_page_ns = written_ns("append")
    return StorageTimes(
        # The median: a limit on requests per second lets them pass for a while, and then holds all of them up.
        read_ns=time_ns("random"),
        paused_read_ns=time_ns("paused"),
        rested_read_ns=time_ns("rested"),
        awake_read_ns=time_ns("awake"),
        read_page_ns=max(0.0, time_ns("paused long") - time_ns("paused")) / more_pages,
        read_busy_ns=page_ns("parallel"),
        read_page_busy_ns=scanned_page_ns,
        behind_burst_ns=max(0.0, time_ns("behind burst") - time_ns("random")),
        held_up_ns=time_ns("random", "p999_ns"),
        # The mean: one read of many has a window read ahead, and takes its time where the device works in its caller's.
        # At full speed its reader's time is in that of the scan.
        ahead_page_ns=min(time_ns("paced scan", "mean_ns") / (SCAN_BYTES / PAGE_BYTES), scanned_page_ns),
        overwrite_call_ns=overwrite_call_ns,
        overwrite_page_ns=overwrite_page_ns,
        append_call_ns=append_call_ns,
        append_page_ns=append_page_ns,
        sync_ns=time_ns("sync"),
        paused_sync_ns=time_ns("paused sync"),
        append_sync_ns=time_ns("append sync"),
        sync_more_ns=max(0.0, time_ns("sync of many") - time_ns("sync")) / (MANY_MEDIAN - 1),
        sync_busy_ns=page_ns("sync"),
        append_sync_busy_ns=page_ns("append sync"),
        sync_more_busy_ns=max(0.0, MANY * page_ns("sync of many") - page_ns("sync")) / (MANY - 1),
        sync_held_up_ns=time_ns("sync", "p999_ns"),
        directory_sync_ns=time_ns("directory sync", "mean_ns"),
    )


def _has_times(point: Point) -> bool:
    """Whether a probe says the response times that count of it."""
    if point.parameter not in TIMED:
        return True
    kind, wanted = TIMED[point.parameter]
    return set(wanted) <= set(point.response_time.get(kind) or {})
