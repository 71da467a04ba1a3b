# SPDX-License-Identifier: Apache-2.0
"""Which requests of the io_uring engine are in flight together, told by a recording of the replay."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import characterize
from characterize.layout import Fileop, IoFlag, IoOp, Source
from characterize.requests import left_out
from tests.runs.running_replay import conserved
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, needs_engine, op
from tests.truths.told import PROGRAMS, record, run_recorder

pytestmark = [needs_engine, pytest.mark.records, pytest.mark.parallel]

PAGE = 4096
needs_programs = pytest.mark.skipif(
    not (PROGRAMS / "io_uring").exists(), reason="test programs are not built (make build/test-programs)"
)
SMALL = PROGRAMS / "replay_small_segments"  # 64 operations in memory at once
needs_small = pytest.mark.skipif(not SMALL.exists(), reason=f"{SMALL} is not built (make build/test-programs)")
URING = {"source": Source.IO_URING}


@dataclass
class Replayed:
    """A replay of a trace, and the recording of that replay; file numbers are those of the original."""

    document: dict
    io: list
    fileops: list


def replay_recorded(directory: Path, path: Path, *options: str, statuses=(0,), engine=ENGINE) -> Replayed:
    image, again = directory / "image", directory / "again.iotrace"
    prepare = [engine, path, f"--directory={image}", "--phase=prepare", "--keep-image"]
    subprocess.run(prepare, check=True, capture_output=True, timeout=120)
    done = run_recorder(again, engine, path, f"--directory={image}", "--phase=run", "--keep-image", *options)
    assert done.returncode in statuses, done.stderr
    trace = characterize.open(again)
    assert not trace.header.lost
    numbers = {
        file: int(Path(name).name[1:])
        for file, name in trace.paths.items()
        if Path(name).parent == image and Path(name).name.startswith("f")
    }

    def numbered(rows):
        return [row._replace(file=numbers[row.file]) for row in rows.itertuples() if row.file in numbers]

    # The engine maps its trace and its image, and its main thread may write again what is to be cached in large folios:
    # requests are what it does beside that.
    workers = trace.io[(trace.io["source"] != Source.MMAP) & (trace.io["thread"] != trace.io["process"])]
    return Replayed(json.loads(done.stdout), numbered(workers), numbered(trace.fileops))


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


@needs_programs
@pytest.mark.parametrize("program", ["aio", "io_uring"])
def test_a_recorded_program_comes_again(tmp_path, program):
    """Every request that the program made by AIO or io_uring comes by io_uring, what it did by calls by calls."""
    original = record(tmp_path / "program", program).trace
    again = replay_recorded(tmp_path, tmp_path / "program.iotrace", "--order=recorded", statuses=(0, 3))
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


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("timing", ["asap", "think", "recorded"])
@pytest.mark.parametrize("direct", ["off", "on"])
def test_what_did_not_overlap_does_not(tmp_path, threads, timing, direct):
    """Over all pairs of 211 requests: buffered ones end inside of the call that submits them, direct ones do not."""
    io = overlapping(threads, threads, 211 // threads)
    trace = made_trace(io, files=[{"file": 1, "size_bytes": PAGE * len(io)}])
    path = characterize.write(trace, tmp_path / "t.iotrace")
    options = [f"--timing={timing}", f"--direct={direct}", "--order=recorded"]
    again = replay_recorded(tmp_path, path, *options, statuses=(0, 3))
    assert again.document["operations"]["done"] == len(io) == len(again.io)
    assert {row.source for row in again.io} == {Source.IO_URING}
    assert {bool(row.flags & IoFlag.DIRECT) for row in again.io} == {direct == "on"}
    originals = list(trace.io.itertuples())
    assert in_flight_max(originals) > 3
    assert not violations(originals, again.io)
    assert in_flight_max(again.io) <= in_flight_max(originals)


@needs_small
@pytest.mark.parametrize("timing", ["asap", "think", "recorded"])
@pytest.mark.parametrize("order", ["recorded", "thread"])
def test_what_did_not_overlap_does_not_over_segments(tmp_path, timing, order):
    """Requests are in flight while their thread waits for the memory that they take."""
    io = overlapping(11, 3, 97)
    trace = made_trace(io, files=[{"file": 1, "size_bytes": PAGE * len(io)}])
    path = characterize.write(trace, tmp_path / "t.iotrace")
    options = [f"--timing={timing}", f"--order={order}", "--direct=on"]
    again = replay_recorded(tmp_path, path, *options, statuses=(0, 3), engine=SMALL)
    assert again.document["operations"]["done"] == len(io) == len(again.io)
    assert again.document["engine"]["name"] == "io_uring"
    groups = [trace.io] if order == "recorded" else [own for _, own in trace.io.groupby("thread")]
    for rows in groups:
        assert not violations(list(rows.itertuples()), again.io)


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
