# SPDX-License-Identifier: Apache-2.0
"""Turns a footprint into a larger one (twins) or a smaller one (folding) while the requests keep sizes and order.

More unique bytes: what returns to the same place is sent, whole runs at a time, to twins of that place behind the
end of the file. Fewer: files are folded, so that several places become one; files that are created and removed one
after the other become one file. Reuse distances grow and shrink with the footprint, so that the hit ratio against
cache / uniqueBytes stays about what it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pandas as pd

from characterize.intervals import union_length
from characterize.layout import Fileop
from characterize.units import format_bytes
from replayer.flexible.draft import Draft, UnreachableError

TOLERANCE = 0.002
# A target is met where the union is this near, relative.
ACCEPTED = 0.01
STEPS = 24
# Long runs are moved in pieces of this many mean requests: each cut costs a sequential request at most.
CELL_REQUESTS = 256
# Files below this many mean requests lose too many sequential requests when they are folded: they come last.
LARGE_REQUESTS = 64
COPIES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128, 256)


def change_unique_bytes(draft: Draft, target: float, generator: np.random.Generator) -> None:
    """Make the union of all requests `target` bytes.

    Raises
    ------
    UnreachableError
        The message has the reachable range.
    """
    unique = draft.unique_bytes()
    if abs(target / unique - 1) <= TOLERANCE:
        return
    parent = draft.copy()
    reached = _spread(draft, target, generator) if target > unique else _fold(draft, target, generator)
    if abs(reached / target - 1) > ACCEPTED:
        other = _fold(parent, 1, generator) if target > unique else _spread(parent, float("inf"), generator)
        low, high = sorted([reached, float(unique), other])[::2]
        if low == high:
            # Nothing can be moved: what is accepted is what is as near as a target has to be met.
            low, high = low / (1 + ACCEPTED), high / (1 - ACCEPTED)
        raise UnreachableError(
            f"uniqueBytes {format_bytes(target)} is not reachable: no byte is unique more often than it is moved, and "
            f"requests fit into no less than themselves; reachable is about {format_bytes(low)} to "
            f"{format_bytes(high)}",
            low,
            high,
        )


# ---- more ----


def _spread(draft: Draft, target: float, generator: np.random.Generator) -> float:
    """Send returning runs to twins of their places in turn; first on files that exist before the trace.

    All places have as many twins, or one more, as each other, so that none becomes hotter than it was beside them.
    """
    start, end, file = draft.intervals()
    place, turn = _turns(draft)
    chance = generator.random(int(place.max()) + 1)[place]
    _, number = np.unique(file, return_inverse=True)
    extent = np.zeros(number.max() + 1, np.int64)
    np.maximum.at(extent, number, end)
    span = ((extent + 4095) // 4096 * 4096)[number]
    existing = ~np.isin(file, np.concatenate([draft.created(), draft.reborn()]))
    best = (float(draft.unique_bytes()), np.zeros(len(start), np.int64))
    for allowed in (existing, np.ones(len(start), bool)):
        for fewer, copies in itertools.pairwise(COPIES):

            def shifted(
                share: float, allowed: np.ndarray = allowed, fewer: int = fewer, copies: int = copies
            ) -> tuple[float, np.ndarray]:
                shift = np.where(allowed, turn % np.where(chance < share, copies, fewer) * span, 0)
                return float(union_length(start + shift, end + shift, file)), shift

            all_of_it = shifted(1.0)
            best = max(best, all_of_it, key=lambda result: result[0])
            if all_of_it[0] >= target:
                best = _search(shifted, target, 0.0, 1.0)
                draft.note("uniqueBytes", twins=copies - 1, runs_on_new_files=not existing[best[1] > 0].all())
                draft.shift(best[1])
                return best[0]
            if turn.max() < copies:
                break
    return best[0]


def _turns(draft: Draft) -> tuple[np.ndarray, np.ndarray]:
    """Number of the place that every request moves with, and how many units began at it before the request's unit.

    A unit is a run; of a long run the part in one cell of the file. Its place is where it begins.
    """
    start, end, file = draft.intervals()
    cell = max(int((end - start).mean()) * CELL_REQUESTS, 1)
    order, run = draft.runs()
    begins = np.ones(len(order), bool)
    begins[1:] = (np.diff(run) > 0) | (np.diff(start[order] // cell) > 0)
    unit = np.empty(len(order), np.int64)
    unit[order] = np.cumsum(begins) - 1
    first = order[begins]
    # Continued pieces begin near the same place in every pass: the cell tells them, not the exact offset.
    continued = ~np.diff(run, prepend=-1).astype(bool)[begins]
    where = np.stack([file[first], np.where(continued, -1 - start[first] // cell, start[first])])
    place = np.unique(where, axis=1, return_inverse=True)[1].reshape(-1)
    in_time = np.argsort(first, kind="stable")
    turn = np.empty(len(first), np.int64)
    turn[in_time] = pd.Series(place[in_time]).groupby(place[in_time]).cumcount().to_numpy()
    return place[unit], turn[unit]


# ---- fewer ----


def _fold(draft: Draft, target: float, generator: np.random.Generator) -> float:
    """Fold large files; where that is not enough, reuse removed files, then fold the small files as well."""
    reached = _fold_files(draft, target, LARGE_REQUESTS)
    if reached > target * (1 + TOLERANCE):
        reached = _reuse_files(draft, target, generator)
    if reached > target * (1 + TOLERANCE):
        reached = _fold_files(draft, target, 1)
    return reached


def _fold_files(draft: Draft, target: float, requests_min: int) -> float:
    """Take offsets modulo a period that is the same fraction of every file with room for `requests_min` requests."""
    start, end, file = draft.intervals()
    size = end - start
    _, number = np.unique(file, return_inverse=True)
    extent, largest = np.zeros(number.max() + 1, np.int64), np.zeros(number.max() + 1, np.int64)
    np.maximum.at(extent, number, end)
    np.maximum.at(largest, number, size)
    large = (extent >= requests_min * size.mean())[number]
    if not large.any():
        return float(draft.unique_bytes())
    grid = draft.alignment(file, start)

    def folded(factor: float) -> tuple[float, np.ndarray]:
        period = np.maximum(extent[number] / factor, largest[number])
        period = -(-period // grid).astype(np.int64) * grid
        shift = np.where(large, start % period - start, 0)
        return float(union_length(start + shift, end + shift, file)), shift

    most = float((extent / largest).max())
    reached, shift = folded(most)
    if reached < target:
        reached, shift = _search(folded, target, 1.0, most, geometric=True)
    draft.note("uniqueBytes", folded_files=int(np.unique(file[shift < 0]).size))
    draft.shift(shift)
    return reached


def _reuse_files(draft: Draft, target: float, generator: np.random.Generator) -> float:
    """Let files that the trace creates and removes take turns in one file, as far as their lives do not overlap."""
    lives = _lives(draft)
    start, end, file = draft.intervals()
    if len(lives) < 2:
        return float(draft.unique_bytes())
    chance = generator.random(len(lives))

    def merged(share: float) -> tuple[float, np.ndarray]:
        place = _take_turns(lives, chance < share)
        return float(union_length(start, end, place[file])), place

    most_file = int(max(draft.files["file"].max(), file.max())) + 1
    lives.attrs["files"] = most_file
    reached, place = merged(1.0)
    if reached < target:
        reached, place = _search(merged, target, 0.0, 1.0)
    renamed = place != np.arange(most_file)
    draft.io["file"] = place[draft.io["file"]]
    draft.fileops["file"] = place[draft.fileops["file"]]
    gone = renamed[draft.files["file"]]
    for identifier in draft.files["file"][gone].tolist():
        draft.paths.pop(identifier, None)
    draft.files = draft.files[~gone]
    draft.note("uniqueBytes", files_that_took_turns=int(renamed.sum()))
    return reached


def _lives(draft: Draft) -> pd.DataFrame:
    """Files that are created and removed, never renamed: begin and end of their lives, in the order of the begins."""
    operations = pd.concat(
        [
            pd.DataFrame(
                {
                    "file": array["file"].astype(np.int64),
                    "begin": array["start_ns"].astype(np.int64),
                    "end": (array["start_ns"] + array["duration_ns"]).astype(np.int64),
                }
            )
            for array in (draft.io, draft.fileops)
        ]
    )
    spans = operations.groupby("file").agg(begin=("begin", "min"), end=("end", "max"))
    ok = draft.fileops[draft.fileops["result"] >= 0]
    renames = ok[np.isin(ok["op"], (Fileop.RENAME, Fileop.LINK))]
    removed = np.setdiff1d(
        ok["file"][ok["op"] == Fileop.UNLINK], np.concatenate([renames["file"], renames["argument"]])
    )
    wanted = np.setdiff1d(np.intersect1d(removed, draft.created()), draft.reborn())
    return spans.loc[spans.index.isin(wanted)].sort_values("begin").reset_index()


def _take_turns(lives: pd.DataFrame, joins: np.ndarray) -> np.ndarray:
    """File id that every file id gets."""
    place = np.arange(lives.attrs["files"])
    free: list[tuple[int, int]] = []  # (end of the last life, id)
    for file, begin, end, join in zip(lives["file"], lives["begin"], lives["end"], joins.tolist(), strict=True):
        keeper = file
        if join:
            for index in range(len(free) - 1, -1, -1):
                if free[index][0] < begin:
                    keeper = free.pop(index)[1]
                    break
        place[file] = keeper
        free.append((end, keeper))
        del free[:-64]
    return place


# ---- both ----


def _search(
    change: Callable[[float], tuple[float, np.ndarray]],
    target: float,
    low: float,
    high: float,
    *,
    geometric: bool = False,
) -> tuple[float, np.ndarray]:
    """Bisect for the strength of a change that brings the unique bytes closest to `target`."""
    rising = change(high)[0] > change(low)[0]
    best = change(low)
    for _ in range(STEPS):
        middle = (low * high) ** 0.5 if geometric else (low + high) / 2
        tried = change(middle)
        if abs(tried[0] - target) < abs(best[0] - target):
            best = tried
        if abs(tried[0] / target - 1) <= TOLERANCE / 4:
            break
        if (tried[0] < target) == rising:
            low = middle
        else:
            high = middle
    return best
