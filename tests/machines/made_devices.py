# SPDX-License-Identifier: Apache-2.0
"""Block devices that tests make from the kernel's drivers; a test is skipped where the kernel lacks the driver."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.block_device import BlockDevice, run

CONFIGFS = Path("/sys/kernel/config")
SCSI_DEBUG = Path("/sys/bus/pseudo/drivers/scsi_debug")
NVME = Path("/dev/nvme0n1")
numbers = itertools.count()


def _name() -> str:
    """Not that of a device of another run."""
    return f"flextrace-{os.getpid()}-{next(numbers)}"


def load(module: str, *parameters: str) -> None:
    """Have a module in the kernel, or skip the test."""
    if (Path("/sys/module") / module).exists() and not parameters:
        return
    if not shutil.which("modprobe"):
        pytest.skip(f"no modprobe to load {module} with")
    done = subprocess.run(["modprobe", module, *parameters], capture_output=True, text=True, check=False)
    if done.returncode or not (Path("/sys/module") / module).exists():
        pytest.skip(f"this kernel has no {module}")


def sectors_of(disk: BlockDevice) -> int:
    return int((Path("/sys/block") / Path(disk.path).name / "size").read_text())


def _name_of_null_block(item: Path) -> str:
    """Older kernels take no name but number the disks."""
    return item.name if (Path("/sys/block") / item.name).exists() else "nullb" + (item / "index").read_text().strip()


@contextlib.contextmanager
def null_block(**attributes: int) -> Iterator[BlockDevice]:
    """A disk in memory. Attributes as in Documentation/block/null_blk.rst; queue_mode 0 has bios only, 2 requests."""
    load("null_blk")
    if not (CONFIGFS / "nullb").exists():
        run("mount", "-t", "configfs", "none", CONFIGFS)
    name = _name()
    item = CONFIGFS / "nullb" / name
    item.mkdir()
    try:
        for attribute, value in {"size": 64, "memory_backed": 1, **attributes}.items():
            if not (item / attribute).exists():
                pytest.skip(f"this kernel's null_blk has no {attribute}")
            (item / attribute).write_text(str(value))
        (item / "power").write_text("1")
        name = _name_of_null_block(item)
        if not attributes.get("queue_mode", 2) and (Path("/sys/block") / name / "mq").exists():
            pytest.skip("this kernel's null_blk has no mode without requests")
        yield BlockDevice(f"/dev/{name}")
    finally:
        item.rmdir()


def fail_sectors(disk: BlockDevice, first: int, last: int) -> None:
    """Make null_blk return an error for what touches these sectors."""
    name = Path(disk.path).name
    item = next(item for item in (CONFIGFS / "nullb").glob("flextrace*") if _name_of_null_block(item) == name)
    (item / "badblocks").write_text(f"+{first}-{last}")


@contextlib.contextmanager
def nvme_disk() -> Iterator[BlockDevice]:
    """The one that tests/vm/machine.py gives to the VM."""
    if not os.environ.get("FLEXTRACE_VM"):
        pytest.skip("needs an NVMe disk to write to: runs in a VM (make test-vm)")
    load("nvme")
    if not NVME.exists():
        pytest.skip("the VM has no NVMe disk")
    run("blkdiscard", "--force", NVME)
    yield BlockDevice(str(NVME))


@contextlib.contextmanager
def nvme_of_several_paths(backing: BlockDevice) -> Iterator[BlockDevice]:
    """The disk of an NVMe subsystem that this kernel serves to itself, to which there could be more than one path."""
    load("nvmet_tcp")
    load("nvme_tcp")
    run("ip", "link", "set", "lo", "up")
    if not (CONFIGFS / "nvmet").exists():
        run("mount", "-t", "configfs", "none", CONFIGFS)
    name, port_number = _name(), str(_free_port())
    subsystem, port = CONFIGFS / "nvmet" / "subsystems" / name, CONFIGFS / "nvmet" / "ports" / port_number
    namespace = subsystem / "namespaces" / "1"
    with contextlib.ExitStack() as stack:
        for directory in (subsystem, namespace, port):
            directory.mkdir()
            stack.callback(directory.rmdir)
        (subsystem / "attr_allow_any_host").write_text("1")
        (namespace / "device_path").write_text(backing.path)
        (namespace / "enable").write_text("1")
        address = {"trtype": "tcp", "adrfam": "ipv4", "traddr": "127.0.0.1", "trsvcid": port_number}
        for attribute, value in address.items():
            (port / f"addr_{attribute}").write_text(value)
        (port / "subsystems" / name).symlink_to(subsystem)
        stack.callback((port / "subsystems" / name).unlink)
        Path("/dev/nvme-fabrics").write_text(f"transport=tcp,traddr=127.0.0.1,trsvcid={port_number},nqn={name}")
        controller = next(
            path.parent for path in Path("/sys/class/nvme").glob("nvme*/subsysnqn") if path.read_text().strip() == name
        )
        stack.callback((controller / "delete_controller").write_text, "1")
        yield BlockDevice(_disk_of_subsystem(name))


def _free_port() -> int:
    """Of TCP; what nvmet calls a port has a number of 16 bits, too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _disk_of_subsystem(name: str) -> str:
    """Made some time after the connection."""
    for _ in range(100):
        for subsystem in Path("/sys/class/nvme-subsystem").glob("nvme-subsys*"):
            if (subsystem / "subsysnqn").read_text().strip() == name:
                for disk in subsystem.glob("nvme*n*"):
                    if (Path("/dev") / disk.name).exists():
                        return f"/dev/{disk.name}"
        time.sleep(0.1)
    pytest.skip("this kernel makes no NVMe disk of several paths (CONFIG_NVME_MULTIPATH)")


@contextlib.contextmanager
def scsi_disk(**parameters: int) -> Iterator[BlockDevice]:
    """A SCSI disk of 64 MiB in memory, which has a write cache and FUA, and unmaps."""
    if SCSI_DEBUG.exists():
        run("modprobe", "-r", "scsi_debug")
    load("sd_mod")
    load(
        "scsi_debug", "dev_size_mb=64", "lbpu=1", "lbpws=1", *(f"{name}={value}" for name, value in parameters.items())
    )
    try:
        yield BlockDevice(f"/dev/{_name_of_scsi_disk()}")
    finally:
        run("modprobe", "-r", "scsi_debug")


def _name_of_scsi_disk() -> str:
    """The kernel looks for disks after modprobe has ended."""
    for _ in range(100):
        for disk in SCSI_DEBUG.glob("adapter*/host*/target*/*/block/*"):
            if (Path("/dev") / disk.name).exists() and int((disk / "size").read_text()):
                return disk.name
        time.sleep(0.1)
    pytest.fail("scsi_debug made no disk in 10 s")


@contextlib.contextmanager
def mapped(*rows: str) -> Iterator[BlockDevice]:
    """A device mapper disk. Each row is of its table: first sector, number of sectors, target and its arguments."""
    load("dm_mod")
    if not shutil.which("dmsetup"):
        pytest.skip("dmsetup is not installed")
    for row in rows:
        if (target := row.split()[2]) in {"delay", "flakey"}:
            load(f"dm_{target}")
    name = _name()
    run("dmsetup", "--noudevsync", "create", name, input="\n".join(rows))
    try:
        minor = run("dmsetup", "info", "--columns", "--noheadings", "-o", "minor", name).strip()
        yield BlockDevice(f"/dev/dm-{minor}")
    finally:
        run("dmsetup", "--noudevsync", "--retry", "remove", name)


def linear(disk: BlockDevice, first_sector: int = 0) -> contextlib.AbstractContextManager[BlockDevice]:
    """All of a disk from a sector on."""
    return mapped(f"0 {sectors_of(disk) - first_sector} linear {disk.path} {first_sector}")


@contextlib.contextmanager
def raid(level: int, *disks: BlockDevice) -> Iterator[BlockDevice]:
    """An md array without a super block, so that the disks hold nothing but its data."""
    load("md_mod")
    load(f"raid{level}")
    if not shutil.which("mdadm"):
        pytest.skip("mdadm is not installed")
    free = next(number for number in itertools.count(100) if not Path(f"/sys/block/md{number}").exists())
    node = f"/dev/md{free}"
    options = ["--chunk=64"] if level == 0 else ["--assume-clean"]
    members = [disk.path for disk in disks]
    run("mdadm", "--build", node, f"--level={level}", f"--raid-devices={len(members)}", *options, *members)
    try:
        yield BlockDevice(node)
    finally:
        run("mdadm", "--stop", node)
