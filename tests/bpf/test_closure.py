# SPDX-License-Identifier: Apache-2.0
"""What a recording has seen against what the kernel has counted on its own: by task as in /proc/PID/io, by device."""

from __future__ import annotations

import subprocess

import pytest

import characterize
from characterize.layout import BlockOp
from tests.machines.loop_file_system import loop_file_system
from tests.machines.own_place import own_place
from tests.truths.closure import agree, assert_tasks_agree
from tests.truths.told import PROGRAMS, run_recorder

LOADS = [
    "direct-syscall-read",
    "direct-aio-write",
    "direct-io_uring-read",
    "cold-random",
    "cold-sequential",
    "write-fsync",
]

pytestmark = pytest.mark.records


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    with loop_file_system("ext4", tmp_path_factory.mktemp("closure")) as made:
        yield made


@pytest.mark.parametrize("mode", LOADS)
def test_tasks_and_devices_under_load(system, tmp_path, mode):
    """The device is private: all that it does from a synchronised state on is the program's."""
    subprocess.run([PROGRAMS / "load", system.place, "prepare"], check=True, timeout=120)
    subprocess.run(["sync", "-f", system.place], check=True, timeout=120)
    before = system.disk.statistics()
    command = f"{PROGRAMS / 'load'} {system.place} {mode} && sync -f {system.place}"
    done = run_recorder(tmp_path / "t", "sh", "-c", command)
    after = system.disk.statistics()
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    assert_tasks_agree(trace)

    device = trace.header.metadata["closure"]["devices"][system.disk.name]
    blocks = trace.blocks[trace.blocks["device"] == system.disk.number]
    for op, name in ((BlockOp.READ, "read_bytes"), (BlockOp.WRITE, "write_bytes")):
        moved = after[name] - before[name]
        assert agree(device[name]["seen"], moved)
        assert agree(device[name]["kernel"], moved)
        assert agree(int(blocks.loc[blocks["op"] == op, "bytes"].sum()), moved)
    assert sum(after[name] - before[name] for name in ("read_bytes", "write_bytes")) > 500_000


# Each call is one that moves nothing: at the end of the file, or to another file system.
COPIES_OF_NOTHING = """
import errno, os, sys
source, target, elsewhere = (os.open(path, os.O_RDWR | os.O_CREAT) for path in sys.argv[2:])
end = os.fstat(source).st_size
for _ in range(int(sys.argv[1])):
    assert os.copy_file_range(source, target, 4096, end, 0) == 0
    try:
        os.copy_file_range(source, elsewhere, 4096, 0, 0)
    except OSError as error:
        assert error.errno == errno.EXDEV
    else:
        sys.exit("a copy to another file system succeeded")
"""


def test_tasks_that_copy_nothing(system, tmp_path):
    """As cp ends each file, and begins one on another file system. The kernel counts no such call."""
    (system.place / "source").write_bytes(bytes(4096))
    with own_place() as elsewhere:
        (elsewhere / "file").touch()
        files = (system.place / "source", system.place / "target", elsewhere / "file")
        done = run_recorder(tmp_path / "t", "python3", "-c", COPIES_OF_NOTHING, "1009", *files)
    assert done.returncode == 0, done.stderr
    assert "does not agree" not in done.stderr
    assert_tasks_agree(characterize.open(tmp_path / "t"))
