# SPDX-License-Identifier: Apache-2.0
"""Turns requests into what happens in each of some windows of time: rate, number in flight, working set.

All windows have the same width, so that their number bounds the memory. All sums are whole numbers, so that the result
does not depend on how the requests come.
"""

from __future__ import annotations

import numba
import numpy as np
import pandas as pd

from characterize.counting.numbering import room_for
from characterize.references import BLOCK_BYTES, Columns, References

WINDOWS = 200
_COUNTS = ("reads", "writes", "read_bytes", "written_bytes")


class OverTimeSummary:
    """Windows over a time whose begin and end are known.

    Parameters
    ----------
    first_ns, last_ns : int
        Begin of the first window, and a moment that the last one has to reach.
    in_flight : bool
        Whether durations are measurements.
    """

    def __init__(self, first_ns: int, last_ns: int, in_flight: bool, windows: int = WINDOWS) -> None:
        self._first, self._in_flight = first_ns, in_flight
        self._width = max(1, -(-(last_ns - first_ns + 1) // windows))
        count = (last_ns - first_ns) // self._width + 1
        # By window: as _COUNTS, summed time of the requests in flight, distinct blocks.
        self._sums = np.zeros((count, 6), np.int64)
        self._window_of = np.zeros(0, np.int32)
        # The first window with references, and its blocks: the first so many, for they are numbered as they come.
        self._begin: int | None = None
        self._begin_blocks = 0

    def add(self, requests: Columns) -> None:
        """Count a chunk."""
        start, end, size, read = (requests[name] for name in ("start_ns", "end_ns", "bytes", "read"))
        _count(start, end, size, read, self._first, self._width, self._sums)

    def add_references(self, requests: Columns, references: References) -> None:
        """Count the blocks of a batch of requests, each once a window."""
        self._window_of = room_for(self._window_of, references.distinct)
        start = requests["start_ns"][references.requests]
        windows = ((start - self._first) // self._width).astype(np.int32)
        if self._begin is None:
            self._begin = int(windows[0])
        if windows[0] == self._begin:
            within = references.blocks[windows == self._begin].sum()
            self._begin_blocks = max(self._begin_blocks, int(references.numbers[:within].max()) + 1)
        _count_distinct(references.numbers, references.blocks, windows, self._window_of, self._sums)

    def merge(self, following: OverTimeSummary, numbers: np.ndarray) -> None:
        """Count what `following` counted in the same windows, all of whose requests start after these.

        `numbers` : the number here of each of its blocks (`characterize.references.BlockNumbers.merge`).
        """
        self._sums += following._sums
        if following._begin is None:
            return
        self._window_of = room_for(self._window_of, int(numbers.max()) + 1)
        begun = self._window_of[numbers[: following._begin_blocks]]
        self._sums[following._begin, 5] -= (begun == following._begin + 1).sum()
        self._window_of[numbers] = following._window_of[: len(numbers)]

    def result(self) -> pd.DataFrame:
        """One row per window.

        Returns
        -------
        DataFrame
            ``from_s`` since the first start, ``reads, writes, read_bytes, written_bytes`` of the requests that start
            in it, ``in_flight_mean`` over the whole window (NaN where durations are not measurements),
            ``working_set_bytes`` (distinct 4 KiB blocks).
        """
        columns: dict[str, np.ndarray] = {"from_s": np.arange(len(self._sums)) * self._width / 1e9}
        columns |= {name: self._sums[:, place] for place, name in enumerate(_COUNTS)}
        columns["in_flight_mean"] = (
            self._sums[:, 4] / self._width if self._in_flight else np.full(len(self._sums), np.nan)
        )
        columns["working_set_bytes"] = self._sums[:, 5] * BLOCK_BYTES
        return pd.DataFrame(columns)


@numba.njit(cache=True, nogil=True)
def _count(  # noqa: PLR0917 (a kernel has its state in arguments)
    start: np.ndarray, end: np.ndarray, size: np.ndarray, read: np.ndarray, first: int, width: int, sums: np.ndarray
) -> None:
    for request in range(len(start)):
        begin = start[request] - first
        window = begin // width
        direction = 0 if read[request] else 1
        sums[window, direction] += 1
        sums[window, 2 + direction] += size[request]
        stop = end[request] - first
        while begin < stop and window < len(sums):
            edge = min(stop, (window + 1) * width)
            sums[window, 4] += edge - begin
            begin = edge
            window += 1


@numba.njit(cache=True, nogil=True)
def _count_distinct(
    numbers: np.ndarray, blocks: np.ndarray, windows: np.ndarray, window_of: np.ndarray, sums: np.ndarray
) -> None:
    """`window_of`: 1 + the window in which a block was touched last."""
    at = 0
    for request in range(len(blocks)):
        mark = windows[request] + 1
        for _ in range(blocks[request]):
            if window_of[numbers[at]] != mark:
                window_of[numbers[at]] = mark
                sums[mark - 1, 5] += 1
            at += 1
