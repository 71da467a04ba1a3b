# SPDX-License-Identifier: Apache-2.0
"""Turns a footprint into a larger one: what returns to the same place is sent, whole runs at a time, to other places.

Where to is a question of reuse. What is used in regular intervals (a file read again and again) goes one length of the
file further at every return, around a circle that is as large as the new file; what is used at random goes anywhere on
it. So all places stay equally hot. Where most is used again soon (the first pages of a database), all of that would be
later; there data moves on to a new place after some uses and never comes back, so that what is left behind is what the
footprint has in addition. `replayer.flexible.unique_bytes` takes what holds the miss-ratio curve best.
"""

from __future__ import annotations

import numpy as np

from characterize.counting.intervals import union_length
from replayer.flexible.draft import Draft
from replayer.flexible.fold import lay_out_by_first_use
from replayer.flexible.places import search, turns_of

GROWTH_MAX = 256.0
ROUND_BYTES = 4096


def spread_by_unrolling(draft: Draft, target: float, generator: np.random.Generator, *, at_random: bool) -> float:
    """Send every return a length of the file further around a circle as large as the new file, or anywhere on it."""
    start, end, file = draft.intervals()
    unit, _, turn = turns_of(draft)
    begins = np.full(int(unit.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(begins, unit, start)
    begin = begins[unit]
    ahead = generator.integers(0, 2**15, int(unit.max()) + 1)[unit] if at_random else turn
    span = _extents(draft)
    existing = _existing(draft)
    best = (float(draft.unique_bytes()), np.zeros(len(start), np.int64))
    for allowed in (existing, np.ones(len(start), bool)):

        def shifted(factor: float, allowed: np.ndarray = allowed) -> tuple[float, np.ndarray]:
            circle = np.ceil(span * factor / ROUND_BYTES).astype(np.int64) * ROUND_BYTES
            # A random place of the circle, in steps that keep places apart or equal.
            step = np.where(at_random, ahead % np.maximum(circle // ROUND_BYTES, 1) * ROUND_BYTES, ahead * span)
            shift = np.where(allowed, (begin + step) % circle - begin, 0)
            return float(union_length(start + shift, end + shift, file)), shift

        reached, shift = search(shifted, target, 1.0, GROWTH_MAX, geometric=True)
        best = min(best, (reached, shift), key=lambda result: abs(result[0] - target))
        if reached >= target * 0.99:
            break
    draft.note("uniqueBytes", unrolled=True)
    draft.shift(best[1])
    return best[0]


def spread_by_moving(draft: Draft, target: float, generator: np.random.Generator, *, filled: bool = False) -> float:
    """Send every place on to a new one after so many returns, equally often all of them, and put what is used together.

    Each begins at a random part of that many, so that also those with fewer returns move. What had no block in common
    has none then, unless blocks are to be `filled`.
    """
    start, end, file = draft.intervals()
    _, place, turn = turns_of(draft)
    phase = generator.random(int(place.max()) + 1)[place]
    span = _extents(draft)
    for allowed in (_existing(draft), np.ones(len(start), bool)):

        def shifted(share: float, allowed: np.ndarray = allowed) -> tuple[float, np.ndarray]:
            shift = np.where(allowed, np.floor(turn * share + phase).astype(np.int64) * span, 0)
            return float(union_length(start + shift, end + shift, file)), shift

        best = shifted(1.0)
        if best[0] >= target:
            best = search(shifted, target, 0.0, 1.0)
            break
    draft.note("uniqueBytes", moved_on=True)
    draft.shift(best[1])
    lay_out_by_first_use(draft, generator, of_blocks=not filled)
    return best[0]


def _existing(draft: Draft) -> np.ndarray:
    """Which requests are on files that exist before the trace, bool, shape (n,)."""
    return ~np.isin(draft.intervals()[2], np.concatenate([draft.created(), draft.reborn()]))


def _extents(draft: Draft) -> np.ndarray:
    """Of every request the length of its file, rounded up; int64, shape (n,)."""
    return -(-draft.file_ends() // ROUND_BYTES) * ROUND_BYTES
