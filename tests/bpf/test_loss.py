# SPDX-License-Identifier: Apache-2.0
"""A ring that is too small loses records: what is lost is counted, and what was recorded and lost is what happened."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import characterize
from characterize.layout import BlockFlag, Fileop, HeaderFlag, IoOp, RecordKind, Source
from tests.machines.copying_file_system import copying_file_system
from tests.machines.own_place import own_place
from tests.truths.told import PROGRAMS, RECORDER, Recorded, compare, parse, record, run_recorder, wait_for_recording

RING_BYTES_MIN = 32 << 10
ATTEMPTS = 5
WRITE_BYTES, READ_BYTES = 7, 11  # of tests/programs/burst.c

pytestmark = pytest.mark.records


@pytest.fixture(scope="module")
def burst(tmp_path_factory):
    """Outcome, trace, and (number, bytes) of each kind of operation that the program did."""
    for attempt in range(ATTEMPTS):
        directory = tmp_path_factory.mktemp("burst")
        trace_path = directory.parent / f"burst-{attempt}.iotrace"
        options = ("--ring-bytes", str(RING_BYTES_MIN), "--layer", "vfs")
        done = run_recorder(trace_path, PROGRAMS / "burst", directory, options=options)
        trace = characterize.open(trace_path)
        if trace.header.lost.get(RecordKind.IO):
            _, others = parse(done.stdout)
            return done, trace, {kind: tuple(map(int, words[0])) for kind, words in others.items()}
    pytest.fail(f"a ring of {RING_BYTES_MIN} bytes lost nothing in {ATTEMPTS} runs: the test needs a faster program")


def test_recorded_and_lost_are_what_happened(burst):
    _, trace, told = burst
    # The program's own pages, which nobody can tell from outside, are counted in the kernel too.
    mapped = trace.header.metadata["totals"]["read"].get("mmap", {"count": 0})["count"]
    assert mapped < 100
    happened = told["write"][0] + told["read"][0] + told["failed"][0] + mapped
    assert trace.header.count[RecordKind.IO] + trace.header.lost[RecordKind.IO] == happened
    fileops = trace.header.count[RecordKind.FILEOP] + trace.header.lost.get(RecordKind.FILEOP, 0)
    assert fileops == told["fileop"][0]
    # Nothing was made up either.
    assert set(trace.io.loc[trace.io["source"] == Source.SYSCALL, "asked_bytes"]) <= {WRITE_BYTES, READ_BYTES}


def test_tasks_are_counted_once(burst):
    """The first thread, before and after exec, and three more, however often the recorder has to try."""
    _, trace, _ = burst
    assert 4 <= trace.header.count[RecordKind.TASK] + trace.header.lost.get(RecordKind.TASK, 0) <= 5


def test_gaps_add_up_to_what_was_lost(burst):
    _, trace, _ = burst
    by_kind = trace.gaps.groupby("lost_kind")["lost_count"].sum()
    assert {RecordKind(kind): int(count) for kind, count in by_kind.items()} == trace.header.lost
    told = trace.header.metadata["lost"]
    assert {RecordKind[kind.upper()]: count for kind, count in told.items() if count} == trace.header.lost


def test_gaps_lie_within_the_run_and_name_the_cpu(burst):
    """Files that were open before are announced, and may be lost, before the program is let go."""
    _, trace, _ = burst
    gaps = trace.gaps[trace.gaps["lost_kind"] != RecordKind.FILE]
    assert (gaps["start_ns"] >= trace.header.start_monotonic_ns).all()
    assert (trace.gaps["start_ns"] + trace.gaps["duration_ns"] <= trace.header.end_monotonic_ns).all()
    assert set(gaps["cpu"]) <= set(range(os.cpu_count() or 1))
    for _, group in trace.gaps.groupby(["cpu", "lost_kind"]):
        spans = group.sort_values("start_ns")
        ends = spans["start_ns"] + spans["duration_ns"]
        assert (spans["start_ns"].iloc[1:].to_numpy() >= ends.iloc[:-1].to_numpy()).all()


def test_the_user_is_told(burst):
    done, trace, _ = burst
    assert done.returncode == 3
    assert "LOST" in done.stderr
    assert str(trace.header.lost[RecordKind.IO]) in done.stderr.replace(",", "")
    assert trace.header.flags & HeaderFlag.LOST
    assert any("lower bound" in warning for warning in trace.warnings)


def test_totals_are_exact_all_the_same(burst):
    """So readFrac and sizeMean are."""
    _, trace, told = burst
    totals = trace.header.metadata["totals"]
    for op in ("read", "write"):
        total = totals[op]["syscall"]
        assert (total["count"], total["bytes"]) == told[op]
    assert totals["read"]["syscall"]["failed"] == told["failed"][0]
    recorded = trace.io[(trace.io["op"] == IoOp.WRITE) & (trace.io["result"] > 0)]
    assert len(recorded) <= totals["write"]["syscall"]["count"]


def test_operations_in_flight_are_exact_all_the_same(burst):
    """At most one of each thread."""
    _, trace, _ = burst
    assert 1 <= trace.header.metadata["in_flight_max"] <= 3


def test_more_request_addresses_than_there_is_room_for_lose_nothing(tmp_path):
    """The recorder keeps 2^17 requests by their addresses, for the next use; what has ended makes room for others."""
    requests = 300_007
    file = tmp_path / "file"
    file.write_bytes(bytes(4096))
    trace_path = tmp_path / "addresses.iotrace"
    options = ("--layer", "vfs", "--ring-bytes", "128M")
    run_recorder(trace_path, PROGRAMS / "aio_addresses", file, str(requests), options=options)
    trace = characterize.open(trace_path)
    assert not any(trace.header.lost.values())
    io = trace.io[trace.io["source"] == Source.AIO]
    assert len(io) == requests
    assert (io["result"] == 4096).all()


def test_more_processes_with_requests_than_there_is_room_for_lose_nothing(tmp_path):
    """The recorder keeps 2^12 of them. The end of the first one is the end of a request of which it has not learned."""
    run = record(tmp_path / "rings", "many_rings", "4200")
    told, got = run.told_data(), run.data({Source.IO_URING})
    assert len(told) == 1
    # Without what was done, which 6.1 does not note of such a request.
    compare((row[:5] for row in told), (row[:5] for row in got))


def test_requests_whose_end_is_not_seen_are_recorded(tmp_path):
    """Large writes of others make whole interrupts go by unseen on some kernels (docs/decisions/0006)."""
    number = tmp_path.stat().st_dev
    if not Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").exists():
        pytest.skip(f"{tmp_path} is not on a disk")
    reads, read_bytes = 100_003, 4096
    load = ["fio", "--name=reads", f"--filename={tmp_path}/data", "--size=64m", "--direct=1"]
    subprocess.run([*load, "--rw=write", "--bs=1m"], check=True, capture_output=True)
    load += ["--rw=randread", f"--bs={read_bytes}", "--ioengine=libaio", "--iodepth=32", "--norandommap"]
    load += [f"--number_ios={reads}", "--io_size=1g"]
    writer = ["fio", "--name=writes", f"--filename={tmp_path}/other", "--size=64m", "--direct=1", "--rw=write"]
    writer += ["--bs=8m", "--rate=500m", "--time_based", "--runtime=60"]
    with own_place() as memory:
        others = subprocess.Popen(writer, stdout=subprocess.DEVNULL)
        try:
            run_recorder(memory / "t", *load)
            trace = characterize.open(memory / "t")
        finally:
            others.kill()
            others.wait()
    assert not trace.header.lost
    file = trace.files.loc[trace.files["path"] == str(tmp_path / "data"), "file"].iloc[0]
    pieces = trace.block_data[trace.block_data["file"] == file]
    assert len(pieces) == reads
    assert (pieces["bytes"] == read_bytes).all()
    asked = Counter(trace.io.loc[trace.io["file"] == file, "offset"])
    assert sum(asked.values()) == reads
    assert not Counter(pieces["offset"]) - asked
    unseen = trace.blocks[(trace.blocks["flags"].to_numpy() & BlockFlag.END_UNSEEN) != 0]
    assert (unseen["duration_ns"] == 0).all()
    assert trace.header.metadata["ends_unseen"] == len(unseen)


# Its children end at once, while others fill the rings, and stay zombies.
UNHEARD_CHILDREN = """
import os, signal, sys
children, file = int(sys.argv[1]), os.open(sys.argv[2], os.O_RDONLY)
def make(act):
    process = os.fork()
    if not process:
        act()
        os._exit(0)
    return process
def read():
    while True: os.pread(file, 1, 0)
print("ready", flush=True)
sys.stdin.readline()
loud = [make(read) for _ in range(os.cpu_count())]
def wait(process): os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
for process in [make(lambda: None) for _ in range(children)]: wait(process)
for process in loud:
    os.kill(process, signal.SIGKILL)
    wait(process)
print(len(loud), flush=True)
sys.stdin.readline()
"""


def test_a_lost_task_that_is_a_zombie_when_recording_ends_is_counted_once(tmp_path):
    children = 211
    (tmp_path / "file").write_bytes(b"x")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = ["python3", "-I", "-c", UNHEARD_CHILDREN, str(children), tmp_path / "file"]
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        options = ["--layer", "vfs", "--ring-bytes", str(RING_BYTES_MIN), "-p", str(process.pid)]
        recorder = subprocess.Popen(
            ["env", "--default-signal=INT", RECORDER, "-o", tmp_path / "t", *options], stderr=subprocess.PIPE, text=True
        )
        try:
            wait_for_recording(recorder.stderr)
            process.stdin.write("go\n")
            process.stdin.flush()
            loud = int(process.stdout.readline())
            recorder.send_signal(signal.SIGINT)
            recorder.communicate(timeout=120)
        finally:
            recorder.kill()
            recorder.wait()
        process.communicate("end\n", timeout=120)
    header = characterize.open(tmp_path / "t").header
    lost = header.lost[RecordKind.TASK]
    assert lost > 1
    assert header.count[RecordKind.TASK] + lost == 1 + loud + children


# One thread has the lock of the process's mappings nearly always, the other syncs a mapping.
SYNCS_OF_A_MAPPING = """
import ctypes, mmap, sys, threading
def address(memory): return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
libc = ctypes.CDLL(None)
busy, ended = mmap.mmap(-1, 64 << 20), False
for page in range(0, len(busy), mmap.PAGESIZE): busy[page] = 1
def protect():
    while not ended:
        libc.mprotect(address(busy), ctypes.c_size_t(len(busy)), mmap.PROT_READ)
        libc.mprotect(address(busy), ctypes.c_size_t(len(busy)), mmap.PROT_READ | mmap.PROT_WRITE)
thread = threading.Thread(target=protect)
with open(sys.argv[1], "r+b") as file:
    data = mmap.mmap(file.fileno(), 0)
thread.start()
for _ in range(int(sys.argv[2])):
    assert libc.msync(address(data), ctypes.c_size_t(len(data)), 1) == 0
ended = True
thread.join()
"""


def test_syncs_of_a_mapping_whose_file_cannot_be_asked_for_are_counted(tmp_path):
    (tmp_path / "file").write_bytes(bytes(4096))
    syncs = 997
    done = run_recorder(
        *(tmp_path / "t", "python3", "-c", SYNCS_OF_A_MAPPING, tmp_path / "file", str(syncs)),
        options=("--layer", "vfs"),
    )
    trace = characterize.open(tmp_path / "t")
    lost = trace.header.lost.get(RecordKind.FILEOP, 0)
    assert (trace.fileops["op"] == Fileop.MSYNC).sum() + lost == syncs
    assert done.returncode == (3 if lost else 0), done.stderr


def run_on_file(directory: Path, program: str) -> tuple[characterize.Trace, list[int], list[int]]:
    """Trace of a program that is given a file, which ids that has, and how often the program says that it did what."""
    (directory / "file").touch()
    done = run_recorder(directory / "t", PROGRAMS / program, directory / "file", options=("--layer", "vfs"))
    trace = characterize.open(directory / "t")
    assert done.returncode == (3 if trace.header.lost else 0), done.stderr
    files = [file for file, path in trace.paths.items() if path == f"{directory}/file"]
    return trace, files, [int(number) for number in done.stdout.split()]


def test_opens_by_io_uring_that_are_closed_before_their_ends_are_told_are_counted(tmp_path):
    trace, files, (done,) = run_on_file(tmp_path, "closed_in_batch")
    of_file = trace.fileops[trace.fileops["file"].isin(files)]
    assert (of_file["op"] == Fileop.OPEN).sum() + trace.header.lost.get(RecordKind.FILEOP, 0) == done
    assert (of_file["op"] == Fileop.CLOSE).sum() == done


@pytest.mark.skipif(os.cpu_count() == 1, reason="two threads are to be at the same descriptor")
def test_calls_that_an_open_of_another_thread_crosses_are_counted(tmp_path):
    trace, files, (opens, reads) = run_on_file(tmp_path, "closed_early")
    lost = trace.header.lost
    calls = trace.fileops[trace.fileops["file"].isin(files) & trace.fileops["op"].isin((Fileop.OPEN, Fileop.CLOSE))]
    assert (calls["result"] >= 0).sum() + lost.get(RecordKind.FILEOP, 0) == 2 * opens
    io = trace.io[trace.io["file"].isin(files)]
    assert (io["result"] >= 0).sum() + lost.get(RecordKind.IO, 0) == reads


def test_requests_on_a_file_that_is_opened_when_they_wait_are_recorded_or_counted(tmp_path):
    """Only a request that holds its file tells which one it was: a splice and a close do not."""
    done = run_recorder(tmp_path / "t", PROGRAMS / "opened_meanwhile", tmp_path, options=("--layer", "vfs"))
    assert done.returncode == 3, done.stderr
    told, others = parse(done.stdout)
    trace = characterize.open(tmp_path / "t")
    run = Recorded(tmp_path, told, others, trace, done.stderr)
    compare(run.told_data(), run.data())
    compare(run.told_file_operations(), run.file_operations())
    ((unknown,),) = others["unknown"]
    assert trace.header.lost == {RecordKind.IO: int(unknown), RecordKind.FILEOP: int(unknown)}
    assert trace.header.metadata["in_flight_end"] == 0


COPY = """
import os, sys
source, target, size_bytes = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_WRONLY), int(sys.argv[3])
print(os.copy_file_range(source, target, size_bytes))
"""


@pytest.mark.parametrize("size_bytes", [(1 << 31) - 1, (3 << 30) + 101])
def test_a_copy_that_is_larger_than_a_record_can_tell_is_counted(tmp_path, size_bytes):
    with copying_file_system(tmp_path / "place", size_bytes) as place:
        command = ("python3", "-I", "-c", COPY, place / "from", place / "to", str(size_bytes))
        done = run_recorder(tmp_path / "t", *command, options=("--layer", "vfs"))
    assert done.stdout == f"{size_bytes}\n", done.stderr
    trace = characterize.open(tmp_path / "t")
    sides = trace.io[trace.io["source"] == Source.SPLICE]
    assert sides["result"].tolist() == [min(size_bytes, (1 << 31) - 1)] * 2
    # One for each side.
    assert trace.header.lost == ({RecordKind.IO: 2} if size_bytes >= 1 << 31 else {})


# Says when it begins and ends; what Python itself opens lies before. mknod is not recorded.
CALLS_ON_NAMES = """
import os, sys, time
calls, place = int(sys.argv[1]), sys.argv[2]
os.chdir(place)
for call in range(calls): os.mknod(f"a{call}")
time.sleep(0.2)
begin_ns = time.monotonic_ns()
for call in range(calls):
    os.mkdir(f"d{call}")
    os.rename(f"a{call}", f"b{call}")
    os.unlink(f"{place}/b{call}")
print(begin_ns, time.monotonic_ns())
time.sleep(0.2)
"""


def test_a_call_on_names_is_recorded_with_all_its_names_or_lost_once(tmp_path):
    calls, place = 1009, tmp_path / "place"
    place.mkdir()
    options = ("--layer", "vfs", "--ring-bytes", str(RING_BYTES_MIN))
    command = ("python3", "-c", CALLS_ON_NAMES, str(calls), place)
    begin_ns, end_ns = map(int, run_recorder(tmp_path / "t", *command, options=options).stdout.split())
    trace = characterize.open(tmp_path / "t")
    gap_ends_ns = trace.gaps["start_ns"] + trace.gaps["duration_ns"]
    gaps = trace.gaps[(gap_ends_ns >= begin_ns) & (gap_ends_ns <= end_ns)]
    lost = gaps.loc[gaps["lost_kind"] == RecordKind.FILEOP, "lost_count"].sum()
    fileops = trace.fileops[(trace.fileops["start_ns"] >= begin_ns) & (trace.fileops["start_ns"] <= end_ns)]
    assert lost
    assert len(fileops) + lost == 3 * calls
    # Each with names of its own: the numbers of both names of a rename are the same.
    made = {op: fileops[fileops["op"] == op] for op in (Fileop.MKDIR, Fileop.RENAME, Fileop.UNLINK)}
    names = {op: [Path(trace.paths[file]) for file in rows["file"]] for op, rows in made.items()}
    assert {path.parent for each in names.values() for path in each} == {place}
    assert all(len(set(each)) == len(each) for each in names.values())
    assert {path.name[0] for path in names[Fileop.MKDIR]} == {"d"}
    renamed = [Path(trace.paths[file]).name for file in made[Fileop.RENAME]["argument"]]
    assert renamed == ["b" + path.name.removeprefix("a") for path in names[Fileop.RENAME]]
    assert {path.name[0] for path in names[Fileop.UNLINK]} <= {"a", "b"}
