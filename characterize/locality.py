# SPDX-License-Identifier: Apache-2.0
"""Turns requests into LRU stack depths: mean, quantiles, miss-ratio curve, equivalent uniqueBytes (thesis 3.4.1.1).

The *depth* of a reference is the number of distinct other blocks touched since the last reference to the same block:
0 is the same block again, and an LRU cache of C blocks holds the block exactly if the depth is below C. The first
reference to a block is *cold* and has no depth. A request that touches k blocks makes k references in ascending order.

Speed and memory: O(log M) steps a reference for M distinct blocks, and about 21 bytes a distinct block (histogram 8,
slots 4, owners 8), whatever the number of references; 1 TiB of distinct data costs about 5.3 GiB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
import pandas as pd

BLOCK_BYTES = 4096
_SLOTS_PER_WORD = 64


@dataclass(frozen=True)
class Locality:
    """LRU stack depths of a trace, exact.

    Attributes
    ----------
    counts : ndarray of int64, shape (largest depth + 1,)
        References at each depth.
    cold : int
        First references, one per distinct block.
    block_bytes : int
    """

    counts: np.ndarray
    cold: int
    block_bytes: int = BLOCK_BYTES

    @cached_property
    def _cumulative(self) -> np.ndarray:
        return np.cumsum(self.counts)

    @property
    def reuses(self) -> int:
        """References that are not cold."""
        return int(self.counts.sum())

    @property
    def references(self) -> int:
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
        return float(self.counts @ np.arange(len(self.counts), dtype=np.float64)) / self.reuses * self.block_bytes

    @property
    def equivalent_unique_bytes(self) -> float:
        """uniqueBytes of the Willy workload with this mean depth: 2 x mean depth (3.4.1.1)."""
        return 2 * self.mean_depth_bytes

    def quantile_bytes(self, share: float) -> float:
        """Smallest depth, in bytes, that at least `share` of the references with a depth do not exceed; NaN if none."""
        if not self.reuses:
            return math.nan
        rank = max(1, math.ceil(share * self.reuses - 1e-9))
        return float(np.searchsorted(self._cumulative, rank) * self.block_bytes)

    def miss_ratio(self, cache_bytes: float | np.ndarray) -> Any:
        """Share of the references that miss in an LRU cache of `cache_bytes` (whole blocks), cold ones included."""
        blocks = np.floor_divide(np.asarray(cache_bytes, np.float64), self.block_bytes).astype(np.int64)
        held = np.concatenate([[0], self._cumulative])
        if not self.references:
            return np.full(blocks.shape, math.nan)[()]
        return (1 - held[np.clip(blocks, 0, len(self.counts))] / self.references)[()]

    def miss_ratio_curve(self, points_per_octave: int = 4) -> pd.DataFrame:
        """Miss ratios at logarithmically spaced cache sizes, from one block to the first size that holds every reuse.

        Returns
        -------
        DataFrame
            ``cache_bytes`` int64 ascending, ``miss_ratio`` float64 (it never rises); no rows without references.
        """
        if not self.references:
            return pd.DataFrame({"cache_bytes": np.zeros(0, np.int64), "miss_ratio": np.zeros(0)})
        largest = max(1, len(self.counts))
        steps = math.ceil(math.log2(largest) * points_per_octave) + 1
        blocks = np.minimum(np.rint(2.0 ** (np.arange(steps) / points_per_octave)), largest).astype(np.int64)
        cache_bytes = np.unique(np.append(blocks, largest)) * self.block_bytes
        return pd.DataFrame({"cache_bytes": cache_bytes, "miss_ratio": self.miss_ratio(cache_bytes)})


def locality_of(requests: pd.DataFrame) -> Locality:
    """LRU stack depths of all requests in the order of their starts.

    Parameters
    ----------
    requests : DataFrame
        As from `characterize.requests.requests_of`.
    """
    first, blocks, distinct = dense_blocks(requests)
    # Twice as many slots as live blocks: a compaction costs O(M) and happens at most once in M references.
    words = max(1, math.ceil(2 * distinct / _SLOTS_PER_WORD))
    slot_type = np.int32 if words * _SLOTS_PER_WORD < 2**31 else np.int64
    slot_of = np.full(distinct, -1, slot_type)
    owner_of = np.empty(words * _SLOTS_PER_WORD, slot_type)
    counts = _count_depths(first, blocks, slot_of, owner_of, np.zeros(distinct, np.int64))
    return Locality(np.trim_zeros(counts, "b"), distinct)


def dense_blocks(requests: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, int]:
    """Number the 4 KiB blocks that requests touch 0, 1, 2 ... without holes, without listing them.

    Overlapping and adjacent requests of a file form runs; the blocks of a run are numbered through, so that the blocks
    of one request are ``first, first + 1, ...``.

    Returns
    -------
    first, blocks : ndarray of int64, shape (n,)
        First block and number of blocks of every request, in the order of `requests`.
    distinct : int
        Number of distinct blocks.
    """
    offset, file = requests["offset"].to_numpy(), requests["file"].to_numpy()
    low = offset // BLOCK_BYTES
    high = (offset + requests["bytes"].to_numpy() - 1) // BLOCK_BYTES + 1
    if not len(low):
        return low, high, 0
    order = np.lexsort((low, file))
    low, high, file = low[order], high[order], file[order]
    reached = pd.Series(high).groupby(file).cummax().to_numpy()
    new_run = np.ones(len(low), bool)
    new_run[1:] = (file[1:] != file[:-1]) | (low[1:] > reached[:-1])
    heads = np.flatnonzero(new_run)
    tails = np.append(heads[1:], len(low)) - 1
    base = np.concatenate([[0], np.cumsum(reached[tails] - low[heads])])
    run = np.cumsum(new_run) - 1
    first = np.empty_like(low)
    blocks = np.empty_like(low)
    first[order] = base[run] + (low - low[heads][run])
    blocks[order] = high - low
    return first, blocks, int(base[-1])


@numba.njit(cache=True, inline="always")
def _ones(word: np.uint64) -> np.int64:
    """Number of set bits."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True)
def _rebuild(live: np.ndarray, tree: np.ndarray) -> None:
    """Fill a Fenwick tree over the set bits of every word, in O(words)."""
    tree[:] = 0
    for word in range(len(live)):
        node = word + 1
        tree[node] += _ones(live[word])
        parent = node + (node & -node)
        if parent < len(tree):
            tree[parent] += tree[node]


@numba.njit(cache=True)
def _compact(slot_of: np.ndarray, owner_of: np.ndarray, live: np.ndarray, slots: int) -> int:
    """Move the live slots to the front in their order; returns how many there are."""
    used = 0
    for slot in range(slots):
        if (live[slot >> 6] >> np.uint64(slot & 63)) & np.uint64(1):
            owner = owner_of[slot]
            owner_of[used] = owner
            slot_of[owner] = used
            used += 1
    live[:] = 0
    for slot in range(used):
        live[slot >> 6] |= np.uint64(1) << np.uint64(slot & 63)
    return used


@numba.njit(cache=True)
def _count_depths(
    first: np.ndarray, blocks: np.ndarray, slot_of: np.ndarray, owner_of: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Histogram of the depths.

    Every reference takes the next *slot* (a compacted time) and frees its block's old one; the depth is the number of
    live slots behind the old one. Slots are bits of 64-bit words with a Fenwick tree over the words, which keeps the
    tree within the processor's cache.
    """
    live = np.zeros(len(owner_of) >> 6, np.uint64)
    tree = np.zeros(len(live) + 1, np.int64)
    next_slot = 0
    living = 0
    for request in range(len(first)):
        for block in range(first[request], first[request] + blocks[request]):
            if next_slot == len(owner_of):
                next_slot = _compact(slot_of, owner_of, live, next_slot)
                _rebuild(live, tree)
            old = int(slot_of[block])
            if old < 0:
                living += 1
            else:
                word = old >> 6
                # Bits 0 ... old of the word: those not newer than the old reference.
                upto = _ones(live[word] & (~np.uint64(0) >> np.uint64(63 - (old & 63))))
                node = word
                while node > 0:
                    upto += tree[node]
                    node &= node - 1
                counts[living - upto] += 1
                live[word] &= ~(np.uint64(1) << np.uint64(old & 63))
                node = word + 1
                while node < len(tree):
                    tree[node] -= 1
                    node += node & -node
            slot_of[block] = next_slot
            owner_of[next_slot] = block
            live[next_slot >> 6] |= np.uint64(1) << np.uint64(next_slot & 63)
            node = (next_slot >> 6) + 1
            while node < len(tree):
                tree[node] += 1
                node += node & -node
            next_slot += 1
    return counts
