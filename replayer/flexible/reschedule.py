# SPDX-License-Identifier: Apache-2.0
"""Turns a schedule into one with fewer threads or other think times, keeping what was ordered (compiled loops)."""

from __future__ import annotations

import numpy as np
import pandas as pd
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
        New threads, numbered from 0.
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


def think_times(start: np.ndarray, end: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """How long the thread had nothing in flight before every operation, ns; 0 for its first."""
    order = np.lexsort((start, thread))
    reached = pd.Series(end[order]).groupby(thread[order]).cummax().to_numpy()
    same = thread[order[1:]] == thread[order[:-1]]
    think = np.zeros(len(start), np.int64)
    think[order[1:]] = np.where(same, np.maximum(start[order[1:]] - reached[:-1], 0), 0)
    return think


def rethink(start: np.ndarray, end: np.ndarray, thread: np.ndarray, factor: float, together: np.ndarray) -> np.ndarray:
    """Start times for operations that keep their durations and their interval order, with other think times.

    Parameters
    ----------
    start, end, thread : ndarray of int64, shape (n,)
        The old schedule.
    factor : float
        Of the time that a thread has nothing in flight, or before its first operation nobody has begun anything since
        the latest end. What has to wait longer, by the order, does.
    together : ndarray of bool, shape (n,)
        Operations in flight at one moment, which they stay.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    number = np.unique(thread, return_inverse=True)[1]
    end = np.maximum(end, start + 1)
    no_sooner = np.full(len(start), np.iinfo(np.int64).min)
    new = _place(start, end, number, factor, no_sooner)
    # What the latest of them waits for had ended while the others ran, so it does not move when they do.
    moment = new[together].max()
    no_sooner[together] = moment - (end - start)[together] + 1
    return _place(start, end, number, factor, no_sooner)


@njit(cache=True)
def _place(start: np.ndarray, end: np.ndarray, thread: np.ndarray, factor: float, no_sooner: np.ndarray) -> np.ndarray:
    count = len(start)
    new = np.empty(count, np.int64)
    threads = thread.max() + 1
    begun = np.zeros(threads, np.bool_)
    last_start, last_new = np.zeros(threads, np.int64), np.zeros(threads, np.int64)
    last_end, last_new_end = np.zeros(threads, np.int64), np.zeros(threads, np.int64)
    by_start, by_end = np.argsort(start, kind="mergesort"), np.argsort(end, kind="mergesort")
    first = start[by_start[0]]
    ended, behind, position = first, first, 0
    for operation in by_start:
        mine, at = thread[operation], start[operation]
        while position < count and end[by_end[position]] <= at:
            before = by_end[position]
            ended = end[before]
            behind = max(behind, new[before] + end[before] - start[before])
            position += 1
        if not begun[mine]:
            wanted = behind + np.int64((at - ended) * factor + 0.5)
        elif at >= last_end[mine]:
            wanted = last_new_end[mine] + np.int64((at - last_end[mine]) * factor + 0.5)
        else:
            wanted = last_new[mine] + at - last_start[mine]
        new[operation] = max(wanted, behind, no_sooner[operation])
        begun[mine] = True
        last_start[mine], last_new[mine] = at, new[operation]
        last_end[mine] = max(last_end[mine], end[operation])
        last_new_end[mine] = max(last_new_end[mine], new[operation] + end[operation] - at)
    return new
