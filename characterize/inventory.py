# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into what it says of itself: origin, clock, counts, completeness, links, lineage, files by bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from characterize.completeness import closure_of, gaps_of, losses_by_cpu, sources_of
from characterize.device_name import device_name
from characterize.document import plain
from characterize.layout import FileFlag, FileType, HeaderFlag, RecordKind, name_of
from characterize.links import links_of
from characterize.requests import requests_of
from characterize.trace import Trace
from characterize.trace_files.provenance import provenance_of

SCHEMA = "flextrace.info/1"


def inventory_of(trace: Trace, files: int = 20) -> dict[str, Any]:
    """The document ``flextrace.info/1``.

    Parameters
    ----------
    trace : Trace
    files : int
        How many files to list, those with the most bytes read and written first.
    """
    header = trace.header
    table = file_table(trace)
    return {
        "schema": SCHEMA,
        **provenance_of(trace.path),
        "warnings": trace.warnings,
        "version": "{}.{}".format(*header.version),
        "flags": [flag.name for flag in HeaderFlag if flag in header.flags],
        "measured": trace.measured,
        "clock": {
            "start_monotonic_ns": header.start_monotonic_ns,
            "end_monotonic_ns": header.end_monotonic_ns,
            "start": _wall_clock(header.start_realtime_ns),
            "end": _wall_clock(header.end_realtime_ns),
        },
        "records": {kind.name: header.count.get(kind, 0) for kind in RecordKind},
        "lost": {kind.name: count for kind, count in header.lost.items()},
        "lost_by_cpu": plain(losses_by_cpu(trace)),
        "gaps": plain(gaps_of(trace)),
        "sources": plain(sources_of(trace)),
        "in_flight_max": header.metadata.get("in_flight_max"),
        "in_flight_end": header.metadata.get("in_flight_end"),
        "closure": plain(closure_of(trace)),
        # The second name of each is that of format 1.0.
        "skips": header.metadata.get("skips") or header.metadata.get("skipped") or {},
        "programs": header.metadata.get("programs") or header.metadata.get("probes"),
        "holes": _holes_of(trace),
        "links": links_of(trace).as_document(files),
        "threads": plain(task_table(trace)),
        "file_count": len(table),
        "files": plain(table.head(files)),
        "metadata": header.metadata,
    }


def _holes_of(trace: Trace) -> dict[str, int]:
    """What a replay leaves out of its files, and of how many files not all holes are known."""
    holes, unknown = trace.arrays[RecordKind.HOLE], trace.header.metadata.get("holes", {})
    return {
        "files": len(np.unique(holes["file"])),
        "bytes": int(holes["bytes"].sum()),
        "files_cut": sum(unknown.get(name, 0) for name in ("files_cut", "files_not_looked_at")),
    }


def _wall_clock(realtime_ns: int) -> str | None:
    """ISO 8601 in UTC; None where there is no wall-clock time."""
    return datetime.fromtimestamp(realtime_ns / 1e9, UTC).isoformat(timespec="milliseconds") if realtime_ns else None


def file_table(trace: Trace) -> pd.DataFrame:
    """One row per FILE record, those with the most bytes first.

    Returns
    -------
    DataFrame
        ``file, path, type, device, inode, size_bytes, resident_bytes, created, reads, writes, bytes``; device as
        ``major:minor``, resident_bytes NaN where not measured. Files that only carry a new name are left out.
    """
    files = trace.files
    flags = files["flags"].to_numpy()
    files, flags = files[(flags & FileFlag.NEW_NAME) == 0], flags[(flags & FileFlag.NEW_NAME) == 0]
    requests = requests_of(trace, mmap="all")
    groups = requests.assign(write=~requests["read"]).groupby("file")
    moved = groups.agg(reads=("read", "sum"), writes=("write", "sum"), bytes=("bytes", "sum"))
    table = pd.DataFrame(
        {
            "file": files["file"].astype("int64"),
            "path": files["path"],
            "type": pd.Series([name_of(FileType, kind) for kind in files["type"]], index=files.index, dtype="str"),
            "device": pd.Series([device_name(int(it)) for it in files["device"]], index=files.index, dtype="str"),
            "inode": files["inode"],
            "size_bytes": files["size_bytes"],
            "resident_bytes": files["resident_bytes"],
            "created": (flags & FileFlag.CREATED) != 0,
        }
    )
    table = table.merge(moved, left_on="file", right_index=True, how="left")
    table[["reads", "writes", "bytes"]] = table[["reads", "writes", "bytes"]].fillna(0).astype("int64")
    return table.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)


def task_table(trace: Trace) -> pd.DataFrame:
    """Threads by name of their program: ``comm, processes, threads``, the commonest first."""
    frame = trace.tasks.groupby("comm").agg(processes=("process", "nunique"), threads=("thread", "nunique"))
    return frame.reset_index().sort_values(["threads", "comm"], ascending=[False, True], ignore_index=True)
