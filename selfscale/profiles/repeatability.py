# SPDX-License-Identifier: Apache-2.0
"""Turns points into how far equal measurements lay apart, minutes apart (thesis, table 5.1), and where they went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from characterize.workload import Workload
from selfscale.measure import Point

if TYPE_CHECKING:
    from selfscale.profile import Region

DEGREES_MIN = 3
"""Fewer repetitions tell no scatter: of three the 95 % interval is 3.2 standard errors wide on each side."""


@dataclass(frozen=True)
class Repeatability:
    """How far equal measurements lay apart.

    Attributes
    ----------
    median, p90, largest : float or None
        Of |difference| / mean of workloads that were measured again; None without any.
    repeated : int
        Workloads measured more than once.
    points, unsteady : int
        All, and those that were not steady.
    """

    median: float | None
    p90: float | None
    largest: float | None
    repeated: int
    points: int
    unsteady: int


def spreads_of(points: Sequence[Point], regions: Sequence[Region]) -> dict[Workload, float]:
    """|difference| / mean of the workloads that were measured more than once: random ones, probes of sizes and
    processes, and focal points whatever they were measured for; not the rest of a curve, where what looked disturbed
    is measured again."""
    return {
        workload: (max(values) - min(values)) / float(np.mean(values))
        for workload, values in _repeated(points, regions).items()
    }


def repeat_error(points: Sequence[Point], regions: Sequence[Region]) -> float:
    """95 % half-width of the ln(throughput) of one measurement, by how far all equal ones lay apart.

    Two measurements of one workload say next to nothing of their scatter; those of all workloads together do, taken to
    scatter alike. 0 where there are fewer than `DEGREES_MIN` repetitions to tell.
    """
    from scipy.special import stdtrit  # noqa: PLC0415 (a second of import time that other verbs need not pay)

    groups = [np.log(values) for values in _repeated(points, regions).values()]
    degrees = sum(len(values) - 1 for values in groups)
    if degrees < DEGREES_MIN:
        return 0.0
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in groups)
    return float(stdtrit(degrees, 0.975)) * math.sqrt(squares / degrees)


def _repeated(points: Sequence[Point], regions: Sequence[Region]) -> dict[Workload, list[float]]:
    """Throughputs of the workloads that were measured more than once, of those that `spreads_of` counts."""
    focal_points = {region.focal for region in regions}
    groups: dict[Workload, list[float]] = {}
    for point in points:
        counts = point.role in {"reference", "explore", "random"} or point.workload in focal_points
        if point.throughput_bytes_per_s > 0 and counts:
            groups.setdefault(point.workload, []).append(point.throughput_bytes_per_s)
    return {workload: values for workload, values in groups.items() if len(values) > 1}


def repeatability(points: Sequence[Point], regions: Sequence[Region]) -> Repeatability:
    """How far equal measurements lay apart, by `spreads_of`."""
    spreads = list(spreads_of(points, regions).values())
    return Repeatability(
        float(np.median(spreads)) if spreads else None,
        float(np.quantile(spreads, 0.9)) if spreads else None,
        max(spreads, default=None),
        len(spreads),
        len(points),
        sum(not point.steady for point in points),
    )


def drift_of(points: Sequence[Point], regions: Sequence[Region]) -> dict[str, Any]:
    """Per region: throughputs of its focal point, whatever it was measured for, their spread, and last to first."""
    found = []
    for index, region in enumerate(regions):
        values = [point.throughput_bytes_per_s for point in points if point.workload == region.focal]
        if len(values) < 2 or min(values) <= 0:
            continue
        mean = sum(values) / len(values)
        found.append(
            {
                "region": index,
                "throughput_bytes_per_s": values,
                "spread": (max(values) - min(values)) / mean,
                "last_to_first": values[-1] / values[0] - 1,
            }
        )
    return {"reference_points": found}
