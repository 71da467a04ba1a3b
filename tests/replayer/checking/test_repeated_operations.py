# SPDX-License-Identifier: Apache-2.0
"""The rules by which replays are compared say of failed and short operations what the engine does, told by strace."""

from __future__ import annotations

import errno

import pytest

from characterize.layout import FileFlag, Fileop, Source
from characterize.stream import stream_of
from replayer.checking.operation_form import WantedOperations
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import DATA, needs_engine, needs_strace, op

pytestmark = [needs_engine, needs_strace, pytest.mark.parallel]

PAGE = 4096


def test_failed_and_short_operations_are_those_that_the_engine_makes(run_phase):
    io = [
        write(0, 1000, 10, asked_bytes=PAGE),
        write(0, 0, 20, asked_bytes=PAGE),
        write(0, -errno.ENOSPC, 30, asked_bytes=PAGE),
        write(0, -errno.EFAULT, 40, asked_bytes=PAGE),
        write(0, -errno.EPIPE, 50, asked_bytes=PAGE, source=Source.SPLICE),
        read(0, 1000, 60, asked_bytes=PAGE),
        read(0, -errno.EIO, 70, asked_bytes=500),
        read(0, 700, 80, asked_bytes=PAGE, source=Source.SPLICE),
        read(0, -errno.EXDEV, 85, asked_bytes=PAGE, source=Source.SPLICE),
    ]
    fileops = [
        op(Fileop.FALLOCATE, 90, length=PAGE, result=-errno.ENOSPC),
        op(Fileop.TRUNCATE, 100, argument=PAGE, result=-errno.EFBIG),
        op(Fileop.FSYNC, 110, result=-errno.EIO),
        op(Fileop.TRUNCATE, 120, argument=10),
    ]
    trace = made_trace(io, fileops=fileops, files=[{"file": 1, "flags": FileFlag.CREATED}])
    wanted = WantedOperations(stream_of(trace))
    rows = wanted(trace.arrays)
    document, calls = run_phase(trace, DATA)
    counts = document["operations"]
    assert wanted.expected == counts["records"] - counts["skipped"] == 7
    moved = [tuple(call.numbers) for call in calls if call.file == "f00000001"]
    assert [(row.size, row.place) for row in rows[rows["data"]].itertuples()] == moved
