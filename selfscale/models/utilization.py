# SPDX-License-Identifier: Apache-2.0
"""Turns points into utilization profiles: seconds per overhead at every resource (Lee 1993, 5.1 to 5.4).

The service time of a mean request at a resource is k . f (equation 5.2): f counts the overheads of the request (one per
request, one per byte, by direction; those of the device only for the share that misses the cache), k are the resource's
seconds per overhead. The machine is a black box (5.3): the resource that takes longest is the bottleneck, and where
there are N equal ones of it N / T = k . f, with T requests per second (5.24). The processes themselves are one of the
resources, with N = processNum: a process waits for everything, so it is the bottleneck as long as nothing else is
saturated.

Which point belongs to which resource is found as Lee does by hand: assign, regress, assign again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from characterize.errors import FlextraceError
from characterize.workload import Workload
from selfscale.measure import Point
from selfscale.models.measured import Columns, Measured, beyond, columns, measured, miss_frac, ranges_of, region_of
from selfscale.models.predicted import EXTRAPOLATED, predictions
from selfscale.profile import Region

if TYPE_CHECKING:
    import pandas as pd

RESOURCES = ("process", "shared", "device")
"""What may be the bottleneck: each process alone; what all share, such as processors and locks; the device."""
POINTS_MIN = 16
ROUNDS_MAX = 40
CACHE_ROUNDS_MAX = 4
CACHE_FACTORS = np.geomspace(0.85, 1.18, 9)
"""The caches that explain the points best are looked for around the borders of the profile."""
KIB = 1024.0


class UtilizationModel:
    """Requests per second = 1 / largest of (k . f / N) over the resources.

    Attributes
    ----------
    profiles : ndarray, shape (3, 8)
        Seconds per overhead, a row per resource of `RESOURCES`, a column per overhead of `overheads`.
    read_cache_bytes, write_cache_bytes : float
        Behind which reads miss, and behind which writes reach storage: the limit on dirty pages lies before the cache.
    """

    name = "utilization"

    def fit(self, points: Sequence[Point], regions: Sequence[Region]) -> Self:
        """Find the utilization profiles, for several sizes of the cache around the measured border.

        Raises
        ------
        FlextraceError
            There are fewer points than the overheads of two resources.
        """
        data = measured(points)
        if len(data.indices) < POINTS_MIN:
            raise FlextraceError(
                f"{len(data.indices)} points are too few for utilization profiles: {POINTS_MIN} are needed"
            )
        self._regions = list(regions)
        self._points_used = data.indices.tolist()
        self._ranges = ranges_of([points[index].workload for index in data.indices])
        candidates = [factor * area.high_bytes for area in regions[:-1] for factor in CACHE_FACTORS]
        candidates = candidates or [self._ranges["uniqueBytes"][1]]
        self._error = np.inf
        self._tried: set[tuple[float, float]] = set()
        for cache_bytes in candidates:
            self._try_caches(data, cache_bytes, cache_bytes)
        # The first pair may be that of writes, where these fall the most.
        for _ in range(CACHE_ROUNDS_MAX):
            before = self._error
            for cache_bytes in candidates:
                self._try_caches(data, cache_bytes, self.write_cache_bytes)
            for cache_bytes in candidates:
                self._try_caches(data, self.read_cache_bytes, cache_bytes)
            if len(regions) <= 1 or self._error == before:
                break
        return self

    def _try_caches(self, data: Measured, read_cache_bytes: float, write_cache_bytes: float) -> None:
        """Keep these if they explain the points better than those before."""
        if (read_cache_bytes, write_cache_bytes) in self._tried:
            return
        self._tried.add((read_cache_bytes, write_cache_bytes))
        transform = overheads(data.columns, read_cache_bytes, write_cache_bytes)
        service_s = np.log(data.columns.size_mean) - data.log_throughput
        profiles = _regress(transform, data.columns.process_num, np.exp(service_s))
        error = _log_service(profiles, transform, data.columns.process_num) - service_s
        if (mean := float(np.mean(np.abs(error)))) < self._error:
            self._error, self.profiles = mean, profiles
            self.read_cache_bytes, self.write_cache_bytes = read_cache_bytes, write_cache_bytes
            self._sigma = float(np.sqrt(np.mean(error**2)))

    def again(self) -> UtilizationModel:
        """The same model, not fitted."""
        return UtilizationModel()

    def predict(self, workloads: Sequence[Workload]) -> pd.DataFrame:
        """Throughput with the bottleneck named; the interval is the scatter of the measured points around the model."""
        table = columns(workloads)
        transform = overheads(table, self.read_cache_bytes, self.write_cache_bytes)
        seconds = _seconds(self.profiles, transform, table.process_num)
        found = predictions(
            table.size_mean / seconds.max(axis=1),
            self._sigma,
            regions=[region_of(self._regions, workload.unique_bytes) for workload in workloads],
            points_used=self._points_used,
            outside=[beyond(self._ranges, workload) for workload in workloads],
            said=EXTRAPOLATED,
        )
        bottlenecks = [f"bottleneck: {RESOURCES[index]}" for index in seconds.argmax(axis=1)]
        notes: Any = [[one, *others] for one, others in zip(bottlenecks, found["notes"], strict=True)]
        return found.assign(notes=notes)


def overheads(table: Columns, read_cache_bytes: float, write_cache_bytes: float) -> np.ndarray:
    """The throughput transform f: how many of each overhead a mean request has, shape (n, 8).

    Per request and per KiB, of reads and of writes; then per missing request that is not sequential and per missing
    KiB, of reads and of writes.
    """
    read, size = table.read_frac, table.size_mean / KIB
    write = 1 - read
    missed_read = read * miss_frac(table.unique_bytes, read_cache_bytes)
    missed_write = write * miss_frac(table.unique_bytes, write_cache_bytes)
    random = 1 - table.seq_frac
    parts = [read, read * size, write, write * size]
    parts += [missed_read * random, missed_read * size, missed_write * random, missed_write * size]
    return np.column_stack(parts)


def _seconds(profiles: np.ndarray, transform: np.ndarray, process_num: np.ndarray) -> np.ndarray:
    """Seconds per request that every resource allows, shape (n, 3): k . f / N."""
    service = transform @ profiles.T
    service[:, 0] /= process_num
    return np.maximum(service, 1e-12)


def _log_service(profiles: np.ndarray, transform: np.ndarray, process_num: np.ndarray) -> np.ndarray:
    return np.log(_seconds(profiles, transform, process_num).max(axis=1))


def _regress(transform: np.ndarray, process_num: np.ndarray, service_s: np.ndarray) -> np.ndarray:
    """Assign every point to its bottleneck and regress every resource on its points, until that comes again.

    Each point weighs as its relative error: the squares of (k . f / N) / service - 1 are summed.
    """
    from scipy.optimize import nnls  # noqa: PLC0415

    # A resource regresses on what it can see: the device sees misses only.
    visible = {0: slice(8), 1: slice(4), 2: slice(4, 8)}
    servers = np.column_stack([process_num, np.ones_like(process_num), np.ones_like(process_num)])
    # At first everything with one process waits for itself; with several, misses wait for the device.
    misses = transform[:, 4:].sum(axis=1) > 0.1 * transform[:, :4].sum(axis=1)
    owner = np.where(process_num == 1, 0, np.where(misses, 2, 1))
    best, best_error = np.zeros((3, 8)), np.inf
    profiles = np.zeros((3, 8))
    states: set[bytes] = set()
    for _ in range(ROUNDS_MAX):
        # This decides all rounds to come; often some points go to and fro between two resources for ever.
        state = owner.tobytes() + profiles[~np.isin(np.arange(3), owner)].tobytes()
        if state in states:
            break
        states.add(state)
        for resource, seen in visible.items():
            mine = owner == resource
            if not mine.any():
                continue
            weight = 1 / (servers[mine, resource] * service_s[mine])
            profiles[resource] = 0
            try:
                solution = nnls(transform[mine, seen] * weight[:, None], np.ones(mine.sum()))[0]
            except RuntimeError as too_many_steps:
                raise FlextraceError(f"no utilization profile was found: {too_many_steps}") from too_many_steps
            profiles[resource, seen] = solution
        seconds = _seconds(profiles, transform, process_num)
        error = float(np.mean(np.abs(np.log(seconds.max(axis=1) / service_s))))
        if error < best_error:
            best, best_error = profiles.copy(), error
        owner = seconds.argmax(axis=1)
    return best
