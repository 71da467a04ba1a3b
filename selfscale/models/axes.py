# SPDX-License-Identifier: Apache-2.0
"""Turns workloads with any parameters into places on axes from -1 to 1, and says how far one lies outside of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from characterize.workload import FIELD_OF, Workload
from selfscale.models.measured import distance
from selfscale.sampling import LOGARITHMIC

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
        varied = [index for index in range(len(names)) if np.ptp(values[:, index]) > 0]
        self.names = [names[index] for index in varied]
        self.levels = [len(np.unique(values[:, index])) for index in varied]
        self._low, self._high = values.min(axis=0)[varied], values.max(axis=0)[varied]
        self._logarithmic = np.array(
            [
                name in LOGARITHMIC or (name not in FIELD_OF and 0 < WIDE * low <= high)
                for name, low, high in zip(self.names, self._low, self._high, strict=True)
            ]
        )

    def places(self, workloads: Sequence[Workload]) -> np.ndarray:
        """Places, shape (n, names); what lies outside is moved to the nearest end."""
        values = np.clip(_values(workloads, self.names), self._low, self._high)
        low, high = self._low.copy(), self._high.copy()
        for each in (values, low, high):
            each[..., self._logarithmic] = np.log(each[..., self._logarithmic])
        return 2 * (values - low) / (high - low) - 1

    def outside(self, workload: Workload) -> dict[str, str]:
        """Parameters that lie beyond the measured values, each with its distance in words."""
        distances = {}
        values = _values([workload], self.names)[0].tolist()
        for name, value, low, high, logarithmic in zip(
            self.names, values, self._low, self._high, self._logarithmic, strict=True
        ):
            text = distance(name, value, low, high, logarithmic=bool(logarithmic))
            if text:
                distances[name] = text
        return distances


def _values(workloads: Sequence[Workload], names: Sequence[str]) -> np.ndarray:
    rows = []
    for workload in workloads:
        extra = dict(getattr(workload, "extra", ()))
        rows.append([getattr(workload, FIELD_OF[name]) if name in FIELD_OF else extra[name] for name in names])
    values = np.array(rows, float).reshape(len(workloads), len(names))
    # What a table lacks is NaN in all of its workloads.
    return np.where(np.isnan(values), 0.0, values) if not math.isfinite(values.sum()) else values
