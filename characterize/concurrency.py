# SPDX-License-Identifier: Apache-2.0
"""Turns starts and ends of requests into load: number in flight, time in I/O (thesis, figure 2.3), Little's law."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import pandas as pd

from characterize.counting.intervals import BusyTime
from characterize.counting.log_histogram import GroupedHistogram, LogHistogram
from characterize.counting.numbering import Numbering, room_for
from characterize.processor_share import computed_ns
from characterize.references import Columns


@dataclass(frozen=True)
class Concurrency:
    """Load of one layer of a trace; every number but `threads` is NaN where times are not measurements.

    Attributes
    ----------
    threads : float
        Threads with at least one request; NaN where no request names its thread (foreign traces).
    in_flight_max : float
        Largest number of requests in flight at once.
    in_flight_mean : float
        Mean number in flight while any is: total duration / time in I/O.
    queue_depth_per_thread : float
        Mean number that one thread has in flight while it has any: total duration / summed time in I/O of the threads.
    time_in_io_s : float
        Time with at least one request in flight.
    per_thread : DataFrame
        ``thread, process, requests, bytes, time_in_io_s, response_mean_s`` by thread.
    """

    threads: float
    in_flight_max: float
    in_flight_mean: float
    queue_depth_per_thread: float
    time_in_io_s: float
    per_thread: pd.DataFrame


class ConcurrencySummary:
    """Load of requests that come in chunks, in the order of their starts, and the pauses between them.

    Memory by threads, and by requests in flight at once.

    Parameters
    ----------
    measured : bool
        Whether starts and durations are measurements (`characterize.requests.times_measured`).
    thinking : bool
        Whether to follow think times: from the latest end of a thread's requests so far to the start of its next one, 0
        where that is earlier. A thread's first request has none. What else the thread does meanwhile is within.
    """

    def __init__(self, measured: bool, thinking: bool = False) -> None:
        self._measured, self._thinking = measured, thinking
        self._threads = Numbering()
        self._process = np.zeros(0, np.int64)
        # By thread: requests, bytes, duration, time in I/O, latest end (0: none yet), pauses, their sum; first start
        # + 1, but 0 where a pause was counted before that, too, after a request that was in flight at the begin; sleep
        # before that request.
        self._thread = np.zeros((0, 9), np.int64)
        # Of all: sum of the durations, time in I/O, in flight at most, ends of those in flight, ascending.
        self._total_ns, self._busy, self._most = 0, BusyTime(), 0
        self._ends = np.zeros(0, np.int64)
        self.thinks = LogHistogram()
        self._think_by_thread = GroupedHistogram()
        # Share of a processor, as stored, of each thread's first request.
        self._first_share = np.zeros(0, np.uint8)
        # Sum of the pauses whose share is known, and of the computing in them.
        self._computing_ns = np.zeros(2, np.int64)
        # Calls that waited for those of other threads, the sleep in that, and the part of it in pauses.
        self._waits = np.zeros(3, np.int64)

    def carry(self, requests: Columns) -> None:
        """Begin with requests that started before and are in flight; what is counted of them was counted there."""
        end = requests["end_ns"]
        threads = self._numbered(requests["thread"])
        np.maximum.at(self._thread[:, 4], threads, end)
        self._busy.carry(end)
        self._ends = np.sort(end)

    def merge(self, following: ConcurrencySummary) -> None:
        """Count what `following` counted, which began with the requests that are in flight where these end."""
        known = len(self._threads)
        threads = self._numbered(following._threads.keys.copy())
        new = threads >= known
        self._process[threads[new]] = following._process[: len(threads)][new]
        self._thread[threads[new], 8] = following._thread[: len(threads)][new, 8]
        other, mine = following._thread[: len(threads)], self._thread[threads]
        first = np.flatnonzero((other[:, 7] > 0) & (mine[:, 4] > 0))
        thinks = np.maximum(other[first, 7] - 1 - mine[first, 4], 0)
        mine[:, [0, 1, 2, 3, 5, 6]] += other[:, [0, 1, 2, 3, 5, 6]]
        mine[first, 5] += 1
        mine[first, 6] += thinks
        mine[:, 4] = np.maximum(mine[:, 4], other[:, 4])
        self._thread[threads] = mine
        if self._thinking:
            self.thinks.merge(following.thinks)
            self.thinks.add(thinks)
            self._think_by_thread.merge(following._think_by_thread, threads)
            self._think_by_thread.add(threads[first].astype(np.int64), thinks)
            self._first_share[threads[new]] = following._first_share[: len(threads)][new]
            self._computing_ns += following._computing_ns
            self._add_computing(thinks, following._first_share[first])
            self._waits += following._waits
            self._waits[2] += np.minimum(thinks, other[first, 8]).sum()
        self._total_ns += following._total_ns
        self._busy.merge(following._busy)
        self._most, self._ends = max(self._most, following._most), following._ends

    def add(self, requests: Columns, waits: Columns | None = None) -> None:
        """Follow a chunk; `waits`: as from `characterize.waits.wait_columns`."""
        start, end, size = (requests[name] for name in ("start_ns", "end_ns", "bytes"))
        known = len(self._threads)
        threads = self._numbered(requests["thread"])
        new = np.flatnonzero(threads >= known)
        # The process of a thread's first request: an assignment from the last to the first.
        self._process[threads[new][::-1]] = requests["process"][new][::-1]
        thinks = np.empty(len(start), np.int64)
        _follow_threads(start, end, size, threads, self._thread, thinks)
        if self._thinking:
            share = requests["processor_share"]
            self._first_share[threads[new][::-1]] = share[new][::-1]
            slept = requests["slept_ns"]
            self._thread[threads[new][::-1], 8] = slept[new][::-1]
            has = thinks >= 0
            thinks = thinks[has]
            self._waits[2] += np.minimum(thinks, slept[has]).sum()
            self.thinks.add(thinks)
            self._think_by_thread.add(threads[has].astype(np.int64), thinks)
            self._add_computing(thinks, share[has])
            if waits is not None:
                self._waits[:2] += len(waits["slept_ns"]), waits["slept_ns"].sum()
        if self._measured and len(start):
            self._follow_all(start, end)

    def _follow_all(self, start: np.ndarray, end: np.ndarray) -> None:
        self._total_ns += int((end - start).sum())
        self._busy.add(start, end)
        began = np.arange(1, len(start) + 1) + len(self._ends)
        ends = np.sort(np.concatenate([self._ends, end]))
        # One that ends in the nanosecond in which another one starts has ended before.
        over = np.searchsorted(ends, start, side="right")
        self._most = max(self._most, int((began - over).max()))
        self._ends = ends[over[-1] :].copy()

    def _numbered(self, threads: np.ndarray) -> np.ndarray:
        """Numbers of threads, which from now on have a row each."""
        numbers = self._threads.number(threads)
        self._thread = room_for(self._thread, len(self._threads))
        self._process = room_for(self._process, len(self._threads))
        self._first_share = room_for(self._first_share, len(self._threads))
        return numbers

    def _add_computing(self, thinks: np.ndarray, stored: np.ndarray) -> None:
        known = stored > 0
        self._computing_ns += thinks[known].sum(), computed_ns(thinks[known], stored[known]).sum()

    def computing(self) -> dict[str, float]:
        """What share of the pauses threads had a processor for, and of what share of them that is known."""
        total, (known, computed) = self._thread[:, 6].sum(), self._computing_ns
        return {
            "share": computed / known if known else math.nan,
            "measured_share": known / total if total else math.nan,
        }

    def waits(self) -> dict[str, float] | None:
        """How many calls waited for those of other threads, for how long, and for what share of the pauses; or none."""
        total, (count, slept, in_pauses) = self._thread[:, 6].sum(), self._waits.tolist()
        share = in_pauses / total if total else math.nan
        return {"count": count, "slept_s": slept / 1e9, "share": share} if count else None

    def result(self) -> Concurrency:
        """What was followed so far."""
        threads = self._threads.keys
        known = float(len(threads)) if threads.any() or not len(threads) else math.nan
        per_thread = self._per_thread()
        if not self._measured:
            return Concurrency(known, math.nan, math.nan, math.nan, math.nan, per_thread)
        total, busy = self._total_ns, self._busy.length
        thread_busy = int(self._thread[:, 3].sum())
        return Concurrency(
            threads=known,
            in_flight_max=float(self._most),
            in_flight_mean=total / busy if busy else math.nan,
            queue_depth_per_thread=total / thread_busy if thread_busy and not math.isnan(known) else math.nan,
            time_in_io_s=busy / 1e9,
            per_thread=per_thread,
        )

    def time_in_io_until_s(self, end_ns: int) -> float:
        """Time before `end_ns` with at least one request in flight; all of them start before that."""
        return self._busy.length_before(end_ns) / 1e9 if self._measured else math.nan

    def think_per_thread(self) -> pd.DataFrame:
        """Pauses by thread: ``thread, gaps, think_mean_s, think_p50_s``, of threads that have some."""
        count = len(self._threads)
        gaps = self._thread[:count, 5]
        median = self._think_by_thread.medians(count)
        order = np.argsort(self._threads.keys)
        order = order[gaps[order] > 0] if self._thinking else order[:0]
        return pd.DataFrame(
            {
                "thread": self._threads.keys[order],
                "gaps": gaps[order],
                "think_mean_s": self._thread[order, 6] / gaps[order] / 1e9,
                "think_p50_s": median[order] / 1e9,
            }
        )

    def _per_thread(self) -> pd.DataFrame:
        order = np.argsort(self._threads.keys)
        requests, size, total, busy = self._thread[order, :4].T
        frame = pd.DataFrame(
            {"thread": self._threads.keys[order], "process": self._process[order], "requests": requests, "bytes": size}
        )
        frame["time_in_io_s"] = busy / 1e9 if self._measured else math.nan
        frame["response_mean_s"] = total / requests / 1e9 if self._measured else math.nan
        return frame


def littles_law(
    size_mean: float, response_mean_s: float, think_mean_s: float, concurrency: float, throughput_bytes_per_s: float
) -> dict[str, float]:
    """Check a trace against the thesis's form of Little's law (3.4.2) for a closed system.

    ``throughput = sizeMean / (cpuThink + responseTime) x processNum``

    Parameters
    ----------
    size_mean, response_mean_s, think_mean_s : float
        Bytes, seconds, seconds.
    concurrency : float
        Requests that the threads together keep in the cycle of thinking and waiting.
    throughput_bytes_per_s : float
        Measured bytes / elapsed time.

    Returns
    -------
    dict
        ``throughput_bytes_per_s`` as the law gives it, and ``ratio`` = that / measured. Far from 1: the threads do not
        run all the time, or the trace is not complete.
    """
    cycle = think_mean_s + response_mean_s
    expected = size_mean / cycle * concurrency if cycle > 0 else math.nan
    ratio = expected / throughput_bytes_per_s if throughput_bytes_per_s > 0 else math.nan
    return {"throughput_bytes_per_s": expected, "ratio": ratio}


@numba.njit(cache=True, nogil=True)
def _follow_threads(  # noqa: PLR0917 (a kernel has its state in arguments)
    start: np.ndarray, end: np.ndarray, size: np.ndarray, threads: np.ndarray, state: np.ndarray, thinks: np.ndarray
) -> None:
    """Sums by thread; the pause before each request, -1 before a thread's first one."""
    for request in range(len(start)):
        mine = state[threads[request]]
        begin, stop = start[request], end[request]
        known = mine[4] > 0
        reached = mine[4] if known else begin
        if not known:
            mine[7] = begin + 1
        thinks[request] = max(begin - reached, 0) if known else -1
        if known:
            mine[5] += 1
            mine[6] += thinks[request]
        mine[0] += 1
        mine[1] += size[request]
        mine[2] += stop - begin
        mine[3] += max(stop - max(begin, reached), 0)
        mine[4] = max(reached, stop)
