# SPDX-License-Identifier: Apache-2.0
"""Turns two traces into how far apart their miss-ratio curves over cache / uniqueBytes are, and must be at least.

The curve says where a workload's performance falls as caches shrink, so a change of size should move it along the axis
of cache sizes and not bend it (the portability of 2DIO; research/replay.md D3). Not all of it can be held. A cache of
any size misses the first reference to every block, so with fewer references to as many blocks no miss ratio is below
the new share of first references. And it hits where a sequential request begins in the block in which the one before
it ended, so with requests that got smaller, or sequential, no miss ratio is above the share of all others. What of the
difference these two explain is told apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from characterize.locality import locality_of
from characterize.references import BLOCK_BYTES
from characterize.requests import requests_of
from characterize.trace import Trace
from characterize.workload import sequential

POINTS = 64
# The curve counts as held up to this mean error.
CURVE_HELD = 0.02


@dataclass(frozen=True)
class Curve:
    """Miss ratios of LRU caches of 1/64, 2/64 ... 63/64 of the distinct blocks, and what they cannot be.

    ``cold_share`` is the share of first references, below which none is; ``missable_share`` is that of references to
    another block than the one in which the request before in the run ended, above which none is.
    """

    miss_ratio: np.ndarray
    cold_share: float
    missable_share: float = 1.0


@dataclass(frozen=True)
class CurveChange:
    """Mean absolute difference of two curves, and the part of it that no trace with such references and runs avoids.

    Where requests changed their sizes, ``scaled_error`` is the difference to the curve in blocks that changed theirs as
    well: what is left of it when it is not for blocks of 4 KiB that hold more requests, or fewer, than before.
    """

    mean_error: float
    least_error: float
    scaled_error: float | None = None

    @property
    def beyond_least(self) -> float:
        """What a better way of changing the trace might avoid."""
        return self.mean_error - self.least_error

    @property
    def held(self) -> bool:
        """Whether the curve is where it was, but for what cannot be avoided."""
        return self.beyond_least <= CURVE_HELD

    def as_document(self) -> dict[str, float | bool | None]:
        """As JSON needs it."""
        return {
            "mean_error": self.mean_error,
            "least_error": self.least_error,
            "scaled_error": self.scaled_error,
            "held": self.held,
        }


def curve_of(trace: Trace) -> Curve:
    """The miss-ratio curve of a trace's requests over cache / uniqueBytes (blocks of 4 KiB, first references miss)."""
    requests = requests_of(trace)
    curve = _curve(requests)
    within = int((sequential(requests) & (requests["offset"].to_numpy() % BLOCK_BYTES != 0)).sum())
    offset, size = requests["offset"], requests["bytes"]
    references = int(((offset + size - 1) // BLOCK_BYTES - offset // BLOCK_BYTES + 1).sum())
    return replace(curve, missable_share=1 - within / references if references else 1.0)


def curve_of_requests(start: np.ndarray, end: np.ndarray, file: np.ndarray) -> Curve:
    """The curve of requests in the order of time; first byte, end and file of each, int64, shape (n,)."""
    return _curve(pd.DataFrame({"offset": start, "bytes": end - start, "file": file}))


def _curve(requests: pd.DataFrame) -> Curve:
    locality = locality_of(requests)
    sizes = np.arange(1, POINTS) / POINTS * locality.cold * BLOCK_BYTES
    return Curve(np.asarray(locality.miss_ratio(sizes)), locality.cold_share)


def scaled_curve_of(trace: Trace, factor: float) -> Curve:
    """The curve in blocks of 4 KiB x `factor`."""
    requests = requests_of(trace)
    start = requests["offset"].to_numpy()
    end = start + requests["bytes"].to_numpy()
    low = np.rint(start / factor).astype(np.int64)
    return curve_of_requests(
        low, np.maximum(np.rint(end / factor).astype(np.int64), low + 1), requests["file"].to_numpy()
    )


def change_of(before: Curve, after: Curve) -> CurveChange:
    """How far the curve moved, as a mean over the cache sizes."""
    least = np.maximum(after.cold_share - before.miss_ratio, 0)
    least = np.maximum(least, before.miss_ratio - after.missable_share)
    return CurveChange(float(np.abs(after.miss_ratio - before.miss_ratio).mean()), float(least.mean()))
