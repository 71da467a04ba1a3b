# SPDX-License-Identifier: Apache-2.0
"""Turns a workload into the throughput of a machine that is a formula: what is found can be compared with it."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from characterize.workload import Workload
from selfscale.exploring.plan import Step
from selfscale.measure import Point

MIB = 1 << 20


@dataclass
class Machine:
    """Levels of a storage hierarchy with uniform random access: the share of requests that miss each level is exact.

    Attributes
    ----------
    levels : list of (cache size in bytes, seconds of a request that is served behind that cache)
    hit_s : float
        Seconds of a request of any size in the first level.
    processor_cache : tuple of (bytes, bytes per s of what is beyond it), optional
        Inside the first level.
    counts_traffic : bool
        Whether it says what went to and came from storage.
    noise : float
        Standard deviation of the throughput as a share of it.
    disturbed : float
        Share of measurements during which something else runs: 0.2 to 0.6 of the throughput, not steady.
    """

    levels: list[tuple[float, float]]
    hit_s: float = 5e-6
    processor_cache: tuple[float, float] | None = None
    counts_traffic: bool = True
    noise: float = 0.0
    disturbed: float = 0.0
    seed: int = 0
    cost_s: float = 2.0
    measured: list[Step] = field(default_factory=list)

    def throughput(self, workload: Workload) -> float:
        """Bytes per second without noise."""
        request_s = self.hit_s + workload.size_mean / 8e9
        if self.processor_cache:
            cache_bytes, bytes_per_s = self.processor_cache
            request_s += max(0.0, 1 - cache_bytes / workload.unique_bytes) * workload.size_mean / bytes_per_s
        for cache_bytes, miss_s in self.levels:
            miss = max(0.0, 1 - cache_bytes / workload.unique_bytes)
            request_s += miss * (miss_s * (1 - 0.5 * workload.seq_frac) + workload.size_mean / 2e9)
        concurrency = min(workload.process_num, 2) ** 0.9
        return workload.size_mean / request_s * concurrency * (1 + 0.2 * workload.read_frac)

    def device_frac(self, workload: Workload) -> float | None:
        """Bytes from and to storage over bytes moved."""
        if not self.counts_traffic:
            return None
        return sum(max(0.0, 1 - cache_bytes / workload.unique_bytes) for cache_bytes, _ in self.levels)

    def measure(self, step: Step) -> Point:
        """A point; its noise depends on seed and workload only, so that a resumed run sees the same machine."""
        self.measured.append(step)
        text = f"{self.seed} {step.seed} {step.workload}".encode()
        generator = random.Random(hashlib.sha256(text).digest())
        throughput = self.throughput(step.workload) * max(0.3, 1 + generator.gauss(0, 1) * self.noise)
        disturbed = generator.random() < self.disturbed
        if disturbed:
            throughput *= generator.uniform(0.2, 0.6)
        run_s = min(self.cost_s, step.max_seconds)
        return Point(
            workload=step.workload,
            throughput_bytes_per_s=throughput,
            ci95_half_width_bytes_per_s=0.02 * throughput,
            response_time={"read": {"mean_ns": 1.0}, "write": {"mean_ns": 2.0}},
            steady=not disturbed,
            elapsed_s=run_s,
            cost_s=run_s + 0.2,
            device_frac=self.device_frac(step.workload),
        )
