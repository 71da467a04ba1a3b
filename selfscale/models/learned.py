# SPDX-License-Identifier: Apache-2.0
"""Turns points into a formula of service times and a Gaussian process over what the formula misses.

The mean of ln(throughput) is `selfscale.models.service_time`, which knows caches, devices and processors; the rest is
`selfscale.models.residual`.
"""

from __future__ import annotations

from collections.abc import Sequence

from selfscale.measure import Point
from selfscale.models.measured import Measured
from selfscale.models.residual import ResidualModel
from selfscale.models.service_time import ServiceTimes, fit_service_times
from selfscale.profile import Region


class LearnedModel(ResidualModel[ServiceTimes]):
    """ln(throughput) = service times + Gaussian process."""

    name = "learned"

    def fit_formula(self, points: Sequence[Point], data: Measured, regions: Sequence[Region]) -> ServiceTimes:
        """The service times."""
        return service_times_of(data, regions, self._start.formula if self._start else None)

    def again(self) -> LearnedModel:
        """The same model, whose constants are searched from those found; not fitted."""
        return LearnedModel(self)

    @property
    def service_times(self) -> ServiceTimes:
        """The formula."""
        return self.formula


def service_times_of(data: Measured, regions: Sequence[Region], start: ServiceTimes | None = None) -> ServiceTimes:
    """The formula fitted to points, with the borders of the regions to choose from."""
    # Without a border nothing missed: the cache is larger than what was touched.
    borders = [region.high_bytes for region in regions[:-1]] or [4 * float(data.columns.unique_bytes.max())]
    return fit_service_times(data, borders, start)
