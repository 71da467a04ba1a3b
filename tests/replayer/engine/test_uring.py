# SPDX-License-Identifier: Apache-2.0
"""The io_uring engine: its choice, depth, results, memory and end; what overlaps is in test_overlap.py."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter

import pytest

import characterize
from characterize.layout import Fileop, HeaderFlag, IoFlag, Source
from tests.machines.hung_storage import frozen, let_go, rest_of_document
from tests.machines.loop_file_system import loop_file_system
from tests.runs.running_replay import conserved, looped, own_process
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, needs_engine, needs_strace, op, strace

pytestmark = needs_engine

PAGE = 4096
MIB = 1 << 20
URING = {"source": Source.IO_URING}


def run(*arguments, status=0):
    done = subprocess.run([ENGINE, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


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
def test_requests_that_the_kernel_refuses_end_the_run_by_a_reason_of_their_own(tmp_path):
    refusing = ["-e", "trace=io_uring_enter", "-e", "inject=io_uring_enter:error=EINVAL:when=20+"]
    command = [ENGINE, synthetic(tmp_path), f"--directory={tmp_path / 'image'}", "--engine=io_uring"]
    done = subprocess.run(
        ["strace", "-f", "-o", tmp_path / "log", *refusing, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert document["stopped"] == "error"
    assert 0 < document["operations"]["done"] < 1009
    assert conserved(document["operations"])
    assert any("io_uring refused requests (Invalid argument)" in reason for reason in document["reasons"])
    assert not any("image" in reason for reason in document["reasons"])
    assert "io_uring refused 1 requests: Invalid argument" in done.stderr


@needs_strace
def test_requests_that_the_kernel_has_not_taken_before_a_stop_are_left_undone(tmp_path):
    """As it has no memory for more."""
    refusing = ["-e", "trace=io_uring_enter", "-e", "inject=io_uring_enter:error=EAGAIN:when=20+"]
    command = [ENGINE, synthetic(tmp_path), f"--directory={tmp_path / 'image'}", "--engine=io_uring"]
    done = subprocess.run(
        ["strace", "-f", "-o", tmp_path / "log", *refusing, *command, "--max-seconds=0.5"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    operations = document["operations"]
    assert document["stopped"] == "max-time"
    assert conserved(operations)
    assert 0 < operations["done"] < 1009
    assert (operations["failed"], document["errors"]) == (0, {})
    assert document["skipped_reasons"] == {"stopped": 1009 - operations["done"]}
    assert document["requests"]["read"] + document["requests"]["write"] == operations["done"]
    assert 0 < document["time_in_io_s"] <= document["elapsed_s"]


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
    document = looped([ENGINE, path, f"--directory={tmp_path / 'image'}"], requests=3 * len(io))
    assert document["passes"] > 2
    assert not document["mismatches"]
    assert conserved(document["operations"])


def endless(place, directory, make=write):
    io = [make(PAGE * at, PAGE, at, 0) for at in range(509)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": 509 * PAGE}], flags=HeaderFlag.UNTIMED)
    path = characterize.write(made, place / "endless.iotrace")
    command = [ENGINE, path, f"--directory={directory}", "--depth=8", "--loop", "--interval-ms=50"]
    return own_process(command)


def test_an_interrupt_waits_for_what_is_in_flight(tmp_path):
    with endless(tmp_path, tmp_path / "image", read) as process:
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
        try:
            with endless(tmp_path, system.place / "image") as process:
                process.stdout.readline()
                with frozen(system.place):
                    process.send_signal(signal.SIGINT)
                    document = rest_of_document(process)
                assert process.wait(timeout=60) in (0, 3)
        finally:
            let_go(system.place)
    assert document["stopped"] == "signal"
    assert conserved(document["operations"])
    assert 0 < document["operations"]["failed"] <= 8
    assert document["errors"] == {"ETIMEDOUT": document["operations"]["failed"]}
