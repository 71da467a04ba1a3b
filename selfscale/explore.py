# SPDX-License-Identifier: Apache-2.0
"""Turns a function that measures one workload into a machine's profile: the better self-scaling benchmark (thesis 4.5).

1. Probe sizeMean and processNum at a small and at a large uniqueBytes; the focal values are those whose performance is
   halfway between minimum and maximum. They come first: the uniqueBytes curve is measured at the focal vector.
2. Measure the uniqueBytes curve, find its falls, and refine each by bisection: that is the effective size of the cache.
3. Per region, with uniqueBytes in its middle: one curve per parameter, reference points in between.
4. Off the curves, the workloads that tell most about all others (6.2, `selfscale.informative`).
5. On demand, random workloads, each twice in different order (5.3).

The order of points is random within each step. Decisions rest on measured points and on their cost only, never on the
clock, so that an exploration can be repeated from a journal (`selfscale.journal`).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from characterize.workload import FIELD_OF, Workload
from selfscale.measure import Point
from selfscale.plan import NOMINAL_POINT_S, Settings, Step, align, align_request
from selfscale.profile import Profile, Region
from selfscale.regions import Border, find_borders, halfway
from selfscale.sampling import random_workload

START = {"size_mean": 32 * 1024, "read_frac": 0.5, "seq_frac": 0.5, "process_num": 1}
RUN_S_MIN, RUN_S_MAX = 0.4, 60.0
POINT_SHARE_MAX = 0.04
"""Of the budget: one point that will not become steady must not use up what others need."""
BORDER_OVERRUN = 1.3
"""Of the time for the uniqueBytes curve: beyond it no border is searched for more closely."""
BRACKET = 1.05
"""Bisection stops when both sides of a border are this close."""
CERTAIN_FALL = 4.0
"""A border with a smaller fall may be a disturbance of one point: both sides are measured again."""
FILL_GAP, FILL_FALL = 1.08, 1.3
"""A gap of the uniqueBytes curve is halved if it is wider than this and the throughput falls by this over it."""
CURVE_PARAMETERS = ("sizeMean", "processNum", "readFrac", "seqFrac")
CURVES_SHARE = 0.7
"""Of the time for everything but random workloads: until then the curves must be done."""
INFORMATIVE_AT_ONCE, INFORMATIVE_ROUNDS_MAX = 8, 15
"""Workloads that are chosen with one fit of the learned model, and how often."""
GAIN = 1.1
"""A probe that brings less than this factor over the one before it ends the range of its parameter."""


class BudgetSpentError(Exception):
    """The budget does not pay for another point."""


class Exploration:
    """One run of the self-scaling benchmark.

    Parameters
    ----------
    settings : Settings
    measure : callable
        ``Step -> Point``; the point's ``cost_s`` is what is charged to the budget.

    Attributes
    ----------
    points : list of Point
    spent_s : float
        Cost of the points so far, and of what was before them.
    """

    def __init__(self, settings: Settings, measure: Callable[[Step], Point]):
        self.settings = settings
        self.points: list[Point] = []
        self.spent_s = settings.spent_s
        self.boundaries: list[float] = []
        self.regions: list[Region] = []
        self.complete = False
        self._measure = measure
        self._random = random.Random(settings.seed)
        self._planned = 0
        self._focal = Workload(0.0, START["seq_frac"], START["read_frac"], START["size_mean"], START["process_num"])
        # From below a page on: databases write journals and headers of a few hundred bytes.
        self._sizes = [1024.0, 4096.0, 16384.0, 65536.0, 262144.0]
        self._process_nums = [2.0**power for power in range(int(math.log2(settings.process_num_max)) + 1)]

    def run(self) -> None:
        """Explore until everything is measured or the budget is spent; interrupted, what was measured stays."""
        try:
            share_random = 2 * self.settings.random_points / max(1, self.settings.budget_s / NOMINAL_POINT_S)
            rest = self.settings.budget_s * (1 - min(0.6, share_random))
            if self.settings.points_affordable >= 45:
                self._probe(until_s=0.22 * rest)
            self._unique_bytes_curve(until_s=0.5 * rest)
            self._curves(until_s=CURVES_SHARE * rest)
            self._informative_workloads(until_s=rest)
            self._random_workloads()
            self.complete = True
        except BudgetSpentError:
            pass

    def profile(self) -> Profile:
        """What is known so far as a profile without environment."""
        return Profile(
            measured=list(self.points),
            boundaries_bytes=list(self.boundaries),
            regions=list(self.regions),
            drift=self._drift(),
            seed=self.settings.seed,
            complete=self.complete,
        )

    # ---- one point ----

    def _overhead_s(self) -> float:
        """What a point costs beside its run, from the points before."""
        recent = [max(0.0, point.cost_s - point.elapsed_s) for point in self.points[-5:]]
        return sum(recent) / len(recent) if recent else 0.5

    def _take(self, workload: Workload, role: str, until_s: float, left: int, **labels: Any) -> Point:
        """Measure one of `left` points that may be spent on until `until_s` of the budget is gone."""
        slot = min((until_s - self.spent_s) / max(1, left), self.settings.budget_s * POINT_SHARE_MAX)
        run_s = min(RUN_S_MAX, max(RUN_S_MIN, slot - self._overhead_s()))
        if self.points and self.spent_s + self._overhead_s() + RUN_S_MIN > self.settings.budget_s:
            raise BudgetSpentError
        step = Step(
            workload,
            role,
            run_s,
            number=len(self.points) + 1,
            planned=max(self._planned, len(self.points) + left),
            seed=self.settings.seed + len(self.points),
            **labels,
        )
        point = self._measure(step)
        self.points.append(step.label(point))
        self.spent_s += point.cost_s
        return self.points[-1]

    def _shuffled(self, values: list[Any]) -> list[Any]:
        values = list(values)
        self._random.shuffle(values)
        return values

    def _sizes_for(self, unique_bytes: float, process_num: float) -> list[float]:
        """Request sizes that a file of the workload holds at least eight of."""
        return [size for size in self._sizes if size <= unique_bytes / process_num / 8] or [self._sizes[0]]

    # ---- step 1 ----

    def _probe(self, until_s: float) -> None:
        """Set the focal sizeMean and processNum to the geometric mean of both ends' halfway values."""
        ends = [align(self.settings.cache_bytes / 4), align(3 * self.settings.cache_bytes)]
        self._planned = 2 * (len(self._sizes) + len(self._process_nums)) + 50
        left = 2 * (len(self._sizes) + len(self._process_nums))
        halves = []
        for end in ends:
            focal = self._focal.replace(unique_bytes=end)
            measured = {}
            for size in self._shuffled(self._sizes_for(end, 1)):
                point = self._take(focal.replace(size_mean=size), "explore", until_s, left, parameter="sizeMean")
                measured[size] = point.throughput_bytes_per_s
                left -= 1
            while (size := 4 * max(measured)) <= min(4 << 20, end / 8):
                largest = sorted(measured)[-2:]
                if len(largest) < 2 or measured[largest[1]] < GAIN * measured[largest[0]]:
                    break
                point = self._take(focal.replace(size_mean=size), "explore", until_s, left, parameter="sizeMean")
                measured[size] = point.throughput_bytes_per_s
            self._sizes = sorted({*self._sizes, *measured})
            halves.append(_halfway(measured))
        self._focal = self._focal.replace(size_mean=align(math.sqrt(halves[0] * halves[1])))
        halves = []
        tried = 1.0
        for end in ends:
            measured = {}
            for count in self._process_nums:
                if self._focal.size_mean > end / count / 8:
                    break
                focal = self._focal.replace(unique_bytes=end, process_num=count)
                point = self._take(focal, "explore", until_s, left, parameter="processNum")
                measured[count] = point.throughput_bytes_per_s
                left -= 1
                if count > 2 and measured[count] < GAIN * measured[count / 2]:
                    break
            tried = max([tried, *measured])
            halves.append(_halfway(measured) if measured else 1.0)
        self._process_nums = [count for count in self._process_nums if count <= tried]
        self._focal = self._focal.replace(process_num=float(max(1, round(math.sqrt(halves[0] * halves[1])))))

    # ---- step 2 ----

    def _unique_bytes_curve(self, until_s: float) -> None:
        settings = self.settings
        count = 7 if settings.points_affordable < 120 else 9 if settings.points_affordable < 400 else 14
        low = max(settings.low_bytes, align(8 * self._focal.size_mean * self._focal.process_num))
        sizes = [align(size) for size in np.geomspace(low, settings.high_bytes, count)]
        self._planned = max(self._planned, len(self.points) + count + 30)
        measured: dict[float, float] = {}

        def take(size: float, left: int) -> None:
            workload = self._focal.replace(unique_bytes=size)
            point = self._take(workload, "curve", until_s, left, parameter="uniqueBytes")
            # What disturbs a measurement makes it slower, so of two the faster one is nearer to the truth.
            measured[size] = max(measured.get(size, 0.0), point.throughput_bytes_per_s)

        try:
            for index, size in enumerate(self._shuffled(sizes)):
                take(size, count - index + 8)
            # Where points cost more than planned, a coarse border is better than regions without a focal point.
            refine_until_s = BORDER_OVERRUN * until_s
            borders = self._confirmed(measured, take)
            self.boundaries = [self._refine(border, measured, take, refine_until_s) for border in borders]
            if self.spent_s < refine_until_s:
                self._fill_falls(measured, take, 4 if settings.points_affordable < 240 else 8)
        finally:
            # Also of an interrupted curve something can be told, though its regions are coarser.
            if len(measured) >= 2:
                self.boundaries = self.boundaries or [border.good_bytes for border in self._borders(measured)]
                self._set_regions(min(measured), max(measured))

    def _borders(self, measured: dict[float, float]) -> list[Border]:
        x = np.array(sorted(measured))
        throughput = np.array([measured[size] for size in x])
        fracs = {
            point.workload.unique_bytes: math.nan if point.device_frac is None else point.device_frac
            for point in self.points
            if point.role == "curve" and point.parameter == "uniqueBytes"
        }
        return find_borders(x, throughput, np.array([fracs[size] for size in x]))

    def _confirmed(self, measured: dict[float, float], take: Callable[[float, int], None]) -> list[Border]:
        """Borders that are still there when both sides of each doubtful one have been measured again."""
        steady = {point.workload.unique_bytes for point in self.points if point.role == "curve" and point.steady}
        confirmed: set[float] = set()
        while True:
            borders = self._borders(measured)
            doubtful = {
                size
                for border in borders
                if border.fall < CERTAIN_FALL or border.bad_bytes not in steady
                for size in (border.good_bytes, border.bad_bytes)
            } - confirmed
            if not doubtful:
                return borders
            for index, size in enumerate(sorted(doubtful)):
                take(size, len(doubtful) - index + 8)
            confirmed |= doubtful

    def _refine(
        self, border: Border, measured: dict[float, float], take: Callable[[float, int], None], until_s: float
    ) -> float:
        """Bisect a border until both sides are close; the largest uniqueBytes that still performs like below it."""
        good, bad = border.good_bytes, border.bad_bytes
        while bad / good > BRACKET and align(math.sqrt(good * bad)) not in (good, bad) and self.spent_s < until_s:
            middle = align(math.sqrt(good * bad))
            take(middle, math.ceil(math.log2(math.log(bad / good) / math.log(BRACKET))))
            if measured[middle] < border.threshold and not self.points[-1].steady:
                take(middle, 4)
            if measured[middle] >= border.threshold:
                good = middle
            else:
                bad = middle
        return good

    @staticmethod
    def _fill_falls(measured: dict[float, float], take: Callable[[float, int], None], count: int) -> None:
        """Halve the gap over which the throughput falls most, up to `count` times.

        Behind a border the curve is hyperbolic, and what is interpolated over a gap that falls by a factor is wrong by
        as much (thesis, figure 5.4: predictions are worst near the border).
        """
        for left in range(count, 0, -1):
            x = sorted(measured)
            low, high = max(
                itertools.pairwise(x),
                key=lambda pair: (
                    math.log(pair[1] / pair[0]) > math.log(FILL_GAP) and measured[pair[0]] / max(1.0, measured[pair[1]])
                ),
            )
            if high / low <= FILL_GAP or measured[low] < FILL_FALL * measured[high]:
                break
            take(align(math.sqrt(low * high)), left)

    def _set_regions(self, low: float, high: float) -> None:
        edges = [low, *self.boundaries, high]
        self.regions = [
            Region(start, end, self._focal.replace(unique_bytes=align((start + end) / 2)))
            for start, end in itertools.pairwise(edges)
            if end > start
        ]

    # ---- step 3 ----

    def _curves(self, until_s: float) -> None:
        """Measure the curves of every region: focal points and ends in any case, the rest while time is left."""
        affordable = max(0.0, until_s - self.spent_s) / NOMINAL_POINT_S
        per_curve = int((affordable - 3 * len(self.regions)) / (len(CURVE_PARAMETERS) * len(self.regions)))
        per_curve = min(9, max(2, per_curve))
        # Round r takes the r-th most telling value of every curve: a budget that ends early leaves whole curves.
        rounds: list[list[tuple[int, str | None, Workload]]] = []
        for index, region in enumerate(self.regions):
            for parameter in CURVE_PARAMETERS:
                values = self._curve_values(parameter, region.focal, per_curve)
                for position, value in enumerate(values):
                    while len(rounds) <= position:
                        rounds.append([])
                    workload = region.focal.replace(**{FIELD_OF[parameter]: value})
                    rounds[position].append((index, parameter, workload))
        references: list[tuple[int, str | None, Workload]] = [
            (index, None, region.focal) for index, region in enumerate(self.regions)
        ]
        middle = max(1, len(rounds) // 2)
        # The focal points and both ends of every curve are what a profile cannot do without.
        order = [(True, references), *((number < 2, part) for number, part in enumerate(rounds))]
        order.insert(1 + middle, (False, references))
        order.append((False, references))
        steps = [(essential, step) for essential, part in order for step in self._shuffled(part)]
        self._planned = len(self.points) + len(steps) + 2 * self.settings.random_points
        for done, (essential, (index, parameter, workload)) in enumerate(steps):
            left = len(steps) - done
            if not essential and self.spent_s + self._overhead_s() + RUN_S_MIN > until_s:
                continue
            role = "curve" if parameter else "reference"
            self._take(workload, role, until_s, left, region=index, parameter=parameter)

    def _curve_values(self, parameter: str, focal: Workload, count: int) -> list[float]:
        """Values of a parameter for its curve, without the focal one; both ends first, then the widest gaps."""
        if parameter == "sizeMean":
            sizes = self._sizes_for(focal.unique_bytes, focal.process_num)
            values = [align_request(size) for size in np.geomspace(min(sizes), max(sizes), max(count, 3))]
        elif parameter == "processNum":
            values = [value for value in self._process_nums if focal.size_mean <= focal.unique_bytes / value / 8]
        else:
            values = [float(value) for value in np.linspace(0, 1, count + 1 + count % 2)]
        return _ends_first([value for value in sorted(set(values)) if value != getattr(focal, FIELD_OF[parameter])])[
            :count
        ]

    # ---- step 4 ----

    def _informative_workloads(self, until_s: float) -> None:
        """Measure what tells most about the workloads off the curves, a few at a time, while time is left."""
        from selfscale.informative import most_informative  # noqa: PLC0415 (seconds to import)

        for _ in range(INFORMATIVE_ROUNDS_MAX):
            affordable = self.spent_s + self._overhead_s() + RUN_S_MIN <= until_s
            for workload in most_informative(self.profile(), self._random, INFORMATIVE_AT_ONCE) if affordable else []:
                if self.spent_s + self._overhead_s() + RUN_S_MIN <= until_s:
                    left = max(1, int((until_s - self.spent_s) / NOMINAL_POINT_S))
                    self._take(workload, "inform", until_s, left)

    # ---- step 5 ----

    def _random_workloads(self) -> None:
        """Random workloads within the measured ranges, each twice, in different order (thesis 5.3, table 5.1)."""
        count = self.settings.random_points
        if not count:
            return
        profile = self.profile()
        workloads = [random_workload(profile, self._random) for _ in range(count)]
        passes = [(repeat, workload) for repeat in (0, 1) for workload in self._shuffled(workloads)]
        for done, (repeat, workload) in enumerate(passes):
            self._take(workload, "random", self.settings.budget_s, len(passes) - done, repeat=repeat)

    def _drift(self) -> dict[str, Any]:
        """Per region: throughputs of its repeated reference point, their spread, and last against first."""
        regions = []
        for index in range(len(self.regions)):
            values = [p.throughput_bytes_per_s for p in self.points if p.role == "reference" and p.region == index]
            if len(values) < 2 or min(values) <= 0:
                continue
            mean = sum(values) / len(values)
            regions.append(
                {
                    "region": index,
                    "throughput_bytes_per_s": values,
                    "spread": (max(values) - min(values)) / mean,
                    "last_to_first": values[-1] / values[0] - 1,
                }
            )
        return {"reference_points": regions}


def _halfway(measured: dict[float, float]) -> float:
    x = np.array(sorted(measured))
    return halfway(x, np.array([measured[value] for value in x]))


def _ends_first(values: list[float]) -> list[float]:
    """Both ends, then always the value whose gap to its chosen neighbours is widest (by rank)."""
    order = [0, len(values) - 1][: len(values)]
    while len(order) < len(values):
        rest = [index for index in range(len(values)) if index not in order]
        order.append(max(rest, key=lambda index: min(abs(index - chosen) for chosen in order)))
    return [values[index] for index in order]
