# SPDX-License-Identifier: Apache-2.0
"""Turns requests into the share that is sequential, by all definitions in use, and into sequential runs.

They disagree by a factor of three on one real trace, so a seqFrac without its definition says nothing. Offsets are
compared within one file (layer vfs) or one device (layer block) only; requests are taken in the order of their starts,
and every share is of all requests. The first request of a stream is never sequential.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pandas as pd

from characterize.log_histogram import LogHistogram
from characterize.numbering import Numbering, room_for
from characterize.references import Columns
from characterize.requests import Layer, columns_of

QUEUE_STREAMS = 32
NEAR_REQUESTS = 32
NEAR_BYTES = 128 * 1024

_SHARES = ("seqFrac", "strictOneStream", "strictPerDirection", "queue32", "near32", "darshanSeq")
_NO_FILE = -1
_RUN_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class Sequentiality:
    """Shares and runs.

    Attributes
    ----------
    shares : dict of str to float
        NaN without requests. seqFrac : starts where the previous request of its stream ended (a thread on a file; at
        the block layer a device).
        strictOneStream : starts where the previous request of the whole trace, whatever its thread, ended.
        strictPerDirection : the same, with reads and writes followed apart.
        queue32 : starts where one of the 32 most recently advanced streams ended; it then advances that stream, any
        other request opens a new one (stream queue of Jun Xu's block-trace analysis; a stream's first request is
        not counted).
        near32 : starts at most 128 KiB before or after the end of one of the last 32 requests.
        darshanSeq : starts at or behind the end of the previous request of its stream, gaps of any size allowed
        (Darshan's SEQ; streams as for seqFrac, reads and writes together).
    runs : dict
        Of the sequential runs of the streams (a request that is not sequential begins one): ``count``; ``requests`` and
        ``bytes`` each with ``mean, p50, p90, p99, max``, None without requests.
    """

    shares: dict[str, float]
    runs: dict[str, Any]


class SequentialitySummary:
    """The same of requests that come in chunks; memory by streams. Not mergeable: the order counts."""

    def __init__(self, layer: Layer = "vfs") -> None:
        self._layer = layer
        self._streams = Numbering()
        # By stream: end of its last request, requests and bytes of its run; a run of 0 requests: no request yet.
        self._stream = np.zeros((0, 3), np.int64)
        self._counts = np.zeros(len(_SHARES), np.int64)
        # File and end of the last request: of all, of the reads, of the writes.
        self._previous = np.full((3, 2), _NO_FILE, np.int64)
        self._queue = np.full((QUEUE_STREAMS, 2), _NO_FILE, np.int64)
        self._near = np.full((NEAR_REQUESTS, 2), _NO_FILE, np.int64)
        self._requests = 0
        self._run_requests, self._run_bytes = LogHistogram(), LogHistogram()

    def add(self, requests: Columns) -> None:
        """Follow a chunk."""
        file, offset, size, read = (requests[name] for name in ("file", "offset", "bytes", "read"))
        # Both are below 2^32 in a trace file.
        streams = self._streams.number(requests["thread"] << 32 | file if self._layer == "vfs" else file)
        self._stream = room_for(self._stream, len(self._streams))
        ended = np.empty((len(file), 2), np.int64)
        runs = _follow_streams(streams, offset, size, self._stream, self._counts, ended)
        self._run_requests.add(ended[:runs, 0].copy())
        self._run_bytes.add(ended[:runs, 1].copy())
        _follow_previous(file, offset, size, read, self._previous, self._counts)
        self._counts[3] += _count_queue(file, offset, size, self._queue)
        self._counts[4] += _count_near(file, offset, size, self._near, self._requests % NEAR_REQUESTS, NEAR_BYTES)
        self._requests += len(file)

    def result(self) -> Sequentiality:
        """What was followed so far; runs that may go on end here."""
        count = self._requests
        shares = {
            name: int(hits) / count if count else math.nan for name, hits in zip(_SHARES, self._counts, strict=True)
        }
        open_runs = self._stream[: len(self._streams)]
        runs: dict[str, Any] = {"count": self._run_requests.count + len(open_runs)}
        for place, name, ended in ((1, "requests", self._run_requests), (2, "bytes", self._run_bytes)):
            both = LogHistogram()
            both.merge(ended)
            both.add(open_runs[:, place].copy())
            if not both.count:
                runs[name] = None
                continue
            quantiles = {quantile: both.quantile(share) for quantile, share in _RUN_QUANTILES.items()}
            runs[name] = {"mean": both.mean, **quantiles, "max": both.largest}
        return Sequentiality(shares, runs)


def sequential_shares(requests: pd.DataFrame, layer: Layer = "vfs") -> dict[str, float]:
    """The shares of all requests but seqFrac, as in `Sequentiality`."""
    summary = SequentialitySummary(layer)
    summary.add(columns_of(requests))
    shares = summary.result().shares
    return {name: shares[name] for name in _SHARES if name != "seqFrac"}


@numba.njit(cache=True, nogil=True)
def _follow_streams(  # noqa: PLR0917 (a kernel has its state in arguments)
    streams: np.ndarray, offset: np.ndarray, size: np.ndarray, stream: np.ndarray, counts: np.ndarray, ended: np.ndarray
) -> int:
    """Count seqFrac and darshanSeq; returns how many runs ended, whose requests and bytes are then in `ended`."""
    runs = 0
    for request in range(len(streams)):
        number = streams[request]
        low = offset[request]
        known = stream[number, 1] > 0
        if known and low == stream[number, 0]:
            counts[0] += 1
        elif known:
            ended[runs, 0] = stream[number, 1]
            ended[runs, 1] = stream[number, 2]
            runs += 1
            stream[number, 1] = 0
            stream[number, 2] = 0
        if known and low >= stream[number, 0]:
            counts[5] += 1
        stream[number, 0] = low + size[request]
        stream[number, 1] += 1
        stream[number, 2] += size[request]
    return runs


@numba.njit(cache=True, nogil=True)
def _follow_previous(  # noqa: PLR0917
    file: np.ndarray, offset: np.ndarray, size: np.ndarray, read: np.ndarray, previous: np.ndarray, counts: np.ndarray
) -> None:
    """Count strictOneStream and strictPerDirection."""
    for request in range(len(file)):
        direction = 1 if read[request] else 2
        for place, share in ((0, 1), (direction, 2)):
            if previous[place, 0] == file[request] and previous[place, 1] == offset[request]:
                counts[share] += 1
            previous[place, 0] = file[request]
            previous[place, 1] = offset[request] + size[request]


@numba.njit(cache=True, nogil=True)
def _count_queue(file: np.ndarray, offset: np.ndarray, size: np.ndarray, queue: np.ndarray) -> int:
    """Requests that advance one of the streams of an LRU queue, the newest first. Two with the same end become one."""
    streams = len(queue)
    hits = 0
    for request in range(len(offset)):
        mine, low = file[request], offset[request]
        end = low + size[request]
        advanced = -1
        merged = -1
        for place in range(streams):
            if queue[place, 0] == mine:
                if queue[place, 1] == low:
                    advanced = place
                elif queue[place, 1] == end:
                    merged = place
        hits += advanced >= 0
        # What leaves: the advanced stream, else its double, else the oldest. With both, the older place becomes empty.
        gone = advanced if advanced >= 0 else merged if merged >= 0 else streams - 1
        if advanced >= 0 and merged >= 0:
            gone = min(advanced, merged)
            for place in range(max(advanced, merged), streams - 1):
                queue[place, 0] = queue[place + 1, 0]
                queue[place, 1] = queue[place + 1, 1]
            queue[streams - 1, 0] = _NO_FILE
        for place in range(gone, 0, -1):
            queue[place, 0] = queue[place - 1, 0]
            queue[place, 1] = queue[place - 1, 1]
        queue[0, 0] = mine
        queue[0, 1] = end
    return hits


@numba.njit(cache=True, nogil=True)
def _count_near(  # noqa: PLR0917
    file: np.ndarray, offset: np.ndarray, size: np.ndarray, near: np.ndarray, oldest: int, near_bytes: int
) -> int:
    hits = 0
    for request in range(len(offset)):
        for place in range(len(near)):
            if near[place, 0] == file[request] and abs(offset[request] - near[place, 1]) <= near_bytes:
                hits += 1
                break
        near[oldest, 0] = file[request]
        near[oldest, 1] = offset[request] + size[request]
        oldest = (oldest + 1) % len(near)
    return hits
