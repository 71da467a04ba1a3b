# SPDX-License-Identifier: Apache-2.0
"""Turns a trace and the recording of its replay into pairs: each operation of the trace, and what repeated it.

What the engine makes of an operation is known (replayer/engine/operation.c): every data operation is one pread or
pwrite, every file has a name after its number (image.c), every thread one after the thread that it repeats (run.c). So
operations are compared by kind, file number, offset and bytes, thread by thread.

The sequences differ where the engine skips an operation, and where it opens or closes a file for itself: an open or
close that does not stand between the same operations as in the trace is taken for that. A thread whose other
operations are found in the order of the trace is paired so; of any other the k-th operation of every kind, place and
size is paired with the k-th such one, so that what came in another order shows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numba
import numpy as np
import pandas as pd

from characterize.layout import Fileop, FileType, RecordKind, Source
from characterize.trace import Trace
from replayer.repeated_operations import repeated_fileops, repeated_io
from replayer.replay_recording import players_of

FIRST_NAME_ID = 1 << 31
"""From here on ids are those of names that were only named (trace_format.h, struct file_record)."""

_DIRECTORY = -1
"""Number of the directory of the image itself, which stands for every directory that is opened or synced."""

_IMAGE_NAME = re.compile(r"[fd](\d{8,})")

_WITH_RANGE = (Fileop.SYNC_FILE_RANGE, Fileop.FALLOCATE, Fileop.FADVISE)


@dataclass(frozen=True)
class Pairs:
    """Operations of a trace beside those of the recording of its replay.

    Attributes
    ----------
    original : DataFrame
        Every operation: ``start_ns, end_ns, thread, process, data`` (an IO record), ``op, file, argument`` (offset),
        ``length`` (bytes asked), ``result, flags, expected`` (whether the engine repeats it), by thread in the order of
        the starts.
    replay : DataFrame
        The same of the replay, ``thread`` being the recorded one; not with ``expected``.
    original_row, replay_row : ndarray of int64, shape (pairs,)
        Row numbers of those that belong together.
    shuffled_threads : int
        Threads whose operations were not found in the order of the trace.
    """

    original: pd.DataFrame
    replay: pd.DataFrame
    original_row: np.ndarray
    replay_row: np.ndarray
    shuffled_threads: int

    @property
    def not_repeated(self) -> int:
        """Operations that the engine repeats by its rules, without one in the recording."""
        return int(self.original["expected"].sum()) - len(self.original_row)

    @property
    def added_data(self) -> int:
        """Data operations of the replay that belong to none of the trace."""
        paired = np.zeros(len(self.replay), bool)
        paired[self.replay_row] = True
        return int((~paired & self.replay["data"].to_numpy()).sum())


def operations_of(trace: Trace) -> pd.DataFrame:
    """The IO records of a trace, then its FILEOP records, with the columns that `Pairs` has but for ``expected``."""
    parts = []
    for kind in (RecordKind.IO, RecordKind.FILEOP):
        array = trace.arrays[kind]
        data = kind == RecordKind.IO
        start = array["start_ns"].astype(np.int64)
        argument = array["offset"] if data else array["argument"]
        length = array["asked_bytes"] if data else array["length"]
        columns = {
            "start_ns": start,
            "end_ns": start + np.minimum(array["duration_ns"], np.iinfo(np.int64).max // 2).astype(np.int64),
            **{name: array[name].astype(np.int64) for name in ("thread", "process", "file", "result", "op", "source")},
            "argument": argument.astype(np.int64),
            "length": length.astype(np.int64),
            "flags": array["flags"].astype(np.int64),
            "data": np.full(len(array), data),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def pair(trace: Trace, recording: Trace) -> Pairs:
    """Find for every operation of a trace the one of its replay's recording that repeated it.

    Parameters
    ----------
    trace : Trace
        What was replayed, once and by an engine that does what a thread did in one thread.
    recording : Trace
        Of the replay, as from `replayer.replay_recording.replay_part`.
    """
    original, replay = operations_of(trace), operations_of(recording)
    original["expected"] = np.concatenate([repeated_io(trace), repeated_fileops(trace)])
    original = original.sort_values(["thread", "start_ns"], kind="stable", ignore_index=True)
    replay["thread"] = replay["thread"].map(players_of(recording)).fillna(-1).astype(np.int64)
    replay = replay.sort_values(["thread", "start_ns"], kind="stable", ignore_index=True)
    wanted = _engine_form(trace, original)[original["expected"].to_numpy()]
    done = _recorded_form(recording, replay)
    done = done[(done["file"] != 0) & (replay["thread"] >= 0)]
    code = pd.concat([wanted, done]).groupby(["what", "file", "argument", "length"], sort=False).ngroup().to_numpy()
    wanted["code"], done["code"] = code[: len(wanted)], code[len(wanted) :]
    wanted["thread"], done["thread"] = original["thread"], replay["thread"]
    wanted_place, done_place, shuffled = _aligned(wanted, done)
    return Pairs(
        original,
        replay,
        wanted.index.to_numpy()[wanted_place],
        done.index.to_numpy()[done_place],
        shuffled,
    )


def _engine_form(trace: Trace, operations: pd.DataFrame) -> pd.DataFrame:
    """What the engine makes of operations: ``what, file, argument, length`` in the numbers of its image."""
    data, op, file = (operations[name].to_numpy() for name in ("data", "op", "file"))
    argument = operations["argument"].to_numpy()
    number = _image_numbers(trace, np.where((op == Fileop.SYMLINK) & ~data, argument, file))
    files = trace.arrays[RecordKind.FILE]
    directory = np.isin(file, files["file"][files["type"] == FileType.DIRECTORY])
    keeps_name = np.isin(op, (Fileop.RENAME, Fileop.UNLINK, Fileop.RMDIR, Fileop.MKDIR))
    number[~data & directory & ~keeps_name] = _DIRECTORY
    spliced = operations["source"].to_numpy() == Source.SPLICE
    length = np.where(spliced & data, np.maximum(operations["result"], 0), operations["length"])
    op = np.where(~data & (op == Fileop.MSYNC), Fileop.FDATASYNC, op)
    return _form(data, op, number, argument, length)


def _image_numbers(trace: Trace, file: np.ndarray) -> np.ndarray:
    """Numbers in the names of the image's files (files.h, files_index): ids of new names stand behind all others."""
    seen = [trace.arrays[kind]["file"] for kind in (RecordKind.IO, RecordKind.FILEOP, RecordKind.FILE)]
    ids = np.concatenate(seen).astype(np.int64)
    names_from = int(ids[ids < FIRST_NAME_ID].max(initial=0)) + 1
    return np.where(file < FIRST_NAME_ID, file, file - FIRST_NAME_ID + names_from)


def _recorded_form(recording: Trace, operations: pd.DataFrame) -> pd.DataFrame:
    """The same of operations of a replay, from the names of the files; file 0 is one that is not known."""
    data, op = operations["data"].to_numpy(), operations["op"].to_numpy()
    # A symbolic link is a name without a file.
    by_argument = ~data & (op == Fileop.SYMLINK)
    number_of = {file: _number_of(path) for file, path in recording.paths.items()}
    file = pd.Series(np.where(by_argument, operations["argument"], operations["file"]))
    number = file.map(number_of).fillna(0).to_numpy().astype(np.int64)
    return _form(data, op, number, operations["argument"].to_numpy(), operations["length"].to_numpy())


def _number_of(path: str) -> int:
    found = _IMAGE_NAME.match(path.rpartition("/")[2])
    return int(found[1]) if found else _DIRECTORY


def _form(
    data: np.ndarray, op: np.ndarray, number: np.ndarray, argument: np.ndarray, length: np.ndarray
) -> pd.DataFrame:
    ranged = data | np.isin(op, _WITH_RANGE)
    op = np.where(~data & (op == Fileop.RMDIR), Fileop.UNLINK, op)
    number = np.where(~data & (op == Fileop.SYNCFS), _DIRECTORY, number)
    return pd.DataFrame(
        {
            "what": np.where(data, op, op + 100),
            "file": number,
            "argument": np.where(ranged | (~data & (op == Fileop.TRUNCATE)), argument, 0),
            "length": np.where(ranged, length, 0),
            "own": ~data & np.isin(op, (Fileop.OPEN, Fileop.CLOSE)),
        }
    )


def _aligned(wanted: pd.DataFrame, done: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, int]:
    """Places of pairs in both, and the number of shuffled threads; both are sorted by thread and start."""
    threads = np.unique(done["thread"])
    bounds = [np.searchsorted(frame["thread"], threads, side) for frame in (wanted, done) for side in ("left", "right")]
    match = np.full(len(done), -1, np.int64)
    codes, own = ([frame[name].to_numpy() for frame in (wanted, done)] for name in ("code", "own"))
    shuffled = []
    for thread, *ends in zip(threads, *bounds, strict=True):
        first, last, done_first, done_last = (int(end) for end in ends)
        part, done_part = slice(first, last), slice(done_first, done_last)
        place = match[done_part]
        if _embed(codes[0][part], own[0][part], codes[1][done_part], own[1][done_part], place):
            place[place >= 0] += first
        else:
            shuffled.append(thread)
    if shuffled:
        again = np.isin(done["thread"], shuffled)
        match[again] = _by_occurrence(wanted[np.isin(wanted["thread"], shuffled)], done[again], wanted.index)
    place = np.flatnonzero(match >= 0)
    return match[place], place, len(shuffled)


def _by_occurrence(wanted: pd.DataFrame, done: pd.DataFrame, index: pd.Index) -> np.ndarray:
    """For each operation done, the place of the wanted one that is as often preceded by its like; -1 = none."""
    keys = ["thread", "code", "occurrence"]
    left, right = (
        frame.assign(occurrence=frame.groupby(["thread", "code"]).cumcount())[keys] for frame in (done, wanted)
    )
    right["place"] = index.get_indexer(wanted.index)
    return left.merge(right, how="left", on=keys)["place"].fillna(-1).to_numpy().astype(np.int64)


@numba.njit(cache=True)
def _embed(
    wanted: np.ndarray, wanted_own: np.ndarray, done: np.ndarray, done_own: np.ndarray, match: np.ndarray
) -> bool:
    """Find what was done in what was wanted, in its order; False where that is not possible.

    What the engine may do by its own (open, close) is looked for only up to the next operation of another kind.
    """
    at = 0
    for row in range(len(done)):
        place = at
        while place < len(wanted) and wanted[place] != done[row] and (wanted_own[place] or not done_own[row]):
            place += 1
        if place < len(wanted) and wanted[place] == done[row]:
            match[row] = place
            at = place + 1
        elif not done_own[row]:
            return False
    return True
