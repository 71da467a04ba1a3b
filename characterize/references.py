# SPDX-License-Identifier: Apache-2.0
"""Turns requests into references to 4 KiB blocks, numbered in the order in which they are first touched.

A request that touches k blocks makes k references in ascending order. A batch has a bounded number of references,
however large the requests are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numba
import numpy as np

from characterize.counting.numbering import Numbering

BLOCK_BYTES = 4096
BATCH_REFERENCES = 1 << 18
# A key is the number of a segment of 2^32 blocks of a file, and the block in it. Blocks are below 2^51, files 2^32.
_SEGMENT_BITS = 32
_FILE_SHIFT = 20

Columns = Mapping[str, np.ndarray]
"""Columns of requests by the names of `characterize.requests.requests_of`; as a DataFrame, but without its cost."""


@dataclass(frozen=True)
class References:
    """A batch of references, in the order of the requests.

    Attributes
    ----------
    requests : slice
        Whose references these are.
    blocks : ndarray of int64, shape (requests,)
        How many references each of them makes.
    numbers : ndarray of int32, shape (references,)
        The block that each refers to.
    distinct : int
        Blocks that were touched so far, with these.
    """

    requests: slice
    blocks: np.ndarray
    numbers: np.ndarray
    distinct: int


class BlockNumbers:
    """Numbers the blocks of requests. All that is kept is what `numbering` needs per distinct block."""

    def __init__(self) -> None:
        self._segments = Numbering()
        self._blocks = Numbering()

    @property
    def distinct(self) -> int:
        """Blocks touched so far."""
        return len(self._blocks)

    @property
    def nbytes(self) -> int:
        """Memory that is in use, in bytes."""
        return self._blocks.nbytes + self._segments.nbytes

    def merge(self, other: BlockNumbers) -> np.ndarray:
        """Number the blocks of `other`, too; returns the number here of each, int32, in the order of its numbers."""
        segments = self._segments.number(other._segments.keys.copy()).astype(np.int64)
        keys = other._blocks.keys
        return self._blocks.number(segments[keys >> _SEGMENT_BITS] << _SEGMENT_BITS | (keys & 0xFFFFFFFF))

    def references(self, requests: Columns) -> Iterator[References]:
        """The references of requests, a batch at a time."""
        low, blocks = block_range(requests)
        file = np.asarray(requests["file"])
        first = self._segments.number(segment_keys(file, low))
        high = low + (blocks - 1)
        last = first
        if (low >> _SEGMENT_BITS != high >> _SEGMENT_BITS).any():
            last = self._segments.number(segment_keys(file, high))
        reached = np.cumsum(blocks)
        begin = 0
        while begin < len(low):
            before = int(reached[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(reached, before + BATCH_REFERENCES, side="right")))
            part = slice(begin, end)
            keys = _block_keys(first[part], last[part], low[part], blocks[part], int(reached[end - 1]) - before)
            yield References(part, blocks[part], self._blocks.number(keys), len(self._blocks))
            begin = end


def block_range(requests: Columns) -> tuple[np.ndarray, np.ndarray]:
    """First block of every request, and how many blocks it touches."""
    offset, size = np.asarray(requests["offset"]), np.asarray(requests["bytes"])
    low = offset // BLOCK_BYTES
    return low, (offset + size - 1) // BLOCK_BYTES + 1 - low


def segment_keys(file: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Key of the segment of a file that a block is in."""
    return file << _FILE_SHIFT | (block >> _SEGMENT_BITS & ((1 << _FILE_SHIFT) - 1))


@numba.njit(cache=True, nogil=True)
def _block_keys(first: np.ndarray, last: np.ndarray, low: np.ndarray, blocks: np.ndarray, count: int) -> np.ndarray:
    """Key of every reference; `first`, `last`: the segments in which a request begins and ends."""
    keys = np.empty(count, np.int64)
    at = 0
    for request in range(len(low)):
        for block in range(low[request], low[request] + blocks[request]):
            segment = first[request] if block >> _SEGMENT_BITS == low[request] >> _SEGMENT_BITS else last[request]
            keys[at] = np.int64(segment) << _SEGMENT_BITS | (block & 0xFFFFFFFF)
            at += 1
    return keys
