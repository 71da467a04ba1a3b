# SPDX-License-Identifier: Apache-2.0
"""Turns points and what the kernel says of a machine into a simulated page cache, a formula of what its traffic takes,
and a Gaussian process over what both miss.

What storage has to do for a workload is not fitted but gone through (`selfscale.simulation.traffic`), with the size of
the cache that was found, the kernel's limit on dirty pages and its largest window of read-ahead. One thing the kernel
does not say, how many requests storage takes from the flusher at once: that which explains best what storage wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from characterize.errors import FlextraceError
from selfscale.measure import Point
from selfscale.models.measured import Measured, columns
from selfscale.models.read_ahead import PAGE_BYTES
from selfscale.models.residual import ResidualModel
from selfscale.models.traffic_time import CacheLimits, TrafficTimes, fit_traffic_times, simulated
from selfscale.profile import Region
from selfscale.profiles.direction_caches import file_cache_size
from selfscale.simulation.dirty_limits import BACKGROUND_FRAC
from selfscale.simulation.read_ahead_rules import read_ahead_rules

NEEDED = ("cache_limit_bytes", "dirty_limit_bytes")
QUEUES = (None, 512, 256, 128)
"""Requests that storage takes from the flusher at once: any number, as a limit on requests per second does, or several
times what a device has (nr_requests), since the flusher is also held up by processors."""
COUNTED_MIN, COUNTED_MAX = 10, 40
"""Points that tell which: with fewer it is any number, and more are not simulated for it."""
NOTHING_FRAC = 0.02
"""Added to shares of writes before they are compared: less than that does not count."""


class TrafficModel(ResidualModel[TrafficTimes]):
    """ln(throughput) = times of simulated traffic + Gaussian process.

    Parameters
    ----------
    environment : mapping
        Of the profile (`selfscale.measuring.environment.environment`), if it was measured through the page cache.
    """

    name = "traffic"

    def __init__(self, environment: Mapping[str, Any], start: TrafficModel | None = None):
        super().__init__(start)
        self._environment = environment

    def fit_formula(self, points: Sequence[Point], data: Measured, regions: Sequence[Region]) -> TrafficTimes:
        """The times of what is simulated.

        Raises
        ------
        FlextraceError
            The environment lacks what the simulation has to know.
        """
        if missing := [name for name in NEEDED if not self._environment.get(name)]:
            raise FlextraceError(
                f"a page cache is simulated with {', '.join(missing)}, which the profile does not tell: it was not "
                "measured through the page cache, or by an earlier version"
            )
        start = self._start.formula if self._start else None
        limits = start.limits if start else self._limits(points, regions)
        return fit_traffic_times(data, limits, start)

    def _limits(self, points: Sequence[Point], regions: Sequence[Region]) -> CacheLimits:
        cache_bytes = file_cache_size(points, regions, [region.high_bytes for region in regions[:-1]])
        limits = CacheLimits(
            # Without a border nothing missed: all that there may be was cached.
            cache_bytes or self._environment["cache_limit_bytes"],
            self._environment["dirty_limit_bytes"],
            read_ahead_rules(self._environment),
        )
        return replace(limits, queue=_queue(points, limits))

    def again(self) -> TrafficModel:
        """The same model, whose constants are searched from those found; not fitted."""
        return TrafficModel(self._environment, self)


def _queue(points: Sequence[Point], limits: CacheLimits) -> int | None:
    """The one of `QUEUES` with which storage writes what it wrote, in bytes and in requests."""
    counted = [
        point
        for point in points
        if point.device_writes is not None
        and point.device_write_frac is not None
        and point.workload.read_frac < 1
        and point.workload.size_mean >= PAGE_BYTES
        and point.workload.unique_bytes > BACKGROUND_FRAC * limits.dirty_limit_bytes
    ]
    if len(counted) < COUNTED_MIN:
        return None
    chosen = [counted[round(place)] for place in np.linspace(0, len(counted) - 1, min(COUNTED_MAX, len(counted)))]
    table = columns([point.workload for point in chosen])
    wrote = np.array([(point.device_write_frac, point.device_writes) for point in chosen], float).T

    def error(queue: int | None) -> float:
        traffic = simulated(table, replace(limits, queue=queue))
        told = (1 - table.read_frac) * np.array([traffic.written_frac, traffic.writes])
        return float(np.abs(np.log((told + NOTHING_FRAC) / (wrote + NOTHING_FRAC))).mean())

    return min(QUEUES, key=error)
