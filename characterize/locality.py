# SPDX-License-Identifier: Apache-2.0
"""Turns requests into LRU stack depths: mean, quantiles, miss-ratio curves, equivalent uniqueBytes (thesis 3.4.1.1).

The *depth* of a reference is the number of distinct other blocks touched since the last reference to the same block:
0 is the same block again, and an LRU cache of C blocks holds the block exactly if the depth is below C. The first
reference to a block is *cold* and has no depth. A request that touches k blocks makes k references in ascending order.

Speed and memory: O(log M) steps a reference for M distinct blocks, and 35 to 45 bytes a distinct block (number 15 to
21, stack 12 to 16, histogram 8), whatever the number of references. `characterize.counting.shards` estimates them from
a sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
import pandas as pd

from characterize.counting.lru_stack import LruStack
from characterize.counting.numbering import room_for
from characterize.references import BLOCK_BYTES, BlockNumbers, Columns, References
from characterize.requests import columns_of

_POINTS_PER_OCTAVE = 4
_POINTS = 32 * _POINTS_PER_OCTAVE
_UNITS = ("references", "requests", "bytes")
_DIRECTIONS = ("read", "written")


@dataclass(frozen=True)
class Locality:
    """LRU stack depths of a trace, exact or estimated from a sample of its blocks.

    Attributes
    ----------
    counts : ndarray, shape (n,)
        References at each depth; estimates need not be whole.
    cold : float
        First references, one per distinct block.
    block_bytes : int
    depths : ndarray or None
        Ascending depths that `counts` are of, in blocks; None: 0, 1, 2 ...
    curves : DataFrame or None
        As from `LocalitySummary.curves`; None of a sample.
    sampled : dict or None
        How it was sampled (`characterize.counting.shards`); None: exact.
    """

    counts: np.ndarray
    cold: float
    block_bytes: int = BLOCK_BYTES
    depths: np.ndarray | None = None
    curves: pd.DataFrame | None = None
    sampled: dict[str, Any] | None = None

    @cached_property
    def _cumulative(self) -> np.ndarray:
        return np.cumsum(self.counts)

    @cached_property
    def _depths(self) -> np.ndarray:
        return np.arange(len(self.counts)) if self.depths is None else self.depths

    @property
    def reuses(self) -> float:
        """References that are not cold."""
        return self.counts.sum().item()

    @property
    def references(self) -> float:
        """Blocks touched, summed over the requests."""
        return self.reuses + self.cold

    @property
    def cold_share(self) -> float:
        """Cold references / references; NaN without references."""
        return self.cold / self.references if self.references else math.nan

    @property
    def mean_depth_bytes(self) -> float:
        """Mean depth of the references that have one (cold ones are excluded), in bytes; NaN if there are none."""
        if not self.reuses:
            return math.nan
        return float(self.counts @ self._depths.astype(np.float64)) / self.reuses * self.block_bytes

    @property
    def equivalent_unique_bytes(self) -> float:
        """uniqueBytes of the Willy workload with this mean depth: 2 x mean depth (3.4.1.1)."""
        return 2 * self.mean_depth_bytes

    def quantile_bytes(self, share: float) -> float:
        """Smallest depth, in bytes, that at least `share` of the references with a depth do not exceed; NaN if none."""
        if not self.reuses:
            return math.nan
        rank = max(1, math.ceil(share * self.reuses - 1e-9))
        place = min(int(np.searchsorted(self._cumulative, rank)), len(self._depths) - 1)
        return float(self._depths[place] * self.block_bytes)

    def miss_ratio(self, cache_bytes: float | np.ndarray) -> Any:
        """Share of the references that miss in an LRU cache of `cache_bytes` (whole blocks), cold ones included."""
        blocks = np.floor_divide(np.asarray(cache_bytes, np.float64), self.block_bytes).astype(np.int64)
        held = np.concatenate([[0], self._cumulative])
        if not self.references:
            return np.full(blocks.shape, math.nan)[()]
        return np.clip(1 - held[np.searchsorted(self._depths, blocks)] / self.references, 0, 1)[()]

    def miss_ratio_curve(self, points_per_octave: int = 4) -> pd.DataFrame:
        """Miss ratios at logarithmically spaced cache sizes, from one block to the first size that holds every reuse.

        Returns
        -------
        DataFrame
            ``cache_bytes`` int64 ascending, ``miss_ratio`` float64 (it never rises); no rows without references.
        """
        if not self.references:
            return pd.DataFrame({"cache_bytes": np.zeros(0, np.int64), "miss_ratio": np.zeros(0)})
        largest = int(self._depths[-1]) + 1 if len(self.counts) else 1
        steps = math.ceil(math.log2(largest) * points_per_octave) + 1
        blocks = np.minimum(np.rint(2.0 ** (np.arange(steps) / points_per_octave)), largest).astype(np.int64)
        cache_bytes = np.unique(np.append(blocks, largest)) * self.block_bytes
        return pd.DataFrame({"cache_bytes": cache_bytes, "miss_ratio": self.miss_ratio(cache_bytes)})


class LocalitySummary:
    """Stack depths of requests that come in batches, in the order of their starts.

    One stack holds what is read and what is written, as a page cache does. Which share of the reads it misses, of the
    writes, of the requests (that miss unless all of their blocks are held) and of the bytes is counted beside it, at a
    few sizes.

    Parameters
    ----------
    follows : bool
        Whether to keep what is needed to be merged into a part before: of what request a block was cold, with how many
        bytes.
    """

    def __init__(self, *, follows: bool = False) -> None:
        self._stack = LruStack()
        self._follows = follows
        # Of every block the bytes of its first reference; of every request with such: how many, direction, the point
        # of the curves of its deepest other reference.
        self._cold_bytes = [np.zeros(0, np.int16)]
        self._cold_requests = [np.zeros((0, 3), np.int64)]
        self._counts = np.zeros(0, np.int64)
        self._cold = 0
        # By direction, unit and cache size; behind the last size: cold.
        self._held = np.zeros((len(_DIRECTIONS), len(_UNITS), _POINTS + 1), np.int64)

    @property
    def nbytes(self) -> int:
        """Memory that is in use, in bytes."""
        return self._stack.nbytes + 8 * self._stack.living

    def add(self, requests: Columns, references: References) -> None:
        """Count the references of a batch of requests (`characterize.references`)."""
        self._counts = room_for(self._counts, references.distinct)
        depths = self._stack.depths(references.numbers, references.distinct)
        part = references.requests
        offset, size, read = (requests[name][part] for name in ("offset", "bytes", "read"))
        cold = np.empty(references.distinct - self._cold if self._follows else 0, np.int16)
        requests_with = np.empty((len(size) if self._follows else 0, 3), np.int64)
        _count(depths, self._counts)
        used = _tally(depths, references.blocks, offset, size, read, self._held, cold, requests_with)
        self._cold_bytes.append(cold)
        self._cold_requests.append(requests_with[:used].copy())
        self._cold = references.distinct

    def merge(self, following: LocalitySummary, numbers: np.ndarray) -> None:
        """Count what `following` counted, all of whose requests start after these.

        `numbers` : the number here of each of its blocks (`characterize.references.BlockNumbers.merge`).
        """
        distinct = max(self._cold, int(numbers.max(initial=-1)) + 1)
        self._counts = room_for(self._counts, distinct)
        self._counts[: len(following._counts)] += following._counts[: len(self._counts)]
        self._held += following._held
        depths = self._stack.append(numbers, numbers[following._stack.oldest_first()], distinct)
        size, requests = np.concatenate(following._cold_bytes), np.concatenate(following._cold_requests)
        _tally_again(depths, size, requests, self._counts, self._held)
        self._cold = distinct

    def result(self) -> Locality:
        """What was counted so far; a view, valid until more is added."""
        return Locality(np.trim_zeros(self._counts, "b"), self._cold, curves=self.curves())

    def curves(self) -> pd.DataFrame:
        """Miss ratios by unit and direction, cold references included.

        Returns
        -------
        DataFrame
            ``cache_bytes`` ascending, four sizes an octave up to the one that holds every reuse; ``references``,
            ``requests``, ``bytes``: share of each that misses, and the same ending in ``_read`` and ``_written`` for
            the directions alone, NaN where there are none.
        """
        used = np.flatnonzero(self._held.sum(axis=(0, 1))[:_POINTS])
        points = int(used[-1]) + 1 if len(used) else 1
        columns = {"cache_bytes": _point_blocks(np.arange(points)) * BLOCK_BYTES}
        for unit, name in enumerate(_UNITS):
            columns[name] = _missed(self._held[:, unit].sum(axis=0), points)
            for direction, suffix in enumerate(_DIRECTIONS):
                columns[f"{name}_{suffix}"] = _missed(self._held[direction, unit], points)
        frame = pd.DataFrame(columns)
        return frame if self._held.any() else frame.iloc[:0]


def locality_of(requests: pd.DataFrame) -> Locality:
    """LRU stack depths of all requests in the order of their starts.

    Parameters
    ----------
    requests : DataFrame
        As from `characterize.requests.requests_of`; without ``read``, all count as reads.
    """
    columns, blocks, summary = columns_of(requests), BlockNumbers(), LocalitySummary()
    columns.setdefault("read", np.ones(len(requests), bool))
    for references in blocks.references(columns):
        summary.add(columns, references)
    return summary.result()


def _point_blocks(point: np.ndarray) -> np.ndarray:
    """Cache size of a point of the curves, in blocks: 1, 2, 3 ... 8, 10, 12, 14, 16, 20 ..."""
    octave = np.maximum(point // _POINTS_PER_OCTAVE - 1, 0)
    return (point - _POINTS_PER_OCTAVE * octave + 1) << octave


def _missed(held: np.ndarray, points: int) -> np.ndarray:
    total = held.sum()
    return 1 - np.cumsum(held[:points]) / total if total else np.full(points, math.nan)


@numba.njit(cache=True, inline="always")
def _point_of(depth: np.int64) -> np.int64:
    """The smallest cache of `_point_blocks` that holds a reference of this depth."""
    # The exponent of a double is the place of the highest bit.
    octave = (np.float64(depth | _POINTS_PER_OCTAVE).view(np.int64) >> 52) - 1025
    return _POINTS_PER_OCTAVE * octave + (depth >> octave)


@numba.njit(cache=True, nogil=True)
def _count(depths: np.ndarray, counts: np.ndarray) -> None:
    """Count depths. Nothing else is done between these look-ups, so that the processor has many of them under way."""
    for depth in depths:
        if depth >= 0:
            counts[depth] += 1


@numba.njit(cache=True, nogil=True)
def _tally(  # noqa: PLR0917 (a kernel has its state in arguments)
    depths: np.ndarray,
    blocks: np.ndarray,
    offset: np.ndarray,
    size: np.ndarray,
    read: np.ndarray,
    held: np.ndarray,
    cold_bytes: np.ndarray,
    cold_requests: np.ndarray,
) -> int:
    """Count what caches hold; a request needs one for its deepest block, a block has the bytes that it asks of it.

    Lists what is cold, if there is room; returns the number of requests listed.
    """
    at = 0
    listed = 0
    used = 0
    for request in range(len(blocks)):
        direction = 0 if read[request] else 1
        low = offset[request]
        end = low + size[request]
        deepest = np.int64(0)
        warm = np.int64(0)
        cold = 0
        for _ in range(blocks[request]):
            above = min(end, (low | (BLOCK_BYTES - 1)) + 1)
            depth = depths[at]
            point = np.int64(_POINTS)
            if depth >= 0:
                point = _point_of(depth)
                warm = max(warm, point)
            else:
                cold += 1
                if len(cold_bytes) > 0:
                    cold_bytes[listed] = above - low
                    listed += 1
            held[direction, 0, point] += 1
            held[direction, 2, point] += above - low
            deepest = max(deepest, point)
            low = above
            at += 1
        held[direction, 1, deepest] += 1
        if cold > 0 and len(cold_requests) > 0:
            cold_requests[used, 0], cold_requests[used, 1], cold_requests[used, 2] = cold, direction, warm
            used += 1
    return used


@numba.njit(cache=True, nogil=True)
def _tally_again(
    depths: np.ndarray, size: np.ndarray, requests: np.ndarray, counts: np.ndarray, held: np.ndarray
) -> None:
    """Count depths that first references turned out to have, of the requests that `_tally` listed."""
    at = 0
    for request in range(len(requests)):
        blocks, direction, deepest = requests[request]
        for _ in range(blocks):
            point = np.int64(_POINTS)
            if depths[at] >= 0:
                counts[depths[at]] += 1
                point = _point_of(depths[at])
                for unit, amount in ((0, np.int64(1)), (2, np.int64(size[at]))):
                    held[direction, unit, point] += amount
                    held[direction, unit, _POINTS] -= amount
            deepest = max(deepest, point)
            at += 1
        held[direction, 1, _POINTS] -= 1
        held[direction, 1, deepest] += 1
