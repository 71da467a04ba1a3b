# SPDX-License-Identifier: Apache-2.0
"""Replays on disks that fail: of the device mapper, and a SCSI disk that is pulled; in a VM if the host has neither."""

import contextlib
import json
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import characterize
from characterize.layout import FileType, IoFlag
from tests.machines.block_device import loop_device, run
from tests.machines.made_devices import mapped, scsi_disk
from tests.runs.running_replay import conserved
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ENGINE, needs_engine

pytestmark = [needs_engine, pytest.mark.root]

SIZE = 64 << 20
SECTORS = SIZE >> 9
READ_BYTES = 4096
READS = 211
LINES_MAX = 1000


def reads_of_a_disk(tmp_path):
    """A trace of direct reads all over a disk, and where they are."""
    offsets = np.random.default_rng(7).permutation(SIZE // READ_BYTES)[:READS] * READ_BYTES
    io = [read(offset, READ_BYTES, 10 * at, flags=IoFlag.DIRECT) for at, offset in enumerate(offsets.tolist(), 1)]
    files = [{"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": SIZE}]
    return characterize.write(made_trace(io, files=files), tmp_path / "disk.iotrace"), offsets


def result_of(done):
    """The document of a replay that failed in part; every record is accounted for."""
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert conserved(document["operations"])
    assert not document["trustworthy"]
    return document


def replay(trace, *options):
    command = [str(ENGINE), str(trace), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@contextlib.contextmanager
def running(trace, *options):
    """A replay that goes on until the end of the block; what becomes of it in `.done`."""
    command = [str(ENGINE), str(trace), "--loop", "--interval-ms=20", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run = SimpleNamespace(process=process, done=None)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield run
    finally:
        process.terminate()
        out, err = process.communicate(timeout=60)
        run.done = subprocess.CompletedProcess(command, process.returncode, out[out.find("{\n") :], err)


def test_the_part_of_a_disk_that_fails_fails(tmp_path):
    trace, offsets = reads_of_a_disk(tmp_path)
    first, last = SECTORS // 4, SECTORS // 2
    with loop_device(tmp_path / "disk", SIZE) as below:
        rows = (f"0 {first} linear {below.path} 0", f"{first} {last - first} error")
        with mapped(*rows, f"{last} {SECTORS - last} linear {below.path} {last}") as disk:
            document = result_of(replay(trace, f"--device={disk.path}"))
    bad = int(((offsets >> 9 >= first) & (offsets >> 9 < last)).sum())
    assert document["errors"] == {"EIO": bad}
    assert document["operations"]["done"] == READS - bad


def test_a_disk_that_comes_and_goes(tmp_path):
    """dm-flakey: a second in order, a second in which everything fails."""
    trace, _ = reads_of_a_disk(tmp_path)
    with loop_device(tmp_path / "disk", SIZE) as below, mapped(f"0 {SECTORS} flakey {below.path} 0 1 1") as disk:
        with running(trace, f"--device={disk.path}") as replay_of_it:
            time.sleep(3)
        document = result_of(replay_of_it.done)
    assert document["errors"].keys() == {"EIO"}
    assert document["operations"]["done"] > 0


def test_a_file_system_whose_disk_fails_in_the_middle(tmp_path):
    """The image stays, what was done is told, and the errors are counted."""
    io = [read(4096 * (at % 64), 4096, 10 * at, flags=IoFlag.DIRECT) for at in range(1, 1009)]
    trace = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 64 * 4096}]), tmp_path / "t.iotrace")
    place = tmp_path / "mounted"
    place.mkdir()
    with loop_device(tmp_path / "disk", SIZE) as below, mapped(f"0 {SECTORS} linear {below.path} 0") as disk:
        run("mkfs.ext4", "-q", disk.path)
        run("mount", disk.path, place)
        try:
            with running(trace, f"--directory={place}/image", "--keep-image") as replay_of_it:
                change_table(disk, f"0 {SECTORS} error")
                for _ in range(3):
                    replay_of_it.process.stdout.readline()
            change_table(disk, f"0 {SECTORS} linear {below.path} 0")
            assert (place / "image").exists()
        finally:
            run("umount", place)
    document = result_of(replay_of_it.done)
    assert document["errors"]["EIO"] > 0
    assert document["operations"]["done"] > 0


def change_table(disk, row):
    """Of a disk of the device mapper, while it is in use."""
    name = (Path("/sys/block") / Path(disk.path).name / "dm" / "name").read_text().strip()
    run("dmsetup", "--noudevsync", "suspend", "--nolockfs", name)
    run("dmsetup", "load", name, input=row)
    run("dmsetup", "--noudevsync", "resume", name)


def test_a_disk_that_is_pulled(tmp_path):
    trace, _ = reads_of_a_disk(tmp_path)
    with scsi_disk() as disk, running(trace, f"--device={disk.path}") as replay_of_it:
        (Path("/sys/block") / Path(disk.path).name / "device" / "delete").write_text("1")
        # Until nothing succeeds any more, and a little longer.
        lines = (json.loads(replay_of_it.process.stdout.readline()) for _ in range(LINES_MAX))
        next(line for line in lines if not line["requests"])
        for _ in range(10):
            replay_of_it.process.stdout.readline()
    document = result_of(replay_of_it.done)
    # Requests that the disk had taken fail; later ones end at once, behind the end of a disk without a size.
    failed, short = sum(document["errors"].values()), document["operations"]["short"]
    assert failed + short > 0
    assert document["errors"].keys() <= {"EIO", "ENODEV", "ENXIO"}
    assert any("the device failed" in reason for reason in document["reasons"]) == (failed > 0)
    assert any("was it removed" in reason for reason in document["reasons"]) == (short > 0)
