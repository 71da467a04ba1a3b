# SPDX-License-Identifier: Apache-2.0
"""Turns a number of threads and a device into the requests that they make: a simulation, event by event."""

from __future__ import annotations

import functools
import heapq
import random
from dataclasses import dataclass

import pandas as pd

REQUEST_BYTES = 1000
LONG_RUN = 400


@dataclass(frozen=True)
class Device:
    """Serves some requests at once, first come first served, each for an exponential time."""

    service_s: float
    servers: int

    @functools.cache  # noqa: B019 (a handful of devices)
    def _throughput_of(self, threads: int) -> float:
        requests = simulated(self, threads, LONG_RUN, 0.0, threads)
        return REQUEST_BYTES * len(requests) / elapsed_s(requests)

    def throughput(self, in_flight: float) -> float:
        """Bytes per s with so many requests always in flight; between whole numbers a straight line."""
        below = int(in_flight)
        less, more = self._throughput_of(below), self._throughput_of(below + 1)
        return less + (in_flight - below) * (more - less)


def simulated(device: Device, threads: int, rounds: int, compute_s: float, seed: int) -> pd.DataFrame:
    """Requests of threads that compute for an exponential time before each of them, as those of a trace."""
    generator = random.Random(seed)

    def computing() -> float:
        return generator.expovariate(1 / compute_s) if compute_s else 0.0

    ready = [(computing(), thread, 1) for thread in range(threads)]
    heapq.heapify(ready)
    free = [0.0] * device.servers
    rows = []
    while ready:
        start, thread, count = heapq.heappop(ready)
        end = max(start, heapq.heappop(free)) + generator.expovariate(1 / device.service_s)
        heapq.heappush(free, end)
        rows.append((thread, round(start * 1e9), round(end * 1e9), REQUEST_BYTES))
        if count < rounds:
            heapq.heappush(ready, (end + computing(), thread, count + 1))
    frame = pd.DataFrame(rows, columns=["thread", "start_ns", "end_ns", "bytes"])
    return frame.sort_values("start_ns", ignore_index=True)


def elapsed_s(requests: pd.DataFrame) -> float:
    """From the begin to the last end."""
    return float(requests["end_ns"].max()) / 1e9
