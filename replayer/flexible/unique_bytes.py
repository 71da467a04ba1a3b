# SPDX-License-Identifier: Apache-2.0
"""Turns a footprint into a larger or a smaller one while the requests keep their sizes and their order.

There is more than one way for either (`replayer.flexible.spread`, `replayer.flexible.fold`), and none is best for all
traces. All are tried; of those that meet the target and keep the runs, the one is taken whose miss-ratio curve over
cache / uniqueBytes is nearest to that of the parent. Where none holds it, requests may leave their files
(`replayer.flexible.by_depth`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from characterize.units import format_bytes
from replayer.flexible.begins import begin_apart
from replayer.flexible.by_depth import place_by_depths
from replayer.flexible.curve import CURVE_HELD, apart, curve_of_requests
from replayer.flexible.draft import Draft, UnreachableError
from replayer.flexible.fill import fill_blocks
from replayer.flexible.fold import fold_evenly
from replayer.flexible.manifest import RUNS_TOLERANCE, accepted
from replayer.flexible.places import TOLERANCE
from replayer.flexible.spread import spread_by_moving, spread_by_unrolling
from replayer.flexible.unavoidable import least_error

# Shares of short-lived files that are tried to be found in any cache.
LATEST = (0.2, 0.3, 0.4)

Way = Callable[[Draft, float], float]


def change_unique_bytes(
    draft: Draft,
    target: float,
    generator: np.random.Generator,
    like: Draft | None = None,
    *,
    curve_held: float = CURVE_HELD,
) -> None:
    """Make the union of all requests `target` bytes.

    Parameters
    ----------
    draft : Draft
        Changed in place.
    target : float
    generator : Generator
    like : Draft
        The same requests, perhaps with other sizes, whose miss-ratio curve is to be held; default `draft`.
    curve_held : float
        By how much that may be off more than it has to.

    Raises
    ------
    UnreachableError
        The message has the reachable range.
    """
    unique = draft.unique_bytes()
    if abs(target / unique - 1) <= TOLERANCE:
        return
    like = like or draft
    before = curve_of_requests(*like.intervals())
    held = least_error(before, draft, target) + curve_held
    by_depth = partial(place_by_depths, generator=generator, like=like, held=held)
    around, anywhere = (
        partial(spread_by_unrolling, generator=generator, at_random=at_random) for at_random in (False, True)
    )
    moving = partial(spread_by_moving, generator=generator)
    filled = _behind(fill_blocks, partial(moving, filled=True))
    stages: list[list[Way]] = [[around, anywhere, moving], [filled], [_behind(begin_apart, by_depth)]]
    if target < unique:
        fewer: list[Way] = [
            fold_evenly,
            partial(fold_evenly, unrolled=True),
            partial(fold_evenly, by_first_use=generator),
        ]
        stages = [fewer, [partial(fold_evenly, latest=share) for share in LATEST], [by_depth]]
    start, end, _ = draft.intervals()
    size = end - start
    enough = accepted(float(size.mean()) / target)
    if not size.max() / (1 + enough) <= target <= size.sum() / (1 - enough):
        # None reaches it; these come the furthest.
        stages = [[anywhere, moving] if target > unique else [fold_evenly]]
    best, reached = _best_of(stages, draft, target, before, (enough, held))
    if abs(reached / target - 1) > enough:
        other = fold_evenly(draft.copy(), 1) if target > unique else anywhere(draft.copy(), float(size.sum()))
        low, high = sorted([reached, float(unique), other])[::2]
        if low == high:
            # Nothing can be moved: what is accepted is what is as near as a target has to be met.
            low, high = low / (1 + enough), high / (1 - enough)
        raise UnreachableError(
            f"uniqueBytes {format_bytes(target)} is not reachable: no byte is unique more often than it is moved, and "
            f"requests fit into no less than themselves; reachable is about {format_bytes(low)} to "
            f"{format_bytes(high)}",
            low,
            high,
        )
    draft.io, draft.fileops, draft.files, draft.paths = best.io, best.fileops, best.files, best.paths
    draft.note_all(best.notes)


def _behind(step: Callable[[Draft], None], way: Way) -> Way:
    def both(draft: Draft, target: float) -> float:
        step(draft)
        return way(draft, target)

    return both


def _best_of(
    stages: list[list[Way]], draft: Draft, target: float, before: np.ndarray, held: tuple[float, float]
) -> tuple[Draft, float]:
    """The draft that the best way makes, and the footprint that it reaches.

    `held` is by how much the footprint and the curve may be off; ways of a later stage are tried where none before is
    within that.
    """
    sequential = float(draft.sequential().mean())
    best: tuple[tuple[float, float, float], Draft, float] | None = None
    for ways in stages:
        if best is not None and best[0] <= (0, 0, held[1]):
            break
        for way in ways:
            tried = draft.copy()
            reached = way(tried, target)
            off = abs(reached / target - 1)
            broken = abs(float(tried.sequential().mean()) - sequential)
            bent = apart(before, curve_of_requests(*tried.intervals()))
            rank = max(off - held[0], 0), max(broken - RUNS_TOLERANCE, 0), bent
            if best is None or rank < best[0]:
                best = rank, tried, reached
    assert best is not None
    return best[1:]
