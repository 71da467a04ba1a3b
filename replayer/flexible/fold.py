# SPDX-License-Identifier: Apache-2.0
"""Turns a footprint into a smaller one: files are folded, and files that live one after the other become one file.

Folded, several places of a file become one. What shares a place should be used far apart in time, or its reuse distance
is much shorter than any of the parent's: a file that is used once, from its begin to its end, is folded at offsets, one
that is used once in any other order in the order of first use. Files that are made and removed one after the other
(journals) take turns in a number of places, the longest unused one first; or, where more misses any cache than did
because their requests weigh more, some of them the one that was used last.
"""

from __future__ import annotations

import bisect

import numpy as np
import pandas as pd

from characterize.counting.intervals import union_length
from characterize.layout import Fileop
from characterize.references import BLOCK_BYTES
from replayer.flexible.draft import Draft
from replayer.flexible.places import TOLERANCE, search, turns_of
from replayer.flexible.seq_frac import find_segments

# Files below this many mean requests lose too many sequential requests when they are folded: they come last.
LARGE_REQUESTS = 64
# Periods of so many blocks can be of whole ones.
LARGE_BLOCKS = 64
# Of so many pieces that are used one after the other, few become neighbours by chance.
SHUFFLED_CHAINS = 256


def fold_evenly(
    draft: Draft,
    target: float,
    *,
    by_first_use: np.random.Generator | None = None,
    unrolled: bool = False,
    latest: float = 0.0,
) -> float:
    """Let short-lived files take turns so that their part shrinks as the whole does, then fold the others.

    `by_first_use` relabels their places before that, and shuffles by the generator; `latest` is the share of the
    short-lived files whose data is found in any cache; for the rest see `fold_files`.
    """
    unique = draft.unique_bytes()
    lives = lives_of(draft)
    if latest and len(lives) < 2:
        return float(unique)
    if len(lives) > 1:
        _, _, file = draft.intervals()
        mine = np.isin(file, lives["file"])
        part = _footprint(draft, mine)
        _take_turns(draft, lives, unique - part * (1 - target / unique), latest)
    if by_first_use is not None:
        lay_out_by_first_use(draft, by_first_use)
    reached = fold_files(draft, target, LARGE_REQUESTS, unrolled=unrolled)
    if reached > target * (1 + TOLERANCE):
        reached = fold_files(draft, target, 1, unrolled=unrolled)
    return reached


def fold_files(draft: Draft, target: float, requests_min: int, *, unrolled: bool = False) -> float:
    """Take offsets modulo a period that is the same fraction of every file with room for `requests_min` requests.

    Unrolled, every return of a place stands one length of the file further before that, so that all places of the
    smaller file are used equally often where those of the larger one were.

    The period is of whole blocks where that is exact enough, so that no request touches more of them than it did.
    """
    start, end, file = draft.intervals()
    size = end - start
    extent = draft.file_ends()
    largest = pd.Series(size).groupby(file).transform("max").to_numpy()
    large = extent >= requests_min * size.mean()
    if not large.any():
        return float(draft.unique_bytes())
    grid = draft.alignment(file, start)
    place = start
    if unrolled:
        _, _, turn = turns_of(draft)
        whole = np.maximum(grid, BLOCK_BYTES)
        place = start + turn * (-(-extent // whole) * whole)

    def folded(factor: float) -> tuple[float, np.ndarray]:
        period = np.maximum(extent / factor, largest)
        step = np.where(period >= LARGE_BLOCKS * BLOCK_BYTES, np.maximum(grid, BLOCK_BYTES), grid)
        period = -(-period // step).astype(np.int64) * step
        shift = np.where(large, place % period - start, 0)
        return float(union_length(start + shift, end + shift, file)), shift

    most = float((extent / largest).max())
    reached, shift = folded(most)
    if reached < target:
        reached, shift = search(folded, target, 1.0, most, geometric=True)
    draft.note("uniqueBytes", folded_files=int(np.unique(file[shift < 0]).size))
    draft.shift(shift)
    return reached


def _footprint(draft: Draft, mine: np.ndarray) -> int:
    start, end, file = draft.intervals()
    return union_length(start[mine], end[mine], file[mine])


def lay_out_by_first_use(draft: Draft, generator: np.random.Generator, *, of_blocks: bool = False) -> None:
    """Put the segments of every file, or its blocks, behind each other about in the order of first use; a relabelling.

    What was in sequence stays so. What was not must not become so: the order is shuffled over short distances.
    """
    segments = find_segments(draft, of_blocks=of_blocks)
    before, _ = draft.streams()
    here = segments.of_request
    begins = np.ones(len(segments.low), bool)
    begins[here[draft.sequential() & (here != here[before])]] = False
    chain = np.cumsum(begins) - 1
    first = np.full(int(chain[-1]) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, chain[here], np.arange(len(here)))
    turn = np.empty(len(first), np.int64)
    turn[np.lexsort((first, segments.file[begins]))] = np.arange(len(first))
    chance = generator.random(len(first))
    order = np.lexsort((np.arange(len(chain)), chance[chain], turn[chain] // SHUFFLED_CHAINS, segments.file))
    room = -(-(segments.high - segments.low) // segments.grid) * segments.grid
    at = np.cumsum(room[order]) - room[order]
    first_of_file = np.append(True, np.diff(segments.file[order]) != 0)
    new_low = np.empty(len(order), np.int64)
    new_low[order] = at - np.maximum.accumulate(np.where(first_of_file, at, 0))
    draft.shift((new_low - segments.low)[segments.of_request])


# ---- files that take turns ----


def _take_turns(draft: Draft, lives: pd.DataFrame, target: float, latest: float = 0.0) -> float:
    """Let files that the trace creates and removes take turns in so few files that the footprint is `target`.

    The share `latest` of them takes the place of the one that is gone the shortest, the others that of the one that is
    gone the longest.
    """
    start, end, file = draft.intervals()
    if len(lives) < 2:
        return float(draft.unique_bytes())
    known = known_files(draft)
    of_request = np.searchsorted(known, file)

    def merged(places: float) -> tuple[float, np.ndarray]:
        keeper = known.copy()
        keeper[np.searchsorted(known, lives["file"])] = _keepers(lives, round(places), latest)
        return float(union_length(start, end, keeper[of_request])), keeper

    reached, keeper = merged(1)
    if reached < target:
        reached, keeper = search(merged, target, 1, len(lives))
    files = len(draft.files)
    join_files(draft, known, keeper)
    draft.note("uniqueBytes", files_that_took_turns=files - len(draft.files), latest_share=latest)
    return reached


def join_files(draft: Draft, known: np.ndarray, keeper: np.ndarray) -> None:
    """Let every file of those that are `known`, in order, be its keeper."""
    for records in (draft.io, draft.fileops):
        records["file"] = keeper[np.searchsorted(known, records["file"])]
    gone = keeper[np.searchsorted(known, draft.files["file"])] != draft.files["file"]
    for identifier in draft.files["file"][gone].tolist():
        draft.paths.pop(identifier, None)
    draft.files = draft.files[~gone]


def known_files(draft: Draft) -> np.ndarray:
    """Ids of all files, in order."""
    return np.unique(np.concatenate([draft.files["file"], draft.io["file"], draft.fileops["file"]])).astype(np.int64)


def lives_of(draft: Draft) -> pd.DataFrame:
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


def _keepers(lives: pd.DataFrame, places: int, latest: float) -> np.ndarray:
    """File whose place every life takes: a new one until there are `places`, then the one that is free the longest.

    Every so many lives that their share is `latest`, one takes the place that is free the shortest.
    """
    keepers = np.empty(len(lives), np.int64)
    free: list[tuple[int, int]] = []  # (end of the last life, file), the longest ago first
    made = 0
    for number, (file, begin, end) in enumerate(zip(lives["file"], lives["begin"], lives["end"], strict=True)):
        keeper, gone = file, bisect.bisect_left(free, (begin,))
        if gone and int((number + 1) * latest) > int(number * latest):
            keeper = free.pop(gone - 1)[1]
        elif gone and made >= places:
            keeper = free.pop(0)[1]
        else:
            made += 1
        keepers[number] = keeper
        bisect.insort(free, (end, keeper))
    return keepers
