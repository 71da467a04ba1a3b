# SPDX-License-Identifier: Apache-2.0
"""Who woke a thread before a call: programs hand over a known number of times, in ways that are known."""

import os
import sys
from bisect import bisect_left
from collections import defaultdict

import numpy as np
import pytest

import characterize
from characterize.layout import Fileop, RecordKind
from tests.truths.told import run_recorder

ROUNDS, FEW_ROUNDS = 101, 23
# Numbers of the calls in which who is to be woken waits: read, wait4 and clock_nanosleep.
NUMBERS = {"x86_64": (0, 61, 230), "aarch64": (63, 260, 115)}.get(os.uname().machine)
MS = 1_000_000

pytestmark = [
    pytest.mark.records,
    pytest.mark.skipif(NUMBERS is None, reason="the numbers of this processor's system calls are not known here"),
]

# What each program begins with. Who has been seen asleep is woken for certain by what comes then.
WAITING = """
import mmap, os, select, sys, threading, time
READ, WAIT, CLOCK = {numbers}
def wait_for(task, call):
    while open(f"/proc/{{task}}/syscall").read().split()[0] != str(call):
        pass
def made(work):
    process = os.fork()
    if not process:
        work()
        os._exit(0)
    return process
def create(path):
    return os.open(path, os.O_WRONLY | os.O_CREAT)
there, back = os.pipe(), os.pipe()
"""

# Two threads write in turn, each when the other one sleeps and so does not wait for the interpreter's lock, which would
# be handed over by a wake-up, too. Then it sleeps for longer, and wakes the other one.
IN_TURN = """
first, second = map(create, sys.argv[1:3])
def write(file, size, number, task, pipe):
    wait_for(task, READ)
    os.pwrite(file, b"x" * size, number * size)
    time.sleep(0.003)
    os.write(pipe[1], b"x")
def other():
    for number in range({rounds}):
        os.read(there[0], 1)
        write(second, 89, number, os.getpid(), back)
thread = threading.Thread(target=other)
thread.start()
for number in range({rounds}):
    write(first, 97, number, thread.native_id, there)
    os.read(back[0], 1)
thread.join()
"""

# A third process, which makes no recorded call, takes the word from one to the other and back. Threads would hand over
# the interpreter's lock as well, and with it the word.
THROUGH_A_THIRD = """
asked, answered = os.pipe(), os.pipe()
def hand_over(process, pipe):
    wait_for(process, READ)
    os.write(pipe[1], b"x")
def begin():
    file = create(sys.argv[1])
    for number in range({rounds}):
        os.pwrite(file, b"x" * 97, number * 97)
        hand_over(os.getppid(), there)
        os.read(back[0], 1)
def answer():
    file = create(sys.argv[2])
    for number in range({rounds}):
        os.read(asked[0], 1)
        os.pwrite(file, b"x" * 89, number * 89)
        hand_over(os.getppid(), answered)
beginner, answerer = made(begin), made(answer)
for number in range({rounds}):
    os.read(there[0], 1)
    hand_over(answerer, asked)
    os.read(answered[0], 1)
    hand_over(beginner, back)
for _ in range(2):
    os.wait()
"""

# Threads that sleep by the clock while another one makes calls and computes: timers interrupt that one and wake them.
BY_THE_CLOCK = """
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
def sleeper():
    mine = create(sys.argv[2])
    # The interpreter's lock, too, is handed over by wake-ups: processes have none in common.
    for _ in range(4 * {rounds}):
        time.sleep(0.001)
        os.pwrite(mine, b"x" * 89, 0)
for _ in range(3):
    made(sleeper)
left = 3
while left:
    os.pwrite(file, b"x" * 97, 0)
    os.stat("/")
    left -= os.waitpid(-1, os.WNOHANG)[0] > 0
"""

# Two processes write and ask a third one: the first wakes it, the second asks while it sleeps by the clock. It has
# heard from both when it answers the first, and then the other. Threads would hand over the interpreter's lock as well.
ASKED_BY_TWO = """
answers = {{name: os.pipe() for name in "ab"}}
def ask(name, path, size, call):
    file = create(path)
    for number in range({rounds}):
        os.pwrite(file, b"x" * size, 0)
        wait_for(os.getppid(), call)
        os.write(there[1], name)
        os.read(answers[name.decode()][0], 1)
askers = {{
    "a": made(lambda: ask(b"a", sys.argv[1], 97, READ)),
    "b": made(lambda: ask(b"b", sys.argv[2], 89, CLOCK)),
}}
for number in range({rounds}):
    assert os.read(there[0], 1) == b"a"
    while not select.select([there[0]], [], [], 0)[0]:
        time.sleep(0.001)
    assert os.read(there[0], 1) == b"b"
    for name, process in askers.items():
        wait_for(process, READ)
        os.write(answers[name][1], b"x")
for _ in range(2):
    os.wait()
"""

# The second process hears from the first, answers, and ends; the parent waits for that, and then writes.
HEARD_UNTIL_THE_END = """
first, second = map(create, sys.argv[1:3])
second_process = mmap.mmap(-1, 8)
def write():
    before = bytes(8)
    for number in range({rounds}):
        while second_process[:] == before:
            pass
        before = second_process[:]
        wait_for(int.from_bytes(before, "little"), READ)
        os.pwrite(first, b"x" * 89, number * 89)
        os.write(there[1], b"x")
        os.read(back[0], 1)
def answer():
    os.read(there[0], 1)
    wait_for(writer, READ)
    os.write(back[1], b"x")
    wait_for(os.getppid(), WAIT)
writer = made(write)
for number in range({rounds}):
    messenger = made(answer)
    second_process[:] = messenger.to_bytes(8, "little")
    os.waitpid(messenger, 0)
    os.pwrite(second, b"x" * 97, number * 97)
os.waitpid(writer, 0)
"""

# Processes one after the other, each of which writes and ends before the next one is made.
ONE_AFTER_THE_OTHER = """
def write():
    wait_for(os.getppid(), WAIT)
    os.pwrite(create(sys.argv[1]), b"x" * 89, 0)
for number in range({rounds}):
    made(write)
    os.wait()
"""


def record(tmp_path, program, rounds=ROUNDS):
    trace = tmp_path / "t.iotrace"
    names = [str(tmp_path / name) for name in ("first", "second")]
    command = [sys.executable, "-c", (WAITING + program).format(rounds=rounds, numbers=NUMBERS), *names]
    done = run_recorder(trace, *command, options=("--layer=vfs", f"--path={tmp_path}"))
    assert done.returncode == 0, done.stderr
    if "sched_waking" in done.stderr:
        pytest.skip("this kernel refuses the program that sees wake-ups: " + done.stderr)
    return characterize.open(trace)


def calls_by_id(trace):
    """Of every operation of a system call: its end, thread and size."""
    io, fileops = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILEOP]
    rows = {int(row["id"]): (int(row["start_ns"] + row["duration_ns"]), int(row["thread"]), 0) for row in fileops}
    for row in io:
        rows[int(row["id"])] = (int(row["start_ns"] + row["duration_ns"]), int(row["thread"]), int(row["result"]))
    return rows


def written_after(trace):
    """For every WAKE record of a write: the sizes of what was written and of its cause, and the sleep.

    What has to hold of all of them is asserted here.
    """
    calls = calls_by_id(trace)
    ends_ns = defaultdict(lambda: [0])
    for end_ns, thread, _ in sorted(calls.values()):
        ends_ns[thread].append(end_ns)
    sizes = []
    for wake in trace.arrays[RecordKind.WAKE]:
        end_ns, thread, size = calls[int(wake["id"])]
        cause_end_ns, cause_thread, cause_size = calls[int(wake["cause"])]
        assert wake["wakes"] > 0
        assert thread == wake["thread"] != cause_thread
        assert int(wake["start_ns"] + wake["duration_ns"]) == end_ns
        assert cause_end_ns <= wake["woken_ns"] <= wake["start_ns"]
        before_ns = ends_ns[thread][bisect_left(ends_ns[thread], end_ns) - 1]
        assert before_ns + int(wake["slept_ns"]) <= wake["woken_ns"]
        if size:
            sizes.append((size, cause_size, int(wake["slept_ns"])))
    return sizes


def right_before_its_call(trace):
    """Whether each WAKE record of a trace file stands before the record with its id."""
    raw = np.fromfile(trace.path, np.uint8, offset=4096)[: 64 * sum(trace.header.count.values())].reshape(-1, 64)
    at = np.flatnonzero(raw[:, 0] == RecordKind.WAKE)
    kinds = np.isin(raw[at + 1, 0], (RecordKind.IO, RecordKind.FILEOP))
    return len(at) > 0 and kinds.all() and (raw[at, 56:] == raw[at + 1, 56:]).all()


def test_threads_that_write_in_turn_were_woken_by_each_other(tmp_path):
    """Each write but the first was: 100 of the one thread, 101 of the other. They slept while the other one did."""
    trace = record(tmp_path, IN_TURN)
    sizes = written_after(trace)
    assert [pair[:2] for pair in sizes].count((89, 97)) == ROUNDS
    assert [pair[:2] for pair in sizes].count((97, 89)) == ROUNDS - 1
    assert len(sizes) == 2 * ROUNDS - 1
    slept_ns = [slept_ns for _, _, slept_ns in sizes]
    assert np.median(slept_ns) >= 3 * MS
    assert all(each > 0 for each in slept_ns[1:]), "the first time it had made no call before"
    assert right_before_its_call(trace)


def test_what_happened_is_known_through_threads_that_make_no_call(tmp_path):
    sizes = written_after(record(tmp_path, THROUGH_A_THIRD, FEW_ROUNDS))
    assert [pair[:2] for pair in sizes].count((89, 97)) == FEW_ROUNDS
    assert [pair[:2] for pair in sizes].count((97, 89)) == FEW_ROUNDS - 1
    assert len(sizes) == 2 * FEW_ROUNDS - 1


def test_who_serves_two_tells_neither_of_the_other(tmp_path):
    """It is woken by the one, asleep by the clock when the other asks, and answers one after the other."""
    trace = record(tmp_path, ASKED_BY_TWO, FEW_ROUNDS)
    assert (trace.arrays[RecordKind.IO]["result"] == 89).sum() == FEW_ROUNDS
    crossed = [pair[:2] for pair in written_after(trace) if pair[:2] in {(89, 97), (97, 89)}]
    assert not crossed


def test_who_waits_for_an_end_hears_all_that_was_known_there(tmp_path):
    sizes = written_after(record(tmp_path, HEARD_UNTIL_THE_END, FEW_ROUNDS))
    assert [pair[:2] for pair in sizes].count((97, 89)) == FEW_ROUNDS
    assert len(sizes) == FEW_ROUNDS + 1, "and the first write of the writer is that of a new process"


def test_what_a_timer_does_is_not_the_doing_of_whom_it_interrupts(tmp_path):
    """More than a thousand wake-ups by timers, most of which interrupt the other process; and none by a thread."""
    trace = record(tmp_path, BY_THE_CLOCK)
    assert (trace.arrays[RecordKind.IO]["result"] == 89).sum() == 3 * 4 * ROUNDS
    assert not [pair for pair in written_after(trace) if pair[0] == 89 and pair[1] == 97]


def test_a_new_process_and_who_waited_for_one_come_after_it(tmp_path):
    """Each process but the first was made by one who had waited for the one before: that one's write is the cause."""
    trace = record(tmp_path, ONE_AFTER_THE_OTHER)
    wakes = trace.arrays[RecordKind.WAKE]
    calls = calls_by_id(trace)
    opens = trace.arrays[RecordKind.FILEOP]
    opens = set(opens["id"][opens["op"] == Fileop.OPEN].tolist())
    caused = [calls[int(wake["cause"])] for wake in wakes if int(wake["id"]) in opens]
    assert [size for _, _, size in caused].count(89) == ROUNDS - 1
    assert len({thread for _, thread, size in caused if size == 89}) == ROUNDS - 1
