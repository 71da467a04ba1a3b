# SPDX-License-Identifier: Apache-2.0
"""Turns points into the mean of two models that err for different reasons: `learned` and `traffic`.

Of ln(throughput), so that half and twice as much cancel. What the formula of the one gets wrong of storage's traffic,
and what the page cache of the other leaves out, have little to do with each other
(docs/decisions/0016-models-and-their-choice.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from characterize.workload import Workload
from selfscale.measure import Point
from selfscale.models.learned import LearnedModel
from selfscale.models.traffic import TrafficModel
from selfscale.profile import Region

if TYPE_CHECKING:
    import pandas as pd


class CombinedModel:
    """The geometric mean of the throughputs of two models.

    Parameters
    ----------
    environment : mapping
        As `selfscale.models.traffic.TrafficModel` takes it.
    start : CombinedModel, optional
        Fitted to nearly the same points.
    """

    name = "combined"

    def __init__(self, environment: Mapping[str, Any], start: CombinedModel | None = None):
        self._environment = environment
        self._traffic: TrafficModel = start._traffic.again() if start else TrafficModel(environment)
        self._learned: LearnedModel = start._learned.again() if start else LearnedModel()

    def fit(self, points: Sequence[Point], regions: Sequence[Region]) -> Self:
        """Fit both.

        Raises
        ------
        FlextraceError
            One of them cannot be fitted.
        """
        self._traffic.fit(points, regions)
        self._learned.fit(points, regions)
        return self

    def again(self) -> CombinedModel:
        """The same model with the hyper-parameters found, not fitted."""
        return CombinedModel(self._environment, self)

    def predict(self, workloads: Sequence[Workload]) -> pd.DataFrame:
        """The mean; the interval has what both know of their uncertainty, and half of the distance between them."""
        table, other = self._traffic.predict(workloads), self._learned.predict(workloads)
        logarithms = [np.log(one["throughput_bytes_per_s"].to_numpy()) for one in (table, other)]
        widths = [
            np.log(one["interval_high"].to_numpy()) - logarithm
            for one, logarithm in zip((table, other), logarithms, strict=True)
        ]
        throughput = np.exp((logarithms[0] + logarithms[1]) / 2)
        width = np.exp((widths[0] + widths[1]) / 2 + np.abs(logarithms[0] - logarithms[1]) / 2)
        return table.assign(
            throughput_bytes_per_s=throughput, interval_low=throughput / width, interval_high=throughput * width
        )
