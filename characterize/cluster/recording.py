# SPDX-License-Identifier: Apache-2.0
"""Turns a file of a set of recordings into pieces of its records, on the clock and with the numbers of the set."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import (
    HEADER_DTYPE,
    RECORD_DTYPE,
    TRACE_FIRST_NAME_ID,
    TRACE_RECORD_BYTES,
)
from characterize.stream import PIECE_RECORDS, read_records
from characterize.trace_files.expansion import is_trace_archive
from characterize.trace_files.trace_head import count_records, is_foreign, json_text, read_head

NUMBERS_END, OPERATIONS_END = 2**32, 2**64

_TIMES = ("start_ns", "time_ns", "woken_ns")
_TASKS = ("thread", "process", "parent_process", "waker")
_FILES = ("file", "reference")
_OPERATIONS = ("id", "cause")


@dataclass(frozen=True)
class Recording:
    """A trace file or an archive of one.

    Attributes
    ----------
    path : Path
    head : bytes
    file_bytes : int
    text : bytes or None
        Header, size and JSON block of the trace file.
    records, piece_records : int
        All that can be read, and those of a piece.
    archived : bool
    shift_ns : int
        What to add to its times.
    files, tasks, operations : int
        What to add to the numbers of its files, threads and processes, and operations.
    devices : dict of int to int
        Its devices that have another number in the set.
    """

    path: Path
    head: bytes
    file_bytes: int
    text: bytes | None
    records: int
    piece_records: int
    archived: bool
    shift_ns: int = 0
    files: int = 0
    tasks: int = 0
    operations: int = 0
    devices: Mapping[int, int] = field(default_factory=dict)

    @property
    def header(self) -> np.void:
        """Its header."""
        return np.frombuffer(self.head, HEADER_DTYPE)[0]

    @property
    def pieces(self) -> int:
        """Into how many pieces it is divided."""
        return -(-self.records // self.piece_records)

    def read(self, piece: int) -> np.ndarray:
        """The records of a piece, uint8, shape (n, 64), with the numbers and times of the set.

        Raises
        ------
        FlextraceError
            The file cannot be read or is damaged.
        """
        size = min(self.piece_records, self.records - piece * self.piece_records)
        if self.archived:
            archive = importlib.import_module("characterize.trace_files.archive")
            (records,) = archive.iterate(self.path, piece, piece + 1)
            return self.relabelled(records[:size])
        return self.relabelled(read_records(self.path, piece * self.piece_records, size))

    def relabelled(self, records: np.ndarray) -> np.ndarray:
        """Records with the numbers and times of the set."""
        if not (self.shift_ns or self.files or self.tasks or self.operations or self.devices):
            return records
        for kind, dtype in RECORD_DTYPE.items():
            rows = np.flatnonzero(records[:, 0] == kind)
            its = records[rows].view(dtype).reshape(-1)
            for name in dtype.names or ():
                if name in _TIMES:
                    its[name] += np.uint64(self.shift_ns)
                elif name in _TASKS:
                    its[name] += np.where(its[name] > 0, np.uint32(self.tasks), np.uint32(0))
                elif name in _OPERATIONS:
                    its[name] += np.where(its[name] > 0, np.uint64(self.operations), np.uint64(0))
                elif name in _FILES:
                    plain = (its[name] > 0) & (its[name] < TRACE_FIRST_NAME_ID)
                    its[name] += np.where(plain, np.uint32(self.files), np.uint32(0))
                elif name == "device":
                    its[name] = _mapped(its[name], self.devices)
            records[rows] = its.view(np.uint8).reshape(-1, TRACE_RECORD_BYTES)
        return records


def _mapped(numbers: np.ndarray, table: Mapping[int, int]) -> np.ndarray:
    mapped = numbers.copy()
    for number, other in table.items():
        mapped[numbers == number] = other
    return mapped


def open_recording(path: Path, piece_records: int = PIECE_RECORDS) -> Recording:
    """Open a file of a set.

    Parameters
    ----------
    path : Path
    piece_records : int
        Of an archive, a piece is one of its own batches.

    Raises
    ------
    FlextraceError
        It cannot be read, is damaged, or is a trace of another tool.
    """
    if is_trace_archive(path):
        archive = importlib.import_module("characterize.trace_files.archive")
        records, piece_records = archive.size_of(path)
        head, file_bytes, text = archive.read_frame(path)
        return Recording(path, head, file_bytes, text, records, piece_records, True)
    if is_foreign(path):
        raise FlextraceError(
            f"{path} is not a flextrace trace, and cannot be divided among workers as it is: 'flextrace import' it", 2
        )
    head, file_bytes = read_head(path)
    raw = np.frombuffer(head, HEADER_DTYPE)[0]
    records = count_records(path, raw, file_bytes, [])
    return Recording(path, head, file_bytes, json_text(path, raw, head, file_bytes), records, piece_records, False)


def files_of(paths: list[Path]) -> list[Path]:
    """The files of a set; of a directory its archives and traces, by their names (a partitioned Parquet data set).

    Raises
    ------
    FlextraceError
        A directory has none.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        found = sorted(it for it in path.iterdir() if it.suffix in (".parquet", ".iotrace"))
        if not found:
            raise FlextraceError(f"{path} has no .parquet and no .iotrace file: name the traces, or their directory", 2)
        files += found
    return files
