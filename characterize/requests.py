# SPDX-License-Identifier: Apache-2.0
"""Turns the records of one layer of a trace into one table of requests, so that both layers share every formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from characterize.errors import FlextraceError
from characterize.layout import (
    NOT_MEASURED_U32,
    NOT_MEASURED_U64,
    TRACE_RECORD_BYTES,
    BlockFlag,
    BlockOp,
    IoFlag,
    IoOp,
    RecordKind,
    Source,
)
from characterize.trace import Trace

Layer = Literal["vfs", "block"]
LAYERS: tuple[Layer, ...] = ("vfs", "block")

Mmap = Literal["all", "data", "none"]
MMAP_RULES: tuple[Mmap, ...] = ("all", "data", "none")

# Mapped for reading, files below these are part of the program; replayer/engine/files.c has the same list.
SYSTEM_DIRECTORIES = ("/usr/", "/lib/", "/lib32/", "/lib64/", "/bin/", "/sbin/", "/etc/", "/nix/store/", "/gnu/store/")
LOCAL_DIRECTORY = "/usr/local/"

SECTOR_BYTES = 512
OFFSET_MAX = 2**63 - 2**32  # sizes have 32 bits

# What makes one stream of requests (seqFrac): see `characterize.workload.sequential`.
STREAM_OF: dict[str, tuple[str, ...]] = {"vfs": ("thread", "file"), "block": ("file",)}


def is_system_path(path: str) -> bool:
    """Whether a path is one of the operating system's own files, by the file system hierarchy standard."""
    return path.startswith(SYSTEM_DIRECTORIES) and not path.startswith(LOCAL_DIRECTORY)


def left_out(trace: Trace, mmap: Mmap = "data") -> np.ndarray:
    """Which IO records are accesses to mapped files that do not count as requests.

    Parameters
    ----------
    trace : Trace
    mmap : {"data", "all", "none"}
        data: left out are pages read of files that are mapped as programs (``IoFlag.PROGRAM``: text and libraries) and
        of the operating system's own files (`is_system_path`: locales, the loader's cache), for they say what the
        program is and not what it works on. A database, an index or a model that is mapped counts, and so does
        whatever is written. all: nothing is left out. none: every access to a mapping is.

    Returns
    -------
    ndarray of bool, one per IO record

    Raises
    ------
    FlextraceError
        Unknown rule.
    """
    return left_out_of(trace.arrays[RecordKind.IO], mmap, system_files(trace))


def system_files(trace: Trace) -> np.ndarray:
    """Files of a trace that are the operating system's own."""
    return np.array([file for file, path in trace.paths.items() if is_system_path(path)], np.int64)


def left_out_of(io: np.ndarray, mmap: Mmap, system: np.ndarray) -> np.ndarray:
    """Which of some IO records do not count (`left_out`), where it is known which files are the operating system's."""
    if mmap not in MMAP_RULES:
        raise FlextraceError(f"rule {mmap!r} for mapped files is unknown: choose of {', '.join(MMAP_RULES)}", 2)
    mapped = io["source"] == Source.MMAP
    if mmap == "data":
        program = (io["flags"] & IoFlag.PROGRAM) != 0
        return mapped & (io["op"] == IoOp.READ) & (program | np.isin(io["file"], system))
    return mapped & (mmap == "none")


def stacked(blocks: np.ndarray) -> np.ndarray:
    """Which BLOCK records are of a stacked device (dm, md, loop), whose data the devices below it move as well.

    Totals leave them out. Where there are only such records (recorded from one device alone), nothing would be counted
    twice, and none is named. bool, shape (n,).
    """
    flagged = (blocks["flags"] & BlockFlag.STACKED) != 0
    return flagged & (not flagged.all())


def block_records(trace: Trace) -> np.ndarray:
    """BLOCK records that totals are made of: those that are not `stacked`."""
    blocks = trace.arrays[RecordKind.BLOCK]
    return blocks[~stacked(blocks)]


def data_moved(blocks: np.ndarray) -> np.ndarray:
    """Which BLOCK records are requests: reads and writes that succeeded, with more than 0 bytes; bool, shape (n,)."""
    data = (blocks["op"] == BlockOp.READ) | (blocks["op"] == BlockOp.WRITE)
    return data & (blocks["bytes"] > 0) & (blocks["status"] == 0)


def requests_of(trace: Trace, layer: Layer = "vfs", mmap: Mmap = "data") -> pd.DataFrame:
    """The requests of one layer: data operations that moved at least one byte (design.md section 4).

    Parameters
    ----------
    trace : Trace
    layer : {"vfs", "block"}
        vfs: IO records with ``result`` > 0. block: BLOCK records of reads and writes with bytes > 0 and status 0, none
        of a stacked device (`block_records`); there ``file`` is the device and ``offset`` is ``sector`` x 512.
    mmap : {"data", "all", "none"}
        Which accesses to mapped files count, see `left_out`; layer vfs only.

    Returns
    -------
    DataFrame, one row per request in the order of the starts (stable: the order of each thread stays)
        ``start_ns, end_ns, thread, process, file, offset, bytes`` int64; ``read`` bool; ``flags`` uint32;
        ``asked_bytes``, ``missed_bytes``, ``source``, ``processor_share`` in layer vfs, ``queued_ns`` in layer block.
        ``end_ns`` is at least ``start_ns + 1``: a request that ran took time, also where the clock did not see it.

    Raises
    ------
    FlextraceError
        Unknown layer.
    """
    if layer == "vfs":
        array = trace.arrays[RecordKind.IO]
        columns = request_columns(rows_at(array, np.flatnonzero((array["result"] > 0) & ~left_out(trace, mmap))), layer)
    elif layer == "block":
        array = block_records(trace)
        columns = request_columns(array[data_moved(array)], layer)
    else:
        raise FlextraceError(f"layer {layer!r} is unknown: choose vfs or block", 2)
    order = np.argsort(columns["start_ns"], kind="stable")
    return pd.DataFrame({name: column[order] for name, column in columns.items()})


def request_columns(array: np.ndarray, layer: Layer) -> dict[str, np.ndarray]:
    """The columns of `requests_of`, of IO records (layer vfs) or BLOCK records that all are requests, in order."""
    if layer == "vfs":
        size, file, offset = array["result"], array["file"], array["offset"]
        read = array["op"] == IoOp.READ
        extra: tuple[str, ...] = ("asked_bytes", "missed_bytes", "source", "processor_share")
    else:
        _refuse(array["sector"] > OFFSET_MAX // SECTOR_BYTES, "places")
        size, file, offset = array["bytes"], array["device"], array["sector"] * np.uint64(SECTOR_BYTES)
        read = array["op"] == BlockOp.READ
        extra = ("queued_ns",)
    columns = {
        **actor_columns(array, file),
        "offset": offset.astype(np.int64),
        "bytes": size.astype(np.int64),
        "read": read,
        "flags": np.ascontiguousarray(array["flags"]),
        **{name: np.ascontiguousarray(array[name]) for name in extra},
    }
    if layer == "vfs":
        columns["missed_bytes"] = missed_bytes_of(array)
    _check_possible(columns)
    return columns


def missed_bytes_of(io: np.ndarray) -> np.ndarray:
    """Of IO records; `NOT_MEASURED_U32` also where it is the width of an interval in which the offset lies."""
    missed = np.ascontiguousarray(io["missed_bytes"])
    # The recorder works such offsets out at the end, which a trace that is INCOMPLETE did not see.
    inferred = (io["flags"] & IoFlag.OFFSET_INFERRED) != 0
    return np.where(inferred, NOT_MEASURED_U32, missed) if inferred.any() else missed


def actor_columns(array: np.ndarray, file: np.ndarray) -> dict[str, np.ndarray]:
    """When records ran, who they are of and on which file: ``start_ns, end_ns, thread, process, file``, int64."""
    start, duration = array["start_ns"].astype(np.int64), array["duration_ns"].astype(np.int64)
    # What ran took time, also where the clock did not see it.
    end = start + np.maximum(duration, 1)
    _refuse((start < 0) | (duration < 0) | (end < start), "times")
    return {
        "start_ns": start,
        "end_ns": end,
        "thread": array["thread"].astype(np.int64),
        "process": array["process"].astype(np.int64),
        "file": file.astype(np.int64),
    }


def _check_possible(columns: dict[str, np.ndarray]) -> None:
    """Refuse what no machine can have done, before its numbers overflow."""
    bad = (columns["offset"] < 0) | (columns["offset"] > OFFSET_MAX)
    if "queued_ns" in columns:
        queued = columns["queued_ns"]
        bad |= (queued >= np.uint64(2**63)) & (queued != NOT_MEASURED_U64)
    _refuse(bad, "places or times in a queue")


def _refuse(bad: np.ndarray, what: str) -> None:
    if bad.any():
        raise FlextraceError(
            f"the trace is damaged: {np.count_nonzero(bad)} of {len(bad)} records have impossible {what}"
        )


def columns_of(requests: pd.DataFrame) -> dict[str, np.ndarray]:
    """The columns of a table of requests, as summaries take them."""
    return {str(name): np.array(requests[name]) for name in requests}


def rows_at(records: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Rows of an array of trace records; ten times as fast as numpy's own indexing, which copies field by field."""
    return words_of(records).take(places, axis=0).view(records.dtype).reshape(-1)


def concatenated(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of trace records of one type behind each other; ten times as fast as numpy's own, for the same reason."""
    return np.concatenate([words_of(array) for array in arrays]).view(arrays[0].dtype).reshape(-1)


def words_of(records: np.ndarray) -> np.ndarray:
    """Records as 64-bit words; the second one of a timed record, and of a BLOCK_DATA record, is its start."""
    return np.ascontiguousarray(records).view(np.uint64).reshape(-1, TRACE_RECORD_BYTES // 8)


def times_measured(trace: Trace) -> bool:
    """Whether starts *and* durations are measurements: numbers in flight, response and think times need both.

    A trace that has not run yet has only an order or a schedule; a foreign trace may have arrivals but no durations
    (metadata ``"durations": "unknown"``).
    """
    return trace.measured and trace.header.metadata.get("durations") != "unknown"


def has_schedule(trace: Trace) -> bool:
    """Whether starts and durations are measurements, or of a trace that has not run yet the schedule made of them."""
    return not trace.untimed and trace.header.metadata.get("durations") != "unknown"
