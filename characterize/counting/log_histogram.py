# SPDX-License-Identifier: Apache-2.0
"""Turns values into a histogram with logarithmic buckets, of a size that does not depend on how many there are.

Values below 512 have a bucket each; above, a bucket is at most 1/256 of its values wide. A bucket also keeps the
largest value that fell into it, which stands for it: a quantile is then a value that occurred, never below the exact
one and at most 0.4 % above it, and exact where a bucket holds one distinct value. Count, mean and maximum are exact.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numba
import numpy as np

from characterize.counting.numbering import Numbering, room_for

_SUB_BITS = 8
BUCKETS = (64 - _SUB_BITS) << _SUB_BITS
"""Enough for all int64 from 0 on."""

# A share is taken with six decimals, and then without rounding: 0.999 x 10^8 is a whole number.
_SHARE_DIGITS = 10**6

QUANTILES = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p999_ns": 0.999}


class LogHistogram:
    """Distribution of whole numbers from 0 to 2^63 - 1.

    Attributes
    ----------
    count, total, largest : int
        Exact.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.largest = 0
        # Pages that no value falls into take no memory.
        self._counts = np.zeros(BUCKETS, np.int64)
        self._tops = np.zeros(BUCKETS, np.int64)

    def add(self, values: np.ndarray) -> None:
        """Count int64 values."""
        if len(values):
            self.count += len(values)
            self.total += int(values.sum())
            self.largest = max(self.largest, int(values.max()))
            _count(values, self._counts, self._tops)

    def __getstate__(self) -> tuple[Any, ...]:
        # A part of a trace is sent with hundreds of these when it has groups.
        used = np.flatnonzero(self._counts)
        return self.count, self.total, self.largest, used, self._counts[used], self._tops[used]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.count, self.total, self.largest, used, counts, tops = state
        self._counts, self._tops = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.int64)
        self._counts[used], self._tops[used] = counts, tops

    def merge(self, other: LogHistogram) -> None:
        """Count what `other` counted, too."""
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        used = np.flatnonzero(other._counts)
        self._counts[used] += other._counts[used]
        self._tops[used] = np.maximum(self._tops[used], other._tops[used])

    @property
    def mean(self) -> float:
        """NaN without values."""
        return self.total / self.count if self.count else math.nan

    def quantile(self, share: float) -> int:
        """The value that at least this share of all does not exceed, up to 0.4 % too large; there has to be a value."""
        return int(self._tops[np.searchsorted(np.cumsum(self._counts), rank_of(share, self.count))])

    def buckets(self) -> tuple[np.ndarray, np.ndarray]:
        """Largest value and count of every bucket that is not empty, ascending."""
        used = np.flatnonzero(self._counts)
        return self._tops[used], self._counts[used]

    def by_bits(self) -> np.ndarray:
        """How many values have 0, 1, 2, ... binary digits; exact; int64, shape (64,)."""
        used = np.flatnonzero(self._counts)
        counts = np.zeros(64, np.int64)
        # All values of a bucket have the same number of digits.
        np.add.at(counts, np.frexp(least_of(used).astype(np.float64))[1], self._counts[used])
        return counts

    def distribution(self) -> dict[str, float | None]:
        """Of times in ns.

        Returns
        -------
        dict
            ``count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns``; all but ``count`` None without values.
        """
        if not self.count:
            return {"count": 0, "mean_ns": None, **dict.fromkeys(QUANTILES), "max_ns": None}
        quantiles = {name: self.quantile(share) for name, share in QUANTILES.items()}
        return {"count": self.count, "mean_ns": self.mean, **quantiles, "max_ns": self.largest}


class GroupedHistogram:
    """One such distribution for each of many groups, of which most have few values: only what occurs takes memory."""

    def __init__(self) -> None:
        self._buckets = Numbering()
        self._counts = np.zeros(0, np.int64)
        self._tops = np.zeros(0, np.int64)

    def add(self, groups: np.ndarray, values: np.ndarray) -> None:
        """Count int64 values, each in its group (0 to 2^31)."""
        numbers = self._buckets.number(_keys(groups, values))
        self._counts = room_for(self._counts, len(self._buckets))
        self._tops = room_for(self._tops, len(self._buckets))
        _count_numbered(numbers, values, self._counts, self._tops)

    def merge(self, other: GroupedHistogram, numbers: np.ndarray) -> None:
        """Count what `other` counted, too; `numbers`: the group here of each of its groups."""
        keys = other._buckets.keys
        own = self._buckets.number(numbers[keys // BUCKETS].astype(np.int64) * BUCKETS + keys % BUCKETS)
        self._counts = room_for(self._counts, len(self._buckets))
        self._tops = room_for(self._tops, len(self._buckets))
        self._counts[own] += other._counts[: len(own)]
        self._tops[own] = np.maximum(self._tops[own], other._tops[: len(own)])

    def medians(self, groups: int) -> np.ndarray:
        """Median of every group as from `LogHistogram.quantile`, NaN without values; float64, shape (groups,)."""
        keys = self._buckets.keys
        order = np.argsort(keys)
        group = keys[order] // BUCKETS
        counts, tops = self._counts[order], self._tops[order]
        medians = np.full(groups, math.nan)
        bounds = np.flatnonzero(np.diff(group, prepend=-1, append=-1))
        for first, end in pairwise(bounds):
            reached = np.cumsum(counts[first:end])
            medians[group[first]] = tops[first + np.searchsorted(reached, rank_of(0.5, int(reached[-1])))]
        return medians


def rank_of(share: float, count: int) -> int:
    """Which of `count` ascending values, from 1 on, at least this share does not exceed."""
    return max(1, -(-count * round(share * _SHARE_DIGITS) // _SHARE_DIGITS))


def least_of(bucket: np.ndarray) -> np.ndarray:
    """Smallest value of a bucket."""
    octave = np.maximum((bucket >> _SUB_BITS) - 1, 0)
    return (bucket - (octave << _SUB_BITS)) << octave


def middle_of(bucket: np.ndarray) -> np.ndarray:
    """Mean of the smallest and the largest value of a bucket."""
    return (least_of(bucket) + (least_of(bucket + 1) - 1)) / 2


@numba.njit(cache=True, inline="always")
def bucket_of(value: np.int64) -> np.int64:
    """Bucket of a value."""
    # The exponent of a double is the place of the highest bit; only the upper 32 bits, which a double has exactly.
    high = value >> 32
    if high:
        octave = (np.float64(high).view(np.int64) >> 52) - 1023 + 32 - _SUB_BITS
    else:
        octave = (np.float64(value | (1 << _SUB_BITS)).view(np.int64) >> 52) - 1023 - _SUB_BITS
    return (octave << _SUB_BITS) + (value >> octave)


@numba.njit(cache=True, nogil=True)
def _count(values: np.ndarray, counts: np.ndarray, tops: np.ndarray) -> None:
    for value in values:
        bucket = bucket_of(value)
        counts[bucket] += 1
        tops[bucket] = max(tops[bucket], value)


@numba.njit(cache=True, nogil=True)
def _keys(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
    keys = np.empty(len(values), np.int64)
    for place in range(len(values)):
        keys[place] = groups[place] * BUCKETS + bucket_of(values[place])
    return keys


@numba.njit(cache=True, nogil=True)
def _count_numbered(numbers: np.ndarray, values: np.ndarray, counts: np.ndarray, tops: np.ndarray) -> None:
    for place in range(len(numbers)):
        counts[numbers[place]] += 1
        tops[numbers[place]] = max(tops[numbers[place]], values[place])
