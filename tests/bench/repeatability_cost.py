# SPDX-License-Identifier: Apache-2.0
"""Turns two passes over random workloads into what they differed by, in every region, and the time that they took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from selfscale.measure import Point

if TYPE_CHECKING:
    from tests.bench.predict_figures import Results

NO_TIME = {"both took": "-", "a workload": "-"}
"""Of points in older files, which do not have it."""


def repeatability_cost(machines: Sequence[Results]) -> pd.DataFrame:
    """Median error of the second measurement, without a verdict, and the time of both with all that is needed beside
    the runs."""
    rows = []
    for one in machines:
        cost_s, twice = _cost_s(one), np.isfinite(one.again)
        places = {f"region {index + 1}": twice & (one.regions == index) for index in range(len(one.profile.regions))}
        for place, chosen in {"all": twice, **places}.items():
            count, both_s = int(chosen.sum()), float(cost_s[chosen].sum())
            if count:
                error = np.median(np.abs(one.again - one.measured)[chosen] / one.measured[chosen])
                times = {"both took": f"{both_s:.0f} s", "a workload": f"{both_s / count:.1f} s"} if both_s else NO_TIME
                cells = {"workloads": count, "median": f"{100 * error:.1f} %", **times}
                rows.append({"machine": one.name, "where": place, **cells})
    return pd.DataFrame(rows)


def _cost_s(one: Results) -> np.ndarray:
    """Of every random workload, both measurements together."""
    total_s = dict.fromkeys(one.workloads, 0.0)
    for repeat in (0, 1):
        for point in map(Point.from_document, one.record.get(f"random {repeat}", [])):
            if point.role == "random" and point.workload in total_s:
                total_s[point.workload] += point.cost_s
    return np.array([total_s[workload] for workload in one.workloads])
