# SPDX-License-Identifier: Apache-2.0
"""An LRU stack of places that finds depths of places and places by depth; and places that were never used (compiled).

Places stand in slots of time, and a Fenwick tree counts those that are taken (Rau 1979).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit


class Stack(NamedTuple):
    """Fenwick tree, place of every slot (-1: none), slot of every place (-1: not in); and (next slot, places)."""

    tree: np.ndarray
    owner: np.ndarray
    slot: np.ndarray
    state: np.ndarray


@njit(cache=True)
def empty_stack(places: int) -> Stack:
    """A stack in which so many places have room."""
    capacity = 2 * places + 64
    return Stack(
        np.zeros(capacity + 1, np.int64),
        np.full(capacity, -1, np.int64),
        np.full(places, -1, np.int64),
        np.zeros(2, np.int64),
    )


@njit(cache=True)
def touch(stack: Stack, place: int) -> None:
    """Move a place to the top of the stack; O(log places)."""
    if stack.slot[place] >= 0:
        _count(stack.tree, stack.slot[place], -1)
        stack.owner[stack.slot[place]] = -1
    else:
        stack.state[1] += 1
    if stack.state[0] == len(stack.owner):
        _compact(stack)
    slot = stack.state[0]
    stack.owner[slot] = place
    stack.slot[place] = slot
    _count(stack.tree, slot, 1)
    stack.state[0] += 1


@njit(cache=True)
def depth_of(stack: Stack, place: int) -> int:
    """How many places are above one."""
    below, index = 0, stack.slot[place] + 1
    while index > 0:
        below += stack.tree[index]
        index -= index & -index
    return stack.state[1] - below


@njit(cache=True)
def at_depth(stack: Stack, depth: int) -> int:
    """The place below `depth` others; O(log places)."""
    rank = stack.state[1] - depth
    position, bit = 0, 1
    while bit * 2 < len(stack.tree):
        bit *= 2
    while bit:
        if position + bit < len(stack.tree) and stack.tree[position + bit] < rank:
            position += bit
            rank -= stack.tree[position]
        bit //= 2
    return stack.owner[position]


@njit(cache=True)
def _count(tree: np.ndarray, slot: int, change: int) -> None:
    index = slot + 1
    while index < len(tree):
        tree[index] += change
        index += index & -index


@njit(cache=True)
def _compact(stack: Stack) -> None:
    """Close the gaps that moved places left behind."""
    kept = 0
    for slot in range(len(stack.owner)):
        if stack.owner[slot] >= 0:
            stack.owner[kept] = stack.owner[slot]
            stack.slot[stack.owner[kept]] = kept
            kept += 1
    stack.owner[kept:] = -1
    stack.tree[:] = 0
    for index in range(1, len(stack.tree)):
        if index <= kept:
            stack.tree[index] += 1
        parent = index + (index & -index)
        if parent < len(stack.tree):
            stack.tree[parent] += stack.tree[index]
    stack.state[0] = kept


@njit(cache=True)
def next_unused(unused: np.ndarray, place: int) -> int:
    """The first place from `place` on that was never used; `unused` has of each the next that may be (union-find)."""
    root = place
    while unused[root] != root:
        root = unused[root]
    while unused[place] != root and place != root:
        unused[place], place = root, unused[place]
    return root
