# SPDX-License-Identifier: Apache-2.0
"""Turns intervals (of bytes or of time) into the length of their union, and into how many of them overlap."""

from __future__ import annotations

import numpy as np
import pandas as pd

Ints = np.ndarray


def union_added(start: Ints, end: Ints, group: Ints) -> tuple[Ints, Ints]:
    """What every interval adds to the union of its group, taken in the order of (group, start).

    Parameters
    ----------
    start, end : ndarray of int64, shape (n,)
        Half-open intervals ``[start, end)`` with ``start <= end``.
    group : ndarray of int, shape (n,)
        Intervals of different groups never overlap.

    Returns
    -------
    group, added : ndarray, shape (n,)
        Sorted groups, and the length that each interval adds; the sum of ``added`` is the exact length of the union.
    """
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    reached = pd.Series(end).groupby(group).cummax().to_numpy()
    covered = np.empty_like(reached)
    covered[1:] = reached[:-1]
    first = np.ones(len(group), bool)
    first[1:] = group[1:] != group[:-1]
    covered[first] = start[first]
    return group, np.maximum(end - np.maximum(start, covered), 0)


def union_length(start: Ints, end: Ints, group: Ints | None = None) -> int:
    """Length of the union of half-open intervals, per group, summed; see `union_added`."""
    if not len(start):
        return 0
    _, added = union_added(start, end, np.zeros(len(start), np.int64) if group is None else group)
    return int(added.sum())


def overlap_at_starts(start: Ints, end: Ints) -> Ints:
    """How many of the half-open intervals contain each start, in ascending order of the starts.

    An interval that ends where another one starts does not contain that start. The largest overlap of all is reached at
    some start, so ``.max()`` of the result is exact. Of several equal starts the last one has the full count.
    """
    starts = np.sort(start)
    return np.arange(1, len(starts) + 1) - np.searchsorted(np.sort(end), starts, side="right")


class BusyTime:
    """Length of the union of intervals that come in chunks, in the order of their starts.

    Attributes
    ----------
    length : int
    """

    def __init__(self) -> None:
        self.length = 0
        self._reached = 0

    def length_before(self, moment: int) -> int:
        """The length of what is before a moment before which all intervals start."""
        return self.length - max(0, self._reached - moment)

    def carry(self, end: Ints) -> None:
        """Begin with intervals that started before, whose length was counted there."""
        self._reached = max(self._reached, int(end.max(initial=0)))

    def merge(self, following: BusyTime) -> None:
        """Add what was added to `following`, which began with the intervals that go on from here."""
        self.length += following.length
        self._reached = max(self._reached, following._reached)

    def add(self, start: Ints, end: Ints) -> None:
        """Add half-open intervals, none of which starts before any that was added."""
        if len(start):
            reached = np.maximum.accumulate(np.concatenate([[self._reached], end]))
            self.length += int(np.maximum(end - np.maximum(start, reached[:-1]), 0).sum())
            self._reached = int(reached[-1])
