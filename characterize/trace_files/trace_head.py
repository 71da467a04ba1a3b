# SPDX-License-Identifier: Apache-2.0
"""Turns the first bytes of a trace file into a header that can be trusted, and says how many records follow it."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np

from characterize.errors import FlextraceError, remedy_of
from characterize.layout import (
    HEADER_DTYPE,
    TRACE_HEADER_BYTES,
    TRACE_MAGIC,
    TRACE_RECORD_BYTES,
    TRACE_VERSION_MAJOR,
    HeaderFlag,
)
from characterize.trace_files.expansion import is_trace_archive

_CLOCKS = ("start_monotonic_ns", "start_realtime_ns", "end_monotonic_ns", "end_realtime_ns")
TRUNCATED = "is truncated"


def is_foreign(path: Path) -> bool:
    """Whether a file has some content, and is no trace or archive of one; one that cannot be read is none."""
    return _begin(path) not in (b"", TRACE_MAGIC) and not is_trace_archive(path)


def is_trace(path: Path) -> bool:
    """Whether a file begins as a trace; one that cannot be read is none."""
    return _begin(path) == TRACE_MAGIC


def _begin(path: Path) -> bytes:
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as stream:
            return stream.read(len(TRACE_MAGIC))
    except OSError:
        return b""


def read_head(path: Path) -> tuple[bytes, int]:
    """The header of a trace that this program can read, and the size of the file."""
    try:
        status = path.stat()
        if stat.S_ISFIFO(status.st_mode):
            raise FlextraceError(f"cannot read trace {path}: it is a pipe, and has to be a file, which can be mapped")
        file_bytes = status.st_size
        with path.open("rb") as stream:
            head = stream.read(TRACE_HEADER_BYTES)
    except OSError as error:
        raise FlextraceError(f"cannot read trace {path}: {error.strerror}{remedy_of(error)}") from error
    check_head(path, head)
    return head, file_bytes


def check_head(path: Path, head: bytes) -> None:
    """Refuse a header that is not of a trace which this program can read.

    Raises
    ------
    FlextraceError
        Foreign, cut off, of a newer major version, or damaged.
    """
    if not head:
        raise FlextraceError(f"{path} is empty: no trace was written into it")
    if not head.startswith(TRACE_MAGIC):
        raise FlextraceError(
            f"{path} is not a flextrace trace (it does not begin with {TRACE_MAGIC.decode()}); "
            "to read a trace of another tool use 'flextrace import'"
        )
    if len(head) < TRACE_HEADER_BYTES:
        raise FlextraceError(
            f"{path} is cut off within its header ({len(head)} of {TRACE_HEADER_BYTES} bytes): nothing to read"
        )
    raw = np.frombuffer(head, HEADER_DTYPE)[0]
    major, minor = int(raw["version_major"]), int(raw["version_minor"])
    if major != TRACE_VERSION_MAJOR:
        raise FlextraceError(
            f"{path} has trace format version {major}.{minor}, this flextrace reads version {TRACE_VERSION_MAJOR}.x: "
            "use the flextrace that wrote it, or a newer one"
        )
    if raw["header_bytes"] != TRACE_HEADER_BYTES or raw["record_bytes"] != TRACE_RECORD_BYTES:
        raise FlextraceError(
            f"{path} is damaged: header of {raw['header_bytes']} and records of {raw['record_bytes']} bytes, "
            f"expected {TRACE_HEADER_BYTES} and {TRACE_RECORD_BYTES}"
        )
    if max(int(raw[name]) for name in _CLOCKS) > np.iinfo(np.int64).max:
        raise FlextraceError(f"{path} is damaged: its header has impossible times")


def count_records(path: Path, raw: np.void, file_bytes: int, warnings: list[str]) -> int:
    """How many records can be read: all of them, or the whole ones of a file that was not finished or is cut off."""
    whole_records = (file_bytes - TRACE_HEADER_BYTES) // TRACE_RECORD_BYTES
    if HeaderFlag(int(raw["flags"])) & HeaderFlag.INCOMPLETE:
        warnings.append(
            f"{path} was not closed cleanly (its recorder was killed or the disk was full): "
            "read up to its last whole record"
        )
        return whole_records
    record_count = int(raw["record_count"])
    if record_count > whole_records:
        warnings.append(f"{path} {TRUNCATED}: {whole_records} of {record_count} records are there")
    return min(record_count, whole_records)


def json_text(path: Path, raw: np.void, head: bytes, file_bytes: int) -> bytes | None:
    """The JSON block of a trace file; None if it is cut off."""
    offset, size = int(raw["json_offset"]), int(raw["json_bytes"])
    if offset + size > file_bytes:
        return None
    if offset + size <= TRACE_HEADER_BYTES:
        return head[offset : offset + size]
    with path.open("rb") as stream:
        stream.seek(offset)
        return stream.read(size)
