# SPDX-License-Identifier: Apache-2.0
"""Turns how large a file is going to be, which is gone with a replay or a measurement, into where it has the room."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import HEADER_DTYPE, TRACE_HEADER_BYTES, TRACE_RECORD_BYTES, RecordKind
from characterize.trace_files.trace_head import count_records, read_head
from characterize.units import format_bytes
from selfscale.measuring.environment import cache_limit_bytes

if TYPE_CHECKING:
    from characterize.stream import Stream

MEMORY, MEMORY_SHARE = Path("/dev/shm"), 1 / 8
"""Where files lie in memory; and what one may take of what is available, at most: the rest is the page cache."""
RECORDS_PER_OPERATION = 4
"""Of a replay that is recorded: of a direct read its own, its request's to the device and what that is of; and that its
thread was woken for it."""


def recording_bytes(trace: Path) -> int:
    """About what a recording of the replay of a trace takes, at least what the trace has."""
    head, file_bytes = read_head(trace)
    raw = np.frombuffer(head, HEADER_DTYPE)[0]
    records = count_records(trace, raw, file_bytes, [])
    operations = int(raw["count"][RecordKind.IO]) + int(raw["count"][RecordKind.FILEOP])
    return TRACE_HEADER_BYTES + TRACE_RECORD_BYTES * max(records, RECORDS_PER_OPERATION * operations)


def device_trace_bytes(stream: Stream) -> int:
    """The most that `make_device_trace` writes of a trace: its operations or its requests."""
    count = stream.facts.header.count
    operations = count.get(RecordKind.IO, 0) + count.get(RecordKind.FILEOP, 0)
    return TRACE_HEADER_BYTES + TRACE_RECORD_BYTES * (1 + max(operations, count.get(RecordKind.BLOCK, 0)))


def willy_bytes(requests: int, syncs_per_request: float = 0.0) -> int:
    """About what a synthetic trace takes."""
    return TRACE_HEADER_BYTES + TRACE_RECORD_BYTES * math.ceil(requests * (1 + syncs_per_request))


def memory_room() -> int:
    """The largest file, in bytes, that goes to memory."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        return 0
    return int(MEMORY_SHARE * min(shutil.disk_usage(MEMORY).free, cache_limit_bytes(None)))


def scratch_directory(needed_bytes: int, what: str, remedy: str = "") -> Path:
    """Memory where that has plenty, so that no disk is disturbed that is measured, else the temporary directory.

    Raises
    ------
    FlextraceError
        As `check_room`.
    """
    if needed_bytes <= memory_room():
        return MEMORY
    place = Path(tempfile.gettempdir())
    check_room(place, needed_bytes, what, remedy)
    return place


def check_room(place: Path, needed_bytes: int, what: str, remedy: str = "") -> None:
    """Refuse a directory that is too small, before there is work to be lost.

    Raises
    ------
    FlextraceError
        Says what needs how much room, and what to do, with what else can be done.
    """
    free_bytes = shutil.disk_usage(place).free
    if needed_bytes > free_bytes:
        raise FlextraceError(
            f"{what} takes about {format_bytes(needed_bytes)}, {place} has {format_bytes(free_bytes)}: "
            f"set TMPDIR to a directory with more{remedy}"
        )
