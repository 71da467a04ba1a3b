# SPDX-License-Identifier: Apache-2.0
"""Turns a function that measures one workload into a machine's profile: the better self-scaling benchmark (thesis 4.5).

1. Probe sizeMean and processNum at a small and at a large uniqueBytes; the focal values are those whose performance is
   halfway between minimum and maximum. They come first: the uniqueBytes curve is measured at the focal vector.
2. Measure the uniqueBytes curve and find its falls. Find where reads alone and writes alone leave the cache: these are
   the borders, one or two (writers may be made to wait long before the cache is full, and half reads and half writes
   show no more than that). Refine by bisection what of the falls they do not explain.
3. Per region, with uniqueBytes near its middle, where something is measured already: what all self-scaling benchmarks
   do (`selfscale.exploring.self_scaling`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from statistics import geometric_mean

import numpy as np

from selfscale.exploring.self_scaling import RUN_S_MIN, SIZE_MAX, SIZE_STEP, SelfScaling
from selfscale.measure import Point
from selfscale.measuring.measurable_sizes import REQUESTS_PER_FILE_MIN, align
from selfscale.profile import Region
from selfscale.profiles.direction_caches import READS, WRITES, DirectionCache, direction_cache, fastest
from selfscale.profiles.regions import APART, CACHED_DEVICE_FRAC, Border, find_borders, halfway

PROBED_POINTS_MIN, PROBE_SHARE = 45, 0.14
"""Points that a budget must pay for, before sizes and processes are tried, and the share of the time for that
(`SelfScaling._until`)."""
CURVE_SHARE, CURVE_SHARE_ALONE = 0.39, 0.6
"""Of the time: until then the borders must be known; later in a budget too small for anything before them."""
BORDER_OVERRUN = 1.3
"""Of the time for the uniqueBytes curve: beyond it no border is searched for more closely."""
BRACKET, BRACKET_BESIDE, WIDE_BRACKET = 1.025, 1.06, 1.2
"""Bisection stops when both sides of a border are this close, or of one beside the caches that reads or writes alone
showed; a cache within a wide one may end elsewhere in it."""
CERTAIN_FALL = 4.0
"""Reads or writes whose throughput falls by less, beside a point that was not steady, may have no border there."""
SLOWED, SLOWED_UNSTEADY = 1.5, 5.0
"""By what others on the machine may have slowed down a point that was steady, and one that was not."""
UNKNOWN_UNCERTAINTY = 1.15
"""Of a run that was too short to tell its own; of those not steady on lab machines it is 1.05 to 1.7."""
FILL_GAP, FILL_FALL = 1.08, 1.3
"""A gap of the uniqueBytes curve is halved if it is wider than this and the throughput falls by this over it, beyond
what is uncertain of both ends."""
GAIN = 1.1
"""A probe that brings less than this factor over the one before it ends the range of its parameter."""


class Exploration(SelfScaling):
    """One run of the better self-scaling benchmark."""

    def _find_regions(self, rest_s: float) -> None:
        curve_share = CURVE_SHARE_ALONE
        if self.settings.points_affordable >= PROBED_POINTS_MIN:
            self._probe(until_s=self._until(PROBE_SHARE, rest_s))
            curve_share = CURVE_SHARE
        self._unique_bytes_curve(until_s=self._until(curve_share, rest_s))

    # ---- step 1 ----

    def _probe(self, until_s: float) -> None:
        """Set the focal sizeMean and processNum to the geometric mean of the ends' halfway values."""
        ends = self.settings.probe_bytes
        left = len(ends) * (len(self._sizes) + len(self._process_nums))
        self._planned = left + 50
        halves = []
        for end in ends:
            focal = self._focal.replace(unique_bytes=end)
            measured = {}
            for size in self._shuffled(self._sizes_for(end, 1)):
                point = self._take(focal.replace(size_mean=size), "explore", until_s, left, parameter="sizeMean")
                measured[size] = point.throughput_bytes_per_s
                left -= 1
            while (size := SIZE_STEP * max(measured)) <= min(SIZE_MAX, end / REQUESTS_PER_FILE_MIN):
                largest = sorted(measured)[-2:]
                if len(largest) < 2 or measured[largest[1]] < GAIN * measured[largest[0]]:
                    break
                point = self._take(focal.replace(size_mean=size), "explore", until_s, left, parameter="sizeMean")
                measured[size] = point.throughput_bytes_per_s
            self._sizes = sorted({*self._sizes, *measured})
            halves.append(_halfway(measured))
        self._focal = self._focal.replace(size_mean=align(geometric_mean(halves)))
        halves = []
        tried = 1.0
        for end in ends:
            measured = {}
            for count in self._process_nums:
                if self._focal.size_mean > end / count / REQUESTS_PER_FILE_MIN:
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
        self._focal = self._focal.replace(process_num=float(max(1, round(geometric_mean(halves)))))

    # ---- step 2 ----

    def _unique_bytes_curve(self, until_s: float) -> None:
        """Measure the curve; set borders and regions."""
        settings = self.settings
        count = 7 if settings.points_affordable < 120 else 9 if settings.points_affordable < 400 else 14
        measured: dict[float, float] = {}

        def keep(point: Point) -> None:
            # What disturbs a measurement makes it slower, so of two the faster one is nearer to the truth.
            size = point.workload.unique_bytes
            measured[size] = max(measured.get(size, 0.0), point.throughput_bytes_per_s)

        for point in self._curve():
            keep(point)
        sizes = _without_neighbours(self._unique_bytes_for(self._focal, count), list(measured))
        self._planned = max(self._planned, len(self.points) + len(sizes) + 30)

        def take(size: float, left: int) -> None:
            workload = self._focal.replace(unique_bytes=size)
            keep(self._take(workload, "curve", until_s, left, parameter="uniqueBytes"))

        try:
            for index, size in enumerate(self._shuffled(sizes)):
                take(size, len(sizes) - index + 18)
            borders = self._confirmed(measured, take)
            self._set_regions([border.good_bytes for border in borders], min(measured), max(measured))
            # Where points cost more than planned, coarse borders are better than regions without a focal point.
            refine_until_s = self._until(BORDER_OVERRUN, until_s)
            self._direction_caches(until_s, hints=[edge for border in borders for edge in border.edges])
            found = self._certain_caches()
            caches = [cache.size_bytes for cache in found]
            unexplained = [border for border in borders if not border.explained_by(caches)]
            bracket = BRACKET_BESIDE if caches else BRACKET
            refined = [self._refine(border, bracket, measured, take, refine_until_s) for border in unexplained]
            edges: list[float] = []
            for size in caches + refined:
                if all(abs(math.log(size / edge)) > math.log(APART) for edge in edges):
                    edges.append(size)
            self._set_regions(edges, min(measured), max(measured))
            if self._affords(refine_until_s):
                affordable = settings.points_affordable
                self._fill_falls(measured, take, 3 if affordable < 120 else 6 if affordable < 240 else 10)
                self._set_regions(self._narrowed(edges, found, measured), min(measured), max(measured))
        finally:
            # Also of an interrupted curve something can be told, though its regions are coarser.
            if len(measured) >= 2 and not self.regions:
                borders = self._borders(measured)
                self._set_regions([border.good_bytes for border in borders], min(measured), max(measured))

    def _certain_caches(self) -> list[DirectionCache]:
        """The caches of reads and of writes, as far as they are certain and there was time to find where they end."""
        caches = [direction_cache(self.points, self.regions, read_frac) for read_frac in (READS, WRITES)]
        return [
            cache
            for cache in caches
            if cache
            and cache.high_bytes < APART * cache.size_bytes
            and (cache.steady or cache.inside_bytes_per_s > CERTAIN_FALL * cache.beyond_bytes_per_s)
        ]

    def _narrowed(self, edges: list[float], caches: list[DirectionCache], measured: dict[float, float]) -> list[float]:
        """Edges that are ends of caches whose bracket is wide, moved to the border of the filled curve inside of it.

        Where time was short, points with reads or writes only leave such a bracket, which filling the fall narrows.
        """
        borders = [border.good_bytes for border in self._borders(measured)]
        ends = {
            cache.size_bytes: max(
                (border for border in borders if cache.size_bytes <= border < cache.high_bytes),
                default=cache.size_bytes,
            )
            for cache in caches
            if cache.high_bytes > WIDE_BRACKET * cache.size_bytes
        }
        return sorted({ends.get(edge, edge) for edge in edges})

    def _curve(self) -> list[Point]:
        """The points of the uniqueBytes curve so far, whatever they were measured for."""
        return [
            point
            for point in self.points
            if point.workload == self._focal.replace(unique_bytes=point.workload.unique_bytes)
        ]

    def _borders(self, measured: dict[float, float]) -> list[Border]:
        x = np.array(sorted(measured))
        throughput = np.array([measured[size] for size in x])
        fracs = self._device_fracs()
        return find_borders(x, throughput, np.array([fracs[size] for size in x]))

    def _device_fracs(self) -> dict[float, float]:
        """Of the curve's working sets: bytes from and to storage over bytes moved, NaN where unknown."""
        return {
            point.workload.unique_bytes: math.nan if point.device_frac is None else point.device_frac
            for point in self._curve()
        }

    def _leaves_cache(self, good_bytes: float, bad_bytes: float) -> bool:
        """Whether storage takes part in the second of two points of the curve and not in the first."""
        fracs = self._device_fracs()
        return fracs[good_bytes] < CACHED_DEVICE_FRAC <= fracs[bad_bytes]

    def _confirmed(self, measured: dict[float, float], take: Callable[[float, int], None]) -> list[Border]:
        """Borders that are still there when the point behind each doubtful one has been measured again.

        As far as the budget pays for it beside every region's focal point, without which nothing can be predicted.
        """
        confirmed: set[float] = set()
        while True:
            borders = self._borders(measured)
            doubtful = {border.bad_bytes for border in borders if self._is_doubtful(border, measured)} - confirmed
            if not doubtful:
                return borders
            for index, size in enumerate(sorted(doubtful)):
                focal_points_s = (len(borders) + 1) * (self._overhead_s() + RUN_S_MIN)
                if not self._affords(self.settings.budget_s - focal_points_s):
                    return self._borders(measured)
                take(size, len(doubtful) - index + 8)
            confirmed |= doubtful

    def _is_doubtful(self, border: Border, measured: dict[float, float]) -> bool:
        """Whether the point behind a border may be slow because something disturbed it.

        Not if storage begins to take part there. What is slow for its working set has slow ones behind it, too.
        """
        if self._leaves_cache(*border.edges):
            return False
        behind = next((size for size in sorted(measured) if size > border.bad_bytes), None)
        if behind is None or measured[behind] >= border.threshold:
            return True
        steady = {point.workload.unique_bytes for point in self._curve() if point.steady}
        slowed = SLOWED if border.bad_bytes in steady else SLOWED_UNSTEADY
        return slowed * measured[border.bad_bytes] >= border.threshold

    def _refine(
        self,
        border: Border,
        bracket: float,
        measured: dict[float, float],
        take: Callable[[float, int], None],
        until_s: float,
    ) -> float:
        """Bisect a border until both sides are close; the largest uniqueBytes that still performs like below it."""
        good, bad = border.good_bytes, border.bad_bytes
        while bad / good > bracket and align(math.sqrt(good * bad)) not in (good, bad) and self._affords(until_s):
            middle = align(math.sqrt(good * bad))
            take(middle, math.ceil(math.log2(math.log(bad / good) / math.log(bracket))))
            disturbed = not self.points[-1].steady and not self._leaves_cache(good, middle)
            if measured[middle] < border.threshold and disturbed:
                take(middle, 4)
            if measured[middle] >= border.threshold:
                good = middle
            else:
                bad = middle
        return good

    def _fill_falls(self, measured: dict[float, float], take: Callable[[float, int], None], count: int) -> None:
        """Halve the gap over which the throughput falls most, up to `count` times.

        Behind a border the curve is hyperbolic, and what is interpolated over a gap that falls by a factor is wrong by
        as much (thesis, figure 5.4: predictions are worst near the border).
        """

        def fall(pair: tuple[float, float]) -> float:
            low, high = pair
            certain = self._uncertainty(low) * self._uncertainty(high) * max(1.0, measured[high])
            return measured[low] / certain if high / low > FILL_GAP else 0.0

        for left in range(count, 0, -1):
            low, high = max(itertools.pairwise(sorted(measured)), key=fall)
            if fall((low, high)) < FILL_FALL:
                break
            take(align(math.sqrt(low * high)), left)

    def _uncertainty(self, size: float) -> float:
        """Factor within which the throughput of a working set on the curve is known."""
        best = fastest([point for point in self._curve() if point.workload.unique_bytes == size])
        half_width = best.ci95_half_width_bytes_per_s / max(1.0, best.throughput_bytes_per_s)
        return 1 + half_width if math.isfinite(half_width) else UNKNOWN_UNCERTAINTY

    def _set_regions(self, boundaries: list[float], low: float, high: float) -> None:
        self.boundaries = sorted(boundaries)
        edges = [low, *self.boundaries, high]
        self.regions = [
            Region(start, end, self._focal.replace(unique_bytes=self._focal_bytes(start, end)))
            for start, end in itertools.pairwise(edges)
            if end > start
        ]

    def _focal_bytes(self, low_bytes: float, high_bytes: float) -> float:
        """uniqueBytes of a region's focal vector: its middle, or what is measured already and well inside of it.

        Where sizes and processes were tried first: there are points of the region's curves.
        """
        middle = (low_bytes + high_bytes) / 2
        measured = {point.workload.unique_bytes for point in self._curve()}
        tried = [size for size in self.settings.probe_bytes if APART * low_bytes <= size <= high_bytes / APART]
        inside = [size for size in measured if abs(size - middle) <= (high_bytes - low_bytes) / 4]
        near = [size for size in tried if size in measured] or inside
        return min(near, key=lambda size: abs(size - middle), default=align(middle))


def _halfway(measured: dict[float, float]) -> float:
    x = np.array(sorted(measured))
    return halfway(x, np.array([measured[value] for value in x]))


def _without_neighbours(sizes: list[float], known: list[float]) -> list[float]:
    """Evenly spaced working sets, without those between the ends that a known one stands for."""
    near = math.log(sizes[1] / sizes[0]) / 2
    inner = [size for size in sizes[1:-1] if all(abs(math.log(size / other)) > near for other in known)]
    return [sizes[0], *inner, sizes[-1]]
