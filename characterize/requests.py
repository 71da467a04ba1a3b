# SPDX-License-Identifier: Apache-2.0
"""Turns the records of one layer of a trace into one table of requests, so that both layers share every formula."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from characterize.errors import FlextraceError
from characterize.layout import BlockOp, IoOp, RecordKind
from characterize.trace import Trace

Layer = Literal["vfs", "block"]
LAYERS: tuple[Layer, ...] = ("vfs", "block")

SECTOR_BYTES = 512

# What makes one stream of requests (seqFrac): see `characterize.workload.sequential`.
STREAM_OF: dict[str, tuple[str, ...]] = {"vfs": ("thread", "file"), "block": ("file",)}


def requests_of(trace: Trace, layer: Layer = "vfs") -> pd.DataFrame:
    """The requests of one layer: data operations that moved at least one byte (design.md section 4).

    Parameters
    ----------
    trace : Trace
    layer : {"vfs", "block"}
        vfs: IO records with ``result`` > 0. block: BLOCK records of reads and writes with bytes > 0 and status 0; there
        ``file`` is the device and ``offset`` is ``sector`` x 512.

    Returns
    -------
    DataFrame, one row per request in the order of the starts (stable: the order of each thread stays)
        ``start_ns, end_ns, thread, process, file, offset, bytes`` int64; ``read`` bool; ``flags`` uint32;
        ``asked_bytes`` and ``missed_bytes`` in layer vfs, ``queued_ns`` in layer block. ``end_ns`` is at least
        ``start_ns + 1``: a request that ran took time, also where the clock did not see it.

    Raises
    ------
    FlextraceError
        Unknown layer.
    """
    if layer == "vfs":
        array = trace.arrays[RecordKind.IO]
        array = array[array["result"] > 0]
        size, file, offset = array["result"], array["file"], array["offset"]
        read = array["op"] == IoOp.READ
        extra: tuple[str, ...] = ("asked_bytes", "missed_bytes")
    elif layer == "block":
        array = trace.arrays[RecordKind.BLOCK]
        data = (array["op"] == BlockOp.READ) | (array["op"] == BlockOp.WRITE)
        array = array[data & (array["bytes"] > 0) & (array["status"] == 0)]
        size, file, offset = array["bytes"], array["device"], array["sector"] * np.uint64(SECTOR_BYTES)
        read = array["op"] == BlockOp.READ
        extra = ("queued_ns",)
    else:
        raise FlextraceError(f"layer {layer!r} is unknown: choose vfs or block", 2)
    start = array["start_ns"].astype(np.int64)
    columns = {
        "start_ns": start,
        "end_ns": start + np.maximum(array["duration_ns"].astype(np.int64), 1),
        "thread": array["thread"].astype(np.int64),
        "process": array["process"].astype(np.int64),
        "file": file.astype(np.int64),
        "offset": offset.astype(np.int64),
        "bytes": size.astype(np.int64),
        "read": read,
        "flags": np.ascontiguousarray(array["flags"]),
        **{name: np.ascontiguousarray(array[name]) for name in extra},
    }
    order = np.argsort(start, kind="stable")
    return pd.DataFrame({name: column[order] for name, column in columns.items()})


def times_measured(trace: Trace) -> bool:
    """Whether starts *and* durations are measurements: numbers in flight, response and think times need both.

    A trace that has not run yet has only an order or a schedule; a foreign trace may have arrivals but no durations
    (metadata ``"durations": "unknown"``).
    """
    return trace.measured and trace.header.metadata.get("durations") != "unknown"


def arrivals_measured(trace: Trace) -> bool:
    """Whether at least the starts are measurements, so that elapsed time means something."""
    return trace.measured
