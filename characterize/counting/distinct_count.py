# SPDX-License-Identifier: Apache-2.0
"""Turns hashes into an estimate of how many of them differ, in 128 KiB: linear counting.

Whang, Vander-Zanden and Taylor, *A Linear-Time Probabilistic Counting Algorithm for Database Applications*, ACM TODS
15(2), 1990: each hash sets one bit of a map; the share of bits that are still zero tells how many different ones there
were. The standard error is 0.07 % of 100,000, 0.08 % of a million and 0.2 % of 4 million; of 15 million no bit is left.
"""

from __future__ import annotations

import math

import numpy as np

MAP_BITS = 20
_BITS = 1 << MAP_BITS


def distinct_of(bitmap: np.ndarray) -> tuple[float, float]:
    """How many different hashes set the bits of a map (uint64), and the variance of that; infinite if all are set."""
    zero = _BITS - int(np.bitwise_count(bitmap).sum())
    if not zero:
        return math.inf, math.inf
    load = math.log(_BITS / zero)
    return _BITS * load, _BITS * (math.expm1(load) - load)


def empty_map() -> np.ndarray:
    """A map without hashes."""
    return np.zeros(_BITS // 64, np.uint64)
