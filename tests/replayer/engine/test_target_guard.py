# SPDX-License-Identifier: Apache-2.0
"""What may become the target of a replay: tricks with loop devices, whose bytes are compared before and after."""

import contextlib
import os
import subprocess

import pytest

from tests.machines import signatures
from tests.machines.block_device import BlockDevice, mounted, partition, run
from tests.machines.guarded_device import SIZE, digest
from tests.machines.made_devices import linear
from tests.truths.straced import ROOT, needs_engine

pytest_plugins = ["tests.machines.guarded_device"]
pytestmark = [needs_engine, pytest.mark.root, pytest.mark.parallel]


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
    with linear(disk):
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


HIDDEN = {"/sys": "cannot see who uses", "/proc": "again by /proc/self/fd: No such file"}


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("confirm", [str(SIZE), None])
def test_where_it_cannot_be_seen_who_uses_it(engine, disk, tmp_path, hidden, confirm):
    """As in a chroot; loop devices on it and its partitions are known to sysfs only."""
    before = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {hidden} && exec "$0" "$@"']
    words = [HIDDEN[hidden], f"replay where {hidden} is mounted"]
    refused(engine, tmp_path, disk.path, words, confirm=confirm, before=before)


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
