# SPDX-License-Identifier: Apache-2.0
"""Turns chunks that are nearly in the order of the starts into chunks that are, with so many records in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from characterize.formats.reading import Chunk
from characterize.layout import IO_DTYPE, RECORD_DTYPE, RecordKind
from characterize.requests import concatenated, rows_at

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
        # Each is sorted and does not begin before the one before it ends: what comes in order is not copied.
        self._waiting: list[np.ndarray] = []
        self._last_ns = 0

    def chunks(self, source: Iterator[Chunk]) -> Iterator[Chunk]:
        """Chunks of the same records; FILE, TASK and others stand no later than they did."""
        for chunk in source:
            early = {kind: array for kind, array in chunk.arrays.items() if kind not in TIMED_KINDS and len(array)}
            if early:
                yield Chunk(early, chunk.paths)
            parts = [_as_io(chunk.arrays[it]) for it in TIMED_KINDS if it in chunk.arrays and len(chunk.arrays[it])]
            if parts:
                self._take(parts[0] if len(parts) == 1 else concatenated(parts))
            yield from self._ready()
        while self._waiting:
            yield self._leave(self._waiting.pop(0))

    def _ready(self) -> Iterator[Chunk]:
        """What is not within the window any more: whole arrays, and of one that is larger than the window a part."""
        waiting = sum(map(len, self._waiting))
        too_many = waiting - self.window_records
        while self._waiting and len(self._waiting[0]) <= too_many:
            too_many -= len(self._waiting[0])
            yield self._leave(self._waiting.pop(0))
        if too_many >= self.window_records:
            first, self._waiting[0] = self._waiting[0][:too_many], self._waiting[0][too_many:]
            yield self._leave(first)

    def _take(self, array: np.ndarray) -> None:
        starts = array["start_ns"]
        first = starts.min()
        # Those that start later than the first of the new ones have to be mixed with them, and no others.
        mixed = []
        while self._waiting and self._waiting[-1]["start_ns"][-1] > first:
            last = self._waiting.pop()
            place = int(np.searchsorted(last["start_ns"], first, side="right"))
            mixed.append(last[place:])
            if place:
                self._waiting.append(last[:place])
                break
        if mixed:
            array = concatenated([*mixed[::-1], array])
            starts = array["start_ns"]
        if (starts[1:] < starts[:-1]).any():
            array = rows_at(array, np.argsort(starts, kind="stable"))
        self._waiting.append(array)

    def _leave(self, leaving: np.ndarray) -> Chunk:
        self.late += int((leaving["start_ns"] < self._last_ns).sum())
        self._last_ns = max(self._last_ns, int(leaving["start_ns"][-1]))
        kinds = leaving["kind"]
        present = [kind for kind in TIMED_KINDS if (kinds == kind).any()]
        if len(present) == 1:
            return Chunk({present[0]: leaving.view(RECORD_DTYPE[present[0]])})
        return Chunk({it: rows_at(leaving, np.flatnonzero(kinds == it)).view(RECORD_DTYPE[it]) for it in present})


def _as_io(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(IO_DTYPE)
