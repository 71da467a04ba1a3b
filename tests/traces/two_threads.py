# SPDX-License-Identifier: Apache-2.0
"""Recordings of two threads, whose times can be computed by hand."""

from __future__ import annotations

from characterize.layout import FileFlag, Fileop, IoFlag
from characterize.trace import Trace
from tests.traces.made_trace import made_trace, read, write

PAGE = 4096
US, MS = 1_000, 1_000_000


def two_threads() -> Trace:
    """Two threads, 4 reads and 4 writes of 4096 bytes, 10 ms each, in 100 ms; half of the read bytes from the device.

    The threads begin at 0 and at 5 ms and start a request every 20 ms.
    """
    rows = []
    for thread, begin in ((1, 0), (2, 5)):
        for number in range(4):
            place = {"thread": thread, "file": thread, "start": (begin + 20 * number) * MS, "duration": 10 * MS}
            missed = 4096 if number < 1 else 0
            rows.append(
                write(0, 4096, **place) if number % 2 else read(4096 * number, 4096, **place, missed_bytes=missed)
            )
    files = [{"file": 1, "size_bytes": 1 << 20}, {"file": 2, "size_bytes": 1 << 20}]
    return made_trace(rows, files=files, paths={1: "/a", 2: "/b"}, start_monotonic_ns=1, end_monotonic_ns=100 * MS + 1)


def reader_and_writer() -> Trace:
    """A thread that reads what is cached and what is not, starts another one, which writes a new file."""
    io = [
        read(0, PAGE, 0, 2 * US, missed_bytes=0),
        read(40 * PAGE, PAGE, 10 * US, 100 * US, missed_bytes=PAGE),
        *(read(PAGE * page, PAGE, (200 + 10 * page) * US, 2 * US, missed_bytes=0) for page in range(6)),
        write(0, 3 * PAGE, 300 * US, 5 * US, thread=2, file=2),
        write(3 * PAGE, 100, 320 * US, 3 * US, thread=2, file=2),
        *(write(3 * PAGE, 100, (330 + 10 * n) * US, 3 * US, thread=2, file=2) for n in range(8)),
        write(3 * PAGE, 100, 500 * US, 20 * MS, thread=2, file=2),
    ]
    fileops = [
        {"op": Fileop.FDATASYNC, "start_ns": 21 * MS, "duration_ns": 400 * US, "thread": 2, "file": 2},
        {
            "op": Fileop.TRUNCATE,
            "start_ns": 22 * MS,
            "duration_ns": 9 * US,
            "thread": 2,
            "file": 2,
            "argument": PAGE - 7,
        },
        {"op": Fileop.OPEN, "start_ns": 23 * MS, "duration_ns": 9 * US, "thread": 2, "flags": IoFlag.TRUNCATED},
        {"op": Fileop.UNLINK, "start_ns": 24 * MS, "duration_ns": 9 * US, "thread": 2, "result": -2},
        {"op": Fileop.CLOSE, "start_ns": 25 * MS, "duration_ns": 9 * US, "thread": 2, "file": 2},
    ]
    files = [
        {"file": 1, "size_bytes": 50 * PAGE},
        {"file": 2, "size_bytes": 0, "flags": FileFlag.CREATED},
    ]
    resident = [{"file": 1, "offset": 0, "bytes": 10 * PAGE}]
    times = {"start_monotonic_ns": 1, "end_monotonic_ns": 30 * MS}
    return made_trace(io, fileops=fileops, files=files, resident=resident, paths={1: "/a", 2: "/b"}, **times)
