# SPDX-License-Identifier: Apache-2.0
"""Turns a footprint into another one by giving every run a place of the LRU stack depth that it had, to scale.

What holds the miss-ratio curve over cache / uniqueBytes is that every request finds its data as deep in the stack, as a
part of the footprint, as it did. So runs are placed one after the other at the depth that they had times the factor
(`replayer.flexible.depths`). With a smaller footprint, data is new until the footprint is full; what was to be new from
then on comes to the place that was used the longest ago, which no smaller cache holds. Where data is used more rarely
than it was, everything is new until the footprint is full, and then the depths are those that make up for what is
missed in addition. What runs find is not quite what they were to find, since they need room and stay whole; so the
depths are corrected by what the curve is off, and tried again. Of few runs one part after the other is moved to a depth
of which there is too little, and stays there where the curve is nearer.

Runs stay whole and go to any file that is there and on which their thread does nothing else at the time. What a file
is used for is given up by that, and whether a read returns what was written: `replayer.flexible.unique_bytes` takes
this way only where those that leave requests in their files do not hold the curve.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from characterize.counting.dense_blocks import dense_blocks
from characterize.counting.intervals import union_length
from characterize.layout import Fileop, Source
from characterize.references import BLOCK_BYTES
from characterize.requests import is_system_path
from replayer.flexible.curve import CURVE_HELD, apart, curve_of_depths, curve_of_requests
from replayer.flexible.depths import FILES_MAX, Requests, Room, depths_of, place_by_depth
from replayer.flexible.draft import Draft
from replayer.flexible.manifest import RUNS_TOLERANCE
from replayer.flexible.open_ends import place_at_ends
from replayer.flexible.wishes import Wishes, corrected, levels, moved, wishes_of_requests, wishes_of_runs


class Options(NamedTuple):
    """Part of every file that may be used, by the factor, and how placing goes on.

    ``tolerance``: how wrong a depth may be, as a part of the stack, for a run to stay with its data (2: whatever its
    depth). ``rings``: in which new places are taken. ``at_ends``: runs do not stay whole.
    """

    room: float
    tolerance: float
    rings: int = 0
    at_ends: bool = False


# What is best depends on how regular reuse is, and on how much requests differ in size.
WHOLE_RUNS = (
    *(Options(1.0, tolerance, rings=2) for tolerance in (1 / 64, 0.4)),
    *(Options(room, tolerance) for room in (1.0, np.inf) for tolerance in (1 / 64, 0.4, 2.0)),
)
WHOLE_RUNS_RARER = tuple(Options(1.0, tolerance) for tolerance in (1 / 64, 0.4))
AT_ENDS = tuple(Options(np.inf, 1 / part, at_ends=True) for part in (64, 32, 16, 8))
# All files are asked for an end for every request that was sequential: as long as that is no more often.
ASKED_MAX = 4_000_000
# Deviations of the footprint that are not told apart, relative; or one request.
FOOTPRINT_TOLERANCE = 0.004
# The limit in blocks that gives a footprint in bytes, and depths that give a curve, are approached in so many steps.
ATTEMPTS = 16
# So many of the options are tried to the end.
REFINED = 3
# Of so few runs it is chance which depths the requests have that they begin with. So often a part of one is moved, as
# long as no more references than that are placed for it; and no longer than so often where the curve will not be held.
FEW_RUNS, MOVES, MOVED_REFERENCES, MOVES_IN_VAIN = 512, 256, 10_000_000, 48


@dataclass(frozen=True)
class Placement:
    """New offset and file of every request, and by how much the footprint, the runs and the curve are off.

    It was made with ``options``, the ``limit`` in blocks and the ``wishes``; ``curve`` is what came of these, and
    ``broken`` by how much seqFrac moved.
    """

    offset: np.ndarray
    file: np.ndarray
    unique_bytes: float
    options: Options
    limit: float
    wishes: Wishes
    curve: np.ndarray
    broken: float
    rank: tuple[float, float, float]


def place_by_depths(
    draft: Draft,
    target: float,
    generator: np.random.Generator,
    like: Draft | None = None,
    *,
    runs_tolerance: float = RUNS_TOLERANCE,
    cuts: float = RUNS_TOLERANCE / 2,
    held: float = CURVE_HELD,
) -> float:
    """Give the requests places at the depths of those of `like` (default: their own), on a footprint of `target` bytes.

    Parameters
    ----------
    draft : Draft
        Changed in place. Its runs stay whole.
    target : float
    generator : Generator
    like : Draft
        The same requests at other places, perhaps with other sizes.
    runs_tolerance : float
        By how much seqFrac may move.
    cuts : float
        Up to which of that runs are cut for a nearer curve: what is more is brought back afterwards, which bends it.
    held : float
        By how much the curve may be off. It is brought nearer than that, so that a later step may bend it.

    Returns
    -------
    float
        The footprint.
    """
    placer = _Placer(draft, target, generator, like or draft, runs_tolerance=runs_tolerance, cuts=cuts, held=held)
    best = placer.best()
    draft.note("uniqueBytes", by_depth=True)
    requests = draft.requests
    draft.io["offset"][requests], draft.io["file"][requests] = best.offset, best.file
    return best.unique_bytes


@dataclass(frozen=True)
class _Blocks:
    """Blocks of the requests, numbered through all files without holes, and of each file the number of them."""

    first: np.ndarray
    low: np.ndarray
    count: np.ndarray
    file: np.ndarray
    extent: np.ndarray
    distinct: int

    @classmethod
    def of(cls, draft: Draft, file: np.ndarray, files: int) -> _Blocks:
        """Of requests on files 0 to below `files`; ``low`` counts from the first block of the file."""
        start, end, _ = draft.intervals()
        first, count, distinct = dense_blocks(pd.DataFrame({"offset": start, "bytes": end - start, "file": file}))
        begin, extent = np.full(files, distinct), np.zeros(files, np.int64)
        np.minimum.at(begin, file, first)
        low = first - begin[file]
        np.maximum.at(extent, file, low + count)
        return cls(first, low, count, file.astype(np.int64), extent, distinct)


class _Placer:
    """What all placements of a draft share."""

    def __init__(
        self,
        draft: Draft,
        target: float,
        generator: np.random.Generator,
        like: Draft,
        *,
        runs_tolerance: float,
        cuts: float,
        held: float,
    ):
        start, end, self.file = draft.intervals()
        self.draft, self.size, self.generator = draft, end - start, generator
        self.runs_tolerance, self.cuts = runs_tolerance, cuts
        self.near, self.held = held - CURVE_HELD / 2, held
        self.target, self.factor = target, target / like.unique_bytes()
        self.growth = target / draft.unique_bytes()
        self.tolerance = max(FOOTPRINT_TOLERANCE, float(self.size.mean()) / target)
        self.curve = curve_of_requests(*like.intervals())
        self.names, file = np.unique(np.concatenate([self.file, like.intervals()[2]]), return_inverse=True)
        blocks = _Blocks.of(draft, file.reshape(-1)[: len(start)], len(self.names))
        wished = _Blocks.of(like, file.reshape(-1)[len(start) :], len(self.names))
        file = blocks.file
        self.extent = np.maximum(blocks.extent, wished.extent)
        self.references = np.bincount(file, blocks.count, len(self.names)).astype(np.int64)
        self.largest = np.zeros(len(self.names), np.int64)
        np.maximum.at(self.largest, file, blocks.count)
        self.distinct, self.limit = blocks.distinct, wished.distinct * self.factor
        # Of all references, those to new blocks.
        self.new = min(self.limit / blocks.count.sum(), 1.0)
        self.rarer = self.new > wished.distinct / wished.count.sum() * (1 + FOOTPRINT_TOLERANCE)
        order, run = draft.runs()
        self.order = order
        last = order[np.append(np.flatnonzero(np.diff(run)), len(run) - 1)]
        run_of = np.empty(len(order), np.int64)
        run_of[order] = last[run]
        thread = np.unique(draft.io["thread"][draft.requests], return_inverse=True)[1]
        before, _ = draft.streams()
        sequential = draft.sequential()
        self.sequential = float(sequential.mean())
        # What begins in the block in which the request before in its run ended is a hit anywhere.
        hits = sequential & (start % BLOCK_BYTES != 0)
        self.requests = Requests(
            depth=self._wished(wished, blocks.count, hits, generator),
            original=blocks.first,
            low=blocks.low,
            blocks=blocks.count,
            inside=start % BLOCK_BYTES,
            size=self.size,
            file=file,
            thread=thread.reshape(-1).astype(np.int64),
            before=before,
            sequential=sequential,
            run=run_of,
            rest=_rest(order, ~sequential, blocks.count),
        )
        self.moves = 0
        self.wishes = [wishes_of_requests(self.requests, generator)]
        if run[-1] < FEW_RUNS:
            self.moves = min(MOVES, MOVED_REFERENCES // int(blocks.count.sum()))
            self.wishes.append(wishes_of_runs(self.requests, hits))
        self.born, self.dies = self._lives()

    def _wished(self, like: _Blocks, count: np.ndarray, hits: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Depths in the new footprint, in blocks, of requests of `count` blocks; -1 is new.

        Where data is used again as often as it was, or more often, every request has its old depth, to scale. Where it
        is used more rarely, more is new; what is not makes up the rest of the curve: of all references the share that
        misses where this one does, of new ones any up to their own share. What hits whatever is done is the latest.
        """
        chosen = (generator.random(len(like.count)) * like.count).astype(np.int64)
        depth = depths_of(like.first, like.count, like.distinct, chosen)
        if not self.rarer:
            return np.where(depth < 0, -1, np.rint(depth * self.factor)).astype(np.int64)
        depth = np.where(depth < 0, like.distinct, depth)
        order = np.argsort(-depth, kind="stable")
        curve = levels(like.count[order])
        wishes = np.lexsort((generator.random(len(depth)), -depth, hits))
        wished = np.empty(len(depth))
        wished[wishes] = np.interp(self.new + (1 - self.new) * levels(count[wishes]), curve, depth[order].astype(float))
        return np.rint(wished * self.factor).astype(np.int64)

    def _lives(self) -> tuple[np.ndarray, np.ndarray]:
        """Requests from which to before which others may come to a file: from its first use until it has no name.

        Where files are mapped none comes to the system's own: pages read of those do not count.
        """
        born, dies = np.full(len(self.names), len(self.file)), np.full(len(self.names), len(self.file))
        np.minimum.at(born, self.requests.file, np.arange(len(self.file)))
        if (self.draft.io["source"] == Source.MMAP).any():
            system = [file for file, path in self.draft.paths.items() if is_system_path(path)]
            born[np.isin(self.names, system)] = len(self.file)
        gone = np.isin(self.draft.fileops["op"], (Fileop.UNLINK, Fileop.RENAME, Fileop.LINK))
        gone &= (self.draft.fileops["result"] >= 0) & np.isin(self.draft.fileops["file"], self.names)
        operations = self.draft.fileops[gone]
        at = np.searchsorted(self.draft.io["start_ns"][self.draft.requests], operations["start_ns"])
        np.minimum.at(dies, np.searchsorted(self.names, operations["file"].astype(np.int64)), at)
        return born, dies

    def best(self) -> Placement:
        """The best of all that is tried."""
        # Each new place of a ring is looked for in all files.
        rings_max = math.inf if len(self.names) <= FILES_MAX else 0
        options = WHOLE_RUNS_RARER if self.rarer else [one for one in WHOLE_RUNS if one.rings <= rings_max]
        best = self.best_of(options, self.wishes)
        asked = len(self.names) * len(self.size)
        if best.rank > (0.0, 0.0, self.held) and not self.rarer and asked <= ASKED_MAX:
            best = min(best, self.best_of(AT_ENDS, self.wishes[:1]), key=lambda one: one.rank)
        return best if best.rank <= (0.0, 0.0, self.held) else self.searched(best)

    def best_of(self, options: Sequence[Options], wishes: Sequence[Wishes]) -> Placement:
        """The best with one of the options, of which the most promising are refined."""
        every = (self.placement(option, self.limit, wished) for wished in wishes for option in options)
        tried = heapq.nsmallest(REFINED, every, key=lambda one: one.rank[1:])
        return min((self.refined(one) for one in tried), key=lambda one: one.rank)

    def placement(self, options: Options, limit: float, wishes: Wishes) -> Placement:
        """Places with some options, on at most about `limit` blocks, at wished depths."""
        if self.rarer:
            # No file needs more new places than it has references, but new ones have gaps between them.
            blocks = np.maximum(self.extent * (math.ceil(self.growth) + 1), self.extent + self.references)
        else:
            # Rings have no room for more than the limit, so that they come around.
            growth = limit / self.distinct if options.rings else self.growth
            blocks = np.minimum(np.ceil(self.extent * growth * options.room), self.extent).astype(np.int64)
        blocks = np.maximum(blocks, self.largest)
        places = Room(np.cumsum(blocks) - blocks, blocks, self.born, self.dies, options.rings)
        sequential = self.requests.sequential & ~wishes.cut
        requests = self.requests._replace(
            depth=wishes.depth,
            sequential=sequential,
            rest=_rest(self.order, ~sequential, self.requests.blocks),
        )
        if options.at_ends:
            cuts = int(self.cuts * len(self.size))
            placed = place_at_ends(requests, places, self.distinct, int(limit), options.tolerance, cuts)
        else:
            placed = place_by_depth(
                requests, places, self.distinct, int(limit), options.tolerance, self.rarer, wishes.of_runs
            )
        offset, number, found, joined = placed
        file = self.names[number]
        unique = float(union_length(offset, offset + self.size, file))
        broken, curve = abs(joined / len(offset) - self.sequential), curve_of_depths(found)
        off = max(abs(unique / self.target - 1) - self.tolerance, 0.0)
        rank = off, max(broken - self.runs_tolerance, 0.0), apart(self.curve, curve)
        return Placement(offset, file, unique, options, limit, wishes, curve, broken, rank)

    def refined(self, placement: Placement) -> Placement:
        """The placement on another limit and at other depths, with which it has the footprint and the curve."""
        best = placement
        for _ in range(ATTEMPTS):
            off, _, bent = placement.rank
            if not off and bent <= self.near:
                break
            limit = placement.limit * (self.target / placement.unique_bytes if off else 1)
            wishes = placement.wishes
            if bent > self.near:
                wishes = corrected(wishes, self.requests.blocks, placement.limit, self.curve - placement.curve)
            placement = self.placement(placement.options, limit, wishes)
            best = min(best, placement, key=lambda one: one.rank)
        return best

    def searched(self, best: Placement) -> Placement:
        """The placement with parts of runs at other depths, one after the other, where that brings its curve nearer."""
        beyond = best.rank[2] - self.held
        for move in range(self.moves):
            too_slow = move >= MOVES_IN_VAIN and best.rank[2] - self.held > beyond * (1 - move / self.moves)
            if best.rank[2] <= self.near or too_slow:
                break
            cut = best.broken + 1 / len(self.size) <= self.cuts and self.generator.random() < 0.5
            lacking = np.maximum(_found(self.curve) - _found(best.curve), 0)
            wishes = moved(best.wishes, self.requests.run, best.limit, lacking, self.generator, cut=cut)
            tried = self.placement(best.options, best.limit, wishes)
            if tried.broken <= max(best.broken, self.cuts):
                best = min(best, tried, key=lambda one: one.rank)
        return best


def _rest(order: np.ndarray, begins: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """From every request the blocks to the end of its part of a run; `order` is by stream, where parts begin."""
    part = np.cumsum(begins[order]) - 1
    end = np.append(np.flatnonzero(begins[order])[1:], len(order))
    behind = np.append(np.cumsum(blocks[order][::-1])[::-1], 0)
    rest = np.empty(len(order), np.int64)
    rest[order] = behind[:-1] - behind[end[part]]
    return rest


def _found(curve: np.ndarray) -> np.ndarray:
    """Of all references the share found at each of `POINTS` depths; that of the last one is found by no cache."""
    return -np.diff(np.concatenate([[1.0], curve, [0.0]]))
