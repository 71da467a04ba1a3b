# SPDX-License-Identifier: Apache-2.0
"""Turns the recording of a replay, and that of its original, into the parts that can be compared: the run itself.

The engine lays out its files outside of the recording (``phase="prepare"``). What it still does inside, in its main
thread, is left out here: only threads that repeat a recorded thread count, which the engine names ``play N`` after the
number of that thread.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from characterize.layout import RecordKind, Source
from characterize.loss import RECORDING_KEYS
from characterize.stream import Chunk, Linked, Stream
from characterize.trace import Trace
from replayer.checking.repeated_operations import RepeatedIo, repeated_fileops

PLAYER = re.compile(rb"play (\d+)")

Choice = Callable[[np.ndarray], np.ndarray]
"""Makes of records a bool for each."""


def players_of(recording: Trace) -> dict[int, int]:
    """Which recorded thread each thread of a replay repeats: ``{thread of the replay: recorded thread}``."""
    tasks = recording.arrays[RecordKind.TASK]
    named = ((int(task["thread"]), PLAYER.fullmatch(task["comm"])) for task in tasks)
    return {thread: int(found[1]) for thread, found in named if found}


def replay_part(recording: Stream) -> Stream:
    """Of the recording of a replay only the replay: operations of its threads, and block requests of their time.

    Accesses to mapped files are the engine's own, since it repeats those of the trace by calls (docs/decisions/0007).
    The recorder's totals, which contain the rest, are left out. As from `run_part` otherwise.
    """
    players = list(players_of(recording.facts))
    return _part(
        recording,
        lambda io: np.isin(io["thread"], players) & (io["source"] != Source.MMAP),
        lambda fileops: np.isin(fileops["thread"], players),
    )


def run_part(stream: Stream) -> Stream:
    """Of a trace what a replay repeats: no pages of programs, no operations that changed nothing since they failed.

    Block requests count that were issued from the start of the first operation to the end of the last one, on both
    sides: neither loading of the program nor laying out of the image, but also no write-back afterwards.
    """
    return _part(stream, RepeatedIo(stream.facts), repeated_fileops)


@dataclass(frozen=True)
class _Part:
    """Which records of a stream belong to a run; ``first_ns`` to ``last_ns`` is the time of its operations."""

    stream: Stream
    io: Choice
    fileops: Choice
    first_ns: int = 0
    last_ns: int = 0

    def operations(self) -> Iterator[dict[RecordKind, np.ndarray]]:
        """IO and FILEOP records, chunk by chunk."""
        for part in self.stream.chunks():
            if isinstance(part, Chunk):
                yield self._operations_of(part)

    def chunks(self) -> Iterator[Chunk | Linked]:
        """Everything, as `Stream.chunks`."""
        for part in self.stream.chunks():
            if isinstance(part, Chunk):
                blocks = part.arrays[RecordKind.BLOCK]
                yield Chunk(self._operations_of(part) | {RecordKind.BLOCK: blocks[self._within(blocks)]})
            elif len(part.blocks):
                within = self._within(part.blocks)
                pieces = within[part.owner] & (part.owner >= 0)
                place = np.cumsum(within) - 1
                owner = place[part.owner[pieces]].astype(np.int64)
                yield Linked(part.blocks[within], part.data[pieces], owner)

    def _operations_of(self, chunk: Chunk) -> dict[RecordKind, np.ndarray]:
        io, fileops = chunk.arrays[RecordKind.IO], chunk.arrays[RecordKind.FILEOP]
        io, fileops, wakes = io[self.io(io)], fileops[self.fileops(fileops)], chunk.arrays[RecordKind.WAKE]
        if len(wakes):
            wakes = wakes[np.isin(wakes["id"], np.concatenate([io["id"], fileops["id"]]))]
        return {RecordKind.IO: io, RecordKind.FILEOP: fileops, RecordKind.WAKE: wakes}

    def _within(self, blocks: np.ndarray) -> np.ndarray:
        return (blocks["start_ns"] >= self.first_ns) & (blocks["start_ns"] <= self.last_ns)


def _part(stream: Stream, io: Choice, fileops: Choice) -> Stream:
    part = _Part(stream, io, fileops)
    first, last = None, 0
    for arrays in part.operations():
        present = [array for array in arrays.values() if len(array)]
        # In the order of the starts.
        first = min((int(array["start_ns"][0]) for array in present), default=None) if first is None else first
        last = max([last, *(int((array["start_ns"] + array["duration_ns"]).max()) for array in present)])
    part = dataclasses.replace(part, first_ns=first or 0, last_ns=last)
    facts = stream.facts
    metadata = {name: value for name, value in facts.header.metadata.items() if name not in RECORDING_KEYS}
    header = dataclasses.replace(facts.header, start_monotonic_ns=first or 0, end_monotonic_ns=last, metadata=metadata)
    return Stream(
        facts=Trace(header, facts.arrays, facts.paths, facts.path, facts.warnings),
        chunks=part.chunks,
        first_ns=first or 0,
        last_ns=last,
        all_stacked=stream.all_stacked,
    )
