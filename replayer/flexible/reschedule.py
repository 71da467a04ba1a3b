# SPDX-License-Identifier: Apache-2.0
"""Turns a schedule into one with fewer threads (a compiled loop), keeping what was ordered in the old one."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def reschedule(start: np.ndarray, end: np.ndarray, thread: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Start times for operations that keep their durations, one at a time in every thread.

    An operation starts at its old time or later: behind the operation before it in its thread, and behind everything
    that had ended by its old start (of what stands before it in `order`).

    Parameters
    ----------
    start, end : ndarray of int64, shape (n,)
        The old schedule.
    thread : ndarray of int64, shape (n,)
        New threads.
    order : ndarray of int64, shape (n,)
        The order in which operations are placed.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    count = len(start)
    new = np.empty(count, np.int64)
    free = np.zeros(thread.max() + 1, np.int64)
    by_end = np.argsort(end, kind="mergesort")
    placed = np.zeros(count, np.bool_)
    position = 0
    behind = np.int64(0)
    for operation in order:
        while position < count and end[by_end[position]] <= start[operation]:
            ended = by_end[position]
            if placed[ended]:
                behind = max(behind, new[ended] + end[ended] - start[ended])
            position += 1
        new[operation] = max(start[operation], free[thread[operation]], behind)
        free[thread[operation]] = new[operation] + end[operation] - start[operation]
        placed[operation] = True
    return new
