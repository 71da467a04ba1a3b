# SPDX-License-Identifier: Apache-2.0
"""Turns what is measured so far into the workloads worth measuring next: most information per second of measuring.

The thesis's "feedback between the two phases" (6.2). Information is how much a measurement would lower what is not
known of random workloads, as the learned model's covariance has it (Cohn's criterion); a second costs the same wherever
it is spent, so a workload beyond the cache must tell more than one within it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from characterize.errors import FlextraceError
from characterize.workload import Workload
from selfscale.exploring.sampling import random_workload
from selfscale.models.learned import LearnedModel
from selfscale.models.measured import measured, region_of
from selfscale.profile import Profile

CANDIDATES, TARGETS = 150, 150
"""Random workloads to choose from, and random workloads whose prediction shall become better."""


def most_informative(profile: Profile, generator: random.Random, count: int) -> list[Workload]:
    """The workloads to measure next, the best first; each is chosen as if those before it were measured.

    Returns
    -------
    list of Workload
        `count` of them; none where the points are too few for the learned model.
    """
    try:
        model = LearnedModel().fit(profile.measured, profile.regions)
    except FlextraceError:
        return []
    workloads = [random_workload(profile, generator) for _ in range(CANDIDATES + TARGETS)]
    covariance = model.covariance(workloads)
    costs_s = _costs_s(profile, workloads[:CANDIDATES])
    noise = float(np.median(measured(profile.measured).noise))
    chosen: list[int] = []
    for _ in range(count):
        own = np.diag(covariance)[:CANDIDATES] + noise**2
        gain = (covariance[:CANDIDATES, CANDIDATES:] ** 2).sum(axis=1) / own / costs_s
        gain[chosen] = -1.0
        best = int(np.argmax(gain))
        chosen.append(best)
        covariance = covariance - np.outer(covariance[:, best], covariance[best]) / own[best]
    return [workloads[index] for index in chosen]


def _costs_s(profile: Profile, workloads: Sequence[Workload]) -> np.ndarray:
    """What workloads will cost: the mean of their region's points so far."""
    costs: dict[int, list[float]] = {}
    for point in profile.measured:
        costs.setdefault(region_of(profile.regions, point.workload.unique_bytes), []).append(max(point.cost_s, 0.1))
    overall = float(np.mean([point.cost_s for point in profile.measured]))
    return np.array(
        [np.mean(costs.get(region_of(profile.regions, w.unique_bytes), [max(overall, 0.1)])) for w in workloads]
    )
