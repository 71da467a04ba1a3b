# SPDX-License-Identifier: Apache-2.0
"""What a replay does to its target: nothing without --write, only what the trace says with it; and failing devices."""

import json
import os
import signal
import subprocess

import numpy as np
import pytest

import characterize
from characterize.layout import Fileop, FileType
from tests.machines.block_device import run
from tests.machines.guarded_device import PUNCH, PUNCHED, SIZE, WRITES, digest, trace_of
from tests.runs.running_replay import conserved, lines_and_document, looped, wait_until
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, needs_engine, needs_strace, op, strace

pytest_plugins = ["tests.machines.guarded_device"]
pytestmark = [needs_engine, pytest.mark.root]


@needs_strace
def test_without_write_nothing_is_written_and_all_of_it_is_counted(disk, tmp_path):
    with (tmp_path / "disk").open("r+b") as stream:
        stream.write(np.random.default_rng(1).bytes(8 << 20))
    before = digest(tmp_path)
    command = [str(ENGINE), str(trace_of(tmp_path)), f"--device={disk.path}"]
    done, calls = strace(command, tmp_path / "log", "openat,open,pread64,pwrite64,fallocate,fsync,ioctl")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["skipped_reasons"] == {"writes_off": 4}
    assert document["operations"]["done"] == 8
    assert document["device"] == {
        "path": disk.path,
        "size_bytes": SIZE,
        "logical_block_bytes": 512,
        "write": False,
    }
    assert digest(tmp_path) == before
    opened = [call for call in calls if call.name == "openat" and disk.path in call.arguments]
    assert opened
    assert "O_EXCL" in opened[0].arguments
    assert not any(mode in call.arguments for call in calls for mode in ("O_RDWR", "O_WRONLY"))
    names = [call.name for call in calls]
    assert "pwrite64" not in names
    assert "fallocate" not in names
    assert sum(call.name == "pread64" and call.numbers[0] == 4096 and call.numbers[1] < 7 * 4096 for call in calls) == 7


def test_a_trace_that_only_writes_is_refused_without_write(disk, tmp_path):
    """Beside other files, which go to a directory, they are left out and counted."""
    files = [{"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": 8192}, {"file": 2, "size_bytes": 8192}]
    fileops = [op(Fileop.FSYNC, 9), op(Fileop.FALLOCATE, 10, flags=PUNCH, argument=0, length=4096)]
    io = [write(4096, 4096, 1)]
    alone = characterize.write(made_trace(io, fileops=fileops, files=files[:1]), tmp_path / "alone.iotrace")
    both = made_trace([*io, write(0, 100, 5, file=2)], fileops=fileops, files=files)
    beside = characterize.write(both, tmp_path / "beside.iotrace")

    def call(*options):
        command = [ENGINE, *options, f"--device={disk.path}"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    before = digest(tmp_path)
    for options in [], [f"--directory={tmp_path / 'image'}"]:
        done = call(alone, *options)
        assert (done.returncode, done.stdout) == (1, "")
        assert "there is nothing to do; for its writes give --write and --confirm" in done.stderr
    assert not (tmp_path / "image").exists()
    document = json.loads(call(beside, f"--directory={tmp_path / 'image'}").stdout)
    assert document["skipped_reasons"] == {"writes_off": 2}
    assert document["requests"] == {"read": 0, "write": 1}
    assert digest(tmp_path) == before
    document = json.loads(call(alone, "--write", f"--confirm={SIZE}").stdout)
    assert document["requests"] == {"read": 0, "write": 1}


def test_with_write_only_what_the_trace_writes_changes(engine, disk, tmp_path):
    """The trace writes into the first and the last 8 MiB, which have random bytes; nothing is to come between them."""
    random, size = np.random.default_rng(2), 8 << 20
    file = tmp_path / "disk"
    with file.open("r+b") as stream:
        for at in (0, SIZE - size):
            stream.seek(at)
            stream.write(random.bytes(size))
    run("blockdev", "--flushbufs", disk.path)

    def ends():
        return np.concatenate([np.fromfile(file, np.uint8, size, offset=at) for at in (0, SIZE - size)])

    before = ends()
    done = engine(disk.path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["operations"]["done"] == 12
    assert document["device"]["write"]
    with file.open("rb") as stream:
        assert os.lseek(stream.fileno(), size, os.SEEK_DATA) == SIZE - size
    changed = np.flatnonzero(before != ends())
    changed = np.where(changed < size, changed, changed + SIZE - 2 * size)
    intended = np.concatenate([np.arange(offset, offset + length) for offset, length in [*WRITES, PUNCHED]])
    assert np.isin(changed, intended).all()
    # Of random bytes over random bytes, one in 256 stays what it was by chance.
    assert len(changed) == pytest.approx(len(intended), rel=0.02)


def test_damaged_traces_change_nothing_either(disk, tmp_path):
    """Random bytes of the records changed, 60 times; without --write."""
    random = np.random.default_rng(17)
    with (tmp_path / "disk").open("r+b") as stream:
        stream.write(random.bytes(8 << 20))
    before = digest(tmp_path)
    path = trace_of(tmp_path)
    whole = path.read_bytes()
    replayed = 0
    for _ in range(60):
        data = bytearray(whole)
        for at in random.integers(4096, len(data), 5):
            data[at] = random.integers(256)
        path.write_bytes(data)
        command = [ENGINE, path, f"--device={disk.path}", f"--directory={tmp_path / 'image'}", "--max-seconds=1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode in {0, 1, 3}, done.stderr
        replayed += done.returncode != 1
    run("sync", disk.path)
    assert digest(tmp_path) == before
    assert replayed > 10


def test_each_pass_begins_without_the_pages_of_the_device(disk, tmp_path):
    half, piece = 16 << 20, 1 << 18
    io = [
        read(thread * half + at, piece, 1 + at, thread=1 + thread) for at in range(0, half, piece) for thread in (0, 1)
    ]
    files = [{"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": SIZE}]
    path = characterize.write(made_trace(io, files=files), tmp_path / "t.iotrace")
    before = disk.statistics()["read_bytes"]
    # What is read ahead of the stop is less than one more.
    document = looped([ENGINE, path, f"--device={disk.path}"], requests=11 * len(io))
    assert document["passes"] > 10
    assert disk.statistics()["read_bytes"] - before == pytest.approx(document["bytes"]["read"], rel=0.1)


@pytest.mark.parametrize("beside", [False, True])
def test_a_sync_of_everything_flushes_the_device(disk, tmp_path, beside):
    """Long before the kernel does by itself; its close does, too, which would come a minute later."""
    size, piece = 64 << 20, 1 << 20
    io = [write(at, piece, 1000 + at) for at in range(0, size, piece)]
    io.append(read(0, 4096, 60_000_000_000))
    files = [{"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": SIZE}]
    made = made_trace(io, fileops=[op(Fileop.SYNCFS, 100_000_000, file=0)], files=files)
    path = characterize.write(made, tmp_path / "t.iotrace")
    options = [f"--device={disk.path}", "--write", f"--confirm={SIZE}", "--timing=recorded"]
    options += [f"--directory={tmp_path / 'image'}"] * beside
    before = disk.statistics()["write_bytes"]
    process = subprocess.Popen([ENGINE, path, *options], stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: disk.statistics()["write_bytes"] - before >= size, seconds=15)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=60)[0]
    document = json.loads(out)
    assert document["operations"]["done"] == 65
    assert document["skipped_reasons"] == {"stopped": 1}


def test_files_beside_the_device_need_a_directory(disk, tmp_path):
    io = [read(0, 4096, 1), write(0, 100, 5, file=2)]
    files = [{"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": 4096}, {"file": 2, "size_bytes": 50}]
    path = characterize.write(made_trace(io, files=files), tmp_path / "t.iotrace")

    def call(*options):
        command = [ENGINE, path, f"--device={disk.path}", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert "give --directory" in call().stderr
    before = digest(tmp_path)
    document = json.loads(call(f"--directory={tmp_path / 'image'}", "--keep-image").stdout)
    assert document["operations"]["done"] == 2
    assert (tmp_path / "image" / "f00000002").stat().st_size == 100
    assert not (tmp_path / "image" / "f00000001").exists()
    assert digest(tmp_path) == before


def test_a_device_that_fails(engine, disk, tmp_path):
    """A loop device answers with EIO behind the end of a file that was cut."""
    os.truncate(tmp_path / "disk", 3 * 4096)
    done = engine(disk.path, confirm=None)
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert document["errors"] == {"EIO": 4}
    assert conserved(document["operations"])
    assert document["operations"]["records"] == 12
    assert any("the device failed 4 operations" in reason for reason in document["reasons"])
    # What cannot be read may carry a signature.
    refusal = engine(disk.path)
    assert refusal.returncode == 1
    assert "could not be read" in refusal.stderr


def test_a_device_that_fails_in_the_middle(disk, tmp_path):
    """Only read: a write would make the file long again."""
    command = [ENGINE, trace_of(tmp_path), f"--device={disk.path}", "--loop", "--interval-ms=20"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert json.loads(process.stdout.readline())["requests"] > 0
        os.truncate(tmp_path / "disk", 0)
        for _ in range(3):
            process.stdout.readline()
    finally:
        process.terminate()
        rest = process.communicate(timeout=60)[0]
    document = lines_and_document(rest)[1]
    assert process.returncode == 3
    assert document["errors"]["EIO"] > 0
    assert conserved(document["operations"])
    assert any("the device failed" in reason for reason in document["reasons"])


def test_what_finds_no_output_does_not_go_to_the_device(disk, tmp_path):
    """The first file that is opened would have the number of a standard output that is closed."""
    io = [read(4096 * at, 4096, 10 * at) for at in range(7)]
    made = made_trace(io, files=[{"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": SIZE}])
    trace = characterize.write(made, tmp_path / "reads.iotrace")
    before = digest(tmp_path)
    command = ["sh", "-c", 'exec "$0" "$@" >&-', ENGINE, trace, f"--device={disk.path}", "--write", f"--confirm={SIZE}"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    run("sync", disk.path)  # what a write had left in its page cache
    assert digest(tmp_path) == before
    assert done.returncode == 1
    assert done.stderr == "flextrace-replay: cannot print the result: Bad file descriptor\n"
