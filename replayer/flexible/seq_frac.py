# SPDX-License-Identifier: Apache-2.0
"""Turns the places of data in a file around until seqFrac is met: by relabelling, by exchanges, by moves.

Relabelling is a bijection on segments (the smallest parts of a file that no request crosses): fewer sequential requests
by scattering segments that follow each other, more by putting segments next to each other that are used one after the
other. Everything but the places stays: sizes, directions, order, times, threads, uniqueBytes and every LRU stack
distance. Where requests overlap so much that there are no segments, or all neighbours are taken, two requests of one
size and direction on one file exchange their places: that holds all parameters as well, and changes reuse distances.
What is still missing to more sequential requests is had by moving runs behind the run before them; that may uncover
bytes, which `replayer.flexible.unique_bytes` brings back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from characterize.references import BLOCK_BYTES
from replayer.flexible.by_depth import place_by_depths
from replayer.flexible.curve import CURVE_HELD, apart, curve_of_requests
from replayer.flexible.draft import Draft, UnreachableError
from replayer.flexible.exchange import choose_successors, continue_runs, exchange_places
from replayer.flexible.manifest import ACCEPTED

TOLERANCE = 0.001
# A smaller miss is not worth other reuse distances.
EXCHANGE_TOLERANCE = 0.003
ROUNDS = 4
# A larger share is met by so much less where that bends the miss-ratio curve less.
SHORT = 0.008


@dataclass(frozen=True)
class Segments:
    """Parts of files that no request crosses, by (file, address), and the one of every request."""

    low: np.ndarray
    high: np.ndarray
    file: np.ndarray
    grid: np.ndarray
    of_request: np.ndarray


def change_seq_frac(
    draft: Draft, target: float, generator: np.random.Generator, *, curve_held: float = CURVE_HELD
) -> None:
    """Relabel, exchange and move until `target` is met, and the miss-ratio curve off by no more than `curve_held`.

    Raises
    ------
    UnreachableError
        It is not reached; the message has the share that is.
    """
    parent = draft.copy()
    present = float(draft.sequential().mean())
    best = _nearest_curve(parent, target, generator, curve_held)
    draft.io = best.io
    draft.note_all(best.notes)
    achieved = float(draft.sequential().mean())
    if abs(achieved - target) > ACCEPTED:
        _approach(parent, 1.0 if achieved > target else 0.0, generator)
        shares = (achieved, present, float(parent.sequential().mean()))
        low, high = min(shares), max(shares)
        if low == high:
            # Nothing can be moved: what is accepted is what is as near as a target has to be met.
            low, high = max(low - ACCEPTED, 0.0), min(high + ACCEPTED, 1.0)
        raise UnreachableError(
            f"seqFrac {target:g} is not reachable by giving the same requests other places: "
            f"reachable is {low:.3f} to {high:.3f}",
            low,
            high,
        )


def _nearest_curve(parent: Draft, target: float, generator: np.random.Generator, held: float) -> Draft:
    """A copy that meets the target; where moves bend the miss-ratio curve, the moved runs go to places of their depths.

    The last sequential requests bend the most, so a bit fewer are tried as well: a random place needs a jump.
    """
    curve, footprint = curve_of_requests(*parent.intervals()), parent.unique_bytes()
    present = float(parent.sequential().mean())
    best: tuple[tuple[float, float], Draft] | None = None
    for goal in (target, target - SHORT) if target - SHORT > present else (target,):
        plain = parent.copy()
        _approach(plain, goal, generator)
        room = ACCEPTED - abs(float(plain.sequential().mean()) - target)
        # Where that is too few or too many, so it is by depth.
        for by_depth in (False, True) if room >= 0 else (False,):
            tried = plain
            if by_depth:
                tried = plain.copy()
                tried.notes = {"seqFrac": dict(plain.notes["seqFrac"])}
                place_by_depths(tried, footprint, generator, parent, runs_tolerance=room, cuts=room, held=held)
            off = abs(float(tried.sequential().mean()) - target)
            bent = apart(curve, curve_of_requests(*tried.intervals()))
            rank = max(off - ACCEPTED, 0.0), bent
            if best is None or rank < best[0]:
                best = rank, tried
            if rank[0] == 0 and bent <= held:
                return tried
    assert best is not None
    return best[1]


def _approach(draft: Draft, target: float, generator: np.random.Generator) -> None:
    requests = len(draft.requests)
    goal = round(target * requests)
    relabelled = 0
    for _ in range(ROUNDS):
        missing = goal - int(draft.sequential().sum())
        if abs(missing) <= TOLERANCE * requests:
            break
        shift = _join(draft, missing) if missing > 0 else _scatter(draft, -missing, generator)
        if not shift.any():
            break
        draft.shift(shift)
        relabelled += int((shift != 0).sum())
    exchanged = 0
    missing = goal - int(draft.sequential().sum())
    if abs(missing) > max(EXCHANGE_TOLERANCE * requests, 2):
        exchanged = _exchange(draft, missing, generator)
    continued = 0
    for on_new_files in (False, True):
        missing = goal - int(draft.sequential().sum())
        if missing > max(EXCHANGE_TOLERANCE * requests, 2):
            continued += _continue(draft, missing, generator, on_new_files=on_new_files)
    draft.note("seqFrac", relabelled_requests=relabelled, exchanged_requests=exchanged, continued_runs=continued)


def find_segments(draft: Draft, *, of_blocks: bool = False) -> Segments:
    """Cut every file at the aligned starts of requests that no other request crosses, or at borders of such blocks."""
    start, end, file = draft.intervals()
    grid = draft.alignment(file, start)
    if of_blocks:
        start, end = start - start % BLOCK_BYTES, end + -end % BLOCK_BYTES
        grid = np.full(len(start), BLOCK_BYTES)
    order = np.lexsort((end, start, file))
    new_file = np.diff(file[order], prepend=-1) != 0
    reached = pd.Series(end[order]).groupby(file[order]).cummax().to_numpy()
    crossed = np.empty(len(order), np.int64)
    crossed[0], crossed[1:] = 0, reached[:-1]
    cut = new_file | ((start[order] >= crossed) & (start[order] % grid[order] == 0))
    segment = np.cumsum(cut) - 1
    first = np.flatnonzero(cut)
    of_request = np.empty(len(order), np.int64)
    of_request[order] = segment
    return Segments(
        start[order][first], np.maximum.reduceat(end[order], first), file[order][first], grid[order][first], of_request
    )


def _scatter(draft: Draft, fewer: int, generator: np.random.Generator) -> np.ndarray:
    """Shift of every request that separates segments over which `fewer` sequential requests lead."""
    segments = find_segments(draft)
    before, _ = draft.streams()
    sequential = draft.sequential()
    leads = sequential & (segments.of_request != segments.of_request[before])
    weight = np.bincount(segments.of_request[leads], minlength=len(segments.low))
    candidates = generator.permutation(np.flatnonzero(weight))
    total = np.cumsum(weight[candidates])
    chosen = candidates[: np.searchsorted(total, fewer, side="right") + 1]
    if len(chosen) and total[len(chosen) - 1] > fewer:
        chosen = chosen[:-1]
    if not len(chosen):
        return np.zeros(len(before), np.int64)

    cut = np.diff(segments.file, prepend=-1) != 0
    first_of_file = np.flatnonzero(cut)
    cut[chosen] = True
    piece_of_segment = np.cumsum(cut) - 1
    first = np.flatnonzero(cut)
    file = segments.file[first]
    low = segments.low[first]
    last = np.append(first[1:], len(segments.low)) - 1
    # A piece reaches to the next one (with the gap between them), the last one of a file to its end.
    end = np.where(np.append(file[1:] == file[:-1], False), np.append(low[1:], 0), segments.high[last])
    grid = segments.grid[first]
    room = -(-(end - low) // grid) * grid
    order = _shuffled(file, generator)
    begin = np.cumsum(room[order]) - room[order]
    base_number = np.cumsum(np.diff(file[order], prepend=-1) != 0) - 1
    base = segments.low[first_of_file][base_number]
    starts_at = begin[np.flatnonzero(np.diff(file[order], prepend=-1))][base_number]
    new_low = np.empty(len(first), np.int64)
    new_low[order] = base + begin - starts_at
    return (new_low - low)[piece_of_segment][segments.of_request]


def _shuffled(file: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A random order of the pieces of every file in which none stands right behind its old neighbour."""
    key = generator.random(len(file))
    for _ in range(64):
        order = np.lexsort((key, file))
        kept = np.flatnonzero((np.diff(order) == 1) & (file[order[1:]] == file[order[:-1]]))
        if not len(kept):
            break
        key[order[kept + 1]] = generator.random(len(kept))
    return order


def _join(draft: Draft, more: int) -> np.ndarray:
    """Shift of every request that puts segments behind each other so that `more` requests become sequential."""
    segments = find_segments(draft)
    start, end, _ = draft.intervals()
    before, _ = draft.streams()
    here, there = segments.of_request[before], segments.of_request
    at_border = (before >= 0) & (here != there) & (start == segments.low[there])
    at_border &= (end[before] == segments.high[here]) & (segments.high[here] % segments.grid[here] == 0)
    pairs, weight = np.unique(np.stack([here[at_border], there[at_border]]), axis=1, return_counts=True)
    linked = (segments.high[pairs[0]] == segments.low[pairs[1]]) & (segments.file[pairs[0]] == segments.file[pairs[1]])
    new = np.flatnonzero(~linked)
    new = new[np.argsort(-weight[new], kind="stable")]
    successor = np.full(len(segments.low), -1, np.int64)
    successor[pairs[0][linked]] = pairs[1][linked]
    gained = choose_successors(successor, pairs[0][new], pairs[1][new], weight[new], more)
    if not gained:
        return np.zeros(len(start), np.int64)

    # Lay out chain by chain, in the order of the heads; the gaps of a chain follow it.
    head = np.ones(len(successor), bool)
    head[successor[successor >= 0]] = False
    low = np.empty(len(successor), np.int64)
    following = np.append(segments.low[1:], 0)
    same_file = np.append(segments.file[1:] == segments.file[:-1], False)
    gap = np.where(same_file, following - segments.high, 0)
    at, file = 0, -1
    for first in np.flatnonzero(head).tolist():
        if segments.file[first] != file:
            # A head may stand behind the first segment of its file: the file begins where its first segment does.
            file = segments.file[first]
            at = int(segments.low[np.searchsorted(segments.file, file)])
        at = _from(at, _residue(segments, successor, first))
        node, gaps = first, 0
        while node >= 0:
            low[node] = at
            at += int(segments.high[node] - segments.low[node])
            gaps += int(gap[node])
            node = int(successor[node])
        at += gaps
    return (low - segments.low)[segments.of_request]


def _residue(segments: Segments, successor: np.ndarray, first: int) -> int:
    """Where in a block a chain begins: as its head did, or so that its first new neighbours meet at a block's border.

    Requests that follow each other in the middle of a block share it, which is reuse that there was not.
    """
    node, length = first, 0
    while node >= 0:
        length += int(segments.high[node] - segments.low[node])
        behind = int(successor[node])
        if behind >= 0 and segments.high[node] != segments.low[behind]:
            return -length % BLOCK_BYTES // int(segments.grid[first]) * int(segments.grid[first])
        node = behind
    return int(segments.low[first]) % BLOCK_BYTES


def _from(at: int, residue: int) -> int:
    """The first position from `at` on with this residue in its block."""
    return at + (residue - at) % BLOCK_BYTES


def _exchange(draft: Draft, more: int, generator: np.random.Generator) -> int:
    """Exchange places in pairs until `more` (or -`more` fewer) requests are sequential; returns requests moved."""
    start, end, file = draft.intervals()
    size = end - start
    before, behind = draft.streams()
    alike = np.unique(np.stack([file, size, draft.reads()]), axis=1, return_inverse=True)[1].reshape(-1)
    moved = start.copy()
    seed = int(generator.integers(2**31))
    exchange_places(moved, size, before, behind, alike, more, seed)
    draft.shift(moved - start)
    return int((moved != start).sum())


def _continue(draft: Draft, more: int, generator: np.random.Generator, *, on_new_files: bool) -> int:
    """Move runs behind the end of the run before them in their stream, as far as the file reaches; returns how many."""
    start, end, file = draft.intervals()
    before, _ = draft.streams()
    sequential = draft.sequential()
    new = np.isin(file, np.concatenate([draft.created(), draft.reborn()]))
    extent = draft.file_ends()
    order, run = draft.runs()
    first, run_of = order[np.flatnonzero(np.diff(run, prepend=-1))], np.empty(len(start), np.int64)
    run_of[order] = run
    length = np.bincount(run_of, weights=end - start).astype(np.int64)[run_of]
    shift = ((end[before] - start)[first] % BLOCK_BYTES)[run_of]
    more_blocks = np.bincount(run_of, weights=_blocks(start + shift, end + shift) - _blocks(start, end))[run_of]
    free = generator.permutation(np.flatnonzero(~sequential & (before >= 0) & (on_new_files | ~new)))
    # Pages stay pages where they can: what would lie across more blocks behind the run before it comes last.
    free = free[np.argsort(more_blocks[free], kind="stable")]
    # Not every wish can be met (the file ends, or it was met by chance): ask for more until it is enough.
    wished = np.zeros(len(start), bool)
    best = start
    reached = 0
    count = more
    for _ in range(ROUNDS * 2):
        wished[:] = False
        wished[free[:count]] = True
        moved = continue_runs(start, end - start, before, sequential, wished, length, extent)
        here = before >= 0
        gained = int((here & (moved == moved[before] + (end - start)[before])).sum()) - int(sequential.sum())
        if abs(more - gained) < abs(more - reached):
            best, reached = moved, gained
        if gained >= more or count >= len(free):
            break
        count = min(count + more - gained, len(free))
    draft.shift(best - start)
    return int((best != start).sum())


def _blocks(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """How many blocks every request lies in."""
    return (end - 1) // BLOCK_BYTES - start // BLOCK_BYTES + 1
