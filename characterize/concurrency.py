# SPDX-License-Identifier: Apache-2.0
"""Turns starts and ends of requests into load: number in flight, time in I/O (thesis, figure 2.3), Little's law."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from characterize.intervals import overlap_at_starts, union_added, union_length


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


def concurrency_of(requests: pd.DataFrame, measured: bool) -> Concurrency:
    """Number in flight and time in I/O.

    Parameters
    ----------
    requests : DataFrame
        As from `characterize.requests.requests_of`.
    measured : bool
        Whether starts and durations are measurements (`characterize.requests.times_measured`).
    """
    start, end = requests["start_ns"].to_numpy(), requests["end_ns"].to_numpy()
    thread = requests["thread"].to_numpy()
    per_thread = _per_thread(requests, measured)
    threads = float(len(per_thread)) if thread.any() or not len(thread) else math.nan
    if not measured:
        return Concurrency(threads, math.nan, math.nan, math.nan, math.nan, per_thread)
    total = int((end - start).sum())
    busy = union_length(start, end)
    thread_busy = union_length(start, end, thread)
    return Concurrency(
        threads=threads,
        in_flight_max=float(overlap_at_starts(start, end).max(initial=0)),
        in_flight_mean=total / busy if busy else math.nan,
        queue_depth_per_thread=total / thread_busy if thread_busy else math.nan,
        time_in_io_s=busy / 1e9,
        per_thread=per_thread,
    )


def in_flight_shares(requests: pd.DataFrame) -> pd.DataFrame:
    """How long how many requests were in flight, of the time in which any was.

    Parameters
    ----------
    requests : DataFrame
        As from `characterize.requests.requests_of`; their times must be measurements.

    Returns
    -------
    DataFrame
        ``in_flight`` 1, 2, ... as far as it occurs, ``time_s``, ``share``.
    """
    times = np.concatenate([requests["start_ns"].to_numpy(), requests["end_ns"].to_numpy()])
    steps = np.repeat([1, -1], len(requests))
    # An end stands before a start at the same time: they do not overlap.
    order = np.lexsort((steps, times))
    in_flight = np.cumsum(steps[order])[:-1]
    time_ns = np.bincount(in_flight, weights=np.diff(times[order]), minlength=2)[1:]
    frame = pd.DataFrame({"in_flight": np.arange(1, len(time_ns) + 1), "time_s": time_ns / 1e9})
    frame["share"] = frame["time_s"] / (frame["time_s"].sum() or np.nan)
    return frame[frame["time_s"] > 0].reset_index(drop=True)


def _per_thread(requests: pd.DataFrame, measured: bool) -> pd.DataFrame:
    duration = requests["end_ns"] - requests["start_ns"]
    groups = requests.assign(duration=duration).groupby("thread", sort=True)
    frame = groups.agg(
        process=("process", "first"), requests=("bytes", "size"), bytes=("bytes", "sum"), total=("duration", "sum")
    )
    thread, added = union_added(
        requests["start_ns"].to_numpy(), requests["end_ns"].to_numpy(), requests["thread"].to_numpy()
    )
    busy = pd.Series(added).groupby(thread).sum().reindex(frame.index) / 1e9
    response = frame["total"] / frame["requests"] / 1e9
    frame["time_in_io_s"] = busy if measured else math.nan
    frame["response_mean_s"] = response if measured else math.nan
    return frame.drop(columns="total").reset_index()


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
