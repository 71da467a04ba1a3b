# SPDX-License-Identifier: Apache-2.0
"""Turns distributions of times into one table of how many lie within each power of two of nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from characterize.counting.log_histogram import LogHistogram


def time_histogram(times: Mapping[str, LogHistogram]) -> pd.DataFrame:
    """Numbers of times by power of two.

    Parameters
    ----------
    times : dict of str to LogHistogram
        Distributions of times in ns, by name.

    Returns
    -------
    DataFrame, one row per power of two from the shortest to the longest time of all
        ``low_ns`` (inclusive), ``high_ns`` (exclusive); a column of counts for each distribution, by its name. Times of
        0 are in a row from 0 to 1.
    """
    counts = {name: histogram.by_bits() for name, histogram in times.items()}
    used = np.flatnonzero(np.any([np.zeros(64, bool), *(count > 0 for count in counts.values())], axis=0))
    bits = np.arange(used[0], used[-1] + 1) if len(used) else used
    # 2^63, which ends the last row, is no int64.
    high_ns = np.uint64(1) << bits.astype(np.uint64)
    table = {"low_ns": np.where(bits, high_ns >> np.uint64(1), np.uint64(0)), "high_ns": high_ns}
    return pd.DataFrame(table | {name: count[bits] for name, count in counts.items()})
