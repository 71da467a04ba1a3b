# SPDX-License-Identifier: Apache-2.0
"""Turns a Trace into a trace file, in the layout of ``bpf/trace_format.h``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from characterize.errors import FlextraceError
from characterize.expansion import refuse_archive_name
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
    HeaderFlag,
    RecordKind,
)

if TYPE_CHECKING:
    from characterize.trace import Trace


def write(trace: Trace, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write a trace file.

    IO, FILEOP and BLOCK records are merged by their start (a stable sort, so that the order of each thread stays), each
    BLOCK record with its BLOCK_DATA records behind it, behind the FILE, TASK and RESIDENT records.

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
    body.append(_timed_records(trace))
    body.append(_raw(trace.arrays[RecordKind.GAP]))

    header = np.zeros(1, HEADER_DTYPE)[0]
    header["magic"] = TRACE_MAGIC
    header["version_major"], header["version_minor"] = TRACE_VERSION_MAJOR, TRACE_VERSION_MINOR
    header["header_bytes"], header["record_bytes"] = TRACE_HEADER_BYTES, TRACE_RECORD_BYTES
    header["flags"] = int(trace.header.flags) & ~int(HeaderFlag.INCOMPLETE)
    header["record_count"] = sum(len(part) for part in body)
    for name in ("start_monotonic_ns", "start_realtime_ns", "end_monotonic_ns", "end_realtime_ns"):
        header[name] = getattr(trace.header, name)
    kinds = np.concatenate([part[:, 0] for part in body])
    header["count"] = np.bincount(kinds, minlength=TRACE_KINDS_MAX)[:TRACE_KINDS_MAX]
    for kind, count in trace.header.lost.items():
        header["lost"][kind] = count
    text = json.dumps(trace.header.metadata, separators=(",", ":")).encode()
    header["json_bytes"] = len(text)
    fits = len(text) <= TRACE_JSON_BYTES_MAX
    header["json_offset"] = (
        TRACE_HEADER_BYTES - TRACE_JSON_BYTES_MAX if fits else TRACE_HEADER_BYTES + 64 * int(header["record_count"])
    )
    if fits:
        header["json"] = np.void(text.ljust(TRACE_JSON_BYTES_MAX, b"\0"))

    try:
        with path.open("wb" if force else "xb") as stream:
            stream.write(header.tobytes())
            for part in body:
                stream.write(np.ascontiguousarray(part).data)
            if not fits:
                stream.write(text)
    except FileExistsError as error:
        raise FlextraceError(f"{path} exists already: choose another name or give --force", exit_code=2) from error
    except OSError as error:
        raise FlextraceError(f"cannot write trace {path}: {error.strerror}") from error
    return path


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
    records = np.concatenate(parts)
    # All of these have their start at the same place.
    return records[np.argsort(records.reshape(-1).view(IO_DTYPE)["start_ns"], kind="stable")]


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
