# SPDX-License-Identifier: Apache-2.0
"""Turns workloads with any parameters into places on axes from -1 to 1, and says how far one lies outside of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from characterize.workload import FIELD_OF, Workload
from selfscale.models.measured import LOGARITHMIC, distance

WIDE = 10.0
"""Another parameter than the five has a logarithmic axis if its largest value is this many times its least."""


class Axes:
    """The parameters in which workloads differ.

    Parameters
    ----------
    workloads : sequence of Workload
        Those that were measured; of all the same kind.

    Attributes
    ----------
    names : list of str
    levels : list of int
        Number of different values of each.
    """

    def __init__(self, workloads: Sequence[Workload]):
        names = [*FIELD_OF, *dict(getattr(workloads[0], "extra", ()))]
        values = _values(workloads, names)
        low, high = values.min(axis=0), values.max(axis=0)
        logarithmic = np.array([_is_logarithmic(*axis) for axis in zip(names, low, high, strict=True)])
        varied = np.flatnonzero(low < high)
        self.names = [names[index] for index in varied]
        self.levels = [len(np.unique(values[:, index])) for index in varied]
        self._low, self._high, self._logarithmic = low[varied], high[varied], logarithmic[varied]
        # Also of parameters that never changed, of which another value is outside: but not of those that a table lacks.
        self._ranges = {
            name: (float(low[index]), float(high[index]), bool(logarithmic[index]))
            for index, name in enumerate(names)
            if math.isfinite(low[index])
        }

    def places(self, workloads: Sequence[Workload]) -> np.ndarray:
        """Places, shape (n, names); what lies outside is moved to the nearest end."""
        values = np.clip(_values(workloads, self.names), self._low, self._high)
        low, high = self._low.copy(), self._high.copy()
        for each in (values, low, high):
            each[..., self._logarithmic] = np.log(each[..., self._logarithmic])
        return 2 * (values - low) / (high - low) - 1

    def outside(self, workload: Workload) -> dict[str, str]:
        """Parameters that lie beyond the measured values, each with its distance in words."""
        values = _values([workload], list(self._ranges))[0].tolist()
        distances = {
            name: distance(name, value, low, high, logarithmic=logarithmic)
            for value, (name, (low, high, logarithmic)) in zip(values, self._ranges.items(), strict=True)
        }
        return {name: text for name, text in distances.items() if text}


def _is_logarithmic(name: str, low: float, high: float) -> bool:
    return name in LOGARITHMIC or (name not in FIELD_OF and 0 < WIDE * low <= high)


def _values(workloads: Sequence[Workload], names: Sequence[str]) -> np.ndarray:
    rows = []
    for workload in workloads:
        extra = dict(getattr(workload, "extra", ()))
        rows.append([getattr(workload, FIELD_OF[name]) if name in FIELD_OF else extra[name] for name in names])
    # What a table lacks is NaN in all of its workloads.
    return np.array(rows, float).reshape(len(workloads), len(names))
