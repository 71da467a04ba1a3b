# SPDX-License-Identifier: Apache-2.0
"""Turns requests into units that move as one, and strengths of a change into the one that meets a footprint."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from characterize.references import BLOCK_BYTES
from replayer.flexible.draft import Draft

TOLERANCE = 0.002
STEPS = 24
# Long runs are moved in pieces of this many mean requests: each cut costs a sequential request at most.
CELL_REQUESTS = 256


def turns_of(draft: Draft) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit of every request, number of the place that it moves with, how many units began there before; shape (n,).

    A unit is a run; of a long run the part in one cell of the file. Its place is the block in which it begins.
    """
    start, end, file = draft.intervals()
    cell = max(int((end - start).mean()) * CELL_REQUESTS, 1)
    order, run = draft.runs()
    begins = np.ones(len(order), bool)
    begins[1:] = (np.diff(run) > 0) | (np.diff(start[order] // cell) > 0)
    unit = np.empty(len(order), np.int64)
    unit[order] = np.cumsum(begins) - 1
    first = order[begins]
    # Continued pieces begin near the same place in every pass: the cell tells them, not the block.
    continued = ~np.diff(run, prepend=-1).astype(bool)[begins]
    where = np.stack([file[first], np.where(continued, -1 - start[first] // cell, start[first] // BLOCK_BYTES)])
    place = np.unique(where, axis=1, return_inverse=True)[1].reshape(-1)
    in_time = np.argsort(first, kind="stable")
    turn = np.empty(len(first), np.int64)
    turn[in_time] = pd.Series(place[in_time]).groupby(place[in_time]).cumcount().to_numpy()
    return unit, place[unit], turn[unit]


def search(
    change: Callable[[float], tuple[float, np.ndarray]],
    target: float,
    low: float,
    high: float,
    *,
    geometric: bool = False,
) -> tuple[float, np.ndarray]:
    """Bisect for the strength of a change that brings the unique bytes closest to `target`."""
    rising = change(high)[0] > change(low)[0]
    best = change(low)
    for _ in range(STEPS):
        middle = (low * high) ** 0.5 if geometric else (low + high) / 2
        tried = change(middle)
        if abs(tried[0] - target) < abs(best[0] - target):
            best = tried
        if abs(tried[0] / target - 1) <= TOLERANCE / 4:
            break
        if (tried[0] < target) == rising:
            low = middle
        else:
            high = middle
    return best
