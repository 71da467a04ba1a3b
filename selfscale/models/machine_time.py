# SPDX-License-Identifier: Apache-2.0
"""Turns what a mean request asks of processors and storage into the seconds that it takes at every resource, and into
its throughput: what the formulas of `learned` and `traffic` share. They differ in how they know what storage does.

Constants are those of `selfscale.models.service_time.CONSTANTS`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selfscale.models.measured import Columns, miss_frac
from selfscale.models.read_ahead import PAGE_BYTES

QUEUED = 128
"""Requests of the flusher that a read finds before it, while there are any (nr_requests of loop devices and many
others)."""
NEAR_CACHE_WIDTH = 0.1
"""Over which the step behind the processors' own cache is rounded off."""

Constants = dict[str, np.ndarray]


class Transfers(NamedTuple):
    """What storage does for a mean request of n workloads, shape (n,) each.

    Attributes
    ----------
    requests, bytes : ndarray
        Of storage.
    access_s, byte_s : ndarray
        What these take of the device, each for itself.
    """

    requests: np.ndarray
    bytes: np.ndarray
    access_s: np.ndarray
    byte_s: np.ndarray

    @property
    def seconds(self) -> np.ndarray:
        """Of the device, one after the other."""
        return self.access_s + self.byte_s


class Storage(NamedTuple):
    """What storage does for a mean request: what that waits for, what is read ahead of it, what is written back.

    Attributes
    ----------
    misses : ndarray, shape (n,)
        Reads of its own, or of what it writes in part, that a request waits for.
    """

    waited: Transfers
    ahead: Transfers
    written: Transfers
    misses: np.ndarray


def call_s(k: Constants, table: Columns) -> np.ndarray:
    """What a mean request takes of a processor that meets the page cache, shape (n,)."""
    read, size = table.read_frac, table.size_mean
    return (
        read * (k["read_call_s"] + size * k["read_byte_s"])
        + (1 - read) * (k["write_call_s"] + size * k["write_byte_s"])
        + miss_frac(table.unique_bytes, k["near_cache_bytes"], NEAR_CACHE_WIDTH) * size * k["far_byte_s"]
    )


def pages_in_s(k: Constants, waited: Transfers, ahead: Transfers) -> np.ndarray:
    """What the pages that are read take of the processor that brings them in; those ahead lie in large folios."""
    return (waited.bytes + np.minimum(k["ahead_page_frac"], 1.0) * ahead.bytes) / PAGE_BYTES * k["miss_page_s"]


def resources(k: Constants, table: Columns, *, processor: np.ndarray, storage: Storage) -> dict[str, np.ndarray]:
    """Seconds at every resource of a mean request that takes so much of a processor itself.

    The kernel's threads serve storage beside the processes: one process leaves them a processor, many do not.

    Reads wait behind what the flusher has given the device before, so that processes stand still while it works, but
    for what they do from one miss to the next. That takes all of them time at once, however many they are.
    """
    waited, ahead, written, misses = storage
    workers = (waited.requests + ahead.requests) * k["worker_read_s"] + written.requests * k["worker_write_s"]
    workers = workers + (waited.bytes + ahead.bytes + written.bytes) / PAGE_BYTES * k["worker_page_s"]
    reading = _longer_of(k, waited.access_s + ahead.access_s, waited.byte_s + ahead.byte_s)
    writing = _longer_of(k, written.access_s, written.byte_s)
    alone = (
        processor
        + waited.seconds
        + (1 - np.minimum(k["hidden_frac"], 1.0)) * ahead.seconds
        + np.minimum(k["write_wait_frac"], 1.0) * written.seconds
    )
    flushing = writing / k["device_servers"]
    behind = QUEUED * misses * flushing
    queued = behind / (alone * written.requests + behind + np.finfo(float).tiny)
    return {
        "process": alone / table.process_num + np.minimum(k["behind_frac"], 1.0) * flushing * queued,
        "processors": (processor + workers) / k["cpu_servers"],
        "device": (reading + writing) / k["device_servers"],
        "reads": reading / k["direction_servers"],
        "writes": writing / k["direction_servers"],
        "lock": k["lock_s"] + table.size_mean * k["lock_byte_s"],
    }


def _longer_of(k: Constants, accesses_s: np.ndarray, bytes_s: np.ndarray) -> np.ndarray:
    """Time of a device that is limited in accesses and in bytes: between the sum of both and the longer one."""
    power = 1 + k["limits_apart"]
    return (accesses_s**power + bytes_s**power + np.finfo(float).tiny) ** (1 / power)


def bottleneck(seconds: dict[str, np.ndarray], table: Columns, log_sharpness: np.ndarray) -> np.ndarray:
    """ln(bytes per s): the longest resource, rounded off where two are equally long."""
    times = np.array(list(seconds.values()))
    sharpness = 1 + np.exp(log_sharpness)
    longest = times.max(axis=0)
    return np.log(table.size_mean / longest) - np.log(((times / longest) ** sharpness).sum(axis=0)) / sharpness
