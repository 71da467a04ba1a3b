# SPDX-License-Identifier: Apache-2.0
"""Mapped files that no descriptor of the program names: the program itself, its loader, files below an overlay."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import characterize
from characterize.layout import BlockDataClass, HeaderFlag, IoFlag, IoOp, RecordKind, Source
from tests.machines.kernel import has_tracepoint
from tests.machines.loop_file_system import loop_file_system
from tests.machines.overlay import overlay
from tests.truths.page_cache import PAGE_BYTES, resident_pages
from tests.truths.told import PROGRAMS, run_recorder

pytestmark = [pytest.mark.records, pytest.mark.parallel]
FILE_PAGES, TOUCHED, STEP_PAGES = 997, 13, 41
TOUCHED_OFFSETS = [page * STEP_PAGES * PAGE_BYTES for page in range(TOUCHED)]
needs_mapped_reads = pytest.mark.skipif(
    not has_tracepoint("mm_filemap_fault"),
    reason="this kernel has no tracepoint for reads of mapped files (before 6.11)",
)


def recorded(trace: Path, *command: str | Path, **keywords) -> tuple[characterize.Trace, str]:
    """What the trace of a command says, and what the command printed."""
    done = run_recorder(trace, *command, **keywords)
    assert done.returncode == 0, done.stderr
    opened = characterize.open(trace)
    assert not opened.header.flags & HeaderFlag.INCOMPLETE
    return opened, done.stdout


def mapped(trace: characterize.Trace, path: str | Path, op: IoOp) -> pd.DataFrame:
    """Records of page faults on a file."""
    io = trace.io[(trace.io["source"] == Source.MMAP) & (trace.io["op"] == op)]
    return io[io["file"].map(trace.paths) == str(path)]


def drop_from_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert not any(resident_pages(path))


TOUCH = """
import mmap, os, sys
path, stores, step, count = sys.argv[1], sys.argv[2] == "stores", int(sys.argv[3]), int(sys.argv[4])
file = os.open(path, os.O_RDWR if stores else os.O_RDONLY)
memory = mmap.mmap(file, 0, prot=mmap.PROT_READ | (mmap.PROT_WRITE if stores else 0))
os.close(file)
memory.madvise(mmap.MADV_RANDOM)
for page in range(count):
    if stores: memory[page * step * mmap.PAGESIZE] = 1
    else: memory[page * step * mmap.PAGESIZE]
"""


def touch(path: Path, what: str) -> tuple[str, ...]:
    return ("python3", "-I", "-c", TOUCH, str(path), what, str(STEP_PAGES), str(TOUCHED))


@needs_mapped_reads
def test_loads_from_a_cold_file_below_an_overlay(tmp_path):
    with loop_file_system("ext4", tmp_path) as system, overlay(system.place, {"a": bytes(FILE_PAGES * 4096)}) as place:
        drop_from_cache(system.place / "lower" / "a")
        trace, _ = recorded(tmp_path / "t", *touch(place / "a", "loads"))
    reads = mapped(trace, place / "a", IoOp.READ)
    for offset in TOUCHED_OFFSETS:
        assert ((reads["offset"] <= offset) & (offset < reads["offset"] + reads["result"])).sum() == 1
    assert reads["missed_bytes"].tolist() == [PAGE_BYTES] * TOUCHED
    assert list(trace.paths.values()).count(f"{place}/a") == 1
    assert not any(path.endswith("lower/a") for path in trace.paths.values())


def test_stores_to_a_file_of_an_overlay(tmp_path):
    with loop_file_system("ext4", tmp_path) as system, overlay(system.place, {"a": bytes(FILE_PAGES * 4096)}) as place:
        trace, _ = recorded(tmp_path / "t", *touch(place / "a", "stores"))
    writes = mapped(trace, place / "a", IoOp.WRITE)
    for offset in TOUCHED_OFFSETS:
        assert ((writes["offset"] <= offset) & (offset < writes["offset"] + writes["result"])).sum() == 1


def touched_pages(records: pd.DataFrame) -> set[int]:
    return {
        page
        for first, size in zip(records["offset"] // PAGE_BYTES, records["result"], strict=True)
        for page in range(first, first + -(-size // PAGE_BYTES))
    }


MAP_AT_ONCE = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
memory = mmap.mmap(file, 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ)
"""


@needs_mapped_reads
@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("below", ["ext4", "overlay"])
def test_pages_that_a_mapping_begins_with(tmp_path, below, warm):
    """All of the file (MAP_POPULATE): the call that maps it faults them in."""
    with loop_file_system("ext4", tmp_path) as system, overlay(system.place, {"a": bytes(FILE_PAGES * 4096)}) as place:
        real = system.place / "lower" / "a"
        drop_from_cache(real)
        if warm:
            real.read_bytes()
        file = real if below == "ext4" else place / "a"
        trace, _ = recorded(tmp_path / "t", "python3", "-I", "-c", MAP_AT_ONCE, file)
    reads = mapped(trace, file, IoOp.READ)
    assert touched_pages(reads) == set(range(FILE_PAGES))
    assert warm or reads["missed_bytes"].sum() == FILE_PAGES * PAGE_BYTES


# Reads into pages of a mapping that are there, and clean.
STORE_BY_READS = """
import mmap, os, sys
path, step, count, source = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), os.open(sys.argv[4], os.O_RDONLY)
memory = mmap.mmap(os.open(path, os.O_RDWR), 0)
for page in range(len(memory) // mmap.PAGESIZE): memory[page * mmap.PAGESIZE]
for page in range(count): assert os.readv(source, [memoryview(memory)[page * step * mmap.PAGESIZE :][:101]]) == 101
"""


@pytest.mark.parametrize("source", ["file", "device"])
def test_stores_by_calls_that_read_into_a_mapping(tmp_path, source):
    file, other = tmp_path / "a", tmp_path / "b"
    other.write_bytes(bytes(TOUCHED * 101))
    with file.open("wb", buffering=0) as stream:
        for _ in range(FILE_PAGES):
            stream.write(bytes(PAGE_BYTES))
        os.fsync(stream.fileno())
    read = other if source == "file" else "/dev/zero"
    arguments = (file, str(STEP_PAGES), str(TOUCHED), read)
    trace, _ = recorded(tmp_path / "t", "python3", "-I", "-c", STORE_BY_READS, *arguments)
    writes = mapped(trace, file, IoOp.WRITE)
    assert touched_pages(writes) >= {page * STEP_PAGES for page in range(TOUCHED)}


@pytest.mark.parametrize("how", ["buffered", "direct"])
@pytest.mark.parametrize("call", ["io_uring", "io_submit"])
def test_stores_by_requests_that_read_into_a_mapping(tmp_path, call, how):
    with loop_file_system("ext4", tmp_path) as system:
        trace, output = recorded(tmp_path / "t", PROGRAMS / "stores_by_requests", system.place, call, how)
    writes = trace.io[(trace.io["source"] == Source.MMAP) & (trace.io["op"] == IoOp.WRITE)]
    stored = [path for path in trace.paths.values() if path.startswith(f"{system.place}/stored-")]
    assert f"stored {len(stored)}" in output.splitlines()
    assert sorted(writes["file"].map(trace.paths)) == sorted(stored)


@needs_mapped_reads
@pytest.mark.parametrize("below", ["ext4", "overlay"])
@pytest.mark.parametrize("program", ["bash", "ldconfig"])
def test_a_cold_program_is_read_by_its_page_faults(tmp_path, program, below):
    """One with a loader, and one that is linked statically."""
    original = Path(shutil.which(program, path="/bin:/sbin"))
    arguments = {"bash": ["-c", ":"], "ldconfig": ["--version"]}[program]
    with loop_file_system("ext4", tmp_path) as system, overlay(system.place, {program: original.read_bytes()}) as place:
        real = system.place / "lower" / program
        real.chmod(0o755)
        copy = real if below == "ext4" else place / program
        drop_from_cache(real)
        trace, _ = recorded(tmp_path / "t", copy, *arguments)
        resident_bytes = sum(resident_pages(real)) * PAGE_BYTES
    reads = mapped(trace, copy, IoOp.READ)
    assert (reads["flags"] & int(IoFlag.PROGRAM)).all()
    # What the kernel reads itself in execve (the header, with what it reads ahead) is no fault of the program's.
    assert resident_bytes / 2 < reads["missed_bytes"].sum() <= resident_bytes
    if program == "bash":
        loader = mapped(trace, next(path for path in trace.paths.values() if "/ld-linux" in path), IoOp.READ)
        assert len(loader)
        assert (loader["flags"] & int(IoFlag.PROGRAM)).all()
    data = trace.block_data
    fills = data[(data["class"] == BlockDataClass.FILL) & (data["file"] == reads["file"].iloc[0])]
    assert fills["bytes"].sum() >= reads["missed_bytes"].sum()


def test_a_thread_that_only_touches_a_mapped_file_is_announced(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(FILE_PAGES * PAGE_BYTES))
    os.sync()
    trace, output = recorded(tmp_path / "t", PROGRAMS / "silent_thread", path)
    faults = trace.io[trace.io["thread"] == int(output)]
    assert set(faults["source"]) == {Source.MMAP}
    assert (faults["op"] == IoOp.WRITE).sum() > 0
    assert set(trace.io["thread"]) <= set(trace.arrays[RecordKind.TASK]["thread"])


def test_a_thread_is_announced_once_for_each_program_that_it_becomes(tmp_path):
    """And not for each that it tries to become in vain."""
    script = f"""
import os
for at in range(7):
    try: os.execv("/no/such/program", ["program"])
    except FileNotFoundError: os.stat(os.open("{tmp_path}", os.O_RDONLY))
os.execv("/bin/true", ["true"])
"""
    python = Path(sys.executable).resolve()
    trace, _ = recorded(tmp_path / "t", python, "-I", "-c", script)
    names = [bytes(name).rstrip(b"\0").decode() for name in trace.arrays[RecordKind.TASK]["comm"]]
    assert names == ["flextrace-recor", python.name, "true"]


# Ends at once: mov eax, 1 (exit); xor ebx, ebx; int 0x80.
CODE_32_BIT = b"\xb8\x01\x00\x00\x00\x31\xdb\xcd\x80"


def program_of_32_bits() -> bytes:
    base, headers = 0x08048000, 52 + 32
    size = headers + len(CODE_32_BIT)
    elf = b"\x7fELF\x01\x01\x01" + bytes(9)
    elf += struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + headers, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    return elf + struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 4096) + CODE_32_BIT


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86 runs 32-bit programs on numbers of their own")
def test_what_the_kernel_reads_of_a_program_of_32_bits_is_not_held_against_the_recorder(tmp_path):
    program = tmp_path / "program"
    program.write_bytes(program_of_32_bits())
    program.chmod(0o755)
    if subprocess.run([program], check=False).returncode:
        pytest.skip("this kernel runs no 32-bit programs")
    trace, _ = recorded(tmp_path / "t", "sh", "-c", f"exec {program}")
    tasks = trace.header.metadata["closure"]["tasks"]
    for charge in ("rchar", "syscr"):
        assert tasks[charge]["seen"] == tasks[charge]["kernel"], charge


def test_memory_without_a_file_makes_no_program_of_standard_input(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(FILE_PAGES * PAGE_BYTES))
    os.sync()
    script = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
assert libc.mmap(None, 4096, 5, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0, 0) != 2**64 - 1
memory = mmap.mmap(0, 0)
memory[0] = 1
"""
    with path.open("r+b") as file:
        trace, _ = recorded(tmp_path / "t", "python3", "-I", "-c", script, stdin=file)
    writes = mapped(trace, path, IoOp.WRITE)
    assert len(writes) == 1
    assert not np.any(writes["flags"] & int(IoFlag.PROGRAM))


@pytest.mark.parametrize("request_name", ["FICLONE", "FICLONERANGE"])
def test_clones_are_counted_and_told(tmp_path, request_name):
    script = """
import fcntl, os, struct, sys
source = os.open(sys.argv[1] + "/source", os.O_RDONLY)
for at in range(7):
    target = os.open(sys.argv[1] + "/target%d" % at, os.O_RDWR | os.O_CREAT)
    if sys.argv[2] == "FICLONE": fcntl.ioctl(target, 0x40049409, source)
    else: fcntl.ioctl(target, 0x4020940d, struct.pack("qQQQ", source, 0, 0, 0))
    assert os.fstat(target).st_size == 12345
    try: fcntl.ioctl(target, 0x40049409, 0)
    except OSError: pass
"""
    if not shutil.which("mkfs.btrfs"):
        pytest.skip("btrfs (btrfs-progs) is not installed")
    with loop_file_system("btrfs", tmp_path) as system:
        (system.place / "source").write_bytes(bytes(12345))
        options = ("-c", script, str(system.place), request_name)
        done = run_recorder(tmp_path / "t", "python3", "-I", *options, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert characterize.open(tmp_path / "t").header.metadata["skips"]["clone"] == 7
    assert "7 times a file was made to share the data of another" in done.stderr
