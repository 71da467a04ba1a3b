# SPDX-License-Identifier: Apache-2.0
"""Turns a file of another tool into a stream of chunks, of any length: it is read again instead of kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from characterize.errors import FlextraceError
from characterize.formats.foreign import ForeignTrace
from characterize.formats.reading import Chunk, ReadOptions
from characterize.layout import TRACE_RECORD_BYTES
from characterize.stream import Arrays, Stream, stream_of_pieces
from characterize.trace import Trace

KEPT_RECORDS = 1 << 20
"""64 MiB: a trace of no more records is parsed only once."""


def stream_foreign(path: Path, options: ReadOptions | None = None, kept_records: int = KEPT_RECORDS) -> Stream:
    """A trace of another tool as a stream.

    Memory is that of a few blocks of the file, of the window in which its records are put in order, and of the records
    that are further behind than that; of `kept_records` more.

    Parameters
    ----------
    path : Path
    options : ReadOptions, optional
    kept_records : int
        A trace with more records is read once for every pass over it.

    Raises
    ------
    FlextraceError
        As from `characterize.formats.foreign.read_foreign`; while the chunks are made, if the file has changed.
    """
    pieces = _Pieces(path, options or ReadOptions(), kept_records)
    return stream_of_pieces(pieces, pieces.facts)


class _Pieces:
    """Makes the records of a file, as often as it is called: uint8, shape (n, 64)."""

    def __init__(self, path: Path, options: ReadOptions, kept_records: int) -> None:
        self._foreign = ForeignTrace(path, options)
        self._options = replace(options, format=self._foreign.reading.format.name)
        self._kept_records = kept_records
        self._kept: list[np.ndarray] | None = []
        self._lengths: list[int] = []
        self._paths: dict[int, str] = {}

    def __call__(self) -> Iterator[np.ndarray]:
        if not self._lengths:
            return self._first()
        return self._again() if self._kept is None else iter(self._kept)

    def facts(self, arrays: Arrays) -> Trace:
        """The trace without the records of which there are many, once all pieces were made."""
        return self._foreign.trace(arrays, self._paths)

    def _first(self) -> Iterator[np.ndarray]:
        for chunk in self._foreign.chunks():
            self._paths |= chunk.paths
            piece = _piece(chunk)
            self._lengths.append(len(piece))
            if self._kept is not None:
                self._kept.append(piece)
                if sum(self._lengths) > self._kept_records:
                    self._kept = None
            yield piece

    def _again(self) -> Iterator[np.ndarray]:
        path, at = self._foreign.reading.path, 0
        changed = f"{path} changed while it was read: characterize it when nothing writes to it"
        for at, chunk in enumerate(ForeignTrace(path, self._options).chunks(), 1):
            piece = _piece(chunk)
            if at > len(self._lengths) or len(piece) != self._lengths[at - 1]:
                raise FlextraceError(changed)
            yield piece
        if at < len(self._lengths):
            raise FlextraceError(changed)


def _piece(chunk: Chunk) -> np.ndarray:
    parts = [
        np.ascontiguousarray(it).view(np.uint8).reshape(-1, TRACE_RECORD_BYTES)
        for it in chunk.arrays.values()
        if len(it)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros((0, TRACE_RECORD_BYTES), np.uint8), *parts])
