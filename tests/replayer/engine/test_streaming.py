# SPDX-License-Identifier: Apache-2.0
"""Replays of traces that do not fit into the engine's memory at once: by many small segments, and of real size."""

import json
import os
import signal
import subprocess

import numpy as np
import pytest

import characterize
from characterize.layout import (
    RECORD_DTYPE,
    TRACE_HEADER_BYTES,
    TRACE_RECORD_BYTES,
    FileFlag,
    Fileop,
    HeaderFlag,
    IoFlag,
    RecordKind,
    Source,
)
from tests.bench.engine_memory import measure_memory
from tests.bench.large_trace import REQUEST_BYTES, make_large_trace
from tests.runs.running_replay import lines_and_document, looped, own_process, wait_for_calls
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import DATA, ENGINE, needs_engine, needs_strace, strace
from tests.truths.told import PROGRAMS

SMALL = PROGRAMS / "replay_small_segments"  # 64 operations in memory at once
needs_small = pytest.mark.skipif(not SMALL.exists(), reason=f"{SMALL} is not built (make build/test-programs)")
pytest_plugins = ["tests.machines.small_file_system"]


def run(engine, trace, place, *options):
    command = [engine, trace, f"--directory={place / 'image'}", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def overlapping(random, threads, each):
    """Reads at places of their own by threads that overlap at random, some of no duration, many at equal times."""
    io = []
    for thread in range(1, threads + 1):
        clock = int(random.integers(0, 20))
        for _ in range(each):
            duration = int(random.integers(0, 6)) * 5
            io.append(read(512 * len(io), 512, clock, duration, thread=thread))
            clock += duration + int(random.integers(0, 4)) * 5
    return io


@needs_small
@needs_strace
def test_interval_order_holds_over_segments(tmp_path):
    io = overlapping(np.random.default_rng(1), 5, 80)
    trace = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 512 * len(io)}]), tmp_path / "t.iotrace")
    command = [str(SMALL), str(trace), f"--directory={tmp_path / 'image'}", "--cache=keep", "--keep-image"]
    command.append("--order=recorded")
    subprocess.run([*command, "--phase=prepare"], check=True, capture_output=True)
    done, calls = strace([*command, "--phase=run"], tmp_path / "log", DATA)
    assert json.loads(done.stdout)["operations"]["done"] == len(io)
    by_row = {call.numbers[1] // 512: call for call in calls if call.name == "pread64" and call.file == "f00000001"}
    assert sorted(by_row) == list(range(len(io)))
    start = np.array([row["start_ns"] for row in io])
    end = start + np.array([row["duration_ns"] for row in io])
    began = np.array([by_row[row].began for row in range(len(io))])
    ended = np.array([by_row[row].ended for row in range(len(io))])
    before = end[:, None] < start[None, :]
    assert before.sum() > 10_000
    assert not (before & (ended[:, None] > began[None, :])).any()


@needs_small
@pytest.mark.parametrize("engine", ["sync", "io_uring"])
@pytest.mark.parametrize("timing", ["asap", "think", "recorded"])
def test_every_timing_does_every_operation(tmp_path, timing, engine):
    io = overlapping(np.random.default_rng(2), 3, 100)
    trace = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 512 * len(io)}]), tmp_path / "t.iotrace")
    command = [SMALL, trace, f"--directory={tmp_path / 'image'}", f"--timing={timing}", f"--engine={engine}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    document = json.loads(done.stdout)
    assert document["operations"]["done"] == document["operations"]["records"] == len(io)
    assert document["passes"] == 1
    assert document["stopped"] == "end"


@needs_small
@pytest.mark.parametrize("order", ["resource", "recorded", "thread"])
def test_requests_in_flight_over_segments_do_not_hold_up_the_next_ones(tmp_path, order):
    """A thread with few requests, all in flight at once when recorded, beside one with many; segments of both."""
    io = [read(512 * at, 512, 10 * at, 10**6, thread=2 if at % 7 else 1, source=Source.AIO) for at in range(1009)]
    trace = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 512 * len(io)}]), tmp_path / "t.iotrace")
    document = run(SMALL, trace, tmp_path, f"--order={order}", "--direct=on", "--depth=64")
    assert document["engine"]["name"] == "io_uring"
    assert document["operations"]["done"] == len(io)
    command = [SMALL, trace, f"--directory={tmp_path / 'image'}", f"--order={order}", "--depth=64"]
    document = looped(command, requests=2 * len(io))
    assert document["passes"] > 1
    assert document["operations"]["done"] + document["operations"]["skipped"] == document["operations"]["records"]


@needs_small
@pytest.mark.parametrize("flags", [HeaderFlag.UNTIMED, HeaderFlag(0)])
def test_stopped_in_the_middle_of_a_loop_every_record_is_accounted_for(tmp_path, flags):
    """Threads of one pass each at its own pace (untimed), or passes that begin together."""
    io = [read(512 * (at % 16), 512, 10 * at, 15, thread=1 + at % 3) for at in range(999)]
    trace = characterize.write(
        made_trace(io, files=[{"file": 1, "size_bytes": 8192}], flags=flags), tmp_path / "t.iotrace"
    )
    document = looped([SMALL, trace, f"--directory={tmp_path / 'image'}"], requests=3 * len(io))
    operations = document["operations"]
    assert operations["done"] > 2 * len(io)
    assert operations["records"] == operations["done"] + operations["skipped"]
    assert operations["skipped"] == document["skipped_reasons"].get("stopped", 0)
    assert operations["records"] % (len(io) // 3) == 0
    assert document["requests"]["read"] == operations["done"]


@needs_small
def test_every_pass_over_segments_begins_from_the_same_files(tmp_path):
    """A created file, gone at the start of each pass, and another that grows in each; with reads in between."""
    fileops = [
        {"op": Fileop.OPEN, "start_ns": 1, "duration_ns": 1, "file": 1, "flags": IoFlag.CREATED},
        {"op": Fileop.TRUNCATE, "start_ns": 5000, "duration_ns": 1, "file": 2, "argument": 100},
    ]
    # Without the undoing, the second pass would read 1000 bytes where 500 are recorded.
    io = [read(0, 500, 5, file=2, asked_bytes=4096), write(0, 1000, 10, file=1), write(500, 500, 4000, file=2)]
    io += [read(0, 100, 20 + 10 * at, 15, file=2, thread=1 + at % 3) for at in range(300)]
    files = [{"file": 1, "flags": FileFlag.CREATED}, {"file": 2, "size_bytes": 500}]
    trace = characterize.write(made_trace(io, fileops=fileops, files=files), tmp_path / "t.iotrace")
    document = looped([SMALL, trace, f"--directory={tmp_path / 'image'}"], requests=3 * len(io))
    assert document["passes"] > 2
    assert document["mismatches"] == {}
    assert document["operations"]["failed"] == 0


@needs_small
def test_a_pass_over_segments_that_cannot_be_undone_ends_the_loop(tmp_path, small_file_system):
    """The first file gives its room to the second one, which it would need again before that one is shortened."""
    size = 3 << 20
    fileops = [{"op": Fileop.TRUNCATE, "start_ns": 1, "duration_ns": 1, "file": 1}]
    io = [read(0, 100, 20 + 10 * at, 15, file=2, thread=1 + at % 3) for at in range(300)]
    files = [{"file": 1, "size_bytes": size}, {"file": 2, "size_bytes": 100}]
    made = made_trace([write(0, size, 5, file=2), *io], fileops=fileops, files=files)
    trace = characterize.write(made, tmp_path / "t.iotrace")
    command = [SMALL, trace, f"--directory={small_file_system}", "--loop", "--max-seconds=30", "--force-space"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 3
    assert "cannot lay out" in done.stderr
    document = json.loads(done.stdout)
    assert (document["stopped"], document["passes"]) == ("error", 1)
    assert document["requests"]["read"] == len(io)
    assert "put back" in document["reasons"][0]


@needs_small
@needs_strace
@pytest.mark.parametrize("scan", ["end", "places"])
def test_an_interrupt_ends_every_scan_of_a_trace(tmp_path, scan):
    """One looks for the end of a trace that was not closed, one for places of files. Every four records are given back:
    strace makes that slow and tells how often it was done."""
    blocks = 500
    io = [read(0, 512, at, 1) for at in range(4 * blocks)]
    trace = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 512}]), tmp_path / "t.iotrace")
    if scan == "end":
        data = bytearray(trace.read_bytes())
        data[20] |= HeaderFlag.INCOMPLETE
        trace.write_bytes(data)
    begin = blocks + 50 if scan == "places" else 50  # the survey of the whole trace comes before the places
    log = tmp_path / "log"
    slow = ["-e", "trace=madvise", "-e", f"inject=madvise:delay_enter=20000:when={begin}+"]
    command = ["strace", "-f", "-o", log, *slow, SMALL, trace, f"--directory={tmp_path / 'image'}"]
    if scan == "places":
        command.append("--layout=recorded")
    with own_process(command) as process:
        wait_for_calls(log, "madvise", begin)
        os.kill(int(log.read_text().split()[0]), signal.SIGINT)
        complaint = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert complaint == f"flextrace-replay: interrupted while reading {trace}: nothing was replayed\n"
    assert log.read_text().count("MADV_DONTNEED") < begin + blocks / 2
    assert not (tmp_path / "image").exists()


REQUESTS = 4_500_007  # more than the engine has in memory at once
LIMIT_BYTES = 128 << 20  # less than half of the records alone


@pytest.fixture(scope="module")
def large_trace(tmp_path_factory):
    path = make_large_trace(tmp_path_factory.mktemp("large") / "t.iotrace", REQUESTS, 2)
    assert path.stat().st_size > 2 * LIMIT_BYTES
    yield path
    path.unlink()


@needs_engine
@pytest.mark.parametrize("options", [["--order=thread"], ["--order=resource"], ["--order=recorded", "--max-seconds=2"]])
def test_a_trace_of_many_records_takes_little_memory(tmp_path, large_trace, options):
    measured = measure_memory([ENGINE, large_trace, f"--directory={tmp_path / 'image'}", *options])
    document = measured.document
    assert measured.samples > 10
    assert measured.resident_bytes_max < LIMIT_BYTES
    operations = document["operations"]
    assert operations["records"] == REQUESTS == operations["done"] + operations["skipped"]
    assert document["bytes"]["read"] == REQUEST_BYTES * operations["done"]
    if document["stopped"] == "end":
        assert operations["done"] == REQUESTS
    else:
        assert operations["skipped"] == document["skipped_reasons"]["stopped"]


@needs_small
@pytest.mark.parametrize("order", ["resource", "recorded", "thread"])
def test_threads_that_appear_while_the_trace_is_replayed_are_left_out(tmp_path, order):
    """Somebody writes to the file: a record may then be of a thread that was not there when they were counted."""
    count, gap_ns = 1000, 2_000_000
    io = [read(0, 512, 1000 + gap_ns * at, 1000, thread=1 + at % 2) for at in range(count)]
    trace = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 512}]), tmp_path / "t.iotrace")
    command = [SMALL, trace, f"--directory={tmp_path / 'image'}", "--timing=recorded", f"--order={order}"]
    command += ["--interval-ms=200"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()  # it has begun
        records = np.memmap(trace, np.uint8, "r+", TRACE_HEADER_BYTES).reshape(-1, TRACE_RECORD_BYTES)
        late = records[records[:, 0] == RecordKind.IO][-200:].copy().view(RECORD_DTYPE[RecordKind.IO]).reshape(-1)
        late["thread"][::2] = 999
        records[np.flatnonzero(records[:, 0] == RecordKind.IO)[-200:]] = late.view(np.uint8).reshape(200, -1)
        records.flush()
        told, complaint = process.communicate(timeout=60)
    assert process.returncode in (0, 3), complaint
    document = lines_and_document(told)[1]
    assert document["operations"]["records"] == count
    assert document["operations"]["done"] == count - 100
