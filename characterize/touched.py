# SPDX-License-Identifier: Apache-2.0
"""Turns references to blocks into how many bytes were touched at all, and how many for the first time, exactly.

Of a block the bytes touched so far are one range as a rule: 4 bytes. Where they are several, the block's ranges are
listed, and the list is put in order whenever it is full. Memory is bounded by the blocks and the holes within them.
"""

from __future__ import annotations

import numba
import numpy as np

from characterize.counting.numbering import room_for
from characterize.references import BLOCK_BYTES, Columns, References

_LISTED_LEAST = 1 << 12
# In place of a range: the block's ranges are listed.
_LISTED = -1
STEP_DTYPE = np.dtype([("request", "i8"), ("number", "i4"), ("start", "i2"), ("stop", "i2"), ("read", "?")])


class UniqueBytes:
    """Bytes in the union of all requests."""

    def __init__(self) -> None:
        self._distinct = 0
        self._range = np.zeros((0, 2), np.int16)
        self._list = np.zeros((_LISTED_LEAST, 3), np.int64)
        self._listed = 0

    @property
    def nbytes(self) -> int:
        """Memory that is in use, in bytes."""
        return self._range[: self._distinct].nbytes + self._list.nbytes

    def add(self, requests: Columns, references: References) -> None:
        """Touch what a batch of requests touches."""
        self._distinct = references.distinct
        self._range = room_for(self._range, references.distinct)
        part = references.requests
        self._touch(references.numbers, requests["offset"][part], requests["bytes"][part])

    def _touch(self, numbers: np.ndarray, offset: np.ndarray, size: np.ndarray) -> None:
        request, at = 0, 0
        while True:
            request, at, self._listed = _touch(
                numbers, offset, size, request, at, self._range, self._list, self._listed
            )
            if request == len(offset):
                return
            self._put_in_order()

    def merge(self, other: UniqueBytes, numbers: np.ndarray) -> None:
        """Touch what `other` touched; `numbers`: the number here of each of its blocks."""
        other._put_in_order()
        self._distinct = max(self._distinct, int(numbers.max(initial=-1)) + 1)
        self._range = room_for(self._range, self._distinct)
        low, high = other._range[: len(numbers)].astype(np.int64).T
        whole = low != _LISTED
        block, begin, end = other._list[: other._listed].T
        # Ranges within a block, as requests to the first block of a file.
        self._touch(
            np.concatenate([numbers[whole], numbers[block]]),
            np.concatenate([low[whole], begin]),
            np.concatenate([(high - low)[whole], end - begin]),
        )

    def result(self) -> int:
        """Bytes touched so far."""
        self._put_in_order()
        known = self._range[: self._distinct].astype(np.int64)
        whole = int((known[:, 1] - known[:, 0])[known[:, 0] != _LISTED].sum())
        return whole + int((self._list[: self._listed, 2] - self._list[: self._listed, 1]).sum())

    def _put_in_order(self) -> None:
        """Join ranges of the list that meet; a block left with one leaves it. A list that stays half full grows."""
        block, low, high = self._list[: self._listed].T
        order = np.lexsort((low, block))
        # A block that was touched whole since then has its range.
        order = order[self._range[block[order], 0] == _LISTED]
        block, low, high = block[order], low[order], high[order]
        joined = _join(block, low, high)
        block, low, high = block[:joined], low[:joined], high[:joined]
        several = np.zeros(joined, bool)
        several[1:] = block[1:] == block[:-1]
        several[:-1] |= block[1:] == block[:-1]
        self._range[block[~several], 0], self._range[block[~several], 1] = low[~several], high[~several]
        self._listed = int(several.sum())
        self._list[: self._listed] = np.column_stack([block, low, high])[several]
        if 2 * self._listed > len(self._list):
            self._list = room_for(self._list, 2 * len(self._list))


class FreshBytes:
    """Bytes of requests that none before touched, so that one pass in any steps touches everything once.

    A write touches the whole blocks that it writes to, since it leaves them in the page cache. Of a block that is read
    in several parts everything between the parts counts as touched.

    Parameters
    ----------
    follows : bool
        Whether to keep what is needed to be merged into a part before: every access to a block that touches more of it.
    """

    def __init__(self, *, follows: bool = False) -> None:
        self._range = np.zeros((0, 2), np.int16)
        self._distinct = 0
        self._follows = follows
        self._steps: list[np.ndarray] = []
        self._requests = 0

    def add(self, requests: Columns, references: References) -> np.ndarray:
        """Touch what a batch of requests touches; returns the fresh bytes of each request, int64."""
        self._distinct = references.distinct
        self._range = room_for(self._range, references.distinct)
        part = references.requests
        offset, size, read = (requests[name][part] for name in ("offset", "bytes", "read"))
        steps = np.empty(len(references.numbers) if self._follows else 0, STEP_DTYPE)
        fresh, used = _fresh(references.numbers, offset, size, read, self._range, steps)
        if used:
            steps = steps[:used].copy()
            steps["request"] += self._requests
            self._steps.append(steps)
        self._requests += len(offset)
        return fresh

    def merge(self, following: FreshBytes, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Touch what `following` touched, all of whose requests start after these.

        Parameters
        ----------
        numbers : ndarray of int32
            The number here of each of its blocks.

        Returns
        -------
        request, fresh : ndarray of int64
            Those of its requests that alone touched something for the first time, ascending, and their fresh bytes now.
        """
        self._distinct = max(self._distinct, int(numbers.max(initial=-1)) + 1)
        self._range = room_for(self._range, self._distinct)
        steps = np.concatenate([np.zeros(0, STEP_DTYPE), *following._steps])
        request, of = np.unique(steps["request"], return_inverse=True)
        fresh = np.zeros(len(request), np.int64)
        _fresh_again(numbers[steps["number"]], steps, of, self._range, fresh)
        return request, fresh


@numba.njit(cache=True, nogil=True)
def _touch(  # noqa: PLR0917 (a kernel has its state in arguments)
    numbers: np.ndarray,
    offset: np.ndarray,
    size: np.ndarray,
    request: int,
    at: int,
    known: np.ndarray,
    listed: np.ndarray,
    used: int,
) -> tuple[int, int, int]:
    """Touch from a request on, whose first reference is `at`, until the list may not suffice for the next one.

    Returns the request and reference to go on with, and the length of the list.
    """
    while request < len(offset):
        low = offset[request]
        end = low + size[request]
        first = low >> 12
        last = (end - 1) >> 12
        # A block in the middle is touched whole and needs no place; one at an end needs up to two.
        if used + 4 > len(listed):
            return request, at, used
        for block in range(first, last + 1):
            start = max(low - (block << 12), 0)
            stop = min(end - (block << 12), BLOCK_BYTES)
            number = numbers[at]
            at += 1
            if stop - start == BLOCK_BYTES:
                known[number, 0] = 0
                known[number, 1] = BLOCK_BYTES
            elif known[number, 0] == _LISTED:
                listed[used, 0], listed[used, 1], listed[used, 2] = number, start, stop
                used += 1
            elif known[number, 1] == 0:
                known[number, 0] = start
                known[number, 1] = stop
            elif start <= known[number, 1] and stop >= known[number, 0]:
                known[number, 0] = min(known[number, 0], start)
                known[number, 1] = max(known[number, 1], stop)
            else:
                listed[used, 0], listed[used, 1], listed[used, 2] = number, known[number, 0], known[number, 1]
                listed[used + 1, 0], listed[used + 1, 1], listed[used + 1, 2] = number, start, stop
                used += 2
                known[number, 0] = _LISTED
        request += 1
    return request, at, used


@numba.njit(cache=True, nogil=True)
def _join(block: np.ndarray, low: np.ndarray, high: np.ndarray) -> int:
    """Join ordered ranges that overlap or touch, in place; returns how many are left."""
    if len(block) == 0:
        return 0
    used = 0
    for place in range(1, len(block)):
        if block[place] == block[used] and low[place] <= high[used]:
            high[used] = max(high[used], high[place])
        else:
            used += 1
            block[used], low[used], high[used] = block[place], low[place], high[place]
    return used + 1


@numba.njit(cache=True, nogil=True)
def _touch_more(touched: np.ndarray, number: int, start: int, stop: int, read: bool) -> int:
    """Touch a part of a block; returns how much of it is fresh."""
    if touched[number, 1] == 0:
        touched[number, 0] = start if read else 0
        touched[number, 1] = stop if read else BLOCK_BYTES
        return stop - start
    again = min(stop, touched[number, 1]) - max(start, touched[number, 0])
    touched[number, 0] = min(start, touched[number, 0]) if read else 0
    touched[number, 1] = max(stop, touched[number, 1]) if read else BLOCK_BYTES
    return stop - start - max(again, 0)


@numba.njit(cache=True, nogil=True)
def _fresh(  # noqa: PLR0917
    numbers: np.ndarray, offset: np.ndarray, size: np.ndarray, read: np.ndarray, touched: np.ndarray, steps: np.ndarray
) -> tuple[np.ndarray, int]:
    """Fresh bytes by request; what touches more than before is listed in `steps`, if that has room at all."""
    fresh = np.zeros(len(offset), np.int64)
    at = 0
    used = 0
    for request in range(len(offset)):
        low = offset[request]
        end = low + size[request]
        for block in range(low >> 12, ((end - 1) >> 12) + 1):
            start = max(low - (block << 12), 0)
            stop = min(end - (block << 12), BLOCK_BYTES)
            number = numbers[at]
            at += 1
            length = touched[number, 1] - touched[number, 0]
            fresh[request] += _touch_more(touched, number, start, stop, read[request])
            if len(steps) > 0 and touched[number, 1] - touched[number, 0] > length:
                steps[used]["request"] = request
                steps[used]["number"] = number
                steps[used]["start"] = start
                steps[used]["stop"] = stop
                steps[used]["read"] = read[request]
                used += 1
    return fresh, used


@numba.njit(cache=True, nogil=True)
def _fresh_again(
    numbers: np.ndarray, steps: np.ndarray, of: np.ndarray, touched: np.ndarray, fresh: np.ndarray
) -> None:
    for place in range(len(steps)):
        step = steps[place]
        fresh[of[place]] += _touch_more(touched, numbers[place], step["start"], step["stop"], step["read"])
