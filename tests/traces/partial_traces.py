# SPDX-License-Identifier: Apache-2.0
"""A trace with records of all that is characterized, and traces that lack some of it."""

from characterize.layout import HeaderFlag, RecordKind
from tests.traces.made_trace import made_trace, read, write

FILES = [{"file": 1, "size_bytes": 8192, "resident_bytes": 0}]
BLOCKS = [{"op": 1, "sector": 8, "bytes": 4096, "start_ns": 2, "duration_ns": 5, "queued_ns": 3, "cause": 1}]


def full_trace(**header):
    return made_trace(
        [read(0, 4096, 0, 10), write(4096, 4096, 20, 10), read(8192, 100, 40, 20, thread=2)],
        fileops=[{"op": 3, "start_ns": 30, "duration_ns": 5}],
        files=FILES,
        tasks=[{"thread": 1, "process": 1, "comm": b"sort"}],
        blocks=BLOCKS,
        paths={1: "/data/" + "y" * 90},
        **header,
    )


TRACES = {
    "full": full_trace,
    "empty": made_trace,
    "block only": lambda: made_trace(blocks=BLOCKS),
    "foreign": lambda: made_trace(blocks=BLOCKS, metadata={"durations": "unknown", "imported": {"format": "mqsim"}}),
    "no reads": lambda: made_trace([write(0, 10, 0, 5)], files=FILES),
    "no writes": lambda: made_trace([read(0, 10, 0, 5)], files=FILES),
    "one request of no duration": lambda: made_trace([read(0, 1, 0, 0)]),
    "only errors": lambda: made_trace([read(0, -5), write(0, 0)]),
    "only file operations": lambda: made_trace(fileops=[{"op": 3, "duration_ns": 5}]),
    "no FILE records": lambda: made_trace([read(0, 10), write(0, 10)]),
    "not run": lambda: full_trace(flags=HeaderFlag.UNTIMED, metadata={"declared": {"processNum": 4}}),
    "planned": lambda: full_trace(flags=HeaderFlag.PLANNED),
    "lost": lambda: full_trace(lost={RecordKind.IO: 3}),
}
