# SPDX-License-Identifier: Apache-2.0
"""Turns where in their blocks runs begin so that more of their references can miss a cache.

A request that begins in the middle of the block in which the one before it ended finds that in any cache. And of more
references the first ones, which no cache has, are a smaller share. So where data is to be used more rarely, requests
that follow each other should meet at a block's border, and reach over other borders.
"""

from __future__ import annotations

import numpy as np

from characterize.references import BLOCK_BYTES
from replayer.flexible.draft import ALIGNMENTS, Draft

# A hit in any cache costs the curve as much as so many more references help it.
HIT_REFERENCES = 1.5


def begin_apart(draft: Draft) -> None:
    """Move every run by less than a block, by multiples of its file's alignment, to where that is best for it."""
    start, end, file = draft.intervals()
    order, run = draft.runs()
    first = np.flatnonzero(np.diff(run, prepend=-1))
    smallest = min(ALIGNMENTS)
    grid = np.maximum(draft.alignment(file, start), smallest)[order][first]
    begin, end, follows = start[order], end[order], draft.sequential()[order]
    best, most = np.zeros(len(first), np.int64), np.full(len(first), -np.inf)
    for move in range(0, BLOCK_BYTES, smallest):
        references = (end + move - 1) // BLOCK_BYTES - (begin + move) // BLOCK_BYTES + 1
        hits = follows & ((begin + move) % BLOCK_BYTES != 0)
        worth = np.add.reduceat(references - HIT_REFERENCES * hits, first)
        better = (worth > most) & (move % grid == 0)
        best[better], most[better] = move, worth[better]
    shift = np.empty(len(order), np.int64)
    shift[order] = best[run]
    draft.shift(shift)
