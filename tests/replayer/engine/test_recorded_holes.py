# SPDX-License-Identifier: Apache-2.0
"""Holes of files from the recorder to the image of a replay, against what lseek(2) and stat(2) say of the originals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import characterize
from replayer.run import prepare, replay
from tests.machines.loop_file_system import loop_file_system
from tests.truths.sparse_file import Ranges, between, data_ranges, write_sparse
from tests.truths.told import run_recorder

pytestmark = pytest.mark.records

BLOCK = 4096
MIB = 1 << 20
PRIMES = [number for number in range(2, 2000) if all(number % divisor for divisor in range(2, number))]
BLOCKS = PRIMES[-1] + 100
SIZE = BLOCKS * BLOCK - 1234

HOLES_OF_FILE_MAX = 4096  # bpf/holes.h

READS = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
for offset in sys.argv[2:]:
    os.pread(descriptor, 4096, int(offset))
"""
WRITES = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
for offset in sys.argv[2:]:
    os.pwrite(descriptor, b"x" * 4096, int(offset))
"""
BEFORE_FIRST_SIGHT = """
import ctypes, glob, os, signal, sys, time
path, size, recorder = sys.argv[1], int(sys.argv[2]), os.getppid()
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
"""
FIRST_SIGHT = """
fd = os.open(path, os.O_RDWR)
os.pread(fd, 1, 0)
"""
STOP_THE_RECORDER = """
os.kill(recorder, signal.SIGSTOP)
while any(") T " not in open(stat).read() for stat in glob.glob(f"/proc/{recorder}/task/*/stat")): pass
"""
WATCH_THE_RECORDER = """
looks = libc.inotify_init()
libc.inotify_add_watch(looks, os.fsencode(path), 0x10)  # IN_CLOSE_NOWRITE
"""
PUNCH = "libc.fallocate(fd, 3, 0, size // 2)"  # KEEP_SIZE | PUNCH_HOLE


def blocks_of(numbers: list[int]) -> Ranges:
    """Ranges of these blocks; neighbours are one."""
    chosen = set(numbers)
    begins = [number for number in sorted(chosen) if number - 1 not in chosen]
    ends = [number + 1 for number in sorted(chosen) if number + 1 not in chosen]
    return [(begin * BLOCK, end * BLOCK) for begin, end in zip(begins, ends, strict=True)]


def recorded(trace_path: Path, file: Path, program: str, *arguments: object) -> tuple[characterize.Trace, int, str]:
    """The recording of a program that works on a file, the file's number in it, and what the recorder said."""
    command = (sys.executable, "-c", program, file, *map(str, arguments))
    done = run_recorder(trace_path, *command, options=("--path", str(file.parent)))
    assert done.returncode == 0, done.stderr
    trace = characterize.open(trace_path)
    (number,) = [number for number, path in trace.paths.items() if path == str(file)]
    return trace, number, done.stderr


def noted(trace: characterize.Trace, file: int) -> Ranges:
    holes = trace.holes[trace.holes["file"] == file].sort_values("offset")
    return [(row.offset, row.offset + row.bytes) for row in holes.itertuples()]


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_replay_finds_the_holes_that_the_application_found(tmp_path, kind):
    """Data in blocks with prime numbers."""
    with loop_file_system(kind, tmp_path) as system:
        file = system.place / "sparse"
        write_sparse(file, blocks_of(PRIMES), SIZE)
        blocks = file.stat().st_blocks
        assert data_ranges(file) == blocks_of(PRIMES)
        trace, number, said = recorded(tmp_path / "t", file, READS, 2 * BLOCK, 4 * BLOCK)
        assert noted(trace, number) == between(blocks_of(PRIMES), SIZE)
        metadata = trace.header.metadata["holes"]
        hole_bytes = SIZE - len(PRIMES) * BLOCK
        assert metadata == {"files": 1, "bytes": hole_bytes, "files_cut": 0, "files_not_looked_at": 0}
        assert "some holes" not in said
        document = prepare(tmp_path / "t", system.place / "image")
        assert document["image"]["hole_bytes"] == hole_bytes
        copy = system.place / "image" / f"f{number:08}"
        assert data_ranges(copy) == blocks_of(PRIMES)
        assert (copy.stat().st_size, copy.stat().st_blocks) == (SIZE, blocks)


def test_what_is_written_into_holes_at_once_is_data_in_the_end(tmp_path):
    """Whether the recorder still saw those holes or not."""
    with loop_file_system("ext4", tmp_path) as system:
        file = system.place / "sparse"
        write_sparse(file, blocks_of(PRIMES), SIZE)
        written = [4, 8, 9, 1000, BLOCKS - 50]
        trace, number, _ = recorded(tmp_path / "t", file, WRITES, *(BLOCK * block for block in written))
        after = data_ranges(file)
        assert after == blocks_of([*PRIMES, *written])
        holes = noted(trace, number)
        filled = {block * BLOCK for block in written}
        assert all(data_ranges_are_apart(holes, blocks_of(PRIMES)))
        left = {offset for begin, end in between(after, SIZE) for offset in range(begin, end, BLOCK)}
        seen = {offset for begin, end in holes for offset in range(begin, end, BLOCK)}
        assert left <= seen <= left | filled
        document = replay(tmp_path / "t", system.place / "image", keep_image=True)
        assert document["trustworthy"], document["reasons"]
        assert data_ranges(system.place / "image" / f"f{number:08}") == after


def data_ranges_are_apart(one: Ranges, other: Ranges) -> list[bool]:
    return [end <= begin or behind <= offset for offset, end in one for begin, behind in other]


@pytest.mark.parametrize(
    "made",
    [
        PUNCH,
        "os.ftruncate(fd, 0); os.ftruncate(fd, size)",
        "os.truncate(path, 0); os.truncate(path, size)",
        "os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)); os.ftruncate(fd, size)",
    ],
)
def test_a_hole_that_was_made_of_data_since_is_not_noted(tmp_path, made):
    """After first sight, and before the recorder looks; the other half was a hole all the time."""
    with loop_file_system("ext4", tmp_path) as system:
        file = system.place / "half"
        write_sparse(file, [(0, 4 * MIB)], 8 * MIB)
        program = f"{BEFORE_FIRST_SIGHT}{STOP_THE_RECORDER}{FIRST_SIGHT}{made}\nos.kill(recorder, signal.SIGCONT)"
        trace, number, said = recorded(tmp_path / "t", file, program, 8 * MIB)
        assert data_ranges(file) == []
        assert noted(trace, number) == []
        assert trace.header.metadata["holes"]["files_cut"] == 1
        assert "of 1 files some holes, or all, are not recorded" in said
        prepare(tmp_path / "t", system.place / "image")
        assert data_ranges(system.place / "image" / f"f{number:08}") == [(0, 8 * MIB)]


def test_a_hole_that_is_made_later_takes_nothing_away(tmp_path):
    """After the recorder has looked, and before it is sure of what it saw, which takes a second."""
    with loop_file_system("ext4", tmp_path) as system:
        file = system.place / "half"
        write_sparse(file, [(0, 4 * MIB)], 8 * MIB)
        later = f"os.read(looks, 4096); time.sleep(0.5); {PUNCH}"
        program = f"{BEFORE_FIRST_SIGHT}{WATCH_THE_RECORDER}{FIRST_SIGHT}{later}"
        trace, number, _ = recorded(tmp_path / "t", file, program, 8 * MIB)
        assert data_ranges(file) == []
        assert noted(trace, number) == [(4 * MIB, 8 * MIB)]
        replay(tmp_path / "t", system.place / "image", keep_image=True)
        assert data_ranges(system.place / "image" / f"f{number:08}") == []


def test_of_too_many_holes_the_largest_are_noted(tmp_path):
    """Holes of one block each, and every hundredth of two."""
    count = HOLES_OF_FILE_MAX + 900
    with loop_file_system("ext4", tmp_path, "-b", str(BLOCK)) as system:
        file = system.place / "comb"
        offset, data = 0, []
        for number in range(count):
            offset += BLOCK * (2 if number % 100 == 7 else 1)
            data.append((offset, offset + BLOCK))
            offset += BLOCK
        write_sparse(file, data, offset)
        trace, number, said = recorded(tmp_path / "t", file, READS, 0)
        holes = noted(trace, number)
        assert len(holes) == HOLES_OF_FILE_MAX
        assert set(holes) <= set(between(data, offset))
        assert sum(end - begin == 2 * BLOCK for begin, end in holes) == len(range(7, count, 100))
        assert "of 1 files some holes, or all, are not recorded" in said
        prepare(tmp_path / "t", system.place / "image")
        assert between(data_ranges(system.place / "image" / f"f{number:08}"), offset) == holes


def test_a_terabyte_is_replayed_where_it_has_no_room(tmp_path):
    size = 1 << 40
    data = [(prime << 30, (prime << 30) + MIB // 2) for prime in PRIMES if prime < 50]
    with loop_file_system("ext4", tmp_path) as system:
        file = system.place / "disk"
        write_sparse(file, data, size)
        blocks = file.stat().st_blocks
        trace, number, _ = recorded(tmp_path / "t", file, READS, *(begin for begin, _ in data), 5 << 20)
        assert noted(trace, number) == between(data, size)
        image = system.place / "image"
        document = replay(tmp_path / "t", image, keep_image=True)
        assert document["trustworthy"], document["reasons"]
        copy = image / f"f{number:08}"
        assert (copy.stat().st_size, copy.stat().st_blocks) == (size, blocks)
        assert data_ranges(copy) == data


def test_files_of_the_recording_have_no_holes_noted(tmp_path):
    """What a program has made is as it makes it again."""
    with loop_file_system("ext4", tmp_path) as system:
        file = system.place / "made"
        made = "import os, sys; fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.pwrite(fd, b'x', 1 << 30)"
        trace, number, said = recorded(tmp_path / "t", file, made)
        assert noted(trace, number) == []
        assert trace.header.metadata["holes"]["files_cut"] == 0
        assert "some holes" not in said
        replay(tmp_path / "t", system.place / "image", keep_image=True)
        copy = system.place / "image" / f"f{number:08}"
        assert copy.stat().st_blocks == file.stat().st_blocks
