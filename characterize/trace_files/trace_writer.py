# SPDX-License-Identifier: Apache-2.0
"""Turns a Trace, or chunks of one, into a trace file, in the layout of ``bpf/trace_format.h``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from characterize.layout import (
    FILE_DTYPE,
    HEADER_DTYPE,
    IO_DTYPE,
    TEXT_DTYPE,
    TRACE_HEADER_BYTES,
    TRACE_JSON_BYTES_MAX,
    TRACE_KINDS_MAX,
    TRACE_MAGIC,
    TRACE_RECORD_BYTES,
    TRACE_TEXT_BYTES,
    TRACE_VERSION_MAJOR,
    TRACE_VERSION_MINOR,
    WAKE_DTYPE,
    HeaderFlag,
    RecordKind,
)
from characterize.trace_files.expansion import refuse_archive_name
from characterize.trace_files.new_file import new_file

if TYPE_CHECKING:
    from characterize.trace import Header, Trace

_TIMED_KINDS = (RecordKind.IO, RecordKind.FILEOP, RecordKind.BLOCK)
_SIZE_AT = 40  # size_bytes in struct file_record
_NO_FILES = np.zeros(0, FILE_DTYPE)
_NO_WAKES = np.zeros(0, WAKE_DTYPE)


def write(trace: Trace, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write a trace file.

    IO, FILEOP and BLOCK records are merged by their start (a stable sort, so that the order of each thread stays), each
    BLOCK record with its BLOCK_DATA records behind it, behind the FILE, TASK, RESIDENT and HOLE records. A WAKE record
    stands right before the record of its call, and is left out where that is not in the trace.

    Parameters
    ----------
    trace : Trace
        ``header.flags``, the four times, ``lost`` and ``metadata`` are taken over; the counts are counted.
    path : path-like
    force : bool
        Overwrite an existing file.

    Raises
    ------
    FlextraceError
        The file exists and `force` is not given, has the name of an archive, or cannot be written.
    """
    path = Path(path)
    refuse_archive_name(path)
    body = [_file_records(trace.arrays[RecordKind.FILE], trace.paths)]
    body.append(_raw(trace.arrays[RecordKind.TASK]))
    body.append(_raw(trace.arrays[RecordKind.RESIDENT]))
    body.append(_raw(trace.arrays[RecordKind.HOLE]))
    body.append(_timed_records(trace))
    body.append(_raw(trace.arrays[RecordKind.GAP]))

    record_count = sum(len(part) for part in body)
    kinds = np.concatenate([part[:, 0] for part in body])
    count = np.bincount(kinds, minlength=TRACE_KINDS_MAX)[:TRACE_KINDS_MAX]
    head, behind = _head(trace.header, count, record_count)

    with new_file(path, force=force) as stream:
        stream.write(head)
        for part in body:
            stream.write(np.ascontiguousarray(part).data)
        stream.write(behind)
    return path


def write_chunks(
    chunks: Iterable[tuple[Mapping[RecordKind, np.ndarray], Mapping[int, str]]],
    header: Callable[[], Header],
    path: Path,
    *,
    force: bool = False,
    file_sizes: Mapping[int, int] | None = None,
) -> int:
    """Write a trace file whose records come in pieces, with no more than one piece in memory.

    Parameters
    ----------
    chunks : iterable of (dict of RecordKind to ndarray, dict of int to str)
        Records of one piece by kind, and the paths of its FILE records. IO, FILEOP and BLOCK records of a piece are
        merged by their start, behind the others; its WAKE records are those of its calls.
    header : callable
        Called when all pieces are written.
    path : Path
    force : bool
        Overwrite an existing file.
    file_sizes : dict of int to int, optional
        Sizes for the FILE records, which need not be known before all pieces are written.

    Returns
    -------
    int
        Records written.

    Raises
    ------
    FlextraceError
        The file exists and `force` is not given, has the name of an archive, or cannot be written.
    """
    refuse_archive_name(path)
    count = np.zeros(TRACE_KINDS_MAX, np.int64)
    place_of_file: dict[int, int] = {}
    with new_file(path, force=force) as stream:
        stream.write(bytes(TRACE_HEADER_BYTES))
        for arrays, paths in chunks:
            first = [_file_records(arrays.get(RecordKind.FILE, _NO_FILES), paths)]
            placed = (*_TIMED_KINDS, RecordKind.FILE, RecordKind.WAKE)
            first += [_raw(array) for kind, array in arrays.items() if kind not in placed]
            timed = [_raw(arrays[kind]) for kind in _TIMED_KINDS if kind in arrays]
            if timed:
                wakes = arrays.get(RecordKind.WAKE, _NO_WAKES)
                first.append(_with_wakes(_by_start(np.concatenate(timed)), wakes))
            for part in first:
                for row in np.flatnonzero(part[:, 0] == RecordKind.FILE).tolist():
                    place = TRACE_HEADER_BYTES + (int(count.sum()) + row) * TRACE_RECORD_BYTES
                    place_of_file[int(part[row].view(FILE_DTYPE)["file"][0])] = place
                count += np.bincount(part[:, 0], minlength=TRACE_KINDS_MAX)[:TRACE_KINDS_MAX]
                stream.write(np.ascontiguousarray(part).data)
        head, behind = _head(header(), count, int(count.sum()))
        stream.write(behind)
        for file, size in (file_sizes or {}).items():
            if file in place_of_file:
                stream.seek(place_of_file[file] + _SIZE_AT)
                stream.write(size.to_bytes(8, "little"))
        stream.seek(0)
        stream.write(head)
    return int(count.sum())


def _head(header: Header, count: np.ndarray, record_count: int) -> tuple[bytes, bytes]:
    """The header of a file, and its JSON block where it does not fit into that."""
    raw = np.zeros(1, HEADER_DTYPE)[0]
    raw["magic"] = TRACE_MAGIC
    raw["version_major"], raw["version_minor"] = TRACE_VERSION_MAJOR, TRACE_VERSION_MINOR
    raw["header_bytes"], raw["record_bytes"] = TRACE_HEADER_BYTES, TRACE_RECORD_BYTES
    flags = header.flags
    if flags & HeaderFlag.INCOMPLETE:
        # As a file it is whole now; what its recorder had not written when it was killed is missing all the same.
        flags = flags & ~HeaderFlag.INCOMPLETE | HeaderFlag.LOST
    raw["flags"] = int(flags)
    raw["record_count"] = record_count
    for name in ("start_monotonic_ns", "start_realtime_ns", "end_monotonic_ns", "end_realtime_ns"):
        raw[name] = getattr(header, name)
    raw["count"] = count
    for kind, lost in header.lost.items():
        raw["lost"][kind] = lost
    text = json.dumps(header.metadata, separators=(",", ":")).encode()
    raw["json_bytes"] = len(text)
    if len(text) > TRACE_JSON_BYTES_MAX:
        raw["json_offset"] = TRACE_HEADER_BYTES + TRACE_RECORD_BYTES * record_count
        return raw.tobytes(), text
    raw["json_offset"] = TRACE_HEADER_BYTES - TRACE_JSON_BYTES_MAX
    raw["json"] = np.void(text.ljust(TRACE_JSON_BYTES_MAX, b"\0"))
    return raw.tobytes(), b""


def _raw(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1, TRACE_RECORD_BYTES)


def _timed_records(trace: Trace) -> np.ndarray:
    """IO, FILEOP and BLOCK records by their start; behind each BLOCK record its pieces, whatever starts with it."""
    blocks, pieces = trace.arrays[RecordKind.BLOCK], trace.arrays[RecordKind.BLOCK_DATA]
    owner = np.concatenate([np.arange(len(blocks)), trace.block_of_data])
    requests = np.concatenate([_raw(blocks), _raw(pieces)])
    # Stable: a BLOCK record stands before its pieces, and those without one stand first of all.
    requests = requests[np.argsort(owner, kind="stable")]
    parts = [_raw(trace.arrays[RecordKind.IO]), _raw(trace.arrays[RecordKind.FILEOP]), requests]
    return _with_wakes(_by_start(np.concatenate(parts)), trace.arrays[RecordKind.WAKE])


def _by_start(records: np.ndarray) -> np.ndarray:
    """A stable sort; records of all timed kinds have their start at the same place."""
    return records[np.argsort(records.reshape(-1).view(IO_DTYPE)["start_ns"], kind="stable")]


def _with_wakes(records: np.ndarray, wakes: np.ndarray) -> np.ndarray:
    """Records with a WAKE record right before that of its call, one for each at most.

    Its start alone would not tell where that is: calls of several threads may start together.
    """
    if not len(wakes):
        return records
    calls = np.flatnonzero(np.isin(records[:, 0], (RecordKind.IO, RecordKind.FILEOP)))
    number, first = np.unique(records.reshape(-1).view(IO_DTYPE)["id"][calls], return_index=True)
    # Number 0 is that of a call that has none.
    wakes = wakes[np.isin(wakes["id"], number[number > 0])]
    wanted, once = np.unique(wakes["id"], return_index=True)
    return np.insert(records, calls[first[np.searchsorted(number, wanted)]], _raw(wakes[once]), axis=0)


def _file_records(files: np.ndarray, paths: Mapping[int, str]) -> np.ndarray:
    """FILE records, each followed by the TEXT records of its path."""
    parts = []
    for row in files:
        text = paths.get(int(row["file"]), "").encode("utf-8", "surrogateescape")
        record = np.zeros(1, FILE_DTYPE)
        record[0] = row
        record["path_bytes"] = len(text)
        parts.append(_raw(record))
        pieces = [text[at : at + TRACE_TEXT_BYTES] for at in range(0, len(text), TRACE_TEXT_BYTES)]
        records = np.zeros(len(pieces), TEXT_DTYPE)
        for index, piece in enumerate(pieces):
            records[index] = (RecordKind.TEXT, len(piece), index, row["file"], 0, piece.ljust(TRACE_TEXT_BYTES, b"\0"))
        parts.append(_raw(records))
    return np.concatenate(parts) if parts else np.zeros((0, TRACE_RECORD_BYTES), np.uint8)
