# SPDX-License-Identifier: Apache-2.0
"""Turns wished LRU stack depths into those of whole runs, and by what came of them into others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replayer.flexible.curve import POINTS
from replayer.flexible.depths import NEW, Requests


class Wishes(NamedTuple):
    """Wished depth of every request in blocks, `NEW` is a place not used before; which requests are cut off their run.

    ``level`` is of all references the share that is to be deeper. ``of_runs``: all requests of a run have one depth.
    """

    depth: np.ndarray
    level: np.ndarray
    cut: np.ndarray
    of_runs: bool


def wishes_of_requests(requests: Requests, generator: np.random.Generator) -> Wishes:
    """Each request is to have its own depth; of equally deep ones it is random which is to be deeper."""
    depth = np.where(requests.depth < 0, np.inf, requests.depth)
    order = np.lexsort((generator.random(len(depth)), -depth))
    level = np.empty(len(order))
    level[order] = levels(requests.blocks[order])
    return Wishes(requests.depth, level, np.zeros(len(level), bool), False)


def wishes_of_runs(requests: Requests, hits: np.ndarray) -> Wishes:
    """As many references at every depth as is wished, but all of a run at one, in the order of those they begin with.

    What `hits` whatever is done is the latest. The levels are those of the runs.
    """
    depth = np.where(requests.depth < 0, np.inf, requests.depth)
    _, first, run = np.unique(requests.run, return_index=True, return_inverse=True)
    blocks = np.bincount(run.reshape(-1), requests.blocks - hits)
    order = np.argsort(-depth[first], kind="stable")
    of_runs = np.empty(len(order))
    of_runs[order] = levels(blocks[order]) * blocks.sum() / requests.blocks.sum()
    level = of_runs[run.reshape(-1)]
    deepest = np.argsort(-depth, kind="stable")
    at = np.searchsorted(levels(requests.blocks[deepest]), level)
    depth = requests.depth[deepest[np.minimum(at, len(deepest) - 1)]]
    return Wishes(depth, level, np.zeros(len(depth), bool), True)


def corrected(wishes: Wishes, blocks: np.ndarray, limit: float, missing: np.ndarray) -> Wishes:
    """Depths, on `limit` blocks, by which the miss ratios are higher by what is `missing` to them; of `blocks` each."""
    part = np.arange(POINTS + 1) / POINTS
    new = wishes.depth < 0
    depth = np.where(new, np.inf, wishes.depth / limit)
    order = np.argsort(-depth, kind="stable")
    deeper = np.interp(part, depth[order][::-1], levels(blocks[order])[::-1])
    deeper[0] = 1.0
    wanted = deeper.copy()
    wanted[1:-1] += missing
    wanted = np.minimum.accumulate(np.clip(wanted, 0, 1))
    moved = np.interp(wishes.level, wanted[::-1], part[::-1])
    return wishes._replace(depth=np.where(new, wishes.depth, np.rint(moved * limit)).astype(np.int64))


def moved(
    wishes: Wishes, run: np.ndarray, limit: float, lacking: np.ndarray, generator: np.random.Generator, *, cut: bool
) -> Wishes:
    """Wishes in which a random part of a run is to be at a depth, on `limit` blocks, of which there is too little.

    `lacking` is of all references the share that is too little at each of as many depths, the last of which are new
    ones. With `cut` the part begins at a random request of the run, else where it was cut before.
    """
    step = int(generator.choice(len(lacking), p=lacking / lacking.sum()))
    wanted = NEW if step == len(lacking) - 1 else int(limit * (step + generator.random()) / len(lacking))
    at = generator.integers(len(run))
    mine = np.flatnonzero(run == run[at])
    parts = np.cumsum(wishes.cut[mine])
    part = mine[parts == parts[np.searchsorted(mine, at)]]
    depth, cuts = wishes.depth.copy(), wishes.cut.copy()
    if cut:
        cuts[at] = True
        part = part[part >= at]
    depth[part] = wanted
    return wishes._replace(depth=depth, cut=cuts)


def levels(count: np.ndarray) -> np.ndarray:
    """Of all references the share that stands before the middle of each of those requests, shape (n,)."""
    return (np.cumsum(count) - count / 2) / count.sum()
