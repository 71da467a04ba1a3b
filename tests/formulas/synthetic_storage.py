# SPDX-License-Identifier: Apache-2.0
"""Turns a workload into the exact throughput of a closed queueing network: a machine richer than any model here.

Stations: processors (several), a lock, the device's command slots (several) and its bandwidth. Customers: the processes
of the workload. Solved by exact mean value analysis; several servers by Seidmann's approximation. Nothing of it is
shared with `selfscale.models`.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

import numpy as np

from characterize.workload import Workload
from selfscale.exploring.plan import Step
from selfscale.measure import Point

MIB = 1 << 20
PAGE = 4096
READ_AHEAD = 128 * 1024


@dataclass
class StorageMachine:
    """A page cache under LRU with uniform access before a device.

    Attributes
    ----------
    cache_bytes : float
        A read of uniform depth hits with probability cache / uniqueBytes.
    dirty_bytes : float
        As much stays dirty; what else is written is written back while the workload runs, as Linux was measured to do
        (docs/decisions/0016-models-and-their-choice.md).
    access_s, write_access_s : float
        Device latency of a read that is not sequential, and of a written-back extent.
    noise : float
        Standard deviation of ln(throughput); `disturbed` is the share of points that run at 0.3 to 0.7 of it.
    """

    cache_bytes: float = 128 * MIB
    dirty_bytes: float = 64 * MIB
    cpus: int = 2
    call_s: float = 1.5e-6
    write_call_s: float = 2.5e-6
    copy_bytes_per_s: float = 9e9
    far_copy_bytes_per_s: float = 5e9
    processor_cache_bytes: float = 24 * MIB
    lock_s: float = 0.4e-6
    access_s: float = 90e-6
    write_access_s: float = 25e-6
    slots: int = 8
    device_bytes_per_s: float = 1.2e9
    noise: float = 0.03
    disturbed: float = 0.0
    seed: int = 0
    measured: list[Step] = field(default_factory=list)

    def demands(self, workload: Workload) -> dict[str, float]:
        """Seconds of a mean request at every station."""
        size, read, sequential = workload.size_mean, workload.read_frac, workload.seq_frac
        miss = max(0.0, 1 - self.cache_bytes / workload.unique_bytes)
        spilled = max(0.0, 1 - self.dirty_bytes / workload.unique_bytes)
        far = max(0.0, 1 - self.processor_cache_bytes / workload.unique_bytes)
        copy = size * ((1 - far) / self.copy_bytes_per_s + far / self.far_copy_bytes_per_s)
        write = 1 - read
        # Sequential misses share read-ahead windows; a write of less than a page must read the page first.
        seeks = (1 - sequential) + sequential * min(1.0, size / READ_AHEAD)
        partial = write * miss * max(0.0, 1 - size / PAGE)
        reads = read * miss * seeks + partial
        written_pages = max(size, PAGE) * write * spilled
        return {
            "cpu": read * self.call_s + write * self.write_call_s + copy + size / PAGE * 0.15e-6 * (miss + 0.2),
            "lock": self.lock_s + write * 0.3e-6 * (size / PAGE) ** 0.5,
            "slots": reads * self.access_s,
            "write_slots": write * spilled * (1 - 0.7 * sequential) * self.write_access_s,
            "bandwidth": (read * miss * max(size, PAGE) + partial * PAGE + 1.3 * written_pages)
            / self.device_bytes_per_s,
        }

    def throughput(self, workload: Workload) -> float:
        """Bytes per second without noise."""
        demands = self.demands(workload)
        # Writing back is asynchronous: it loads the device but no process waits for its latency.
        stations = [
            (demands["cpu"], self.cpus),
            (demands["lock"], 1),
            (demands["slots"], self.slots),
            (demands["bandwidth"], 1),
        ]
        queueing = np.array([demand / servers for demand, servers in stations])
        delay = sum(demand * (servers - 1) / servers for demand, servers in stations)
        length = np.zeros(len(stations))
        rate = 0.0
        for customers in range(1, int(workload.process_num) + 1):
            residence = queueing * (1 + length)
            rate = customers / (delay + residence.sum())
            length = rate * residence
        writeback_s = demands["write_slots"] / self.slots + demands["bandwidth"]
        return workload.size_mean * min(rate, 1 / writeback_s if writeback_s > 0 else rate)

    def device_frac(self, workload: Workload) -> float:
        """Bytes from and to storage over bytes moved."""
        return self.demands(workload)["bandwidth"] * self.device_bytes_per_s / workload.size_mean

    def measure(self, step: Step) -> Point:
        """A point; its noise depends on seed and workload only."""
        self.measured.append(step)
        text = f"{self.seed} {step.seed} {step.workload}".encode()
        generator = random.Random(hashlib.sha256(text).digest())
        throughput = self.throughput(step.workload) * np.exp(generator.gauss(0, 1) * self.noise)
        disturbed = generator.random() < self.disturbed
        if disturbed:
            throughput *= generator.uniform(0.3, 0.7)
        run_s = min(step.max_seconds, 1.5 if step.workload.unique_bytes < self.cache_bytes else 4.0)
        return Point(
            workload=step.workload,
            throughput_bytes_per_s=float(throughput),
            ci95_half_width_bytes_per_s=float(1.96 * self.noise * throughput),
            response_time={"read": {"mean_ns": 1.0}, "write": {"mean_ns": 2.0}},
            steady=not disturbed,
            elapsed_s=run_s,
            cost_s=run_s + 0.5,
            device_frac=self.device_frac(step.workload),
        )


SSD = {"access_s": 90e-6}
"""One command takes 90 us, eight at once, 1.2 GB/s."""
DISK = {
    "access_s": 5e-3,
    "write_access_s": 2e-3,
    "slots": 1,
    "device_bytes_per_s": 180e6,
    "cache_bytes": 256 * MIB,
    "dirty_bytes": 60 * MIB,
}
"""A disk with an arm."""
RAM = {
    "access_s": 6e-6,
    "write_access_s": 4e-6,
    "slots": 2,
    "device_bytes_per_s": 3e9,
    "cpus": 4,
    "lock_s": 1.2e-6,
    "cache_bytes": 64 * MIB,
    "dirty_bytes": 64 * MIB,
}
"""A memory-backed device behind a contended lock: a miss costs little."""
