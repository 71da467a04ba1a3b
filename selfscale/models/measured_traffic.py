# SPDX-License-Identifier: Apache-2.0
"""Turns what storage is simulated to do for points, and what it was counted to do in their runs, into the traffic of
these runs.

A run of a second or two is not the steady state that is simulated: the flusher may not have come by, or have written
what was dirty before. What such a run took says what a request to storage takes only where it is known how many there
were. Where a file system adds requests that are not simulated (btrfs has 1.5 times as many: it copies on write, and
writes metadata), counts say nothing of what is simulated for other workloads, and what was simulated stands.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from selfscale.models.measured import Columns, Measured
from selfscale.models.read_ahead import PAGE_BYTES
from selfscale.simulation.traffic import Traffic

NOTHING = 0.02
"""Requests of storage over those made, and bytes over those moved, that are added to both before they are compared."""
SIMULATED_WELL = 0.25
"""Median of |ln(counted / simulated)| up to which the simulation is of this file system."""
POINTS_MIN = 6
"""In which storage does something: of fewer nothing is told."""


class _Totals(NamedTuple):
    """Over all requests of n points, shape (n,) each: requests of storage by request, bytes by byte."""

    reads: np.ndarray
    read_bytes: np.ndarray
    writes: np.ndarray
    written_bytes: np.ndarray


def traffic_of_runs(simulated: Traffic, data: Measured) -> Traffic:
    """What storage did in the runs of n points, in the terms of the simulation.

    Parameters
    ----------
    simulated : Traffic
        Of the points' workloads, each field of shape (n,).
    data : Measured
        The points; those that were not counted keep what is simulated.
    """
    told = _simulated_totals(simulated, data.columns)
    counted = _Totals(data.device_reads, data.device_read_frac, data.device_writes, data.device_write_frac)
    factor = _Totals(*(_factors(*one) for one in zip(told, counted, strict=True)))
    factors: dict[str, np.ndarray] = {
        **dict.fromkeys(("reads", "reads_ahead", "filled"), factor.reads),
        **dict.fromkeys(("read_frac", "ahead_frac"), factor.read_bytes),
        "writes": factor.writes,
        "written_frac": factor.written_bytes,
    }
    fields: dict[str, Any] = {name: getattr(simulated, name) * factors.get(name, 1.0) for name in Traffic._fields}
    return Traffic(**fields)


def _simulated_totals(traffic: Traffic, table: Columns) -> _Totals:
    read, write = table.read_frac, 1 - table.read_frac
    whole = np.maximum(table.size_mean, PAGE_BYTES) / table.size_mean
    return _Totals(
        read * (traffic.reads + traffic.reads_ahead) + write * traffic.filled,
        read * (traffic.read_frac + traffic.ahead_frac) * whole + write * traffic.filled * PAGE_BYTES / table.size_mean,
        write * traffic.writes,
        write * traffic.written_frac * whole,
    )


def _factors(simulated: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Counted over simulated, shape (n,); 1 where nothing was counted, and for all where they have little in common."""
    logarithm = np.log((np.maximum(counted, 0.0) + NOTHING) / (simulated + NOTHING))
    compared = np.abs(logarithm[(counted > NOTHING) | (simulated > NOTHING) & np.isfinite(counted)])
    if len(compared) < POINTS_MIN or np.median(compared) > SIMULATED_WELL:
        return np.ones(len(simulated))
    return np.exp(np.where(np.isfinite(logarithm), logarithm, 0.0))
