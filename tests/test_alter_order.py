# SPDX-License-Identifier: Apache-2.0
"""Another processNum keeps what it promises of the order, where a thread has several in flight."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from characterize.layout import Fileop, RecordKind, Source
from replayer.alter import alter
from replayer.flexible.draft import Draft
from replayer.flexible.process_num import busiest_requests, in_flight
from replayer.flexible.queue_depth import change_queue_depth
from tests.made_trace import made_trace, read, write

pytestmark = pytest.mark.computes

PAGE = 4096


def spans(io, fileops):
    """Start and end of every operation, by id."""
    both = [(row["id"], row["start_ns"], row["duration_ns"]) for records in (io, fileops) for row in records]
    return {int(name): (int(start), int(start) + max(int(duration), 1)) for name, start, duration in both}


def assert_ordered(before, after):
    """What had ended when another operation started still has."""
    for one, other in itertools.permutations(before, 2):
        if before[one][1] <= before[other][0]:
            assert after[one][1] <= after[other][0], (one, other)


def flying(threads, io, fileops=()):
    return made_trace(
        io,
        fileops=list(fileops),
        files=[{"file": file, "size_bytes": 1 << 20} for file in (1, 2)],
        tasks=[{"thread": thread, "process": thread} for thread in threads],
        paths={1: "/one", 2: "/two"},
    )


def altered_spans(parent, target):
    altered, _ = alter(parent, {"processNum": target})
    arrays = [trace.arrays[kind] for trace in (parent, altered) for kind in (RecordKind.IO, RecordKind.FILEOP)]
    return spans(*arrays[:2]), spans(*arrays[2:])


def test_a_sync_stays_behind_all_writes_of_its_ring():
    io = [write(PAGE * at, PAGE, at, 100, id=at + 1, source=Source.IO_URING) for at in range(4)]
    sync = {"op": Fileop.FSYNC, "start_ns": 104, "duration_ns": 50, "id": 5, "source": Source.IO_URING}
    before, after = altered_spans(flying([1], io, [sync]), 2)
    assert_ordered(before, after)
    assert after[5] == (201, 251)


def test_a_thread_beside_one_with_several_in_flight_does_not_overlap_itself():
    io = [read(PAGE * at, PAGE, at, 1000, id=at + 1, source=Source.IO_URING) for at in range(4)]
    io += [read(0, PAGE, start, 10, id=start + 1, thread=2, process=2, file=2) for start in (4, 20)]
    before, after = altered_spans(flying([1, 2], io), 2)
    assert_ordered(before, after)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.booleans()), min_size=2, max_size=20),
    st.data(),
)
def test_fewer_in_flight_in_any_schedule(rows, data):
    reads = [read(0, PAGE, start, lasts, id=at + 1) for at, (start, lasts, data_too) in enumerate(rows) if data_too]
    syncs = [
        {"op": Fileop.FSYNC, "start_ns": start, "duration_ns": lasts, "id": at + 1}
        for at, (start, lasts, data_too) in enumerate(rows)
        if not data_too
    ]
    draft = Draft.of(flying([1], reads, syncs))
    present = in_flight(draft)
    if present < 2:
        return
    target = data.draw(st.integers(1, present - 1))
    before = spans(draft.io, draft.fileops)
    change_queue_depth(draft, target, busiest_requests(draft))
    after = spans(draft.io, draft.fileops)
    assert_ordered(before, after)
    assert in_flight(draft) == target
    assert all(after[name][0] >= start for name, (start, _) in before.items())
    assert all(after[name][1] - after[name][0] == end - start for name, (start, end) in before.items())
    starts = [after[name][0] for name in sorted(before, key=lambda name: (before[name][0], after[name][0]))]
    assert starts == sorted(starts)
