# SPDX-License-Identifier: Apache-2.0
"""Turns pieces of a recording into what has to be known before the set can be cut into parts: times, numbers, files.

A task of the engine, as is what finds the records that are in flight at the borders, once these are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from characterize.cluster.recording import Recording
from characterize.layout import (
    RECORD_DTYPE,
    TRACE_FIRST_NAME_ID,
    BlockFlag,
    HeaderFlag,
    RecordKind,
)
from characterize.requests import concatenated
from characterize.stream import SMALL, TIMED, Arrays, Chunk

STARTS_KEPT = 64
NEVER = 2**63 - 1


@dataclass(frozen=True)
class Piece:
    """Times of a piece of a recording, ns.

    Attributes
    ----------
    first_ns, last_ns, end_ns : int
        First and last start and last end of its timed records; `NEVER`, -1, -1 without one.
    begins_with_data : bool
        Whether it begins with BLOCK_DATA records of a request in a piece before.
    last_block_ns : int
        Start of its last BLOCK record, -1 without one.
    starts : ndarray of int64
        Starts of evenly many timed records each.
    timed : int
        Number of its timed records.
    """

    first_ns: int
    last_ns: int
    end_ns: int
    begins_with_data: bool
    last_block_ns: int
    starts: np.ndarray
    timed: int


@dataclass
class Survey:
    """What some pieces of a recording hold.

    Attributes
    ----------
    pieces : list of Piece
    small : dict of RecordKind to list of ndarray
        Records of kinds of which there are few.
    count : ndarray of int64, shape (256,)
        Records by kind.
    records : int
        All until a hole (kind 0) in a file that its recorder did not close.
    file, task, operation : int
        Largest number of a file, of a thread or process, and of an operation.
    devices : set of int
    unstacked : bool
        Whether there is a BLOCK record of a device that is not stacked.
    """

    pieces: list[Piece] = field(default_factory=list)
    small: dict[RecordKind, list[np.ndarray]] = field(default_factory=lambda: {kind: [] for kind in SMALL})
    count: np.ndarray = field(default_factory=lambda: np.zeros(256, np.int64))
    records: int = 0
    file: int = 0
    task: int = 0
    operation: int = 0
    devices: set[int] = field(default_factory=set)
    unstacked: bool = False

    def add(self, following: Survey) -> None:
        """Join what the next pieces of the recording hold."""
        self.pieces += following.pieces
        for kind, found in following.small.items():
            self.small[kind] += found
        self.count += following.count
        self.records += following.records
        self.file, self.task = max(self.file, following.file), max(self.task, following.task)
        self.operation = max(self.operation, following.operation)
        self.devices |= following.devices
        self.unstacked |= following.unstacked


def survey(span: tuple[Recording, int, int]) -> Survey:
    """Survey the pieces of a recording from one to another.

    Raises
    ------
    FlextraceError
        The file cannot be read or is damaged.
    """
    recording, begin, end = span
    found = Survey()
    ends_at_hole = bool(int(recording.header["flags"]) & HeaderFlag.INCOMPLETE)
    for number in range(begin, end):
        records = recording.read(number)
        whole = len(records)
        if ends_at_hole and (holes := records[:, 0] == 0).any():
            whole = int(np.argmax(holes))
        found.pieces.append(_piece(records[:whole], found))
        found.records += whole
        if whole < len(records):
            break
    return found


def _piece(records: np.ndarray, found: Survey) -> Piece:
    kinds = np.ascontiguousarray(records[:, 0])
    found.count += np.bincount(kinds, minlength=256)
    starts, end_ns, last_block_ns = [np.zeros(0, np.int64)], -1, -1
    for kind in RECORD_DTYPE:
        its = rows_of(records, kinds, kind)
        if not len(its):
            continue
        _note_numbers(its, found)
        if kind in found.small:
            found.small[kind].append(its)
        if kind in TIMED:
            start = its["start_ns"].astype(np.int64)
            starts.append(start)
            end_ns = max(end_ns, int((start + its["duration_ns"].astype(np.int64)).max()))
        if kind is RecordKind.BLOCK:
            last_block_ns = int(its["start_ns"][-1])
            found.unstacked |= bool(((its["flags"] & BlockFlag.STACKED) == 0).any())
    every = np.sort(np.concatenate(starts))
    linked = kinds[np.isin(kinds, (RecordKind.BLOCK, RecordKind.BLOCK_DATA))]
    return Piece(
        first_ns=int(every[0]) if len(every) else NEVER,
        last_ns=int(every[-1]) if len(every) else -1,
        end_ns=end_ns,
        begins_with_data=bool(len(linked) and linked[0] == RecordKind.BLOCK_DATA),
        last_block_ns=last_block_ns,
        starts=every[:: max(1, len(every) // STARTS_KEPT)],
        timed=len(every),
    )


def _note_numbers(its: np.ndarray, found: Survey) -> None:
    for name in its.dtype.names or ():
        if name in ("thread", "process", "waker"):
            found.task = max(found.task, int(its[name].max()))
        elif name in ("id", "cause"):
            found.operation = max(found.operation, int(its[name].max()))
        elif name == "file":
            found.file = max(found.file, int(its[name][its[name] < TRACE_FIRST_NAME_ID].max(initial=0)))
        elif name == "device":
            found.devices.update(np.unique(its[name]).tolist())


def rows_of(records: np.ndarray, kinds: np.ndarray, kind: RecordKind) -> np.ndarray:
    """Records of one kind, copied."""
    return records[np.flatnonzero(kinds == kind)].view(RECORD_DTYPE[kind]).reshape(-1)


def in_flight(task: tuple[Recording, int, list[int]]) -> list[Arrays]:
    """Timed records of a piece of a recording that start before a border and end after it, for each border."""
    recording, number, borders = task
    records = recording.read(number)
    kinds = np.ascontiguousarray(records[:, 0])
    timed = {kind: rows_of(records, kinds, kind) for kind in TIMED}
    found = []
    for border in borders:
        start_before = {kind: its["start_ns"] < np.uint64(border) for kind, its in timed.items()}
        # A request takes 1 ns at least.
        end_after = {kind: its["start_ns"] + its["duration_ns"] > np.uint64(border) for kind, its in timed.items()}
        found.append({kind: its[start_before[kind] & end_after[kind]] for kind, its in timed.items()})
    return found


def nothing_in_flight() -> Chunk:
    """At the begin of a trace."""
    return Chunk({kind: np.zeros(0, RECORD_DTYPE[kind]) for kind in TIMED})


def joined(arrays: list[Arrays]) -> Chunk:
    """Records of several pieces."""
    empty = nothing_in_flight().arrays
    return Chunk({kind: concatenated([empty[kind], *(its[kind] for its in arrays)]) for kind in TIMED})
