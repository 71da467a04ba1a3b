# SPDX-License-Identifier: Apache-2.0
"""Turns references to numbered blocks into their LRU stack depths, a batch at a time.

The *depth* of a reference is the number of distinct other blocks touched since the last reference to the same block.
Every reference takes the next *slot* (a compacted time) and frees its block's old one; the depth is the number of live
slots behind the old one. Slots are bits of 64-bit words with a Fenwick tree over groups of two words (Bennett and
Kruskal 1975, with the times compacted), which keeps the tree within the processor's cache. The group that slots are
taken from enters the tree when it is full.

O(log M) steps a reference for M distinct blocks, and about 13 bytes a block: its slot, and two slots with their owners.
"""

from __future__ import annotations

import numba
import numpy as np

from characterize.counting.numbering import room_for, zeros

_SLOTS_PER_WORD = 64
# `_depths` counts on two.
_GROUP_WORDS = 2
_SLOTS_PER_GROUP = _SLOTS_PER_WORD * _GROUP_WORDS
# How many references earlier a slot is asked for, since it is in no near cache.
_AHEAD = 12
COLD = -1


class LruStack:
    """The blocks touched so far, the newest on top.

    Attributes
    ----------
    living : int
        Distinct blocks on the stack.
    """

    def __init__(self) -> None:
        self.living = 0
        self._next = 0
        self._slot_of = np.zeros(0, np.int32)
        self._set_slots(1)

    @property
    def nbytes(self) -> int:
        """Memory that is in use, in bytes."""
        return 4 * self.living + self._owner_of.nbytes + self._live.nbytes + self._tree.nbytes

    def depths(self, numbers: np.ndarray, distinct: int) -> np.ndarray:
        """Reference blocks one after the other.

        Parameters
        ----------
        numbers : ndarray of int32, shape (n,)
            Numbers of blocks (`characterize.counting.numbering`).
        distinct : int
            All numbers so far are smaller.

        Returns
        -------
        ndarray of int32, shape (n,)
            Depth of each reference in blocks; `COLD` where it is the first to its block.
        """
        self._slot_of = room_for(self._slot_of, distinct, COLD)
        depths = np.empty(len(numbers), np.int32)
        done = 0
        while True:
            before, begin, slots = done, self._next, len(self._owner_of)
            done, self._next, self.living = _depths(
                numbers, done, self._slot_of, slots, self._live, self._tree, self._next, self.living, depths
            )
            # Every reference took the next slot.
            self._owner_of[begin : self._next] = numbers[before:done]
            if done == len(numbers):
                return depths
            self._make_room()

    def append(self, first: np.ndarray, oldest_first: np.ndarray, distinct: int) -> np.ndarray:
        """Reference blocks whose references among each other were followed on a stack of their own.

        What was cold there has a depth here if the block is on this stack: those above it that were not referenced
        since, and those that were. To reference the blocks once in the order of their first references gives just that
        (local infinities of PARDA: Niu, Dinan, Lu and Sadayappan, IPDPS 2012).

        Parameters
        ----------
        first, oldest_first : ndarray of int32
            Numbers here of the blocks by their first references, and from the bottom to the top of their stack.
        distinct : int
            All numbers so far are smaller.

        Returns
        -------
        ndarray of int32, shape of `first`
            Depth of the first references; `COLD` where it is the first one here, too.
        """
        depths = self.depths(first, distinct)
        self.depths(oldest_first, distinct)
        return depths

    def oldest_first(self) -> np.ndarray:
        """The blocks on the stack, from its bottom to its top; int32, shape (living,)."""
        self._next = _compact(self._slot_of, self._owner_of, self._live, self._next)
        _rebuild(self._live, self._tree, self._next)
        return self._owner_of[: self._next].copy()

    def _make_room(self) -> None:
        """Close the gaps. Twice as many slots as live blocks: O(M), and at most once in M references."""
        self._next = _compact(self._slot_of, self._owner_of, self._live, self._next)
        groups = -(-2 * self.living // _SLOTS_PER_GROUP)
        if groups * _SLOTS_PER_GROUP > len(self._owner_of):
            owners = self._owner_of[: self._next].copy()
            self._set_slots(groups)
            self._owner_of[: len(owners)] = owners
            _set_first(self._live, self._next)
        _rebuild(self._live, self._tree, self._next)

    def _set_slots(self, groups: int) -> None:
        # The old ones are given back first.
        self._owner_of = np.zeros(0, np.int32)
        self._owner_of = zeros((groups * _SLOTS_PER_GROUP,), np.int32)
        self._live = np.zeros(groups * _GROUP_WORDS, np.uint64)
        self._tree = np.zeros(groups + 1, np.int32)


@numba.njit(cache=True, inline="always")
def _ones(word: np.uint64) -> np.int64:
    """Number of set bits."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True, inline="always")
def _live_in(live: np.ndarray, group: int) -> np.int64:
    """Live slots of a group."""
    count = np.int64(0)
    for word in range(group * _GROUP_WORDS, (group + 1) * _GROUP_WORDS):
        count += _ones(live[word])
    return count


@numba.njit(cache=True, inline="always")
def _change(tree: np.ndarray, group: int, by: np.int64) -> None:
    """Count so many more live slots in a group."""
    node = np.uint64(group + 1)
    while node < np.uint64(len(tree)):
        tree[node] += by
        node += node & (~node + np.uint64(1))


@numba.njit(cache=True, nogil=True)
def _rebuild(live: np.ndarray, tree: np.ndarray, next_slot: int) -> None:
    """Fill a Fenwick tree over the live slots of every group that is full, in O(groups)."""
    tree[:] = 0
    full = next_slot // _SLOTS_PER_GROUP
    for node in range(1, len(tree)):
        if node <= full:
            tree[node] += _live_in(live, node - 1)
        parent = node + (node & -node)
        if parent < len(tree):
            tree[parent] += tree[node]


@numba.njit(cache=True, nogil=True)
def _set_first(live: np.ndarray, slots: int) -> None:
    """Exactly the first slots live."""
    live[:] = 0
    for slot in range(slots):
        live[slot >> 6] |= np.uint64(1) << np.uint64(slot & 63)


@numba.njit(cache=True, nogil=True)
def _compact(slot_of: np.ndarray, owner_of: np.ndarray, live: np.ndarray, slots: int) -> int:
    """Move the live slots to the front in their order; returns how many there are."""
    used = 0
    for slot in range(slots):
        if (live[slot >> 6] >> np.uint64(slot & 63)) & np.uint64(1):
            owner = owner_of[slot]
            owner_of[used] = owner
            slot_of[owner] = used
            used += 1
    _set_first(live, used)
    return used


@numba.njit(cache=True, nogil=True)
def _depths(  # noqa: PLR0917 (a kernel has its state in arguments)
    numbers: np.ndarray,
    done: int,
    slot_of: np.ndarray,
    slots: int,
    live: np.ndarray,
    tree: np.ndarray,
    next_slot: int,
    living: int,
    depths: np.ndarray,
) -> tuple[int, int, int]:
    """Depths from `done` on; returns how many are done (fewer than all if the slots are used up), next slot, living."""
    for place in range(done, len(numbers)):
        if next_slot == slots:
            return place, next_slot, living
        if place + _AHEAD < len(numbers):
            depths[place + _AHEAD] = slot_of[numbers[place + _AHEAD]]  # so that it comes; written anew below
        # Unsigned numbers of elements need no look whether they count from the end.
        number = np.uint64(numbers[place])
        old = int(slot_of[number])
        if old < 0:
            living += 1
            depths[place] = COLD
        else:
            word, group = old >> 6, old // _SLOTS_PER_GROUP
            # Bits 0 ... old of the word, those of the word before it and of the groups before: not newer than it.
            upto = _ones(live[word] & (~np.uint64(0) >> np.uint64(63 - (old & 63))))
            # All bits of the first word, if it is the one before, without a branch: every other time it would be wrong.
            upto += _ones(live[group * _GROUP_WORDS]) & -(word & 1)
            node = np.uint64(group)
            while node > np.uint64(0):
                upto += tree[node]
                node &= node - np.uint64(1)
            depths[place] = living - upto
            live[word] &= ~(np.uint64(1) << np.uint64(old & 63))
            if group < next_slot // _SLOTS_PER_GROUP:
                _change(tree, group, np.int64(-1))
        slot_of[number] = next_slot
        live[next_slot >> 6] |= np.uint64(1) << np.uint64(next_slot & 63)
        next_slot += 1
        if next_slot % _SLOTS_PER_GROUP == 0:
            group = next_slot // _SLOTS_PER_GROUP - 1
            _change(tree, group, _live_in(live, group))
    return len(numbers), next_slot, living
