# SPDX-License-Identifier: Apache-2.0
"""Turns a few runs that find nothing cached into what storage takes for a read, for the next page, and for a sync.

The points of an exploration begin with a warm cache and move as much as they can, so that they say how much storage
moves in a second, but neither how long one request waits that comes alone, nor how fast files are read that nobody has
read before: storage that lets through 4000 requests a second may answer each within 50 us. An application's requests
come alone, and find nothing cached. So these are measured by themselves: `selfscale.simulation` needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from characterize.workload import Workload
from selfscale.measure import Point, write_willy
from selfscale.models.service_time import PAGE_BYTES

ROLE = "storage"
RUN_S = 1.0
LONG_BYTES, SCAN_BYTES, SYNC_UNIQUE_BYTES = 65536.0, 131072.0, 1048576.0
PARALLEL = 4.0
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
        "sync": Workload(SYNC_UNIQUE_BYTES, 0.0, 0.0, PAGE_BYTES, 1.0),
    }


def trace_maker(name: str | None) -> Callable[..., Any]:
    """What writes a probe's trace for `selfscale.measure.measure`: nothing is cached, or every write is synced."""
    return partial(write_willy, sync_frac=1.0) if name == "sync" else partial(write_willy, cached_share=0.0)


class StorageTimes(NamedTuple):
    """What storage takes, ns.

    Attributes
    ----------
    read_ns, read_page_ns : float
        Until the first page of a request that comes alone is read, and until each of the next ones is.
    read_busy_ns, read_page_busy_ns : float
        That it is busy with one of many requests, and with a page of a long run.
    sync_ns : float
        A write and its fdatasync.
    """

    read_ns: float
    read_page_ns: float
    read_busy_ns: float
    read_page_busy_ns: float
    sync_ns: float


def storage_times(points: Sequence[Point]) -> StorageTimes | None:
    """What the probes say; None where one is missing or moved nothing."""
    measured = {point.parameter: point for point in points if point.throughput_bytes_per_s > 0}
    if not set(probes(0.0)) <= set(measured):
        return None

    def page_ns(name: str) -> float:
        return NS * PAGE_BYTES / measured[name].throughput_bytes_per_s

    def alone_ns(name: str) -> float:
        # The median: a limit on requests per second lets them pass for a while, and then holds all of them up.
        return float(measured[name].response_time["read"]["p50_ns"])

    more_pages = LONG_BYTES / PAGE_BYTES - 1
    return StorageTimes(
        read_ns=alone_ns("random"),
        read_page_ns=max(0.0, alone_ns("random long") - alone_ns("random")) / more_pages,
        read_busy_ns=page_ns("parallel"),
        read_page_busy_ns=page_ns("scan"),
        sync_ns=page_ns("sync"),
    )
