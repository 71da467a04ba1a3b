# SPDX-License-Identifier: Apache-2.0
"""Turns a profile and a workload into an estimated throughput, by a model's name."""

from __future__ import annotations

import math
from dataclasses import dataclass

from characterize.workload import Workload
from selfscale.models import Prediction, make_model
from selfscale.profile import Profile

__all__ = ["Errors", "Prediction", "errors_on_random", "predict"]


def predict(profile: Profile, workload: Workload, model: str = "product") -> Prediction:
    """Estimate a workload's throughput on a measured machine.

    Parameters
    ----------
    profile : Profile
    workload : Workload
    model : str
        One of `selfscale.models.MODELS`.

    Raises
    ------
    FlextraceError
        No such model, the profile holds too little, or the workload lacks a parameter.
    """
    return make_model(model).fit(profile).predict(workload)


@dataclass(frozen=True)
class Errors:
    """Errors over random workloads (thesis 5.3, table 5.1), as shares.

    Attributes
    ----------
    count : int
        Random workloads measured.
    prediction_median, prediction_mean, prediction_p90, prediction_max : float
        Of |predicted - measured| / measured.
    repeatability_median : float
        The same with the second measurement in the place of the prediction; NaN if nothing was measured twice.
    """

    count: int
    prediction_median: float
    prediction_mean: float
    prediction_p90: float
    prediction_max: float
    repeatability_median: float


def errors_on_random(profile: Profile, model: str = "product") -> Errors | None:
    """Prediction and repeatability error over the random points of a profile; None if it has none."""
    import numpy as np  # noqa: PLC0415

    fitted = make_model(model).fit(profile)
    random = [point for point in profile.measured if point.role == "random" and point.throughput_bytes_per_s > 0]
    first = [point for point in random if point.repeat == 0]
    second = {point.workload: point.throughput_bytes_per_s for point in random if point.repeat == 1}
    if not first:
        return None
    measured = np.array([point.throughput_bytes_per_s for point in first])
    predicted = np.array([fitted.predict(point.workload).throughput_bytes_per_s for point in first])
    error = np.abs(predicted - measured) / measured
    again = [
        abs(second[point.workload] - point.throughput_bytes_per_s) / point.throughput_bytes_per_s
        for point in first
        if point.workload in second
    ]
    return Errors(
        count=len(first),
        prediction_median=float(np.median(error)),
        prediction_mean=float(error.mean()),
        prediction_p90=float(np.quantile(error, 0.9)),
        prediction_max=float(error.max()),
        repeatability_median=float(np.median(again)) if again else math.nan,
    )
