# SPDX-License-Identifier: Apache-2.0
"""Turns operations of a trace, and those of the recording of its replay, into one form in which they can be compared.

What the engine makes of an operation is known (replayer/engine/operation.c): every data operation is one pread or
pwrite, every file has a name after its number (image.c), every thread one after the thread that it repeats (run.c). So
operations are compared by kind, file number, offset and bytes, thread by thread.
"""

from __future__ import annotations

import re
from itertools import chain

import numpy as np
import pandas as pd

from characterize.layout import TRACE_FIRST_NAME_ID, Fileop, FileType, IoOp, RecordKind, Source
from characterize.stream import Arrays, Chunk, Stream
from characterize.trace import Trace
from replayer.checking.repeated_operations import RepeatedIo, repeated_fileops
from replayer.checking.replay_recording import players_of
from replayer.devices.block_lanes import DEVICE_FILE

FORM = ["what", "number", "place", "size"]
"""Columns in which an operation and what repeated it agree: kind, number of the file in the image, offset, bytes."""

_DIRECTORY = -1
"""Number of the directory of the image itself, which stands for every directory that is opened or synced."""

_IMAGE_NAME = re.compile(r"[fd](\d{8,})")

_TAKEN = ("thread", "process", "file", "result", "op", "source", "id")
_WITH_RANGE = (Fileop.SYNC_FILE_RANGE, Fileop.FALLOCATE, Fileop.FADVISE)


def operations_of(io: np.ndarray, fileops: np.ndarray) -> pd.DataFrame:
    """IO records, then FILEOP records.

    Returns
    -------
    DataFrame
        ``start_ns, end_ns, thread, process, data`` (an IO record), ``op, source, file, argument`` (offset), ``length``
        (bytes asked), ``result, flags, id``.
    """
    parts = []
    for data, array in ((True, io), (False, fileops)):
        start = array["start_ns"].astype(np.int64)
        argument = array["offset"] if data else array["argument"]
        length = array["asked_bytes"] if data else array["length"]
        columns = {
            "start_ns": start,
            "end_ns": start + np.minimum(array["duration_ns"], np.iinfo(np.int64).max // 2).astype(np.int64),
            **{name: array[name].astype(np.int64) for name in _TAKEN},
            "argument": argument.astype(np.int64),
            "length": length.astype(np.int64),
            "flags": array["flags"].astype(np.int64),
            "data": np.full(len(array), data),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def rows_of_ids(wanted: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Row of the operation with each wanted id; -1 = none has it, or the id is 0, which means no operation.

    Parameters
    ----------
    wanted : ndarray of int64, shape (m,)
    ids : ndarray of int64, shape (n,)
    """
    rows, some = np.full(len(wanted), -1, np.int64), np.flatnonzero(wanted != 0)
    if len(some) and len(ids):
        order = np.argsort(ids, kind="stable")
        found = order[np.minimum(np.searchsorted(ids, wanted[some], sorter=order), len(ids) - 1)]
        rows[some] = np.where(ids[found] == wanted[some], found, -1)
    return rows


class WantedOperations:
    """Makes of records of a trace those operations that the engine repeats, with the columns of `FORM` and ``own``.

    The column ``cause`` has the id of the call that an operation was woken after; 0 = it was woken after none.

    Attributes
    ----------
    operations, expected : int
        Records so far, and those that are repeated.
    """

    def __init__(self, trace: Stream) -> None:
        files = trace.facts.arrays[RecordKind.FILE]
        self._directories = files["file"][files["type"] == FileType.DIRECTORY]
        self._is_repeated = RepeatedIo(trace.facts)
        self._names_from = _names_from(trace)
        self.operations = self.expected = 0

    def __call__(self, arrays: Arrays) -> pd.DataFrame:
        """Of IO, FILEOP and WAKE records; columns as from `operations_of` besides."""
        io, fileops, wakes = (arrays[kind] for kind in (RecordKind.IO, RecordKind.FILEOP, RecordKind.WAKE))
        self.operations += len(io) + len(fileops)
        operations = operations_of(io[self._is_repeated(io)], fileops[repeated_fileops(fileops)])
        self.expected += len(operations)
        data, op, file = (operations[name].to_numpy() for name in ("data", "op", "file"))
        argument = operations["argument"].to_numpy()
        number = self._number_of(np.where((op == Fileop.SYMLINK) & ~data, argument, file))
        keeps_name = np.isin(op, (Fileop.RENAME, Fileop.UNLINK, Fileop.RMDIR, Fileop.MKDIR))
        number[~data & np.isin(file, self._directories) & ~keeps_name] = _DIRECTORY
        # What the engine asks for: trace_reader.h, io_replay_bytes.
        done = np.maximum(operations["result"].to_numpy(), 0)
        short = (op == IoOp.WRITE) & (done < operations["length"].to_numpy())
        bounded = (operations["source"].to_numpy() == Source.SPLICE) | short
        length = np.where(bounded & data, done, operations["length"])
        op = np.where(~data & (op == Fileop.MSYNC), Fileop.FDATASYNC, op)
        woken = rows_of_ids(wakes["id"].astype(np.int64), operations["id"].to_numpy())
        cause = np.zeros(len(operations), np.int64)
        cause[woken[woken >= 0]] = wakes["cause"][woken >= 0]
        return operations.assign(cause=cause, **_form(data, op, number, argument, length))

    def _number_of(self, file: np.ndarray) -> np.ndarray:
        """Numbers in the names of the image's files (files.h, files_index): ids of new names stand behind all files."""
        return np.where(file < TRACE_FIRST_NAME_ID, file, file - TRACE_FIRST_NAME_ID + self._names_from)


def _names_from(trace: Stream) -> int:
    """The first number of a name in the image that is no file's."""
    largest = 0
    parts = (part.arrays for part in trace.chunks() if isinstance(part, Chunk))
    for arrays in chain([trace.facts.arrays], parts):
        for kind in (RecordKind.FILE, RecordKind.IO, RecordKind.FILEOP):
            file = arrays[kind]["file"] if kind in arrays else np.zeros(0, np.int64)
            largest = max(largest, int(file[file < TRACE_FIRST_NAME_ID].max(initial=0)))
    return largest + 1


class DoneOperations:
    """Makes of records of a replay the operations of its threads, in the same form, from the names of the files.

    Without the removals of the names of `nameless` files (`nameless_of`).

    Attributes
    ----------
    foreign : int
        Data operations so far that are neither on files of the image nor on its device.
    """

    def __init__(self, recording: Trace, nameless: list[int]) -> None:
        self._players, self._nameless = pd.Series(players_of(recording), dtype=np.int64), nameless
        self._numbers = {file: _number_of(path) for file, path in recording.paths.items()}
        files = recording.arrays[RecordKind.FILE]
        # Files stand for block devices in an image; on a device there is no other file (device_trace.py).
        devices = files["file"][files["type"] == FileType.BLOCK_DEVICE].tolist()
        self._numbers |= dict.fromkeys(devices, DEVICE_FILE)
        self.foreign = 0

    def __call__(self, arrays: Arrays) -> pd.DataFrame:
        """Of IO and FILEOP records: ``start_ns, end_ns, data``, ``thread`` that each repeats, `FORM`, ``own``."""
        operations = operations_of(arrays[RecordKind.IO], arrays[RecordKind.FILEOP])
        data, op = operations["data"].to_numpy(), operations["op"].to_numpy()
        # A symbolic link is a name without a file.
        by_argument = ~data & (op == Fileop.SYMLINK)
        file = pd.Series(np.where(by_argument, operations["argument"], operations["file"]))
        number = file.map(self._numbers).fillna(0).to_numpy().astype(np.int64)
        thread = operations["thread"].map(self._players).fillna(-1).astype(np.int64)
        form = _form(data, op, number, operations["argument"].to_numpy(), operations["length"].to_numpy())
        done = operations[["start_ns", "end_ns", "data"]].assign(thread=thread, **form)
        of_image = ((done["number"] != 0) & (done["thread"] >= 0)).to_numpy()
        self.foreign += int((data & ~of_image).sum())
        takes_name = ~data & (op == Fileop.UNLINK) & np.isin(number, self._nameless)
        return done[of_image & ~takes_name]


def nameless_of(trace: Trace) -> list[int]:
    """Files that were made without a name, as their paths say: the engine gives them one and takes it away again."""
    files = trace.arrays[RecordKind.FILE]
    inodes = zip(files["file"].tolist(), files["inode"].tolist(), strict=True)
    return [file for file, inode in inodes if trace.paths.get(file, "").rpartition("/")[2] == f"#{inode}"]


def _number_of(path: str) -> int:
    found = _IMAGE_NAME.match(path.rpartition("/")[2])
    return int(found[1]) if found else _DIRECTORY


def _form(
    data: np.ndarray, op: np.ndarray, number: np.ndarray, argument: np.ndarray, length: np.ndarray
) -> dict[str, np.ndarray]:
    """The columns of `FORM`, and ``own``: what the engine may also do for itself."""
    ranged = data | np.isin(op, _WITH_RANGE)
    op = np.where(~data & (op == Fileop.RMDIR), Fileop.UNLINK, op)
    number = np.where(~data & (op == Fileop.SYNCFS), _DIRECTORY, number)
    return {
        "what": np.where(data, op, op + 100),
        "number": number,
        "place": np.where(ranged | (~data & (op == Fileop.TRUNCATE)), argument, 0),
        "size": np.where(ranged, length, 0),
        "own": ~data & np.isin(op, (Fileop.OPEN, Fileop.CLOSE)),
    }
