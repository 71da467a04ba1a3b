# SPDX-License-Identifier: Apache-2.0
"""Turns where threads are into how many of them have a processor at a moment: a read beside them may be awake."""

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
    """

    current: np.ndarray
    due_ns: np.ndarray
    before_ns: np.ndarray
    ready_ns: np.ndarray


@kernel
def computing(todo, threads, now, thread, served):
    """How many other threads have a processor, or, where they are `served`, a thread of the kernel that works for them.

    In a call they have one from when they do not wait for storage any more; in the pause behind it half of what they
    compute is at its begin and half at its end, as in replays.
    """
    count = 0
    for other in range(len(threads.current)):
        number = threads.current[other]
        if other == thread:
            continue
        if now < threads.before_ns[other]:
            count += number != todo.head[other] and (served or now >= threads.ready_ns[other])
        elif now < threads.due_ns[other] and number >= 0:
            left_ns, computing_ns = threads.due_ns[other] - now, todo.computing_ns[number]
            if np.isnan(computing_ns):
                count += left_ns <= todo.gap_ns[number] <= COMPUTES_NS_MAX
            else:
                count += min(now - threads.before_ns[other], left_ns) < computing_ns / 2
    return count
