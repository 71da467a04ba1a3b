# SPDX-License-Identifier: Apache-2.0
"""Turns requests into the share that is sequential, by the four other definitions in use (seqFrac itself: workload.py).

They disagree by a factor of three on one real trace, so a seqFrac without its definition says nothing. Offsets are
compared within one file (layer vfs) or one device (layer block) only; requests are taken in the order of their starts,
and every share is of all requests. The first request of a stream is never sequential.
"""

from __future__ import annotations

import math

import numba
import numpy as np
import pandas as pd

from characterize.requests import STREAM_OF, Layer

QUEUE_STREAMS = 32
NEAR_REQUESTS = 32
NEAR_BYTES = 128 * 1024


def sequential_shares(requests: pd.DataFrame, layer: Layer = "vfs") -> dict[str, float]:
    """All four shares; NaN without requests.

    Returns
    -------
    dict
        strictOneStream : starts where the previous request of the whole trace, whatever its thread, ended.
        strictPerDirection : the same, with reads and writes followed apart.
        queue32 : starts where one of the 32 most recently advanced streams ended; it then advances that stream, any
            other request opens a new one (stream queue of Jun Xu's block-trace analysis; a stream's first request is
            not counted).
        near32 : starts at most 128 KiB before or after the end of one of the last 32 requests.
        darshanSeq : starts at or behind the end of the previous request of its stream, gaps of any size allowed
            (Darshan's SEQ; streams as for seqFrac, reads and writes together).
    """
    if not len(requests):
        return dict.fromkeys(("strictOneStream", "strictPerDirection", "queue32", "near32", "darshanSeq"), math.nan)
    file, offset = requests["file"].to_numpy(), requests["offset"].to_numpy()
    end = offset + requests["bytes"].to_numpy()
    read = requests["read"].to_numpy()
    count = len(requests)
    per_direction = sum(_continued(file[side], offset[side], end[side]) for side in (read, ~read))
    return {
        "strictOneStream": _continued(file, offset, end) / count,
        "strictPerDirection": per_direction / count,
        "queue32": _count_queue(file, offset, end, QUEUE_STREAMS) / count,
        "near32": _count_near(file, offset, end, NEAR_REQUESTS, NEAR_BYTES) / count,
        "darshanSeq": _count_behind(requests, offset, end, STREAM_OF[layer]) / count,
    }


def _continued(file: np.ndarray, offset: np.ndarray, end: np.ndarray) -> int:
    return int(((offset[1:] == end[:-1]) & (file[1:] == file[:-1])).sum())


def _count_behind(requests: pd.DataFrame, offset: np.ndarray, end: np.ndarray, stream: tuple[str, ...]) -> int:
    keys = [requests[name].to_numpy() for name in stream]
    order = np.lexsort(keys[::-1])
    behind = offset[order][1:] >= end[order][:-1]
    for key in keys:
        behind &= key[order][1:] == key[order][:-1]
    return int(behind.sum())


@numba.njit(cache=True)
def _count_queue(file: np.ndarray, offset: np.ndarray, end: np.ndarray, streams: int) -> int:
    """Requests that advance one of the streams of an LRU queue. Two streams that reach the same end become one."""
    stream_file = np.full(streams, -1, np.int64)
    stream_end = np.zeros(streams, np.int64)
    used = 0
    hits = 0
    for request in range(len(offset)):
        advanced = -1
        merged = -1
        for place in range(used):
            if stream_file[place] == file[request]:
                if stream_end[place] == offset[request]:
                    advanced = place
                elif stream_end[place] == end[request]:
                    merged = place
        if advanced >= 0:
            hits += 1
        # The newest stream stands last. What leaves: the advanced stream, else its double, else the oldest if full.
        for gone in (max(advanced, merged), min(advanced, merged)):
            if gone >= 0:
                for place in range(gone, used - 1):
                    stream_file[place] = stream_file[place + 1]
                    stream_end[place] = stream_end[place + 1]
                used -= 1
        if used == streams:
            for place in range(used - 1):
                stream_file[place] = stream_file[place + 1]
                stream_end[place] = stream_end[place + 1]
            used -= 1
        stream_file[used] = file[request]
        stream_end[used] = end[request]
        used += 1
    return hits


@numba.njit(cache=True)
def _count_near(file: np.ndarray, offset: np.ndarray, end: np.ndarray, window: int, near_bytes: int) -> int:
    hits = 0
    for request in range(len(offset)):
        for before in range(max(0, request - window), request):
            if file[before] == file[request] and abs(offset[request] - end[before]) <= near_bytes:
                hits += 1
                break
    return hits
