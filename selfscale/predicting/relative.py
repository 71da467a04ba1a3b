# SPDX-License-Identifier: Apache-2.0
"""Turns predictions for two machines into their ratio (thesis 5.5), and a measurement on one into one for the other.

What a model gets wrong on both machines alike is not in the ratio. So a throughput that was measured on one machine,
times the predicted ratio, is a better prediction for the other where the machines are of one kind (Mesnier's relative
fitness, SIGMETRICS 2007, has the same idea).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Estimated:
    """A throughput, or a ratio of two, with its 90 % interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Estimated:
        """All three multiplied."""
        return Estimated(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Ratio:
    """One machine's throughput over another's for the same workload (thesis 5.5).

    Attributes
    ----------
    ratio, interval_low, interval_high : float
        The 90 % interval takes both predictions' errors as independent: logarithmic half-widths add in squares.
    other_bytes_per_s : float
        What the other machine is predicted to have.
    outside : list of str
        Parameters beyond the other machine's measured values.
    """

    ratio: float
    interval_low: float
    interval_high: float
    other_bytes_per_s: float
    outside: list[str] = field(default_factory=list)


def ratio_of(one: Estimated, other: Estimated, outside: Sequence[str] = ()) -> Ratio:
    """How many times as fast as another machine one is."""
    ratio = one.value / other.value
    up = math.hypot(math.log(one.high / one.value), math.log(other.value / other.low))
    down = math.hypot(math.log(one.value / one.low), math.log(other.high / other.value))
    return Ratio(ratio, ratio * math.exp(-down), ratio * math.exp(up), other.value, list(outside))


def relative(measured: float, here: Estimated, there: Estimated) -> Estimated:
    """What a machine is predicted to have from what another one has been measured to have.

    Parameters
    ----------
    measured : float
        On the other machine: a throughput, or a time.
    here, there : Estimated
        Predictions for this machine and for the other one, of the same workload.
    """
    ratio = ratio_of(here, there)
    return Estimated(ratio.ratio, ratio.interval_low, ratio.interval_high).times(measured)


def half_way(one: Estimated, other: Estimated) -> Estimated:
    """The geometric means of two estimates, and of the ends of their intervals."""
    return Estimated(
        math.sqrt(one.value * other.value), math.sqrt(one.low * other.low), math.sqrt(one.high * other.high)
    )
