# SPDX-License-Identifier: Apache-2.0
"""Turns references to blocks into what was done to a block before: read after write, overwrite, and after what time.

Per block the start of its last access and whether that was a write: 8 bytes; of a part that follows another, of its
first one, too.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from characterize.counting.log_histogram import LogHistogram
from characterize.counting.numbering import room_for
from characterize.references import Columns, References

# By what was done before (nothing, read, write) and now (read, write); of those with a time, which are kept.
_PAIRS = {
    "firstRead": (0, 0),
    "firstWrite": (0, 1),
    "readAfterRead": (1, 0),
    "writeAfterRead": (1, 1),
    "readAfterWrite": (2, 0),
    "writeAfterWrite": (2, 1),
}
_TIMED = ("readAfterWrite", "writeAfterWrite")


class BlockHistorySummary:
    """How accesses to the same block follow each other.

    Parameters
    ----------
    arrivals : bool
        Whether starts are measurements.
    follows : bool
        Whether to keep what is needed to be merged into a part before.
    """

    def __init__(self, arrivals: bool, *, follows: bool = False) -> None:
        self._arrivals, self._follows = arrivals, follows
        self._first = np.zeros(0, np.int64)
        self._last = np.zeros(0, np.int64)
        self._counts = np.zeros((3, 2), np.int64)
        self._times = {name: LogHistogram() for name in _TIMED}

    def add(self, requests: Columns, references: References) -> None:
        """Follow a batch of requests."""
        self._last = room_for(self._last, references.distinct)
        if self._follows:
            self._first = room_for(self._first, references.distinct)
        part = references.requests
        start, read = requests["start_ns"][part], requests["read"][part]
        since = np.empty(len(references.numbers), np.int64)
        _follow(references.numbers, references.blocks, start, read, self._last, self._first, self._counts, since)
        if self._arrivals:
            self._times["readAfterWrite"].add(since[since >= 0])
            self._times["writeAfterWrite"].add(-2 - since[since <= -2])

    def merge(self, following: BlockHistorySummary, numbers: np.ndarray) -> None:
        """Count what `following` counted, all of whose requests start after these.

        `numbers` : the number here of each of its blocks (`characterize.references.BlockNumbers.merge`).
        """
        self._last = room_for(self._last, int(numbers.max(initial=-1)) + 1)
        before, first = self._last[numbers], following._first[: len(numbers)]
        known = before > 0
        before, first = before[known], first[known]
        self._counts += following._counts
        np.subtract.at(self._counts, (0, first & 1), 1)
        np.add.at(self._counts, (1 + (before & 1), first & 1), 1)
        for name, times in self._times.items():
            times.merge(following._times[name])
            if self._arrivals:
                mine = ((before & 1) == 1) & ((first & 1) == (name == "writeAfterWrite"))
                times.add((first[mine] >> 1) - (before[mine] >> 1))
        self._last[numbers] = following._last[: len(numbers)]

    def result(self) -> dict[str, Any]:
        """What was followed so far.

        Returns
        -------
        dict
            For each of firstRead, firstWrite, readAfterRead, writeAfterRead, readAfterWrite, writeAfterWrite its share
            of all references to blocks (NaN without any); ``time`` of the last two: from the start of the write to that
            of what follows it, None where starts are not measurements.
        """
        total = int(self._counts.sum())
        shares = {name: int(self._counts[pair]) / total if total else math.nan for name, pair in _PAIRS.items()}
        times = {name: it.distribution() if self._arrivals else None for name, it in self._times.items()}
        return {**shares, "time": times}


@numba.njit(cache=True, nogil=True)
def _follow(  # noqa: PLR0917 (a kernel has its state in arguments)
    numbers: np.ndarray,
    blocks: np.ndarray,
    start: np.ndarray,
    read: np.ndarray,
    last: np.ndarray,
    first: np.ndarray,
    counts: np.ndarray,
    since: np.ndarray,
) -> None:
    """Count pairs; `since`: time from a write to this read, or -2 - that to this write, else -1.

    `last` is 0 for a block that nothing touched, else 2 x (start + 1), and 1 more for a write; `first` is the same of
    its first access, or empty.
    """
    at = 0
    for request in range(len(blocks)):
        now = 0 if read[request] else 1
        mark = 2 * (start[request] + 1) + now
        for _ in range(blocks[request]):
            before = last[numbers[at]]
            last[numbers[at]] = mark
            since[at] = -1
            if before == 0:
                counts[0, now] += 1
                if len(first) > 0:
                    first[numbers[at]] = mark
            else:
                counts[1 + (before & 1), now] += 1
                if before & 1:
                    time = start[request] + 1 - (before >> 1)
                    since[at] = time if now == 0 else -2 - time
            at += 1
