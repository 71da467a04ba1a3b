# SPDX-License-Identifier: Apache-2.0
"""Turns the points of a profile into what to say of a machine that never became steady.

Points that were not steady are no reason to distrust a profile by themselves: where writes come in bursts, or others
use the machine, many never are, and predictions are as good as a second measurement all the same (45 % of the points,
docs/measurements.md, section 5.3 as a user repeats it). Above half of them the typical point is one of these, which is
worth a warning. Above nine of ten hardly any is steady but by chance, and what was measured describes no state that
the machine stays in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from selfscale.measure import Point

WARNED_SHARE, DISTRUSTED_SHARE = 0.5, 0.9
"""Of the points: above it a prediction from them comes with a warning, or the profile itself is not trustworthy."""
REMEDY = "measure again with a larger --budget, or while nobody else uses the machine"


@dataclass(frozen=True)
class Unsteady:
    """Points that were not steady when they were stopped, of how many."""

    count: int
    points: int

    def above(self, share: float) -> bool:
        """Whether it is more than a share of them."""
        return self.count > share * self.points

    def __str__(self) -> str:
        return f"{self.count} of {self.points} points ({self.count / max(1, self.points):.0%})"


def unsteady(points: Iterable[Point]) -> Unsteady:
    """Of the points that models learn from: all but random workloads."""
    steady = [point.steady for point in points if point.role != "random"]
    return Unsteady(len(steady) - sum(steady), len(steady))


def unsteadiness(points: Iterable[Point]) -> str:
    """What to warn of, behind the name of a profile with these points; empty where that is nothing."""
    found = unsteady(points)
    return f"{found} that predictions rest on were not steady; {REMEDY}" if found.above(WARNED_SHARE) else ""
