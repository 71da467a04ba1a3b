# SPDX-License-Identifier: Apache-2.0
"""Turns two traces into how far apart their miss-ratio curves over cache / uniqueBytes are, and must be at least.

The curve says where a workload's performance falls as caches shrink, so a change of size should move it along the axis
of cache sizes and not bend it (the portability of 2DIO; research/replay.md D3). Not all of it can be held: a cache of
any size misses the first reference to every block, so with fewer references to as many blocks no miss ratio is below
the new share of first references. What of the difference that explains is told apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from characterize.locality import BLOCK_BYTES, locality_of
from characterize.requests import requests_of
from characterize.trace import Trace

POINTS = 64
# The curve counts as held up to this mean error.
CURVE_HELD = 0.02


@dataclass(frozen=True)
class Curve:
    """Miss ratios of LRU caches of 1/64, 2/64 ... 63/64 of the distinct blocks, and the share of first references."""

    miss_ratio: np.ndarray
    cold_share: float


@dataclass(frozen=True)
class CurveChange:
    """Mean absolute difference of two curves, and the part of it that no trace with so many references avoids."""

    mean_error: float
    least_error: float

    @property
    def beyond_least(self) -> float:
        """What a better way of changing the trace might avoid."""
        return self.mean_error - self.least_error

    def as_document(self) -> dict[str, float]:
        """As JSON needs it."""
        return {"mean_error": self.mean_error, "least_error": self.least_error}


def curve_of(trace: Trace) -> Curve:
    """The miss-ratio curve of a trace's requests over cache / uniqueBytes (blocks of 4 KiB, first references miss)."""
    return _curve(requests_of(trace))


def curve_of_requests(start: np.ndarray, end: np.ndarray, file: np.ndarray) -> Curve:
    """The curve of requests in the order of time; first byte, end and file of each, int64, shape (n,)."""
    return _curve(pd.DataFrame({"offset": start, "bytes": end - start, "file": file}))


def _curve(requests: pd.DataFrame) -> Curve:
    locality = locality_of(requests)
    sizes = np.arange(1, POINTS) / POINTS * locality.cold * BLOCK_BYTES
    return Curve(np.asarray(locality.miss_ratio(sizes)), locality.cold_share)


def change_of(before: Curve, after: Curve) -> CurveChange:
    """How far the curve moved, as a mean over the cache sizes."""
    least = np.maximum(after.cold_share - before.miss_ratio, 0)
    return CurveChange(float(np.abs(after.miss_ratio - before.miss_ratio).mean()), float(least.mean()))
