# SPDX-License-Identifier: Apache-2.0
"""Turns keys (blocks, streams, threads) into dense numbers 0, 1, 2 ... in the order in which they first occur.

A hash table of 32-bit numbers points into a dense array of keys. So memory is bounded by the distinct keys, not by how
often they occur: 8 bytes a key and 7 to 14 of table, and what a measure knows of a key is an array that its number
indexes. Keys whose upper bits are the same (the blocks of a request) share a cache line of the table.
"""

from __future__ import annotations

import contextlib
import math
import mmap

import numba
import numpy as np
import numpy.typing

from characterize.errors import FlextraceError

_FIRST_SLOTS = 256
_LOAD_MAX = 0.6
_NUMBERS_MAX = 2**31 - 1
_LINE_BITS = 4
# Odd, so that it meets every slot of a table whose size is a power of two; larger than a line of 16.
_STEP = 17
# Keys that are looked up together, and how many slots of each.
_TOGETHER = 512
_ROUNDS = 2
_MAPPED_BYTES = 1 << 20
# 2^64 / golden ratio (Knuth, The Art of Computer Programming, 6.4): multiplication spreads consecutive keys.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Numbering:
    """Distinct int64 keys, numbered in the order of their first occurrence.

    Attributes
    ----------
    count : int
        Distinct keys so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._keys = np.empty(int(_FIRST_SLOTS * _LOAD_MAX), np.int64)
        self._table = np.zeros(_FIRST_SLOTS, np.int32)

    def __len__(self) -> int:
        return self.count

    @property
    def keys(self) -> np.ndarray:
        """The keys by their numbers, int64; a view, valid until more keys are numbered."""
        return self._keys[: self.count]

    @property
    def nbytes(self) -> int:
        """Memory that is in use, in bytes."""
        return self.keys.nbytes + self._table.nbytes

    def number(self, keys: np.ndarray) -> np.ndarray:
        """Numbers of keys, new ones included.

        Parameters
        ----------
        keys : ndarray of int64, shape (n,)

        Returns
        -------
        ndarray of int32, shape (n,)

        Raises
        ------
        FlextraceError
            There are more than 2^31 - 1 distinct keys.
        """
        numbers = np.empty(len(keys), np.int32)
        done = 0
        while True:
            done, self.count = _number(keys, done, self._table, self._keys, self.count, numbers)
            if done == len(keys):
                return numbers
            self._grow()

    def _grow(self) -> None:
        if self.count >= _NUMBERS_MAX:
            raise FlextraceError(f"more than {_NUMBERS_MAX} distinct blocks: characterize a part of the trace ('cut')")
        slots = 2 * len(self._table)
        # The old table is given back before the new one is filled: the keys alone are enough to fill it.
        self._table = np.zeros(0, np.int32)
        self._keys = grown(self._keys, min(int(slots * _LOAD_MAX), _NUMBERS_MAX))
        self._table = zeros((slots,), np.int32)
        _fill(self._keys[: self.count], self._table)


def grown(array: np.ndarray, size: int, fill: int = 0) -> np.ndarray:
    """The array with room for `size` elements (of its first axis); what is new is `fill`.

    New pages take no memory before they are written to, but for a `fill` other than 0.
    """
    larger = zeros((size, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    if fill:
        larger[len(array) :] = fill
    return larger


def zeros(shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray:
    """An array of zeros whose memory, if it is much, is given back as soon as the array is gone.

    The C library keeps what was freed of some MiB for later, in holes that arrays which grow never fit into.
    """
    count = math.prod(shape)
    if count * np.dtype(dtype).itemsize < _MAPPED_BYTES:
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, count * np.dtype(dtype).itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # What is looked up at random then misses no translation of its address; a kernel without huge pages refuses.
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype, count).reshape(shape)


def room_for(array: np.ndarray, size: int, fill: int = 0) -> np.ndarray:
    """The array, with at least `size` elements; it at least doubles, so that many small steps cost no more than one."""
    return array if len(array) >= size else grown(array, max(size, 2 * len(array), 64), fill)


@numba.njit(cache=True, inline="always")
def _slot_of(key: np.int64, slots: int) -> int:
    """First slot to look at: a line by the key's upper bits, a place in it by the lower ones, turned by the upper."""
    spread = np.uint64(key >> _LINE_BITS) * _SPREAD
    spread ^= spread >> np.uint64(32)
    line = np.int64(spread) << _LINE_BITS
    return (line | ((key + np.int64(spread >> np.uint64(40))) & (2**_LINE_BITS - 1))) & (slots - 1)


@numba.njit(cache=True, nogil=True)
def _number(  # noqa: PLR0917 (a kernel has its state in arguments)
    keys: np.ndarray, done: int, table: np.ndarray, known: np.ndarray, count: int, numbers: np.ndarray
) -> tuple[int, int]:
    """Number keys from `done` on; returns how many are done (fewer than all if there is no room) and distinct ones."""
    slots = len(table)
    room = len(known)
    slot_of, places = np.empty(_TOGETHER, np.int64), np.empty(_TOGETHER, np.int64)
    found, there = np.empty(_TOGETHER, np.int32), np.empty(_TOGETHER, np.int64)
    for begin in range(done, len(keys), _TOGETHER):
        end = min(begin + _TOGETHER, len(keys))
        left = _find(keys[begin:end], table, known, numbers[begin:end], slot_of, places, found, there)
        for place in places[:left]:
            key = keys[begin + place]
            slot = slot_of[place]
            while table[slot] != 0 and known[table[slot] - 1] != key:
                slot = (slot + _STEP) & (slots - 1)
            if table[slot] == 0:
                if count == room:
                    return begin + place, count
                known[count] = key
                count += 1
                table[slot] = count
            numbers[begin + place] = table[slot] - 1
    return len(keys), count


@numba.njit(cache=True, nogil=True)
def _find(  # noqa: PLR0917 (a kernel has its state in arguments)
    keys: np.ndarray,
    table: np.ndarray,
    known: np.ndarray,
    numbers: np.ndarray,
    slot_of: np.ndarray,
    places: np.ndarray,
    found: np.ndarray,
    there: np.ndarray,
) -> int:
    """Number the keys that are in one of the first slots for them; the others' places and next slots are listed.

    No branch waits for memory: the look-ups of all keys are under way together (group prefetching: Chen, Ailamaki,
    Gibbons and Mowry, *Improving Hash Join Performance through Prefetching*, ICDE 2004).
    """
    slots = len(table)
    left = len(keys)
    for place in range(left):
        slot_of[place] = _slot_of(keys[place], slots)
        places[place] = place
    for _ in range(_ROUNDS):
        for at in range(left):
            found[at] = table[slot_of[places[at]]] - 1
        for at in range(left):
            there[at] = known[max(found[at], 0)]
        missed = 0
        for at in range(left):
            place = places[at]
            numbers[place] = found[at]
            slot_of[place] = (slot_of[place] + (_STEP if found[at] >= 0 else 0)) & (slots - 1)
            places[missed] = place
            missed += 1 - ((found[at] >= 0) & (there[at] == keys[place]))
        left = missed
    return left


@numba.njit(cache=True, nogil=True)
def _fill(keys: np.ndarray, table: np.ndarray) -> None:
    """Enter keys, all different, into an empty table."""
    slots = len(table)
    for number in range(len(keys)):
        slot = _slot_of(keys[number], slots)
        while table[slot] != 0:
            slot = (slot + _STEP) & (slots - 1)
        table[slot] = number + 1
