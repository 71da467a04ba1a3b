# SPDX-License-Identifier: Apache-2.0
"""Reads into memory that a thread has just read into: as recorded."""

import sys

import pytest

import characterize
from characterize.layout import IoFlag, IoOp
from tests.truths.told import run_recorder

AGAIN, TURNS, OTHERS = 11, 13, 7
PROGRAM = f"""
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
one, other, *many = [bytearray(4096) for _ in range({OTHERS} + 2)]
for _ in range({AGAIN}):
    os.preadv(descriptor, [one], 0)
with open(sys.argv[1], "rb", buffering=0) as plain:
    for _ in range({TURNS}):
        plain.readinto(other)
        plain.readinto(one)
for memory in many * 2:
    os.preadv(descriptor, [memory], 0)
"""


@pytest.mark.parallel
@pytest.mark.records
def test_reads_to_where_one_of_the_two_before_went(tmp_path):
    """Of calls and vectors; not of what went there before others did, nor of the first."""
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    done = run_recorder(tmp_path / "t.iotrace", sys.executable, "-c", PROGRAM, path)
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t.iotrace")
    files = trace.files.loc[trace.files["path"] == str(path), "file"]
    reads = trace.io[trace.io["file"].isin(files) & (trace.io["op"] == IoOp.READ)].sort_values("start_ns")
    reused = (reads["flags"].to_numpy() & IoFlag.REUSED_MEMORY) != 0
    assert reused.tolist() == [
        *[False, *[True] * (AGAIN - 1)],
        *[False, *[True] * (2 * TURNS - 1)],
        *[False] * 2 * OTHERS,
    ]
