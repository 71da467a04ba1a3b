# SPDX-License-Identifier: Apache-2.0
"""Turns a schedule in which threads have several requests in flight into one with another largest number of them.

Fewer: an operation starts when it did, or later: when no more are in flight than wanted, and behind everything that had
ended before it started. More, of requests that are of no thread: they come faster, by the least factor at which that
number is wanted at once, and never more of them are let in; what was ordered may then overlap, as more of them at once
has to. Durations and the order of the starts stay, and with that everything but the times.
"""

from __future__ import annotations

import heapq
import math

import numba
import numpy as np

from characterize.counting.intervals import overlap_at_starts
from replayer.flexible.draft import Draft, UnreachableError

FASTER_MAX = 2.0**40
STEPS = 40


def change_queue_depth(draft: Draft, target: int, together: np.ndarray) -> None:
    """Make `target` requests be in flight at most.

    Parameters
    ----------
    draft : Draft
    target : int
    together : ndarray of int64
        Indices of the IO records that are in flight at the moment when most are.

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
    change = _more if target > len(together) else _fewer
    faster, new = change(start, np.maximum(duration, 1), counts, target, together)
    before = int((start + duration).max() - start.min())
    draft.io["start_ns"], draft.fileops["start_ns"] = new[: len(draft.io)], new[len(draft.io) :]
    draft.sort()
    lasts = int((new + duration).max() - new.min())
    draft.note("processNum", arrivals_faster=faster, elapsed=lasts / max(before, 1))


def _fewer(
    start: np.ndarray, lasting: np.ndarray, counts: np.ndarray, target: int, together: np.ndarray
) -> tuple[float, np.ndarray]:
    """Starts, not earlier than they were, in the order of the intervals."""
    order, by_end = (np.argsort(moment, kind="stable") for moment in (start, start + lasting))
    ended = np.searchsorted((start + lasting)[by_end], start[order], side="right")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))

    def scheduled(arrival: np.ndarray) -> np.ndarray:
        new = np.empty(len(start), np.int64)
        new[order] = _let_in(arrival[order], lasting[order], counts[order], target, place[by_end], ended)
        return new

    new = scheduled(start)
    if _in_flight(new, lasting, counts) < target:
        # What they wait for had ended while all of them ran, so the latest does not move when the others wait for it.
        meeting = together[:target]
        arrival = start.copy()
        arrival[meeting] = np.maximum(start, new[meeting].max() - lasting + 1)[meeting]
        new = scheduled(arrival)
    return 1.0, new


def _more(
    start: np.ndarray, lasting: np.ndarray, counts: np.ndarray, target: int, together: np.ndarray
) -> tuple[float, np.ndarray]:
    """By which factor they come faster, and the starts."""
    order = np.argsort(start, kind="stable")
    in_no_order = np.zeros(len(start), np.int64)

    def scheduled(faster: float) -> tuple[int, np.ndarray]:
        arrival = start[order[0]] + np.floor((start - start[order[0]]) / faster).astype(np.int64)
        new = np.empty(len(start), np.int64)
        new[order] = _let_in(arrival[order], lasting[order], counts[order], target, in_no_order, in_no_order)
        return _in_flight(new, lasting, counts), new

    low, high, reached = 1.0, 1.0, len(together)
    while reached < target and high < FASTER_MAX:
        low, high = high, 2 * high
        reached, new = scheduled(high)
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        reached, tried = scheduled(middle)
        low, high, new = (middle, high, new) if reached < target else (low, middle, tried)
    return high, new


def _in_flight(start: np.ndarray, lasting: np.ndarray, counts: np.ndarray) -> int:
    return int(overlap_at_starts(start[counts], (start + lasting)[counts]).max(initial=0))


@numba.njit(cache=True)
def _let_in(  # noqa: PLR0917
    arrival: np.ndarray, lasting: np.ndarray, counts: np.ndarray, most: int, by_end: np.ndarray, ended: np.ndarray
) -> np.ndarray:
    """Starts, in the order of the arrivals, at which at most so many of those that count are in flight.

    Every operation starts behind as many of the first ones of `by_end` as `ended` says.
    """
    new = np.empty(len(arrival), np.int64)
    ends = [np.int64(0)]
    ends.pop()
    reached, position = arrival[0] if len(arrival) else 0, 0
    for operation in range(len(arrival)):
        reached = max(reached, arrival[operation])
        while position < ended[operation]:
            reached = max(reached, new[by_end[position]] + lasting[by_end[position]])
            position += 1
        if counts[operation]:
            if len(ends) == most:
                reached = max(reached, heapq.heappop(ends))
            heapq.heappush(ends, reached + lasting[operation])
        new[operation] = reached
    return new
