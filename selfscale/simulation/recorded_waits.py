# SPDX-License-Identifier: Apache-2.0
"""Turns WAKE records into which operation each operation waited for, because its thread was woken after that one.

Operations that are not simulated, such as calls that failed, do not matter: what such a one waited for the next of its
thread waits for, and who waited for such a one waits for what the other thread had done before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from characterize.layout import RecordKind
from characterize.trace import Trace


class Waits(NamedTuple):
    """Of n operations.

    Attributes
    ----------
    waits_for : ndarray of int64, shape (n,)
        The last operation of another thread to end that this one's thread was woken after; -1: none.
    slept_ns : ndarray of float64, shape (n,)
        How long the thread had slept since its operation before until it was woken so, all times together.
    """

    waits_for: np.ndarray
    slept_ns: np.ndarray


def recorded_waits(trace: Trace, thread: np.ndarray, start: np.ndarray, end: np.ndarray) -> Waits | None:
    """What operations of a trace waited for; None where it does not say who woke whom.

    Parameters
    ----------
    thread, start, end : ndarray of int64, shape (n,)
        Of the operations that matter, in the order of their starts; `thread` as recorded.
    """
    wakes = trace.arrays[RecordKind.WAKE]
    if not len(wakes):
        return None
    calls = np.concatenate(
        [trace.arrays[kind][["id", "thread", "start_ns"]] for kind in (RecordKind.IO, RecordKind.FILEOP)]
    )
    calls = calls[np.argsort(calls["id"], kind="stable")]
    at = np.minimum(np.searchsorted(calls["id"], wakes["cause"]), len(calls) - 1)
    known = calls["id"][at] == wakes["cause"]
    wakes, causes = wakes[known], calls[at[known]]
    by_thread = np.lexsort((start, thread))
    waiting = _position(thread, start, by_thread, wakes["thread"], wakes["start_ns"], behind=True)
    cause = _position(thread, start, by_thread, causes["thread"], causes["start_ns"], behind=False)
    found = (waiting >= 0) & (cause >= 0)
    # One that lies before what it waits for would wait for ever: times of a damaged trace.
    found[found] &= (end[cause[found]] <= start[waiting[found]]) & (thread[cause[found]] != thread[waiting[found]])
    waiting, cause, wakes = waiting[found], cause[found], wakes[found]
    waits = Waits(np.full(len(start), -1, np.int64), np.zeros(len(start)))
    np.add.at(waits.slept_ns, waiting, wakes["slept_ns"].astype(float))
    # Of several the one that ended last is entered last.
    order = np.argsort(end[cause], kind="stable")
    waits.waits_for[waiting[order]] = cause[order]
    return waits


def _position(
    thread: np.ndarray,
    start: np.ndarray,
    by_thread: np.ndarray,
    wanted_thread: np.ndarray,
    wanted_start: np.ndarray,
    *,
    behind: bool,
) -> np.ndarray:
    """The first operation of a thread that starts at or `behind` a time, or the last at or before it; -1: none."""
    keys = np.empty(len(start), [("thread", np.int64), ("start", np.int64)])
    keys["thread"], keys["start"] = thread[by_thread], start[by_thread]
    wanted = np.empty(len(wanted_thread), keys.dtype)
    wanted["thread"], wanted["start"] = wanted_thread, wanted_start
    place = np.searchsorted(keys, wanted, side="left" if behind else "right") - (not behind)
    inside = (place >= 0) & (place < len(keys))
    place = np.clip(place, 0, len(keys) - 1)
    inside &= keys["thread"][place] == wanted["thread"]
    return np.where(inside, by_thread[place], -1)
