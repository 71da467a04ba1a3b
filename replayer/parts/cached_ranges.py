# SPDX-License-Identifier: Apache-2.0
"""Turns what was done to a file since it was first seen into what of it is in the page cache then, for parts of traces.

What was read or written is there, unless O_DIRECT passed it by. POSIX_FADV_DONTNEED drops it again, but of what was
written only what has been synced since; a direct write drops what it replaces, and is taken to write back all of its
file, not only what is dirty there. What the kernel dropped is not known.
"""

from __future__ import annotations

import os

import numpy as np
from numba import njit

from characterize.layout import RESIDENT_DTYPE, Fileop, IoFlag, IoOp, RecordKind
from characterize.references import BLOCK_BYTES
from characterize.response_time import MS_SYNC
from replayer.flexible.place_stack import next_unused

SYNCS = (Fileop.FSYNC, Fileop.FDATASYNC, Fileop.SYNC_FILE_RANGE)
NEVER_NS = 2**63 - 1


def cached_ranges(
    record: np.void, io: np.ndarray, fileops: np.ndarray, resident: np.ndarray, all_synced_ns: np.ndarray
) -> np.ndarray:
    """RESIDENT records; their sum goes into the FILE record, which has the size of the file by then.

    Parameters
    ----------
    record : void
        The FILE record.
    io, fileops, resident : ndarray
        IO, FILEOP and RESIDENT records of the file, by their starts.
    all_synced_ns : ndarray of int64
        Starts of syncs of all files.
    """
    size = int(record["size_bytes"])
    start, end, cached = _events(size, io, fileops, resident, all_synced_ns)
    edges, place = np.unique(np.concatenate([start, end, [0]]), return_inverse=True)
    length = np.diff(edges)
    latest = _latest(place[: len(start)], place[len(start) : -1], len(length))
    there = np.zeros(len(length) + 2, bool)
    there[1:-1] = np.append(cached, False)[latest]
    # Where it is only known how much was cached, not what, the rest of that is assumed to be elsewhere.
    unknown = max(int(record["resident_bytes"]) - int(resident["bytes"].sum()), 0)
    elsewhere = size - int(length[latest >= 0].sum())
    record["resident_bytes"] = int(length[there[1:-1]].sum()) + min(unknown, elsewhere)
    begins, ends = edges[there[1:] & ~there[:-1]], edges[there[:-1] & ~there[1:]]
    ranges = np.zeros(len(begins), RESIDENT_DTYPE)
    ranges["kind"], ranges["file"], ranges["time_ns"] = RecordKind.RESIDENT, record["file"], record["time_ns"]
    for name in ("large_folios", "large_folio_order"):
        ranges[name] = resident[name].max(initial=0)
    ranges["offset"], ranges["bytes"] = begins, ends - begins
    return ranges


def all_synced(fileops: np.ndarray) -> np.ndarray:
    """Starts of the syncs of all files among a trace's FILEOP records."""
    return fileops["start_ns"][(fileops["op"] == Fileop.SYNCFS) & (fileops["result"] >= 0)].astype(np.int64)


def _events(
    size: int, io: np.ndarray, fileops: np.ndarray, resident: np.ndarray, all_synced_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ranges of the file that came into the cache, or were dropped, in the order of time: begin, end, which of both."""
    done = fileops[fileops["result"] >= 0]
    advice = done["flags"] >> 16
    syncs = np.isin(done["op"], SYNCS) | ((done["op"] == Fileop.MSYNC) & ((advice & MS_SYNC) != 0))
    dropped = done[(done["op"] == Fileop.FADVISE) & (advice == os.POSIX_FADV_DONTNEED)]
    moved = io[io["result"] > 0]
    direct, writes = (moved["flags"] & IoFlag.DIRECT) != 0, moved["op"] == IoOp.WRITE
    moved, direct, writes = (of[~direct | writes] for of in (moved, direct, writes))
    dirty = writes & ~direct & ((moved["flags"] & (IoFlag.SYNC | IoFlag.DSYNC)) == 0)
    time = moved["start_ns"].astype(np.int64)
    written = [done["start_ns"][syncs].astype(np.int64), all_synced_ns, time[direct]]
    synced = np.sort(np.concatenate(written))
    time[dirty] = np.append(synced, NEVER_NS)[np.searchsorted(synced, time[dirty])]
    # The whole pages of what is dropped.
    length = np.minimum(np.where(dropped["length"] == 0, size, dropped["length"]), size).astype(np.int64)
    begin = dropped["argument"].astype(np.int64)
    behind = np.where(begin + length < size, (begin + length) // BLOCK_BYTES * BLOCK_BYTES, size)
    begin = -(-begin // BLOCK_BYTES) * BLOCK_BYTES

    start = np.concatenate([resident["offset"].astype(np.int64), moved["offset"].astype(np.int64), begin])
    length = np.concatenate([resident["bytes"].astype(np.int64), moved["result"], behind - begin])
    start, end = np.maximum(start, 0), np.minimum(start + length, size)
    at = np.concatenate([np.full(len(resident), -1), time, dropped["start_ns"].astype(np.int64)])
    cached = np.concatenate([np.ones(len(resident), bool), ~direct, np.zeros(len(dropped), bool)])
    order = np.argsort(at, kind="stable")
    order = order[(start < end)[order]]
    return start[order], end[order], cached[order]


@njit(cache=True)
def _latest(first: np.ndarray, last: np.ndarray, segments: int) -> np.ndarray:
    """Of every segment the latest event that covers it, of events from segment `first` to before `last`; -1: none."""
    latest, free = np.full(segments, -1, np.int64), np.arange(segments + 1)
    for event in range(len(first) - 1, -1, -1):
        segment = next_unused(free, first[event])
        while segment < last[event]:
            latest[segment], free[segment] = event, segment + 1
            segment = next_unused(free, segment)
    return latest
