# SPDX-License-Identifier: Apache-2.0
"""Predicts by a formula instead of a fitted model, so that what is made of predictions can be computed by hand."""

from __future__ import annotations

from collections.abc import Callable

from characterize.workload import Workload
from selfscale.measure import Point
from selfscale.predict import Prediction
from selfscale.profile import Profile, Region
from tests.formulas.synthetic_machine import MIB

FOCAL = Workload(16 * MIB, 0.5, 0.5, 16384.0, 1.0)


class FormulaPredictor:
    """As `selfscale.predict.Predictor`, of a machine with a cache of 64 MiB and points up to 1 GiB.

    Parameters
    ----------
    throughput : callable
        Workload to bytes per s; the interval is half of it to its double.
    regions : int
        1 for a machine that was not measured beyond its cache.
    """

    def __init__(self, throughput: Callable[[Workload], float], regions: int = 2):
        self._throughput = throughput
        ends = [1.0 * MIB, 64.0 * MIB, 1024.0 * MIB]
        self.profile = Profile(
            measured=[Point(FOCAL.replace(unique_bytes=end), 1.0, 0.0) for end in ends],
            regions=[Region(ends[i], ends[i + 1], FOCAL.replace(unique_bytes=ends[i])) for i in range(regions)],
        )

    def predict(self, workload: Workload) -> Prediction:
        value = self._throughput(workload)
        return Prediction(value, value / 2, 2 * value, "formula", 0, inside_range=True)
