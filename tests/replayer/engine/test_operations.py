# SPDX-License-Identifier: Apache-2.0
"""What the engine does to files, told by strace: exactly the operations of the trace, and nothing else."""

import errno
from itertools import pairwise

import numpy as np
import pytest

from characterize.layout import FileFlag, Fileop, HeaderFlag, IoFlag
from tests.runs.running_replay import conserved
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import DATA, ENGINE, needs_engine, needs_strace, op, strace

pytestmark = [needs_engine, needs_strace, pytest.mark.parallel]

FILES = "%file,%desc"


def test_every_request_is_one_call_at_its_offset_and_size_in_its_threads_order(run_phase):
    random = np.random.default_rng(1)
    io, expected = [], {1: [], 2: []}
    for at in range(200):
        thread, size, offset = 1 + at % 2, int(random.integers(1, 20000)), int(random.integers(0, 1 << 20))
        make = read if random.random() < 0.5 else write
        io.append(make(offset, size, at, 0, thread=thread, process=thread, file=thread))
        name = "pread64" if make is read else "pwrite64"
        expected[thread].append((name, f"f{thread:08}", size, offset, size))
    files = [{"file": file, "size_bytes": 2 << 20} for file in (1, 2)]
    document, calls = run_phase(made_trace(io, files=files, flags=HeaderFlag.UNTIMED))
    seen = {}
    for call in calls:
        seen.setdefault(call.thread, []).append((call.name, call.file, *call.numbers, call.result))
    assert sorted(seen.values()) == sorted(expected.values())
    assert document["requests"] == {"read": sum(r["op"] == 1 for r in io), "write": sum(r["op"] == 2 for r in io)}
    assert document["bytes"]["read"] + document["bytes"]["write"] == sum(r["result"] for r in io)
    assert document["operations"]["done"] == document["operations"]["records"] == 200
    assert document["passes"] == 1
    assert document["trustworthy"] is True


def test_nothing_else_touches_files_between_the_first_and_the_last_operation(run_phase):
    io = [read(4096 * at, 4096, 10 * at) for at in range(50)]
    _, calls = run_phase(made_trace(io, files=[{"file": 1, "size_bytes": 1 << 20}]), FILES)
    names = [call.name for call in calls]
    first, last = names.index("pread64"), len(names) - 1 - names[::-1].index("pread64")
    assert names[first : last + 1] == ["pread64"] * 50


def test_before_the_first_operation_no_file_is_read_or_written(run_phase):
    _, calls = run_phase(made_trace([read(0, 4096)], files=[{"file": 1, "size_bytes": 1 << 20}]), FILES)
    moved = [call for call in calls if call.name in ("read", "write", "readv", "pread64", "pwrite64", "preadv")]
    assert [call.name for call in moved if call.file == "f00000001"] == ["pread64"]
    assert not [call for call in moved if call.name == "read" and "iotrace" in call.arguments]


def test_a_file_that_cannot_be_opened_at_first_is_opened_when_it_is_used(run_phase, tmp_path):
    """For want of descriptors of the whole machine, say. Its later reads went to the descriptor before its own."""
    trace = made_trace([read(100 * at, 100, 1 + at) for at in range(3)], files=[{"file": 1, "size_bytes": 4096}])
    options = ["--cache=keep", "--keep-image"]
    _, calls = run_phase(trace, "openat", options)
    opens = [number for number, call in enumerate(calls, 1) if '"f00000001"' in call.arguments]
    engine = [str(ENGINE), str(tmp_path / "t.iotrace"), f"--directory={tmp_path / 'image'}", "--phase=run", *options]
    failing = ["-e", f"inject=openat:error=ENFILE:when={opens[-1]}"]
    done, calls = strace([*failing, *engine], tmp_path / "log", f"openat,{DATA}")
    assert done.returncode == 0, done.stdout + done.stderr
    moved = [(call.file, *call.numbers, call.result) for call in calls if call.name == "pread64"]
    moved = [read_of for read_of in moved if read_of[1] == 100]  # without those of the loader
    assert moved == [("f00000001", 100, 100 * at, 100) for at in range(3)]


def test_a_created_file_goes_through_its_whole_life(run_phase):
    fileops = [
        op(Fileop.OPEN, 10, flags=IoFlag.CREATED),
        op(Fileop.FSYNC, 30),
        op(Fileop.FDATASYNC, 40),
        op(Fileop.SYNC_FILE_RANGE, 50, argument=0, length=4096),
        op(Fileop.FADVISE, 60, argument=0, length=4096, flags=4 << 16),
        op(Fileop.FALLOCATE, 70, argument=0, length=65536),
        op(Fileop.TRUNCATE, 80, argument=1000),
        op(Fileop.RENAME, 90, argument=2),
        op(Fileop.FSYNC, 95, file=3, flags=IoFlag.DIRECTORY),
        op(Fileop.UNLINK, 100),
        op(Fileop.CLOSE, 120),
    ]
    io = [write(0, 5000, 20, flags=IoFlag.APPEND), read(0, 1000, 110)]
    files = [{"file": 1, "flags": FileFlag.CREATED}, {"file": 2, "flags": FileFlag.NEW_NAME}, {"file": 3, "type": 3}]
    document, calls = run_phase(made_trace(io, fileops=fileops, files=files, paths={1: "/a", 2: "/b", 3: "/"}), FILES)
    names = [call.name for call in calls]
    first = names.index("pwrite64") - 1
    assert names[first : first + 13] == [
        "openat",
        "pwrite64",
        "fsync",
        "fdatasync",
        "sync_file_range",
        "fadvise64",
        "fallocate",
        "ftruncate",
        "renameat",
        "fsync",
        "unlinkat",
        "pread64",
        "close",
    ]
    assert "O_CREAT" in calls[first].arguments
    assert '"f00000001"' in calls[first + 8].arguments
    assert '"f00000002"' in calls[first + 8].arguments
    assert calls[first + 9].file == "image"
    assert '"f00000002"' in calls[first + 10].arguments
    assert document["operations"]["done"] == 13
    assert document["response_time"]["sync"]["count"] == 4
    assert document["time_in_sync_s"] > 0


@pytest.mark.parametrize("new_name", [3, 1 << 31])
def test_a_rename_over_a_file_replaces_it(run_phase, tmp_path, new_name):
    """The recorder counts the ids of new names from 2^31."""
    fileops = [
        op(Fileop.OPEN, 10, file=2, flags=IoFlag.CREATED),
        op(Fileop.RENAME, 30, file=2, argument=new_name),
        op(Fileop.CLOSE, 40, file=2),
    ]
    files = [
        {"file": 1, "size_bytes": 8192},
        {"file": 2, "flags": FileFlag.CREATED},
        {"file": new_name, "flags": FileFlag.NEW_NAME},
    ]
    io = [read(0, 4096, 1, file=1), write(0, 100, 20, file=2)]
    paths = {1: "/target", 2: "/target.tmp", new_name: "/target"}
    document, _ = run_phase(made_trace(io, fileops=fileops, files=files, paths=paths), DATA, ["--keep-image"])
    assert document["operations"]["done"] == 5
    assert (tmp_path / "image" / "f00000001").stat().st_size == 100
    assert not (tmp_path / "image" / "f00000002").exists()


def test_flags_come_back_as_flags_of_the_descriptor(run_phase):
    io = [
        write(0, 4096, 1, flags=IoFlag.DIRECT),
        write(0, 4096, 3, flags=IoFlag.SYNC),
        write(0, 4096, 5, flags=IoFlag.DSYNC),
        write(0, 4096, 7),
    ]
    _, calls = run_phase(made_trace(io, files=[{"file": 1, "size_bytes": 1 << 20}]), FILES)
    flags_of = {}
    wanted = []
    for call in calls:
        if call.name == "openat" and "f00000001" in call.arguments:
            flags_of[call.result] = call.arguments
        if call.name == "pwrite64":
            wanted.append(flags_of[int(call.arguments.split("<")[0])])
    found = [[flag for flag in ("O_DIRECT", "O_SYNC", "O_DSYNC") if flag in text.split(", ")[2]] for text in wanted]
    assert found == [["O_DIRECT"], ["O_SYNC"], ["O_DSYNC"], []]


def test_requests_may_block(run_phase):
    """O_NONBLOCK is ignored for files, but not by an io_uring: it would fail what has to wait."""
    fileops = [op(Fileop.OPEN, 1, file=2, flags=IoFlag.CREATED)]
    files = [{"file": 1, "size_bytes": 4096}, {"file": 2, "flags": FileFlag.CREATED}]
    _, calls = run_phase(made_trace([read(0, 4096, 5), write(0, 4096, 9, file=2)], fileops=fileops, files=files), FILES)
    opens = [call.arguments for call in calls if call.name == "openat" and "O_RDWR" in call.arguments]
    assert [name for text in opens for name in ("f00000001", "f00000002") if name in text] == ["f00000001", "f00000002"]
    assert not [text for text in opens if "O_NONBLOCK" in text]


def test_a_read_at_the_end_is_as_short_as_recorded_and_beyond_it_counts_as_short(run_phase):
    at_end = read(9000, 1000, 1)
    at_end["asked_bytes"] = 4096
    files = [{"file": 1, "size_bytes": 10000}, {"file": 2, "flags": FileFlag.CREATED}]
    lost = read(0, 500, 5, file=2)  # the write before it was lost
    document, _ = run_phase(made_trace([at_end, write(0, 10, 3, file=2), lost], files=files), statuses=(3,))
    assert document["operations"]["io"] == {"records": 3, "done": 2, "short": 1, "failed": 0, "skipped": 0}
    assert document["mismatches"] == {"short": 1}
    assert document["reasons"]


def test_a_larger_file_of_another_trace_is_cut_where_its_end_matters(run_phase):
    big = made_trace([read(0, 4096)], files=[{"file": 1, "size_bytes": 100000}], flags=HeaderFlag.UNTIMED)
    run_phase(big, options=["--keep-image"])
    at_end = read(4096, 904, 1)
    at_end["asked_bytes"] = 4096
    document, _ = run_phase(made_trace([at_end], files=[{"file": 1, "size_bytes": 5000}]))
    assert document["operations"]["done"] == 1
    assert not document["mismatches"]


def test_what_cannot_be_repeated_is_skipped_with_its_reason(run_phase):
    io = [
        read(0, 4096, 1),
        read(0, -14, 2),  # EFAULT: the caller's bad pointer
        read(0, 4096, 3, file=0),
        read(0, 4096, 4, file=4000000000),
        read(0, 4096, 5, op=77),
    ]
    fileops = [
        op(Fileop.OPEN, 6, file=0, result=-2),
        op(Fileop.UNLINK, 7, result=-13),
        op(Fileop.CLOSE, 8, file=2),
        op(99, 9),
    ]
    document, calls = run_phase(made_trace(io, fileops=fileops, files=[{"file": 1, "size_bytes": 8192}]), statuses=(3,))
    assert len(calls) == 1
    assert document["skipped_reasons"] == {
        "unknown_file": 2,
        "unknown_operation": 2,
        "caller_error": 1,
        "recorded_failure": 2,
    }
    assert document["operations"]["done"] == 2
    assert conserved(document["operations"])
    assert conserved(document["operations"]["io"])
    assert conserved(document["operations"]["fileop"])


def test_ids_of_files_may_be_larger_than_the_number_of_records(run_phase):
    """Of a recording with --path, and of a part that was cut, most files have no record."""
    io = [read(0, 4096, 1, file=28), read(4096, 4096, 2, file=200_003)]
    files = [{"file": 28, "size_bytes": 8192}, {"file": 200_003, "size_bytes": 8192}]
    document, calls = run_phase(made_trace(io, files=files))
    assert len(calls) == 2
    assert document["operations"]["skipped"] == 0


def test_an_error_that_comes_again_is_done_and_a_new_one_is_failed(run_phase):
    """O_DIRECT with an offset of 1 is refused by every file system with blocks."""
    io = [
        read(0, 4096, 1),
        read(1, -22, 2, asked_bytes=100, flags=IoFlag.DIRECT),
        read(1, 100, 3, flags=IoFlag.DIRECT),
        read(0, -5, 4, asked_bytes=4096),
    ]
    document, _ = run_phase(made_trace(io, files=[{"file": 1, "size_bytes": 8192}]), statuses=(3,))
    assert document["operations"]["done"] == 3
    assert document["operations"]["failed"] == 1
    assert document["errors"] == {"EINVAL": 1}
    assert document["mismatches"] == {"failed": 1, "succeeded": 1}


def ended_before(io):
    """Pairs (earlier, later) of indices where one ended before the other started; the definition, by brute force."""
    return [
        (a, b)
        for a, first in enumerate(io)
        for b, second in enumerate(io)
        if first["start_ns"] + first["duration_ns"] < second["start_ns"]
    ]


def test_alternating_threads_never_overlap(run_phase):
    io = [write(4096 * at, 4096, 100 * at, 50, thread=1 + at % 2) for at in range(60)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": 1 << 20}])
    document, calls = run_phase(made, options=["--order=recorded"])
    assert document["order"] == "recorded"
    assert [call.numbers[1] for call in calls] == [4096 * at for at in range(60)]
    assert all(first.ended < second.began for first, second in pairwise(calls))


@pytest.mark.parametrize("seed", [1, 2])
def test_interval_order_holds_for_every_pair(run_phase, seed):
    """Random overlapping operations of five threads, some of no duration, many with equal times."""
    random = np.random.default_rng(seed)
    io = []
    for thread in range(1, 6):
        clock = int(random.integers(0, 20))
        for _ in range(40):
            duration = int(random.integers(0, 6)) * 5
            io.append(read(4096 * len(io), 4096, clock, duration, thread=thread))
            clock += duration + int(random.integers(0, 4)) * 5
    trace = made_trace(io, files=[{"file": 1, "size_bytes": 4096 * len(io)}])
    document, calls = run_phase(trace, options=["--order=recorded"])
    assert document["operations"]["done"] == len(io)
    by_offset = {call.numbers[1] // 4096: call for call in calls}
    pairs = ended_before(io)
    assert len(pairs) > 1000
    assert not [(a, b) for a, b in pairs if by_offset[a].ended > by_offset[b].began]


def test_recorded_times_are_never_early(run_phase):
    io = [read(0, 4096, 1000 + 5_000_000 * at, 1000, thread=1 + at % 2) for at in range(10)]
    trace = made_trace(io, files=[{"file": 1, "size_bytes": 8192}])
    for timing in ("recorded", "think"):
        document, _ = run_phase(trace, options=[f"--timing={timing}"], statuses=(0, 3))
        assert document["elapsed_s"] >= 0.044
        assert document["operations"]["done"] == 10
    document, _ = run_phase(trace, options=["--timing=recorded", "--speed=10"], statuses=(0, 3))
    assert document["elapsed_s"] >= 0.0044
    accuracy = document["accuracy"]
    assert accuracy["lateness"]["count"] == accuracy["behind"]["count"] == 10
    times = {"count", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"}
    assert set(accuracy["lateness"]) == set(accuracy["behind"]) == times | {"buckets"}
    assert accuracy["schedule_ns"] == 4_500_000


def test_what_failed_to_change_anything_is_left_out_and_what_came_up_short_stays_short(run_phase, tmp_path):
    """A disk that was full when it was recorded is not full here: the rest would change what follows."""
    io = [
        write(0, 1000, 1, asked_bytes=4096),
        write(4096, -errno.ENOSPC, 2, asked_bytes=4096),
        write(8192, -errno.EIO, 3, asked_bytes=4096),
        read(0, 1000, 6, asked_bytes=4096),
    ]
    fileops = [
        op(Fileop.FALLOCATE, 4, length=1 << 20, result=-errno.ENOSPC),
        op(Fileop.TRUNCATE, 5, argument=1 << 20, result=-errno.EFBIG),
        op(Fileop.TRUNCATE, 7, file=0, argument=1 << 20, result=-errno.ENOENT),
    ]
    trace = made_trace(io, fileops=fileops, files=[{"file": 1, "flags": FileFlag.CREATED}])
    document, calls = run_phase(trace, f"{DATA},fallocate,ftruncate", ["--keep-image"])
    assert document["skipped_reasons"] == {"recorded_failure": 5}
    assert document["operations"]["done"] == 2
    assert not document["mismatches"]
    assert [(call.name, *call.numbers) for call in calls if call.file == "f00000001"] == [
        ("pwrite64", 1000, 0),
        ("pread64", 4096, 0),
    ]
    assert (tmp_path / "image" / "f00000001").stat().st_size == 1000
