# SPDX-License-Identifier: Apache-2.0
"""Makes traces of any number of records, a piece at a time: reads and writes of several sizes, scans and hot places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from characterize.layout import IO_DTYPE, FileType, IoOp, RecordKind, Source
from characterize.trace import write
from tests.traces.appended_records import append_records
from tests.traces.made_trace import made_trace

PIECE_RECORDS = 1 << 20
GAP_NS = 2000  # from one start to the next, over all threads
THREADS = 8
FILES = 64
BLOCK_BYTES = 4096
BLOCKS_PER_FILE = 1 << 15  # 8 GiB in all
SIZES = np.array([512, 4096, 16384, 65536])
SHARES = (0.1, 0.6, 0.2, 0.1)  # 2.8 blocks a request
WRITE_SHARE = 0.3
SCAN_SHARE = 0.25
HOT_SHARE = 0.5  # of the rest, to a hundredth of the blocks


def mixed_pieces(count: int, seed: int = 1) -> Iterator[np.ndarray]:
    """IO records in the order of their ends; a quarter goes on where the thread's scan of its files is."""
    random = np.random.default_rng(seed)
    scanned = np.zeros(THREADS, np.int64)
    for first in range(0, count, PIECE_RECORDS):
        number = np.arange(first, min(first + PIECE_RECORDS, count))
        size = random.choice(SIZES, len(number), p=SHARES)
        thread = number % THREADS
        block = random.integers(0, FILES * BLOCKS_PER_FILE, len(number))
        hot = random.random(len(number)) < HOT_SHARE
        block[hot] = block[hot] // 100 * 37 % (FILES * BLOCKS_PER_FILE // 100)
        place = block * BLOCK_BYTES
        scan = random.random(len(number)) < SCAN_SHARE
        for one in range(THREADS):
            mine = scan & (thread == one)
            reached = scanned[one] + np.cumsum(size[mine])
            place[mine] = one * (FILES // THREADS) * BLOCKS_PER_FILE * BLOCK_BYTES + reached - size[mine]
            scanned[one] = int(reached[-1]) if len(reached) else scanned[one]
        file_bytes = BLOCKS_PER_FILE * BLOCK_BYTES
        place %= FILES * file_bytes
        io = np.zeros(len(number), IO_DTYPE)
        io["kind"], io["source"] = RecordKind.IO, Source.SYSCALL
        io["op"] = np.where(random.random(len(number)) < WRITE_SHARE, IoOp.WRITE, IoOp.READ)
        io["thread"], io["process"] = 1 + thread, 1 + thread // 2
        io["file"], io["offset"] = 1 + place // file_bytes, place % file_bytes
        io["start_ns"] = GAP_NS * number
        io["duration_ns"] = 1 + random.exponential(GAP_NS * THREADS / 3, len(number)).astype(np.int64)
        io["asked_bytes"] = io["result"] = size
        io["missed_bytes"] = np.where(random.random(len(number)) < 0.1, size, 0)
        yield io[np.argsort(io["start_ns"] + io["duration_ns"], kind="stable")]


def make_mixed_trace(path: Path, count: int) -> Path:
    """Write a trace of `count` requests, 64 bytes each."""
    files = [
        {"file": file, "size_bytes": BLOCKS_PER_FILE * BLOCK_BYTES, "type": FileType.REGULAR, "resident_bytes": 0}
        for file in range(1, FILES + 1)
    ]
    write(made_trace(files=files), path)
    append_records(path, mixed_pieces(count))
    return path
