# SPDX-License-Identifier: Apache-2.0
"""Turns a schedule into a faster or slower one: all of its times scaled, or only the think times between operations.

Scaled times (`scale_times`) keep which operations overlap and which are ordered, so all five parameters are held.

Scaled think times (`scale_think_times`) keep the durations, and the interval order of docs/decisions/0002: what had
ended before an operation started has ended before it starts. Two operations then overlap only if they did before, and
so no more requests are in flight at once; that no fewer are is seen to at the moment when most were. What a thread has
to wait for bounds its think time from below, so the strength of the change is searched for that meets the mean.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from characterize.errors import FlextraceError
from replayer.flexible.draft import Draft, UnreachableError
from replayer.flexible.manifest import ACCEPTED
from replayer.flexible.process_num import busiest_requests
from replayer.flexible.reschedule import rethink, think_times

TOLERANCE = 1e-4
STEPS = 60
# The search begins between these, or with the factor that is wanted.
WEAKEST, STRONGEST = 1e-6, 1e6
TIME_MAX_NS = 2.0**62


def scale_times(draft: Draft, factor: float, ranges: Iterable[np.ndarray] = (), gaps: np.ndarray | None = None) -> None:
    """Multiply all times, counted from the first start, by `factor`; also those of RESIDENT, HOLE and GAP records.

    Raises
    ------
    UnreachableError
        The shortest operation would take less than a nanosecond, or the last one would end after 146 years.
    FlextraceError
        The trace has no times.
    """
    start, end, _ = _operations(draft)
    base = int(start.min())
    shortest = (end - start)[end > start]
    low = 1 / float(shortest.min()) if len(shortest) else 0.0
    high = (TIME_MAX_NS - base) / max(float(end.max() - base), 1)
    if not low <= factor <= high:
        raise UnreachableError(
            f"timeScale {factor:g} is not reachable: the clock counts whole nanoseconds; reachable is about "
            f"{_no_less(low)} to {_no_more(high)}",
            low,
            high,
        )
    # Rounding both ends the same way keeps the order of every two moments.
    _set_times(draft, base + _rounded((start - base) * factor), base + _rounded((end - base) * factor))
    for records in (draft.files, draft.tasks, *ranges):
        seen = np.maximum(records["time_ns"].astype(np.int64), base)
        records["time_ns"] = base + _rounded((seen - base) * factor)
    if gaps is not None:
        _scale_gaps(gaps, base, factor)
    draft.note("timeScale", factor=factor)


def _scale_gaps(gaps: np.ndarray, base: int, factor: float) -> None:
    """Let records have been lost between the same operations; what was lost before the first one stays where it is."""
    start = gaps["start_ns"].astype(np.int64)
    moments = [start, start + gaps["duration_ns"].astype(np.int64)]
    start, end = (
        np.where(at > base, base + _rounded(np.clip((at - base) * factor, 0, TIME_MAX_NS - base)), at) for at in moments
    )
    gaps["start_ns"], gaps["duration_ns"] = start, end - start


def scale_think_times(draft: Draft, factor: float) -> float:
    """Multiply the mean think time by `factor`; returns what it was multiplied by.

    The think time of a thread is the time between its operations, of data or not: from the end of those so far to the
    start of the next one.

    Raises
    ------
    UnreachableError
        Threads wait for each other longer than that, the waits would take less than a nanosecond, or the last one would
        end after 146 years; the message has the factor that is reached. Or no thread ever thinks, as may be where other
        changes joined or split them.
    FlextraceError
        The trace has no times.
    """
    start, end, thread = _operations(draft)
    present = int(think_times(start, end, thread).sum())
    if not present:
        raise UnreachableError("thinkScale is not reachable: no thread waits between two operations", 1, 1)
    together = np.zeros(len(start), bool)
    together[: len(draft.io)][busiest_requests(draft)] = True

    def slowed(strength: float) -> tuple[float, np.ndarray]:
        new = rethink(start, end, thread, strength, together)
        return float(think_times(new, new + end - start, thread).sum()) / present, new

    low, high = 0.0, max(factor, WEAKEST)
    least, new = slowed(low)
    if least > factor * (1 + ACCEPTED):
        raise UnreachableError(
            f"thinkScale {factor:g} is not reachable: threads wait for each other's operations, whose order and "
            f"durations are held; reachable is about {least:.3g} or more",
            least,
            float("inf"),
        )
    # By then no operation starts later than at as many times its moment, those that are to meet at twice that.
    most = max((TIME_MAX_NS - int(start.min())) / (2 * max(int(end.max() - start.min()), 1)), 1.0)
    if factor > most:
        raise UnreachableError(
            f"thinkScale {factor:g} is not reachable: the clock counts up to 146 years; reachable is up to "
            f"{_no_more(most)}",
            least,
            most,
        )
    while (reached := slowed(high)[0]) < factor and high < min(STRONGEST, most / 2):
        high *= 2
    strength = high
    reached, new = slowed(high)
    for _ in range(STEPS):
        if abs(reached / factor - 1) <= TOLERANCE:
            break
        strength = (low + high) / 2
        reached, new = slowed(strength)
        low, high = (strength, high) if reached < factor else (low, strength)
    if abs(reached / factor - 1) > ACCEPTED and slowed(low)[0] <= least and (more := slowed(high)[0]) > factor:
        raise UnreachableError(
            f"thinkScale {factor:g} is not reachable: the clock counts whole nanoseconds; reachable is about "
            f"{_no_less(more)} or more",
            more,
            float("inf"),
        )
    _set_times(draft, new, new + end - start)
    draft.note("thinkScale", strength=strength)
    return reached


def elapsed_ns(draft: Draft) -> int:
    """From the first start to the last end."""
    start, end, _ = _operations(draft)
    return int(end.max() - start.min())


def _operations(draft: Draft) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, end and thread of all operations, IO records first; int64, shape (n,) each."""
    if draft.untimed:
        raise FlextraceError(
            "times cannot be scaled: the trace is synthetic and has no times, only an order; record its replay first"
        )
    both = [draft.io, draft.fileops]
    start = np.concatenate([records["start_ns"].astype(np.int64) for records in both])
    duration = np.concatenate([records["duration_ns"].astype(np.int64) for records in both])
    if ((start < 0) | (duration < 0) | (start + duration < start)).any():
        raise FlextraceError("times cannot be scaled: the trace is damaged, some of its records have impossible times")
    return start, start + duration, np.concatenate([records["thread"].astype(np.int64) for records in both])


def _set_times(draft: Draft, start: np.ndarray, end: np.ndarray) -> None:
    count = len(draft.io)
    for records, mine in ((draft.io, slice(0, count)), (draft.fileops, slice(count, None))):
        records["start_ns"], records["duration_ns"] = start[mine], (end - start)[mine]
    draft.sort()


def _rounded(time: np.ndarray) -> np.ndarray:
    return np.floor(time + 0.5).astype(np.int64)


def _no_less(factor: float) -> str:
    """A factor in three digits, rounded to where it is reached."""
    text = f"{factor:.3g}"
    return text if float(text) >= factor else f"{factor * 1.01:.3g}"


def _no_more(factor: float) -> str:
    """The same from above."""
    return f"{factor * 0.99:.3g}"
