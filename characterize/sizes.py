# SPDX-License-Identifier: Apache-2.0
"""Turns requests into histograms of their sizes: by powers of two, and the commonest exact sizes."""

from __future__ import annotations

import numpy as np
import pandas as pd


def size_histogram(requests: pd.DataFrame) -> pd.DataFrame:
    """Requests by power of two of their size.

    Returns
    -------
    DataFrame
        ``low_bytes`` (a power of two, included), ``high_bytes`` (the next one, excluded), ``reads``, ``writes``; one
        row per power of two from the smallest to the largest size, also where no request falls.
    """
    size, read = requests["bytes"].to_numpy(), requests["read"].to_numpy()
    # frexp: size = mantissa x 2^exponent with mantissa in [0.5, 1), exact for sizes below 2^53.
    power = np.frexp(size.astype(np.float64))[1] - 1
    if not len(power):
        return pd.DataFrame({name: np.zeros(0, np.int64) for name in ("low_bytes", "high_bytes", "reads", "writes")})
    least = int(power.min())
    bins = int(power.max()) - least + 1
    low = 1 << np.arange(least, least + bins, dtype=np.int64)
    return pd.DataFrame(
        {
            "low_bytes": low,
            "high_bytes": 2 * low,
            "reads": np.bincount(power[read] - least, minlength=bins),
            "writes": np.bincount(power[~read] - least, minlength=bins),
        }
    )


def common_sizes(requests: pd.DataFrame, limit: int = 8) -> pd.DataFrame:
    """The commonest exact sizes: ``bytes``, ``requests``, ``share``; the commonest first, then the smaller."""
    size, count = np.unique(requests["bytes"].to_numpy(), return_counts=True)
    top = np.lexsort((size, -count))[:limit]
    return pd.DataFrame({"bytes": size[top], "requests": count[top], "share": count[top] / max(len(requests), 1)})
