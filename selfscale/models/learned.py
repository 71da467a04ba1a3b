# SPDX-License-Identifier: Apache-2.0
"""Turns points into a formula of service times and a Gaussian process over what the formula misses.

The mean of ln(throughput) is `selfscale.models.service_time`, which knows caches, devices and processors; the rest is
`selfscale.models.residual`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfscale.measure import Point
from selfscale.models.measured import Measured
from selfscale.models.residual import ResidualModel
from selfscale.models.service_time import ServiceTimes, fit_service_times
from selfscale.profile import Region


class LearnedModel(ResidualModel[ServiceTimes]):
    """ln(throughput) = service times + Gaussian process.

    Parameters
    ----------
    environment : mapping, optional
        Of the profile, which tells how many processors there are.
    """

    name = "learned"

    def __init__(self, environment: Mapping[str, Any] | None = None, start: LearnedModel | None = None):
        super().__init__(start)
        self._environment = environment or {}

    def fit_formula(self, points: Sequence[Point], data: Measured, regions: Sequence[Region]) -> ServiceTimes:
        """The service times."""
        return service_times_of(data, regions, self._environment, self._start.formula if self._start else None)

    def again(self) -> LearnedModel:
        """The same model, whose constants are searched from those found; not fitted."""
        return LearnedModel(self._environment, self)

    @property
    def service_times(self) -> ServiceTimes:
        """The formula."""
        return self.formula


def service_times_of(
    data: Measured, regions: Sequence[Region], environment: Mapping[str, Any], start: ServiceTimes | None = None
) -> ServiceTimes:
    """The formula fitted to points, with the borders of the regions to choose from."""
    # Without a border nothing missed: the cache is larger than what was touched.
    borders = [region.high_bytes for region in regions[:-1]] or [4 * float(data.columns.unique_bytes.max())]
    return fit_service_times(data, borders, environment.get("cpus") or 0, start)
