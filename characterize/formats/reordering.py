# SPDX-License-Identifier: Apache-2.0
"""Turns chunks that are nearly in the order of the starts into chunks that are, with so many records in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from characterize.formats.reading import Chunk
from characterize.layout import IO_DTYPE, RECORD_DTYPE, RecordKind

WINDOW_RECORDS = 1 << 20
TIMED_KINDS = (RecordKind.IO, RecordKind.FILEOP, RecordKind.BLOCK)
"""Kinds that have their start at the same place."""


class Reordering:
    """A stable sort by the start within a window.

    Attributes
    ----------
    late : int
        Records that started before what had left the window already: they are out of order.
    """

    def __init__(self, window_records: int = WINDOW_RECORDS):
        self.window_records = window_records
        self.late = 0
        self._waiting = np.zeros(0, IO_DTYPE)
        self._last_ns = 0

    def chunks(self, source: Iterator[Chunk]) -> Iterator[Chunk]:
        """Chunks of the same records; FILE, TASK and others stand no later than they did."""
        for chunk in source:
            early = {kind: array for kind, array in chunk.arrays.items() if kind not in TIMED_KINDS and len(array)}
            if early:
                yield Chunk(early, chunk.paths)
            self._take([self._waiting, *(_as_io(chunk.arrays[it]) for it in TIMED_KINDS if it in chunk.arrays)])
            ready = len(self._waiting) - self.window_records
            if ready >= self.window_records:
                yield self._leave(ready)
        if len(self._waiting):
            yield self._leave(len(self._waiting))

    def _take(self, parts: list[np.ndarray]) -> None:
        waiting = np.concatenate(parts)
        starts = waiting["start_ns"]
        if (starts[1:] < starts[:-1]).any():
            waiting = waiting[np.argsort(starts, kind="stable")]
        self._waiting = waiting

    def _leave(self, count: int) -> Chunk:
        leaving, self._waiting = self._waiting[:count], self._waiting[count:]
        self.late += int((leaving["start_ns"] < self._last_ns).sum())
        self._last_ns = max(self._last_ns, int(leaving["start_ns"][-1]))
        kinds = leaving["kind"]
        present = [kind for kind in TIMED_KINDS if (kinds == kind).any()]
        return Chunk({kind: leaving[kinds == kind].view(RECORD_DTYPE[kind]) for kind in present})


def _as_io(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(IO_DTYPE)
