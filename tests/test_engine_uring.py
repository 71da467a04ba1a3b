# SPDX-License-Identifier: Apache-2.0
"""The io_uring engine, told by a recording of the replay (strace sees the ring, not its requests)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from made_trace import made_trace, read, write
from straced import ENGINE, needs_engine, needs_strace, op, strace
from told import PROGRAMS, RECORDER, record, run_recorder

import characterize
from characterize.layout import Fileop, HeaderFlag, IoFlag, IoOp, Source
from characterize.requests import left_out
from tests.loop_file_system import loop_file_system

pytestmark = needs_engine

PAGE = 4096
MIB = 1 << 20
needs_recorder = pytest.mark.skipif(
    os.geteuid() != 0 or not RECORDER.exists(), reason="recording needs root and build/flextrace-record (make build)"
)
needs_programs = pytest.mark.skipif(
    not (PROGRAMS / "io_uring").exists(), reason="test programs are not built (make build/test-programs)"
)
URING = {"source": Source.IO_URING}


def run(*arguments, status=0):
    done = subprocess.run([ENGINE, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def conserved(counts) -> bool:
    return counts["records"] == counts["done"] + counts["short"] + counts["failed"] + counts["skipped"]


@dataclass
class Replayed:
    """A replay of a trace, and the recording of that replay; file numbers are those of the original."""

    document: dict
    io: list
    fileops: list


def replay_recorded(directory: Path, path: Path, *options: str, statuses=(0,)) -> Replayed:
    image, again = directory / "image", directory / "again.iotrace"
    run(path, f"--directory={image}", "--phase=prepare", "--keep-image")
    done = run_recorder(again, ENGINE, path, f"--directory={image}", "--phase=run", "--keep-image", *options)
    assert done.returncode in statuses, done.stderr
    trace = characterize.open(again)
    assert not trace.header.lost
    numbers = {
        file: int(Path(name).name[1:])
        for file, name in trace.paths.items()
        if Path(name).parent == image and Path(name).name.startswith("f")
    }

    def mapped(rows):
        # The engine maps its trace and its image; requests are what it does beside that.
        kept = (row for row in rows.itertuples() if row.file in numbers and row.source != Source.MMAP)
        return [row._replace(file=numbers[row.file]) for row in kept]

    return Replayed(json.loads(done.stdout), mapped(trace.io), mapped(trace.fileops))


def ended_before(first, second) -> bool:
    """The interval order of docs/decisions/0002, by its definition."""
    end = first.start_ns + first.duration_ns
    return end < second.start_ns or (end == second.start_ns and first.duration_ns > 0)


def violations(originals, replayed, key=lambda row: row.offset) -> list:
    """Pairs of requests, told apart by `key`, that did not overlap when recorded and do, or have changed places."""
    found = {key(row): row for row in replayed}
    return [
        (first, second)
        for first in originals
        for second in originals
        if ended_before(first, second)
        and found[key(first)].start_ns + found[key(first)].duration_ns > found[key(second)].start_ns
    ]


def in_flight_max(rows) -> int:
    moments = sorted([(row.start_ns, 1) for row in rows] + [(row.start_ns + row.duration_ns, -1) for row in rows])
    return int(np.cumsum([change for _, change in moments]).max())


@needs_recorder
@needs_programs
@pytest.mark.parametrize("program", ["aio", "io_uring"])
def test_a_recorded_program_comes_again(tmp_path, program):
    """Every request that the program made by AIO or io_uring comes by io_uring, what it did by calls by calls."""
    original = record(tmp_path / "program", program).trace
    again = replay_recorded(tmp_path, tmp_path / "program.iotrace", statuses=(0, 3))
    assert again.document["engine"]["name"] == "io_uring"
    kept = original.io[~left_out(original)]
    kept = list(kept[kept.result >= 0].itertuples())

    def key(row):
        source = Source.IO_URING if row.source == Source.AIO else Source(row.source)
        direct = bool(row.flags & IoFlag.DIRECT)
        return (IoOp(row.op), row.file, row.offset, row.asked_bytes, row.result, direct, source)

    wanted, got = Counter(map(key, kept)), Counter(key(row) for row in again.io if row.result >= 0)
    assert sum(count for (*_, source), count in wanted.items() if source == Source.IO_URING) > 100
    assert wanted == got
    assert conserved(again.document["operations"])
    unique = [row for row in kept if wanted[key(row)] == 1]
    assert in_flight_max(unique) > 1
    assert not violations(unique, again.io, key)
    assert in_flight_max(again.io) <= in_flight_max(kept)


def overlapping(seed: int, threads: int, count: int) -> list[dict]:
    """Random requests of several threads, each with several in flight, many with equal times, some of no duration."""
    random = np.random.default_rng(seed)
    io = []
    for thread in range(1, threads + 1):
        clock = int(random.integers(0, 20))
        for _ in range(count):
            make = write if random.random() < 0.3 else read
            io.append(make(PAGE * len(io), PAGE, clock, int(random.integers(0, 12)) * 5, thread=thread, **URING))
            clock += int(random.integers(0, 4)) * 5
    return io


@needs_recorder
@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("timing", ["asap", "think", "recorded"])
@pytest.mark.parametrize("direct", ["off", "on"])
def test_what_did_not_overlap_does_not(tmp_path, threads, timing, direct):
    """Over all pairs of 211 requests: buffered ones end inside of the call that submits them, direct ones do not."""
    io = overlapping(threads, threads, 211 // threads)
    trace = made_trace(io, files=[{"file": 1, "size_bytes": PAGE * len(io)}])
    path = characterize.write(trace, tmp_path / "t.iotrace")
    again = replay_recorded(tmp_path, path, f"--timing={timing}", f"--direct={direct}", statuses=(0, 3))
    assert again.document["operations"]["done"] == len(io) == len(again.io)
    assert {row.source for row in again.io} == {Source.IO_URING}
    assert {bool(row.flags & IoFlag.DIRECT) for row in again.io} == {direct == "on"}
    originals = list(trace.io.itertuples())
    assert in_flight_max(originals) > 3
    assert not violations(originals, again.io)
    assert in_flight_max(again.io) <= in_flight_max(originals)


@needs_recorder
def test_order_of_each_thread_alone(tmp_path):
    """--order thread: the rule holds within each thread, whatever the others do."""
    io = overlapping(7, 3, 61)
    trace = made_trace(io, files=[{"file": 1, "size_bytes": PAGE * len(io)}])
    path = characterize.write(trace, tmp_path / "t.iotrace")
    again = replay_recorded(tmp_path, path, "--order=thread", "--direct=on")
    assert len(again.io) == len(io)
    for _, own in trace.io.groupby("thread"):
        rows = list(own.itertuples())
        assert not violations(rows, again.io)


@needs_recorder
@pytest.mark.parametrize(("depth", "expected"), [(None, 13), (5, 5), (100, 13)])
def test_depth_is_as_recorded_or_less(tmp_path, depth, expected):
    """13 requests at once, 7 times: all of them are handed to the kernel before any is waited for."""
    io = [
        read(65536 * (13 * batch + at), 65536, 1000 * batch + at, 900, **URING)
        for batch in range(7)
        for at in range(13)
    ]
    trace = made_trace(io, files=[{"file": 1, "size_bytes": 65536 * len(io)}])
    path = characterize.write(trace, tmp_path / "t.iotrace")
    options = ["--direct=on"] + ([f"--depth={depth}"] if depth else [])
    again = replay_recorded(tmp_path, path, *options)
    assert again.document["engine"]["in_flight_max_per_thread"] == expected
    assert 1 < in_flight_max(again.io) <= expected
    assert not violations(list(trace.io.itertuples()), again.io)


@needs_recorder
def test_file_operations_keep_their_place_among_requests(tmp_path):
    """Each of 11 fsyncs starts when the writes that had ended before it have ended, and before those that follow."""
    io, fileops = [], []
    for group in range(11):
        io += [write(PAGE * (7 * group + at), PAGE, 1000 * group + at, 500, **URING) for at in range(7)]
        fileops.append(op(Fileop.FSYNC, 1000 * group + 600))
    trace = made_trace(io, fileops=fileops, files=[{"file": 1, "size_bytes": PAGE * len(io)}])
    again = replay_recorded(tmp_path, characterize.write(trace, tmp_path / "t.iotrace"))
    syncs = [row for row in again.fileops if row.op == Fileop.FSYNC]
    assert len(syncs) == 11
    for group, sync in enumerate(syncs):
        own = [row for row in again.io if row.offset // PAGE // 7 == group]
        later = [row for row in again.io if row.offset // PAGE // 7 > group]
        assert all(row.start_ns + row.duration_ns <= sync.start_ns for row in own)
        assert all(row.start_ns >= sync.start_ns + sync.duration_ns for row in later)


def test_results_are_compared_as_those_of_calls(tmp_path):
    """A read behind the end is short, one at an odd place with O_DIRECT fails, one that failed may fail again."""
    io = [
        write(0, PAGE, 0, 1, **URING),
        read(PAGE, PAGE, 10, 1, **URING),
        read(1, 100, 20, 1, flags=IoFlag.DIRECT, **URING),
        read(1, -22, 30, 1, asked_bytes=100, flags=IoFlag.DIRECT, **URING),
        read(-1, -22, 40, 1, asked_bytes=100, **URING),
        read(0, -9, 50, 1, **URING),
    ]
    io[4]["offset"] = 2**64 - 1
    path = characterize.write(made_trace(io, files=[{"file": 1, "flags": 1}]), tmp_path / "t.iotrace")
    document = run(path, f"--directory={tmp_path / 'image'}", status=3)
    assert document["engine"]["name"] == "io_uring"
    assert document["operations"]["io"] == {"records": 6, "done": 3, "short": 1, "failed": 1, "skipped": 1}
    assert document["mismatches"] == {"short": 1, "failed": 1}
    assert document["errors"] == {"EINVAL": 1}
    assert document["skipped_reasons"] == {"caller_error": 1}


def synthetic(place, requests=1009):
    io = [read(PAGE * (at % 16), PAGE, at, 0) for at in range(requests)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": 16 * PAGE}], flags=HeaderFlag.UNTIMED)
    return characterize.write(made, place / "s.iotrace", force=True)


@pytest.mark.parametrize(
    ("options", "depth"), [(["--engine=io_uring"], 1), (["--depth=7"], 7), (["--depth=4096"], 1009)]
)
def test_synthetic_requests_are_in_flight_up_to_the_depth(tmp_path, options, depth):
    document = run(synthetic(tmp_path), f"--directory={tmp_path / 'image'}", "--direct=on", *options)
    assert document["engine"]["name"] == "io_uring"
    assert document["operations"]["done"] == 1009
    assert document["response_time"]["read"]["count"] == 1009
    assert document["engine"]["in_flight_max_per_thread"] <= depth
    if depth < 32:  # no more than what is handed over at once is sure to be in flight together
        assert document["engine"]["in_flight_max_per_thread"] == depth


def test_calls_that_block_are_counted(tmp_path):
    """32 cached reads of 4 MiB are copied by the call that hands them over: no memory copies 128 MiB in 1 ms."""
    io = [read(4 * MIB * (at % 2), 4 * MIB, at, 0) for at in range(32)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": 8 * MIB}], flags=HeaderFlag.UNTIMED)
    path = characterize.write(made, tmp_path / "s.iotrace")
    document = run(path, f"--directory={tmp_path / 'image'}", "--depth=32", "--cache=warm")
    blocked = document["engine"]["submit_blocked"]
    assert document["operations"]["done"] == 32
    assert 1 <= blocked["count"] <= document["engine"]["submits"]
    assert blocked["total_ns"] >= blocked["count"] * blocked["limit_ns"] == blocked["count"] * 1_000_000


def source_trace(place, source, thread_of=lambda at: 1):
    io = [read(PAGE * at, PAGE, 10 * at, 15, source=source, thread=thread_of(at)) for at in range(31)]
    return characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 31 * PAGE}]), place / "t.iotrace")


@pytest.mark.parametrize(
    ("source", "engine", "word"),
    [
        (Source.SYSCALL, "sync", "no requests"),
        (Source.AIO, "io_uring", "AIO"),
        (Source.IO_URING, "io_uring", "AIO or io_uring"),
        (Source.UNKNOWN, "io_uring", "overlap"),
    ],
)
def test_auto_takes_what_the_recording_asks_for(tmp_path, source, engine, word):
    document = run(source_trace(tmp_path, source), f"--directory={tmp_path / 'image'}")
    assert document["engine"]["name"] == engine
    assert word in document["engine"]["why"]


def test_auto_takes_calls_where_threads_alone_overlap(tmp_path):
    path = source_trace(tmp_path, Source.UNKNOWN, lambda at: 1 + at % 2)
    assert run(path, f"--directory={tmp_path / 'image'}")["engine"]["name"] == "sync"


@needs_strace
def test_where_the_kernel_refuses_io_uring(tmp_path):
    """As a container's seccomp filter does. auto goes on with calls and says so, the explicit choice ends."""
    path = source_trace(tmp_path, Source.IO_URING)
    refusing = ["-e", "inject=io_uring_setup:error=EPERM"]
    command = [str(ENGINE), str(path), f"--directory={tmp_path / 'image'}"]
    done = subprocess.run(
        ["strace", "-f", "-o", tmp_path / "log", *refusing, *command], capture_output=True, check=False
    )
    document = json.loads(done.stdout)
    assert document["engine"]["name"] == "sync"
    assert "refuses io_uring: Operation not permitted" in document["engine"]["why"]
    assert document["operations"]["done"] == 31
    command.append("--engine=io_uring")
    done = subprocess.run(
        ["strace", "-f", "-o", tmp_path / "log", *refusing, *command], capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"io_uring_disabled" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not (tmp_path / "image").exists()


@needs_strace
def test_requests_go_by_the_ring_and_in_batches(tmp_path):
    path = synthetic(tmp_path)
    command = [str(ENGINE), str(path), f"--directory={tmp_path / 'image'}", "--depth=16"]
    done, calls = strace(command, tmp_path / "log", "pread64,pwrite64,io_uring_enter,io_uring_register")
    assert json.loads(done.stdout)["operations"]["done"] == 1009
    names = Counter(call.name for call in calls)
    assert names["pread64"] == 0
    assert 1009 // 16 <= names["io_uring_enter"] < 1009
    assert {"IORING_REGISTER_BUFFERS", "IORING_REGISTER_FILES"} <= {call.arguments.split(", ")[1] for call in calls}


def test_passes_of_a_loop_begin_with_the_same_files(tmp_path):
    """Files are opened anew in each pass: a ring that still had the old ones registered would write to those."""
    io = [write(PAGE * at, PAGE, 100 + 10 * at, 50, **URING) for at in range(17)]
    io += [read(PAGE * at, PAGE, 1000 + 10 * at, 50, file=2, **URING) for at in range(17)]
    fileops = [op(Fileop.UNLINK, 2000)]
    files = [{"file": 1, "size_bytes": PAGE}, {"file": 2, "size_bytes": 17 * PAGE}]
    path = characterize.write(made_trace(io, fileops=fileops, files=files), tmp_path / "t.iotrace")
    document = run(path, f"--directory={tmp_path / 'image'}", "--loop", "--max-seconds=0.5")
    assert document["passes"] > 2
    assert not document["mismatches"]
    assert conserved(document["operations"])


def endless(place, directory, make=write):
    io = [make(PAGE * at, PAGE, at, 0) for at in range(509)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": 509 * PAGE}], flags=HeaderFlag.UNTIMED)
    path = characterize.write(made, place / "endless.iotrace")
    command = [ENGINE, path, f"--directory={directory}", "--depth=8", "--loop", "--interval-ms=50"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rest_of_document(process) -> dict:
    """The lines behind the interval lines, up to the end of the document: the process may hang behind it."""
    lines = []
    for line in process.stdout:
        if lines or line == "{\n":
            lines.append(line)
        if lines and line == "}\n":
            break
    return json.loads("".join(lines))


def let_go(place: Path) -> None:
    """Wait until the kernel has taken a ring apart, which holds its files for a moment after its process has ended."""
    for _ in range(200):
        if subprocess.run(["mount", "-o", "remount,ro", place], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.05)


def test_an_interrupt_waits_for_what_is_in_flight(tmp_path):
    process = endless(tmp_path, tmp_path / "image", read)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    document = rest_of_document(process)
    assert process.wait(timeout=60) == 0
    assert document["stopped"] == "signal"
    assert conserved(document["operations"])
    assert document["operations"]["failed"] == 0
    assert document["requests"]["read"] == document["operations"]["done"]
    assert not (tmp_path / "image").exists()


def test_an_interrupt_of_a_replay_whose_storage_hangs(tmp_path):
    """A frozen file system gives no write back: what was in flight is failed with ETIMEDOUT, and the result comes."""
    with loop_file_system("ext4", tmp_path) as system:
        process = endless(tmp_path, system.place / "image")
        try:
            process.stdout.readline()
            subprocess.run(["fsfreeze", "--freeze", system.place], check=True)
            try:
                process.send_signal(signal.SIGINT)
                document = rest_of_document(process)
            finally:
                subprocess.run(["fsfreeze", "--unfreeze", system.place], check=True)
            assert process.wait(timeout=60) in (0, 3)
        finally:
            process.kill()
            process.wait()
            let_go(system.place)
    assert document["stopped"] == "signal"
    assert conserved(document["operations"])
    assert 0 < document["operations"]["failed"] <= 8
    assert document["errors"] == {"ETIMEDOUT": document["operations"]["failed"]}


def test_several_threads_of_calls_and_rings_do_not_wait_for_ever(tmp_path):
    """499 operations of 3 threads with syncs in between, each of which others wait for."""
    io = overlapping(3, 3, 149)
    fileops = [op(Fileop.FDATASYNC, 15 * at, thread=1 + at % 3) for at in range(52)]
    trace = made_trace(io, fileops=fileops, files=[{"file": 1, "size_bytes": PAGE * len(io)}])
    path = characterize.write(trace, tmp_path / "t.iotrace")
    for options in (["--direct=on"], ["--direct=off"], ["--depth=1"], ["--depth=2", "--timing=think"]):
        done = subprocess.run(
            [ENGINE, path, f"--directory={tmp_path / 'image'}", *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert json.loads(done.stdout)["operations"]["done"] == 499
