# SPDX-License-Identifier: Apache-2.0
"""Turns paths into numbers of files and FILE records, and keeps how large each file has to be for a replay."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from characterize.errors import FlextraceError
from characterize.formats.reading import Chunk
from characterize.layout import FILE_DTYPE, NOT_MEASURED_U64, FileType, IoOp, RecordKind

DEVICE_DIRECTORY = "/dev/"
MEMORY_DIRECTORY = "/dev/shm/"
PATH_BYTES_MAX = 2**16 - 1
PATH_CHARACTERS_TOLD = 60


class FileNumbers:
    """The files of one trace.

    Parameters
    ----------
    sizes : dict of int to int
        Filled: bytes that each file has before the trace begins, as far as its reads tell.
    measure : bool
        Whether to raise the sizes to what is read; if not, the caller does.
    writes_overwrite : bool
        Whether what is written is taken to be there before, too.
    """

    def __init__(self, sizes: dict[int, int], *, measure: bool = True, writes_overwrite: bool = False):
        self.sizes = sizes
        self.measure, self.writes_overwrite = measure, writes_overwrite
        self._written: dict[int, int] = {}
        self.paths: dict[int, str] = {}
        self._number_of: dict[str, int] = {}
        self._new: list[tuple[int, FileType, int]] = []

    def number(self, path: str) -> int:
        """Number of the file of this path: 1, 2, 3 ... by first sight."""
        if path not in self._number_of:
            self._number_of[path] = len(self._number_of) + 1
            self.add(self._number_of[path], path)
        return self._number_of[path]

    def add(self, number: int, path: str, *, kind: FileType | None = None, flags: int = 0, size: int = 0) -> None:
        """Take note of a file that has a number; of a known number nothing. Without a kind its path says what it is.

        Raises
        ------
        FlextraceError
            A trace has no room for such a path.
        """
        if number in self.paths:
            return
        if (length := len(path.encode("utf-8", "surrogateescape"))) > PATH_BYTES_MAX:
            begin = path[:PATH_CHARACTERS_TOLD]
            raise FlextraceError(
                f"the path {begin!r}... has {length} bytes, more than the {PATH_BYTES_MAX} of any trace"
            )
        self.paths[number] = path
        is_device = path.startswith(DEVICE_DIRECTORY) and not path.startswith(MEMORY_DIRECTORY)
        self._new.append((number, kind or (FileType.BLOCK_DEVICE if is_device else FileType.REGULAR), flags))
        self.sizes[number] = size

    def chunk(self, arrays: Mapping[RecordKind, np.ndarray]) -> Chunk:
        """A chunk of these records, and of the FILE records of files that were first seen in it."""
        files = np.zeros(len(self._new), FILE_DTYPE)
        files["kind"], files["resident_bytes"] = RecordKind.FILE, NOT_MEASURED_U64
        for row, (number, kind, flags) in zip(files, self._new, strict=True):
            row["file"], row["type"], row["flags"] = number, kind, flags
        paths = {number: self.paths[number] for number, _, _ in self._new}
        self._new = []
        if self.measure and RecordKind.IO in arrays:
            self._measure(arrays[RecordKind.IO])
        return Chunk({RecordKind.FILE: files, **arrays}, paths)

    def _measure(self, io: np.ndarray) -> None:
        moved = io[(io["result"] > 0) & ((io["op"] == IoOp.READ) | (io["op"] == IoOp.WRITE))]
        file = pd.Series(moved["file"].astype(np.int64))
        ends = pd.Series(moved["offset"].astype(np.int64) + moved["result"])
        if self.writes_overwrite:
            told = np.ones(len(file), bool)
        else:
            # What is read behind all that was written before was there; what is read of that says nothing.
            writes = moved["op"] == IoOp.WRITE
            written = ends.where(writes, 0).groupby(file).cummax()
            before = np.maximum(written, file.map(self._written).fillna(0).astype(np.int64))
            told = (~writes & (ends > before)).to_numpy()
            _raise_to(self._written, file[writes], ends[writes])
        _raise_to(self.sizes, file[told], ends[told])


def _raise_to(least: dict[int, int], file: pd.Series, ends: pd.Series) -> None:
    largest = ends.groupby(file).max()
    for number, end in zip(largest.index.tolist(), largest.tolist(), strict=True):
        least[number] = max(least.get(number, 0), end)
