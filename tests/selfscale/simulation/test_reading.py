# SPDX-License-Identifier: Apache-2.0
"""Which pages of a file reads and posix_fadvise leave cached in the simulation, beside what mincore(2) says here."""

import functools
import os
import platform
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from characterize.layout import Fileop, IoOp
from replayer.running.confine import MemoryGroup
from selfscale.measuring.environment import environment, read_ahead_places
from selfscale.simulation.operations import operations_of
from selfscale.simulation.page_cache import state_of
from selfscale.simulation.read_ahead_rules import PAGE_BYTES, read_ahead_rules
from selfscale.simulation.run import run_in, schedule_of
from tests.formulas.simulated_machine import MACHINE
from tests.machines.loop_file_system import loop_file_system
from tests.traces.made_trace import made_trace, read, write
from tests.truths.page_cache import reclaimed_pages, resident_pages

pytestmark = pytest.mark.skipif(
    not platform.release().startswith("6.18."), reason="the simulation reads ahead as Linux 6.18 does, others differ"
)

PAGES = 4096
WINDOW_KB = 128
"""Of the largest window: 32 pages, as of `MACHINE`."""
SETTLE_S = 0.05
"""For what is read behind the caller's back; mincore(2) says of pages that are there whole."""
ATTEMPTS = 5


class ReclaimedError(Exception):
    """The kernel took pages of the file meanwhile, so that what is cached does not tell what was read ahead."""


def without_reclaim(test: Callable[..., None]) -> Callable[..., None]:
    """Do a test again where the kernel took pages: some machines run DAMON, which pages out what seems idle."""

    @functools.wraps(test)
    def attempts(*arguments, **named):
        for _ in range(ATTEMPTS - 1):
            try:
                return test(*arguments, **named)
            except ReclaimedError:
                continue
        return test(*arguments, **named)

    return attempts


@dataclass
class Program:
    """Does operations on one file, and keeps the records that a recorder would have made of them."""

    path: Path
    io: list[dict] = field(default_factory=list)
    fileops: list[dict] = field(default_factory=list)
    now_ns: int = 0

    def __enter__(self):
        self.descriptor = os.open(self.path, os.O_RDWR)
        self._did(Fileop.OPEN)
        return self

    def __exit__(self, *_):
        os.close(self.descriptor)

    def _did(self, operation: Fileop, **fields):
        self.now_ns += 1_000_000
        self.fileops.append({"op": operation, "start_ns": self.now_ns, "duration_ns": 1000, **fields})

    def read(self, page: int, pages: int = 1):
        got = os.pread(self.descriptor, pages * PAGE_BYTES, page * PAGE_BYTES)
        self.now_ns += 1_000_000
        self.io.append(read(page * PAGE_BYTES, len(got), self.now_ns, 1000, missed_bytes=0))

    def write(self, page: int, pages: int = 1):
        put = os.pwrite(self.descriptor, b"w" * pages * PAGE_BYTES, page * PAGE_BYTES)
        self.now_ns += 1_000_000
        self.io.append(write(page * PAGE_BYTES, put, self.now_ns, 1000))

    def advise(self, advice: int, offset: int = 0, length: int = 0):
        os.posix_fadvise(self.descriptor, offset, length, advice)
        self._did(Fileop.FADVISE, argument=offset, length=length, flags=advice << 16)
        self.resident()

    def written(self) -> np.ndarray:
        """Which pages were ever written."""
        pages = np.zeros(PAGES, bool)
        for row in self.io:
            if row["op"] == IoOp.WRITE:
                pages[row["offset"] // PAGE_BYTES : (row["offset"] + row["result"]) // PAGE_BYTES] = True
        return pages

    def resident(self) -> list[bool]:
        """Which pages are cached here, once no more of them come or go."""
        before, now = None, resident_pages(self.path)
        while now != before:
            time.sleep(SETTLE_S)
            before, now = now, resident_pages(self.path)
        if taken := reclaimed_pages(self.path):
            raise ReclaimedError(f"{taken} pages of {self.path}")
        return now

    def simulated(self) -> list[bool]:
        """Which pages are cached in the end."""
        files = [{"file": 1, "size_bytes": PAGES * PAGE_BYTES}]
        operations = operations_of(made_trace(self.io, fileops=self.fileops, files=files, paths={1: "/a"}))
        rules = read_ahead_rules(environment(self.path.parent, None))
        roomy = MACHINE._replace(cache_pages=2 * PAGES, dirty_pages=1e9, background_pages=1e9, read_ahead=rules)
        state = state_of(operations, roomy)
        run_in(state, schedule_of(operations))
        return state.pages.cached[: operations.file_end[0]].tolist()


@pytest.fixture(scope="module", params=["ext4", "xfs", "btrfs"])
def file(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("reading")
    with loop_file_system(request.param, directory) as system:
        for place in read_ahead_places(system.place):
            (place / "read_ahead_kb").write_text(str(WINDOW_KB))
        path = system.place / "file"
        path.write_bytes(os.urandom(PAGES * PAGE_BYTES))
        yield path


def evicted(path: Path) -> Path:
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    assert not any(resident_pages(path))
    return path


def test_what_the_kernel_takes_back_is_noticed(file):
    """And what is dropped on demand is not held against it, nor what was taken before."""
    with MemoryGroup(PAGES * PAGE_BYTES // 2) as group, Program(evicted(file)) as program:
        subprocess.run(group.wrap(["cat", str(file)]), stdout=subprocess.DEVNULL, check=True)
        with pytest.raises(ReclaimedError):
            program.resident()
    assert reclaimed_pages(evicted(file)) == 0


def scan(program: Program, pages: int, each: int = 1):
    for page in range(0, pages, each):
        program.read(page, each)


@pytest.mark.parametrize("pages", [1, 50, 401])
@pytest.mark.parametrize("each", [1, 33, 64])
@pytest.mark.parametrize("advice", [os.POSIX_FADV_NORMAL, os.POSIX_FADV_RANDOM, os.POSIX_FADV_SEQUENTIAL])
@without_reclaim
def test_how_far_is_read_ahead(file, advice, each, pages):
    with Program(evicted(file)) as program:
        program.advise(advice)
        scan(program, pages, each)
    found = program.simulated()
    assert np.flatnonzero(found).tolist() == np.flatnonzero(program.resident()).tolist()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("advice", [os.POSIX_FADV_NORMAL, os.POSIX_FADV_SEQUENTIAL])
@without_reclaim
def test_runs_and_jumps(file, advice, seed):
    """Random requests behind cached pages are read ahead, too, and windows meet what is cached already."""
    draw = random.Random(seed)
    with Program(evicted(file)) as program:
        program.advise(advice)
        for _ in range(60):
            page = draw.randrange(PAGES - 200)
            for _ in range(draw.choice([1, 1, 1, 2, 5, 12])):
                pages = draw.choice([1, 1, 2, 4, 9, 40])
                program.read(page, pages)
                page = min(page + pages, PAGES - 200)
    found, here = np.array(program.simulated()), np.array(program.resident())
    assert 0 < here.sum() < PAGES
    assert np.flatnonzero(found != here).tolist() == []


@without_reclaim
def test_what_an_advice_changes_and_an_open_takes_back(file):
    ends = []
    for advice in (None, os.POSIX_FADV_RANDOM, os.POSIX_FADV_SEQUENTIAL):
        with Program(evicted(file)) as program:
            if advice is not None:
                program.advise(advice)
        with program:
            scan(program, 150)
        ends.append(sum(program.simulated()))
        assert ends[-1] == sum(program.resident())
    assert len(set(ends)) == 1
    assert ends[0] > 150


@pytest.mark.parametrize("seed", range(4))
@without_reclaim
def test_ranges_that_are_wanted_and_not_wanted(file, seed):
    """With parts of pages, dirty pages, and ranges that are larger than what is read at once."""
    draw = random.Random(seed)
    with Program(evicted(file)) as program:
        program.advise(os.POSIX_FADV_RANDOM)
        for _ in range(24):
            page = draw.randrange(PAGES - 40)
            match draw.randrange(4):
                case 0:
                    program.read(page, draw.randint(1, 40))
                case 1:
                    program.write(page, draw.randint(1, 40))
                case 2:
                    length = draw.choice([1, PAGE_BYTES, 10 * PAGE_BYTES + 3, 900 * PAGE_BYTES])
                    program.advise(os.POSIX_FADV_WILLNEED, page * PAGE_BYTES + draw.randrange(PAGE_BYTES), length)
                case 3:
                    length = draw.choice([1, PAGE_BYTES, 10 * PAGE_BYTES + 3, 900 * PAGE_BYTES, 0])
                    program.advise(os.POSIX_FADV_DONTNEED, page * PAGE_BYTES + draw.randrange(PAGE_BYTES), length)
    found, here = np.array(program.simulated()), np.array(program.resident())
    assert 0 < here.sum() < PAGES
    # What was dirty is dropped as well where it is stored in time, but with the whole folio only.
    assert np.flatnonzero((found != here) & ~program.written()).tolist() == []
