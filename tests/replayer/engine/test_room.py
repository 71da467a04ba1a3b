# SPDX-License-Identifier: Apache-2.0
"""Whether what a trace writes has room, as said before it begins and as small file systems say when they are full."""

import errno
import json
import re
import subprocess

import numpy as np
import pytest

import characterize
from characterize.layout import FileFlag, Fileop, IoFlag, Source
from tests.machines.loop_file_system import IMAGE_BYTES, loop_file_system
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, needs_engine, op

pytestmark = [needs_engine, pytest.mark.parallel, pytest.mark.root]
pytest_plugins = ["tests.machines.small_file_system"]

MIB = 1 << 20
NAMES_FROM = 1 << 31
INODES_FROM = 7000
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 0x01, 0x02, 0x10  # linux/falloc.h
KINDS = {"close": Fileop.CLOSE, "unlink": Fileop.UNLINK}


def trace_of(steps, laid_out=None):
    """Steps ``(what, file, ...)`` of one thread, in MiB; `laid_out`: sizes of files that are there before."""
    io, fileops, paths = [], [], {}
    files = {file: {"file": file, "size_bytes": size * MIB} for file, size in (laid_out or {}).items()}
    for at, (what, file, *more) in enumerate(steps, 1):
        start = 10 * at
        files.setdefault(file, {"file": file, "flags": FileFlag.CREATED, "inode": INODES_FROM + file})
        paths.setdefault(file, f"/#{INODES_FROM + file}" if what == "open without a name" else f"/{file}")
        if what == "write":
            io.append(write(more[0] * MIB, more[1] * MIB, start, file=file))
        elif what == "map":
            io.append(read(0, 4096, start, file=file, source=Source.MMAP))
        elif what in ("open", "open without a name"):
            flag = IoFlag.TRUNCATED if file in (laid_out or {}) else IoFlag.CREATED
            fileops.append(op(Fileop.OPEN, start, file=file, flags=flag))
        elif what == "truncate":
            fileops.append(op(Fileop.TRUNCATE, start, file=file, argument=more[0] * MIB))
        elif what == "allocate":
            mode, offset, length = more
            fields = {"flags": mode << 16, "argument": offset * MIB, "length": length * MIB}
            fileops.append(op(Fileop.FALLOCATE, start, file=file, **fields))
        elif what == "rename":
            name = NAMES_FROM + at
            files[name] = {"file": name, "flags": FileFlag.NEW_NAME}
            paths[name] = more[0]
            fileops.append(op(Fileop.RENAME, start, file=file, argument=name))
        else:
            fileops.append(op(KINDS[what], start, file=file))
    return made_trace(io, fileops=fileops, files=list(files.values()), paths=paths)


def check(trace, place, tmp_path, fits):
    """Said before as it is: with room everything is done, and else, if forced to begin, the file system is full."""
    path = characterize.write(trace, tmp_path / "t.iotrace")

    def run(*options):
        command = [ENGINE, path, f"--directory={place / 'image'}", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    forced = run("--force-space")
    document = json.loads(forced.stdout)
    assert (not document["mismatches"]) == fits, document["mismatches"]
    assert set(document["errors"]) <= {"ENOSPC"}
    said = run()
    assert said.returncode == (0 if fits else 1), said.stderr
    assert ("too little space" in said.stderr) != fits


def each(count, *steps):
    """The same steps for files 1, 2, ..."""
    return [(what, file, *more) for file in range(1, count + 1) for what, *more in steps]


FITS = {
    "holes_that_stay": [("truncate", 1, 1024), ("write", 1, 500, 3)],
    "written_again_within_the_size": [("truncate", 1, 3), *[("write", 1, at % 3, 1) for at in range(9)]],
    "removed_and_then_closed": each(10, ("open",), ("write", 0, 1), ("unlink",), ("close",)),
    "removed_before_they_are_written": each(10, ("open",), ("unlink",), ("write", 0, 1), ("close",)),
    "made_again": [step for _ in range(5) for step in each(1, ("open",), ("write", 0, 2), ("close",), ("unlink",))],
    "allocated_and_written": [("allocate", 1, KEEP_SIZE, 0, 3), *[("write", 1, at, 1) for at in range(3)]],
    "allocated_and_cut": each(3, ("allocate", KEEP_SIZE, 0, 3), ("truncate", 0)),
    "made_without_a_name_and_closed": each(10, ("open without a name",), ("write", 0, 1), ("close",)),
    "renamed_over_and_closed": each(10, ("open",), ("write", 0, 1), ("close",), ("rename", "/data")),
}
FULL = {
    "holes_that_are_filled": [("truncate", 1, 16), *[("write", 1, 2 * at, 1) for at in range(6)]],
    "written_backwards": [("write", 1, at, 1) for at in (5, 4, 3, 2, 1, 0)],
    "removed_and_still_open": each(6, ("open",), ("write", 0, 1), ("unlink",)),
    "removed_and_still_mapped": each(6, ("open",), ("write", 0, 1), ("unlink",), ("close",), ("map",)),
    "made_without_a_name_and_still_open": each(6, ("open without a name",), ("write", 0, 1)),
    "renamed_over_and_still_open": each(6, ("open",), ("write", 0, 1), ("rename", "/data")),
    "allocated_beyond_the_end": [("allocate", 1, KEEP_SIZE, 0, 6)],
}


@pytest.mark.parametrize("name", FITS)
def test_what_has_room_is_begun(small_file_system, tmp_path, name):
    check(trace_of(FITS[name]), small_file_system, tmp_path, fits=True)


@pytest.mark.parametrize("name", FULL)
def test_what_has_no_room_is_not_begun(small_file_system, tmp_path, name):
    check(trace_of(FULL[name]), small_file_system, tmp_path, fits=False)


@pytest.mark.parametrize("first", [[("open", 1), ("write", 1, 0, 3)], [("unlink", 1), ("write", 2, 0, 3)]])
def test_room_that_the_image_had_is_used_again(small_file_system, tmp_path, first):
    """A file of 3 MiB that is there before is written anew, or removed before another one is written."""
    check(trace_of(first, {1: 3}), small_file_system, tmp_path, fits=True)


@pytest.mark.parametrize(
    ("mode", "fits"),
    [(KEEP_SIZE, False), (ZERO_RANGE, False), (ZERO_RANGE | KEEP_SIZE, False), (PUNCH_HOLE | KEEP_SIZE, True)],
)
def test_modes_of_fallocate(tmp_path, mode, fits):
    """More than the file system is large, beyond the end of a file that is there before."""
    trace = trace_of([("allocate", 1, mode, 1, 2 * IMAGE_BYTES // MIB)], {1: 1})
    with loop_file_system("ext4", tmp_path) as system:
        check(trace, system.place, tmp_path, fits)


def test_what_had_no_room_when_it_was_recorded_needs_none(small_file_system, tmp_path):
    io = [write(0, MIB, 10, asked_bytes=64 * MIB), write(MIB, -errno.ENOSPC, 20, asked_bytes=64 * MIB)]
    allocation = op(Fileop.FALLOCATE, 5, length=64 * MIB, result=-errno.ENOSPC)
    trace = made_trace(io, fileops=[allocation], files=[{"file": 1, "flags": FileFlag.CREATED}])
    check(trace, small_file_system, tmp_path, fits=True)


LEFT = {
    "made": [{"file": 1, "flags": FileFlag.CREATED}],
    "grown": [{"file": 1, "size_bytes": MIB // 2}],
    "filled": [{"file": 1, "size_bytes": 3 * MIB}],
}


@pytest.mark.parametrize("left", LEFT)
def test_what_an_earlier_replay_has_left_has_room_again(small_file_system, tmp_path, left):
    """3 of 4 MiB, in an image that stays: a file that it made, one that it made larger, one whose hole it filled."""
    holes = [{"file": 1, "bytes": 3 * MIB}] if left == "filled" else []
    trace = made_trace([write(at * MIB, MIB, 10 * at) for at in range(3)], files=LEFT[left], holes=holes)
    path = characterize.write(trace, tmp_path / "t.iotrace")
    command = [ENGINE, path, f"--directory={small_file_system / 'image'}", "--keep-image"]
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert (small_file_system / "image" / "f00000001").stat().st_blocks * 512 == 3 * MIB
    other = made_trace([write(0, 2 * MIB, 1, file=2)], files=[{"file": 2, "flags": FileFlag.CREATED}])
    command[1] = characterize.write(other, tmp_path / "other.iotrace")
    assert "too little space" in subprocess.run(command, capture_output=True, text=True, check=False).stderr


class Disk:
    """What is taken, MiB by MiB, by files of which `steps` are done at random."""

    def __init__(self, random, laid_out, *, holes):
        self.random, self.holes, self.laid_out = random, holes, laid_out
        self.blocks = {file: set(range(size)) for file, size in laid_out.items()}
        self.size, self.opens, self.removed = dict(laid_out), {}, set()
        self.steps = []
        self.most = self.taken()

    def taken(self):
        return sum(map(len, self.blocks.values()))

    def do(self, what, file, *more):
        blocks = self.blocks.setdefault(file, set())
        size = self.size.setdefault(file, 0)
        if what in ("write", "allocate"):
            offset, length = more[-2:]
            blocks |= set(range(offset, offset + length))
            self.size[file] = max(size, offset + length) if what == "write" else size
        elif what in ("truncate", "open"):
            self.size[file] = more[0] if more else 0
            blocks -= {block for block in blocks if block >= self.size[file]}
            self.opens[file] = self.opens.get(file, 0) + (what == "open")
        elif what == "close":
            self.opens[file] -= 1
        elif what == "unlink":
            self.removed.add(file)
        if file in self.removed and not self.opens.get(file):
            blocks.clear()
        self.steps.append((what, file, *more))
        self.most = max(self.most, self.taken())

    def do_something(self):
        file, (offset, length) = int(self.random.integers(1, 5)), self.random.integers(0, 6, 2).tolist()
        what = self.random.choice(["write", "write", "truncate", "open", "close", "unlink", "allocate"])
        size, opens = self.size.get(file, 0), self.opens.get(file, 0)
        if file in self.removed and not opens:
            if what == "open" and file not in self.laid_out:  # a new file with the same id
                self.removed.discard(file)
                self.do("open", file)
        elif what == "write":
            self.do("write", file, offset if self.holes else min(offset, size), 1 + length)
        elif what == "truncate":
            self.do("truncate", file, offset if self.holes else min(offset, size))
        elif what == "open" and file not in self.removed and (file in self.laid_out or file not in self.blocks):
            self.do("open", file)
        elif (what == "close" and opens) or (what == "unlink" and file in self.blocks and file not in self.removed):
            self.do(what, file)
        elif what == "allocate" and self.holes:
            self.do("allocate", file, KEEP_SIZE, offset, 1 + length)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_room_is_never_too_little_and_without_holes_exact(small_file_system, tmp_path, seed, holes):
    """A file of 8 MiB, which has no room, is written first, so that all that is needed is told."""
    disk = Disk(np.random.default_rng(seed), {1: 3, 2: 1}, holes=holes)
    for file in disk.laid_out:
        disk.do("write", file, 0, 1)
    disk.do("write", 9, 0, 8)
    for _ in range(40):
        disk.do_something()
    path = characterize.write(trace_of(disk.steps, disk.laid_out), tmp_path / "t.iotrace")
    command = [ENGINE, path, f"--directory={small_file_system / 'image'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    needed = int(re.search(r"need (\d+) bytes more", done.stderr)[1])
    exact = disk.most * MIB + disk.most * MIB // 100
    assert needed >= exact if holes else needed == exact
