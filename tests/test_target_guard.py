# SPDX-License-Identifier: Apache-2.0
"""What may become the target of a replay: tricks with loop devices, whose bytes are compared before and after."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from made_trace import made_trace, read, write
from straced import ENGINE, ROOT, needs_engine, needs_strace, op, strace

import characterize
from characterize.layout import Fileop, FileType, IoFlag
from tests import signatures
from tests.block_device import BlockDevice, loop_device, mounted, partition, run

pytestmark = [needs_engine, pytest.mark.skipif(os.geteuid() != 0, reason="a loop device needs root")]

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

    def call(device, *options, confirm=str(SIZE)):
        if confirm is not None:
            options = (*options, "--write", f"--confirm={confirm}")
        command = [ENGINE, trace, f"--device={device}", *options]
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


def refused(engine, tmp_path, device, words, **keywords) -> None:
    """It says why in one line, prints no result, and changes nothing."""
    before = digest(tmp_path)
    done = engine(device, **keywords)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr
    run("sync", device)  # what a write had left in its page cache
    assert digest(tmp_path) == before


@contextlib.contextmanager
def swap(device: str):
    run("mkswap", device)
    done = subprocess.run(["swapon", device], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this kernel does not swap onto a loop device: {done.stderr.strip()}")
    try:
        yield
    finally:
        run("swapoff", device)


@contextlib.contextmanager
def device_mapper(device: BlockDevice):
    if not shutil.which("dmsetup"):
        pytest.skip("dmsetup is not installed")
    name = f"flextrace-test-{os.getpid()}"
    table = f"0 {SIZE // 512} linear {device.path} 0"
    done = subprocess.run(["dmsetup", "create", name, "--table", table], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this kernel has no device mapper: {done.stderr.strip()}")
    try:
        yield
    finally:
        run("dmsetup", "remove", name)


@pytest.mark.parametrize("confirm", [str(SIZE), None])
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_mounted(engine, disk, tmp_path, kind, confirm):
    """Also for reading: what is in use gives no figures."""
    with mounted(kind, disk, tmp_path / "place"):
        refused(engine, tmp_path, disk.path, ["in use", f"mounted on {tmp_path / 'place'}"], confirm=confirm)


def test_by_another_name(engine, disk, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(disk.path)
    node = tmp_path / "node"
    os.mknod(node, 0o600 | 0o060000, os.stat(disk.path).st_rdev)
    with mounted("ext4", disk, tmp_path / "place"):
        for name in (link, node):
            refused(engine, tmp_path, name, ["in use", "mounted on"])
    for name in (link, node):
        refused(engine, tmp_path, name, ["signature", "ext4"])


def test_a_mounted_partition_and_its_disk(engine, disk, tmp_path):
    with partition(disk, 2048) as part, mounted("ext4", BlockDevice(part), tmp_path / "place"):
        refused(engine, tmp_path, disk.path, ["in use", f"{part} is mounted on"])
        refused(engine, tmp_path, part, ["in use", f"{part} is mounted on"])


def test_a_disk_with_partitions_of_which_none_is_used(engine, disk, tmp_path):
    """Without a table on the disk, only the kernel knows of them."""
    with partition(disk, 2048):
        assert signatures.blkid(disk.path) == {}
        refused(engine, tmp_path, disk.path, ["1 partitions"])


def test_swap(engine, disk, tmp_path):
    with swap(disk.path):
        refused(engine, tmp_path, disk.path, ["in use", "swap"])


def test_under_the_device_mapper(engine, disk, tmp_path):
    with device_mapper(disk):
        refused(engine, tmp_path, disk.path, ["in use", "/dev/dm-"])


def test_under_another_loop_device(engine, disk, tmp_path):
    """Which the kernel's exclusive opening does not prevent."""
    other = run("losetup", "--find", "--show", disk.path).strip()
    try:
        refused(engine, tmp_path, disk.path, [f"the loop device {other} lies on it"])
    finally:
        run("losetup", "--detach", other)


def test_opened_exclusively_by_somebody(engine, disk, tmp_path):
    descriptor = os.open(disk.path, os.O_RDONLY | os.O_EXCL)
    try:
        refused(engine, tmp_path, disk.path, ["in use"])
    finally:
        os.close(descriptor)


SIGNATURES = {
    "ext4": signatures.made_by("mkfs.ext4", "-q"),
    "xfs": signatures.made_by("mkfs.xfs", "-q"),
    "btrfs": signatures.made_by("mkfs.btrfs", "-q"),
    "swap": signatures.made_by("mkswap"),
    "LVM2_member": signatures.lvm_volume,
    "linux_raid_member": signatures.raid_member,
    "dos": signatures.dos_table,
    "gpt": lambda device: signatures.gpt(device, SIZE),
}


@pytest.mark.parametrize("kind", SIGNATURES)
def test_signatures(engine, disk, tmp_path, kind):
    SIGNATURES[kind](disk.path)
    found = signatures.blkid(disk.path)
    assert kind in {found.get("TYPE"), found.get("PTTYPE")}
    refused(engine, tmp_path, disk.path, ["signature", kind])
    # Reading it harms nobody.
    before = digest(tmp_path)
    done = engine(disk.path, confirm=None)
    assert done.returncode == 0, done.stderr
    assert digest(tmp_path) == before


def test_damaged_signatures_count_as_well(engine, disk, tmp_path):
    """The second copy of a partition table alone, and a superblock whose checksum is wrong."""
    signatures.gpt(disk.path, SIZE, only_copy=True)
    refused(engine, tmp_path, disk.path, ["signature", "gpt"])
    run("wipefs", "--all", "--force", disk.path)
    run("mkfs.ext4", "-q", "-O", "metadata_csum", disk.path)
    signatures.put(disk.path, 1024 + 0x3FC, b"\1\2\3\4")
    refused(engine, tmp_path, disk.path, ["signature", "ext4"])
    run("wipefs", "--all", disk.path)
    assert engine(disk.path).returncode == 0


@pytest.mark.parametrize("confirm", ["", "yes", str(SIZE - 1), str(SIZE) + "0", "0", " " + str(SIZE)])
def test_what_does_not_confirm(engine, disk, tmp_path, confirm):
    refused(engine, tmp_path, disk.path, ["does not confirm", "size in bytes"], confirm=confirm)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--write"], "go together"),
        ([f"--confirm={SIZE}"], "go together"),
    ],
)
def test_writing_needs_both_options(engine, disk, tmp_path, options, word):
    before = digest(tmp_path)
    done = engine(disk.path, *options, confirm=None)
    assert done.returncode == 2
    assert word in done.stderr
    assert digest(tmp_path) == before


def test_what_is_no_block_device(engine, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"precious" * 1000)
    os.mkfifo(tmp_path / "pipe")
    for name in (file, tmp_path, tmp_path / "pipe", "/dev/null"):
        done = engine(name)
        assert done.returncode == 1
        assert "not a block device" in done.stderr
    assert file.read_bytes() == b"precious" * 1000
    assert "No such file" in engine(tmp_path / "missing").stderr


def test_a_device_that_is_too_small(engine, disk, tmp_path):
    with partition(disk, SIZE // 512 - 8000) as part:
        refused(engine, tmp_path, part, ["too small", str(SIZE), str(8000 * 512)], confirm=str(8000 * 512))


def test_a_read_only_device(engine, tmp_path):
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    os.truncate(tmp_path / "disk", SIZE)
    device = run("losetup", "--find", "--show", "--read-only", tmp_path / "disk").strip()
    try:
        done = engine(device)
        assert done.returncode == 1
        assert "read-only" in done.stderr.lower()
        assert engine(device, confirm=None).returncode == 0
    finally:
        run("losetup", "--detach", device)


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
    parts = sum(document["operations"][name] for name in ("done", "short", "failed", "skipped"))
    assert document["operations"]["records"] == parts == 12
    assert any("the device failed 4 operations" in reason for reason in document["reasons"])
    # What cannot be read may carry a signature.
    refused(engine, tmp_path, disk.path, ["could not be read"])


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
    document = json.loads(rest[rest.index("{\n") :])
    assert process.returncode == 3
    assert document["errors"]["EIO"] > 0
    parts = sum(document["operations"][name] for name in ("done", "short", "failed", "skipped"))
    assert document["operations"]["records"] == parts
    assert any("the device failed" in reason for reason in document["reasons"])


IDENTITY_PROGRAM = """
#include <stdio.h>
#include "replayer/engine/device_identity.h"
int main(int count, char **values)
{
	char identity[IDENTITY_BYTES];
	const char *what = device_identity(values[1], 4096, identity);
	printf("%s|%s", identity, what);
}
"""


@pytest.mark.parametrize(
    ("name", "content", "identity"),
    [
        ("serial", b"vol-0123456789abcdef\n", "vol-0123456789abcdef"),
        ("device/serial", b"  S4EVNX0R  \n", "S4EVNX0R"),
        ("device/vpd_pg80", b"\x00\x80\x00\x14     WD-WX11 A5   ", "WD-WX11 A5"),
        ("serial", b"\n", None),
        ("device/vpd_pg80", b"\x00\x80\x00\x00", None),
        ("other", b"x", None),
    ],
)
def test_the_serial_number_is_found_where_drivers_put_it(tmp_path, name, content, identity):
    """In made directories, since loop devices have none; without one it is the size."""
    (tmp_path / "main.c").write_text(IDENTITY_PROGRAM)
    sources = [tmp_path / "main.c", ROOT / "replayer" / "engine" / "device_identity.c"]
    subprocess.run(["gcc", "-D_GNU_SOURCE", f"-I{ROOT}", *sources, "-o", tmp_path / "main"], check=True)
    (tmp_path / "device").mkdir()
    (tmp_path / name).write_bytes(content)
    found, what = run(tmp_path / "main", tmp_path).split("|")
    assert found == (identity or "4096")
    assert what.startswith("its serial number" if identity else "its size in bytes")
