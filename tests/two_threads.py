# SPDX-License-Identifier: Apache-2.0
"""A recording whose times can be computed by hand."""

from __future__ import annotations

from characterize.trace import Trace
from tests.made_trace import made_trace, read, write

MS = 1_000_000


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
