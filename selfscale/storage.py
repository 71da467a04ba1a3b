# SPDX-License-Identifier: Apache-2.0
"""Turns a few runs that find nothing cached into what storage takes for a read, for the next page, and for syncs.

A read that comes after a pause takes longer than one of many, by what processors and devices take to wake up.

The points of an exploration begin with a warm cache and move as much as they can, so that they say how much storage
moves in a second, but neither how long one request waits that comes alone, nor how fast files are read that nobody has
read before: storage that lets through 4000 requests a second may answer each within 50 us. An application's requests
come alone, and find nothing cached. So these are measured by themselves: `selfscale.simulation` needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from characterize.workload import Workload
from selfscale.measure import Point
from selfscale.models.service_time import PAGE_BYTES
from selfscale.point_trace import write_appends, write_willy

ROLE = "storage"
RUN_S = 1.0
LONG_BYTES, SCAN_BYTES, SYNC_UNIQUE_BYTES = 65536.0, 131072.0, 1048576.0
PARALLEL = 4.0
ALONE = ("random", "random long", "rested")
"""Probes of which the response times count."""
REST_NS = 10_000_000
NS = 1e9


def probes(unique_bytes: float) -> dict[str, Workload]:
    """What is measured, by name.

    Parameters
    ----------
    unique_bytes : float
        More than the cache holds.
    """
    random = Workload(unique_bytes, 0.0, 1.0, PAGE_BYTES, 1.0)
    return {
        "random": random,
        "random long": random.replace(size_mean=LONG_BYTES),
        "parallel": random.replace(process_num=PARALLEL),
        "scan": random.replace(seq_frac=1.0, size_mean=SCAN_BYTES),
        "rested": random,
        "sync": Workload(SYNC_UNIQUE_BYTES, 0.0, 0.0, PAGE_BYTES, 1.0),
        "append sync": Workload(SYNC_UNIQUE_BYTES, 1.0, 0.0, PAGE_BYTES, 1.0),
    }


def options_of(name: str | None) -> dict[str, Any]:
    """How `selfscale.measure.measure` measures a probe: nothing is cached, or every write is synced."""
    if name == "rested":
        return {"make_trace": partial(write_willy, cached_share=0.0, gap_ns=REST_NS), "timing": "recorded"}
    if name == "sync":
        return {"make_trace": partial(write_willy, sync_frac=1.0)}
    if name == "append sync":
        return {"make_trace": write_appends}
    return {"make_trace": partial(write_willy, cached_share=0.0)}


class StorageTimes(NamedTuple):
    """What storage takes, ns.

    Attributes
    ----------
    read_ns, rested_read_ns, read_page_ns : float
        Until the first page of a request is read, of one after the other and after a pause; and until each of the next
        pages is.
    read_busy_ns, read_page_busy_ns : float
        That it is busy with one of many requests, and with a page of a long run.
    held_up_ns : float
        That one in a thousand waits: storage that only lets a number of requests through in a second lets them pass
        for a while, and then holds all up.
    sync_ns, append_sync_ns : float
        A write and its fdatasync, where it overwrites, and where it appends: then the journal is written, too.
    """

    read_ns: float
    rested_read_ns: float
    read_page_ns: float
    read_busy_ns: float
    read_page_busy_ns: float
    held_up_ns: float
    sync_ns: float
    append_sync_ns: float


def storage_times(points: Sequence[Point]) -> StorageTimes | None:
    """What the probes say; None where one is missing, or moved nothing."""
    measured = {point.parameter: point for point in points if point.throughput_bytes_per_s > 0}
    alone = {name: (measured[name].response_time.get("read") or {}) for name in ALONE if name in measured}
    if not set(probes(0.0)) <= set(measured) or not all(
        {"p50_ns", "p999_ns"} <= set(times) for times in alone.values()
    ):
        return None
    # The median: a limit on requests per second lets them pass for a while, and then holds all of them up.
    median_ns = {name: float(times["p50_ns"]) for name, times in alone.items()}
    page_ns = {name: NS * PAGE_BYTES / point.throughput_bytes_per_s for name, point in measured.items()}
    more_pages = LONG_BYTES / PAGE_BYTES - 1
    return StorageTimes(
        read_ns=median_ns["random"],
        rested_read_ns=median_ns["rested"],
        read_page_ns=max(0.0, median_ns["random long"] - median_ns["random"]) / more_pages,
        read_busy_ns=page_ns["parallel"],
        read_page_busy_ns=page_ns["scan"],
        held_up_ns=float(alone["random"]["p999_ns"]),
        sync_ns=page_ns["sync"],
        append_sync_ns=page_ns["append sync"],
    )
