# SPDX-License-Identifier: Apache-2.0
"""A loop device for tests of what a replay may do to it, and a trace that would write there."""

import contextlib
import hashlib
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import characterize
from characterize.layout import Fileop, FileType, IoFlag
from tests.machines.block_device import loop_device
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, op

SIZE = 400 << 20  # xfs wants 300 MiB
PUNCH = 0x03 << 16
WRITES = [(8192, 4096), (1 << 20, 65536), (SIZE - 4096, 4096)]
PUNCHED = (3 << 20, 8192)


def trace_of(tmp_path: Path, size: int = SIZE) -> Path:
    """Reads, writes, a sync and a discard on a block device."""
    device = {"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": size}
    direct = {"flags": IoFlag.DIRECT}
    io = [read(4096 * at, 4096, 10 * at, **direct) for at in range(7)]
    io += [write(offset, bytes_, 100 + at, **direct) for at, (offset, bytes_) in enumerate(WRITES) if offset < size]
    fileops = [
        op(Fileop.FSYNC, 200),
        op(Fileop.FALLOCATE, 210, flags=PUNCH, argument=PUNCHED[0], length=PUNCHED[1]),
    ]
    made = made_trace(io, fileops=fileops, files=[device])
    return characterize.write(made, tmp_path / "device.iotrace", force=True)


@pytest.fixture
def engine(tmp_path):
    """Runs the engine onto a device, by default with everything that writing needs."""
    trace = trace_of(tmp_path)

    def call(device, *options, confirm=str(SIZE), before=()):
        if confirm is not None:
            options = (*options, "--write", f"--confirm={confirm}")
        command = [*before, ENGINE, trace, f"--device={device}", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    return call


@pytest.fixture
def disk(tmp_path):
    with loop_device(tmp_path / "disk", SIZE) as device:
        yield device


def digest(tmp_path: Path) -> str:
    """Of the file behind the loop device: of its blocks that are not all zero, and their places."""
    total, at = hashlib.sha256(), 0
    with (tmp_path / "disk").open("rb") as stream, contextlib.suppress(OSError):  # ENXIO: no data from there on
        while True:
            at = os.lseek(stream.fileno(), at, os.SEEK_DATA)
            end = os.lseek(stream.fileno(), at, os.SEEK_HOLE)
            blocks = np.frombuffer(os.pread(stream.fileno(), end - at, at), np.uint8).reshape(-1, 4096)
            used = blocks.any(axis=1)
            total.update((at + 4096 * np.flatnonzero(used)).tobytes() + blocks[used].tobytes())
            at = end
    return total.hexdigest()
