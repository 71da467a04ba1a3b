# SPDX-License-Identifier: Apache-2.0
"""Turns samples into a statistic of them with its spread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

RESAMPLES = 4000


@dataclass(frozen=True)
class Spread:
    """A statistic, as a rule the median; its 95 % interval by bootstrap; the quartiles of the values themselves."""

    value: float
    q1: float
    q3: float
    low: float
    high: float
    count: int

    @property
    def known(self) -> bool:
        """Whether there is one: not of a number that was measured once."""
        return self.low < self.high


def spread_of(values: ArrayLike, statistic: Callable[..., Any] = np.median) -> Spread:
    """Spread of values (paired samples are resampled as pairs, if these are ratios); NaN where there are none.

    Parameters
    ----------
    values : array_like
    statistic : callable
        As numpy's, with ``axis``.
    """
    array = np.asarray(values, dtype=float)
    if not len(array):
        return Spread(*[float("nan")] * 5, 0)
    resampled = np.random.default_rng(1).choice(array, (RESAMPLES, len(array)))
    low, high = np.quantile(statistic(resampled, axis=1), (0.025, 0.975))
    q1, q3 = np.quantile(array, (0.25, 0.75))
    return Spread(float(statistic(array, axis=0)), float(q1), float(q3), float(low), float(high), len(array))


def exactly(value: float) -> Spread:
    """A number that was measured once, or has no spread."""
    return Spread(value, value, value, value, value, 1)


def ratio_table(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per way, in order of appearance: its median rate, and its ratios to the neighbours, with their spread."""
    rows = {}
    for name, runs in samples.groupby("way", sort=False):
        spread = asdict(spread_of(runs["rate"] / runs["reference_rate"]))
        counts = {"runs": spread.pop("count"), "rate": runs["rate"].median(), "ratio": spread.pop("value")}
        ratios = {f"ratio_{key}": value for key, value in spread.items()}
        rows[name] = {**counts, **ratios, "cpu_ratio": (runs["cpu_ns"] / runs["reference_cpu_ns"]).median()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("way")
