# SPDX-License-Identifier: Apache-2.0
"""Turns the size of the cache and a budget into the ranges of an exploration; and what it asks to measure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from characterize.workload import Workload
from selfscale.measure import Point
from selfscale.measuring import storage
from selfscale.measuring.measurable_sizes import PROCESS_NUM_MAX, align

END_SHARE = 0.02
"""Of what a user gives: what comes behind the last point, the errors of all models above all. A `Settings.budget_s` is
without it."""
NOMINAL_POINT_S, OVERHEAD_S = 2.0, 0.5
"""What a point costs on a quiet machine with an SSD: gives how many points, not how long they are; and what of that is
beside its run, before any was measured."""
RANDOM_SHARE_MAX = 0.6
"""Of the time from the first point on, for random workloads."""
STORAGE_SHARE_MAX = 0.2 / (1 - END_SHARE)
"""Of the budget, that probes of storage may cost: a fifth of what was given."""


@dataclass(frozen=True)
class Settings:
    """What an exploration starts from.

    Attributes
    ----------
    cache_bytes : float
        Most that the page cache can hold; gives the range of uniqueBytes, not the border.
    budget_s : float
        Seconds that all points may cost together.
    spent_s : float
        Seconds of the budget that are gone before the first point (laying out the image).
    span_bytes : float, optional
        Largest uniqueBytes where the page cache takes no part; None: it does, and gives the range of uniqueBytes.
    block_bytes : int
        Smallest request.
    read_only : bool
        readFrac is 1 throughout.
    stable_writes : bool
        Workloads have what they write made stable. No application is simulated from their times, which have that in
        them, so that storage need not be probed for it.
    points_max : int, optional
        Most points; each uses up its share of the budget, as its seconds do. None: no limit.
    """

    cache_bytes: float
    budget_s: float
    cpus: int = 1
    seed: int = 0
    random_points: int = 0
    spent_s: float = 0.0
    span_bytes: float | None = None
    block_bytes: int = 1
    read_only: bool = False
    stable_writes: bool = False
    points_max: int | None = None

    @property
    def random_s(self) -> float:
        """Seconds of the budget for random workloads, each of which is measured twice."""
        return min(2 * self.random_points * NOMINAL_POINT_S, RANDOM_SHARE_MAX * (self.budget_s - self.spent_s))

    @property
    def points_affordable(self) -> int:
        """Points of a nominal cost that the budget pays for, beside what was before them and random workloads."""
        affordable = int((self.budget_s - self.spent_s - self.random_s) / NOMINAL_POINT_S)
        return affordable if self.points_max is None else min(affordable, self.points_max)

    @property
    def storage_s(self) -> float:
        """Seconds of the budget that measure all probes of storage once; 0 where that is too much, and none is."""
        if self.span_bytes is not None or self.read_only or self.stable_writes:
            return 0.0
        round_s = storage.round_s(OVERHEAD_S)
        return round_s if round_s <= STORAGE_SHARE_MAX * self.budget_s else 0.0

    @property
    def low_bytes(self) -> float:
        """Smallest uniqueBytes."""
        return align(max(self.high_bytes / 48, 256 * 1024))

    @property
    def high_bytes(self) -> float:
        """Largest uniqueBytes: four times the cache, so that most requests of the last region miss."""
        return align(4 * max(self.cache_bytes, 1 << 20)) if self.span_bytes is None else align(self.span_bytes)

    @property
    def probe_bytes(self) -> list[float]:
        """uniqueBytes at which sizeMean and processNum are tried: within and beyond the cache, if there is one.

        Where the cache is as large as it can be, these are well inside of what is within and what is beyond it.
        """
        if self.span_bytes is None:
            return [align(self.cache_bytes / 4), align(2.5 * self.cache_bytes)]
        return [align(self.span_bytes / 2)]

    @property
    def process_num_max(self) -> int:
        """Largest processNum that is tried."""
        return 2 ** math.ceil(math.log2(min(PROCESS_NUM_MAX, max(4, 2 * self.cpus))))

    @property
    def layout(self) -> list[tuple[int, float]]:
        """(processNum, uniqueBytes) whose files together hold those of every workload that can come."""
        return [(count, self.high_bytes) for count in range(1, self.process_num_max + 1)]

    @property
    def image_bytes(self) -> float:
        """Bytes of the files of `layout`."""
        return files_bytes(self.layout)


@dataclass(frozen=True)
class Step:
    """One measurement to make.

    Attributes
    ----------
    max_seconds : float
        Longest run, by the budget.
    number, planned : int
        Which point this is, and how many there will be by present knowledge.
    left_s : float
        Of the budget: all that may be spent on it.
    choosing_s : float
        What it took to choose it: a part of its cost.
    """

    workload: Workload
    role: str
    max_seconds: float
    region: int | None = None
    parameter: str | None = None
    repeat: int = 0
    number: int = 0
    planned: int = 0
    seed: int = 0
    left_s: float = math.inf
    choosing_s: float = 0.0

    def label(self, point: Point) -> Point:
        """The measured point with what it was measured for."""
        return replace(point, role=self.role, region=self.region, parameter=self.parameter, repeat=self.repeat)


def files_bytes(layout: Iterable[tuple[int, float]]) -> float:
    """Bytes of the files that workloads of so many processes and so much uniqueBytes use one after the other."""
    sizes: dict[int, float] = {}
    for count, size in layout:
        for file in range(count):
            sizes[file] = max(sizes.get(file, 0), size / count)
    return sum(sizes.values())
