# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into the distributions that Willy draws from in the place of a family: request sizes and LRU depths.

Depths are those of requests that are not sequential, which are the ones that Willy draws (design.md, section 4), of the
first block that each touches, among all blocks of the trace. They are shares of the footprint, so that a workload with
another uniqueBytes has its working sets at the same place of its miss-ratio curve. First references have none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from characterize.counting.lru_stack import COLD, LruStack
from characterize.errors import FlextraceError
from characterize.references import BlockNumbers
from characterize.requests import STREAM_OF, columns_of, requests_of
from characterize.trace import Trace
from characterize.workload import sequential
from replayer.flexible.planned import layer_of

EMPIRICAL = "empirical"
"""The family of what is drawn from a trace."""


@dataclass(frozen=True)
class SourceShape:
    """What a trace's requests are like.

    Attributes
    ----------
    sizes_bytes, size_counts : ndarray of int64
        Distinct sizes, ascending, and how many requests have each.
    depth_shares : ndarray of float64
        Depths by distinct blocks, ascending, from 0 to below 1.
    """

    sizes_bytes: np.ndarray
    size_counts: np.ndarray
    depth_shares: np.ndarray

    def sizes(self, mean: float) -> tuple[np.ndarray, np.ndarray]:
        """Sizes of the same distribution with another mean, and their shares."""
        shares = self.size_counts / self.size_counts.sum()
        return self.sizes_bytes * (mean / float(self.sizes_bytes @ shares)), shares

    def draw_depths(self, count: int, blocks: int, generator: np.random.Generator) -> np.ndarray:
        """Depths in a stack of so many blocks, one from each of `count` equal slices, in random order; int64.

        Raises
        ------
        FlextraceError
            The trace has none.
        """
        if not len(self.depth_shares):
            raise FlextraceError(
                "the trace has no depths to draw from: no request that is not sequential uses data again; give "
                "another depth",
                2,
            )
        strata = generator.permutation((np.arange(count) + generator.random(count)) / count)
        shares = self.depth_shares[(strata * len(self.depth_shares)).astype(np.int64)]
        return np.minimum((shares * blocks).astype(np.int64), blocks - 1)


def source_shape_of(trace: Trace) -> SourceShape:
    """The distributions of a trace: of its programs' requests or, where it has none, of those of its block layer."""
    layer = layer_of(trace, "draw from")
    requests = requests_of(trace, layer)
    stack, numbers, depths = LruStack(), BlockNumbers(), []
    for part in numbers.references(columns_of(requests)):
        of_blocks = stack.depths(part.numbers, part.distinct)
        depths.append(of_blocks[np.cumsum(part.blocks) - part.blocks])
    depth = np.concatenate(depths)
    drawn = depth[~sequential(requests, STREAM_OF[layer]) & (depth != COLD)]
    sizes, counts = np.unique(requests["bytes"].to_numpy(), return_counts=True)
    return SourceShape(sizes, counts, np.sort(drawn / numbers.distinct))
