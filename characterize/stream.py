# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into chunks of records in the order of their starts, in memory that its length does not set.

Records stand in a file about in the order of their ends. One pass over it finds what has to be known at once (files,
threads, paths: few) and how far starts have got at each place. A record that starts before that place's predecessor but
one had got is *late*: it was in flight while a whole piece of the file was recorded. The late ones are kept from the
first pass on; all others are in order but for the records of two neighbouring pieces. So the chunks are exact, whatever
the disorder, ties included: they stand as a stable sort of the whole file would put them. Memory is that of a piece and
of the late records.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import (
    HEADER_DTYPE,
    RECORD_DTYPE,
    TRACE_HEADER_BYTES,
    TRACE_RECORD_BYTES,
    BlockFlag,
    HeaderFlag,
    RecordKind,
)
from characterize.requests import concatenated, rows_at
from characterize.trace import Content, Trace, owners_of, trace_of
from characterize.trace_files.expansion import is_trace_archive
from characterize.trace_files.trace_head import count_records, is_foreign, json_text, read_head

if TYPE_CHECKING:
    from characterize.formats.reading import ReadOptions

PIECE_RECORDS = 1 << 18
TIMED = (RecordKind.IO, RecordKind.FILEOP, RecordKind.BLOCK, RecordKind.WAKE)
SMALL = (RecordKind.FILE, RecordKind.TASK, RecordKind.GAP, RecordKind.RESIDENT, RecordKind.HOLE, RecordKind.TEXT)
"""Kinds of which a trace has few records."""

Arrays = dict[RecordKind, np.ndarray]
Pieces = Callable[[], Iterator[np.ndarray]]
"""Makes the records of a file, in its order, some at a time: uint8, shape (n, 64)."""


@dataclass(frozen=True)
class Chunk:
    """Records that follow each other in time; none of a later chunk starts before or with any of these.

    Attributes
    ----------
    arrays : dict of RecordKind to numpy.ndarray
        IO, FILEOP, BLOCK and WAKE records by their start; equal starts in the order of the file. A WAKE record is in
        the same chunk as its call, which starts with it.
    """

    arrays: Arrays


@dataclass(frozen=True)
class Linked:
    """Block requests and their pieces, in the order of the file.

    Attributes
    ----------
    blocks, data : ndarray
        BLOCK and BLOCK_DATA records.
    owner : ndarray of int64
        Row in `blocks` of every row of `data`; -1 where its request is not in the trace.
    """

    blocks: np.ndarray
    data: np.ndarray
    owner: np.ndarray


@dataclass(frozen=True)
class Stream:
    """A trace of any length.

    Attributes
    ----------
    facts : Trace
        Header, paths, warnings, and the records of the kinds of which there are few; no IO, FILEOP, BLOCK, BLOCK_DATA,
        WAKE.
    chunks : callable
        Makes an iterator over all chunks, and over all block requests with their pieces; can be called again.
    first_ns, last_ns : int
        First start and last end of any timed record; 0 without one.
    all_stacked : bool
        Whether every BLOCK record is of a stacked device (`characterize.requests.stacked`).
    """

    facts: Trace
    chunks: Callable[[], Iterator[Chunk | Linked]]
    first_ns: int
    last_ns: int
    all_stacked: bool


@dataclass
class _Scan:
    """What the first pass finds."""

    small: dict[RecordKind, list[np.ndarray]]
    late: dict[RecordKind, list[np.ndarray]]
    reached: list[int]
    count: np.ndarray
    first_ns: int = 2**63 - 1
    last_ns: int = 0
    unstacked: bool = False


def open_stream(
    path: str | os.PathLike[str], piece_records: int = PIECE_RECORDS, foreign: ReadOptions | None = None
) -> Stream:
    """Open a trace file, an archive of one, or a trace of another tool.

    Parameters
    ----------
    path : path-like
    piece_records : int
        Records of the file in memory at once; of an archive its own batches, of another tool's file its own blocks.
    foreign : ReadOptions, optional
        How to read a trace of another tool; given, the file is one, whatever it begins with.

    Raises
    ------
    FlextraceError
        As from `characterize.trace.open`.
    """
    path = Path(path)
    # pyarrow is slow to import, and most traces do not need it.
    if foreign is None and is_trace_archive(path):
        archive = importlib.import_module("characterize.trace_files.archive")
        head, file_bytes, text = archive.read_frame(path)
        return _streamed(path, head, file_bytes, text, lambda: archive.iterate(path))
    if foreign is not None or is_foreign(path):
        return importlib.import_module("characterize.formats.foreign_stream").stream_foreign(path, foreign)
    head, file_bytes = read_head(path)
    raw = np.frombuffer(head, HEADER_DTYPE)[0]
    records = count_records(path, raw, file_bytes, [])
    ends_at_hole = bool(int(raw["flags"]) & HeaderFlag.INCOMPLETE)

    def pieces() -> Iterator[np.ndarray]:
        for first in range(0, records, piece_records):
            size = min(piece_records, records - first)
            piece = read_records(path, first, size)
            if ends_at_hole and (holes := piece[:, 0] == 0).any():
                yield piece[: int(np.argmax(holes))]
                return
            yield piece

    return _streamed(path, head, file_bytes, json_text(path, raw, head, file_bytes), pieces)


def read_records(path: Path, first: int, count: int) -> np.ndarray:
    """Some records of a trace file: uint8, shape (count, 64).

    Raises
    ------
    FlextraceError
        They cannot be read, or are not there any more.
    """
    offset, size = TRACE_HEADER_BYTES + first * TRACE_RECORD_BYTES, count * TRACE_RECORD_BYTES
    try:
        content = np.fromfile(path, np.uint8, size, offset=offset)
    except OSError as error:
        raise FlextraceError(f"cannot read trace {path}: {error.strerror}") from error
    if len(content) < size:
        raise FlextraceError(f"{path} became shorter while it was read: use it when nothing writes to it")
    return content.reshape(-1, TRACE_RECORD_BYTES)


def stream_of(trace: Trace, chunk_records: int = PIECE_RECORDS) -> Stream:
    """The same of a trace that is in memory; records that start together stay together, so chunks can be larger."""
    ordered = {}
    for kind in TIMED:
        ordered[kind] = _by_start(trace.arrays[kind])
    used = [array for array in ordered.values() if len(array)]
    blocks = trace.arrays[RecordKind.BLOCK]
    arrays: Arrays = {kind: trace.arrays[kind] for kind in SMALL if kind is not RecordKind.TEXT}
    facts = Trace(trace.header, arrays, trace.paths, trace.path, trace.warnings)

    def chunks() -> Iterator[Chunk | Linked]:
        yield Linked(blocks, trace.arrays[RecordKind.BLOCK_DATA], trace.block_of_data)
        starts = {kind: np.ascontiguousarray(array["start_ns"]) for kind, array in ordered.items()}
        every = np.sort(np.concatenate(list(starts.values())))
        bounds = np.unique(every[chunk_records::chunk_records])
        begin = dict.fromkeys(TIMED, 0)
        for bound in [*bounds.tolist(), None]:
            end = {
                kind: len(start) if bound is None else int(np.searchsorted(start, np.uint64(bound)))
                for kind, start in starts.items()
            }
            yield Chunk({kind: ordered[kind][begin[kind] : end[kind]] for kind in TIMED})
            begin = end

    return Stream(
        facts=facts,
        chunks=chunks,
        first_ns=min((int(array["start_ns"][0]) for array in used), default=0),
        last_ns=max((_last_end(array) for array in used), default=0),
        all_stacked=bool(((blocks["flags"] & BlockFlag.STACKED) != 0).all()),
    )


def one_ahead(parts: Iterator[Chunk | Linked]) -> Iterator[Chunk | Linked]:
    """The same parts; the next one is made, on another processor, while one is looked at."""
    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = beside.submit(next, parts, None)
            yield part


def _last_end(array: np.ndarray) -> int:
    return int((array["start_ns"] + array["duration_ns"]).max())


def stream_of_pieces(pieces: Pieces, facts_of: Callable[[Arrays], Trace]) -> Stream:
    """A trace whose records come in pieces, in about the order of time, such as one of another tool.

    Parameters
    ----------
    pieces : callable
        Makes an iterator over all records; is called once now, and once for every pass over the chunks.
    facts_of : callable
        From the records of the kinds of which there are few, to the trace without the others; called behind the first
        iteration.
    """
    scan = _scan(pieces)
    empty = {kind: np.zeros(0, dtype) for kind, dtype in RECORD_DTYPE.items()}
    small = {kind: np.concatenate([empty[kind], *found]) for kind, found in scan.small.items()}
    facts = facts_of(empty | small)
    facts.header.count = {kind: int(scan.count[kind]) for kind in RecordKind}
    return _stream(facts, scan, pieces)


def _streamed(path: Path, head: bytes, file_bytes: int, text: bytes | None, pieces: Pieces) -> Stream:
    def facts_of(arrays: Arrays) -> Trace:
        return trace_of(path, Content(head, file_bytes, arrays, np.zeros(0, np.int64), text))

    return stream_of_pieces(pieces, facts_of)


def _stream(facts: Trace, scan: _Scan, pieces: Pieces) -> Stream:
    empty = {kind: np.zeros(0, RECORD_DTYPE[kind]) for kind in TIMED}
    late = {kind: _by_start(concatenated([empty[kind], *found])) for kind, found in scan.late.items()}

    def chunks() -> Iterator[Chunk | Linked]:
        yield from _in_order(pieces, scan.reached, late)

    return Stream(
        facts=facts,
        chunks=chunks,
        first_ns=scan.first_ns if scan.last_ns else 0,
        last_ns=scan.last_ns,
        all_stacked=not scan.unstacked,
    )


def _rows(piece: np.ndarray, kinds: np.ndarray, kind: RecordKind) -> np.ndarray:
    """Records of one kind."""
    chosen = np.flatnonzero(kinds == kind)
    every = np.ascontiguousarray(piece).view(RECORD_DTYPE[kind]).reshape(-1)
    return every if len(chosen) == len(kinds) else rows_at(every, chosen)


def _by_start(array: np.ndarray) -> np.ndarray:
    start = np.ascontiguousarray(array["start_ns"])
    return array if (start[1:] >= start[:-1]).all() else rows_at(array, np.argsort(start, kind="stable"))


def _scan(pieces: Pieces) -> _Scan:
    """The first pass."""
    scan = _Scan({kind: [] for kind in SMALL}, {kind: [] for kind in TIMED}, [], np.zeros(256, np.int64))
    reached = before = 0
    for piece in pieces():
        kinds = np.ascontiguousarray(piece[:, 0])
        counts = np.bincount(kinds, minlength=256)
        scan.count += counts
        for kind in SMALL:
            if counts[kind]:
                scan.small[kind].append(_rows(piece, kinds, kind).copy())
        top = reached
        for kind in TIMED:
            if not counts[kind]:
                continue
            rows = _rows(piece, kinds, kind)
            start = np.ascontiguousarray(rows["start_ns"])
            top = max(top, int(start.max()))
            scan.first_ns = min(scan.first_ns, int(start.min()))
            scan.last_ns = max(scan.last_ns, int((start + rows["duration_ns"]).max()))
            if (is_late := start < np.uint64(before)).any():
                scan.late[kind].append(rows[is_late])
            if kind is RecordKind.BLOCK:
                scan.unstacked |= bool(((rows["flags"] & BlockFlag.STACKED) == 0).any())
        scan.reached.append(before)
        before, reached = reached, top
    return scan


def _in_order(pieces: Pieces, reached: list[int], late: Arrays) -> Iterator[Chunk | Linked]:
    """The second pass: what starts before all that can follow is given away, sorted."""
    waiting: Arrays = {kind: late[kind][:0] for kind in TIMED}
    taken = dict.fromkeys(TIMED, 0)
    open_request = np.zeros((0, TRACE_RECORD_BYTES), np.uint8)
    for number, piece in enumerate(pieces()):
        kinds = np.ascontiguousarray(piece[:, 0])
        # What follows this piece starts at or behind `bound`, but for late records, which are at hand.
        bound = np.uint64(reached[number + 1]) if number + 1 < len(reached) else None
        arrays = {}
        for kind in TIMED:
            rows = _rows(piece, kinds, kind)
            if len(late[kind]):
                rows = rows_at(rows, np.flatnonzero(rows["start_ns"] >= np.uint64(reached[number])))
            rows = _by_start(concatenated([waiting[kind], rows]) if len(waiting[kind]) else rows)
            begin, end = taken[kind], len(late[kind])
            if bound is not None:
                now = int(np.searchsorted(rows["start_ns"], bound))
                waiting[kind], rows = rows[now:], rows[:now]
                end = int(np.searchsorted(late[kind]["start_ns"], bound))
            # A late record stands behind all that start with it and are not late.
            arrays[kind] = _by_start(concatenated([rows, late[kind][begin:end]])) if end > begin else rows
            taken[kind] = end
        yield Chunk(arrays)
        linked = np.isin(kinds, (RecordKind.BLOCK, RecordKind.BLOCK_DATA))
        if linked.any() or bound is None:
            requests = np.concatenate([open_request, piece[linked]])
            last = len(requests)
            if bound is not None and (is_block := requests[:, 0] == RecordKind.BLOCK).any():
                # The last request may have more pieces in the next piece of the file.
                last = len(requests) - 1 - int(np.argmax(is_block[::-1]))
            open_request = requests[last:]
            yield _linked(requests[:last])


def _linked(records: np.ndarray) -> Linked:
    kinds = np.ascontiguousarray(records[:, 0])
    blocks, data = (_rows(records, kinds, kind) for kind in (RecordKind.BLOCK, RecordKind.BLOCK_DATA))
    before = np.cumsum(kinds == RecordKind.BLOCK)[kinds == RecordKind.BLOCK_DATA] - 1
    return Linked(blocks, data, owners_of(blocks, data, before))
