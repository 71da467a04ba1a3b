# SPDX-License-Identifier: Apache-2.0
"""Turns several ways of doing the same work into ratios against the first, measured in turns.

The machines are shared and noisy: every round runs every way once, and what is reported are the medians over rounds of
the ratio to the first way of the same round, with their spread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Way:
    """One way of doing the work: its name and a function that does it once and returns a rate (more is better)."""

    name: str
    rate: Callable[[], float]


def run_interleaved(ways: list[Way], rounds: int) -> pd.DataFrame:
    """Run all ways in turns; one row per way: median rate, median ratio to the first way, and the ratio's quartiles."""
    rates = np.zeros((rounds, len(ways)))
    for number in range(rounds):
        for column, way in enumerate(ways):
            print(f"round {number + 1}/{rounds}: {way.name}", file=sys.stderr)
            rates[number, column] = way.rate()
    ratios = rates / rates[:, :1]
    return pd.DataFrame(
        {
            "rate": np.median(rates, axis=0),
            "ratio": np.median(ratios, axis=0),
            "ratio_q1": np.quantile(ratios, 0.25, axis=0),
            "ratio_q3": np.quantile(ratios, 0.75, axis=0),
        },
        index=pd.Index([way.name for way in ways], name="way"),
    )
