# SPDX-License-Identifier: Apache-2.0
"""Turns the parameters of one process into the offsets and sizes of its requests in its one file, for Willy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from replayer.flexible.size_mean import RESULT_BYTES_MAX
from replayer.synthetic.request_places import Wishes, place
from replayer.synthetic.request_sizes import Sizes, draw_sizes
from replayer.synthetic.source_shape import SourceShape

# How far seqFrac may miss because of rounding before a workload is called impossible.
SHARE_TOLERANCE = 0.01
# With fewer places than this in a file, random accesses are next to each other so often that first touches go first.
PLACES_FEW = 16
PLACEMENT_ATTEMPTS = 16


@dataclass(frozen=True)
class Geometry:
    """One unit is the alignment; requests start at multiples of `step` units in files of `file_units`."""

    unit_bytes: int
    step: int
    file_units: list[int]
    size_units: float

    def largest_units(self, process: int) -> int:
        """What a request of a process can have: its file, or what one system call moves."""
        return min(self.file_units[process], RESULT_BYTES_MAX // self.unit_bytes)

    @property
    def unique_bytes(self) -> int:
        """Bytes of all files."""
        return self.unit_bytes * sum(self.file_units)


def walk_file(
    geometry: Geometry,
    process: int,
    *,
    count: int,
    total_units: int,
    start_count: int,
    depth: str | SourceShape,
    size: str | Sizes,
    covering: bool,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and sizes, in units, of `count` requests of one process.

    Parameters
    ----------
    geometry : Geometry
    process : int
        From 0; which of the files.
    count, total_units, start_count : int
        Requests, sum of their sizes, and how many of them are not sequential.
    depth, size : str
        Families, see `replayer.willy.make_trace`; or what to draw from.
    covering : bool
        Touch the whole file; `total_units` must be enough for it.
    seed : int

    Returns
    -------
    offsets, sizes : ndarray of int64, shape (count,)
    """
    file_units, largest_units = geometry.file_units[process], geometry.largest_units(process)
    few = file_units < PLACES_FEW * geometry.size_units
    # A stack of blocks of about one request: finer ones would cost time and be touched together anyway.
    block_units = geometry.step if geometry.step > 1 else 1 << int(math.log2(geometry.size_units))
    blocks = -(-file_units // block_units)
    stacked = depth != "uniform"
    # A scan starts over at the end of its file and nowhere else: elsewhere it would meet what it has just read.
    wished = start_count if start_count > math.ceil(total_units / file_units) else 1
    for _ in range(PLACEMENT_ATTEMPTS):
        generator = np.random.default_rng([seed, process])
        sizes = draw_sizes(size, count, total_units, largest_units, generator)
        starts = np.zeros(count, bool)
        starts[0] = True
        starts[1 + generator.permutation(count - 1)[: wished - 1]] = True
        planned = np.full(count, -1, np.int64)
        locked = np.zeros(count, bool)
        if covering:
            _plan_coverage(
                planned,
                locked,
                sizes,
                starts,
                file_units=file_units,
                first_of_all=few or stacked,
                downwards=few,
                generator=generator,
            )
        depths = _draw_depths(depth, count, blocks, generator)
        primed = generator.permutation(blocks if stacked and not covering else 0)
        wishes = Wishes(sizes, starts, planned, locked, generator.random(count), depths, primed)
        offsets = place(wishes, file_units, largest_units, geometry.step, block_units)
        excess = count - int((offsets[1:] == (offsets + sizes)[:-1]).sum()) - start_count
        if abs(excess) <= SHARE_TOLERANCE / 2 * count:
            break
        # Files of very few requests: starts over at the end of the file come so often that not all could be paid back.
        wished = min(max(wished - excess, 1), count)
    return offsets, sizes


def _draw_depths(depth: str | SourceShape, count: int, blocks: int, generator: np.random.Generator) -> np.ndarray:
    """Depths in a stack of so many blocks; of the family uniform there are none."""
    if isinstance(depth, SourceShape):
        return depth.draw_depths(count, blocks, generator)
    return np.minimum(generator.binomial(blocks, 0.5, count if depth == "binomial" else 0), blocks - 1)


def _plan_coverage(
    planned: np.ndarray,
    locked: np.ndarray,
    sizes: np.ndarray,
    starts: np.ndarray,
    *,
    file_units: int,
    first_of_all: bool,
    downwards: bool,
    generator: np.random.Generator,
) -> None:
    """Lay runs end to end until the whole file is covered, in an order that has nothing to do with that of time.

    In a file of few places the order is downwards, in which no run can by chance continue the one before it.
    """
    first = np.flatnonzero(starts)
    length = np.diff(np.append(first, len(sizes)))
    run_units = np.add.reduceat(sizes, first)
    order = np.arange(len(first)) if first_of_all else generator.permutation(len(first))
    runs = order[: int(np.searchsorted(np.cumsum(run_units[order]), file_units)) + 1]
    runs = runs[::-1] if downwards else _without_followers(generator.permutation(runs), generator)
    begins = np.cumsum(run_units[runs]) - run_units[runs]
    planned[first[runs]] = np.maximum(np.minimum(begins, file_units - run_units[runs]), 0)
    covering_run = np.zeros(len(first), bool)
    covering_run[runs] = True
    locked |= np.repeat(covering_run, length)


def _without_followers(runs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Reorder runs so that none lies right behind the run before it in time, which would make the two one run."""
    for _ in range(32):
        following = 1 + np.flatnonzero(runs[1:] == runs[:-1] + 1)
        if not len(following):
            break
        for index in following:
            other = generator.integers(len(runs))
            runs[index], runs[other] = runs[other], runs[index]
    return runs
