# SPDX-License-Identifier: Apache-2.0
"""Turns points and what the kernel says of a machine into a simulated page cache, a formula of what its traffic takes,
and a Gaussian process over what both miss.

What storage has to do for a workload is not fitted but gone through (`selfscale.simulation.traffic`), with the size of
the cache that was found, the kernel's limit on dirty pages and its largest window of read-ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from characterize.errors import FlextraceError
from selfscale.direction_caches import file_cache_size
from selfscale.measure import Point
from selfscale.models.measured import Measured
from selfscale.models.residual import ResidualModel
from selfscale.models.traffic_time import CacheLimits, TrafficTimes, fit_traffic_times
from selfscale.profile import Region

NEEDED = ("cache_limit_bytes", "read_ahead_bytes", "dirty_limit_bytes")


class TrafficModel(ResidualModel[TrafficTimes]):
    """ln(throughput) = times of simulated traffic + Gaussian process.

    Parameters
    ----------
    environment : mapping
        Of the profile (`selfscale.environment.environment`), if it was measured through the page cache.
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
        return fit_traffic_times(data, start.limits if start else self._limits(points, regions), start)

    def _limits(self, points: Sequence[Point], regions: Sequence[Region]) -> CacheLimits:
        cache_bytes = file_cache_size(points, regions, [region.high_bytes for region in regions[:-1]])
        return CacheLimits(
            # Without a border nothing missed: all that there may be was cached.
            cache_bytes or self._environment["cache_limit_bytes"],
            self._environment["read_ahead_bytes"],
            self._environment["dirty_limit_bytes"],
        )

    def again(self) -> TrafficModel:
        """The same model with the hyper-parameters found, not fitted."""
        return TrafficModel(self._environment, self)
