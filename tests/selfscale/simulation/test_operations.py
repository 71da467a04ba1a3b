# SPDX-License-Identifier: Apache-2.0
"""From a trace to the operations that are simulated, with times written by hand."""

import numpy as np
import pytest

from characterize.errors import FlextraceError
from characterize.layout import (
    PROCESSOR_SHARE_ALL,
    PROCESSOR_SHARE_NONE,
    RECORD_DTYPE,
    Fileop,
    IoFlag,
    RecordKind,
)
from selfscale.simulation.operations import Kind, operations_of
from tests.traces.made_trace import made_trace, read, write
from tests.traces.two_threads import reader_and_writer
from tests.truths.straced import op

pytestmark = pytest.mark.parallel

US, MS, MIB = 1_000, 1_000_000, 2**20
PAGE = 4096


def test_for_how_long_a_thread_computed_before_an_operation():
    stored = [0, PROCESSOR_SHARE_NONE, PROCESSOR_SHARE_ALL, 128]
    io = [read(0, PAGE, 10 * US * at, 2 * US, missed_bytes=0, processor_share=each) for at, each in enumerate(stored)]
    found = operations_of(made_trace(io, files=[{"file": 1, "size_bytes": PAGE}], paths={1: "/a"}))
    assert found.gap_ns.tolist() == [0, 8000, 8000, 8000]
    assert found.computing_ns == pytest.approx([np.nan, 0, 8000, 4000], nan_ok=True)


def test_nothing_says_who_computes_while_another_thread_does_all_that_it_does():
    io = [
        read(0, PAGE, at, 2 * US, thread=thread, missed_bytes=0, processor_share=200)
        for thread, at in ((1, 0), (2, 10 * US), (1, 20 * US))
    ]
    tasks = [{"thread": thread, "process": 1, "parent_process": 0} for thread in (1, 2)]
    found = operations_of(made_trace(io, files=[{"file": 1, "size_bytes": PAGE}], tasks=tasks, paths={1: "/a"}))
    assert found.waits_for.tolist() == [-1, -1, 1]
    assert np.isnan(found.computing_ns[2])


def test_operations_of_a_trace():
    found = operations_of(reader_and_writer())
    kinds = [Kind(kind) for kind in found.kind]
    assert kinds[:8] == [Kind.READ] * 8
    assert kinds[-5:] == [Kind.WRITE, Kind.SYNC, Kind.DISCARD, Kind.DISCARD, Kind.NONE], "what failed is left out"
    assert found.span_s == pytest.approx(25.009e-3)
    # Two files end to end, each with one page more that is nobody's.
    assert found.file_begin.tolist() == [0, 51]
    assert found.file_end.tolist() == [50, 55]
    assert found.stored.sum() == 50
    assert found.cached.tolist() == list(range(10))
    assert found.first[[1, 8, 9]].tolist() == [40, 51, 54]
    assert found.pages[[1, 8, 9]].tolist() == [1, 3, 1]
    assert found.first[-4:-1].tolist() == [51, 52, 0], "a truncation drops what is behind what it keeps"
    assert found.head[9] == 0
    assert found.tail[9]
    # What waited for storage takes what its like take of a processor; the sync as recorded.
    assert found.processor_ns[1] == 2 * US
    assert found.processor_ns[kinds.index(Kind.SYNC) - 1] == 3 * US
    assert found.processor_ns[kinds.index(Kind.SYNC)] == 400 * US
    # The second thread begins after the last read of the first one.
    assert found.after.tolist() == [-1, 7]
    assert found.gap_ns[8] == (300 - 252) * US
    assert found.gap_ns[1] == 8 * US
    assert not found.together.any()


def test_what_passes_the_cache_by_takes_of_a_processor_what_the_benchmark_does():
    """Its recorded time is storage's, which the simulation adds; also where others of its size were cached."""
    io = [
        row
        for at in range(10)
        for row in (
            read(at * PAGE, PAGE, at * MS, 300 * US, flags=IoFlag.DIRECT),
            write(at * PAGE, PAGE, at * MS + 400 * US, 9 * US),
            write(at * PAGE, PAGE, at * MS + 500 * US, 200 * US, flags=IoFlag.DIRECT),
        )
    ]
    io[0]["missed_bytes"] = PAGE
    found = operations_of(made_trace(io, files=[{"file": 1, "size_bytes": 10 * PAGE}], paths={1: "/a"}))
    assert found.processor_ns.tolist() == [0, 9 * US, 0] * 10
    assert found.direct.tolist() == [True, False, True] * 10


def test_where_no_read_was_cached_its_time_is_the_benchmarks():
    """Ten took 150 us, one 20; once a read of another size has hit, the fast ones are taken not to have waited."""
    io = [read(10 * at * PAGE, PAGE, at * MS, 150 * US, missed_bytes=PAGE) for at in range(11)]
    io[7]["duration_ns"] = 20 * US
    files = [{"file": 1, "size_bytes": 200 * PAGE}]
    found = operations_of(made_trace(io, files=files, paths={1: "/a"}))
    assert not found.processor_ns.any()
    hit = read(0, 2 * PAGE, 50 * MS, 25 * US, missed_bytes=0)
    found = operations_of(made_trace([*io, hit], files=files, paths={1: "/a"}))
    assert found.processor_ns[:11].tolist() == [25 * US] * 7 + [20 * US] + [25 * US] * 3


def test_writes_that_end_when_they_are_durable():
    """They take of a processor what others do: here the benchmark's, or the median where enough of their size are."""
    io = [write(at * PAGE, PAGE, at * MS, 9 * US, flags=flag) for at, flag in enumerate((IoFlag.SYNC, IoFlag.DSYNC))]
    reads = [read(0, PAGE, 10 * MS, 2 * US, missed_bytes=0, flags=IoFlag.SYNC)]
    files = [{"file": 1, "size_bytes": 10 * PAGE}]
    found = operations_of(made_trace([*io, *reads], files=files, paths={1: "/a"}))
    assert found.synced.tolist() == [True, True, False]
    assert found.processor_ns.tolist() == [0, 0, 2 * US]
    others = [write(at * PAGE, PAGE, at * MS, 3 * US) for at in range(20, 25)]
    found = operations_of(made_trace([*io, *reads, *others], files=files, paths={1: "/a"}))
    assert found.processor_ns.tolist() == [3 * US, 3 * US, 2 * US] + [3 * US] * 5


def test_only_the_used_part_of_a_huge_file_is_simulated():
    """Of a device or image that is larger than all that can be simulated: storage holds what is used, not nothing."""
    io = [read(page * PAGE, PAGE, page * 100 * US, 2 * US, missed_bytes=PAGE * (page == 3)) for page in range(8)]
    trace = made_trace(io, files=[{"file": 1, "size_bytes": 200 << 30}], paths={1: "/dev/huge"})
    found = operations_of(trace)
    assert found.stored[:8].all()
    assert found.stored.sum() == 8 + (64 << 20) // PAGE
    with pytest.raises(FlextraceError, match="can be simulated"):
        operations_of(
            made_trace([*io, read(190 << 30, PAGE, 900 * US, 2 * US)], files=[{"file": 1, "size_bytes": 200 << 30}])
        )


def test_storage_has_nothing_in_a_hole():
    """But in pages that are a hole in part. What is a hole up to the end has the last page, too."""
    io = [read(page * PAGE, PAGE, page * 100 * US, 2 * US, missed_bytes=0, file=1 + page % 2) for page in range(8)]
    files = [{"file": 1, "size_bytes": 20 * PAGE - 5}, {"file": 2, "size_bytes": 10 * PAGE}]
    holes = [(1, 0, 3 * PAGE), (1, 5 * PAGE - 1, 3 * PAGE + 2), (1, 15 * PAGE, 5 * PAGE - 5), (2, 9 * PAGE, 2**64 - 1)]
    holes += [(2, 2**64 - 1, PAGE), (3, 0, PAGE)]
    records = [{"file": file, "offset": offset, "bytes": size} for file, offset, size in holes]
    found = operations_of(made_trace(io, files=files, holes=records))
    stored = [*range(3, 5), *range(8, 15), *(21 + page for page in range(9))]
    assert np.flatnonzero(found.stored).tolist() == stored


def test_where_only_the_amount_is_known_the_first_pages_are_cached():
    io = [read(page * PAGE, PAGE, page * 100 * US, 2 * US, missed_bytes=0, file=1 + page % 3) for page in range(9)]
    files = [
        {"file": 1, "size_bytes": 20 * PAGE, "resident_bytes": 5 * PAGE},
        {"file": 2, "size_bytes": 20 * PAGE, "resident_bytes": 5 * PAGE},
        {"file": 3, "size_bytes": 20 * PAGE},
    ]
    found = operations_of(made_trace(io, files=files, resident=[{"file": 2, "offset": 8 * PAGE, "bytes": 5 * PAGE}]))
    assert sorted(found.cached) == [*range(5), *range(21 + 8, 21 + 13)]


def test_who_paused_for_all_of_a_threads_operations_waited_for_its_end():
    """Process 1 has threads 1, 2 and 3, process 8 is its child, 9 is nobody's; thread 3 reads in the middle as well."""
    rows = {
        1: [(0, 5), (900, 5)],
        2: [(20, 100), (300, 100)],
        3: [(10, 5), (350, 5), (905, 5)],
        8: [(30, 2), (500, 100)],
        9: [(40, 5), (850, 5)],
    }
    io = [
        read(0, PAGE, start * US, duration * US, thread=thread, missed_bytes=0)
        for thread, times in rows.items()
        for start, duration in times
    ]
    processes = {1: (1, 7), 2: (1, 7), 3: (1, 7), 8: (8, 1), 9: (9, 7)}
    tasks = [{"thread": thread, "process": own, "parent_process": up} for thread, (own, up) in processes.items()]
    files = [{"file": 1, "size_bytes": PAGE}]
    found = operations_of(made_trace(io, files=files, tasks=tasks, paths={1: "/a"}))
    starts = np.sort([start for times in rows.values() for start, _ in times])
    waits = {int(starts[at]): int(starts[found.waits_for[at]]) for at in np.flatnonzero(found.waits_for >= 0)}
    assert waits == {900: 500}, "thread 2 ended before, thread 3 saw no other begin and end, nobody had to do with 9"
    assert found.gap_ns[starts.tolist().index(900)] == (900 - 600) * US
    without = operations_of(made_trace(io, files=files, tasks=[], paths={1: "/a"}))
    assert (without.waits_for == -1).all()


def wake(call, cause, slept_us=0.0):
    """Of a call in test_what_a_recording_says_of_wake_ups: (id, thread, start)."""
    record = np.zeros(1, RECORD_DTYPE[RecordKind.WAKE])
    record["kind"], record["cause"], record["slept_ns"] = RecordKind.WAKE, cause, slept_us * US
    record["id"], record["thread"], record["start_ns"] = call[0], call[1], call[2] * US
    record["woken_ns"] = record["start_ns"]
    return record


def test_what_a_recording_says_of_wake_ups_is_taken_for_what_threads_waited_for():
    """Thread 2 sleeps for 190 us until thread 1 has read; its failed open was woken, so the read behind that waited.

    Thread 3 was made after thread 2's failed open, and so after what that one had done before. Nobody waits for
    what is not there, or comes later.
    """
    calls = {1: (1, 0, 5), 2: (2, 0, 5), 3: (1, 100, 100), 5: (2, 230, 5), 6: (3, 300, 5), 7: (1, 400, 5)}
    io = [
        read(0, PAGE, start * US, long * US, thread=thread, missed_bytes=0, id=number, processor_share=128)
        for number, (thread, start, long) in calls.items()
    ]
    failed = op(Fileop.OPEN, 210 * US, result=-2) | {"id": 4, "duration_ns": US, "thread": 2}
    trace = made_trace(io, fileops=[failed], files=[{"file": 1, "size_bytes": PAGE}], paths={1: "/a"})
    trace.arrays[RecordKind.WAKE] = np.concatenate(
        [wake((4, 2, 210), 3, 190), wake((6, 3, 300), 4), wake((7, 1, 400), 99, 50), wake((1, 1, 0), 6)]
    )
    found = operations_of(trace)
    starts = [0, 0, 100, 230, 300, 400]
    assert found.waits_for.tolist() == [-1, -1, -1, 2, -1, -1]
    assert found.wait_gap_ns.tolist() == [0, 0, 0, (230 - 200) * US, 0, 0]
    assert found.gap_ns[[2, 3, 5]].tolist() == [95 * US, (225 - 190) * US, 200 * US]
    assert found.after[2] == starts.index(0) + 1, "the first read of thread 2"
    assert found.gap_ns[4] == (300 - 5) * US
    # Half of 225 us is longer than what the thread did not sleep.
    assert found.computing_ns[3] == 35 * US


def test_a_directory_is_synced_where_names_have_changed():
    def operation(number, kind, file=3, **more):
        return {"op": kind, "start_ns": number * US, "duration_ns": US, "file": file, **more}

    def sync(number, file):
        return operation(number, Fileop.FSYNC, file, flags=IoFlag.DIRECTORY)

    rows = [
        sync(1, 2),
        operation(2, Fileop.OPEN, flags=IoFlag.CREATED),
        sync(3, 2),
        sync(4, 2),
        sync(5, 4),
        operation(6, Fileop.OPEN),
        sync(7, 2),
        operation(8, Fileop.UNLINK),
        sync(9, 2),
        operation(10, Fileop.UNLINK, result=-2),
        sync(11, 2),
    ]
    found = operations_of(made_trace([read(0, PAGE, 0, 1, missed_bytes=0)], fileops=rows))
    kinds = [Kind(kind) for kind in found.kind]
    assert [number for number, kind in enumerate(kinds) if kind == Kind.DIRECTORY_SYNC] == [3, 5, 9]


def test_mapped_memory_is_synced_where_that_is_waited_for():
    rows = [op(Fileop.MSYNC, number * US, flags=flags << 16, length=PAGE) for number, flags in ((1, 4), (2, 1), (3, 6))]
    found = operations_of(made_trace([read(0, PAGE, 0, 1, missed_bytes=0)], fileops=rows))
    assert [Kind(kind) for kind in found.kind[1:]] == [Kind.SYNC, Kind.NONE, Kind.SYNC]


def test_data_is_dropped_with_the_last_name_and_the_last_use():
    """File 1 gets a second name and loses both, file 2 is used until it is closed, file 3 has never been used since."""
    io = [read(0, PAGE, 0, 1, missed_bytes=0, file=file) for file in (1, 2, 3)]
    io.append(write(0, PAGE, 40 * US, 1, file=2))
    rows = [
        (op(Fileop.LINK, 10 * US, file=1), Kind.NONE),
        (op(Fileop.UNLINK, 11 * US, file=1), Kind.NONE),
        (op(Fileop.UNLINK, 12 * US, file=3), Kind.DISCARD),
        (op(Fileop.UNLINK, 13 * US, file=2), Kind.NONE),
        (op(Fileop.CLOSE, 14 * US, file=2), Kind.NONE),
        (op(Fileop.CLOSE, 50 * US, file=1), Kind.NONE),
        (op(Fileop.CLOSE, 51 * US, file=2), Kind.DISCARD),
        (op(Fileop.CLOSE, 52 * US, file=2), Kind.NONE),
        (op(Fileop.CLOSE, 53 * US, file=3), Kind.NONE),
        (op(Fileop.UNLINK, 54 * US, file=1), Kind.DISCARD),
    ]
    found = operations_of(made_trace(io, fileops=[row for row, _ in rows]))
    assert [Kind(kind) for kind in found.kind[found.kind > Kind.WRITE]] == [kind for _, kind in rows]
    dropped = np.flatnonzero(found.kind == Kind.DISCARD)
    assert found.first[dropped].tolist() == found.file_begin[[2, 1, 0]].tolist()


def test_requests_in_flight_together_stay_so():
    rows = [read(0, PAGE, 0, 50 * US, missed_bytes=0), read(PAGE, PAGE, 10 * US, 50 * US, missed_bytes=0)]
    found = operations_of(made_trace(rows, files=[{"file": 1, "size_bytes": MIB}]))
    assert found.together.tolist() == [False, True]
    assert found.gap_ns.tolist() == [0, 10 * US]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "no request"),
        ([read(0, PAGE)], "does not say which reads were cached"),
        ([read(1 << 50, PAGE, missed_bytes=0)], "pages"),
    ],
)
def test_what_cannot_be_simulated(rows, said):
    with pytest.raises(FlextraceError, match=said):
        operations_of(made_trace(rows))


def test_a_trace_that_would_take_minutes(monkeypatch):
    monkeypatch.setattr("selfscale.simulation.operations.OPERATIONS_MAX", 10)
    with pytest.raises(FlextraceError, match="23 operations, 10 can be simulated"):
        operations_of(reader_and_writer())
