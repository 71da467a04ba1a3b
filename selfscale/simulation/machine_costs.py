# SPDX-License-Identifier: Apache-2.0
"""Turns a profile into what a page and an access cost at a machine's cache and its storage.

The cache, processors and writing back are those of the formula of service times, which the profile's points tell; what
reads and syncs take of storage was measured (`selfscale.storage`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from selfscale.models.service_time import CONSTANTS, PAGE_BYTES, ServiceTimes
from selfscale.storage import StorageTimes

BACKGROUND_FRAC = 2 / 3
"""Of the dirty pages at which writers wait, where writing back begins: vm.dirty_background_ratio and the middle between
it and vm.dirty_ratio, by their defaults (10 and 20 %; mm/page-writeback.c, dirty_freerun_ceiling)."""
NS = 1e9


class MachineCosts(NamedTuple):
    """A machine as `selfscale.simulation` takes it; times in ns, sizes in pages of 4 KiB.

    Attributes
    ----------
    cache_pages, window_pages : int
        Of the page cache, and of the largest window of read-ahead.
    dirty_pages, background_pages : float
        At which writers wait, and at which writing back begins.
    read_call_ns, read_byte_ns, write_call_ns, write_byte_ns : float
        Of a processor, for requests that meet the cache.
    miss_page_ns : float
        Of a processor, for a page that is brought in.
    read_ns, rested_read_ns, read_page_ns : float
        Until storage has read the first page, also after a pause, and each of the next ones, where it had nothing else
        to do.
    read_busy_ns, read_page_busy_ns : float
        That it is busy with an access and with a page: the longer one of both counts.
    held_up_ns : float
        So far ahead of its rate storage lets reads pass; then they wait until it has caught up.
    write_busy_ns, write_page_busy_ns : float
        That storage is busy with an access that writes back, and with a page.
    sync_ns, append_sync_ns : float
        Of a sync with one dirty page, which storage has already or which is new.
    shared_frac : float
        Of the time that it is busy in one direction, what counts in the other one, too.
    """

    cache_pages: int
    window_pages: int
    dirty_pages: float
    background_pages: float
    read_call_ns: float
    read_byte_ns: float
    write_call_ns: float
    write_byte_ns: float
    miss_page_ns: float
    read_ns: float
    rested_read_ns: float
    read_page_ns: float
    read_busy_ns: float
    read_page_busy_ns: float
    held_up_ns: float
    write_busy_ns: float
    write_page_busy_ns: float
    sync_ns: float
    append_sync_ns: float
    shared_frac: float


def machine_costs(
    service_times: ServiceTimes,
    storage: StorageTimes,
    read_ahead_bytes: int | None = None,
    constants: np.ndarray | None = None,
) -> MachineCosts:
    """What a machine costs.

    Parameters
    ----------
    service_times : ServiceTimes
    storage : StorageTimes
    read_ahead_bytes : int, optional
        Largest window; None: as the formula has it.
    constants : ndarray, optional
        Natural logarithms instead of the formula's own, to see what their uncertainty means.
    """
    values = np.exp(service_times.constants if constants is None else constants)
    k = {name: float(value) for name, value in zip(CONSTANTS, values, strict=True)}
    border_pages = service_times.border_bytes / PAGE_BYTES
    dirty_pages = border_pages * k["write_cache"]
    return MachineCosts(
        cache_pages=max(1, math.floor(border_pages * k["read_cache"])),
        window_pages=max(1, round((read_ahead_bytes or k["window_bytes"]) / PAGE_BYTES)),
        dirty_pages=dirty_pages,
        background_pages=BACKGROUND_FRAC * dirty_pages,
        read_call_ns=NS * k["read_call_s"],
        read_byte_ns=NS * k["read_byte_s"],
        write_call_ns=NS * k["write_call_s"],
        write_byte_ns=NS * k["write_byte_s"],
        miss_page_ns=NS * k["miss_page_s"],
        read_ns=storage.read_ns,
        rested_read_ns=storage.rested_read_ns,
        read_page_ns=storage.read_page_ns,
        read_busy_ns=storage.read_busy_ns,
        read_page_busy_ns=storage.read_page_busy_ns,
        held_up_ns=storage.held_up_ns,
        write_busy_ns=NS * k["access_write_s"] / k["direction_servers"],
        write_page_busy_ns=NS * k["device_write_byte_s"] * PAGE_BYTES / k["direction_servers"],
        sync_ns=storage.sync_ns,
        append_sync_ns=storage.append_sync_ns,
        shared_frac=min(1.0, k["direction_servers"] / k["device_servers"]),
    )
