# SPDX-License-Identifier: Apache-2.0
"""Turns a schedule of requests that belong to no thread into one with another largest number in flight.

Fewer: a request starts when it did, or later, when so many are in flight no more. More: requests come faster, by the
least factor at which that number is wanted at once, and never more of them are let in. Durations and the order of the
starts stay, and with that everything but the times; what was ordered may then overlap, as more of them at once has to.
"""

from __future__ import annotations

import heapq
import math

import numba
import numpy as np

from characterize.intervals import overlap_at_starts
from replayer.flexible.draft import Draft, UnreachableError

FASTER_MAX = 2.0**40
STEPS = 40


def change_queue_depth(draft: Draft, target: int) -> None:
    """Make `target` requests be in flight at most.

    Raises
    ------
    UnreachableError
        The trace has fewer requests.
    """
    both = [draft.io, draft.fileops]
    start, duration = (
        np.concatenate([one[name].astype(np.int64) for one in both]) for name in ("start_ns", "duration_ns")
    )
    counts = np.concatenate([draft.io["result"] > 0, np.zeros(len(draft.fileops), bool)])
    if target > counts.sum():
        raise UnreachableError(
            f"processNum {target} is not reachable: there are {counts.sum()} requests, which is the most that can be "
            "in flight at once",
            1,
            float(counts.sum()),
        )
    order = np.argsort(start, kind="stable")
    lasting = np.maximum(duration, 1)

    def scheduled(faster: float) -> tuple[int, np.ndarray]:
        arrival = start[order[0]] + np.floor((start - start[order[0]]) / faster).astype(np.int64)
        new = np.empty(len(start), np.int64)
        new[order] = _let_in(arrival[order], lasting[order], counts[order], target)
        in_flight = overlap_at_starts(new[counts], (new + lasting)[counts])
        return int(in_flight.max(initial=0)), new

    low = high = 1.0
    reached, new = scheduled(high)
    while reached < target and high < FASTER_MAX:
        low, high = high, 2 * high
        reached, new = scheduled(high)
    for _ in range(STEPS if high > low else 0):
        middle = math.sqrt(low * high)
        reached, tried = scheduled(middle)
        low, high, new = (middle, high, new) if reached < target else (low, middle, tried)
    before = int((start + duration).max() - start.min())
    draft.io["start_ns"], draft.fileops["start_ns"] = new[: len(draft.io)], new[len(draft.io) :]
    draft.sort()
    lasts = int((new + duration).max() - new.min())
    draft.note("processNum", arrivals_faster=high, elapsed=lasts / max(before, 1))


@numba.njit(cache=True)
def _let_in(arrival: np.ndarray, lasting: np.ndarray, counts: np.ndarray, most: int) -> np.ndarray:
    """Starts, in the order of the arrivals, at which at most so many of those that count are in flight."""
    new = np.empty(len(arrival), np.int64)
    ends = [np.int64(0)]
    ends.pop()
    reached = arrival[0] if len(arrival) else 0
    for request in range(len(arrival)):
        reached = max(reached, arrival[request])
        if counts[request]:
            if len(ends) == most:
                reached = max(reached, heapq.heappop(ends))
            heapq.heappush(ends, reached + lasting[request])
        new[request] = reached
    return new
