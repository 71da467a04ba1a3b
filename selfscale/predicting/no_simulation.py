# SPDX-License-Identifier: Apache-2.0
"""Turns a profile into why nothing is simulated from it, and what to measure instead.

A simulation needs the machine behind its page cache, and what its storage takes for what comes alone
(`selfscale.measuring.storage`); service times that have syncs in them would count these twice (docs/decisions/0017).
"""

from __future__ import annotations

from typing import NamedTuple

from selfscale.measuring.storage import storage_times
from selfscale.predict import Predictor
from selfscale.predicting.uncached import knows_device


class NoSimulation(NamedTuple):
    """What is said of a profile, behind its name, and what to do about it."""

    reason: str
    remedy: str


def no_simulation(predictor: Predictor) -> NoSimulation | None:
    """Why operations are not simulated on the machine of a profile; None where they are."""
    profile = predictor.profile
    access = profile.access
    if knows_device(predictor) and storage_times(profile.storage) is not None:
        return None
    if profile.table:
        return NoSimulation("is of a table, which says nothing of a machine", "measure that one with 'flextrace scale'")
    if not access.cached:
        other = "with 'flextrace scale --directory DIR'" if access.device else "without --direct"
        return NoSimulation("was measured without the page cache", f"measure one {other}")
    if access.stable:
        option = "--dsync" if access.dsync else "--sync-frac"
        return NoSimulation(
            f"was measured with {access.syncs}, whose time is in that of its requests",
            f"measure one without {option}: a simulation has the syncs of the trace",
        )
    if profile.knee:
        return NoSimulation(
            "was measured around a knee, which tells no region beyond the cache",
            "measure one with 'flextrace scale --focal middle'",
        )
    if not knows_device(predictor):
        return NoSimulation("tells no region beyond the cache", "measure one on a disk, with a larger --budget")
    return NoSimulation(
        "does not say what storage takes", "measure it again with 'flextrace scale --budget 100s' or more"
    )
