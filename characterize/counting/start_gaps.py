# SPDX-License-Identifier: Apache-2.0
"""Turns starts in ascending order, chunk by chunk, into the distribution of the times from one to the next."""

from __future__ import annotations

import numpy as np

from characterize.counting.log_histogram import LogHistogram


class StartGaps:
    """Times between starts, over the borders of chunks and parts.

    Attributes
    ----------
    histogram : LogHistogram
        Of the gaps, ns.
    """

    def __init__(self) -> None:
        self.histogram = LogHistogram()
        self._first: int | None = None
        self._last: int | None = None

    def add(self, start_ns: np.ndarray) -> None:
        """Follow a chunk of starts, shape (n,), none of them before those that came."""
        if not len(start_ns):
            return
        before = start_ns[0] if self._last is None else self._last
        self.histogram.add(np.diff(start_ns, prepend=before)[self._last is None :])
        self._first = int(start_ns[0]) if self._first is None else self._first
        self._last = int(start_ns[-1])

    def merge(self, following: StartGaps) -> None:
        """Count those of a part that comes after this one."""
        self.histogram.merge(following.histogram)
        if following._first is None:
            return
        if self._last is None:
            self._first = following._first
        else:
            self.histogram.add(np.array([following._first - self._last]))
        self._last = following._last
