# SPDX-License-Identifier: Apache-2.0
"""Turns points with reads only and with writes only into the size of the file cache for reads and that for writes.

They may differ: Sprite's log-structured file system cached 20 MB for reads and 5 to 8 MB for writes (thesis 4.5.1.2,
figure 4.8), and Linux makes writers wait at a limit of dirty pages that is below the size of the page cache. Half
reads and half writes show that as two borders or as one, and not whose they are.

What is measured for it: the focal uniqueBytes of the first region, unless a larger working set of that direction is
known to be cached, and of the last; these bracket both caches and are ends of readFrac curves. Reads first, whose
bracket is narrowed at places that are given (the falls of the uniqueBytes curve), then by bisection; then writes, for
which the end of the reads' cache is the first place. A cache that is shared costs writes two points beside these ends.

Where in the fall the cache ends: at the thesis's knee (4.3), 75 % of the throughput inside, since the curve has too few
points for slopes, and since the middle between top and foot, which `regions` takes, lies further behind the
cache by an amount that differs between reads and writes. What remains of that is in the interval: with a share
m = 1 - M / U of requests that miss a cache of M bytes, the time per byte is h + m (d - h), and top, foot and the last
point before the knee give M. See docs/decisions/0018-caches-by-direction-and-write-policy.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from characterize.workload import Workload
from selfscale.measure import Point
from selfscale.measuring.measurable_sizes import align
from selfscale.profile import Region
from selfscale.profiles.regions import CACHED_DEVICE_FRAC, DROP_MIN, last_cached

READS, WRITES = 1.0, 0.0
"""Values of readFrac."""
KNEE = 0.75
"""Of the throughput inside the cache; below it a working set is beyond it."""
BRACKET = {READS: 1.06, WRITES: 1.17}
"""A cache is known when its bracket is at most this wide; that of reads is the size of the file cache."""
NOISE = 1.1
"""What repeated measurements may differ by. Two caches are told apart if their intervals lie this far apart."""
CERTAIN = 10
"""What is not steady and slower by this factor is so by no disturbance."""
TRIES_MAX = 2
UNCACHED_FRAC = 0.5
"""A working set of which reads fetch more than this share from storage is not cached, however small (O_DIRECT)."""
INSIDE_DEVICE_FRAC = 0.1
"""Where more than this share of the bytes moves to or from storage, a smaller working set is looked at before it is
said that there is no cache."""


@dataclass(frozen=True)
class Fall:
    """Where one direction's throughput leaves that of the cache.

    Attributes
    ----------
    good, bad : Point
        Last before the knee and first behind it.
    top, foot : Point
        Last whose working set storage has no part in (the first where that is unknown), and the largest.
    """

    good: Point
    bad: Point
    top: Point
    foot: Point


@dataclass(frozen=True)
class DirectionCache:
    """The effective size of the file cache for reads or for writes.

    Attributes
    ----------
    size_bytes : float
        Largest measured uniqueBytes that performs like the cache.
    low_bytes, high_bytes : float
        Between these the cache ends.
    inside_bytes_per_s, beyond_bytes_per_s : float
        Throughput at the top and at the foot of the fall.
    steady : bool
        Whether the points on both sides of the border were.
    """

    size_bytes: float
    low_bytes: float
    high_bytes: float
    inside_bytes_per_s: float
    beyond_bytes_per_s: float
    steady: bool


def of_direction(points: Sequence[Point], regions: Sequence[Region], read_frac: float) -> dict[float, list[Point]]:
    """Measured points of one direction at the focal vector, by uniqueBytes in ascending order."""
    found: dict[float, list[Point]] = {}
    for point in points:
        workload = point.workload
        focal = regions[0].focal.replace(unique_bytes=workload.unique_bytes, read_frac=read_frac)
        if workload == focal and point.role != "random" and point.throughput_bytes_per_s > 0:
            found.setdefault(workload.unique_bytes, []).append(point)
    return dict(sorted(found.items()))


def fastest(points: Sequence[Point]) -> Point:
    """What disturbs a measurement makes it slower, so of several the fastest is nearest to the truth."""
    return max(points, key=lambda point: point.throughput_bytes_per_s)


def direction_cache(points: Sequence[Point], regions: Sequence[Region], read_frac: float) -> DirectionCache | None:
    """The file cache of a direction.

    Parameters
    ----------
    points : sequence of Point
        Of a profile.
    regions : sequence of Region
        All with the same focal vector but for uniqueBytes (appendix B).
    read_frac : float
        `READS` or `WRITES`.

    Returns
    -------
    DirectionCache or None
        None where the throughput does not fall, or was not measured.
    """
    curve = of_direction(points, regions, read_frac) if regions else {}
    fall = _fall(curve)
    if not fall:
        return None
    return DirectionCache(
        fall.good.workload.unique_bytes,
        min(fall.good.workload.unique_bytes, _cache_by_cost(fall)),
        fall.bad.workload.unique_bytes,
        fall.top.throughput_bytes_per_s,
        fall.foot.throughput_bytes_per_s,
        fall.good.steady and fall.bad.steady,
    )


def differ(one: DirectionCache | None, other: DirectionCache | None) -> bool:
    """Whether two caches differ by more than is uncertain of them; not known where one has none."""
    if not one or not other:
        return False
    smaller, larger = sorted((one, other), key=lambda cache: cache.size_bytes)
    return larger.low_bytes > NOISE * smaller.high_bytes


def next_probe(points: Sequence[Point], regions: Sequence[Region], hints_bytes: Sequence[float]) -> Workload | None:
    """The workload that tells next where the caches of reads and of writes end.

    Parameters
    ----------
    points, regions
        As for `direction_cache`.
    hints_bytes : sequence of float
        uniqueBytes near which a cache may end.

    Returns
    -------
    Workload or None
        None where both are known, or nothing is cached. Nothing is asked for more than twice.
    """
    if not regions:
        return None
    hints = list(hints_bytes)
    for read_frac in (READS, WRITES):
        curve = of_direction(points, regions, read_frac)
        focal = regions[0].focal.replace(read_frac=read_frac)
        fall = _fall(curve)
        # Of one region the middle alone would be measured, and the ends of the range are what may differ.
        ends = [regions[0].focal.unique_bytes, regions[-1].focal.unique_bytes]
        if len(regions) == 1:
            ends = [regions[0].low_bytes, regions[0].high_bytes]
        if _moved_to_storage(curve) > INSIDE_DEVICE_FRAC:
            ends.append(regions[0].low_bytes)
        top = _top(curve)
        if top and _is_cached(top) and top.workload.unique_bytes >= ends[0]:
            ends = ends[1:]
        decisive = [point for point in (top, fall.bad if fall else None) if point]
        for size in ends + [point.workload.unique_bytes for point in decisive]:
            tries = _tries(points, focal.replace(unique_bytes=size))
            if not tries or (len(tries) == 1 and _doubtful(tries[0], top, curve)):
                return focal.replace(unique_bytes=size)
        if read_frac == READS and _moved_to_storage(curve) > UNCACHED_FRAC:
            return None
        if fall:
            place = focal.replace(unique_bytes=_between(fall, hints))
            if _width(fall) > BRACKET[read_frac] and len(_tries(points, place)) < TRIES_MAX:
                return place
            hints = [fall.good.workload.unique_bytes, fall.bad.workload.unique_bytes, *hints]
        # Where what is half reads falls though reads do not, the writes' cache ends: look at both of its sides at once.
        hints = [side for hint in hints for side in (hint, align(0.99 * BRACKET[WRITES] * hint))]
    return None


def _fall(curve: dict[float, list[Point]]) -> Fall | None:
    best = [fastest(measured) for measured in curve.values()]
    top = _top(curve)
    if not top or top.throughput_bytes_per_s < DROP_MIN * best[-1].throughput_bytes_per_s:
        return None
    knee = KNEE * top.throughput_bytes_per_s
    behind = next(at for at in range(best.index(top) + 1, len(best)) if best[at].throughput_bytes_per_s < knee)
    return Fall(best[behind - 1], best[behind], top, best[-1])


def _top(curve: dict[float, list[Point]]) -> Point | None:
    best = [fastest(measured) for measured in curve.values()]
    fracs = np.array([math.nan if point.device_frac is None else point.device_frac for point in best])
    return best[last_cached(fracs)] if best else None


def _tries(points: Sequence[Point], workload: Workload) -> list[Point]:
    """Also those that moved nothing in their time, which no curve holds."""
    return [point for point in points if point.workload == workload and point.role != "random"]


def _moved_to_storage(curve: dict[float, list[Point]]) -> float:
    """Share of the bytes of the smallest working set; 0 where it is unknown."""
    return (fastest(next(iter(curve.values()))).device_frac or 0.0) if curve else 0.0


def _doubtful(point: Point, top: Point | None, curve: dict[float, list[Point]]) -> bool:
    """Whether something that made it slower may be why it is not like the top; not if storage takes part only there.

    The top itself is not where it is like another cached point.
    """
    if point.steady:
        return False
    if not top or point is top:
        others = [fastest(measured) for measured in curve.values() if point not in measured]
        cached = max((other.throughput_bytes_per_s for other in others if _is_cached(other)), default=math.inf)
        return point.throughput_bytes_per_s < KNEE * cached
    if _is_cached(top) and point.device_frac is not None and not _is_cached(point):
        return False
    return 1 / CERTAIN < point.throughput_bytes_per_s / top.throughput_bytes_per_s < KNEE


def _is_cached(point: Point) -> bool:
    return point.device_frac is not None and point.device_frac < CACHED_DEVICE_FRAC


def _width(fall: Fall) -> float:
    return fall.bad.workload.unique_bytes / fall.good.workload.unique_bytes


def _between(fall: Fall, hints: Sequence[float]) -> float:
    """Where to look inside a bracket."""
    good, bad = fall.good.workload.unique_bytes, fall.bad.workload.unique_bytes
    return next((size for size in hints if good < size < bad), align(math.sqrt(good * bad)))


def _cache_by_cost(fall: Fall) -> float:
    """The cache of M bytes whose misses would make the last good point slower than it was by what may be noise."""
    hit, beyond, here = (1 / point.throughput_bytes_per_s for point in (fall.top, fall.foot, fall.good))
    share = max(0.0, (NOISE * here - hit) / (beyond - hit))
    return (1 - share) / (1 / fall.good.workload.unique_bytes - share / fall.foot.workload.unique_bytes)


def file_cache_size(points: Sequence[Point], regions: Sequence[Region], borders_bytes: Sequence[float]) -> float | None:
    """Effective size of the file cache in bytes; None where no border was found.

    That of reads: writes may be held to a limit on what is dirty in it, and the first border of the uniqueBytes curve,
    of half reads and half writes, may be that limit. Within what is not known of it, the border is better known.
    """
    if not borders_bytes:
        return None
    read = direction_cache(points, regions, READS)
    if not read:
        return borders_bytes[0]
    inside = [border for border in borders_bytes if read.size_bytes <= border < read.high_bytes]
    return max(inside, default=read.size_bytes)
