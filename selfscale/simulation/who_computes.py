# SPDX-License-Identifier: Apache-2.0
"""Turns where threads are into which of them is next, and how many of them have a processor at a moment: a read beside
these may be awake.

Of all threads only those are looked at that have begun and not ended: a build starts thousands, a few at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selfscale.simulation.kernel import kernel

COMPUTES_NS_MAX = 10e6
"""Where a recording does not say who computes: a longer pause is likely one of waiting for a timer, or for somebody."""


class Threads(NamedTuple):
    """Where m threads are.

    Attributes
    ----------
    current : ndarray of int64, shape (m,)
        Their next operations; -1: none.
    due_ns : ndarray of float64, shape (m,)
        When these begin; inf: that is not known, or never.
    before_ns : ndarray of float64, shape (m,)
        From when they pause before these: when the operation before ends, or began where the next one does not wait for
        that, or, of a first one, when the one that it follows ends; -inf: that is not known.
    ready_ns : ndarray of float64, shape (m,)
        Until when the operation before waits, or waited, for storage.
    living, alive : ndarray of int64, shape (m,) and (1,)
        Threads that have begun and not ended, in any order, and how many these are.
    """

    current: np.ndarray
    due_ns: np.ndarray
    before_ns: np.ndarray
    ready_ns: np.ndarray
    living: np.ndarray
    alive: np.ndarray


@kernel
def enter(threads, thread):
    """Let a thread begin."""
    threads.living[threads.alive[0]] = thread
    threads.alive[0] += 1


@kernel
def next_thread(threads):
    """The thread whose operation begins first, of several the one with the smallest number."""
    found = threads.living[0]
    for place in range(1, threads.alive[0]):
        other = threads.living[place]
        due_ns, first_ns = threads.due_ns[other], threads.due_ns[found]
        if due_ns < first_ns or (due_ns == first_ns and other < found):
            found = other
    return found


@kernel
def computing(todo, threads, now, thread, served):
    """How many other threads have a processor, or, where they are `served`, a thread of the kernel that works for them;
    and how many live, those with few operations hardly counting.

    In a call they have one from when they do not wait for storage any more; in the pause behind it half of what they
    compute is at its begin and half at its end, as in replays.
    """
    count, place, paces, squares = 0, 0, 0.0, 0.0
    while place < threads.alive[0]:
        other = threads.living[place]
        number = threads.current[other]
        if number < 0 and now >= threads.before_ns[other]:
            # It has ended.
            threads.alive[0] -= 1
            threads.living[place] = threads.living[threads.alive[0]]
            continue
        place += 1
        paces, squares = paces + todo.pace[other], squares + todo.pace[other] ** 2
        if other == thread:
            continue
        if now < threads.before_ns[other]:
            count += number != todo.head[other] and (served or now >= threads.ready_ns[other])
        elif now < threads.due_ns[other]:
            left_ns, computing_ns = threads.due_ns[other] - now, todo.computing_ns[number]
            if np.isnan(computing_ns):
                count += left_ns <= todo.gap_ns[number] <= COMPUTES_NS_MAX
            else:
                count += min(now - threads.before_ns[other], left_ns) < computing_ns / 2
    return count, round(paces**2 / squares)
