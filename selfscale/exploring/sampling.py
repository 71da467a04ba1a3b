# SPDX-License-Identifier: Apache-2.0
"""Turns a profile's measured ranges into workloads: random ones (thesis 5.3) and an orthogonal sample (5.4)."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np

from characterize.workload import FIELD_OF, Workload
from selfscale.measuring.measurable_sizes import REQUESTS_PER_FILE_MIN, align, align_request, feasible
from selfscale.models.measured import LOGARITHMIC
from selfscale.profile import Profile

LEVELS_FIRST = ("uniqueBytes", "sizeMean", "readFrac", "seqFrac", "processNum")
"""Which parameters get a third level first: throughput changes most with uniqueBytes (thesis 5.3)."""
LEVELS_MAX = 7


def random_workload(profile: Profile, generator: random.Random) -> Workload:
    """A workload drawn uniformly over the measured ranges, on a logarithmic axis for uniqueBytes and sizeMean.

    Sizes are rounded to pages, as the thesis's to blocks (3.4.2): what is drawn below one and a half is one page.
    """

    def logarithmic(parameter: str) -> float:
        low, high = profile.range_of(parameter)
        return math.exp(generator.uniform(math.log(low), math.log(high)))

    unique_bytes = align(logarithmic("uniqueBytes"))
    process_num = float(generator.randint(1, int(profile.range_of("processNum")[1])))
    size = min(logarithmic("sizeMean"), unique_bytes / process_num / REQUESTS_PER_FILE_MIN)
    return Workload(
        unique_bytes=unique_bytes,
        seq_frac=generator.uniform(*profile.range_of("seqFrac")),
        read_frac=generator.uniform(*profile.range_of("readFrac")),
        size_mean=align(size),
        process_num=process_num,
    )


def orthogonal_levels(profile: Profile, points: int) -> dict[str, list[float]]:
    """Evenly spaced values of every parameter whose combinations are at most `points` (thesis 5.4).

    Every parameter has two levels, its ends; in turn, those of `LEVELS_FIRST` get one more as long as the product of
    the numbers of levels stays within `points`. The thesis's 162 points are 3 x 3 x 3 x 3 x 2.

    Returns
    -------
    dict
        Parameter to ascending values; one value where the profile measured only one.
    """
    ranges = {name: profile.range_of(name) for name in FIELD_OF}
    counts = {name: 1 if low == high else 2 for name, (low, high) in ranges.items()}
    for _ in range(LEVELS_MAX - 2):
        for name in LEVELS_FIRST:
            wider = math.prod(count + (other == name) for other, count in counts.items())
            if counts[name] > 1 and wider <= points:
                counts[name] += 1
    return {name: _levels(name, *ranges[name], counts[name]) for name in FIELD_OF}


def _levels(parameter: str, low: float, high: float, count: int) -> list[float]:
    if count == 1:
        return [low]
    values = np.geomspace(low, high, count) if parameter in LOGARITHMIC else np.linspace(low, high, count)
    if parameter == "uniqueBytes":
        return sorted({align(value) for value in values})
    if parameter == "sizeMean":
        return sorted({align_request(value) for value in values})
    if parameter == "processNum":
        return sorted({float(round(value)) for value in values})
    return [float(value) for value in values]


def orthogonal_sample(profile: Profile, points: int) -> list[tuple[Workload, Workload]]:
    """Every combination of `orthogonal_levels`, and the workload to measure in its place.

    Returns
    -------
    list of (node, workload)
        They differ where a file of the node's uniqueBytes / processNum holds fewer than eight requests of its
        sizeMean: then the workload has the largest size that fits.
    """
    levels = orthogonal_levels(profile, points)
    sample = []
    for values in itertools.product(*(levels[name] for name in FIELD_OF)):
        node = Workload(**dict(zip(FIELD_OF.values(), values, strict=True)))
        sample.append((node, feasible(node)))
    return sample


def ends_first(values: list[float]) -> list[float]:
    """Both ends, then always the value whose gap to its chosen neighbours is widest (by rank)."""
    order = [0, len(values) - 1][: len(values)]
    while len(order) < len(values):
        rest = [index for index in range(len(values)) if index not in order]
        order.append(max(rest, key=lambda index: min(abs(index - chosen) for chosen in order)))
    return [values[index] for index in order]
