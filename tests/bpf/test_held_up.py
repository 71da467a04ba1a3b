# SPDX-License-Identifier: Apache-2.0
"""What happens while something holds an operation up: to its name and vector, to others that look alike, and later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import characterize
from characterize.layout import Fileop, RecordKind, Source
from tests.machines.loop_file_system import loop_file_system
from tests.machines.own_group import made_group
from tests.truths.told import PROGRAMS, compare, recorded, run_recorder

THROTTLED = Path("/sys/fs/cgroup/blkio")
READS_PER_SECOND = 40

HOLD_UP = """
import ctypes, fcntl, mmap, os, sys, threading, time

FREEZE, THAW = 0xC0045877, 0xC0045878
place = sys.argv[1]
libc = ctypes.CDLL(None)
file_system = os.open(place, os.O_RDONLY)
page = mmap.mmap(-1, mmap.PAGESIZE)

def is_held_up(thread, number):
    task = f"/proc/self/task/{thread.native_id}"
    state = open(f"{task}/stat").read().rsplit(") ")[1][0]
    return state == "D" and open(f"{task}/syscall").read().split()[0] == number

# The kernel has read what is on the page before it holds the call up.
def call_without_page(call, number, *arguments):
    fcntl.ioctl(file_system, FREEZE, 0)
    try:
        thread = threading.Thread(target=call, args=arguments)
        thread.start()
        while not is_held_up(thread, number):
            time.sleep(0.001)
        page.madvise(mmap.MADV_DONTNEED)
    finally:
        fcntl.ioctl(file_system, THAW, 0)
    thread.join()
"""

MAKE_DIRECTORIES = (
    HOLD_UP
    + """
address = ctypes.byref(ctypes.c_char.from_buffer(page))
for name in ("readable", "unreadable"):
    path = os.fsencode(f"{place}/{name}") + bytes(1)
    page[: len(path)] = path
    if name == "readable":
        libc.mkdir(address, 0o700)
    else:
        call_without_page(libc.mkdir, "83", address, 0o700)
"""
)

WRITE_VECTOR = (
    HOLD_UP
    + """
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]

data = ctypes.create_string_buffer(101)
vectors = (Vector * 2).from_buffer(page)
vectors[:] = [Vector(ctypes.addressof(data), 37), Vector(ctypes.addressof(data), 64)]
file = os.open(place + "/written", os.O_WRONLY | os.O_CREAT)
call_without_page(libc.pwritev, "296", file, vectors, 2, ctypes.c_long(11))
"""
)

pytestmark = pytest.mark.records

knows_numbers = pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls have other numbers here")


@pytest.fixture
def place(tmp_path):
    """In a file system that is thawed at the end, whatever happens."""
    with loop_file_system("ext4", tmp_path) as system:
        try:
            yield system.place
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", system.place], capture_output=True, check=False)


@knows_numbers
def test_an_operation_whose_name_is_no_longer_there_is_lost(tmp_path, place):
    """And not one on another name."""
    done = run_recorder(tmp_path / "t", sys.executable, "-c", MAKE_DIRECTORIES, place)
    assert (place / "unreadable").is_dir()
    assert done.returncode == 3, done.stderr
    assert "1 were operations that could not be followed" in done.stderr
    trace = characterize.open(tmp_path / "t")
    assert trace.header.lost == {RecordKind.FILEOP: 1}
    made = trace.fileops[trace.fileops["op"] == Fileop.MKDIR]
    assert [trace.paths[file] for file in made["file"]] == [f"{place}/readable"]


def written_by(trace: characterize.Trace, path: Path) -> pd.DataFrame:
    return trace.io[trace.io["file"].map(trace.paths) == str(path)]


@knows_numbers
def test_a_call_has_asked_for_what_its_vector_said_before(tmp_path, place):
    done = run_recorder(tmp_path / "t", sys.executable, "-c", WRITE_VECTOR, place)
    assert done.returncode == 0, done.stderr
    written = written_by(characterize.open(tmp_path / "t"), place / "written")
    assert written[["offset", "asked_bytes", "result"]].to_numpy().tolist() == [[11, 101, 101]]


def test_a_request_does_not_end_where_one_that_looks_alike_finds_no_room(tmp_path, place):
    """With the same number of the program's, and as many bytes, which stand where the result will be."""
    done = run_recorder(tmp_path / "t", PROGRAMS / "alike", place)
    assert done.returncode == 0, done.stderr
    written = written_by(characterize.open(tmp_path / "t"), place / "written")
    assert written["result"].tolist() == [101]
    assert (written["start_ns"] + written["duration_ns"] > int(done.stdout)).all()


@pytest.mark.skipif(
    not (THROTTLED / "blkio.throttle.read_iops_device").exists(), reason="needs the blkio controller of version 1"
)
def test_requests_of_a_process_that_has_ended_find_no_room(tmp_path):
    """A thread of the kernel hears of their ends."""
    with loop_file_system("ext4", tmp_path) as system, made_group(THROTTLED) as group:
        (group / "blkio.throttle.read_iops_device").write_text(f"{system.disk.name} {READS_PER_SECOND}")
        command = f"echo $$ >{group}/cgroup.procs; exec {PROGRAMS}/io_uring {system.place} left"
        done = run_recorder(tmp_path / "t", "sh", "-c", command)
    assert done.returncode == 0, done.stderr
    run = recorded(system.place, done.stdout, tmp_path / "t", done.stderr)
    told = [row[:7] for row in run.told_data() if row.source == Source.IO_URING]
    assert len(told) == 32 + 13
    compare(told, [row[:7] for row in run.data({Source.IO_URING})])
