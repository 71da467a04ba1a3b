# SPDX-License-Identifier: Apache-2.0
"""Turns requests into histograms of their sizes: by powers of two, and the commonest exact sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from characterize.counting.grouped_sums import GroupedSums
from characterize.references import Columns

COMMON_SIZES = 8


@dataclass(frozen=True)
class Sizes:
    """How many requests have which size.

    Attributes
    ----------
    size : ndarray of int64
        Distinct sizes, ascending.
    reads, writes : ndarray of int64
    """

    size: np.ndarray
    reads: np.ndarray
    writes: np.ndarray

    def histogram(self) -> pd.DataFrame:
        """Requests by power of two of their size.

        Returns
        -------
        DataFrame
            ``low_bytes`` (a power of two, included), ``high_bytes`` (the next one, excluded), ``reads``, ``writes``;
            one row per power of two from the smallest to the largest size, also where no request falls.
        """
        # frexp: size = mantissa x 2^exponent with mantissa in [0.5, 1), exact for sizes below 2^53.
        power = np.frexp(self.size.astype(np.float64))[1] - 1
        if not len(power):
            return pd.DataFrame(
                {name: np.zeros(0, np.int64) for name in ("low_bytes", "high_bytes", "reads", "writes")}
            )
        least = int(power.min())
        bins = int(power.max()) - least + 1
        low = 1 << np.arange(least, least + bins, dtype=np.int64)
        reads, writes = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
        np.add.at(reads, power - least, self.reads)
        np.add.at(writes, power - least, self.writes)
        return pd.DataFrame({"low_bytes": low, "high_bytes": 2 * low, "reads": reads, "writes": writes})

    def common(self, limit: int = COMMON_SIZES) -> pd.DataFrame:
        """The commonest exact sizes: ``bytes``, ``requests``, ``share``; the commonest first, then the smaller."""
        count = self.reads + self.writes
        top = np.lexsort((self.size, -count))[:limit]
        share = count[top] / max(int(count.sum()), 1)
        return pd.DataFrame({"bytes": self.size[top], "requests": count[top], "share": share})


class SizeSummary:
    """Sizes of requests that come in chunks; memory by distinct sizes."""

    def __init__(self) -> None:
        self._sums = GroupedSums("reads", "writes")

    def add(self, requests: Columns) -> None:
        """Count a chunk."""
        self._sums.add(requests["bytes"], requests["read"], ~requests["read"])

    def merge(self, other: SizeSummary) -> None:
        """Count what `other` counted, too."""
        self._sums.merge(other._sums)

    def result(self) -> Sizes:
        """What was counted so far."""
        size, (reads, writes) = self._sums.result()
        return Sizes(size, reads, writes)
