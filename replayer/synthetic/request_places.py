# SPDX-License-Identifier: Apache-2.0
"""Turns sizes and the wish "sequential or not" into offsets in one file, request by request (compiled), for Willy.

All positions are in units. A request that is not sequential starts at a random place (depth family uniform: in a stack
that holds the whole file a uniformly drawn LRU depth is a uniformly drawn place), or at the block found at a drawn
depth of the LRU stack (Rau 1979, as in Chen 1992, 3.4.1.1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from replayer.flexible.place_stack import at_depth, empty_stack, touch


class Wishes(NamedTuple):
    """What the requests of one process are to be like, in their order.

    Attributes
    ----------
    sizes : ndarray of int64, shape (n,)
    starts : ndarray of bool, shape (n,)
        True: not sequential. The first one is.
    planned : ndarray of int64, shape (n,)
        Of a start that covers a certain part of the file, its offset; else -1.
    locked : ndarray of bool, shape (n,)
        Requests whose wish must not be changed, since the coverage of the file depends on it.
    draws : ndarray of float64, shape (n,)
        Uniform in [0, 1).
    depths : ndarray of int64, shape (n,) or (0,)
        Drawn LRU depths, in blocks above the wanted one; empty for uniform.
    primed : ndarray of int64
        Blocks that are in the stack when the trace begins, least recently used first.
    """

    sizes: np.ndarray
    starts: np.ndarray
    planned: np.ndarray
    locked: np.ndarray
    draws: np.ndarray
    depths: np.ndarray
    primed: np.ndarray


@njit(cache=True)
def place(wishes: Wishes, file_units: int, largest_units: int, step: int, block_units: int) -> np.ndarray:
    """Choose the offset of every request of one process.

    The end of the file is the one place where a sequential request cannot follow: it starts over at the beginning,
    which is not sequential, and a later wish for a start is dropped for it, so that seqFrac stays. A request that meets
    the end is cut there, and the following one is longer by the rest, so that the sum of the sizes stays.

    Parameters
    ----------
    wishes : Wishes
        Sizes are changed in place where a request meets the end of the file.
    file_units, largest_units, step : int
        Size of the file, and of the largest request; starts are multiples of `step`.
    block_units : int
        Size of a block of the LRU stack.

    Returns
    -------
    ndarray of int64, shape (n,)
    """
    sizes, starts, planned, depths = wishes.sizes, wishes.starts, wishes.planned, wishes.depths
    count = len(sizes)
    offsets = np.empty(count, np.int64)
    stacked = len(depths) > 0
    block_count = (file_units + block_units - 1) // block_units if stacked else 1
    stack = empty_stack(block_count)
    for block in wishes.primed:
        touch(stack, block)
    end = -1
    run_units = _units_to_next_start(sizes, starts)
    owed = 0  # starts that happened and were not wished for (negative: the reverse)
    carry = 0
    for i in range(count):
        extra = min(carry, largest_units - sizes[i])
        sizes[i] += extra
        carry -= extra
        start = starts[i]
        at_end = end >= file_units
        if not wishes.locked[i] and i > 0 and not at_end and ((start and owed > 0) or (not start and owed < 0)):
            owed += -1 if start else 1
            start = not start
        if not start:
            offset = 0 if at_end else end
            owed += at_end
        elif planned[i] >= 0:
            offset = int(planned[i])
            owed -= offset == end
        else:
            offset = end
            if stacked and depths[i] < stack.state[1]:
                for deeper in range(2):
                    if offset == end:
                        block = at_depth(stack, (depths[i] + deeper) % stack.state[1])
                        offset = min(block * block_units, file_units - sizes[i])
            if offset == end or not stacked:
                # In debt, a run starts where it will not meet the end of the file again.
                room = max(sizes[i], run_units[i]) if owed > 0 and run_units[i] <= file_units else sizes[i]
                follower = planned[i + 1] - sizes[i] if i + 1 < count and starts[i + 1] else -1
                offset = random_place(wishes.draws[i], (file_units - room) // step + 1, step, end, follower)
        beyond = max(offset + sizes[i] - file_units, 0)
        carry += beyond
        sizes[i] -= beyond
        end = offset + sizes[i]
        if stacked:
            for block in range(offset // block_units, (end - 1) // block_units + 1):
                touch(stack, block)
        offsets[i] = offset
    _give_away(carry, sizes, offsets, file_units, largest_units)
    return offsets


@njit(cache=True)
def _units_to_next_start(sizes: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """From each request to the next wish for a start."""
    run_units = np.zeros(len(sizes), np.int64)
    for i in range(len(sizes) - 1, -1, -1):
        run_units[i] = sizes[i] + (run_units[i + 1] if i + 1 < len(sizes) and not starts[i + 1] else 0)
    return run_units


@njit(cache=True)
def _give_away(carry: int, sizes: np.ndarray, offsets: np.ndarray, file_units: int, largest_units: int) -> None:
    """What the last cut left over: requests that nothing continues take it."""
    for i in range(len(sizes) - 1, -1, -1):
        if carry == 0:
            break
        end = int(offsets[i] + sizes[i])
        extra = min(carry, file_units - end, largest_units - sizes[i])
        if i == len(sizes) - 1 or (offsets[i + 1] != end and offsets[i + 1] != end + extra):
            sizes[i] += extra
            carry -= extra


@njit(cache=True)
def random_place(draw: float, places: int, step: int, end: int, follower: int) -> int:
    """One of `places` multiples of `step`, but neither `end` (that were sequential) nor, if possible, `follower`."""
    first = end // step if end >= 0 and end % step == 0 and end // step < places else -1
    second = follower // step if follower >= 0 and follower % step == 0 and follower // step < places else -1
    if second == first or places - (first >= 0) < 2:
        second = -1
    free = places - (first >= 0) - (second >= 0)
    if free < 1:
        return 0
    chosen = int(draw * free)
    low, high = min(first, second), max(first, second)
    if low >= 0 and chosen >= low:
        chosen += 1
    if high >= 0 and chosen >= high:
        chosen += 1
    return chosen * step
