# SPDX-License-Identifier: Apache-2.0
"""Turns the recording of a replay, and that of its original, into the parts that can be compared: the run itself.

The engine lays out its files outside of the recording (``phase="prepare"``). What it still does inside, in its main
thread, is left out here: only threads that repeat a recorded thread count, which the engine names ``play N`` after the
number of that thread.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from characterize.layout import RecordKind, Source
from characterize.loss import RECORDING_KEYS
from characterize.trace import Trace
from replayer.repeated_operations import repeated_fileops, repeated_io

PLAYER = re.compile(rb"play (\d+)")

_OPERATIONS = (RecordKind.IO, RecordKind.FILEOP)


def players_of(recording: Trace) -> dict[int, int]:
    """Which recorded thread each thread of a replay repeats: ``{thread of the replay: recorded thread}``."""
    tasks = recording.arrays[RecordKind.TASK]
    named = ((int(task["thread"]), PLAYER.fullmatch(task["comm"])) for task in tasks)
    return {thread: int(found[1]) for thread, found in named if found}


def replay_part(recording: Trace) -> Trace:
    """Of the recording of a replay only the replay: operations of its threads, and block requests of their time.

    Accesses to mapped files are the engine's own, since it repeats those of the trace by calls (docs/decisions/0007).
    The recorder's totals, which contain the rest, are left out. As from `run_part` otherwise.
    """
    players = list(players_of(recording))
    kept = {kind: np.isin(recording.arrays[kind]["thread"], players) for kind in _OPERATIONS}
    kept[RecordKind.IO] &= recording.arrays[RecordKind.IO]["source"] != Source.MMAP
    return _part(recording, kept)


def run_part(trace: Trace) -> Trace:
    """Of a trace what a replay repeats: no pages of programs, no operations that changed nothing since they failed.

    Block requests count that were issued from the start of the first operation to the end of the last one, on both
    sides: neither loading of the program nor laying out of the image, but also no write-back afterwards.
    """
    return _part(trace, {RecordKind.IO: repeated_io(trace), RecordKind.FILEOP: repeated_fileops(trace)})


def span_ns(arrays: Mapping[RecordKind, np.ndarray]) -> tuple[int, int]:
    """Start of the first operation and end of the last one, on the clock of the trace; 0 and 0 without operations."""
    present = [arrays[kind] for kind in _OPERATIONS if len(arrays[kind])]
    if not present:
        return 0, 0
    last = max(int((array["start_ns"] + array["duration_ns"]).max()) for array in present)
    return min(int(array["start_ns"].min()) for array in present), last


def _part(trace: Trace, kept: dict[RecordKind, np.ndarray]) -> Trace:
    arrays = dict(trace.arrays)
    for kind, rows in kept.items():
        arrays[kind] = arrays[kind][rows]
    first, last = span_ns(arrays)
    blocks = arrays[RecordKind.BLOCK]
    within = (blocks["start_ns"] >= first) & (blocks["start_ns"] <= last)
    owner = trace.block_of_data
    pieces = within[owner] & (owner >= 0) if len(blocks) else np.zeros(len(owner), bool)
    arrays[RecordKind.BLOCK] = blocks[within]
    arrays[RecordKind.BLOCK_DATA] = arrays[RecordKind.BLOCK_DATA][pieces]
    metadata = {name: value for name, value in trace.header.metadata.items() if name not in RECORDING_KEYS}
    header = dataclasses.replace(
        trace.header,
        start_monotonic_ns=first,
        end_monotonic_ns=last,
        count={kind: len(array) for kind, array in arrays.items()},
        metadata=metadata,
    )
    place = np.cumsum(within) - 1
    return Trace(
        header, arrays, trace.paths, trace.path, trace.warnings, block_of_data=place[owner[pieces]].astype(np.int64)
    )
