# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into a working copy that can be changed request by request, and knows its streams and runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from characterize.counting.intervals import union_length
from characterize.errors import FlextraceError
from characterize.layout import FileFlag, Fileop, IoOp, RecordKind
from characterize.requests import left_out, missed_bytes_of
from characterize.trace import Trace
from replayer.flexible.wakes import standing

ALIGNMENTS = (4096, 512)
# A file counts as aligned where this share of its requests starts at a multiple.
ALIGNED_SHARE = 0.9


class UnreachableError(FlextraceError):
    """A target that no alteration reaches, with the range of those that are reached."""

    def __init__(self, message: str, low: float, high: float):
        super().__init__(message, 2)
        self.low, self.high = low, high


class RowsOfFiles:
    """Finds the rows of one file among records, or among those that are `chosen` (bool)."""

    def __init__(self, records: np.ndarray, chosen: np.ndarray | None = None):
        rows = np.arange(len(records)) if chosen is None else np.flatnonzero(chosen)
        self._rows = rows[np.argsort(records["file"][rows], kind="stable")]
        self._file = records["file"][self._rows].astype(np.int64)

    def of(self, file: int) -> np.ndarray:
        """In the order in which they stand; none where there is no such file."""
        return self._rows[slice(*np.searchsorted(self._file, [file, file + 1]))]


@dataclass
class Draft:
    """Working copies of the records, in the order of their starts; ``notes`` says what was done to them."""

    io: np.ndarray
    fileops: np.ndarray
    files: np.ndarray
    tasks: np.ndarray
    wakes: np.ndarray
    paths: dict[int, str]
    untimed: bool
    notes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: Trace) -> Draft:
        """A working copy of a trace, without the pages of programs that are no requests (`left_out`).

        What comes from the device and what from the page cache is not known before the altered trace runs.
        `missed_bytes` stays what the parent's request missed, whatever becomes of its direction and size: nobody takes
        it for the altered trace's, and it says which durations have waiting for storage in them, and by not being
        measured for writes which are of a write. WAKE records are as recorded, those that hold.
        """
        io, fileops = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILEOP]
        io = io[~left_out(trace)]
        io["missed_bytes"] = missed_bytes_of(io)
        files, tasks = (trace.arrays[kind].copy() for kind in (RecordKind.FILE, RecordKind.TASK))
        wakes = standing(trace.arrays[RecordKind.WAKE], io, fileops)
        draft = cls(io, fileops, files, tasks, wakes, dict(trace.paths), trace.untimed)
        draft.sort()
        return draft

    def copy(self) -> Draft:
        """Another one, whose requests can be changed on their own."""
        return replace(
            self,
            io=self.io.copy(),
            fileops=self.fileops.copy(),
            files=self.files.copy(),
            paths=dict(self.paths),
            notes={},
        )

    def sort(self) -> None:
        """Bring the records into the order of their starts; stable, so that of equal ones the order stays."""
        self.io = self.io[np.argsort(self.io["start_ns"], kind="stable")]
        self.fileops = self.fileops[np.argsort(self.fileops["start_ns"], kind="stable")]
        self.wakes = self.wakes[np.argsort(self.wakes["start_ns"], kind="stable")]

    @classmethod
    def joined(cls, drafts: Sequence[Draft]) -> Draft:
        """All records of several drafts whose ids differ, in the order of their starts."""
        io, fileops, files, tasks, wakes = (
            np.concatenate([getattr(draft, name) for draft in drafts])
            for name in ("io", "fileops", "files", "tasks", "wakes")
        )
        paths = {file: path for draft in drafts for file, path in draft.paths.items()}
        draft = cls(io, fileops, files, tasks, wakes, paths, drafts[0].untimed)
        draft.sort()
        return draft

    @property
    def requests(self) -> np.ndarray:
        """Indices of the IO records that moved data, shape (n,)."""
        return np.flatnonzero(self.io["result"] > 0)

    def intervals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Start, end and file of every request, int64, shape (n,) each."""
        requests = self.io[self.requests]
        start = requests["offset"].astype(np.int64)
        return start, start + requests["result"], requests["file"].astype(np.int64)

    def unique_bytes(self) -> int:
        """The parameter, exactly."""
        return union_length(*self.intervals())

    def file_ends(self) -> np.ndarray:
        """Of every request where the last one of its file ends, int64, shape (n,)."""
        _, end, file = self.intervals()
        return pd.Series(end).groupby(file).transform("max").to_numpy()

    def streams(self) -> tuple[np.ndarray, np.ndarray]:
        """Request before and request behind every request in its stream (thread, file), as numbers of requests.

        Returns
        -------
        before, behind : ndarray of int64, shape (n,)
            -1 where there is none. Offsets may change, these do not.
        """
        requests = self.io[self.requests]
        order = np.lexsort((requests["file"], requests["thread"]))
        same = np.zeros(len(order), bool)
        if len(order):
            ordered = requests[order]
            same[1:] = (ordered["thread"][1:] == ordered["thread"][:-1]) & (ordered["file"][1:] == ordered["file"][:-1])
        before, behind = np.full(len(order), -1, np.int64), np.full(len(order), -1, np.int64)
        before[order[1:][same[1:]]] = order[:-1][same[1:]]
        behind[order[:-1][same[1:]]] = order[1:][same[1:]]
        return before, behind

    def sequential(self) -> np.ndarray:
        """Which requests continue the one before them in their stream, bool, shape (n,)."""
        start, end, _ = self.intervals()
        before, _ = self.streams()
        return (before >= 0) & (start == end[before])

    def runs(self, *, one_direction: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Maximal sequential stretches of a stream.

        Returns
        -------
        order : ndarray of int64, shape (n,)
            Request numbers by stream, then time.
        run : ndarray of int64, shape (n,)
            Number of the run of every request of `order`: 0, 1, 2 ...
        """
        requests = self.io[self.requests]
        order = np.lexsort((requests["file"], requests["thread"]))
        starts = ~self.sequential()
        if one_direction:
            before, _ = self.streams()
            starts |= requests["op"] != requests["op"][before]
        return order, np.cumsum(starts[order]) - 1

    def created(self) -> np.ndarray:
        """Ids of files that did not exist before the trace."""
        return self.files["file"][(self.files["flags"] & FileFlag.CREATED) != 0].astype(np.int64)

    def removals(self) -> np.ndarray:
        """Which file operations take the last name of a file, bool; one that was linked has another name left."""
        done = self.fileops["result"] >= 0
        unlinks, links = done & (self.fileops["op"] == Fileop.UNLINK), done & (self.fileops["op"] == Fileop.LINK)
        if not links.any():
            return unlinks
        file = self.fileops["file"]
        order = np.argsort(file, kind="stable")
        names = pd.Series(links.astype(np.int64) - unlinks)[order].groupby(file[order], sort=False).cumsum()
        return unlinks & (names.sort_index().to_numpy() < 0)

    def reborn(self) -> np.ndarray:
        """Ids of files that are used again after an unlink: what they held cannot be laid out before the trace."""
        unlinks = self.fileops[self.removals()]
        if not len(unlinks):
            return np.zeros(0, np.int64)
        ids, first = np.unique(unlinks["file"], return_index=True)
        gone = dict(zip(ids.tolist(), unlinks["start_ns"][first].tolist(), strict=True))
        opens = self.fileops[self.fileops["op"] == Fileop.OPEN]
        again = [
            file
            for file, at in zip(opens["file"].tolist(), opens["start_ns"].tolist(), strict=True)
            if at > gone.get(file, at)
        ]
        return np.unique(np.array(again, np.int64))

    def alignment(self, file: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Of the file of every request the largest of `ALIGNMENTS` that its offsets keep, else 1; int64, shape (n,)."""
        _, number = np.unique(file, return_inverse=True)
        result = np.ones(len(file), np.int64)
        count = np.bincount(number)
        for alignment in reversed(ALIGNMENTS):
            kept = np.bincount(number, weights=start % alignment == 0) >= ALIGNED_SHARE * count
            result[kept[number]] = alignment
        return result

    def reads(self) -> np.ndarray:
        """Which requests are reads, bool, shape (n,)."""
        return self.io["op"][self.requests] == IoOp.READ

    def shift(self, shift: np.ndarray) -> None:
        """Add to the offset of every request; int64, shape (n,)."""
        requests = self.requests
        self.io["offset"][requests] = (self.io["offset"][requests].astype(np.int64) + shift).astype(np.uint64)

    def note(self, step: str, **facts: Any) -> None:
        """Remember what a step did, for the lineage."""
        self.notes.setdefault(step, {}).update(facts)

    def note_all(self, notes: dict[str, Any]) -> None:
        """Remember what was done to another draft that this one becomes, beside what was done before."""
        for step, facts in notes.items():
            self.note(step, **facts)
