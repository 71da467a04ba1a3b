# SPDX-License-Identifier: Apache-2.0
"""Turns durations of requests and syncs into response times (thesis, table 3.2), and starts into gaps between them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from characterize.counting.intervals import BusyTime
from characterize.counting.log_histogram import LogHistogram
from characterize.counting.start_gaps import StartGaps
from characterize.layout import NOT_MEASURED_U64, BlockFlag, BlockOp, Fileop, RecordKind
from characterize.references import Columns
from characterize.requests import Layer, actor_columns, block_records
from characterize.run_delay import RunDelays, stored_run_delays
from characterize.trace import Trace

SYNC_OPS = (Fileop.FSYNC, Fileop.FDATASYNC, Fileop.SYNC_FILE_RANGE, Fileop.SYNCFS)
# sys/mman.h; fileop_record.flags carries it in its high half. Without it msync does nothing.
MS_SYNC = 4


def syncs_of(trace: Trace, layer: Layer = "vfs") -> pd.DataFrame:
    """Operations that wait for data to become stable: ``start_ns, end_ns, thread, file``, in the order of the starts.

    Layer vfs: fsync, fdatasync, sync_file_range, syncfs, sync, msync with MS_SYNC that succeeded. Layer block: flush
    requests of devices that are not stacked, that succeeded.
    """
    array = trace.arrays[RecordKind.FILEOP] if layer == "vfs" else block_records(trace)
    frame = pd.DataFrame(sync_columns(array, layer)).drop(columns=["process", "run_delay"], errors="ignore")
    return frame.sort_values("start_ns", kind="stable", ignore_index=True)


def sync_columns(array: np.ndarray, layer: Layer) -> dict[str, np.ndarray]:
    """The syncs among FILEOP records (layer vfs) or BLOCK records, in their order: as `syncs_of`, and ``process``."""
    if layer == "vfs":
        msync = (array["op"] == Fileop.MSYNC) & ((array["flags"] >> 16 & MS_SYNC) != 0)
        array = array[(np.isin(array["op"], SYNC_OPS) | msync) & (array["result"] >= 0)]
        file = array["file"]
    else:
        array = array[(array["op"] == BlockOp.FLUSH) & (array["status"] == 0)]
        file = array["device"]
    columns = actor_columns(array, file)
    if layer == "vfs":
        # Others have something else in these bits.
        counted = np.isin(array["op"], (Fileop.FSYNC, Fileop.FDATASYNC))
        columns["run_delay"] = np.where(counted, stored_run_delays(array["flags"]), 0)
    return columns


def times_by_kind(requests: Columns, syncs: Columns) -> dict[str, np.ndarray]:
    """How long reads, writes and syncs took, ns; without those of the block layer whose end was missed.

    Parameters
    ----------
    requests, syncs : mapping of str to ndarray
        Columns of `characterize.requests` and of `sync_columns`; their times must be measurements.
    """
    duration, read = requests["end_ns"] - requests["start_ns"], requests["read"]
    seen = np.ones(len(read), bool)
    if "queued_ns" in requests:
        seen = (requests["flags"] & BlockFlag.END_UNSEEN) == 0
    return {
        "read": duration[read & seen],
        "write": duration[~read & seen],
        "sync": syncs["end_ns"] - syncs["start_ns"],
    }


class ResponseSummary:
    """Distributions of times of requests and syncs that come in chunks, in the order of their starts.

    Parameters
    ----------
    measured : bool
        Whether starts and durations are measurements.
    arrivals : bool
        Whether starts are.
    """

    def __init__(self, measured: bool, arrivals: bool) -> None:
        self._measured, self._arrivals = measured, arrivals
        self._times = {name: LogHistogram() for name in ("read", "write", "sync")}
        self._run_delays = RunDelays()
        self._queued: LogHistogram | None = None
        self._requests, self._syncs = StartGaps(), StartGaps()
        self._sync_busy = BusyTime()

    def add(self, requests: Columns, syncs: Columns) -> None:
        """Follow a chunk."""
        if self._arrivals:
            self._requests.add(requests["start_ns"])
            self._syncs.add(syncs["start_ns"])
        if "queued_ns" in requests:
            queued = requests["queued_ns"]
            queued = queued[queued != NOT_MEASURED_U64].astype(np.int64)
            if len(queued):
                self._queued = self._queued or LogHistogram()
                self._queued.add(queued)
        if self._measured:
            for name, times in times_by_kind(requests, syncs).items():
                self._times[name].add(times)
            if "run_delay" in syncs:
                self._run_delays.add(requests, syncs)
            self._sync_busy.add(syncs["start_ns"], syncs["end_ns"])

    def carry(self, syncs: Columns) -> None:
        """Begin with syncs that started before and go on."""
        if self._measured:
            self._sync_busy.carry(syncs["end_ns"])

    def merge(self, following: ResponseSummary) -> None:
        """Count what `following` counted, all of whose requests start after these."""
        for name, times in self._times.items():
            times.merge(following._times[name])
        self._run_delays.merge(following._run_delays)
        if following._queued:
            self._queued = self._queued or LogHistogram()
            self._queued.merge(following._queued)
        self._requests.merge(following._requests)
        self._syncs.merge(following._syncs)
        self._sync_busy.merge(following._sync_busy)

    def response_time(self) -> dict[str, dict[str, float | None] | None]:
        """Of reads, writes and syncs; None where times are not measurements."""
        return {name: it.distribution() if self._measured else None for name, it in self._times.items()}

    def run_delay(self) -> dict[str, dict[str, float] | None]:
        """As from `characterize.run_delay.RunDelays.shares`."""
        return self._run_delays.shares()

    def histograms(self) -> dict[str, LogHistogram]:
        """The distributions that were measured, by what the times are of."""
        times = dict(self._times) if self._measured else {}
        if self._queued:
            times["queue"] = self._queued
        if self._arrivals:
            times |= {"inter_arrival": self._requests.histogram, "inter_sync": self._syncs.histogram}
        return times

    def mean_s(self) -> float:
        """Mean response time of the requests; NaN without one."""
        read, write = self._times["read"], self._times["write"]
        return (read.total + write.total) / (read.count + write.count) / 1e9 if read.count + write.count else np.nan

    def queue_time(self) -> dict[str, float | None] | None:
        """From being queued to being issued; None where it was not measured."""
        return self._queued.distribution() if self._queued else None

    def inter_arrival(self) -> dict[str, float | None] | None:
        """From one start to the next, whatever the thread; None where starts are not measurements."""
        return self._requests.histogram.distribution() if self._arrivals else None

    def inter_sync(self) -> dict[str, float | None] | None:
        """The same of syncs."""
        return self._syncs.histogram.distribution() if self._arrivals else None

    def time_in_sync_s(self) -> float:
        """Seconds with at least one sync in flight; NaN where times are not measurements."""
        return self._sync_busy.length / 1e9 if self._measured else np.nan
