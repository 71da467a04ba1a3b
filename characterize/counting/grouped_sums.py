# SPDX-License-Identifier: Apache-2.0
"""Turns keys with values into sums by key; memory by distinct keys. Mergeable in any order."""

from __future__ import annotations

import numba
import numpy as np

from characterize.counting.numbering import Numbering, room_for


class GroupedSums:
    """Exact sums of some columns, int64 each.

    Parameters
    ----------
    names : str
        What the columns are; only their number matters here.
    """

    def __init__(self, *names: str) -> None:
        self._keys = Numbering()
        self._sums = [np.zeros(0, np.int64) for _ in names]

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: np.ndarray, *values: np.ndarray) -> np.ndarray:
        """Add values, one row each, to the sums of their keys (int64); returns the numbers of the keys."""
        numbers = self._keys.number(keys)
        for place, column in enumerate(values):
            self._sums[place] = room_for(self._sums[place], len(self._keys))
            _add(numbers, np.asarray(column, np.int64), self._sums[place])
        return numbers

    def merge(self, other: GroupedSums) -> None:
        """Add the sums of `other`."""
        self.add(other._keys.keys.copy(), *(column[: len(other)] for column in other._sums))

    def result(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Keys, ascending, and their sums."""
        order = np.argsort(self._keys.keys)
        return self._keys.keys[order], [column[order] for column in self._sums]


@numba.njit(cache=True, nogil=True)
def _add(numbers: np.ndarray, values: np.ndarray, sums: np.ndarray) -> None:
    for place in range(len(numbers)):
        sums[numbers[place]] += values[place]
