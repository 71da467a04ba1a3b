# SPDX-License-Identifier: Apache-2.0
"""Calls that name no open file, behind one that does: what they read and dirty is not taken for that one's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pandas as pd
import pytest

import characterize
from characterize.layout import BlockDataClass, BlockOp, Fileop
from tests.machines.kernel import has_tracepoint
from tests.machines.loop_file_system import loop_file_system
from tests.truths.page_cache import cache_only
from tests.truths.told import run_recorder

PAGE_BYTES = 4096
FILE_BYTES = 61 * PAGE_BYTES

pytestmark = [pytest.mark.records, pytest.mark.parallel]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with loop_file_system("ext4", tmp_path_factory.mktemp("ext4")) as system:
        yield system.place


def make_cold(file: Path) -> None:
    file.write_bytes(os.urandom(FILE_BYTES))
    cache_only(file, [])


def record(trace_path: Path, script: str, *arguments: Path) -> characterize.Trace:
    done = run_recorder(trace_path, sys.executable, "-c", script, *arguments)
    assert done.returncode == 0, done.stderr
    return characterize.open(trace_path)


def pieces_of(trace: characterize.Trace, op: BlockOp) -> pd.DataFrame:
    return trace.block_data[trace.blocks["op"].loc[trace.block_data["block"]].to_numpy() == op]


READ_AND_MAP = """
import mmap, os, sys

mapped, read, flags = sys.argv[1], sys.argv[2], int(sys.argv[3])
file = os.open(mapped, os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
other = os.open(read, os.O_RDONLY | flags)
os.preadv(other, [mmap.mmap(-1, 4096)], 0)
mmap.mmap(file, 0, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
"""


@pytest.mark.parametrize("before", ["cached", "direct"])
def test_what_a_mapping_reads_at_once_is_of_its_file(place, tmp_path, before):
    """Behind a read of the same file through the cache, and behind a direct one of another."""
    mapped, other = place / f"mapped-{before}", place / f"read-{before}"
    for file in (mapped, other):
        make_cold(file)
    read, flags = (mapped, 0) if before == "cached" else (other, os.O_DIRECT)
    trace = record(tmp_path / "t", READ_AND_MAP, mapped, read, str(flags))

    file = next(id for id, path in trace.paths.items() if path == str(mapped))
    pieces = pieces_of(trace, BlockOp.READ)
    pieces = pieces[pieces["file"] == file]
    assert set(pieces["class"]) == {BlockDataClass.FILL}
    assert pieces["bytes"].sum() == FILE_BYTES
    if has_tracepoint("mm_filemap_fault"):
        reads = trace.io[trace.io["file"] == file]
        assert reads["missed_bytes"].sum() == FILE_BYTES
        assert set(pieces["cause"]) <= set(reads["id"])


READ_AND_CUT_OFF = """
import os, sys

file = os.open(sys.argv[1], os.O_RDWR)
os.pread(file, 4096, 0)
os.truncate(sys.argv[1], 101)
os.fsync(file)
"""


def test_what_a_truncation_by_name_dirties_is_its_own(place, tmp_path):
    """The rest of the last page, which it clears."""
    make_cold(place / "cut")
    trace = record(tmp_path / "t", READ_AND_CUT_OFF, place / "cut")
    file = next(id for id, path in trace.paths.items() if path == str(place / "cut"))
    pieces = pieces_of(trace, BlockOp.WRITE)
    pieces = pieces[pieces["file"] == file]
    cuts = trace.fileops[trace.fileops["op"] == Fileop.TRUNCATE]
    assert len(cuts) == 1
    assert pieces["bytes"].sum() == PAGE_BYTES
    assert set(pieces["class"]) == {BlockDataClass.WRITEBACK}
    assert set(pieces["cause"]) == set(cuts["id"])
