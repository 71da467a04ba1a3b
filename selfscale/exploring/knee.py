# SPDX-License-Identifier: Apache-2.0
"""Turns a function that measures one workload into a profile: the global-knee self-scaling benchmark (thesis 4.4).

The knee of a parameter is its least restrictive value with 75 % of the largest throughput over its range (4.3): the
largest uniqueBytes, and the smallest sizeMean, processNum and seqFrac. Of readFrac the slower direction counts as the
cheap one. One parameter after the other is put to its knee, the others being fixed, until all are there at once.
What the thesis leaves open:

- A knee is searched for on a coarse grid, then between the last value that is too cheap and the first that is not.
- A parameter stays where it is while the newly found knee is within the resolution of the search; else noise of the
  measurements would move the focal vector for ever.
- Whether reads or writes are the cheaper direction is decided once, and again only where one of them does not perform
  well: of a machine that does both alike it would be chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from characterize.workload import FIELD_OF, Workload
from selfscale.exploring.good_ranges import GOOD, good_ranges
from selfscale.exploring.plan import Settings, Step
from selfscale.exploring.self_scaling import SIZE_MAX, SelfScaling
from selfscale.measure import Point
from selfscale.measuring.measurable_sizes import REQUESTS_PER_FILE_MIN, align, align_request
from selfscale.profile import Profile, Region
from selfscale.profiles.regions import find_borders

ROUNDS_MAX = 8
"""The thesis needed four (4.4); a search that has not ended by now has parameters that drive each other."""
KNEE_SHARE, CURVES_SHARE, DIRECTIONS_SHARE = 0.55, 0.7, 0.85
"""Of the time for everything but random workloads: until then the search ends, and the curves around where it stands,
and the caches by direction, must be done. Workloads off the curves, which are to predict from, get less than around the
middle."""
GRID = 7
"""Values of uniqueBytes before bisection."""
SEARCH_POINTS = 90
"""What a search takes on machines whose parameters hardly depend on each other: two rounds and a half."""
RATIOS = {"uniqueBytes": 1.05, "sizeMean": 1.2, "processNum": 1.0}
"""Resolution of the search on logarithmic axes; whole numbers in between are tried of processNum."""
STEP = 1 / 16
"""Resolution of the search for readFrac and seqFrac."""


class _TimeUpError(Exception):
    """The search's share of the budget is spent."""


class KneeExploration(SelfScaling):
    """One run of the global-knee self-scaling benchmark.

    Attributes
    ----------
    rounds : int
        How often every parameter was put to its knee.
    moving : list of str
        Parameters that the last round moved, or did not come to; none after a search that converged.
    out_of_time : bool
        Whether its share of the budget ended the search.
    """

    curves_share, directions_share = CURVES_SHARE, DIRECTIONS_SHARE

    def __init__(self, settings: Settings, measure: Callable[[Step], Point], informative: Sequence[Workload] = ()):
        super().__init__(settings, measure, informative)
        self.rounds = 0
        self.out_of_time = False
        self._order = [
            name for name in ("uniqueBytes", "sizeMean", "processNum", "readFrac", "seqFrac") if self._may_vary(name)
        ]
        self.moving = list(self._order)
        self._curve_parameters.append("uniqueBytes")
        while self._sizes[-1] < SIZE_MAX:
            self._sizes.append(min(SIZE_MAX, 4 * self._sizes[-1]))
        self._best: dict[Workload, Point] = {}
        self._tries: dict[Workload, int] = {}
        self._reads_are_costly: bool | None = None
        self._focal = self._focal.replace(unique_bytes=align(math.sqrt(settings.low_bytes * settings.high_bytes)))

    @property
    def converged(self) -> bool:
        """Whether all parameters were at their knees at once."""
        return not self.moving

    def profile(self) -> Profile:
        """What is known so far, with how the search went and the ranges that perform well."""
        profile = super().profile()
        ranges = good_ranges(profile) if profile.regions else {}
        profile.knee = {
            "converged": self.converged,
            "rounds": self.rounds,
            "moving": list(self.moving),
            "out_of_time": self.out_of_time,
            "ranges": {name: list(ends) for name, ends in ranges.items()},
        }
        return profile

    # ---- the search ----

    def _find_regions(self, rest_s: float) -> None:
        until_s = self._until(KNEE_SHARE, rest_s)
        self._planned = SEARCH_POINTS + 30
        try:
            for self.rounds in range(1, ROUNDS_MAX + 1):
                moved: list[str] = []
                for parameter in self._order:
                    self.moving = moved + self._order[self._order.index(parameter) :]
                    knee = self._knee(parameter, until_s)
                    if not self._at_its_knee(parameter, knee):
                        self._focal = self._at(parameter, knee)
                        moved.append(parameter)
                self.moving = moved
                if self.converged:
                    break
        except _TimeUpError:
            self.out_of_time = True
        finally:
            # Also of an interrupted search something can be told: the curves around where it stands.
            self._set_region()

    def _knee(self, parameter: str, until_s: float) -> float:
        """The knee of one parameter with the others where they are."""
        values = self._grid(parameter)
        for value in self._shuffled(values):
            self._throughput(parameter, value, until_s)
        if parameter == "readFrac":
            self._choose_direction()
            values = values if self._reads_are_costly else values[::-1]
        while True:
            throughput = [self._throughput(parameter, value, until_s) for value in values]
            first = next(index for index, each in enumerate(throughput) if each >= GOOD * max(throughput))
            if first == 0:
                return values[0]
            middle = self._between(parameter, values[first - 1], values[first])
            if middle is not None:
                values.insert(first, middle)
            elif not self._again(parameter, values[first - 1], until_s):
                return values[first]

    def _grid(self, parameter: str) -> list[float]:
        """Values to begin with, from the cheapest to the costliest."""
        if parameter == "uniqueBytes":
            return sorted(set(self._unique_bytes_for(self._focal, GRID)), reverse=True)
        if parameter == "sizeMean":
            return self._sizes_for(self._focal.unique_bytes, self._focal.process_num)
        if parameter == "processNum":
            most = self._focal.unique_bytes / self._focal.size_mean / REQUESTS_PER_FILE_MIN
            return [count for count in self._process_nums if count <= most] or [1.0]
        return [0.0, 0.25, 0.5, 0.75, 1.0]

    def _choose_direction(self) -> None:
        writes, reads = (self._best[self._at("readFrac", value)].throughput_bytes_per_s for value in (0.0, 1.0))
        if self._reads_are_costly is None or min(writes, reads) < GOOD * max(writes, reads):
            self._reads_are_costly = reads >= writes

    @staticmethod
    def _between(parameter: str, one: float, other: float) -> float | None:
        """A value in the middle of two; None if they are as close as the search goes."""
        if parameter not in RATIOS:
            return (one + other) / 2 if abs(one - other) > STEP else None
        rounded = {"uniqueBytes": align, "sizeMean": align_request}.get(parameter, lambda value: float(round(value)))
        middle = rounded(math.sqrt(one * other))
        close = max(one, other) <= RATIOS[parameter] * min(one, other)
        return None if close or middle in (one, other) else middle

    def _at_its_knee(self, parameter: str, knee: float) -> bool:
        value = getattr(self._focal, FIELD_OF[parameter])
        if parameter in RATIOS:
            return max(value, knee) <= RATIOS[parameter] * min(value, knee)
        return abs(value - knee) <= STEP

    # ---- what is measured ----

    def _at(self, parameter: str, value: float) -> Workload:
        return self._focal.replace(**{FIELD_OF[parameter]: value})

    def _throughput(self, parameter: str, value: float, until_s: float) -> float:
        """Of a value of a parameter with the others where they are, measured if it was not yet."""
        if self._at(parameter, value) not in self._best:
            self._measure_once(parameter, value, until_s)
        return self._best[self._at(parameter, value)].throughput_bytes_per_s

    def _again(self, parameter: str, value: float, until_s: float) -> bool:
        """Measure once more what was disturbed, since a knee hangs on it; whether that was needed."""
        workload = self._at(parameter, value)
        if self._best[workload].steady or self._tries[workload] > 1:
            return False
        self._measure_once(parameter, value, until_s)
        return True

    def _measure_once(self, parameter: str, value: float, until_s: float) -> None:
        if self.points and self.spent_s >= until_s:
            raise _TimeUpError
        workload = self._at(parameter, value)
        left = max(GRID, SEARCH_POINTS - len(self.points))
        # What is measured again since it was not steady tells no repeatability (`selfscale.profiles.repeatability`).
        role = "curve" if workload in self._tries else "explore"
        point = self._take(workload, role, until_s, left, parameter=parameter)
        self._tries[workload] = self._tries.get(workload, 0) + 1
        # What disturbs a measurement makes it slower, so of two the faster one is nearer to the truth.
        known = self._best.get(workload)
        if known is None or point.throughput_bytes_per_s > known.throughput_bytes_per_s:
            self._best[workload] = point

    def _curve_values(self, parameter: str, focal: Workload, count: int) -> list[float]:
        """Those of the curve that the search has not measured."""
        values = super()._curve_values(parameter, focal, count)
        return [value for value in values if focal.replace(**{FIELD_OF[parameter]: value}) not in self._best]

    def _set_region(self) -> None:
        """One region, since there is one family of graphs (figure 4.1), and the borders of the uniqueBytes curve."""
        low, high = self._unique_bytes_for(self._focal, 2)
        self.regions = [Region(min(low, self._focal.unique_bytes), high, self._focal)]
        on_curve = (p for w, p in self._best.items() if w == self._at("uniqueBytes", w.unique_bytes))
        curve = sorted(on_curve, key=lambda point: point.workload.unique_bytes)
        fracs = [math.nan if point.device_frac is None else point.device_frac for point in curve]
        sizes = np.array([point.workload.unique_bytes for point in curve])
        throughput = np.array([point.throughput_bytes_per_s for point in curve])
        self.boundaries = [border.good_bytes for border in find_borders(sizes, throughput, np.array(fracs))]
