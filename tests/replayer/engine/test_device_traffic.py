# SPDX-License-Identifier: Apache-2.0
"""What the engine says of the bytes that storage was given, against the device's own counter."""

import os

import pytest

import characterize
from characterize.layout import Fileop, HeaderFlag
from tests.machines.loop_file_system import loop_file_system
from tests.runs.image_engine import run
from tests.runs.running_replay import lines_and_document
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import needs_engine

pytestmark = [needs_engine, pytest.mark.root]
pytest_plugins = ["tests.machines.small_file_system"]

SIZE_BYTES = 4093 * 4096
WRITES = 307
"""Of one page in each 13, so that hardly two of them are in one folio of a page size, and many in a large one."""


def synced_writes(path):
    """Pages written far from each other, each synced by itself, twice over the file."""
    starts = range(0, 26 * WRITES, 26)
    io = [write(4096 * (at // 2 % 4093), 4096, at, thread=1, file=1) for at in starts]
    syncs = [{"op": Fileop.FSYNC, "start_ns": at + 2, "duration_ns": 1} for at in starts]
    files = [{"file": 1, "size_bytes": SIZE_BYTES}]
    return characterize.write(made_trace(io, fileops=syncs, files=files, flags=HeaderFlag.UNTIMED), path)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_writes_are_those_that_the_device_counted(tmp_path, kind):
    trace = synced_writes(tmp_path / "t.iotrace")
    with loop_file_system(kind, tmp_path) as made:
        image = f"--directory={made.place / 'image'}"
        assert run(trace, image, "--phase=prepare").returncode == 0
        os.sync()
        before = made.disk.statistics()
        done = run(trace, image, "--phase=run", "--interval-ms=1")
        given = {name: count - before[name] for name, count in made.disk.statistics().items()}
    assert done.returncode == 0, done.stderr
    lines, _ = lines_and_document(done.stdout)
    told_bytes = sum(line["device_write_bytes"] for line in lines)
    moved_bytes = sum(line["bytes"] for line in lines)
    # Each write is synced before the next: all but one of an interval's are at the device. Its last part is not told.
    assert moved_bytes - 4096 <= told_bytes <= given["write_bytes"]
    told_writes = sum(line["device_writes"] for line in lines)
    assert sum(line["requests"] for line in lines) - 1 <= told_writes <= given["writes"]
    assert sum(line["device_reads"] for line in lines) <= given["reads"]
    assert moved_bytes > 4096 * WRITES / 2
    # By the account of a process all of a folio of which a page is written; never less than what was written.
    assert sum(line["dirtied_bytes"] for line in lines) >= moved_bytes - 4096


def test_of_a_directory_in_memory_no_device_is_known(tmp_path, small_file_system):
    trace = characterize.write(
        made_trace(
            [write(4096 * at, 4096, at) for at in range(512)],
            files=[{"file": 1, "size_bytes": 4096 * 512}],
            flags=HeaderFlag.UNTIMED,
        ),
        tmp_path / "t.iotrace",
    )
    image = f"--directory={small_file_system / 'image'}"
    done = run(trace, image, "--loop", "--max-seconds=0.1", "--interval-ms=10")
    lines, _ = lines_and_document(done.stdout)
    assert lines
    assert all("device_write_bytes" not in line for line in lines)
    assert all(line["dirtied_bytes"] == 0 for line in lines)


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_intervals_say_what_storage_moved(tmp_path, cache):
    """A cold pass reads every byte once, a warm one nothing."""
    requests = 20_011  # of 4 KiB: 82 MB, so that there are intervals
    io = [read(4096 * at, 4096, at, 0, thread=1, file=1) for at in range(requests)]
    files = [{"file": 1, "size_bytes": 4096 * requests}]
    trace = characterize.write(made_trace(io, files=files, flags=HeaderFlag.UNTIMED), tmp_path / "t.iotrace")
    with loop_file_system("ext4", tmp_path) as made:  # nobody else reads of it
        done = run(trace, f"--directory={made.place / 'image'}", "--cache", cache, "--interval-ms=2")
    lines, _ = lines_and_document(done.stdout)
    assert lines
    assert all(line["dirtied_bytes"] == 0 for line in lines)
    read_bytes = sum(line["device_read_bytes"] for line in lines)
    moved_bytes = sum(line["bytes"] for line in lines)
    if cache == "warm":
        assert read_bytes == 0
    else:
        # Read-ahead is ahead, and the last interval, a part, is not printed.
        assert moved_bytes <= read_bytes <= 4096 * requests
