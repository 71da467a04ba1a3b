# SPDX-License-Identifier: Apache-2.0
"""Turns durations into response times, and gaps between requests into think times (thesis 3.4.1.3)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from characterize.intervals import union_length
from characterize.layout import BlockOp, Fileop, RecordKind
from characterize.requests import Layer, block_records
from characterize.trace import Trace

SYNC_OPS = (Fileop.FSYNC, Fileop.FDATASYNC, Fileop.SYNC_FILE_RANGE, Fileop.SYNCFS)
# sys/mman.h; fileop_record.flags carries it in its high half. Without it msync does nothing.
MS_SYNC = 4

_QUANTILES = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p999_ns": 0.999}


def distribution(values_ns: np.ndarray) -> dict[str, float | None]:
    """Count, mean, quantiles and maximum of times in ns; a quantile is a value that occurred (inverted distribution).

    Returns
    -------
    dict
        ``count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns``; all but ``count`` None without values.
    """
    if not len(values_ns):
        return {"count": 0, "mean_ns": None, **dict.fromkeys(_QUANTILES), "max_ns": None}
    quantiles = np.quantile(values_ns, list(_QUANTILES.values()), method="inverted_cdf")
    return {
        "count": len(values_ns),
        "mean_ns": float(values_ns.mean()),
        **{name: int(value) for name, value in zip(_QUANTILES, quantiles, strict=True)},
        "max_ns": int(values_ns.max()),
    }


def syncs_of(trace: Trace, layer: Layer = "vfs") -> pd.DataFrame:
    """Operations that wait for data to become stable: ``start_ns, end_ns, thread, file``, in the order of the starts.

    Layer vfs: fsync, fdatasync, sync_file_range, syncfs, sync, msync with MS_SYNC that succeeded. Layer block: flush
    requests of devices that are not stacked, that succeeded.
    """
    if layer == "vfs":
        array = trace.arrays[RecordKind.FILEOP]
        msync = (array["op"] == Fileop.MSYNC) & ((array["flags"] >> 16 & MS_SYNC) != 0)
        array = array[(np.isin(array["op"], SYNC_OPS) | msync) & (array["result"] >= 0)]
        file = array["file"]
    else:
        array = block_records(trace)
        array = array[(array["op"] == BlockOp.FLUSH) & (array["status"] == 0)]
        file = array["device"]
    start = array["start_ns"].astype(np.int64)
    end = start + np.maximum(array["duration_ns"].astype(np.int64), 1)
    frame = pd.DataFrame({"start_ns": start, "end_ns": end, "thread": array["thread"], "file": file})
    return frame.sort_values("start_ns", kind="stable", ignore_index=True)


def time_in_sync_s(syncs: pd.DataFrame) -> float:
    """Seconds with at least one sync in flight."""
    return union_length(syncs["start_ns"].to_numpy(), syncs["end_ns"].to_numpy()) / 1e9


def response_times(requests: pd.DataFrame, syncs: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    """Response times of reads, writes and syncs, each as from `distribution`.

    Parameters
    ----------
    requests, syncs : DataFrame
        As from `characterize.requests.requests_of` and `syncs_of`; their times must be measurements.
    """
    duration = (requests["end_ns"] - requests["start_ns"]).to_numpy()
    read = requests["read"].to_numpy()
    return {
        "read": distribution(duration[read]),
        "write": distribution(duration[~read]),
        "sync": distribution((syncs["end_ns"] - syncs["start_ns"]).to_numpy()),
    }


def think_times(requests: pd.DataFrame) -> pd.DataFrame:
    """Think times: from the end of one request to the start of the next one of the same thread.

    With several requests of a thread in flight (AIO, io_uring) its latest end so far counts, and a request that starts
    before that has think time 0. A thread's first request has none. Time that the thread spends in other system calls,
    syncs for example, is within.

    Returns
    -------
    DataFrame
        ``thread``, ``think_ns`` int64, one row per request that has one, by thread in the order of the starts.
    """
    ordered = requests.sort_values(["thread", "start_ns"], kind="stable")
    thread, start = ordered["thread"].to_numpy(), ordered["start_ns"].to_numpy()
    reached = ordered.groupby("thread")["end_ns"].cummax().to_numpy()
    same = thread[1:] == thread[:-1]
    think = np.maximum(start[1:] - reached[:-1], 0)
    return pd.DataFrame({"thread": thread[1:][same], "think_ns": think[same]})
