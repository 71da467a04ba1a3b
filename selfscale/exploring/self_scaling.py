# SPDX-License-Identifier: Apache-2.0
"""Turns a function that measures one workload into a machine's profile: what all self-scaling benchmarks share.

A benchmark of its own (`selfscale.explore`, `selfscale.exploring.knee`) chooses the focal vectors. From there on all do
the same:

1. Per region: one curve per parameter around its focal vector (thesis 4.2), which is measured again behind them.
2. What storage takes for what comes alone and is not cached (`selfscale.measuring.storage`), where the page
   cache takes part.
3. Where the caches of reads and of writes end, if that is not known by then (`selfscale.profiles.direction_caches`).
4. Off the curves, the workloads that tell most about all others (6.2, `selfscale.exploring.informative`).
5. On demand, random workloads, each twice in different order (5.3).

The order of points is random within each step. Decisions rest on measured points and on their cost only, never on the
clock, so that a benchmark can be repeated from a journal (`selfscale.exploring.journal`).
"""

from __future__ import annotations

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from characterize.workload import FIELD_OF, Workload
from selfscale.exploring.plan import NOMINAL_POINT_S, OVERHEAD_S, STORAGE_SHARE_MAX, Settings, Step
from selfscale.exploring.sampling import ends_first, random_workload
from selfscale.measure import Point
from selfscale.measuring import storage
from selfscale.measuring.measurable_sizes import REQUESTS_PER_FILE_MIN, align, align_request
from selfscale.profile import Profile, Region
from selfscale.profiles.direction_caches import next_probe
from selfscale.profiles.repeatability import drift_of

START = {"size_mean": 32 * 1024, "read_frac": 0.5, "seq_frac": 0.5, "process_num": 1}
RUN_S_MIN, RUN_S_MAX = 0.4, 60.0
POINT_SHARE_MAX = 0.04
"""Of the budget: one point that will not become steady must not use up what others need."""
CURVES_SHARE, DIRECTIONS_SHARE = 0.56, 0.7
"""Of the time for everything but random workloads and what was before the first point: until then the curves, and the
caches by direction, must be done, unless a benchmark has shares of its own."""
STORAGE_ROUNDS = 3
"""How often all probes of storage are measured, at most: the median counts. Whether processors sleep changes by the
second, and a virtual machine's storage takes as long as its host lets it."""
DIRECTION_POINTS = 8
"""That the rest of their time is divided among, whichever of them is next: some twelve are needed."""
NARROW_FRAC, FEW_PER_CURVE = 0.1, 4
"""Of the range of uniqueBytes: the curves of a region less wide than that get their ends only, and where those of all
regions get so few points, none: they go to workloads off the curves, wherever most is to be learned."""
SIZE_STEP, SIZE_MAX = 8, 4 << 20
"""Factor from one size of requests that is tried to the next; and the largest, where larger ones brought more."""
INFORMATIVE_AT_ONCE, INFORMATIVE_MAX = 8, 240
"""Workloads that are chosen with one fit of the learned model, and in all: a larger budget makes their runs longer."""


_CurveStep = tuple[int, str | None, Workload]
"""Region, parameter (None: the focal point) and what to measure."""


class BudgetSpentError(Exception):
    """The budget does not pay for another point."""


class SelfScaling(ABC):
    """One run of a self-scaling benchmark; those that there are say how the focal vectors are found.

    Parameters
    ----------
    settings : Settings
    measure : callable
        ``Step -> Point``; the point's ``cost_s`` is what is charged to the budget.
    informative : sequence of Workload
        Those that a run which is resumed chose by fits of seconds, to be measured again in place of new ones.

    Attributes
    ----------
    points : list of Point
    storage : list of Point
        Of storage behind the cache; of these models learn from scans only (`selfscale.profiles.learned_points`).
    storage_missed : bool
        Whether the budget was to pay for all of these once, and did not.
    spent_s : float
        Cost of the points so far, and of what was before them, also where a run was resumed.
    """

    curves_share, directions_share = CURVES_SHARE, DIRECTIONS_SHARE

    def __init__(self, settings: Settings, measure: Callable[[Step], Point], informative: Sequence[Workload] = ()):
        self.settings = settings
        self.points: list[Point] = []
        self.storage: list[Point] = []
        self.storage_missed = False
        self.spent_s = settings.spent_s
        self.boundaries: list[float] = []
        self.regions: list[Region] = []
        self.complete = False
        self._measure = measure
        self._known_informative = informative
        self._random = random.Random(settings.seed)
        self._planned = 0
        read_frac = 1.0 if settings.read_only else START["read_frac"]
        self._focal = Workload(0.0, START["seq_frac"], read_frac, START["size_mean"], START["process_num"])
        self._curve_parameters = [
            name for name in ("sizeMean", "processNum", "readFrac", "seqFrac") if self._may_vary(name)
        ]
        # From below a page on: databases write journals and headers of a few hundred bytes.
        self._sizes = sorted({max(size, float(settings.block_bytes)) for size in (1024.0, 8192.0, 65536.0, 524288.0)})
        self._process_nums = [2.0**power for power in range(int(math.log2(settings.process_num_max)) + 1)]

    def run(self) -> None:
        """Measure until everything is known or the budget is spent; interrupted, what was measured stays."""
        try:
            rest = self.settings.budget_s - self.settings.random_s
            set_aside_s = self.settings.storage_s
            self._find_regions(rest - set_aside_s)
            self._curves(until_s=self._until(self.curves_share, rest - set_aside_s))
            if set_aside_s > 0:
                self._storage(until_s=rest)
            storage_s = sum(point.cost_s for point in self.storage)
            self._direction_caches(until_s=storage_s + self._until(self.directions_share, rest - storage_s))
            self._informative_workloads(until_s=rest)
            # The random workloads tell the errors of predictions, which need none of them.
            self.complete = True
            self._random_workloads()
        except BudgetSpentError:
            pass

    @abstractmethod
    def _find_regions(self, rest_s: float) -> None:
        """Find `regions` with their focal vectors, and `boundaries`; `rest_s` of the budget is for all but random
        workloads."""

    def _until(self, share: float, end_s: float) -> float:
        """When a share of the time until `end_s` is gone, of what laying out files and ageing the cache have left."""
        return self.settings.spent_s + share * (end_s - self.settings.spent_s)

    def _may_vary(self, parameter: str) -> bool:
        return parameter != "readFrac" or not self.settings.read_only

    def profile(self) -> Profile:
        """What is known so far as a profile without environment."""
        return Profile(
            measured=list(self.points),
            storage=list(self.storage),
            boundaries_bytes=list(self.boundaries),
            regions=list(self.regions),
            drift=drift_of(self.points, self.regions),
            seed=self.settings.seed,
            complete=self.complete,
        )

    # ---- one point ----

    @property
    def _runs(self) -> int:
        """How much was measured, points and probes."""
        return len(self.points) + len(self.storage)

    def _overhead_s(self) -> float:
        """What a point costs beside its run, from the points before, one of which may have been measured twice."""
        recent = [max(0.0, point.cost_s - point.elapsed_s) for point in self.points[-5:]]
        return median(recent) if recent else OVERHEAD_S

    def _affords(self, until_s: float) -> bool:
        """Whether another point is paid for before so much of the budget is gone."""
        return self.spent_s + self._overhead_s() + RUN_S_MIN <= until_s and self._points_until(until_s) >= 1

    def _points_until(self, until_s: float) -> float:
        """How many more points may be measured, if their number is limited, before so much of the budget is gone."""
        points_max, budget_s = self.settings.points_max, self.settings.budget_s
        return math.inf if points_max is None else points_max * until_s / budget_s - len(self.points)

    def _affordable(self, until_s: float) -> float:
        """Points of a nominal cost that are paid for before so much of the budget is gone."""
        return max(0.0, min((until_s - self.spent_s) / NOMINAL_POINT_S, self._points_until(until_s)))

    def _slot_s(self, rest_s: float, left: int) -> float:
        """What one of `left` points may cost: what those that become steady will not need goes to those that do not."""
        equal_s = rest_s / max(1, left)
        early_s = [point.cost_s for point in self.points if point.steady]
        if left <= 1 or not early_s:
            return equal_s
        early_frac, others = len(early_s) / len(self.points), left - 1
        saved_s = early_frac * others * sum(early_s) / len(early_s)
        return max(equal_s, (rest_s - saved_s) / (1 + (1 - early_frac) * others))

    def _take(self, workload: Workload, role: str, until_s: float, left: int, **labels: Any) -> Point:
        """Measure one of `left` points that may be spent on until `until_s` of the budget is gone."""
        slot_s = min(self._slot_s(until_s - self.spent_s, left), self.settings.budget_s * POINT_SHARE_MAX)
        run_s = min(RUN_S_MAX, max(RUN_S_MIN, slot_s - self._overhead_s()))
        if self.points and not self._affords(self.settings.budget_s):
            raise BudgetSpentError
        step = Step(
            workload,
            role,
            run_s,
            number=self._runs + 1,
            planned=max(self._planned, self._runs + left),
            seed=self.settings.seed + len(self.points),
            left_s=self.settings.budget_s - self.spent_s,
            **labels,
        )
        point = self._measure(step)
        self.points.append(step.label(point))
        self.spent_s += point.cost_s + point.resumed_s
        return self.points[-1]

    def _shuffled(self, values: list[Any]) -> list[Any]:
        values = list(values)
        self._random.shuffle(values)
        return values

    def _sizes_for(self, unique_bytes: float, process_num: float) -> list[float]:
        """Request sizes of which a file of the workload holds enough."""
        most = unique_bytes / process_num / REQUESTS_PER_FILE_MIN
        return [size for size in self._sizes if size <= most] or [self._sizes[0]]

    def _unique_bytes_for(self, focal: Workload, count: int) -> list[float]:
        """Evenly spaced working sets (on a logarithmic axis) from what holds enough requests of each process on."""
        low = max(self.settings.low_bytes, align(REQUESTS_PER_FILE_MIN * focal.size_mean * focal.process_num))
        return [align(size) for size in np.geomspace(low, self.settings.high_bytes, count)]

    # ---- step 1 ----

    def _curves(self, until_s: float) -> None:
        """Measure the curves of every region: focal points and ends in any case, the rest while time is left."""
        affordable = self._affordable(until_s)
        per_curve = int((affordable - 3 * len(self.regions)) / (len(self._curve_parameters) * len(self.regions)))
        few = per_curve <= FEW_PER_CURVE
        per_curve = min(9, max(2, per_curve))
        # Round r takes the r-th most telling value of every curve: a budget that ends early leaves whole curves.
        rounds: list[list[_CurveStep]] = []
        for index, region in enumerate(self.regions):
            count = per_curve if not self._is_narrow(region) else 0 if few else 2
            for parameter in self._curve_parameters:
                values = self._curve_values(parameter, region.focal, count)
                for position, value in enumerate(values):
                    while len(rounds) <= position:
                        rounds.append([])
                    workload = region.focal.replace(**{FIELD_OF[parameter]: value})
                    rounds[position].append((index, parameter, workload))
        references: list[_CurveStep] = [(index, None, region.focal) for index, region in enumerate(self.regions)]
        # The focal points and both ends of every curve are what a profile cannot do without. Measured again, the focal
        # points say how much the machine has changed: in the end that goes before what comes after the curves.
        # What probes of sizes, processes and caches have of all this is not measured again.
        order = [
            (math.inf, self._not_measured(references)),
            *((math.inf if number < 2 else until_s, self._not_measured(part)) for number, part in enumerate(rounds)),
        ]
        if not few:
            order.insert(1 + len(rounds) // 2, (until_s, references))
        # Where points are few, the focal point is all that a narrow region has: once is enough.
        with_curves = [step for step in references if not few or not self._is_narrow(self.regions[step[0]])]
        steps = [(limit_s, step) for limit_s, part in order for step in self._shuffled(part)]
        closing = self._shuffled(with_curves)
        self._planned = len(self.points) + len(steps) + len(closing) + 2 * self.settings.random_points
        for done, (limit_s, (index, parameter, workload)) in enumerate(steps):
            left = len(steps) + len(closing) - done
            if not self._affords(limit_s):
                continue
            role = "curve" if parameter else "reference"
            self._take(workload, role, until_s, left, region=index, parameter=parameter)
        self._close(closing, until_s)

    def _close(self, references: list[_CurveStep], until_s: float) -> None:
        """Measure focal points again, in runs as long as before also where the curves have spent their time: of shorter
        ones it would look as if the machine had changed."""
        for left, (index, _, workload) in zip(range(len(references), 0, -1), references, strict=True):
            if not self._affords(self.settings.budget_s):
                break
            run_s = max(point.elapsed_s for point in self.points if point.workload == workload)
            end_s = max(until_s, self.spent_s + left * (self._overhead_s() + run_s))
            self._take(workload, "reference", min(end_s, self.settings.budget_s), left, region=index)

    def _is_measured(self, workload: Workload) -> bool:
        return any(point.workload == workload and point.throughput_bytes_per_s > 0 for point in self.points)

    def _not_measured(self, steps: list[_CurveStep]) -> list[_CurveStep]:
        return [step for step in steps if not self._is_measured(step[2])]

    def _is_narrow(self, region: Region) -> bool:
        """Whether few workloads lie in a region: its share of all on uniqueBytes' logarithmic axis."""
        total = math.log(self.regions[-1].high_bytes / self.regions[0].low_bytes)
        return math.log(region.high_bytes / region.low_bytes) < NARROW_FRAC * total

    def _curve_values(self, parameter: str, focal: Workload, count: int) -> list[float]:
        """Values of a parameter for its curve, without the focal one; both ends first, then the widest gaps."""
        if parameter == "sizeMean":
            sizes = self._sizes_for(focal.unique_bytes, focal.process_num)
            values = [align_request(size) for size in np.geomspace(min(sizes), max(sizes), max(count, 3))]
        elif parameter == "uniqueBytes":
            values = self._unique_bytes_for(focal, max(count, 3))
        elif parameter == "processNum":
            most = focal.unique_bytes / focal.size_mean / REQUESTS_PER_FILE_MIN
            values = [value for value in self._process_nums if value <= most]
        else:
            values = [float(value) for value in np.linspace(0, 1, count + 1 + count % 2)]
        return ends_first([value for value in sorted(set(values)) if value != getattr(focal, FIELD_OF[parameter])])[
            :count
        ]

    # ---- step 2 ----

    def _storage(self, until_s: float) -> None:
        """Measure storage behind the cache once, if that is paid for, and again while its share of the budget is."""
        settings = self.settings
        # The probes have files of their own, which are laid out as those of the points were.
        files_s = settings.spent_s * storage.image_bytes(settings.cache_bytes) / settings.image_bytes
        self.storage_missed = self.spent_s + files_s + storage.round_s(self._overhead_s()) > until_s
        until_s = min(until_s, self.spent_s + STORAGE_SHARE_MAX * settings.budget_s)
        for repeat in range(0 if self.storage_missed else STORAGE_ROUNDS):
            begin_s = self.spent_s
            if not self._storage_round(repeat):
                self.storage_missed = repeat == 0
                break
            if self.spent_s + (self.spent_s - begin_s) > until_s:
                break

    def _storage_round(self, repeat: int) -> bool:
        """Whether the budget paid for all: a probe that lays out files, or syncs, may take far longer than a point."""
        probes = storage.probes(self.settings.cache_bytes)
        for done, (name, workload) in enumerate(probes.items()):
            if self.spent_s + storage.RUN_S + self._overhead_s() > self.settings.budget_s:
                return False
            step = Step(
                workload,
                storage.ROLE,
                storage.RUN_S,
                parameter=name,
                repeat=repeat,
                number=self._runs + 1,
                planned=max(self._planned, self._runs + len(probes) - done),
                seed=self.settings.seed + len(self.storage),
            )
            point = step.label(self._measure(step))
            self.storage.append(point)
            self.spent_s += point.cost_s + point.resumed_s
        return True

    # ---- step 3 ----

    def _direction_caches(self, until_s: float, hints: Sequence[float] = ()) -> None:
        """Measure where the caches of reads and of writes end, while time is left.

        Parameters
        ----------
        hints : sequence of float
            uniqueBytes to look at first, beside the borders.
        """
        while self._may_vary("readFrac") and self._affords(until_s):
            if (workload := next_probe(self.points, self.regions, [*hints, *self.boundaries])) is None:
                break
            self._take(workload, "direction", until_s, DIRECTION_POINTS)

    # ---- step 4 ----

    def _informative_workloads(self, until_s: float) -> None:
        """Measure what tells most about the workloads off the curves, a few at a time, while time is left."""
        for before in range(0, INFORMATIVE_MAX, INFORMATIVE_AT_ONCE):
            if not self._affords(until_s):
                break
            began_s = time.monotonic()
            chosen = self._most_informative(before)
            choosing_s = (time.monotonic() - began_s) / INFORMATIVE_AT_ONCE
            for done, workload in enumerate(chosen, before):
                left = min(INFORMATIVE_MAX - done, int(self._affordable(until_s)))
                if self._affords(until_s):
                    self._take(workload, "inform", until_s, max(1, left), choosing_s=choosing_s)

    def _most_informative(self, number: int) -> Sequence[Workload]:
        """What to measure from that one on; drawn by itself, so that it may be known already."""
        known = self._known_informative[number : number + INFORMATIVE_AT_ONCE]
        if len(known) == INFORMATIVE_AT_ONCE:
            return known
        from selfscale.exploring.informative import most_informative  # noqa: PLC0415 (seconds to import)

        generator = random.Random(f"informative {self.settings.seed} {number}")
        chosen = most_informative(self.profile(), generator, INFORMATIVE_AT_ONCE)
        # Another version of a library may choose others: what is measured stands.
        return [*known, *chosen[len(known) :]]

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
