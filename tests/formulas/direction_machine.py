# SPDX-License-Identifier: Apache-2.0
"""Turns a workload into the throughput of a machine whose file cache treats reads and writes apart, by a formula."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from characterize.workload import Workload
from selfscale.exploring.plan import Step
from selfscale.measure import Point

MIB = 1 << 20


@dataclass
class DirectionMachine:
    """Caches under uniform access, each with its own size, before one device.

    Attributes
    ----------
    read_cache_bytes, write_cache_bytes : float
        Of a working set beyond it the share 1 - cache / uniqueBytes misses. A write cache of 0 is write-through.
    fetch_s, store_s : float
        Seconds of a request that misses.
    counts_traffic : bool
        Whether it says what went to and came from storage.
    noise, disturbed : float
        Standard deviation of the throughput as a share of it; share of measurements that run at 0.2 to 0.6 of it and
        are not steady.
    """

    read_cache_bytes: float
    write_cache_bytes: float
    fetch_s: float = 500e-6
    store_s: float = 400e-6
    hit_s: float = 5e-6
    counts_traffic: bool = True
    noise: float = 0.0
    disturbed: float = 0.0
    seed: int = 0
    cost_s: float = 2.0

    def misses(self, workload: Workload) -> tuple[float, float]:
        """Shares of reads and of writes that go to the device."""
        caches = (self.read_cache_bytes, self.write_cache_bytes)
        read, write = (max(0.0, 1 - cache / workload.unique_bytes) for cache in caches)
        return read, write

    def measure(self, step: Step) -> Point:
        """A point; its noise depends on seed and workload only."""
        workload = step.workload
        generator = random.Random(hashlib.sha256(f"{self.seed} {step.seed} {workload}".encode()).digest())
        read, write = self.misses(workload)
        share = workload.read_frac
        request_s = self.hit_s + workload.size_mean / 4e9
        request_s += (share * read * self.fetch_s + (1 - share) * write * self.store_s) * (1 - 0.5 * workload.seq_frac)
        throughput = workload.size_mean / request_s * min(workload.process_num, 2) ** 0.8
        throughput *= max(0.3, 1 + generator.gauss(0, 1) * self.noise)
        disturbed = generator.random() < self.disturbed
        if disturbed:
            throughput *= generator.uniform(0.2, 0.6)
        run_s = min(self.cost_s, step.max_seconds)
        return Point(
            workload=workload,
            throughput_bytes_per_s=throughput,
            ci95_half_width_bytes_per_s=0.02 * throughput,
            steady=not disturbed,
            elapsed_s=run_s,
            cost_s=run_s + 0.2,
            device_frac=share * read + (1 - share) * write if self.counts_traffic else None,
        )
