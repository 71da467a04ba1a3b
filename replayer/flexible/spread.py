# SPDX-License-Identifier: Apache-2.0
"""Turns a footprint into a larger one: what returns to the same place is sent, whole runs at a time, to other places.

Twins stand behind the end of the file. Which returns go to them is a question of reuse: where a place is used in
regular intervals (a file read again and again), every second return makes intervals twice as long; where it is used at
random, a random half of the returns does. A footprint that is not a multiple of the old one is had by twins of some
places, or by unrolling: every return of a place goes one length of the file further, around a circle that is as large
as the new file, so that all places stay equally hot. `replayer.flexible.unique_bytes` takes what holds the miss-ratio
curve best.
"""

from __future__ import annotations

import itertools

import numpy as np

from characterize.counting.intervals import union_length
from replayer.flexible.draft import Draft
from replayer.flexible.places import search, turns_of

COPIES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128, 256)
ROUND_BYTES = 4096


def spread_by_twins(draft: Draft, target: float, generator: np.random.Generator, *, at_random: bool) -> float:
    """Send returns to twins of their places, in turn or at random; first on files that exist before the trace.

    All places have as many twins, or one more, as each other, so that none becomes hotter than it was beside them.
    """
    start, end, file = draft.intervals()
    unit, place, turn = turns_of(draft)
    chance = generator.random(int(place.max()) + 1)[place]
    chosen = generator.integers(0, 2**31, int(unit.max()) + 1)[unit] if at_random else turn
    span = _extents(draft)
    existing = ~np.isin(file, np.concatenate([draft.created(), draft.reborn()]))
    best = (float(draft.unique_bytes()), np.zeros(len(start), np.int64))
    for allowed in (existing, np.ones(len(start), bool)):
        for fewer, copies in itertools.pairwise(COPIES):

            def shifted(
                share: float, allowed: np.ndarray = allowed, fewer: int = fewer, copies: int = copies
            ) -> tuple[float, np.ndarray]:
                shift = np.where(allowed, chosen % np.where(chance < share, copies, fewer) * span, 0)
                return float(union_length(start + shift, end + shift, file)), shift

            all_of_it = shifted(1.0)
            best = max(best, all_of_it, key=lambda result: result[0])
            if all_of_it[0] >= target:
                best = search(shifted, target, 0.0, 1.0)
                draft.note("uniqueBytes", twins=copies - 1, runs_on_new_files=not existing[best[1] > 0].all())
                draft.shift(best[1])
                return best[0]
            if turn.max() < copies:
                break
    draft.shift(best[1])
    return best[0]


def spread_by_unrolling(draft: Draft, target: float, generator: np.random.Generator, *, at_random: bool) -> float:
    """Send every return a length of the file further around a circle as large as the new file, or anywhere on it."""
    start, end, file = draft.intervals()
    unit, _, turn = turns_of(draft)
    begins = np.full(int(unit.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(begins, unit, start)
    begin = begins[unit]
    ahead = generator.integers(0, 2**15, int(unit.max()) + 1)[unit] if at_random else turn
    span = _extents(draft)
    existing = ~np.isin(file, np.concatenate([draft.created(), draft.reborn()]))
    best = (float(draft.unique_bytes()), np.zeros(len(start), np.int64))
    for allowed in (existing, np.ones(len(start), bool)):

        def shifted(factor: float, allowed: np.ndarray = allowed) -> tuple[float, np.ndarray]:
            circle = np.ceil(span * factor / ROUND_BYTES).astype(np.int64) * ROUND_BYTES
            # A random place of the circle, in steps that keep places apart or equal.
            step = np.where(at_random, ahead % np.maximum(circle // ROUND_BYTES, 1) * ROUND_BYTES, ahead * span)
            shift = np.where(allowed, (begin + step) % circle - begin, 0)
            return float(union_length(start + shift, end + shift, file)), shift

        reached, shift = search(shifted, target, 1.0, float(COPIES[-1]), geometric=True)
        best = min(best, (reached, shift), key=lambda result: abs(result[0] - target))
        if reached >= target * 0.99:
            break
    draft.note("uniqueBytes", unrolled=True)
    draft.shift(best[1])
    return best[0]


def _extents(draft: Draft) -> np.ndarray:
    """Of every request the length of its file, rounded up; int64, shape (n,)."""
    return -(-draft.file_ends() // ROUND_BYTES) * ROUND_BYTES
