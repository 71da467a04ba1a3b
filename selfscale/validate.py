# SPDX-License-Identifier: Apache-2.0
"""Turns a profile and a machine into the errors of its models on random workloads (thesis 5.3, 5.4, table 5.1).

The random workloads are measured in two passes of different order, so that the two measurements of a workload lie
minutes apart: measured back to back they agree better than any prediction has to. Between the passes the orthogonal
samples are measured, with at most as many points as the profile was fitted to, and with twice as many.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from characterize.errors import FlextraceError
from characterize.workload import Workload
from selfscale.exploring.plan import Step
from selfscale.exploring.sampling import orthogonal_sample, random_workload
from selfscale.measure import Point
from selfscale.models.orthogonal import OrthogonalModel
from selfscale.predicting.cross_validation import quantiles_of
from selfscale.predicting.prediction_errors import (
    MULTIPLES,
    REPEATABILITY,
    PredictionErrors,
    errors_of,
    random_workloads,
)
from selfscale.profile import Profile
from selfscale.profiles.learned_points import learned_points


@dataclass(frozen=True)
class ModelErrors:
    """One line of the table of errors.

    Attributes
    ----------
    name : str
    points : int
        That it was fitted to; 0 for the repeatability.
    errors : dict
        ``median``, ``p75``, ``p90``, ``max`` of |predicted - measured| / measured over the random workloads.
    by_region : dict
        Median by region index (as text).
    coverage : float or None
        Share of the workloads inside the 90 % interval; None for what has none.
    used : bool
        Whether ``predict`` uses this model.
    reason : str
        Why there are no errors.
    """

    name: str
    points: int
    errors: dict[str, float]
    by_region: dict[str, float]
    coverage: float | None = None
    used: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Validation:
    """What is measured for a validation, in its order.

    Attributes
    ----------
    workloads : list of Workload
        The random ones.
    samples : dict
        Multiple of the profile's points to the orthogonal sample's workloads; empty without baselines.
    steps : list of Step
    """

    workloads: list[Workload]
    samples: dict[int, list[Workload]]
    steps: list[Step]


def plan(profile: Profile, count: int, *, seconds: float, seed: int = 0, orthogonal: bool = True) -> Validation:
    """Draw the workloads and put them in order.

    Parameters
    ----------
    profile : Profile
    count : int
        Random workloads.
    seconds : float
        Longest run of one measurement.
    orthogonal : bool
        Measure the orthogonal samples too.

    Raises
    ------
    FlextraceError
        The profile is empty.
    """
    generator = random.Random(f"validate {seed}")
    workloads = [random_workload(profile, generator) for _ in range(count)]
    points = len(learned_points(profile))
    samples = {
        multiple: [workload for _, workload in orthogonal_sample(profile, multiple * points)]
        for multiple in (MULTIPLES if orthogonal else ())
    }

    def shuffled(values: Sequence[Workload]) -> list[Workload]:
        values = list(values)
        generator.shuffle(values)
        return values

    grid = shuffled(sorted({w for sample in samples.values() for w in sample}, key=repr))
    order = [("random", 0, workload) for workload in shuffled(workloads)]
    order += [("orthogonal", 0, workload) for workload in grid]
    order += [("random", 1, workload) for workload in shuffled(workloads)]
    steps = [
        Step(workload, role, seconds, repeat=repeat, number=number, planned=len(order), seed=seed + number)
        for number, (role, repeat, workload) in enumerate(order, 1)
    ]
    return Validation(workloads, samples, steps)


def validate(profile: Profile, validation: Validation, measure: Callable[[Step], Point]) -> dict[str, Any]:
    """Measure, and compare every model with what was measured first.

    Returns
    -------
    dict
        ``rows`` (list of `ModelErrors`), ``points`` (list of Point), ``dropped`` (random workloads that moved nothing).
    """
    points = [step.label(measure(step)) for step in validation.steps]
    return {"points": points, **compare_models(profile, validation, points)}


def compare_models(profile: Profile, validation: Validation, points: Sequence[Point]) -> dict[str, Any]:
    """The table of errors from the points of a finished validation."""
    first, again = random_workloads(points)
    tested = [workload for workload in validation.workloads if workload in first and workload in again]
    if not tested:
        raise FlextraceError("no random workload moved a byte in both passes: is the directory still there?")
    compared = [point for point in points if point.role != "random" or point.workload in tested]
    errors = errors_of(profile, compared, constants=_at_focal_points(profile))
    names = [REPEATABILITY, *(name for name in errors.fitted_to if name != OrthogonalModel.name)]
    return {
        "rows": [_row(errors, name) for name in names],
        "dropped": len(validation.workloads) - len(tested),
    }


def _at_focal_points(profile: Profile) -> dict[str, float]:
    """The mean throughput at each region's focal point: what a benchmark of one workload says of all others."""
    found = {}
    for index, region in enumerate(profile.regions):
        values = [
            point.throughput_bytes_per_s
            for point in profile.measured
            if point.workload == region.focal and point.role != "random" and point.throughput_bytes_per_s > 0
        ]
        if values:
            found[f"single point, focal point of region {index + 1}"] = float(np.mean(values))
    return found


def _row(errors: PredictionErrors, name: str) -> ModelErrors:
    points, used = errors.fitted_to.get(name, 0), name == errors.used
    if name in errors.unusable:
        return ModelErrors(name, points, {}, {}, used=used, reason=errors.unusable[name])
    rows = errors.of(name)
    regions = rows["region"].to_numpy()
    by_region = {str(region - 1): float(rows["error"][regions == region].median()) for region in np.unique(regions)}
    return ModelErrors(
        name, points, quantiles_of(rows["error"].to_numpy()), by_region, coverage=errors.coverage.get(name), used=used
    )
