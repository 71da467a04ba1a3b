# SPDX-License-Identifier: Apache-2.0
"""Turns requests into an estimate of their LRU stack depths from a sample of the blocks (SHARDS).

Waldspurger, Park, Garthwaite and Ahmad, *Efficient MRC Construction with SHARDS*, FAST 2015: a block is sampled if a
hash of its place is below a threshold, so all of its references are or none. A depth among the sampled blocks, divided
by the rate, estimates the depth among all. With a fixed size the rate falls whenever more blocks are sampled than have
room. A fixed rate is higher, and falls to it in the same way, while the blocks are few: the error depends on how many
are sampled, not on their share.

What the sample has too many or too few references, compared with all that were seen, is taken from the depths at which
a reference tells most of it: the regression estimator of survey sampling (Cochran, *Sampling Techniques*, 7.4), with
blocks as clusters and what is known of all as auxiliary variables: the number of references, and that of blocks
(`characterize.counting.distinct_count`). Where few hot blocks make the difference it is their small depths, and the
result that of the authors' SHARDS-adj, which puts all at depth 0; where all blocks are alike it is all depths. Blocks
in a row are sampled evenly, not at random, for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping

import numba
import numpy as np

from characterize.counting.distinct_count import MAP_BITS, distinct_of, empty_map
from characterize.counting.log_histogram import BUCKETS, bucket_of, middle_of
from characterize.counting.lru_stack import COLD, LruStack
from characterize.counting.numbering import Numbering, room_for
from characterize.errors import FlextraceError
from characterize.locality import Locality
from characterize.references import BLOCK_BYTES, segment_keys

_HASH_BITS = 40
_HASH_END = 1 << _HASH_BITS
_SEGMENT_BITS = 32
# What a sample of a fixed size takes beside its blocks (histogram, map of all blocks, a batch of references), and for
# each block: key 8, table 14, slot 4, owners of two slots 8, hash 8, and key and slot again while the sample shrinks.
_FIXED_BYTES = 448 << 10
_BYTES_PER_BLOCK = 54
_BLOCKS_FEWEST = 256
SAMPLED_LEAST = 1 << 14
"""Blocks that a sample by rate should have: the error goes with 1 / sqrt(blocks), whatever the share."""
_BATCH = 1 << 12
# 2^64 / golden ratio: of its multiples, any number in a row is spread evenly over 2^64 (Weyl).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PIECE_BITS = 16


class SampledLocality:
    """Estimated stack depths of requests that come in batches, in the order of their starts.

    Parameters
    ----------
    rate : float
        Share of the blocks to sample, above 0 and at most 1; without meaning if `size_bytes` is given.
    size_bytes : int or None
        Memory that the sample may take.
    blocks_least : int
        The rate is higher than `rate` while fewer blocks than about this were sampled: it falls from 1 as they come.
    follows : bool
        Whether to keep what is needed to be merged into a part before: the order of the first references.

    Raises
    ------
    FlextraceError
        The rate is out of range, or the size too small.
    """

    def __init__(
        self, rate: float = 1.0, size_bytes: int | None = None, *, blocks_least: int = 0, follows: bool = False
    ) -> None:
        if not 0 < rate <= 1:
            raise FlextraceError(f"a sample of {rate:g} of all blocks is impossible: give a rate above 0, up to 1", 2)
        self._method = "SHARDS, fixed rate" + (f" but {blocks_least} blocks at least" if blocks_least else "")
        # The rate falls when more blocks are sampled, but not below the threshold.
        self._blocks_max, self._threshold_least = blocks_least * 8 // 7, max(1, round(rate * _HASH_END))
        if size_bytes is not None:
            self._method, self._threshold_least = "SHARDS, fixed size", 1
            self._blocks_max = (size_bytes - _FIXED_BYTES) // _BYTES_PER_BLOCK
            if self._blocks_max < _BLOCKS_FEWEST:
                least = _FIXED_BYTES + _BLOCKS_FEWEST * _BYTES_PER_BLOCK
                raise FlextraceError(f"a sample in {size_bytes} bytes is too small: give at least {least}", 2)
        self._threshold = _HASH_END if self._blocks_max else self._threshold_least
        self._references = 0
        self._weights = np.zeros(BUCKETS)
        self._touched = empty_map()
        self._segments = Numbering()
        self._blocks = Numbering()
        # Of so many sampled blocks the arrays hold something; behind that is room.
        self._known = 0
        self._hashes = np.zeros(0, np.int64)
        # References to each sampled block so far but the first, and their sum over the references of each bucket.
        self._reuses = np.zeros(0, np.int32)
        self._heat = np.zeros(BUCKETS)
        self._stack = LruStack()
        self._follows = follows
        # When each sampled block was first referenced.
        self._first = np.zeros(0, np.int64)
        self._firsts = 0

    @property
    def rate(self) -> float:
        """Share of the blocks that are sampled now."""
        return self._threshold / _HASH_END

    @property
    def nbytes(self) -> int:
        """Memory that is in use, in bytes."""
        fixed = self._weights.nbytes + self._heat.nbytes + self._touched.nbytes + 24 * _BATCH
        per_block = self._hashes.itemsize + self._reuses.itemsize
        return fixed + self._blocks.nbytes + self._stack.nbytes + per_block * self._known

    def add(self, requests: Mapping[str, np.ndarray]) -> None:
        """Count the references of requests, ``file, offset, bytes``."""
        file, offset, size = (requests[name] for name in ("file", "offset", "bytes"))
        files, blocks, hashes = (np.empty(_BATCH, np.int64) for _ in range(3))
        request, block = 0, 0
        while request < len(file):
            request, block, seen, found = _sample(
                file, offset, size, request, block, self._threshold, self._touched, files, blocks, hashes
            )
            self._references += seen
            if found:
                self._reference(files[:found], blocks[:found], hashes[:found])

    def _reference(self, file: np.ndarray, block: np.ndarray, hashes: np.ndarray) -> None:
        """Reference sampled blocks; make room where there is none, at the same reference whatever the batches are."""
        segments = self._segments.number(segment_keys(file, block)).astype(np.int64)
        keys = segments << _SEGMENT_BITS | (block & ((1 << _SEGMENT_BITS) - 1))
        while len(keys):
            numbers = self._blocks.number(keys)
            end, known = len(keys), self._known
            if self._falls and len(self._blocks) > self._blocks_max:
                end = int(np.argmax(numbers == self._blocks_max)) + 1
            self._know(max(known, int(numbers[:end].max()) + 1))
            self._hashes[numbers[:end]] = hashes[:end]
            if self._follows:
                self._first = room_for(self._first, self._known)
                self._first[known : self._known] = np.arange(self._firsts, self._firsts + self._known - known)
                self._firsts += self._known - known
            depths = self._stack.depths(numbers[:end], self._known)
            _count(numbers[:end], depths, 1 / self.rate, self._weights, self._heat, self._reuses)
            keys, hashes = keys[end:], hashes[end:]
            if self._falls and self._known > self._blocks_max:
                self._shrink(self._threshold_that_fits())
                keys, hashes = keys[hashes < self._threshold], hashes[hashes < self._threshold]

    def _know(self, blocks: int) -> None:
        """Have so many sampled blocks."""
        self._known = blocks
        self._hashes, self._reuses = room_for(self._hashes, blocks), room_for(self._reuses, blocks)

    @property
    def _falls(self) -> bool:
        """Whether a lower rate is allowed."""
        return self._threshold > self._threshold_least

    def _threshold_that_fits(self) -> int:
        """The next lower threshold with which there is room, of a list, so that parts of a trace come to the same."""
        threshold, hashes = self._threshold, self._hashes[: self._known]
        while threshold > self._threshold_least and np.count_nonzero(hashes < threshold) > self._blocks_max:
            threshold = max(threshold * 7 // 8, self._threshold_least)
        return threshold

    def _shrink(self, threshold: int) -> None:
        """Lower the threshold; the blocks that stay do so in the order that they have on the stack."""
        self._threshold = threshold
        order = self._stack.oldest_first()
        kept = order[self._hashes[order] < self._threshold]
        keys, self._hashes, self._reuses = self._blocks.keys[kept], self._hashes[kept], self._reuses[kept]
        self._known = len(kept)
        self._first = self._first[kept] if self._follows else self._first
        self._blocks, self._stack = Numbering(), LruStack()
        self._stack.depths(self._blocks.number(keys), len(keys))

    def merge(self, following: SampledLocality) -> None:
        """Count what `following` counted, all of whose requests start after these.

        With a fixed rate both have the same sample as one summary of all would have, and the depths are the same. Of a
        fixed size the lower rate of the two holds from here on; what was counted before keeps its own. What reuses of a
        block before mean for the depths of the other (`_heat`) is taken to be the same for all of its depths.
        """
        if following._threshold < self._threshold:
            self._shrink(following._threshold)
        first = np.argsort(following._first[: following._known])
        first = first[following._hashes[first] < self._threshold]
        hashes, its = following._hashes[first], following._reuses[first].astype(np.int64)
        before = self._known
        number_of = self._number(following, first)
        numbers, oldest_first = number_of[first], number_of[following._stack.oldest_first()]
        distinct = len(self._blocks)
        self._know(distinct)
        self._hashes[numbers] = hashes
        known = np.where(numbers < before, self._reuses[numbers].astype(np.int64) + 1, 0)
        within = int((its * (its + 1)).sum()) / 2
        self._heat += following._heat * (1 + int((its * known).sum()) / within if within else 1.0)
        self._weights += following._weights
        self._references += following._references
        self._touched |= following._touched
        depths = self._stack.append(numbers, oldest_first[oldest_first >= 0], distinct)
        _count(numbers, depths, 1 / self.rate, self._weights, self._heat, self._reuses)
        self._reuses[numbers] += its.astype(np.int32)
        if self._falls and self._known > self._blocks_max:
            self._shrink(self._threshold_that_fits())

    def _number(self, other: SampledLocality, chosen: np.ndarray) -> np.ndarray:
        """Numbers here of the blocks of `other`, which get some in the order of `chosen`; -1 of those not chosen."""
        segments = self._segments.number(other._segments.keys.copy()).astype(np.int64)
        keys = other._blocks.keys[chosen]
        number_of = np.full(len(other._blocks), -1, np.int32)
        keys = segments[keys >> _SEGMENT_BITS] << _SEGMENT_BITS | (keys & ((1 << _SEGMENT_BITS) - 1))
        number_of[chosen] = self._blocks.number(keys)
        return number_of

    def result(self) -> Locality:
        """What was counted so far."""
        sampled = len(self._blocks) / self.rate
        cold = self._distinct(sampled)
        # Of more blocks than the sample stands for there are more references, too, and more at each depth.
        scale = cold / sampled if sampled else 1.0
        used = np.flatnonzero(self._weights)
        last = int(used[-1]) + 1 if len(used) else 1
        counts = self._weights[:last] * scale
        counts += (self._references - counts.sum() - cold) * self._blame(counts)
        return Locality(
            counts=counts,
            cold=cold,
            depths=np.rint(middle_of(np.arange(last)) * scale).astype(np.int64),
            sampled={
                "method": self._method,
                "rate": self.rate,
                "blocks": len(self._blocks),
            },
        )

    def _distinct(self, sampled: float) -> float:
        """How many blocks there are: what the sample and the map say, each weighted by how sure it is."""
        by_map, its_variance = distinct_of(self._touched)
        variance = sampled * (1 / self.rate - 1)
        if not variance or by_map == np.inf:
            return sampled
        mean = (sampled * its_variance + by_map * variance) / (its_variance + variance)
        return min(mean, float(self._references))

    def _blame(self, counts: np.ndarray) -> np.ndarray:
        """How much of a wrong number of references is due to each bucket; the sum is 1."""
        # Of a reference to a block that has r of them in the end, r so far is half of it on average. What is left when
        # the mean is taken off is each bucket's part of the covariance with the number of references of a block.
        mean = float(self._reuses[: self._known].mean()) if self._known else 0.0
        part = 2 * self._heat[: len(counts)] - (1 + mean) * counts
        reached = np.maximum.accumulate(np.clip(np.cumsum(part) / (part.sum() or 1), 0, 1)) if part.sum() > 0 else None
        if reached is None or reached[-1] <= 0:
            return np.eye(1, len(counts))[0]
        return np.diff(reached, prepend=0) / reached[-1]


@numba.njit(cache=True, inline="always")
def _hash(file: np.int64, block: np.int64) -> np.uint64:
    """Consecutive blocks have upper bits spread evenly, and the pieces of files at random."""
    piece = np.uint64(file) * _GOLDEN + np.uint64(block >> _PIECE_BITS)
    piece = (piece ^ (piece >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    piece = (piece ^ (piece >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    piece ^= piece >> np.uint64(31)
    return np.uint64(block) * _GOLDEN + piece


@numba.njit(cache=True, nogil=True)
def _sample(  # noqa: PLR0917 (a kernel has its state in arguments)
    file: np.ndarray,
    offset: np.ndarray,
    size: np.ndarray,
    request: int,
    block: int,
    threshold: int,
    touched: np.ndarray,
    files: np.ndarray,
    blocks: np.ndarray,
    hashes: np.ndarray,
) -> tuple[int, int, int, int]:
    """Sampled blocks from the `block`-th of a request on, until there is no room for more.

    Returns the request and the place in it to go on with, references seen, and blocks found.
    """
    seen = 0
    found = 0
    while request < len(file):
        low = offset[request] // BLOCK_BYTES
        high = (offset[request] + size[request] - 1) // BLOCK_BYTES
        for number in range(low + block, high + 1):
            spread = _hash(file[request], np.int64(number))
            value = np.int64(spread >> np.uint64(64 - _HASH_BITS))
            # At random, unlike the hash: linear counting asks for it.
            bit = ((spread ^ (spread >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)) >> np.uint64(64 - MAP_BITS)
            touched[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
            seen += 1
            if value < threshold:
                files[found] = file[request]
                blocks[found] = number
                hashes[found] = value
                found += 1
                if found == len(files):
                    if number == high:
                        return request + 1, 0, seen, found
                    return request, number + 1 - low, seen, found
        request += 1
        block = 0
    return request, 0, seen, found


@numba.njit(cache=True, nogil=True)
def _count(  # noqa: PLR0917 (a kernel has its state in arguments)
    numbers: np.ndarray, depths: np.ndarray, weight: float, weights: np.ndarray, heat: np.ndarray, reuses: np.ndarray
) -> None:
    """Add what each depth stands for to its bucket."""
    for place in range(len(depths)):
        if depths[place] != COLD:
            reuses[numbers[place]] += 1
            bucket = bucket_of(np.int64(depths[place] * weight))
            weights[bucket] += weight
            heat[bucket] += weight * reuses[numbers[place]]
