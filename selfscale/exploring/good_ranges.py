# SPDX-License-Identifier: Apache-2.0
"""Turns a single parameter graph into the range of its parameter that performs well (thesis 4.3, 4.4, figure 4.1)."""

from __future__ import annotations

import numpy as np

from characterize.units import format_bytes
from characterize.workload import FIELD_OF, PARAMETERS
from selfscale.profile import Curve, Profile

GOOD = 0.75
"""Share of the largest throughput from which on a workload performs well (thesis 4.3)."""


def good_range(curve: Curve) -> tuple[float, float] | None:
    """Least and largest measured value of the unbroken stretch around the best one that performs well; None if empty.

    Nothing is interpolated: both ends were measured, and so was everything in between.
    """
    if not len(curve.x):
        return None
    bad = np.flatnonzero(curve.throughput < GOOD * curve.throughput.max())
    best = int(curve.throughput.argmax())
    first = bad[bad < best].max(initial=-1) + 1
    last = bad[bad > best].min(initial=len(curve.x)) - 1
    return float(curve.x[first]), float(curve.x[last])


def good_ranges(profile: Profile) -> dict[str, tuple[float, float]]:
    """`good_range` of every parameter that was varied around the focal vector of the first region."""
    ranges = {}
    for parameter in PARAMETERS:
        curve = profile.curve(parameter, 0)
        found = good_range(curve)
        if found and len(curve.x) > 1:
            ranges[parameter] = found
    return ranges


def knee_sentences(profile: Profile) -> list[str]:
    """What the global-knee benchmark found, in lines of text; none for profiles of the other one."""
    if not profile.knee or not profile.regions:
        return []
    focal = profile.regions[0].focal
    vector = ", ".join(f"{name} {_value(name, getattr(focal, FIELD_OF[name]))}" for name in PARAMETERS)
    search = f"{profile.knee['rounds']} round" + "s" * (profile.knee["rounds"] != 1)
    if profile.knee["converged"]:
        sentences = [f"The global knee, found in {search}: {vector}."]
    else:
        moving = ", ".join(profile.knee["moving"])
        search += ", when its share of the time was over (give a larger --budget)" * profile.knee["out_of_time"]
        sentences = [
            f"The search for the global knee did NOT converge in {search} ({moving} may not be at the knee); it "
            f"stands at: {vector}."
        ]
    sentences.append(f"Around it these workloads reach {GOOD:.0%} of the largest throughput or more:")
    for name, (low, high) in profile.knee["ranges"].items():
        sentences.append(f"  - {name} from {_value(name, low)} to {_value(name, high)}")
    return sentences


def _value(parameter: str, value: float) -> str:
    return format_bytes(value) if parameter in {"uniqueBytes", "sizeMean"} else f"{value:.3g}"
