# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into the extended parameters (design.md section 4): what the five of 1992 cannot say.

Whether data was in the page cache, whether writes extend files, how often the application syncs and bypasses the cache.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import pandas as pd

from characterize.layout import (
    NOT_MEASURED_U32,
    NOT_MEASURED_U64,
    BlockFlag,
    Fileop,
    FileType,
    IoFlag,
    RecordKind,
)
from characterize.links import linked_bytes
from characterize.locality import BLOCK_BYTES, dense_blocks
from characterize.trace import Trace

# linux/falloc.h; fileop_record.flags carries the mode in its high half.
_KEEP_SIZE, _COLLAPSE_RANGE, _INSERT_RANGE = 0x01, 0x08, 0x20

_WRITE, _SET_SIZE, _GROW_TO, _SHIFT = 0, 1, 2, 3


def extended_of(trace: Trace, requests: pd.DataFrame, syncs: pd.DataFrame) -> dict[str, float]:
    """The extended parameters of the application's layer; NaN where one has no meaning or was not measured.

    Parameters
    ----------
    trace : Trace
    requests : DataFrame
        `characterize.requests.requests_of` this trace, layer vfs.
    syncs : DataFrame
        `characterize.response_time.syncs_of` this trace.

    Returns
    -------
    dict
        coldFrac, coldFracMeasuredShare, missFrac, cacheHitFrac, appendFrac, overwriteFrac, syncFrac, bytesPerSync,
        syncWriteFrac, directFrac; `characterize.definitions` says what each one is.
    """
    write = ~requests["read"].to_numpy()
    flags = requests["flags"].to_numpy()
    writes = int(write.sum())
    written = int(requests["bytes"].to_numpy()[write].sum())
    append = append_frac(trace, requests)
    cold, measured_share = cold_frac(trace, requests)
    stable = (flags[write] & (IoFlag.SYNC | IoFlag.DSYNC)) != 0
    return {
        "coldFrac": cold,
        "coldFracMeasuredShare": measured_share,
        "missFrac": miss_frac(trace, requests),
        "cacheHitFrac": 1 - miss_frac(trace, requests[(flags & IoFlag.DIRECT) == 0]),
        "appendFrac": append,
        "overwriteFrac": 1 - append,
        "syncFrac": len(syncs) / writes if writes else math.nan,
        "bytesPerSync": written / len(syncs) if len(syncs) else math.nan,
        "syncWriteFrac": float(stable.mean()) if writes else math.nan,
        "directFrac": float(((flags & IoFlag.DIRECT) != 0).mean()) if len(requests) else math.nan,
    }


def extended_of_block(trace: Trace, requests: pd.DataFrame) -> dict[str, float]:
    """What the block layer adds; NaN without block requests, and of foreign traces, which do not say.

    Returns
    -------
    dict
        attributedFrac, readaheadFrac, metadataFrac, fuaFrac; `characterize.definitions` says what each one is.
    """
    names = ("attributedFrac", "readaheadFrac", "metadataFrac", "fuaFrac")
    if not len(requests) or "imported" in trace.header.metadata:
        return dict.fromkeys(names, math.nan)
    flags = requests["flags"].to_numpy()
    return {
        "attributedFrac": linked_bytes(trace) / int(requests["bytes"].sum()),
        "readaheadFrac": float(((flags & BlockFlag.READAHEAD) != 0).mean()),
        "metadataFrac": float(((flags & BlockFlag.META) != 0).mean()),
        "fuaFrac": float(((flags & BlockFlag.FUA) != 0).mean()),
    }


def _misses_measured(trace: Trace, requests: pd.DataFrame) -> np.ndarray:
    """Of which requests the missed bytes were recorded; a trace that has not run yet may hold its parent's."""
    read, missed = requests["read"].to_numpy(), requests["missed_bytes"].to_numpy()
    return read & (missed != NOT_MEASURED_U32) & trace.measured


def miss_frac(trace: Trace, requests: pd.DataFrame) -> float:
    """Share of the read bytes that came from the device instead of the page cache, of the reads that were measured."""
    measured = requests[_misses_measured(trace, requests)]
    total = int(measured["bytes"].sum())
    return float(measured["missed_bytes"].sum() / total) if total else math.nan


def cold_frac(trace: Trace, requests: pd.DataFrame) -> tuple[float, float]:
    """Share of the read bytes that were not in the page cache when they were first touched.

    Of a read whose missed bytes were recorded, those of them that nothing touched before in the trace: what a cache
    that is too small misses again is in missFrac. Of any other read it is estimated: the bytes that nothing touched
    before, times the share of the file that was not in the page cache at first sight (1 - resident / size; 1 if the
    size is 0).

    Returns
    -------
    cold, measured_share : float
        The share, over the reads that were recorded or can be estimated, and the part that these are of all read bytes.
        Both NaN without reads, `cold` also where nothing was measured.
    """
    reads = pd.DataFrame({"file": requests["file"], "bytes": requests["bytes"], "fresh": fresh_bytes(requests)})
    misses = requests["missed_bytes"].to_numpy().astype(np.float64)
    recorded = _misses_measured(trace, requests)
    cold = np.where(recorded, np.minimum(misses, reads["fresh"]), reads["fresh"] * _missing_share(trace, reads["file"]))
    known = requests["read"].to_numpy() & ~np.isnan(cold)
    size = requests["bytes"].to_numpy()
    total = int(size[requests["read"].to_numpy()].sum())
    if not known.any():
        return math.nan, 0.0 if total else math.nan
    return float(cold[known].sum() / size[known].sum()), float(size[known].sum() / total)


def _missing_share(trace: Trace, file: pd.Series) -> np.ndarray:
    """Of the file of each request the share that was not in the page cache at first sight; NaN where not measured."""
    files = trace.arrays[RecordKind.FILE]
    files = files[files["resident_bytes"] != NOT_MEASURED_U64]
    size, resident = files["size_bytes"].astype(np.float64), files["resident_bytes"].astype(np.float64)
    missing = np.ones(len(files))
    np.divide(resident, size, out=missing, where=size > 0)
    missing = np.where(size > 0, np.clip(1 - missing, 0, 1), 1.0)
    missing_of = pd.Series(missing, index=files["file"].astype(np.int64))
    missing_of = missing_of[~missing_of.index.duplicated()]
    return missing_of.reindex(file).to_numpy()


def fresh_bytes(requests: pd.DataFrame) -> np.ndarray:
    """Bytes of every request that no earlier one touched, so that one pass in any steps touches everything once.

    A write touches the whole 4 KiB blocks that it writes to, since it leaves them in the page cache. Of a block that is
    read in several parts everything between the parts counts as touched.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    first, blocks, distinct = dense_blocks(requests)
    offset, size, read = (requests[name].to_numpy() for name in ("offset", "bytes", "read"))
    touched = np.zeros((distinct, 2), np.int16)
    touched[:, 0] = BLOCK_BYTES
    return _fresh_bytes(first, np.column_stack([blocks, offset, size]), read, touched)


@numba.njit(cache=True)
def _fresh_bytes(first: np.ndarray, extent: np.ndarray, read: np.ndarray, touched: np.ndarray) -> np.ndarray:
    """As `fresh_bytes`; `extent`: blocks, offset, bytes by request; `touched`: begin and end of what is, by block."""
    fresh = np.zeros(len(first), np.int64)
    for request in range(len(first)):
        blocks, low, size = extent[request]
        block_low = low - low % BLOCK_BYTES
        for block in range(first[request], first[request] + blocks):
            start = max(low - block_low, 0)
            end = min(low + size - block_low, BLOCK_BYTES)
            again = min(end, touched[block, 1]) - max(start, touched[block, 0])
            fresh[request] += end - start - max(again, 0)
            if not read[request]:
                start = 0
                end = BLOCK_BYTES
            touched[block, 0] = min(start, touched[block, 0])
            touched[block, 1] = max(end, touched[block, 1])
            block_low += BLOCK_BYTES
    return fresh


def append_frac(trace: Trace, requests: pd.DataFrame) -> float:
    """Share of the written bytes that lie behind the end of their file; NaN without writes to a file of known size.

    Every file's size is followed from its FILE record through writes, truncations, O_TRUNC and fallocate, in the order
    of the starts. Block devices never grow.
    """
    files = trace.arrays[RecordKind.FILE]
    files = files[np.unique(files["file"], return_index=True)[1]]
    size = files["size_bytes"].astype(np.int64)
    size[files["type"] == FileType.BLOCK_DEVICE] = np.iinfo(np.int64).max
    writes = requests[~requests["read"]]
    events = pd.concat(
        [
            _size_changes(trace),
            pd.DataFrame(
                {
                    "start_ns": writes["start_ns"],
                    "file": writes["file"],
                    "what": _WRITE,
                    "offset": writes["offset"],
                    "length": writes["bytes"],
                }
            ),
        ],
        ignore_index=True,
    )
    events = events[np.isin(events["file"], files["file"])].sort_values("start_ns", kind="stable")
    written = int(events.loc[events["what"] == _WRITE, "length"].sum())
    if not written:
        return math.nan
    place = np.searchsorted(files["file"], events["file"].to_numpy())
    what, offset, length = (events[name].to_numpy(np.int64) for name in ("what", "offset", "length"))
    return _count_appended(place, what, offset, length, size) / written


def _size_changes(trace: Trace) -> pd.DataFrame:
    """File operations that set, raise or shift a file's size, as rows for `_count_appended`."""
    array = trace.arrays[RecordKind.FILEOP]
    array = array[array["result"] >= 0]
    mode = array["flags"] >> 16
    fallocate = array["op"] == Fileop.FALLOCATE
    what = np.full(len(array), -1, np.int64)
    opened = (array["op"] == Fileop.OPEN) & ((array["flags"] & IoFlag.TRUNCATED) != 0)
    what[opened | (array["op"] == Fileop.TRUNCATE)] = _SET_SIZE
    what[fallocate & ((mode & (_KEEP_SIZE | _COLLAPSE_RANGE | _INSERT_RANGE)) == 0)] = _GROW_TO
    shifts = fallocate & ((mode & (_COLLAPSE_RANGE | _INSERT_RANGE)) != 0)
    what[shifts] = _SHIFT
    argument, length = array["argument"].astype(np.int64), array["length"].astype(np.int64)
    argument[opened] = 0
    length[shifts & ((mode & _COLLAPSE_RANGE) != 0)] *= -1
    changes = pd.DataFrame(
        {
            "start_ns": array["start_ns"].astype(np.int64),
            "file": array["file"].astype(np.int64),
            "what": what,
            "offset": argument,
            "length": length,
        }
    )
    return changes[what >= 0]


@numba.njit(cache=True)
def _count_appended(
    file: np.ndarray, what: np.ndarray, offset: np.ndarray, length: np.ndarray, size: np.ndarray
) -> int:
    """Bytes written behind the end of their file; `size` by file is updated."""
    appended = 0
    for event in range(len(file)):
        end = offset[event] + length[event]
        now = size[file[event]]
        if what[event] == _WRITE:
            appended += max(0, end - max(now, offset[event]))
            size[file[event]] = max(now, end)
        elif what[event] == _SET_SIZE:
            size[file[event]] = offset[event]
        elif what[event] == _GROW_TO:
            size[file[event]] = max(now, end)
        else:
            size[file[event]] = now + length[event]
    return appended
