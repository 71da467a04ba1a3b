# SPDX-License-Identifier: Apache-2.0
"""Which parts of a file were cached is found out also where nearly all is a hole, or it is said that it is not."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import pytest

import characterize
from tests.machines.kernel import has_type
from tests.machines.loop_file_system import loop_file_system
from tests.truths.told import run_recorder

PAGE = mmap.PAGESIZE
SECONDS_MAX = 30

pytestmark = [
    pytest.mark.records,
    pytest.mark.skipif(not has_type("cachestat"), reason="before 6.5 the kernel counts no cached pages: a named limit"),
]


def make_sparse(path: Path, size: int) -> list[tuple[int, int]]:
    """A file without data; its ranges that are cached, which are its first and its last page."""
    with path.open("wb") as stream:
        stream.truncate(size)
    ranges = [(0, PAGE), (size - PAGE, size)]
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
    for first, _ in ranges:
        assert len(os.pread(descriptor, PAGE, first)) == PAGE
    os.close(descriptor)
    return ranges


def recorded_ranges(trace: characterize.Trace, path: Path) -> list[tuple[int, int]]:
    file = next(file for file, name in trace.paths.items() if name == str(path))
    rows = trace.resident[trace.resident["file"] == file]
    return [(int(row.offset), int(row.offset + row.bytes)) for row in rows.itertuples()]


@pytest.mark.parametrize("power", [40, 49, 62])
def test_ranges_of_sparse_files(tmp_path, power):
    """Of 1 TiB, 512 TiB and 4 EiB, which would take too long; and of one that waits for its turn behind that."""
    with loop_file_system("xfs", tmp_path) as system:
        sparse, small = system.place / "sparse", system.place / "small"
        expected = {sparse: make_sparse(sparse, 1 << power), small: make_sparse(small, 1 << 20)}
        begin = time.monotonic()
        done = run_recorder(tmp_path / "t", "sh", "-c", f"exec 3<{sparse} 4<{small}; sleep 0.2")
        assert time.monotonic() - begin < SECONDS_MAX
    assert done.returncode == 0, done.stderr
    given_up = power == 62
    assert ("which parts of 1 files were cached is not recorded" in done.stderr) == given_up
    if given_up:
        expected[sparse] = []
    trace = characterize.open(tmp_path / "t")
    assert {path: recorded_ranges(trace, path) for path in expected} == expected
    counted = trace.files.set_index("path")["resident_bytes"]
    assert [counted[str(path)] for path in expected] == [2 * PAGE] * 2
