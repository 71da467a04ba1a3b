# SPDX-License-Identifier: Apache-2.0
"""Turns several ways of doing the same work into paired samples, measured in turns.

The machines are shared and noisy and drift. So the first way, the reference, runs before and after every other one, and
each run is compared with the mean of its two neighbours. The order of the others is rotated from round to round.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Sample:
    """One run: operations/s (more is better), and processor time of the whole machine per operation."""

    rate: float
    cpu_ns: float = math.nan


@dataclass(frozen=True)
class Way:
    """One way of doing the work: its name, a function that does it once, and in which share of the rounds."""

    name: str
    measure: Callable[[], Sample]
    every: int = 1  # a slow one, which needs no close figure, can run in every n-th round only


def order_of(ways: Sequence[Way], rounds: int) -> list[Way]:
    """The reference in all even places, one of the other ways in every odd one."""
    reference, *others = ways
    order = [reference]
    for number in range(rounds):
        turn = [way for way in others if number % way.every == 0]
        first = number % max(len(turn), 1)
        for way in turn[first:] + turn[:first]:
            order += [way, reference]
    return order


def run_interleaved(ways: Sequence[Way], rounds: int) -> pd.DataFrame:
    """Run all ways in turns; one row per run, with its neighbours' means in ``reference_rate``, ``reference_cpu_ns``.

    The neighbours of a run of the reference are the runs of the reference before and after it: this is the noise. The
    first and the last have no two neighbours and are left out.
    """
    order = order_of(ways, rounds)
    samples = []
    for number, way in enumerate(order):
        print(f"run {number + 1}/{len(order)}: {way.name}", file=sys.stderr)
        samples.append(way.measure())
    rows = []
    for number, (way, sample) in enumerate(zip(order, samples, strict=True)):
        step = 1 if number % 2 else 2
        if number - step < 0 or number + step >= len(order):
            continue
        before, after = samples[number - step], samples[number + step]
        rows.append(
            {
                "way": way.name,
                "rate": sample.rate,
                "cpu_ns": sample.cpu_ns,
                "reference_rate": (before.rate + after.rate) / 2,
                "reference_cpu_ns": (before.cpu_ns + after.cpu_ns) / 2,
            }
        )
    return pd.DataFrame(rows, columns=["way", "rate", "cpu_ns", "reference_rate", "reference_cpu_ns"])
