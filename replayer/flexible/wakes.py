# SPDX-License-Identifier: Apache-2.0
"""Turns WAKE records of a trace into those that hold of what was made of it, with the times of their calls there.

One says that a call waited for another one, its cause, of another thread. It holds where both are there, each of them
once, in two threads, and the cause is over when the call starts. Of a thread whose calls became those of several, or
that got those of others, it is no longer known what it waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from characterize.layout import Source

_CALLS = (Source.SYSCALL, Source.SPLICE)


@dataclass(frozen=True)
class _Operations:
    """IO and FILEOP records whose id no other one has, by ascending id; int64 but for ``id``, shape (n,) each.

    ``pause`` is the time since the thread's call before, of its first one since the first call of all.
    """

    id: np.ndarray
    start: np.ndarray
    duration: np.ndarray
    thread: np.ndarray
    process: np.ndarray
    pause: np.ndarray

    @classmethod
    def of(cls, io: np.ndarray, fileops: np.ndarray) -> _Operations:
        number = np.concatenate([io["id"], fileops["id"]])
        start, duration, thread, process = (
            np.concatenate([io[name], fileops[name]]).astype(np.int64)
            for name in ("start_ns", "duration_ns", "thread", "process")
        )
        is_call = np.append(np.isin(io["source"], _CALLS), np.ones(len(fileops), bool))
        pause = _pauses(start, start + duration, thread, is_call)
        known, first, count = np.unique(number, return_index=True, return_counts=True)
        once = first[(count == 1) & (known > 0)]
        return cls(number[once], *(column[once] for column in (start, duration, thread, process, pause)))

    def rows(self, number: np.ndarray) -> np.ndarray:
        """Where the operations of some ids are; -1 where there is none."""
        at = np.searchsorted(self.id, number)
        return np.where((number > 0) & (np.append(self.id, np.uint64(0))[at] == number), at, -1)


def _pauses(start: np.ndarray, end: np.ndarray, thread: np.ndarray, is_call: np.ndarray) -> np.ndarray:
    """Time since the end of the calls of the thread so far, 0 if they overlap."""
    base = int(start[is_call].min(initial=np.iinfo(np.int64).max))
    order = np.lexsort((start, thread))
    reached = pd.Series(np.where(is_call, end, base)[order]).groupby(thread[order]).cummax().to_numpy()
    before = np.full(len(start), base)
    same = thread[order[1:]] == thread[order[:-1]]
    before[order[1:]] = np.where(same, reached[:-1], base)
    return np.maximum(start - before, 0)


def standing(wakes: np.ndarray, io: np.ndarray, fileops: np.ndarray) -> np.ndarray:
    """Those WAKE records that hold of some IO and FILEOP records; a copy."""
    return wakes[_hold(wakes, _Operations.of(io, fileops))] if len(wakes) else wakes.copy()


def settled(
    wakes: np.ndarray, recorded: tuple[np.ndarray, np.ndarray], altered: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Those WAKE records that still hold when operations were altered, with the new times of their calls.

    A thread slept for the same share of the pause before its call as it did when it was recorded, and was woken as much
    of the pause before its start.

    Parameters
    ----------
    wakes : ndarray
        As recorded.
    recorded, altered : (ndarray, ndarray)
        IO and FILEOP records, with equal ids.
    """
    if not len(wakes):
        return wakes
    before, after = _Operations.of(*recorded), _Operations.of(*altered)
    wakes = wakes[_hold(wakes, before) & _hold(wakes, after)]
    at = after.rows(before.id)
    moved = (at >= 0) & (after.thread[at] != before.thread)
    mixed = np.concatenate([before.thread[moved], after.thread[at[moved]]])
    pairs = [np.isin(before.thread[before.rows(wakes[name])], mixed) for name in ("id", "cause")]
    wakes = wakes[~(pairs[0] | pairs[1])]

    was, now = before.rows(wakes["id"]), after.rows(wakes["id"])
    old, new = before.pause[was], after.pause[now]
    ahead, slept = before.start[was] - wakes["woken_ns"].astype(np.int64), wakes["slept_ns"].astype(np.int64)
    ahead, slept = (_scaled(time, new, old) for time in (ahead, slept))
    wakes["woken_ns"], wakes["slept_ns"] = np.maximum(after.start[now] - ahead, 0), slept
    wakes["start_ns"], wakes["duration_ns"] = after.start[now], after.duration[now]
    wakes["thread"], wakes["process"] = after.thread[now], after.process[now]
    return wakes[np.argsort(wakes["start_ns"], kind="stable")]


def _hold(wakes: np.ndarray, operations: _Operations) -> np.ndarray:
    call, cause = (operations.rows(wakes[name]) for name in ("id", "cause"))
    there = (call >= 0) & (cause >= 0)
    call, cause = call[there], cause[there]
    ended = operations.start[cause] + operations.duration[cause]
    there[there] = (operations.thread[call] != operations.thread[cause]) & (ended <= operations.start[call])
    return there


def _scaled(time: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Times by the ratio of the pauses; as they are where a pause did not change, to the nanosecond."""
    same = (new == old) | (old == 0)
    return np.where(same, time, np.rint(time * (new / np.maximum(old, 1)))).astype(np.int64)
