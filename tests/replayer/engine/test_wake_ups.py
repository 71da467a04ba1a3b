# SPDX-License-Identifier: Apache-2.0
"""What a thread was woken after precedes what it does then, and nothing of its sleep is its own time to think."""

import json
import subprocess
import tempfile
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import characterize
from characterize.layout import PROCESSOR_SHARE_ALL, PROCESSOR_SHARE_NONE, RECORD_DTYPE, IoFlag, RecordKind, Source
from tests.traces.appended_records import append_records
from tests.traces.made_trace import made_trace, read, records
from tests.truths.schedule_walk import KEPT, add_own, check_pass, ended_before, needs_walk, walk
from tests.truths.straced import ENGINE, needs_engine, needs_strace, strace

MS = 1_000_000
PAGE = 4096


def woken(row, cause, slept_ns=0, woken_ns=None):
    """A WAKE record for a row of an IO record."""
    wake = np.zeros(1, RECORD_DTYPE[RecordKind.WAKE])
    wake["kind"], wake["wakes"], wake["waker"] = RecordKind.WAKE, 1, 99
    for name in ("start_ns", "duration_ns", "thread", "process", "id"):
        wake[name] = row.get(name, 1)
    wake["cause"], wake["slept_ns"] = cause, slept_ns
    wake["woken_ns"] = row["start_ns"] if woken_ns is None else woken_ns
    return wake


def write_trace(path, rows, wakes):
    """A trace of reads of one file, in the order given, with WAKE records before those of which `wakes` has one."""
    size = max(row["offset"] + PAGE for row in rows)
    characterize.write(made_trace(files=[{"file": 1, "size_bytes": size}]), path, force=True)
    pieces = []
    for row in rows:
        pieces += [wakes[row["id"]]] if row["id"] in wakes else []
        pieces.append(records(RecordKind.IO, [row]))
    append_records(path, pieces)
    return path


class Case(NamedTuple):
    """What a trace is made of, and how it is walked."""

    seed: int
    operations: int
    threads: int
    spread: int  # of the starts
    longest: int  # duration
    wakes: float  # share of the operations with one
    damaged: float  # share of these that name anything
    passes: int
    depth: int


CASES = st.builds(
    Case,
    seed=st.integers(0, 2**31 - 1),
    operations=st.one_of(st.integers(1, KEPT // 2), st.integers(KEPT, 600)),
    threads=st.integers(2, 10),
    spread=st.sampled_from([30, 1000, 10**6]),
    longest=st.sampled_from([0, 3, 30, 300]),
    wakes=st.sampled_from([0.1, 0.6, 1.0]),
    damaged=st.sampled_from([0.0, 0.2]),
    passes=st.integers(1, 3),
    depth=st.integers(1, 8),
)


@needs_walk
@settings(max_examples=80)
@given(CASES)
def test_operations_may_start_when_what_woke_their_threads_has_completed_and_no_later(case):
    """Reads have no other order. Traces of more than `KEPT` records are planned in pieces."""
    random = np.random.default_rng(case.seed)
    starts = np.sort(random.integers(1, case.spread + 1, case.operations))
    rows = [
        read(0, PAGE, int(start), int(random.integers(0, case.longest + 1)), thread=int(thread), id=number)
        for number, (start, thread) in enumerate(
            zip(starts, random.integers(1, case.threads + 1, case.operations), strict=True), start=1
        )
    ]
    times = records(RecordKind.IO, rows)
    interval = ended_before(times)
    order = np.zeros_like(interval)
    wakes = {}
    for number, row in enumerate(rows):
        if random.random() >= case.wakes:
            continue
        before = np.flatnonzero(interval[:, number] & (times["thread"] != row["thread"]))
        if random.random() < case.damaged:
            # What had not ended, of the thread itself, or not in the trace: nothing is to be waited for.
            others = np.setdiff1d(np.arange(len(rows) + 7), np.flatnonzero(interval[:, number]))
            wakes[row["id"]] = woken(row, int(random.choice(others)) + 1)
        elif len(before):
            cause = int(random.choice(before))
            order[cause, number] = True
            wakes[row["id"]] = woken(row, cause + 1)
    add_own(order, times, interval)
    with tempfile.TemporaryDirectory() as directory:
        trace = write_trace(Path(directory) / "t.iotrace", rows, wakes)
        events = walk(trace, "resource", case.passes, case.depth, case.seed)
    events = [(what, number - 1, at) for what, number, at in events]
    seen = {at: list(group) for at, group in groupby(events, key=lambda event: event[2])}
    assert sorted(seen) == list(range(case.passes))
    for part in seen.values():
        check_pass(times, part, order)


def replay(trace, *options):
    done = subprocess.run([ENGINE, trace, *options], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LONG_NS, THINK_NS = 300 * MS, 1 * MS
ROUNDS = 3


def handed_over(path, *, wakes=True):
    """Two threads in turn: one reads for 300 ms, the other, which has slept meanwhile, computes for 1 ms and reads."""
    rows, found = [], {}
    for number in range(2 * ROUNDS):
        start = 1000 + number * (LONG_NS + THINK_NS)
        row = read(PAGE * (number % 2), PAGE, start, LONG_NS, thread=1 + number % 2, id=number + 1)
        if wakes and number:
            # Of the time since the thread's read before it computed for the last 1 ms.
            share = (PROCESSOR_SHARE_ALL - PROCESSOR_SHARE_NONE) * THINK_NS // (LONG_NS + 2 * THINK_NS)
            row["processor_share"] = PROCESSOR_SHARE_NONE + share
            found[row["id"]] = woken(row, number, LONG_NS + THINK_NS, start - THINK_NS)
        rows.append(row)
    return write_trace(path / f"{wakes}.iotrace", rows, found)


@needs_engine
@pytest.mark.parametrize("engine", ["sync", "io_uring", "null"])
def test_a_thread_does_not_think_what_it_slept_for_another_one(tmp_path, engine):
    """The 300 ms of each read are not there in the replay; what is left are five times 1 ms of thinking.

    Whoever does not know of the other thread has the read of that one in its own think time.
    """
    thinking = (2 * ROUNDS - 1) * THINK_NS / 1e9
    others = (ROUNDS - 1) * (LONG_NS + 2 * THINK_NS) / 1e9
    options = ["--timing=think", f"--engine={engine}"]
    options += [] if engine == "null" else [f"--directory={tmp_path / 'image'}"]
    document = replay(handed_over(tmp_path), *options)
    assert document["operations"]["done"] == 2 * ROUNDS
    assert thinking <= document["elapsed_s"] < others
    assert replay(handed_over(tmp_path), *options, "--order=thread")["elapsed_s"] >= others
    assert replay(handed_over(tmp_path, wakes=False), *options)["elapsed_s"] >= others


@needs_engine
@needs_strace
@pytest.mark.parametrize("engine", ["sync", "io_uring"])
def test_who_is_going_to_be_woken_computes_in_bursts_as_otherwise(tmp_path, engine):
    """A tenth of 400 ms, 4 ms at a time, before what another thread reads at the end of them: it sleeps in between."""
    start = 1000 + 450 * MS
    share = PROCESSOR_SHARE_NONE + (PROCESSOR_SHARE_ALL - PROCESSOR_SHARE_NONE) // 10
    rows = [
        read(0, PAGE, 1000, 1000, thread=1, id=1),
        read(PAGE, PAGE, start - 50 * MS, 1000, thread=2, id=2),
        read(2 * PAGE, PAGE, start, 1000, thread=1, id=3, processor_share=share),
    ]
    path = write_trace(tmp_path / "t.iotrace", rows, {3: woken(rows[2], 2, slept_ns=50 * MS)})
    options = [f"--directory={tmp_path / 'image'}", "--timing=think", "--think-burst-us=4000", f"--engine={engine}"]
    data = "pread64" if engine == "sync" else "io_uring_enter"
    done, calls = strace(
        [str(ENGINE), str(path), *options, "--cache=warm"], tmp_path / "log", f"{data},clock_nanosleep"
    )
    assert json.loads(done.stdout)["operations"]["done"] == len(rows)
    first = next(call for call in calls if call.name == data)
    other = next(call for call in calls if call.name == data and call.thread != first.thread)
    between = [call for call in calls if call.thread == first.thread and first.began < call.began < other.began]
    assert [call.name for call in between].count("clock_nanosleep") > 1


@needs_engine
def test_speed_scales_the_time_after_a_wake_up(tmp_path):
    document = replay(handed_over(tmp_path), "--timing=think", "--engine=null", "--speed=0.1")
    assert document["elapsed_s"] >= (2 * ROUNDS - 1) * 10 * THINK_NS / 1e9


@needs_engine
@pytest.mark.parametrize("order", ["resource", "recorded"])
def test_who_is_woken_waits_for_what_comes_later_here(tmp_path, order):
    """The first thread thinks for 600 ms instead of 300; the other one, which itself thinks for 16, follows it."""
    rows = [
        read(0, PAGE, 1000, 1000, thread=1, id=1),
        read(0, PAGE, 1000 + 300 * MS, 1000, thread=1, id=2),
        read(PAGE, PAGE, 1000, 1000, thread=2, id=3),
        read(PAGE, PAGE, 1000 + 307 * MS, 1000, thread=2, id=4),
    ]
    wakes = {4: woken(rows[3], 2, 299 * MS, 1000 + 301 * MS)}
    path = write_trace(tmp_path / "t.iotrace", rows, wakes)
    document = replay(path, "--timing=think", "--engine=null", f"--order={order}", "--speed=0.5")
    assert document["elapsed_s"] >= 2 * 0.306


@needs_engine
def test_a_new_thread_starts_after_its_maker_and_not_at_a_time(tmp_path):
    """Made after a call that took 500 ms: where that takes nothing, the thread begins at once."""
    rows = [
        read(0, PAGE, 1000, 500 * MS, thread=1, id=1),
        read(PAGE, PAGE, 1000 + 503 * MS, 1000, thread=2, id=2),
    ]
    path = write_trace(tmp_path / "t.iotrace", rows, {2: woken(rows[1], 1, 0, 1000 + 502 * MS)})
    assert 0.003 <= replay(path, "--timing=think", "--engine=null")["elapsed_s"] < 0.5
    assert replay(path, "--timing=think", "--engine=null", "--order=thread")["elapsed_s"] >= 0.5
    assert replay(path, "--timing=recorded", "--engine=null")["elapsed_s"] >= 0.5


COMPUTED_NS = 1000 * MS


def computing_with_a_request_in_flight(path, **request):
    """A thread makes a request by io_uring, computes for a second, and is woken after a read of another one.

    That one reads in the middle of this second. The request ends behind all that when recorded.
    """
    begin, woken_at = 3000, 2000 + COMPUTED_NS
    rows = [
        read(0, PAGE, 1000, 1000, thread=1, id=1, source=Source.IO_URING),
        read(PAGE, PAGE, begin, 2 * COMPUTED_NS, thread=1, id=2, source=Source.IO_URING, **request),
        read(2 * PAGE, PAGE, 1000 + COMPUTED_NS // 2, 1000, thread=2, id=3),
        read(3 * PAGE, PAGE, woken_at + 2000, 1000, thread=1, id=4, processor_share=PROCESSOR_SHARE_ALL),
    ]
    return write_trace(path / "t.iotrace", rows, {4: woken(rows[3], 3, 0, woken_at)})


@needs_engine
@needs_strace
def test_what_is_prepared_is_under_way_while_a_thread_computes(tmp_path):
    """The second request is handed over before the other thread reads, which it does half a second later."""
    path = computing_with_a_request_in_flight(tmp_path)
    command = [str(ENGINE), str(path), f"--directory={tmp_path / 'image'}", "--timing=think", "--cache=warm"]
    done, calls = strace(command, tmp_path / "log", "pread64,io_uring_enter")
    document = json.loads(done.stdout)
    assert document["engine"]["name"] == "io_uring"
    assert document["operations"]["done"] == 4
    assert document["elapsed_s"] >= COMPUTED_NS / 1e9
    other = next(at for at, call in enumerate(calls) if call.name == "pread64" and call.numbers == [PAGE, 2 * PAGE])
    handed_over = [int(call.arguments.split(", ")[1]) for call in calls[:other] if call.name == "io_uring_enter"]
    assert sum(handed_over) == 2


@needs_engine
def test_what_comes_back_is_taken_in_while_a_thread_computes(tmp_path):
    """Else its response time would be a second."""
    path = computing_with_a_request_in_flight(tmp_path, flags=int(IoFlag.DIRECT))
    document = replay(path, f"--directory={tmp_path / 'image'}", "--timing=think")
    assert document["engine"]["name"] == "io_uring"
    assert document["elapsed_s"] >= COMPUTED_NS / 1e9
    assert document["response_time"]["read"]["max_ns"] < COMPUTED_NS
