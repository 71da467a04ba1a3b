# SPDX-License-Identifier: Apache-2.0
"""Turns the files of a trace into pages that lie end to end: which of them storage and the cache hold at the begin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import NOT_MEASURED_U64, FileFlag, RecordKind
from characterize.requests import OFFSET_MAX
from characterize.trace import Trace
from selfscale.simulation.read_ahead_rules import PAGE_BYTES

PAGES_MAX = 1 << 25
"""All files together, holes included; a page takes some 30 bytes here."""
BEYOND_BYTES = 64 << 20
"""Of a file, or device, that is larger than all that can be simulated, so much is kept behind what is used of it: more
than any window of read-ahead."""


class FilePages(NamedTuple):
    """Of f files, see `selfscale.simulation.operations.Operations`.

    Attributes
    ----------
    begin, end : ndarray of int64, shape (f,)
        Pages of every file, beyond its end one that is nobody's.
    stored : ndarray of bool, shape (p,)
        What storage holds of all pages: none of a hole.
    cached : ndarray of int64
        Pages that are cached.
    """

    begin: np.ndarray
    end: np.ndarray
    stored: np.ndarray
    cached: np.ndarray


def file_pages(trace: Trace, files: np.ndarray, file: np.ndarray, behind_bytes: np.ndarray) -> FilePages:
    """Pages of the files that requests are on.

    Parameters
    ----------
    trace : Trace
    files : ndarray, shape (f,)
        Ids, ascending.
    file, behind_bytes : ndarray of int64, shape (n,)
        Which of them each request is on, and where in it the request ends.

    Raises
    ------
    FlextraceError
        They are too many.
    """
    reached_bytes = np.zeros(len(files), np.int64)
    np.maximum.at(reached_bytes, file, behind_bytes)
    stored_bytes = _stored_bytes(trace, files, reached_bytes)
    begin, end = _places(np.maximum(reached_bytes, stored_bytes))
    stored = np.zeros(int(end[-1]) + 1, bool)
    for first, size_bytes in zip(begin, stored_bytes, strict=True):
        stored[first : first + -(-size_bytes // PAGE_BYTES)] = True
    for first, behind in _holes(trace, files, begin, stored_bytes):
        stored[first:behind] = False
    return FilePages(begin, end, stored, _cached_pages(trace, files, begin, end))


def _stored_bytes(trace: Trace, files: np.ndarray, reached_bytes: np.ndarray) -> np.ndarray:
    """Size of every file when it was first seen, shape (f,); 0 of those that were made during the recording."""
    records = trace.arrays[RecordKind.FILE]
    found = (records["flags"] & FileFlag.CREATED) == 0
    records = records[found & np.isin(records["file"], files)]
    place = np.searchsorted(files, records["file"])
    size_bytes = np.minimum(records["size_bytes"], OFFSET_MAX).astype(np.int64)
    huge = size_bytes >= PAGES_MAX * PAGE_BYTES
    size_bytes[huge] = np.minimum(size_bytes[huge], reached_bytes[place[huge]] + BEYOND_BYTES)
    stored = np.zeros(len(files), np.int64)
    # The first record of a file is written last.
    stored[place[::-1]] = size_bytes[::-1]
    return stored


def _places(file_bytes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First page of every file and the one behind its last."""
    pages = -(-file_bytes // PAGE_BYTES)
    if pages.sum() + len(pages) > PAGES_MAX:
        most = f"{PAGES_MAX:,} can be simulated; take a part of it with 'flextrace cut'"
        raise FlextraceError(f"the trace's files have {pages.sum():,} pages, {most}")
    end = np.cumsum(pages + 1) - 1
    return end - pages, end


def _holes(trace: Trace, files: np.ndarray, begin: np.ndarray, stored_bytes: np.ndarray) -> Iterable[tuple[int, int]]:
    """First page of every hole and the one behind its last. Of pages that are a hole in part storage has the rest."""
    holes = trace.arrays[RecordKind.HOLE]
    holes = holes[np.isin(holes["file"], files)]
    place = np.searchsorted(files, holes["file"])
    offset, length = (np.minimum(holes[name], OFFSET_MAX // 2).astype(np.int64) for name in ("offset", "bytes"))
    end = np.minimum(offset + length, stored_bytes[place])
    # What ends with the file ends with its last page.
    behind = np.where(end == stored_bytes[place], -(-end // PAGE_BYTES), end // PAGE_BYTES)
    first = np.minimum(-(-offset // PAGE_BYTES), behind)
    return zip((begin[place] + first).tolist(), (begin[place] + behind).tolist(), strict=True)


def _cached_pages(trace: Trace, files: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Pages that were cached; where it is only known how many of a file, its first ones, as in a replay (0013)."""
    ranges = trace.arrays[RecordKind.RESIDENT]
    ranges = ranges[np.isin(ranges["file"], files)]
    place = np.searchsorted(files, ranges["file"])
    first = begin[place] + (ranges["offset"] // PAGE_BYTES).astype(np.int64)
    behind = np.minimum(first + -(-ranges["bytes"].astype(np.int64) // PAGE_BYTES), end[place])
    records = trace.arrays[RecordKind.FILE]
    records = records[np.unique(records["file"], return_index=True)[1]]
    told = (records["resident_bytes"] != NOT_MEASURED_U64) & ~np.isin(records["file"], ranges["file"])
    records = records[told & np.isin(records["file"], files)]
    place = np.searchsorted(files, records["file"])
    first = np.append(first, begin[place])
    count = -(-np.minimum(records["resident_bytes"], OFFSET_MAX).astype(np.int64) // PAGE_BYTES)
    behind = np.append(behind, np.minimum(begin[place] + count, end[place]))
    parts = [np.arange(*pair) for pair in zip(first, behind, strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *parts])
