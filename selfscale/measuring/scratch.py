# SPDX-License-Identifier: Apache-2.0
"""Turns how large a file of a replay is going to be, which is gone with it, into a directory that has the room."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import HEADER_DTYPE, TRACE_HEADER_BYTES, TRACE_RECORD_BYTES, RecordKind
from characterize.stream import Stream
from characterize.trace_files.trace_head import count_records, read_head
from characterize.units import format_bytes
from selfscale.measuring.environment import cache_limit_bytes

MEMORY_SHARE = 1 / 8
"""Of what is available, at most: the rest is the page cache of the replay."""
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


def scratch_directory(needed_bytes: int, what: str, remedy: str = "") -> Path:
    """Memory where that has plenty, so that no disk is disturbed that is measured, else the temporary directory.

    Raises
    ------
    FlextraceError
        As `check_room`.
    """
    shared = Path("/dev/shm")
    if shared.is_dir() and os.access(shared, os.W_OK):
        available = min(shutil.disk_usage(shared).free, cache_limit_bytes(None))
        if needed_bytes <= MEMORY_SHARE * available:
            return shared
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
