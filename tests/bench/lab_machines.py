# SPDX-License-Identifier: Apache-2.0
"""Turns a memory limit, a file system and a device into a machine that was not there before, and takes it away again.

Machines that differ by factors of ten on one host, with the true size of the cache known (design.md, section 5). All
that is made (image, loop device, zram, mount, throttle, dirty limits) is taken away in the reverse order, also after an
error and when interrupted: signals wait while something is made or taken away, so that nothing falls between the two.
Where it is killed, the next machine or run of tests puts back the settings of this host that it had changed.

Dirty limits are those of the memory that the machine has, the kernel's default shares of it. A memory group of version
2 has them by itself; one of version 1 has the host's, which are changed meanwhile. Without, it fills with dirty pages,
and reclaim writes them back in bursts of seconds (docs/decisions/0023).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from replayer.run import ENDING
from selfscale.exploring.plan import Settings
from selfscale.measuring import storage
from selfscale.measuring.environment import memory_bytes
from tests.bench.load import UnavailableError
from tests.machines.host_settings import change, put_back, put_back_of_the_dead

MIB = 1 << 20
DIRTY_FRACS = {"dirty_background_bytes": 0.1, "dirty_bytes": 0.2}
"""Of the memory, where the kernel begins to write back and where it makes writers wait: its defaults."""
VM = Path("/proc/sys/vm")
SHARED_MEMORY = Path("/dev/shm")
ZRAM_CONTROL = Path("/sys/class/zram-control")
# Nothing lazy that goes on after the mount, and no discard: it would give the image's pages back, and who writes to
# them then is charged for new ones.
MAKE = {
    "ext4": ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
    "xfs": ["-q", "-f", "-K"],
    "btrfs": ["-q", "-f", "-K"],
}
# What btrfs frees waits for the next commit: of 30 s, its own interval, that would be memory of the host's by the GiB.
MOUNT = {"btrfs": ["-o", "nodiscard,commit=5"]}
ROOM = {"ext4": 1.3, "xfs": 1.3, "btrfs": 4.0}
"""Device size over the size of the files, for the file system's own structures. btrfs overwrites nothing in place, and
frees an extent only when all of it is overwritten: 2.2 was too little."""
ROOM_BYTES_MIN = 2048 * MIB
"""Room for the applications, whose files take the place of those of the benchmark."""
ZRAM_BYTES = 64 << 30
"""Of a device in compressed memory, which takes only what is written. btrfs reserves 256 KiB of metadata for a dirty
extent, and lets go of dirty data where the reservations come near a share of the unallocated space: on 3 GiB a few MiB
of dirty 4 KiB blocks were written back at once, as on no disk of today's size (docs/decisions/0023)."""
READ_AHEAD_KB = 128
"""Largest window of loop devices: the kernel's default, which disks have. By itself a loop device has 2.5 MiB on Linux
6.18. What is read in vain then changes what is cached for tens of seconds (docs/decisions/0023)."""
ZRAM_MEMORY_FRAC = 0.75
"""Of the memory that is available: more than that a device cannot take, its writes fail."""
FILL_BYTES = 16 * MIB
COMMAND_SECONDS_MAX = 300
UNMOUNT_SECONDS_MAX = 20
Made = TypeVar("Made")


@dataclass(frozen=True)
class Throttle:
    """What the block layer lets through, in each direction."""

    requests_per_s: int
    bytes_per_s: int


@dataclass(frozen=True)
class LabMachine:
    """A machine to make.

    Attributes
    ----------
    memory_bytes : int
        Limit of the memory group in which it is measured: the true size of its page cache.
    file_system : {"ext4", "xfs", "btrfs"}
    device : {"disk", "memory", "zram"}
        A loop device over a file on disk or in /dev/shm, or compressed memory.
    throttle : Throttle, optional
    """

    name: str
    memory_bytes: int
    file_system: str
    device: str
    throttle: Throttle | None = None

    @property
    def title(self) -> str:
        """In a few words."""
        slow = f", {self.throttle.requests_per_s} requests/s" if self.throttle else ""
        return f"{self.memory_bytes // MIB} MiB, {self.file_system} on {self.device}{slow}"

    @property
    def size_bytes(self) -> int:
        """Of the device: the files of every workload of an exploration, or those of the applications."""
        if self.device == "zram":
            return ZRAM_BYTES
        image_bytes = Settings(self.memory_bytes, budget_s=0.0, cpus=len(os.sched_getaffinity(0))).image_bytes
        image_bytes += storage.image_bytes(self.memory_bytes)
        return -(-max(int(ROOM[self.file_system] * image_bytes), ROOM_BYTES_MIN) // MIB) * MIB


MACHINES = {
    machine.name: machine
    for machine in (
        LabMachine("disk", 128 * MIB, "ext4", "disk"),
        LabMachine("memory", 256 * MIB, "xfs", "memory"),
        LabMachine("zram", 192 * MIB, "btrfs", "zram"),
        LabMachine("slow", 160 * MIB, "ext4", "memory", Throttle(4000, 120_000_000)),
        LabMachine("disk-xfs", 192 * MIB, "xfs", "disk"),
        LabMachine("memory-btrfs", 128 * MIB, "btrfs", "memory"),
        LabMachine("slow-xfs", 256 * MIB, "xfs", "memory", Throttle(20_000, 400_000_000)),
    )
}
DEFAULT = ("disk", "memory", "zram", "slow")
QUICK = ("disk", "slow")


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that end the program wait until this is left; programs started meanwhile do not get them either."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def lab_machine(machine: LabMachine, directory: Path) -> Iterator[Path]:
    """Make a machine; the directory in which it is mounted.

    Parameters
    ----------
    directory : Path
        On the disk that the device ``disk`` is part of; also where the mount point is made.

    Raises
    ------
    UnavailableError
        This host cannot make it: the message says why.
    """
    put_back_of_the_dead()  # before anything is found as it is not by itself
    _check(machine, directory)
    stack = contextlib.ExitStack()
    try:
        place = Path(_made(stack, lambda: tempfile.mkdtemp(prefix="flextrace-lab-", dir=directory), shutil.rmtree))
        place.chmod(0o711)  # servers run as other users
        device = _zram(stack, machine.size_bytes) if machine.device == "zram" else _loop(stack, machine, place)
        if machine.throttle:
            _throttle(stack, device, machine.throttle)
        _dirty_limits(stack, machine.memory_bytes)
        _run(f"mkfs.{machine.file_system}", *MAKE[machine.file_system], device)
        point = place / "mounted"
        point.mkdir()
        _made(stack, lambda: _mount(machine.file_system, device, point), _unmount)
        yield point
    finally:
        with uninterrupted():
            stack.close()


def _check(machine: LabMachine, directory: Path) -> None:
    if os.geteuid() != 0:
        raise UnavailableError(f"machine {machine.name}: loop devices and mounts need root")
    if not shutil.which(f"mkfs.{machine.file_system}"):
        raise UnavailableError(f"machine {machine.name}: mkfs.{machine.file_system} is not installed")
    if machine.device == "zram":
        if not (ZRAM_CONTROL / "hot_add").exists():
            raise UnavailableError(f"machine {machine.name}: this kernel has no zram")
        return
    base = directory if machine.device == "disk" else SHARED_MEMORY
    if not base.is_dir():
        raise UnavailableError(f"machine {machine.name}: there is no {base}")
    free = shutil.disk_usage(base).free
    if machine.device == "memory":
        # What is allocated there is neither swapped nor given back while the machine exists.
        free = min(free, memory_bytes()["MemAvailable"])
    if free < machine.size_bytes * 1.1:
        raise UnavailableError(
            f"machine {machine.name}: {machine.size_bytes >> 20} MiB are needed in {base}, {free >> 20} MiB are free"
        )


def _made(stack: contextlib.ExitStack, make: Callable[[], Made], undo: Callable[[Made], object]) -> Made:
    with uninterrupted():
        made = make()
        stack.callback(undo, made)
    return made


def _run(*command: str | Path) -> str:
    with uninterrupted():
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False)
    if done.returncode:
        raise UnavailableError(f"{' '.join(map(str, command))}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return done.stdout.strip()


def _loop(stack: contextlib.ExitStack, machine: LabMachine, place: Path) -> Path:
    base = place if machine.device == "disk" else SHARED_MEMORY

    def image() -> Path:
        descriptor, name = tempfile.mkstemp(prefix="flextrace-lab-", suffix=".image", dir=base)
        os.close(descriptor)
        return Path(name)

    path = _made(stack, image, Path.unlink)
    _fill(path, machine.size_bytes)
    command = ("losetup", "--find", "--show", "--direct-io=on", path)
    device = _made(stack, lambda: Path(_run(*command)), lambda device: _run("losetup", "--detach", device))
    (Path("/sys/block") / device.name / "queue" / "read_ahead_kb").write_text(str(READ_AHEAD_KB))
    return device


def _fill(path: Path, size_bytes: int) -> None:
    """Write all of an image, so that no write of a measurement is the first to its blocks.

    Pages of a sparse image would be charged to the group that writes to them first. Where they are only allocated, the
    first write waits for the host to find a page, or for the file system to note that a block is written, and reads
    queue behind it (docs/decisions/0023).
    """
    chunk = random.Random("image").randbytes(FILL_BYTES)
    with path.open("r+b") as image:
        for begin in range(0, size_bytes, FILL_BYTES):
            image.write(chunk[: size_bytes - begin])
        image.flush()
        os.fsync(image.fileno())
        # Direct writes of the loop device would have to take each cached page away.
        os.posix_fadvise(image.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _zram(stack: contextlib.ExitStack, size_bytes: int) -> Path:
    def add() -> str:
        return (ZRAM_CONTROL / "hot_add").read_text().strip()

    def remove(number: str) -> None:
        (Path("/sys/block") / f"zram{number}" / "reset").write_text("1")
        (ZRAM_CONTROL / "hot_remove").write_text(number)

    number = _made(stack, add, remove)
    device = Path("/sys/block") / f"zram{number}"
    (device / "mem_limit").write_text(str(int(ZRAM_MEMORY_FRAC * memory_bytes()["MemAvailable"])))
    (device / "disksize").write_text(str(size_bytes))
    return Path(f"/dev/zram{number}")


def _throttle(stack: contextlib.ExitStack, device: Path, throttle: Throttle) -> None:
    """In the root of version 1's blkio hierarchy, where write-back is too; only this device is named."""
    root = _blkio_root()
    number = os.stat(device).st_rdev
    name = f"{os.major(number)}:{os.minor(number)}"
    units = {"iops": throttle.requests_per_s, "bps": throttle.bytes_per_s}
    limits = {
        root / f"blkio.throttle.{direction}_{unit}_device": f"{name} {value}"
        for direction in ("read", "write")
        for unit, value in units.items()
    }
    _changed(stack, limits, dict.fromkeys(limits, f"{name} 0"))


def _dirty_limits(stack: contextlib.ExitStack, memory_bytes: int) -> None:
    if (Path("/sys/fs/cgroup") / "cgroup.controllers").exists():
        return  # a group of version 2 has limits of its own, and would take only its share of these
    limits = {VM / name: str(int(frac * memory_bytes)) for name, frac in DIRTY_FRACS.items()}
    for limit in limits:
        if not os.access(limit, os.W_OK):
            raise UnavailableError(f"{limit} cannot be written, and with the limit of this host writes come in bursts")
    # Bytes of 0 say that the ratio holds, which writing the bytes sets to 0.
    ratios = {limit: limit.with_name(limit.name.replace("bytes", "ratio")) for limit in limits}
    holding = [limit if int(limit.read_text()) else ratio for limit, ratio in ratios.items()]
    _changed(stack, limits, {place: place.read_text() for place in holding})


def _changed(stack: contextlib.ExitStack, values: Mapping[Path, str], before: Mapping[Path, str]) -> None:
    _made(stack, lambda: change(values, before), put_back)


def _blkio_root() -> Path:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        kind, _, options = tail.split()[:3]
        root = Path(fields.split()[4])
        if kind == "cgroup" and "blkio" in options.split(",") and (root / "blkio.throttle.read_bps_device").exists():
            return root
    raise UnavailableError(
        "no device can be throttled: that needs the blkio controller of control groups of version 1, whose root group "
        "has limits (those of version 2 do not hold for write-back by the root group)"
    )


def _mount(kind: str, device: Path, point: Path) -> Path:
    _run("mount", "-t", kind, *MOUNT.get(kind, []), device, point)
    return point


def _unmount(point: Path) -> None:
    """Wait for those that still have a file open there, such as a server that is about to end."""
    deadline = time.monotonic() + UNMOUNT_SECONDS_MAX
    while True:
        try:
            _run("umount", point)
            return
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
