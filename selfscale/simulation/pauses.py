# SPDX-License-Identifier: Apache-2.0
"""Turns the recorded times of operations into what each of them follows, and after which pause.

A thread's operations follow each other, and those that its thread was woken after, where the recording says so: then
what it slept for them is no part of its pause. Where it does not, the first one follows the last one that had ended by
then, of whichever thread: whoever started the thread waited for it. And who paused while another thread of its process,
or of a child process, did all that it ever did, is taken to have waited for that one's end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selfscale.simulation.recorded_waits import Waits


class Pauses(NamedTuple):
    """Of n operations by m threads, see `selfscale.simulation.operations.Operations`."""

    gap_ns: np.ndarray
    wait_gap_ns: np.ndarray
    together: np.ndarray
    waits_for: np.ndarray
    after: np.ndarray


def pauses_of(
    thread: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    process: np.ndarray,
    parent: np.ndarray,
    *,
    recorded: Waits | None = None,
) -> Pauses:
    """What n operations follow.

    Parameters
    ----------
    thread, start, end : ndarray of int64, shape (n,)
        From 0; in the order of the starts; ns.
    process, parent : ndarray of int64, shape (m,)
        Of every thread, and the process that started that one; -1: not known.
    recorded : Waits, optional
        What the recording says.
    """
    order = np.argsort(thread, kind="stable")
    same = thread[order][1:] == thread[order][:-1]
    later, before = order[1:][same], order[:-1][same]
    gap_ns = np.zeros(len(start))
    together = np.zeros(len(start), bool)
    together[later] = start[later] < end[before]
    gap_ns[later] = start[later] - np.where(together[later], start[before], end[before])
    firsts = np.unique(thread, return_index=True)[1]
    by_end = np.argsort(end, kind="stable")
    ended = np.searchsorted(end[by_end], start[firsts], side="right") - 1
    after = np.where(ended >= 0, by_end[ended], -1)
    if recorded is not None:
        after = np.where(recorded.waits_for[firsts] >= 0, recorded.waits_for[firsts], after)
        waits_for = recorded.waits_for.copy()
        waits_for[firsts] = -1
        gap_ns = np.maximum(gap_ns - np.where(together, 0, recorded.slept_ns), 0)
    else:
        waits_for = _waits_for(thread, start, end, process, parent)
    gap_ns[firsts] = start[firsts] - np.where(after >= 0, end[after], start[0])
    wait_gap_ns = np.where(waits_for >= 0, start - end[waits_for], 0.0)
    if recorded is None:
        gap_ns = np.where(waits_for >= 0, wait_gap_ns, gap_ns)
    return Pauses(gap_ns, wait_gap_ns, together, waits_for, after)


def _waits_for(
    thread: np.ndarray, start: np.ndarray, end: np.ndarray, process: np.ndarray, parent: np.ndarray
) -> np.ndarray:
    """`Operations.waits_for`: of the threads that began and ended within a pause the one that ended last."""
    waits_for = np.full(len(start), -1, np.int64)
    order = np.argsort(thread, kind="stable")
    own = np.split(order, np.searchsorted(thread[order], np.arange(1, len(process))))
    first_start = np.array([start[numbers[0]] for numbers in own])
    last = np.array([numbers[np.argmax(end[numbers])] for numbers in own])
    members, children = _threads_by(process), _threads_by(parent)
    for each, threads in members.items():
        related = np.sort(np.concatenate([threads, children.get(each, threads[:0])]))
        related = related[np.argsort(first_start[related], kind="stable")]
        for waiting in threads:
            numbers = own[waiting]
            pause, resumed = np.maximum.accumulate(end[numbers])[:-1], start[numbers[1:]]
            low, high = (np.searchsorted(first_start[related], times) for times in (pause, resumed))
            for at in np.flatnonzero(high > low):
                ended = last[related[low[at] : high[at]]]
                ended = ended[end[ended] <= resumed[at]]
                if len(ended):
                    waits_for[numbers[at + 1]] = ended[np.argmax(end[ended])]
    return waits_for


def _threads_by(process: np.ndarray) -> dict[int, np.ndarray]:
    """Which threads each known process has, or has started: `process` is of every thread, -1 where it is not known."""
    order = np.argsort(process, kind="stable")
    numbers, firsts = np.unique(process[order], return_index=True)
    return {int(number): own for number, own in zip(numbers, np.split(order, firsts[1:]), strict=True) if number >= 0}
