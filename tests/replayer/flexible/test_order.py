# SPDX-License-Identifier: Apache-2.0
"""Another processNum keeps what it promises of the order: of several in flight in a thread, and around syncs of all."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from characterize.layout import Fileop, RecordKind, Source
from characterize.workload import Workload
from replayer.alter import alter
from replayer.flexible.draft import Draft
from replayer.flexible.process_num import busiest_requests, in_flight
from replayer.flexible.queue_depth import change_queue_depth
from replayer.willy import make_trace
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

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


def test_three_of_four_threads_meet_though_the_third_waited_for_the_fourth():
    # The fourth one's first read would come behind the first thread's, and the third thread's behind that.
    rows = [(1, 0, 100), (2, 1, 100), (4, 10, 10), (3, 30, 100), (4, 40, 100)]
    io = [
        read(2 * PAGE * at, PAGE, start, lasts, id=at + 1, thread=thread, process=thread)
        for at, (thread, start, lasts) in enumerate(rows)
    ]
    before, after = altered_spans(flying([1, 2, 3, 4], io), 3)
    assert max(sum(start <= at < end for start, end in after.values()) for at, _ in after.values()) == 3
    assert_ordered(before, after)


@pytest.mark.parametrize("sync_frac", [0, 0.3])
@pytest.mark.parametrize("target", [3, 2])
def test_synthetic_threads_have_as_much_to_do_when_one_of_them_goes(target, sync_frac):
    workload = Workload(8 << 20, 0.5, 0.5, 16384, 4)
    parent = make_trace(workload, requests=4000, size="bernoulli", seed=5, sync_frac=sync_frac)
    altered, manifest = alter(parent, {"processNum": target})
    assert not manifest.off
    assert manifest.curve.held
    work = pd.concat([altered.io["thread"], altered.fileops["thread"]]).value_counts()
    assert len(work) == target
    assert work.max() <= 1.02 * work.min()
    assert write_before_each_sync(altered) == write_before_each_sync(parent)


def write_before_each_sync(trace):
    """By the ids of syncs, that of the operation which its thread did before on the file."""
    columns = ["thread", "file", "start_ns", "id"]
    operations = pd.concat([trace.io[columns], trace.fileops[columns]]).sort_values("start_ns")
    operations["before"] = operations.groupby(["thread", "file"])["id"].shift()
    return operations[operations["id"].isin(trace.fileops["id"])].set_index("id")["before"].sort_index().tolist()


@pytest.mark.parametrize("file", [0, 1])
def test_a_sync_of_all_files_stays_behind_all_writes_and_later_ones_behind_it(file):
    """One thread writes 16 pages in no sequence to two files, syncs, and writes 16 others."""
    places = np.random.default_rng(0).permutation(64).tolist()
    io = [
        write(PAGE * place, PAGE, 100 * at, 90, id=at + 1, file=1 + at % 2)
        for at, place in enumerate(places)
        if at != 32
    ]
    sync = {"op": Fileop.SYNCFS, "start_ns": 3200, "duration_ns": 90, "id": 33, "file": file}
    before, after = altered_spans(flying([1], io, [sync]), 4)
    for name, (start, end) in after.items():
        if name != 33:
            assert (end <= after[33][0]) == (before[name][1] <= before[33][0])
            assert (start >= after[33][1]) == (before[name][0] >= before[33][1])
