# SPDX-License-Identifier: Apache-2.0
"""Turns recorded and replayed times into the operations that started too early, by sweeps over sorted times.

An operation A has to precede B if it had ended before B started when recorded (or just then, after a positive duration:
docs/decisions/0002). B is too early if in the replay it started before A had ended. For each B only the latest end of
all its A counts, so that no pair is looked at: sorting is all that it costs, O(n log n). Where a B has one A at most,
the two are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import pandas as pd

_NEVER = np.iinfo(np.int64).min
_INSTANT_END, _START, _END = 2, 1, 0
COVERS, TOUCHES = 0, 1


@dataclass(frozen=True)
class Times:
    """When operations ran, twice; int64 ns, shape (n,), each on the clock of its run.

    Attributes
    ----------
    recorded_start, recorded_end, replay_start, replay_end : ndarray
    """

    recorded_start: np.ndarray
    recorded_end: np.ndarray
    replay_start: np.ndarray
    replay_end: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> Times:
        """The times of some operations."""
        return Times(*(times[rows] for times in vars(self).values()))


@dataclass(frozen=True)
class Found:
    """What a sweep found, for each row: shape (n,).

    Attributes
    ----------
    checked : ndarray of bool
        Whether it had to wait for any other.
    blamed : ndarray of int64
        Row of the one whose end it did not wait for, the last of them; -1 = it started in time.
    """

    checked: np.ndarray
    blamed: np.ndarray


def _events(times: Times, group: np.ndarray, before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of rows in `before` and starts of those in `after`, sorted by group and time: row, and whether an end."""
    ends, starts = np.flatnonzero(before), np.flatnonzero(after)
    row = np.concatenate([ends, starts])
    lasted = times.recorded_end[ends] > times.recorded_start[ends]
    phase = np.concatenate([np.where(lasted, _END, _INSTANT_END), np.full(len(starts), _START)])
    time = np.concatenate([times.recorded_end[ends], times.recorded_start[starts]])
    order = np.lexsort((phase, time, group[row]))
    return row[order], (phase != _START)[order]


def sweep(times: Times, group: np.ndarray, before: np.ndarray, after: np.ndarray) -> Found:
    """Check that rows in `after` wait for those in `before` of the same group.

    Parameters
    ----------
    times : Times
    group : ndarray of int, shape (n,)
    before, after : ndarray of bool, shape (n,)
    """
    row, is_end = _events(times, group, before, after)
    ended = np.where(is_end, times.replay_end[row], _NEVER)
    latest = pd.Series(ended).groupby(group[row]).cummax().to_numpy()
    # The event that the latest end is of: in the same group, since there it was reached last.
    reached = np.maximum.accumulate(np.where(is_end & (ended == latest), np.arange(len(row)), 0))
    starts = ~is_end & (latest != _NEVER)
    early = starts & (latest > times.replay_start[row])
    checked, blamed = np.zeros(len(group), bool), np.full(len(group), -1, np.int64)
    checked[row[starts]] = True
    blamed[row[early]] = row[reached[early]]
    return Found(checked, blamed)


def compare(times: Times, first: np.ndarray) -> Found:
    """Check that rows wait for one other each, if that had ended before.

    Parameters
    ----------
    times : Times
    first : ndarray of int64, shape (n,)
        Row of the one that each waits for; -1 = none.
    """
    row = np.flatnonzero(first >= 0)
    other = first[row]
    start, end = times.recorded_start[row], times.recorded_end[other]
    row = row[(end < start) | ((end == start) & (end > times.recorded_start[other]))]
    early = row[times.replay_end[first[row]] > times.replay_start[row]]
    checked, blamed = np.zeros(len(first), bool), np.full(len(first), -1, np.int64)
    checked[row] = True
    blamed[early] = first[early]
    return Found(checked, blamed)


def sweep_ranges(times: Times, group: np.ndarray, low: np.ndarray, high: np.ndarray, write: np.ndarray) -> Found:
    """Check that accesses wait for those of an overlapping range of the same group, where one of both is a write.

    Who ended last is kept for every range in two segment trees over the limits of the ranges, of writes and of all.

    Parameters
    ----------
    times : Times
    group : ndarray of int, shape (n,)
    low, high : ndarray of int64, shape (n,)
        Ranges ``[low, high)``, none of them empty.
    write : ndarray of bool, shape (n,)
    """
    count = len(group)
    limits = pd.DataFrame({"group": np.tile(group, 2), "at": np.concatenate([low, high])})
    # Groups stand behind each other, so that no range reaches into another group.
    order = np.lexsort((limits["at"], limits["group"]))
    changed = np.any(np.diff(limits.to_numpy()[order], axis=0) != 0, axis=1)
    place = np.empty(2 * count, np.int64)
    place[order] = np.concatenate([[0], np.cumsum(changed)])[: 2 * count]
    everything = np.ones(count, bool)
    row, is_end = _events(times, group, everything, everything)
    blamed = np.full(count, -1, np.int64)
    checked = np.zeros(count, bool)
    leaves = 1 << int(place.max(initial=0)).bit_length()
    ends, starts = times.replay_end, times.replay_start
    _sweep_trees(row, is_end, place[:count], place[count:], write, starts, ends, leaves, checked, blamed)
    return Found(checked, blamed)


@numba.njit(cache=True)
def _sweep_trees(  # noqa: PLR0917
    row: np.ndarray,
    is_end: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    write: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    leaves: int,
    checked: np.ndarray,
    blamed: np.ndarray,
) -> None:
    # Of each node of the trees of writes and of all: who ended last of those that cover it, and of those that touch it.
    last_of = np.full((2, 2, 2 * leaves), -1, np.int64)
    for event in range(len(row)):
        this = row[event]
        first, last = low[this] + leaves, high[this] + leaves
        if is_end[event]:
            _note(last_of[1], first, last, this, ends)
            if write[this]:
                _note(last_of[0], first, last, this, ends)
            continue
        ended = _last(last_of[1 if write[this] else 0], first, last, ends)
        if ended >= 0:
            checked[this] = True
            if ends[ended] > starts[this]:
                blamed[this] = ended


@numba.njit(cache=True)
def _later(one: int, other: int, ends: np.ndarray) -> int:
    if one < 0 or (other >= 0 and ends[other] > ends[one]):
        return other
    return one


@numba.njit(cache=True)
def _note(last_of: np.ndarray, first: int, last: int, this: int, ends: np.ndarray) -> None:
    left, right = first, last
    while left < right:
        for node, taken in ((left, left & 1), (right - 1, right & 1)):
            if taken:
                last_of[COVERS, node] = _later(last_of[COVERS, node], this, ends)
                last_of[TOUCHES, node] = _later(last_of[TOUCHES, node], this, ends)
        left, right = (left + 1) >> 1, right >> 1
    for leaf in (first, last - 1):
        node = leaf >> 1
        while node:
            last_of[TOUCHES, node] = _later(last_of[TOUCHES, node], this, ends)
            node >>= 1


@numba.njit(cache=True)
def _last(last_of: np.ndarray, first: int, last: int, ends: np.ndarray) -> int:
    ended, left, right = -1, first, last
    while left < right:
        for node, taken in ((left, left & 1), (right - 1, right & 1)):
            if taken:
                ended = _later(ended, last_of[TOUCHES, node], ends)
        left, right = (left + 1) >> 1, right >> 1
    for leaf in (first, last - 1):
        node = leaf
        while node:
            ended = _later(ended, last_of[COVERS, node], ends)
            node >>= 1
    return ended
