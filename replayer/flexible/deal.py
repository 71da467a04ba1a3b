# SPDX-License-Identifier: Apache-2.0
"""Turns operations of threads into those of several threads each, with start times (compiled loops for processNum)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.typed import Dict

# What an operation does to its file, or to all of them, for the order of operations on one file.
READS, WRITES, SYNCS, CHANGES, SYNCS_ALL = range(5)
# What it does to the names of files.
NO_NAME, LOOKS_UP, RENAMES = range(3)


class Operations(NamedTuple):
    """All operations by ascending start; shape (n,) each, int64 but for ``waits``.

    Attributes
    ----------
    row : ndarray
        Of the operation in the IO, then the FILEOP records.
    start, end, think : ndarray
        The old schedule, and the time that the thread had nothing in flight before.
    group : ndarray
        Old thread, by number.
    unit : ndarray
        What one thread does: a number, -1 for an operation without data, which the thread does that used the file last.
    low, high : ndarray
        Bytes of the request.
    file, other_file : ndarray
        By number; `other_file` is -1 but for renames and links.
    effect, naming : ndarray
        READS ... and NO_NAME ...
    waits : ndarray of bool
        Reads of what is not in the file before the trace, or is taken from it: they start behind earlier writes of the
        file. Others may come before writes to where they read.
    """

    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    think: np.ndarray
    group: np.ndarray
    unit: np.ndarray
    low: np.ndarray
    high: np.ndarray
    file: np.ndarray
    other_file: np.ndarray
    effect: np.ndarray
    naming: np.ndarray
    waits: np.ndarray


class Done(NamedTuple):
    """When what was dealt so far is over.

    Attributes
    ----------
    files : ndarray of int64, shape (files, 3)
        Of every file operations of any kind, writes, changes.
    everywhere : ndarray of int64, shape (2,)
        Of all files writes and changes; syncs of all of them.
    names : ndarray of int64, shape (2,)
        Uses of names; what makes or takes them.
    """

    files: np.ndarray
    everywhere: np.ndarray
    names: np.ndarray


@njit(cache=True)
def deal(
    operations: Operations, first_child: np.ndarray, window: int, slots: int, no_sooner: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give every operation a thread and a start, in the old order; whoever is free first takes the next unit.

    A thread does one operation at a time, with the think time that the operation had before it. An operation that
    changes a file (opens, closes, resizes, removes it) starts behind all earlier ones on it, and all later ones start
    behind it; a sync starts behind earlier writes. One of all files starts behind all earlier writes and changes, and
    later ones of these start behind it. None starts before the one that stands `window` before it.

    Parameters
    ----------
    operations : Operations
    first_child : ndarray of int64, shape (groups + 1,)
        New threads of a group: from the one of the group to before the one of the next.
    window : int
    slots : int
        Requests that may be in flight at once.
    no_sooner : ndarray of int64, shape (n,)

    Returns
    -------
    new, child : ndarray of int64, shape (n,)
        Start, and number of the new thread.
    """
    start, end, unit, file = operations.start, operations.end, operations.unit, operations.file
    count, threads = len(start), first_child[-1]
    files = max(file.max(), operations.other_file.max()) + 1
    new, child, reached = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    begun = np.zeros(len(first_child), np.bool_)
    free, slot_free = np.zeros(threads, np.int64), np.zeros(slots, np.int64)
    done = Done(np.zeros((files, 3), np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64))
    last_user = np.full(files, -1, np.int64)
    last_end = Dict.empty(types.int64, types.int64)
    child_of = np.full(unit.max() + 2, -1, np.int64)
    by_end = np.argsort(end, kind="mergesort")
    ended, behind, position = start[0], start[0], 0
    for i in range(count):
        mine, name = operations.group[i], file[i]
        while position < count and end[by_end[position]] <= start[i]:
            before = by_end[position]
            ended = end[before]
            behind = max(behind, new[before] + end[before] - start[before])
            position += 1
        at = max(no_sooner[i], _behind_others(done, operations, i))
        if i >= window:
            at = max(at, reached[i - window])
        if not begun[mine]:
            begun[mine] = True
            free[first_child[mine] : first_child[mine + 1]] = behind + start[i] - ended
        chosen = child_of[unit[i]] if unit[i] >= 0 else last_user[name]
        if not first_child[mine] <= chosen < first_child[mine + 1]:
            chosen = _first_free(
                free, first_child[mine], first_child[mine + 1], last_end, name * threads, operations.low[i]
            )
        at = max(at, free[chosen] + operations.think[i])
        if unit[i] >= 0:
            child_of[unit[i]], last_end[name * threads + chosen] = chosen, operations.high[i]
            if threads > slots:
                slot = _fitting(slot_free, at)
                at = max(at, slot_free[slot])
                slot_free[slot] = at + end[i] - start[i]
        over = at + end[i] - start[i]
        new[i], child[i], free[chosen], last_user[name] = at, chosen, over, chosen
        reached[i] = max(at, reached[i - 1]) if i else at
        _remember(done, operations, i, over)
    return new, child


@njit(cache=True)
def _behind_others(done: Done, operations: Operations, i: int) -> int:
    """When all is done that an operation has to wait for."""
    file, other_file = operations.file[i], operations.other_file[i]
    effect, naming, waits = operations.effect[i], operations.naming[i], operations.waits[i]
    at = done.files[file, 2]
    if waits or effect == SYNCS:
        at = max(at, done.files[file, 1])
    if effect == CHANGES:
        at = max(at, done.files[file, 0])
        if other_file >= 0:
            at = max(at, done.files[other_file, 0])
    if effect == SYNCS_ALL:
        at = max(at, done.everywhere[0])
    elif effect in (WRITES, CHANGES):
        at = max(at, done.everywhere[1])
    if naming != NO_NAME:
        at = max(at, done.names[1])
    if naming == RENAMES:
        at = max(at, done.names[0])
    return at


@njit(cache=True)
def _remember(done: Done, operations: Operations, i: int, over: int) -> None:
    file, other_file = operations.file[i], operations.other_file[i]
    effect, naming = operations.effect[i], operations.naming[i]
    done.files[file, 0] = max(done.files[file, 0], over)
    if effect == WRITES:
        done.files[file, 1] = max(done.files[file, 1], over)
    if effect == CHANGES:
        done.files[file, 2] = max(done.files[file, 2], over)
        if other_file >= 0:
            done.files[other_file, 0] = max(done.files[other_file, 0], over)
            done.files[other_file, 2] = max(done.files[other_file, 2], over)
    if effect == SYNCS_ALL:
        done.everywhere[1] = max(done.everywhere[1], over)
    elif effect in (WRITES, CHANGES):
        done.everywhere[0] = max(done.everywhere[0], over)
    if naming != NO_NAME:
        done.names[0] = max(done.names[0], over)
    if naming == RENAMES:
        done.names[1] = max(done.names[1], over)


@njit(cache=True)
def _first_free(free: np.ndarray, low: int, high: int, last_end: Dict, key: int, begin: int) -> int:  # noqa: PLR0917
    """The thread that is free first, of those for which the unit would not by chance continue the one before it."""
    best, other = -1, low
    for thread in range(low, high):
        if free[thread] < free[other]:
            other = thread
        if (best < 0 or free[thread] < free[best]) and last_end.get(key + thread, np.int64(-1)) != begin:
            best = thread
    return best if best >= 0 else other


@njit(cache=True)
def _fitting(slot_free: np.ndarray, at: int) -> int:
    """Of the slots that are free by then the one that was in use latest; if none is, the one that is free first."""
    best = 0
    for slot in range(1, len(slot_free)):
        one, other = slot_free[slot], slot_free[best]
        if (one <= at and (other > at or one > other)) or (one > at and other > at and one < other):
            best = slot
    return best
