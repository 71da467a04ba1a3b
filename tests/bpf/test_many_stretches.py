# SPDX-License-Identifier: Apache-2.0
"""More parts of files that are dirtied than the recorder keeps: whose one is that was pushed out is not known."""

from __future__ import annotations

import sys

import pytest

import characterize
from characterize.layout import BlockDataClass, BlockOp
from tests.machines.loop_file_system import loop_file_system
from tests.truths.told import run_recorder

STRETCHES_MAX = 1 << 18  # DIRTY_STRETCHES_MAX of bpf/maps.bpf.h, of a mebibyte each
WRITE_BYTES = 4096  # a page, as what is dirtied again is kept longer

DIRTY = """
import os, sys

directory, stretches, write_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
early = os.open(directory + "/early", os.O_RDWR | os.O_CREAT)
many = os.open(directory + "/many", os.O_RDWR | os.O_CREAT)
os.pwrite(early, bytes(write_bytes), 0)
for stretch in range(stretches):
    os.pwrite(many, b"x", stretch << 20)
    if stretch % 4096 == 4095:
        os.ftruncate(many, 0)  # none is written back
os.ftruncate(many, 0)
os.fsync(early)
"""

pytestmark = pytest.mark.records


def classes_of_early_write(directory, trace_path, stretches: int) -> set[int]:
    """Of what is written back of a file that was written before others got so many dirty stretches."""
    command = [sys.executable, "-c", DIRTY, directory, str(stretches), str(WRITE_BYTES)]
    done = run_recorder(trace_path, *command)
    assert done.returncode == 0, done.stderr
    trace = characterize.open(trace_path)
    pieces = trace.block_data[trace.block_data["file"].map(trace.paths) == f"{directory}/early"]
    written = pieces[trace.blocks["op"].loc[pieces["block"]].to_numpy() == BlockOp.WRITE]
    assert written["bytes"].sum() == WRITE_BYTES
    return set(written["class"])


def test_whose_a_forgotten_stretch_is_is_not_known(tmp_path):
    """And not said to be a program's that is not traced."""
    with loop_file_system("ext4", tmp_path) as system:
        few = classes_of_early_write(system.place, tmp_path / "few.iotrace", 3)
        many = classes_of_early_write(system.place, tmp_path / "many.iotrace", STRETCHES_MAX + 4099)
    assert few == {BlockDataClass.WRITEBACK}
    # Where that takes long, the kernel has written it back before.
    assert many <= {BlockDataClass.UNKNOWN, BlockDataClass.WRITEBACK}
