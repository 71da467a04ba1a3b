# SPDX-License-Identifier: Apache-2.0
"""Turns a profile into what a page and an access cost at a machine's cache and its storage.

Processors and writing back are those of the formula of service times, which the profile's points tell; what reads and
syncs take of storage, and writes and what is read ahead of a processor, was measured (`selfscale.measuring.storage`);
the cache is as large as its limit, and the limits on dirty pages are the kernel's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from selfscale.measuring.probe_trace import BURST_BYTES
from selfscale.measuring.storage import SCAN_BYTES, StorageTimes
from selfscale.models.service_time import CONSTANTS, PAGE_BYTES, ServiceTimes
from selfscale.simulation.dirty_limits import BACKGROUND_FRAC, HELD_FRAC, chunk_pages
from selfscale.simulation.read_ahead_rules import ReadAheadRules, read_ahead_rules

EXTENT_PAGES = 2048
"""That ext4 writes back of a file at least, however small the flusher's chunk is (MAX_WRITEPAGES_EXTENT_LEN)."""
THREAD_SERVED = {"device": "/dev/loop", "filesystem": "btrfs"}
"""What a thread of the kernel serves, which may wait for a processor as its caller does: requests of a loop device
(drivers/block/loop.c, loop_queue_work), and the ends of reads and writes of btrfs (fs/btrfs/bio.c)."""
PROCESSOR_WORKED = "/dev/zram"
"""A device that is a processor's work (drivers/block/zram/zram_drv.c): what is written back takes processors."""
NS = 1e9


class RequestCosts(NamedTuple):
    """What requests that wait for nothing take of a processor at least, ns: in the benchmark, which does nothing else.

    Attributes
    ----------
    read_call_ns, read_byte_ns : float
    write_call_ns, write_page_ns : float
        Of pages that the cache or storage has already; a page that is written in part takes what a whole one does.
    append_call_ns, append_page_ns : float
        Of pages that are new.
    """

    read_call_ns: float
    read_byte_ns: float
    write_call_ns: float
    write_page_ns: float
    append_call_ns: float
    append_page_ns: float


class MachineCosts(NamedTuple):
    """A machine as `selfscale.simulation` takes it; times in ns, sizes in pages of 4 KiB.

    Attributes
    ----------
    processors : int
        0: not known.
    serving_threads : int
        Of the kernel, that work for an access to storage one after the other.
    cache_pages : int
        Of the page cache.
    read_ahead : ReadAheadRules
    dirty_pages, background_pages : float
        At which writers wait, and at which writing back begins.
    burst_pages : int
        That are written back at once then.
    behind_page_ns : float
        That a read waits for each of these.
    beside_burst : float
        By how much longer it takes to bring a page in while they are written back.
    miss_page_ns : float
        Of a processor, for a page that is brought in.
    write_busy_ns, write_page_busy_ns : float
        That storage is busy with an access that writes back, and with a page.
    shared_frac : float
        Of the time that it is busy in one direction, what counts in the other one, too.
    requests : RequestCosts
    storage : StorageTimes
        As measured.
    """

    processors: int
    serving_threads: int
    cache_pages: int
    read_ahead: ReadAheadRules
    dirty_pages: float
    background_pages: float
    burst_pages: int
    behind_page_ns: float
    beside_burst: float
    miss_page_ns: float
    write_busy_ns: float
    write_page_busy_ns: float
    shared_frac: float
    requests: RequestCosts
    storage: StorageTimes


def machine_costs(
    service_times: ServiceTimes,
    storage: StorageTimes,
    environment: Mapping[str, Any],
    constants: np.ndarray | None = None,
) -> MachineCosts:
    """What a machine costs.

    Parameters
    ----------
    service_times : ServiceTimes
    storage : StorageTimes
    environment : mapping of str to Any
        Of the profile: its processors (``cpus``), the limits on its page cache (``cache_limit_bytes``) and on dirty
        pages (``dirty_limit_bytes``), and what `read_ahead_rules` reads.
    constants : ndarray, optional
        Natural logarithms instead of the formula's own, to see what their uncertainty means.
    """
    values = np.exp(service_times.constants if constants is None else constants)
    k = {name: float(value) for name, value in zip(CONSTANTS, values, strict=True)}
    border_pages = service_times.border_bytes / PAGE_BYTES
    # The border of a profile may be where writers begin to wait, a fifth of the cache. An older one has no limit.
    cache_pages = (environment.get("cache_limit_bytes") or 0) / PAGE_BYTES or border_pages * k["read_cache"]
    dirty_limit_pages = (environment.get("dirty_limit_bytes") or 0) / PAGE_BYTES
    background_pages = BACKGROUND_FRAC * dirty_limit_pages
    if not 0 < dirty_limit_pages < cache_pages:
        # It is not known, or the cache is full before: a memory group of version 1 has the limits of the whole host.
        background_pages = border_pages * k["write_cache"]
    write_page_busy_ns = NS * k["device_write_byte_s"] * PAGE_BYTES / k["direction_servers"]
    processors = environment.get("cpus") or 0
    behind_page_ns, beside_burst = storage.behind_burst_ns * PAGE_BYTES / BURST_BYTES, 1.0
    if str(environment.get("device", "")).startswith(PROCESSOR_WORKED):
        # What it is read by needs processors, too. The probe, which waits for its burst, does not see that.
        behind_page_ns = max(behind_page_ns, write_page_busy_ns)
        # One more than the threads that write back, of which there is one for each processor.
        beside_burst = (processors + 1) / processors if processors else 1.0
    hit_page_ns = NS * (k["read_call_s"] / (SCAN_BYTES / PAGE_BYTES) + k["read_byte_s"] * PAGE_BYTES)
    return MachineCosts(
        processors=processors,
        serving_threads=_serving_threads(environment),
        cache_pages=max(1, math.floor(cache_pages)),
        read_ahead=read_ahead_rules(environment),
        dirty_pages=HELD_FRAC / BACKGROUND_FRAC * background_pages,
        background_pages=background_pages,
        burst_pages=max(EXTENT_PAGES, chunk_pages(dirty_limit_pages)),
        behind_page_ns=behind_page_ns,
        beside_burst=beside_burst,
        miss_page_ns=max(0.0, storage.ahead_page_ns - hit_page_ns),
        write_busy_ns=NS * k["access_write_s"] / k["direction_servers"],
        write_page_busy_ns=write_page_busy_ns,
        shared_frac=min(1.0, k["direction_servers"] / k["device_servers"]),
        requests=RequestCosts(
            read_call_ns=NS * k["read_call_s"],
            read_byte_ns=NS * k["read_byte_s"],
            write_call_ns=storage.overwrite_call_ns,
            write_page_ns=storage.overwrite_page_ns,
            append_call_ns=storage.append_call_ns,
            append_page_ns=storage.append_page_ns,
        ),
        storage=storage,
    )


def _serving_threads(environment: Mapping[str, Any]) -> int:
    return sum(str(environment.get(name, "")).startswith(begin) for name, begin in THREAD_SERVED.items())
