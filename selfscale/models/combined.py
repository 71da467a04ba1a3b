# SPDX-License-Identifier: Apache-2.0
"""Turns points into the weighted geometric mean of what `learned` and `traffic` predict.

Both err by about as much, and not on the same workloads; which errs less on a machine is not told by some tens of
points. So neither is chosen, but both count, each by the inverse square of what it is off on a point that is left out.
See docs/decisions/0016-models-and-their-choice.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from selfscale.measure import Point
from selfscale.models.learned import LearnedModel
from selfscale.models.measured import columns
from selfscale.models.residual import LogThroughput
from selfscale.models.traffic import TrafficModel
from selfscale.profile import Region

if TYPE_CHECKING:
    import pandas as pd

    from characterize.workload import Workload
    from selfscale.models.service_time import ServiceTimes


class CombinedModel:
    """ln(throughput) = weighted mean of two models'.

    Parameters
    ----------
    environment : mapping
        What `TrafficModel` has to know.
    parts : (LearnedModel, TrafficModel), optional
        Fitted already, or to be fitted by `fit`.
    """

    name = "combined"

    def __init__(self, environment: Mapping[str, Any], parts: tuple[LearnedModel, TrafficModel] | None = None):
        self._environment = environment
        self._learned, self._traffic = parts or (LearnedModel(), TrafficModel(environment))

    def fit(self, points: Sequence[Point], regions: Sequence[Region]) -> Self:
        """Fit both.

        Raises
        ------
        FlextraceError
            One of them cannot be fitted.
        """
        # First the one that may lack something, since the other takes long.
        self._traffic.fit(points, regions)
        self._learned.fit(points, regions)
        return self

    def again(self) -> CombinedModel:
        """The same model, whose constants are searched from those found; not fitted."""
        return CombinedModel(self._environment, (self._learned.again(), self._traffic.again()))

    @property
    def service_times(self) -> ServiceTimes:
        """The formula of `learned`."""
        return self._learned.service_times

    @cached_property
    def _learned_weight(self) -> float:
        weights = np.array([self._learned.left_out_error, self._traffic.left_out_error]) ** -2.0
        return float(weights[0] / weights.sum())

    def predict(self, workloads: Sequence[Workload]) -> pd.DataFrame:
        """Throughput; its interval is as wide as if both erred alike, since they learned from the same points."""
        table, weight = columns(workloads), self._learned_weight
        both = zip(self._learned.estimate(table), self._traffic.estimate(table), strict=True)
        mean = LogThroughput(*(weight * one + (1 - weight) * other for one, other in both))
        return self._learned.rows(workloads, mean)
