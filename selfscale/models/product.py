# SPDX-License-Identifier: Apache-2.0
"""Turns single parameter curves into any workload's throughput: Chen's product of single parameter functions.

Appendix B of the thesis, as published. Two things it leaves open are settled here: a value between two measured ones is
interpolated linearly in throughput, on a logarithmic axis for uniqueBytes, sizeMean and processNum; a value outside the
measured range takes the value of the nearest end, and the prediction says so.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np

from characterize.errors import FlextraceError
from characterize.workload import FIELD_OF, PARAMETERS, Workload
from selfscale.models import Prediction
from selfscale.profile import Curve, Profile

LOGARITHMIC = frozenset({"uniqueBytes", "sizeMean", "processNum"})
LEVEL = 0.90
_Z95, _Z90 = 1.959964, 1.644854


class ProductModel:
    """Throughput = focal throughput x product over parameters of (curve at target / curve at focal point)."""

    name = "product"

    def fit(self, profile: Profile) -> Self:
        """Find the curves of every region.

        Raises
        ------
        FlextraceError
            No region's focal vector was measured.
        """
        self._unique = profile.curve("uniqueBytes", None) if profile.regions else None
        self._regions: list[int] = []
        self._focal: dict[int, Workload] = {}
        self._curves: dict[int, dict[str, Curve]] = {}
        for index, region in enumerate(profile.regions):
            curves = {name: profile.curve(name, index) for name in PARAMETERS if name != "uniqueBytes"}
            if self._unique is not None and any(len(curve.x) for curve in curves.values()):
                self._regions.append(index)
                self._focal[index] = region.focal
                self._curves[index] = {"uniqueBytes": self._unique, **curves}
        if not self._regions:
            raise FlextraceError(
                f"profile {profile.path or ''} cannot predict: no region's focal vector was measured; "
                "finish it with 'flextrace scale --resume', or with a larger --budget"
            )
        self._random_error = self._error_on_random(profile)
        return self

    def predict(self, workload: Workload) -> Prediction:
        """Appendix B, steps (1) and (2), with an interval and a flag for targets outside the measured range.

        Raises
        ------
        FlextraceError
            A parameter of the workload is not a number.
        """
        for name in PARAMETERS:
            if not math.isfinite(getattr(workload, FIELD_OF[name])):
                raise FlextraceError(f"cannot predict a workload without {name}: give it, or a trace with requests")
        region = self.choose_region(workload.unique_bytes)
        focal, curves = self._focal[region], self._curves[region]
        performance, variance = self._focal_performance(region)
        used: set[int] = set()
        outside = []
        for name in PARAMETERS:
            curve, target = curves[name], getattr(workload, FIELD_OF[name])
            if not len(curve.x):
                outside.append(name)
                continue
            at_focal, _, indices_focal = _at(curve, getattr(focal, FIELD_OF[name]))
            at_target, relative_error, indices = _at(curve, target)
            performance *= at_target / at_focal
            used.update(indices_focal, indices)
            if target != getattr(focal, FIELD_OF[name]):
                variance += relative_error**2
            if not curve.x[0] * (1 - 1e-9) <= target <= curve.x[-1] * (1 + 1e-9):
                outside.append(name)
        spread = math.exp(max(math.sqrt(variance) * _Z90 / _Z95, self._random_error or 0.0))
        return Prediction(
            throughput_bytes_per_s=performance,
            interval_low=performance / spread,
            interval_high=performance * spread,
            model=self.name,
            region=region,
            inside_range=not outside,
            points_used=sorted(used),
            extended_note=self._note(),
            outside=outside,
        )

    def choose_region(self, unique_bytes: float) -> int:
        """Step (1): of the focal points on both sides of uniqueBytes, the one whose performance is closer."""
        assert self._unique is not None
        below = [index for index in self._regions if self._focal[index].unique_bytes <= unique_bytes]
        above = [index for index in self._regions if self._focal[index].unique_bytes >= unique_bytes]
        if not below or not above:
            return (below or above)[-1 if below else 0]
        less = max(below, key=lambda index: self._focal[index].unique_bytes)
        more = min(above, key=lambda index: self._focal[index].unique_bytes)
        performance = _at(self._unique, unique_bytes)[0]
        to_less = abs(performance - self._focal_performance(less)[0])
        to_more = abs(performance - self._focal_performance(more)[0])
        return less if to_less < to_more else more

    def _focal_performance(self, region: int) -> tuple[float, float]:
        """Throughput at a region's focal vector and the square of its relative half-width."""
        assert self._unique is not None
        value, relative_error, _ = _at(self._unique, self._focal[region].unique_bytes)
        return value, relative_error**2

    def _note(self) -> str:
        covers = "interval covers the noise of the measured curves"
        if self._random_error is not None:
            covers += f" and the error on random workloads ({math.expm1(self._random_error):.0%})"
        else:
            covers += ", not the error of the model; 'flextrace scale --random 20' measures that"
        return f"{covers}; classic behaviour: warm cache, overwrites, buffered, no sync, no think time"

    def _error_on_random(self, profile: Profile) -> float | None:
        """90 % quantile of |ln(measured / predicted)| over the random points, rank by n + 1 as conformal prediction."""
        self._random_error = None
        errors = []
        for point in profile.measured:
            if point.role == "random" and point.throughput_bytes_per_s > 0:
                predicted = self.predict(point.workload).throughput_bytes_per_s
                errors.append(abs(math.log(point.throughput_bytes_per_s / predicted)))
        if not errors:
            return None
        rank = min(len(errors), math.ceil((len(errors) + 1) * LEVEL))
        return sorted(errors)[rank - 1]


def _at(curve: Curve, value: float) -> tuple[float, float, tuple[int, ...]]:
    """Throughput of a curve at a value, its relative 95 % half-width, and the points behind it."""
    axis = np.log if curve.parameter in LOGARITHMIC else np.asarray
    x, target = axis(curve.x), float(axis(max(value, 1e-12)))
    right = int(np.clip(np.searchsorted(x, target), 0, len(x) - 1))
    left = right if x[right] <= target or right == 0 else right - 1
    share = (target - x[left]) / (x[right] - x[left]) if right > left else 0.0
    throughput = float(np.interp(target, x, curve.throughput))
    error = math.hypot((1 - share) * _finite(curve.half_width_95[left]), share * _finite(curve.half_width_95[right]))
    return throughput, error / throughput, curve.indices[left] + (curve.indices[right] if share > 0 else ())


def _finite(half_width: float) -> float:
    """A point with too few intervals has no half-width: its *steady* flag speaks for it."""
    return float(half_width) if math.isfinite(half_width) else 0.0
