# SPDX-License-Identifier: Apache-2.0
"""Turns paired samples into medians with their spread."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

RESAMPLES = 4000


@dataclass(frozen=True)
class Spread:
    """Median, quartiles, and the 95 % interval of the median by bootstrap (resampling of the pairs)."""

    median: float
    q1: float
    q3: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is one: not of a number that was measured once."""
        return self.low < self.high


def spread_of(values: pd.Series) -> Spread:
    """Spread of the values; NaN where there are none."""
    array = values.to_numpy(dtype=float)
    if not len(array):
        return Spread(*[float("nan")] * 5)
    resampled = np.random.default_rng(1).choice(array, (RESAMPLES, len(array)))
    low, high = np.quantile(np.median(resampled, axis=1), (0.025, 0.975))
    q1, median, q3 = np.quantile(array, (0.25, 0.5, 0.75))
    return Spread(float(median), float(q1), float(q3), float(low), float(high))


def ratio_table(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per way, in order of appearance: its median rate, and its ratios to the neighbours, with their spread."""
    rows = {}
    for name, runs in samples.groupby("way", sort=False):
        ratio = {
            f"ratio_{key}": value for key, value in asdict(spread_of(runs["rate"] / runs["reference_rate"])).items()
        }
        cpu = runs["cpu_ns"] / runs["reference_cpu_ns"]
        rows[name] = {"runs": len(runs), "rate": runs["rate"].median(), **ratio, "cpu_ratio": cpu.median()}
    return pd.DataFrame.from_dict(rows, orient="index").rename(columns={"ratio_median": "ratio"}).rename_axis("way")
