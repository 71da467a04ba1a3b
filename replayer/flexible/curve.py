# SPDX-License-Identifier: Apache-2.0
"""Turns two traces into how far apart their miss-ratio curves over cache / uniqueBytes are.

The curve says where a workload's performance falls as caches shrink, so a change of size should move it along the axis
of cache sizes and not bend it (the portability of 2DIO; research/replay.md D3). It is an array of the miss ratios of
LRU caches of 1/64, 2/64 ... 63/64 of the distinct blocks of 4 KiB; first references miss. Not all of it can be held:
what of a difference nothing avoids is told apart (`replayer.flexible.unavoidable`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from characterize.locality import Locality, locality_of
from characterize.references import BLOCK_BYTES
from characterize.requests import requests_of
from characterize.trace import Trace

POINTS = 64
# The curve counts as held up to this mean error.
CURVE_HELD = 0.02


@dataclass(frozen=True)
class CurveChange:
    """Mean absolute difference of two curves, and the part of it that no trace of such requests avoids.

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


def curve_of(trace: Trace) -> np.ndarray:
    """The miss ratios of a trace's requests."""
    return _curve(requests_of(trace))


def curve_of_requests(start: np.ndarray, end: np.ndarray, file: np.ndarray) -> np.ndarray:
    """The miss ratios of requests in the order of time; first byte, end and file of each, int64, shape (n,)."""
    return _curve(pd.DataFrame({"offset": start, "bytes": end - start, "file": file}))


def curve_of_depths(references: np.ndarray) -> np.ndarray:
    """The miss ratios of so many references at each depth, the last of which are first ones; int64, shape (n,)."""
    return _miss_ratios(Locality(references[:-1], int(references[-1])))


def _curve(requests: pd.DataFrame) -> np.ndarray:
    return _miss_ratios(locality_of(requests))


def _miss_ratios(locality: Locality) -> np.ndarray:
    return np.asarray(locality.miss_ratio(np.arange(1, POINTS) / POINTS * locality.cold * BLOCK_BYTES))


def scaled_curve_of(trace: Trace, factor: float) -> np.ndarray:
    """The miss ratios in blocks of 4 KiB x `factor`."""
    requests = requests_of(trace)
    start = requests["offset"].to_numpy()
    end = start + requests["bytes"].to_numpy()
    low = np.rint(start / factor).astype(np.int64)
    return curve_of_requests(
        low, np.maximum(np.rint(end / factor).astype(np.int64), low + 1), requests["file"].to_numpy()
    )


def apart(before: np.ndarray, after: np.ndarray) -> float:
    """How far the curve moved, as a mean over the cache sizes."""
    return float(np.abs(after - before).mean())
