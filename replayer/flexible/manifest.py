# SPDX-License-Identifier: Apache-2.0
"""Turns what was wanted of an alteration and what came of it into its manifest; says what counts as met and held."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from characterize.trace_files.provenance import tool_version
from characterize.workload import FIELD_OF, PARAMETERS, Workload
from replayer.flexible.curve import CurveChange

SHARES = ("seqFrac", "readFrac")
TIMES = ("timeScale", "thinkScale")
ACCEPTED = 0.01
"""Of a target and of what is held: relative, of shares absolute; one request, where that is more (`accepted`)."""
ONE_REQUEST_MAX = 0.25
"""Of what one request makes of it: where it is most of the data, or more than all, any result would be met and held."""
HELD_TOLERANCE = ACCEPTED / 2
"""What is held is brought back from beyond that; the rest is for later steps: a split may cut runs (`CUTS_SHARE`)."""
RUNS_TOLERANCE = 0.9 * ACCEPTED
"""By how much a change of the footprint may move seqFrac: from there it is brought back."""


def accepted(one_request: float) -> float:
    """How far a parameter may be off of which one request is such a part: `ACCEPTED`, or that part where it is more."""
    return max(ACCEPTED, min(one_request * 1.001, ONE_REQUEST_MAX))


def deviation_text(name: str, deviation: float) -> str:
    """How far something is off, as it is told: of shares the difference, else a percentage of what was wanted."""
    return f"{deviation:+.4f}" if name in SHARES else f"{deviation:+.2%}"


@dataclass
class Manifest:
    """What an alteration did, for the lineage in the trace's header.

    Attributes
    ----------
    before, wanted, achieved : Workload
        The parent; the parent with the changes wanted; the altered trace as measured.
    changes : dict of str to str
        As they were asked for.
    times : dict of str to (float, float)
        Of `TIMES`, where asked for: the factor that was wanted and the one achieved.
    requests, moved : int
        Requests, whose number stays, and how many of them differ from the parent's.
    reuse_before, reuse : float
        Bytes moved by unique bytes (rho).
    curve : CurveChange
        Of the miss-ratio curve over cache / uniqueBytes.
    notes : dict
        What each step did.
    """

    parent: str
    parent_sha256: str | None
    seed: int
    changes: dict[str, str]
    before: Workload
    wanted: Workload
    achieved: Workload
    times: dict[str, tuple[float, float]]
    requests: int
    moved: int
    reuse_before: float
    reuse: float
    curve: CurveChange
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def deviation(self) -> dict[str, float]:
        """Achieved against wanted: of all five that are known, absolute for shares, else relative; of changed times."""
        result = {}
        for name in PARAMETERS:
            wanted, achieved = (getattr(workload, FIELD_OF[name]) for workload in (self.wanted, self.achieved))
            if math.isnan(wanted) or math.isnan(achieved):
                continue
            result[name] = achieved - wanted if name in SHARES else achieved / wanted - 1
        return result | {name: achieved / wanted - 1 for name, (wanted, achieved) in self.times.items()}

    @property
    def off(self) -> dict[str, float]:
        """Deviations beyond what is tolerated."""
        return {name: value for name, value in self.deviation.items() if abs(value) > self.tolerance_of(name)}

    @property
    def off_text(self) -> str:
        """The same in words."""
        return ", ".join(f"{name} by {deviation_text(name, value)}" for name, value in self.off.items())

    def tolerance_of(self, name: str) -> float:
        """How far a parameter may be off."""
        one_request = 1 / self.requests
        if name == "uniqueBytes":
            one_request = self.wanted.size_mean / self.wanted.unique_bytes
        return accepted(one_request)

    def as_document(self) -> dict[str, Any]:
        """As JSON needs it."""
        return {
            "parent": self.parent,
            "parent_sha256": self.parent_sha256,
            "tool_version": tool_version(),
            "seed": self.seed,
            "changes": self.changes,
            "before": self.before.as_document(),
            "wanted": self.wanted.as_document(),
            "achieved": self.achieved.as_document(),
            "times": {
                name: {"wanted": wanted, "achieved": achieved} for name, (wanted, achieved) in self.times.items()
            },
            "deviation": self.deviation,
            "requests": self.requests,
            "moved": self.moved,
            "reuse_before": self.reuse_before,
            "reuse": self.reuse,
            "curve": self.curve.as_document(),
            "steps": self.notes,
        }
