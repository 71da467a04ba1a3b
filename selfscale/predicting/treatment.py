# SPDX-License-Identifier: Apache-2.0
"""Turns the extended parameters of an application into what becomes of each of them: used, ignored, not known.

They (design.md section 4) are used as far as a profile of warm, buffered overwrites without syncs can answer for them;
`USED` and `IGNORED` say for each one what becomes of it.
"""

from __future__ import annotations

import math

from selfscale.predict import Predictor
from selfscale.predicting.application import Application
from selfscale.predicting.uncached import knows_device

NEGLIGIBLE = 0.005
COLD = "reads of data that was not in the page cache"
DIRECT = "requests with O_DIRECT"
USED = {
    "coldFrac": f"{COLD}: at the speed of the largest measured uniqueBytes, in the I/O and elapsed time only",
    "directFrac": f"{DIRECT}: reads as those that miss the cache, in the I/O and elapsed time only; writes as buffered",
    "syncFrac": "syncs per write: their time is taken as recorded, in the elapsed time only",
}
IGNORED = {
    "coldFrac": f"{COLD}: the prediction takes the cache as warm",
    "directFrac": f"{DIRECT}: the prediction takes them as buffered",
    "syncFrac": "syncs per write: the prediction has none, and time in sync is not part of it",
    "appendFrac": "writes that extend files: the prediction takes them as overwrites",
    "syncWriteFrac": "writes with O_SYNC or O_DSYNC: the prediction takes them as buffered",
}
"""Extended parameters that a profile's workloads do not have (0), and what it means to ignore them; a simulation of the
operations has them all."""


def treatment(
    application: Application, predictor: Predictor
) -> tuple[list[tuple[str, float, str]], list[tuple[str, float, str]]]:
    """Extended parameters that are not 0 in the trace: those that are used, and those that are ignored.

    Returns
    -------
    used, ignored : list of (name, value, what it means)
        The value of an ignored one is NaN where the trace does not tell it.
    """
    usable = set()
    if application.times is not None:
        usable = {"syncFrac"} | ({"coldFrac", "directFrac"} if knows_device(predictor) else set())
    used: list[tuple[str, float, str]] = []
    ignored: list[tuple[str, float, str]] = []
    access = predictor.profile.access
    own = {"directFrac": not access.cached, "syncFrac": access.sync_frac > 0, "syncWriteFrac": access.dsync}
    for name, text in IGNORED.items():
        if own.get(name):
            continue  # as the profile's own workloads are
        value = application.extended.get(name, 0.0)
        if math.isnan(value) and _has_such(application, name):
            ignored.append((name, value, text))
        elif value > NEGLIGIBLE:
            (used if name in usable else ignored).append((name, value, USED[name] if name in usable else text))
    return used, ignored


def _has_such(application: Application, name: str) -> bool:
    """Whether a trace has what a parameter is a share of: without writes there are no syncs per write."""
    if name == "directFrac":
        return True
    return application.read_share > 0 if name == "coldFrac" else application.read_share < 1
