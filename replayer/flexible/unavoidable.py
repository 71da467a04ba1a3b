# SPDX-License-Identifier: Apache-2.0
"""Turns requests and a wanted footprint into how far their miss-ratio curve must move, wherever they are put.

A cache misses the first reference to every block, of which there are as many as the footprint fills at least; the
requests have no more references than their sizes and runs allow. And it hits where a sequential request begins in the
block in which the one before it ended a short while ago; a run has no more blocks that can be missed than its bytes
reach, and at least as many references as requests. Both are shares of the same references: more of them make the first
ones a smaller share, and those that are hit anywhere a larger one. All follows from the footprint and from the sizes,
runs, order and alignment of the requests, where these are as far off as is tolerated. Where an alteration puts the
requests has no part in it, so that none is excused by what it did.
"""

from __future__ import annotations

import numpy as np

from characterize.references import BLOCK_BYTES
from replayer.flexible.curve import POINTS
from replayer.flexible.draft import Draft
from replayer.flexible.manifest import ACCEPTED


def least_error(miss_ratio: np.ndarray, draft: Draft, unique_bytes: float, *, runs_stay: bool = True) -> float:
    """Mean difference to a curve that is left with the sizes of a draft's requests on about `unique_bytes`.

    Parameters
    ----------
    miss_ratio : ndarray
        The curve that is to be held.
    draft : Draft
        With the wanted sizes; where the requests are does not matter, but for what their offsets are multiples of.
    unique_bytes : float
    runs_stay : bool
        Requests that are sequential stay so, and their order stays; else neither is known.
    """
    first, missed, fewest, most = _counts(draft, unique_bytes, runs_stay=runs_stay)
    # What is off is convex in 1 / references, with bends where one of the limits meets a point of the curve.
    bends = np.concatenate([miss_ratio / first, miss_ratio / missed])
    part = np.clip(np.append(bends, [1 / most, 1 / fewest]), 1 / most, 1 / fewest)[:, np.newaxis]
    low, high = np.minimum(first * part, 1), np.minimum(missed * part, 1)
    off = np.maximum(np.maximum(low - miss_ratio, miss_ratio - high), 0).mean(axis=1)
    return round(float(off.min()), 12)


def _counts(draft: Draft, unique_bytes: float, *, runs_stay: bool) -> tuple[float, float, float, float]:
    """First references at least, those that any cache may miss at most; of all references how few and how many are."""
    start, end, file = draft.intervals()
    size, alignment = end - start, draft.alignment(file, start)
    alignment = np.where(start % alignment == 0, alignment, 1)
    most = _most_blocks(size, alignment)
    order, begins = np.arange(len(start)), np.ones(len(start), bool)
    if runs_stay:
        order, run = draft.runs()
        begins = np.diff(run, prepend=-1) > 0

    def of_runs(begins: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """First request of every run, blocks that it touches at most, and its requests."""
        first = np.flatnonzero(begins)
        blocks = _most_blocks(np.add.reduceat(size[order], first), alignment[order][first])
        return first, blocks, np.diff(np.append(first, len(begins)))

    first, blocks, requests = of_runs(begins)
    # A request of a run shares at most one block with the one before it.
    references = np.minimum(np.add.reduceat(most[order], first), blocks + requests - 1)
    cuts = ACCEPTED * len(start)
    references_most = min(references.sum() + cuts, most.sum())
    # What was referenced since the one before must not be more than the smallest cache holds.
    before, _ = draft.streams()
    reached = np.cumsum(most)
    far = reached - most - reached[before] >= (1 - ACCEPTED) * unique_bytes // (BLOCK_BYTES * POINTS)
    _, blocks, requests = of_runs(begins | far[order])
    first_references = (1 - ACCEPTED) * unique_bytes / BLOCK_BYTES
    references_least = min(np.maximum(blocks, requests).sum(), references_most)
    # Each part of a run that is cut may begin and end in the middle of a block: two of them touch two blocks more.
    return first_references, blocks.sum() + 2 * cuts, references_least, references_most


def _most_blocks(size: np.ndarray, alignment: np.ndarray) -> np.ndarray:
    """Blocks that so many bytes touch at most if they begin at a multiple of the alignment."""
    return (size + 2 * BLOCK_BYTES - 1 - alignment) // BLOCK_BYTES
