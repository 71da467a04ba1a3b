# SPDX-License-Identifier: Apache-2.0
"""Turns the totals that a recorder keeps beside its records into what is still exact where records were lost.

The recorder counts every data operation when it ends, whether or not its record gets through (metadata ``totals``, by
direction and source) and the largest number in flight (``in_flight_max``). So readFrac, sizeMean and processNum of the
application's layer survive a loss. uniqueBytes does not, and a lost request also breaks a sequential stream.

The number in flight is that of all operations: those that move nothing are in it, and accesses to mapped files, which
the recorder learns of when they end, are in it one after the other. Where there are such it is an estimate, and the
records can show more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from characterize.layout import IoOp, RecordKind, Source
from characterize.requests import Layer, Mmap, left_out
from characterize.trace import Trace

# A recorder writes the names of the sources in small letters.
MMAP_TOTAL = Source.MMAP.name.lower()

LOWER_BOUNDS = ("uniqueBytes", "seqFrac")
MEANS = ("readFrac", "sizeMean")

# What a recorder says of its own run: of no meaning for a trace that was made from the recording.
RECORDING_KEYS = (
    *("totals", "in_flight_max", "in_flight_end", "closure", "skips", "skipped", "ring", "records_out_of_order"),
    *("ends_unseen", "missed_runs", "holes"),
)


@dataclass(frozen=True)
class Totals:
    """What a recorder counted of the application's layer; numbers of requests and bytes need not be whole.

    Attributes
    ----------
    reads, writes, read_bytes, written_bytes : float
    in_flight_max : float
        NaN where it was not counted.
    in_flight_exact : bool
        Whether all that was in flight were requests that began when the recorder saw them.
    apportioned : bool
        Whether accesses to mapped files are in them by the proportion that their records have.
    """

    reads: float
    writes: float
    read_bytes: float
    written_bytes: float
    in_flight_max: float
    in_flight_exact: bool = True
    apportioned: bool = False

    @property
    def requests(self) -> float:
        """Reads and writes."""
        return self.reads + self.writes


def is_lossy(trace: Trace, layer: Layer = "vfs") -> bool:
    """Whether records of a layer were lost; what the trace does not say the kind of may be of both."""
    kinds = {RecordKind.IO} if layer == "vfs" else {RecordKind.BLOCK}
    return trace.header.lacks_uncounted or any(trace.header.lost.get(kind) for kind in kinds)


def totals_of(trace: Trace, mmap: Mmap = "data", kept: Mapping[IoOp, float] | None = None) -> Totals | None:
    """The recorder's own totals of what counts as a request; None where the trace has none, or did not run as it is.

    The recorder counts accesses to mapped files as one source, programs or not. Under the rule ``data`` they are taken
    in the proportion that their records have.

    Parameters
    ----------
    trace : Trace
        With its IO records, or `kept`.
    mmap : {"data", "all", "none"}
    kept : dict of IoOp to float, or None
        That proportion, as from `kept_shares`; None: from the records.
    """
    recorded = trace.header.metadata.get("totals")
    if not trace.measured or not isinstance(recorded, Mapping):
        return None
    kept = kept_shares(trace.arrays[RecordKind.IO], left_out(trace, mmap), mmap) if kept is None else kept
    sums = {}
    for name, direction in (("read", IoOp.READ), ("write", IoOp.WRITE)):
        sources = recorded.get(name)
        if not isinstance(sources, Mapping):
            return None
        for key in ("count", "bytes"):
            sums[name, key] = sum(
                _number(total, key) * (kept[direction] if source == MMAP_TOTAL else 1.0)
                for source, total in sources.items()
            )
    in_flight = trace.header.metadata.get("in_flight_max")
    both = [recorded[name] for name in ("read", "write")]
    mapped = any(_number(sources.get(MMAP_TOTAL), "count") > 0 for sources in both)
    moved_nothing = any(_number(total, "failed") > 0 for sources in both for total in sources.values())
    return Totals(
        reads=sums["read", "count"],
        writes=sums["write", "count"],
        read_bytes=sums["read", "bytes"],
        written_bytes=sums["write", "bytes"],
        in_flight_max=float(in_flight) if isinstance(in_flight, int) else math.nan,
        in_flight_exact=not (mapped or moved_nothing),
        apportioned=mmap == "data" and mapped,
    )


def exact_of(totals: Totals | None) -> tuple[str, ...]:
    """Which of the five parameters totals give exactly."""
    if totals is None or not totals.requests:
        return ()
    means = () if totals.apportioned else MEANS
    return means + (("processNum",) if totals.in_flight_exact and not math.isnan(totals.in_flight_max) else ())


def estimates_of(totals: Totals | None) -> tuple[str, ...]:
    """Which of them they give but for accesses to mapped files, and operations that moved nothing."""
    if totals is None or not totals.requests:
        return ()
    means = MEANS if totals.apportioned else ()
    return means + (() if totals.in_flight_exact or math.isnan(totals.in_flight_max) else ("processNum",))


def _number(total: Any, key: str) -> float:
    value = total.get(key, 0) if isinstance(total, Mapping) else 0
    return float(value) if isinstance(value, int | float) else 0.0


def kept_shares(io: np.ndarray, out: np.ndarray, mmap: Mmap) -> dict[IoOp, float]:
    """Share of the recorded accesses to mapped files that count as requests, by direction.

    Parameters
    ----------
    io : ndarray
        IO records.
    out : ndarray of bool
        Which of them are left out (`characterize.requests.left_out`).
    mmap : {"data", "all", "none"}
    """
    mapped = (io["source"] == Source.MMAP) & (io["result"] > 0)
    counts = {op: (int((mapped & (io["op"] == op)).sum()), int((mapped & out & (io["op"] == op)).sum())) for op in IoOp}
    return {op: kept_share(*counts[op], mmap) for op in IoOp}


def kept_share(mapped: int, out: int, mmap: Mmap) -> float:
    """Share of `mapped` accesses to mapped files that count as requests where `out` of them are left out."""
    if not mapped:
        return 0.0 if mmap == "none" else 1.0
    return (mapped - out) / mapped
