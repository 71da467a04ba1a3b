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

from characterize.counting.log_histogram import LogHistogram
from characterize.counting.numbering import Numbering, room_for
from characterize.references import Columns
from characterize.requests import Layer

QUEUE_STREAMS = 32
NEAR_REQUESTS = 32
NEAR_BYTES = 128 * 1024
FIRST_REQUESTS = 1 << 16

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
    """The same of requests that come in chunks; memory by streams."""

    def __init__(self, layer: Layer = "vfs") -> None:
        self._layer = layer
        self._streams = Numbering()
        # By stream: end of its last request, requests and bytes of its run (0 requests: none yet), offset of its first
        # request, requests and bytes of its first run once that has ended: a part before may prolong it.
        self._stream = np.zeros((0, 6), np.int64)
        self._counts = np.zeros(len(_SHARES), np.int64)
        # File and end of the last request: of all, of the reads, of the writes.
        self._previous = np.full((3, 2), _NO_FILE, np.int64)
        self._queue = np.full((QUEUE_STREAMS, 2), _NO_FILE, np.int64)
        self._near = np.full((NEAR_REQUESTS, 2), _NO_FILE, np.int64)
        # File and offset of the first request: as `_previous`. And requests from the first one on: see `FirstRequests`.
        self._first = np.full((3, 2), _NO_FILE, np.int64)
        self._begin = FirstRequests()
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
        _follow_previous(file, offset, size, read, self._previous, self._first, self._counts)
        hits, full = _count_queue(file, offset, size, self._queue)
        self._begin.add(file, offset, size, full)
        self._counts[3] += hits
        self._counts[4] += _count_near(file, offset, size, self._near, self._requests % NEAR_REQUESTS, NEAR_BYTES)
        self._requests += len(file)

    def merge(self, following: SequentialitySummary) -> None:
        """Count what `following` counted, all of whose requests start after these.

        Exact, but for queue32 where the first `FIRST_REQUESTS` of the other have fewer than 32 streams: it may then
        miss up to 31 requests, one for each stream that was still in the queue.
        """
        self._counts += following._counts
        self._join_streams(following)
        for place, share in ((0, 1), (1, 2), (2, 2)):
            file, offset = following._first[place]
            if file == _NO_FILE:
                continue
            self._counts[share] += self._previous[place, 0] == file and self._previous[place, 1] == offset
            self._previous[place] = following._previous[place]
        begin = following._begin
        file, offset, size = begin.columns()
        self._counts[3] += _count_queue(file, offset, size, self._queue)[0]
        self._counts[3] -= _count_queue(file, offset, size, np.full_like(self._queue, _NO_FILE))[0]
        if not begin.is_all:
            self._queue = following._queue
        file, offset, size = (column[:NEAR_REQUESTS] for column in (file, offset, size))
        oldest = self._requests % NEAR_REQUESTS
        self._counts[4] -= _count_near(file, offset, size, np.full_like(self._near, _NO_FILE), 0, NEAR_BYTES)
        self._counts[4] += _count_near(file, offset, size, self._near, oldest, NEAR_BYTES)
        if following._requests > NEAR_REQUESTS:
            self._near = np.roll(following._near, oldest, axis=0)
        self._requests += following._requests

    def _join_streams(self, following: SequentialitySummary) -> None:
        streams = self._streams.number(following._streams.keys.copy())
        self._stream = room_for(self._stream, len(self._streams))
        ended = np.empty((2 * len(streams), 2), np.int64)
        runs = _join(streams, following._stream, self._stream, self._counts, ended)
        for place, mine, other in (
            (0, self._run_requests, following._run_requests),
            (1, self._run_bytes, following._run_bytes),
        ):
            mine.merge(other)
            mine.add(ended[:runs, place].copy())

    def result(self) -> Sequentiality:
        """What was followed so far; runs that may go on end here."""
        count = self._requests
        shares = {
            name: int(hits) / count if count else math.nan for name, hits in zip(_SHARES, self._counts, strict=True)
        }
        known = self._stream[: len(self._streams)]
        open_runs = np.concatenate([known[:, 1:3], known[known[:, 4] > 0, 4:]])
        runs: dict[str, Any] = {"count": self._run_requests.count + len(open_runs)}
        for place, name, ended in ((0, "requests", self._run_requests), (1, "bytes", self._run_bytes)):
            both = LogHistogram()
            both.merge(ended)
            both.add(open_runs[:, place].copy())
            if not both.count:
                runs[name] = None
                continue
            quantiles = {quantile: both.quantile(share) for quantile, share in _RUN_QUANTILES.items()}
            runs[name] = {"mean": both.mean, **quantiles, "max": both.largest}
        return Sequentiality(shares, runs)


class FirstRequests:
    """The first requests of a part: what they are depends on the queue of the streams before.

    A queue that begins empty is the upper end of one that does not: what advances one of its streams does so in both,
    and once it is full they are the same. So the requests until then are enough.

    Attributes
    ----------
    is_all : bool
        Whether these are all requests.
    """

    def __init__(self) -> None:
        self.is_all = True
        self._columns = [[np.zeros(0, np.int64)] for _ in range(3)]
        self._count = 0

    def add(self, file: np.ndarray, offset: np.ndarray, size: np.ndarray, full: int) -> None:
        """Keep what is needed of a chunk; `full`: after how many of its requests the queue is full, -1 if it is not."""
        if not self.is_all:
            return
        # The 32 nearest requests are found by the first 32 alone, which a full queue has seen.
        room = FIRST_REQUESTS - self._count
        count = min(room, len(file) if full < 0 else full)
        self.is_all = full < 0 and count == len(file)
        for kept, column in zip(self._columns, (file, offset, size), strict=True):
            kept.append(column[:count].copy())
        self._count += count

    def columns(self) -> list[np.ndarray]:
        """File, offset, bytes."""
        return [np.concatenate(kept) for kept in self._columns]


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
            if stream[number, 4] == 0:
                stream[number, 4:6] = stream[number, 1:3]
            else:
                ended[runs] = stream[number, 1:3]
                runs += 1
            stream[number, 1] = 0
            stream[number, 2] = 0
        if known and low >= stream[number, 0]:
            counts[5] += 1
        if not known:
            stream[number, 3] = low
        stream[number, 0] = low + size[request]
        stream[number, 1] += 1
        stream[number, 2] += size[request]
    return runs


@numba.njit(cache=True, nogil=True)
def _join(streams: np.ndarray, following: np.ndarray, stream: np.ndarray, counts: np.ndarray, ended: np.ndarray) -> int:
    """Append streams to those with the numbers `streams`; as `_follow_streams`."""
    runs = 0
    for place in range(len(streams)):
        mine, other = stream[streams[place]], following[place]
        if mine[1] == 0:
            mine[:] = other
            continue
        counts[5] += other[3] >= mine[0]
        first_ended = other[4] > 0
        if other[3] == mine[0]:
            counts[0] += 1
            mine[1:3] += other[4:6] if first_ended else other[1:3]
        if other[3] != mine[0] or first_ended:
            if mine[4] == 0:
                mine[4:6] = mine[1:3]
            else:
                ended[runs] = mine[1:3]
                runs += 1
            if other[3] != mine[0] and first_ended:
                ended[runs] = other[4:6]
                runs += 1
            mine[1:3] = other[1:3]
        mine[0] = other[0]
    return runs


@numba.njit(cache=True, nogil=True)
def _follow_previous(  # noqa: PLR0917
    file: np.ndarray,
    offset: np.ndarray,
    size: np.ndarray,
    read: np.ndarray,
    previous: np.ndarray,
    first: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Count strictOneStream and strictPerDirection."""
    for request in range(len(file)):
        direction = 1 if read[request] else 2
        for place, share in ((0, 1), (direction, 2)):
            if previous[place, 0] == file[request] and previous[place, 1] == offset[request]:
                counts[share] += 1
            if first[place, 0] == _NO_FILE:
                first[place, 0] = file[request]
                first[place, 1] = offset[request]
            previous[place, 0] = file[request]
            previous[place, 1] = offset[request] + size[request]


@numba.njit(cache=True, nogil=True)
def _count_queue(file: np.ndarray, offset: np.ndarray, size: np.ndarray, queue: np.ndarray) -> tuple[int, int]:
    """Requests that advance one of the streams of an LRU queue, the newest first. Two with the same end become one.

    Returns how many, and after how many requests the queue was full for the first time (-1: it was not).
    """
    streams = len(queue)
    hits = 0
    full = 0 if queue[streams - 1, 0] != _NO_FILE else -1
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
        if full < 0 and queue[streams - 1, 0] != _NO_FILE:
            full = request + 1
    return hits, full


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
