# SPDX-License-Identifier: Apache-2.0
"""Turns the times of a recording and another throughput into the time that the application would take.

``elapsed = (recorded elapsed - waiting) + waiting x (bytes / throughput there) / recorded time in I/O``

*waiting* is the part of the elapsed time that the application's threads spend waiting for I/O, found thread by thread,
so that computing which other threads' I/O hides comes to light as soon as the I/O gets faster. With one thread it is
the time in I/O, and the formula is time not in I/O + bytes / throughput (thesis 3.4.2 with cpuThink). It is never less
than bytes / throughput with all threads in I/O. What it assumes stands in
docs/decisions/0019-fit-elapsed-time-rank.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from characterize.counting.intervals import union_added, union_length


@dataclass(frozen=True)
class RecordedTimes:
    """Where the time of a recording went; all in seconds.

    Attributes
    ----------
    elapsed_s : float
        From the begin to the end of the recording.
    io_s : float
        With at least one request in flight.
    waiting_s : float
        Part of the elapsed time that threads wait for I/O, `waiting_s` says how it is found; at most `io_s`.
    sync_s : float
        With at least one sync in flight; outside I/O.
    in_flight : float
        Mean number of requests in flight while any is.
    moved_bytes : int
    """

    elapsed_s: float
    io_s: float
    waiting_s: float
    sync_s: float
    in_flight: float
    moved_bytes: int

    @property
    def outside_s(self) -> float:
        """Time not in I/O: processors, think time, syncs, other waiting."""
        return self.elapsed_s - self.waiting_s

    @property
    def throughput_bytes_per_s(self) -> float:
        """Recorded throughput in I/O: bytes / time in I/O."""
        return self.moved_bytes / self.io_s

    def elapsed_with(self, throughput_bytes_per_s: float, saturation: float = 1.0) -> float:
        """Seconds that the application would take if its I/O had another throughput, see the top of this file.

        Parameters
        ----------
        throughput_bytes_per_s : float
            In I/O, with the recorded number in flight.
        saturation : float
            Throughput with all threads in I/O over that one; at least 1.
        """
        least_s = self.moved_bytes / throughput_bytes_per_s / saturation
        return max(least_s, self.outside_s + self.waiting_s * self.throughput_bytes_per_s / throughput_bytes_per_s)


def recorded_times(requests: pd.DataFrame, elapsed_s: float, sync_s: float) -> RecordedTimes:
    """The times of a recording.

    Parameters
    ----------
    requests : DataFrame
        At least one, with ``thread``, ``start_ns``, ``end_ns`` and ``bytes``, times measured.
    elapsed_s, sync_s : float
    """
    start, end = requests["start_ns"].to_numpy(), requests["end_ns"].to_numpy()
    io_s = max(union_length(start, end), 1) / 1e9
    elapsed_s = max(elapsed_s, io_s)
    return RecordedTimes(
        elapsed_s=elapsed_s,
        io_s=io_s,
        waiting_s=min(waiting_s(requests), io_s),
        sync_s=sync_s,
        in_flight=max(1.0, float((end - start).sum()) / 1e9 / io_s),
        moved_bytes=int(requests["bytes"].sum()),
    )


def waiting_s(requests: pd.DataFrame) -> float:
    """Seconds during which the application waits for I/O, judged by its threads.

    A thread lives from the start of its first request to the end of its last one. The share of its life that it spends
    in I/O is averaged over threads, by their time in I/O, and holds for all of the time in which any thread lives: two
    threads that take turns in computing and I/O wait half of the time, though I/O is in flight all the time.
    """
    thread = requests["thread"].to_numpy()
    start, end = requests["start_ns"].to_numpy(), requests["end_ns"].to_numpy()
    names, added = union_added(start, end, thread)
    busy = pd.Series(added).groupby(names).sum().to_numpy().astype(float)
    lives = requests.groupby("thread").agg(first=("start_ns", "min"), last=("end_ns", "max"))
    life = np.maximum((lives["last"] - lives["first"]).to_numpy(), 1)
    alive = union_length(lives["first"].to_numpy(), lives["last"].to_numpy())
    if not busy.sum():
        return 0.0
    return float(np.average(busy / life, weights=busy)) * alive / 1e9
