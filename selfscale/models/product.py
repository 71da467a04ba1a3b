# SPDX-License-Identifier: Apache-2.0
"""Turns single parameter curves into any workload's throughput: Chen's product of single parameter functions.

Appendix B of the thesis, as published. Two things it leaves open are settled here: a value between two measured ones is
interpolated linearly in throughput, on a logarithmic axis for uniqueBytes, sizeMean and processNum; a value outside the
measured range takes the value of the nearest end, and the prediction says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from characterize.errors import FlextraceError
from characterize.workload import FIELD_OF, PARAMETERS, Workload
from selfscale.measure import Point
from selfscale.models.measured import LOGARITHMIC, Z90, Z95, beyond, columns
from selfscale.models.predicted import THAT_END
from selfscale.profile import Curve, Profile, Region

if TYPE_CHECKING:
    import pandas as pd


class ProductModel:
    """Throughput = focal throughput x product over parameters of (curve at target / curve at focal point)."""

    name = "product"

    def fit(self, points: Sequence[Point], regions: Sequence[Region]) -> Self:
        """Find the curves of every region.

        Raises
        ------
        FlextraceError
            No region's focal vector was measured.
        """
        profile = Profile(measured=list(points), regions=list(regions))
        self._unique = profile.curve("uniqueBytes", None) if regions else None
        self._regions: list[int] = []
        self._focal: dict[int, Workload] = {}
        self._curves: dict[int, dict[str, Curve]] = {}
        for index, region in enumerate(regions):
            curves = {name: profile.curve(name, index) for name in PARAMETERS if name != "uniqueBytes"}
            if self._unique is not None and len(self._unique.x) and any(len(curve.x) for curve in curves.values()):
                self._regions.append(index)
                self._focal[index] = region.focal
                self._curves[index] = {"uniqueBytes": self._unique, **curves}
        self._regions = [index for index in self._regions if self._varied(index) > 1] or self._regions
        if not self._regions:
            raise FlextraceError(
                "the product model cannot predict: no region's focal vector was measured; measure more, of a machine "
                "with 'flextrace scale --resume' or a larger --budget"
            )
        return self

    def _varied(self, region: int) -> int:
        """Parameters but uniqueBytes of which a region has a curve: narrow ones have their focal point only, and reads
        or writes alone where a cache ends there."""
        return sum(len(curve.x) > 1 for name, curve in self._curves[region].items() if name != "uniqueBytes")

    def again(self) -> ProductModel:
        """The same model, not fitted."""
        return ProductModel()

    def predict(self, workloads: Sequence[Workload]) -> pd.DataFrame:
        """Appendix B, steps (1) and (2); the interval covers the noise of the curves, not the error of the form."""
        import pandas as pd  # noqa: PLC0415

        columns(workloads)
        return pd.DataFrame([self._row(workload) for workload in workloads])

    def _row(self, workload: Workload) -> dict[str, Any]:
        region = self.choose_region(workload.unique_bytes)
        focal, curves = self._focal[region], self._curves[region]
        performance, focal_variance = self._focal_performance(region)
        variance, changed = 0.0, 0
        used: set[int] = set()
        ranges = {}
        notes = []
        for name in PARAMETERS:
            curve, target = curves[name], getattr(workload, FIELD_OF[name])
            if not len(curve.x):
                ranges[name] = (math.inf, math.inf)
                notes.append(f"{name} was not varied in region {region + 1}: it is taken as without influence")
                continue
            ranges[name] = (float(curve.x[0]), float(curve.x[-1]))
            at_focal, _, indices_focal = _at(curve, getattr(focal, FIELD_OF[name]))
            at_target, relative_error, indices = _at(curve, target)
            performance *= at_target / at_focal
            used.update(indices_focal, indices)
            if target != getattr(focal, FIELD_OF[name]):
                variance += relative_error**2
                changed += 1
        outside = beyond(ranges, workload)
        notes += [f"{outside[name]}: {THAT_END}" for name in outside if math.isfinite(ranges[name][0])]
        # The focal measurement is a factor of the product once, and a divisor for every parameter that is changed.
        variance += (1 - changed) ** 2 * focal_variance
        spread = math.exp(math.sqrt(variance) * Z90 / Z95)
        return {
            "throughput_bytes_per_s": performance,
            "interval_low": performance / spread,
            "interval_high": performance * spread,
            "region": region,
            "points_used": sorted(used),
            "outside": list(outside),
            "notes": notes,
        }

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
