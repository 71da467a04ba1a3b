# SPDX-License-Identifier: Apache-2.0
"""Turns measured values and the bar that is set for one statistic of them into a line of a table, with its spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

RESAMPLES = 2000


@dataclass(frozen=True)
class Bar:
    """A limit of the issue for one number; `low` is for coverage, which may miss on either side."""

    high: float
    low: float | None = None

    def met(self, value: float) -> bool:
        """Whether a number is within it; one that is not a number is not."""
        return value <= self.high and (self.low is None or value >= self.low)


@dataclass(frozen=True)
class Line:
    """A number beside its bar.

    Attributes
    ----------
    row, what : str
    values : ndarray
        Of which `statistic` is taken.
    quantile : float or None
        Which one of the values; None takes their mean.
    bar : Bar or None
        None where none is set.
    scale, unit
        For printing.
    """

    row: str
    what: str
    values: np.ndarray
    quantile: float | None
    bar: Bar | None
    scale: float = 100.0
    unit: str = "%"

    def statistic(self, values: np.ndarray) -> float:
        """What is compared with the bar."""
        if not len(values):
            return float("nan")
        return float(np.mean(values) if self.quantile is None else np.quantile(values, self.quantile))

    @property
    def measured(self) -> float:
        """Of all values."""
        return self.statistic(self.values)

    @property
    def met(self) -> str:
        """``yes``, ``NO``, or ``-`` without a bar."""
        return "-" if self.bar is None else "yes" if self.bar.met(self.measured) else "NO"

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval by bootstrap."""
        if not len(self.values):
            return float("nan"), float("nan")
        generator = np.random.default_rng(1)
        drawn = generator.choice(self.values, (RESAMPLES, len(self.values)))
        found = drawn.mean(axis=1) if self.quantile is None else np.quantile(drawn, self.quantile, axis=1)
        low, high = np.quantile(found, (0.025, 0.975))
        return float(low), float(high)

    def cells(self) -> dict[str, Any]:
        """As they are printed."""

        def text(value: float) -> str:
            return f"{self.scale * value:.1f} {self.unit}"

        limit = "none"
        if self.bar:
            low = "" if self.bar.low is None else f"{self.scale * self.bar.low:.1f} to "
            limit = f"{low or '<= '}{text(self.bar.high)}"
        low, high = (text(value) for value in self.interval)
        spread = f"{low} to {high}" if len(self.values) > 1 else "-"
        cells = {"row": self.row, "what": self.what, "n": len(self.values), "bar": limit}
        return {**cells, "measured": text(self.measured), "95 % interval": spread, "met": self.met}


def frame(lines: Sequence[Line]) -> pd.DataFrame:
    """Lines as a table."""
    return pd.DataFrame([line.cells() for line in lines])
