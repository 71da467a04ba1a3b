# SPDX-License-Identifier: Apache-2.0
"""Turns what a recorder says of its own run into how complete a trace is: sources, totals, closure, skips, gaps.

Everything but the records themselves is in the JSON block of the trace, and missing from traces of format 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from characterize.layout import IoOp, RecordKind, Source, name_of
from characterize.shape import amount, object_with
from characterize.trace import Trace

_COMPARED = object_with({"seen": amount, "kernel": amount}, required=("seen", "kernel"))
DIRECTIONS = {"read": IoOp.READ, "write": IoOp.WRITE}


def sources_of(trace: Trace) -> pd.DataFrame:
    """How many records came through which interface of the kernel, beside what the recorder counted there.

    Returns
    -------
    DataFrame
        One row per source that occurs: ``source, reads, read_bytes, writes, written_bytes`` (IO records that moved
        data), ``failed`` (that moved none), ``fileops``; ``counted_reads, counted_read_bytes, counted_writes,
        counted_written_bytes`` from the recorder's totals, NaN where it has none.
    """
    io, fileops = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILEOP]
    moved = np.maximum(io["result"].astype(np.int64), 0)
    done, read = moved > 0, io["op"] == IoOp.READ
    totals = trace.header.metadata.get("totals")
    known = {int(source) for source in np.unique(np.concatenate([io["source"], fileops["source"]]))}
    known |= {
        int(Source[name.upper()])
        for direction in DIRECTIONS
        for name in _mapping(_mapping(totals).get(direction))
        if name.upper() in Source.__members__
    }
    rows = []
    for source in sorted(known):
        mine, name = io["source"] == source, name_of(Source, source).lower()
        counted = {
            f"counted_{column}": _total(totals, direction, name, key)
            for direction, key, column in (
                ("read", "count", "reads"),
                ("read", "bytes", "read_bytes"),
                ("write", "count", "writes"),
                ("write", "bytes", "written_bytes"),
            )
        }
        rows.append(
            {
                "source": name,
                "reads": int((mine & done & read).sum()),
                "read_bytes": int(moved[mine & read].sum()),
                "writes": int((mine & done & ~read).sum()),
                "written_bytes": int(moved[mine & ~read].sum()),
                "failed": int((mine & ~done).sum()),
                "fileops": int((fileops["source"] == source).sum()),
                **counted,
            }
        )
    return pd.DataFrame(rows)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _total(totals: Any, direction: str, source: str, key: str) -> float:
    """A number of the recorder's totals: 0 where it counted nothing, NaN where it has no totals."""
    if not isinstance(totals, Mapping):
        return math.nan
    return float(_mapping(_mapping(totals.get(direction)).get(source)).get(key, 0))


def closure_of(trace: Trace) -> pd.DataFrame:
    """What the trace saw against what the kernel itself counted.

    Returns
    -------
    DataFrame
        ``of`` (``tasks``: the accounts of the traced threads, as in /proc/PID/io; else a device as ``major:minor``: its
        statistics in sysfs), ``account``, ``seen``, ``kernel``, ``ratio`` = seen / kernel, NaN where the kernel counted
        nothing. No rows where it was not measured.
    """
    closure = _mapping(trace.header.metadata.get("closure"))
    sides = {"tasks": closure.get("tasks"), **_mapping(closure.get("devices"))}
    rows = [
        {
            "of": of,
            "account": account,
            "seen": counts["seen"],
            "kernel": counts["kernel"],
            "ratio": counts["seen"] / counts["kernel"] if counts["kernel"] > 0 else math.nan,
        }
        for of, accounts in sides.items()
        for account, counts in _mapping(accounts).items()
        if _COMPARED(counts)
    ]
    return pd.DataFrame(rows, columns=["of", "account", "seen", "kernel", "ratio"])


def gaps_of(trace: Trace) -> dict[str, Any]:
    """When records were lost: ``count`` of GAP records, ``lost``, ``start_s`` and ``end_s`` since the recording began.

    The two times are None without gaps.
    """
    gaps = trace.gaps
    start, end = _seconds(trace, gaps)
    return {
        "count": len(gaps),
        "lost": int(gaps["lost_count"].sum()),
        "start_s": float(start.min()) if len(gaps) else None,
        "end_s": float(end.max()) if len(gaps) else None,
    }


def losses_by_cpu(trace: Trace) -> pd.DataFrame:
    """Lost records from the GAP records: ``kind, cpu, gaps, lost, start_s, end_s``."""
    gaps = trace.gaps
    start, end = _seconds(trace, gaps)
    groups = gaps.assign(start_s=start, end_s=end).groupby(["lost_kind", "cpu"])
    frame = groups.agg(
        gaps=("lost_count", "size"), lost=("lost_count", "sum"), start_s=("start_s", "min"), end_s=("end_s", "max")
    ).reset_index()
    kinds = [name_of(RecordKind, kind) for kind in frame.pop("lost_kind")]
    frame.insert(0, "kind", pd.Series(kinds, dtype="str"))
    return frame


def _seconds(trace: Trace, gaps: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Begin and end of every gap since the recording began."""
    start = (gaps["start_ns"] - trace.header.start_monotonic_ns) / 1e9
    return start, start + gaps["duration_ns"] / 1e9
