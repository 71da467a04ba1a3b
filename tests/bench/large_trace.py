# SPDX-License-Identifier: Apache-2.0
"""Makes traces of any number of records, a piece at a time: reads of small cached files by threads that overlap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from characterize.layout import IO_DTYPE, NOT_MEASURED_U32, FileType, IoOp, RecordKind, Source
from characterize.trace import write
from tests.traces.appended_records import append_records
from tests.traces.made_trace import made_trace

PIECE_RECORDS = 1 << 20
GAP_NS = 1000  # from one start to the next, over all threads
FILE_BYTES = 1 << 20
REQUEST_BYTES = 512


def read_pieces(count: int, threads: int, seed: int = 1) -> Iterator[np.ndarray]:
    """IO records in the order of their ends, as recordings have them: threads in turn, each with one request at a time.

    A request lasts up to the next start of its thread, so that up to `threads` overlap. Each thread has its own file.
    """
    random = np.random.default_rng(seed)
    for first in range(0, count, PIECE_RECORDS):
        number = np.arange(first, min(first + PIECE_RECORDS, count))
        io = np.zeros(len(number), IO_DTYPE)
        io["kind"], io["op"], io["source"] = RecordKind.IO, IoOp.READ, Source.SYSCALL
        io["thread"] = io["process"] = io["file"] = 1 + number % threads
        io["start_ns"] = GAP_NS * number
        io["duration_ns"] = random.integers(1, GAP_NS * threads, len(number))
        io["offset"] = REQUEST_BYTES * random.integers(0, FILE_BYTES // REQUEST_BYTES, len(number))
        io["asked_bytes"] = io["result"] = REQUEST_BYTES
        io["missed_bytes"] = NOT_MEASURED_U32
        yield io[np.argsort(io["start_ns"] + io["duration_ns"], kind="stable")]


def make_large_trace(path: Path, count: int, threads: int) -> Path:
    """Write a trace of `count` requests, 64 bytes each."""
    files = [
        {"file": file, "size_bytes": FILE_BYTES, "type": FileType.REGULAR, "resident_bytes": FILE_BYTES}
        for file in range(1, threads + 1)
    ]
    write(made_trace(files=files), path)
    append_records(path, read_pieces(count, threads))
    return path
