# SPDX-License-Identifier: Apache-2.0
"""Turns starts and ends of requests into how long how many of them were in flight at once."""

from __future__ import annotations

import numpy as np
import pandas as pd

from characterize.counting.numbering import room_for
from characterize.references import Columns


class InFlightTime:
    """Time by number in flight, of requests that come in chunks, in the order of their starts.

    Memory by requests in flight at once. Not mergeable: the order counts.
    """

    def __init__(self) -> None:
        self._time_ns = np.zeros(0, np.int64)
        self._ends = np.zeros(0, np.int64)
        self._flying, self._reached_ns = 0, 0

    def add(self, requests: Columns) -> None:
        """Follow a chunk."""
        start, end = requests["start_ns"], requests["end_ns"]
        if len(start):
            ends = np.concatenate([self._ends, end])
            over = ends <= start[-1]
            self._follow(start, ends[over])
            self._ends = ends[~over]

    def result(self) -> pd.DataFrame:
        """What was followed; requests still in flight come to their ends, so that nothing can be added behind it.

        Returns
        -------
        DataFrame
            ``in_flight`` 1, 2, ... as far as it occurs, ``time_s``, ``share`` of the time in which any was.
        """
        self._follow(np.zeros(0, np.int64), self._ends)
        self._ends = self._ends[:0]
        in_flight = np.flatnonzero(self._time_ns[1:]) + 1
        frame = pd.DataFrame({"in_flight": in_flight, "time_s": self._time_ns[in_flight] / 1e9})
        frame["share"] = frame["time_s"] / (frame["time_s"].sum() or np.nan)
        return frame

    def _follow(self, starts: np.ndarray, ends: np.ndarray) -> None:
        times, steps = np.concatenate([starts, ends]), np.repeat([1, -1], [len(starts), len(ends)])
        if not len(times):
            return
        # An end stands before a start at the same time: they do not overlap.
        order = np.lexsort((steps, times))
        times, after = times[order], self._flying + np.cumsum(steps[order])
        before = np.concatenate([[self._flying], after[:-1]])
        since = np.diff(times, prepend=self._reached_ns)
        self._time_ns = room_for(self._time_ns, int(before.max()) + 1)
        np.add.at(self._time_ns, before, since)
        self._flying, self._reached_ns = int(after[-1]), int(times[-1])
