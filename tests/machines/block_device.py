# SPDX-License-Identifier: Apache-2.0
"""Block devices for tests, and where on them the file systems say that files lie."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.machines.host_settings import change, put_back

SECTOR_BYTES = 512
FIEMAP = 0xC020660B  # FS_IOC_FIEMAP
FIEMAP_HEAD = struct.Struct("=QQLLLL")
FIEMAP_EXTENT = struct.Struct("=QQQQQLLLL")
EXTENTS_MAX = 1024
COLUMNS = {  # of /sys/block/DEVICE/stat, in sectors where they end in bytes
    "reads": 0,
    "read_bytes": 2,
    "writes": 4,
    "write_bytes": 6,
    "discards": 11,
    "discard_bytes": 13,
    "flushes": 15,
}


# Threads of the file system read block bitmaps some time after the mount, and commit every few seconds what nobody has
# asked them to: not while a test counts.
QUIET = {"ext4": ["-o", "no_prefetch_block_bitmaps,commit=300"], "btrfs": ["-o", "commit=300"]}
XFS_INTERVAL = Path("/proc/sys/fs/xfs/xfssyncd_centisecs")


@dataclass(frozen=True)
class Extent:
    """A stretch of a file that lies in one piece on the device; all in bytes."""

    offset: int
    place: int
    size: int


@dataclass(frozen=True)
class BlockDevice:
    """A whole disk."""

    path: str

    @property
    def number(self) -> int:
        """As in the records of a trace."""
        device = os.stat(self.path).st_rdev
        return os.major(device) << 20 | os.minor(device)

    @property
    def name(self) -> str:
        """``MAJOR:MINOR``, as documents have it."""
        return f"{self.number >> 20}:{self.number & 0xFFFFF}"

    @property
    def system_directory(self) -> Path:
        return Path("/sys/block") / Path(self.path).name

    def statistics(self) -> dict[str, int]:
        """What the kernel has counted."""
        numbers = [int(word) for word in (self.system_directory / "stat").read_text().split()]
        return {
            name: numbers[column] * (SECTOR_BYTES if name.endswith("bytes") else 1) for name, column in COLUMNS.items()
        }


@contextlib.contextmanager
def loop_device(image: Path, size_bytes: int, *options: str) -> Iterator[BlockDevice]:
    """Of a sparse file that is made for it."""
    with image.open("wb") as stream:
        stream.truncate(size_bytes)
    path = run("losetup", "--find", "--show", *options, image).strip()
    try:
        yield BlockDevice(path)
    finally:
        run("losetup", "--detach", path)
        image.unlink()


@contextlib.contextmanager
def zram_device(size_bytes: int) -> Iterator[BlockDevice]:
    """A device that is made of memory, and has no requests."""
    control = Path("/sys/class/zram-control")
    if not control.exists():
        pytest.skip("this kernel has no zram")
    name = "zram" + (control / "hot_add").read_text().strip()
    try:
        (Path("/sys/block") / name / "disksize").write_text(str(size_bytes))
        yield BlockDevice(f"/dev/{name}")
    finally:
        (Path("/sys/block") / name / "reset").write_text("1")
        (control / "hot_remove").write_text(name.removeprefix("zram"))


@contextlib.contextmanager
def partition(disk: BlockDevice, first_sector: int) -> Iterator[str]:
    """The only one of a disk, from a sector to the end; in no table, as kernels do not know all kinds of these."""
    sectors = int((disk.system_directory / "size").read_text())
    run("addpart", disk.path, "1", str(first_sector), str(sectors - first_sector))
    try:
        yield disk.path + "p1"
    finally:
        run("delpart", disk.path, "1")


@contextlib.contextmanager
def quiet_xfs() -> Iterator[None]:
    """xfs writes its log and its metadata every 30 s, counted from the mount; in here every two hours."""
    if not XFS_INTERVAL.exists():
        yield
        return
    with XFS_INTERVAL.open() as interval:
        fcntl.flock(interval, fcntl.LOCK_EX)  # who mounts one meanwhile would take this for what was there before
        note = change({XFS_INTERVAL: "720000"}, {XFS_INTERVAL: XFS_INTERVAL.read_text()})
        try:
            yield
        finally:
            put_back(note)


@contextlib.contextmanager
def mounted(
    kind: str, disk: BlockDevice, place: Path, *mount_options: str, make_options: Sequence[str] = ()
) -> Iterator[Path]:
    options = ["-E", "lazy_itable_init=0,lazy_journal_init=0"] if kind == "ext4" else []
    run(f"mkfs.{kind}", "-q", *options, *make_options, disk.path)
    place.mkdir()
    with quiet_xfs() if kind == "xfs" else contextlib.nullcontext():
        done = subprocess.run(
            ["mount", *QUIET.get(kind, []), *mount_options, disk.path, place],
            capture_output=True,
            text=True,
            check=False,
        )
    if "unknown filesystem type" in done.stderr:
        pytest.skip(f"this kernel has no {kind}")
    assert done.returncode == 0, done.stderr
    try:
        yield place
    finally:
        run("umount", place)


def run(*command: str | Path, **keywords) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, **keywords).stdout


def extents(path: Path) -> list[Extent]:
    """What FIEMAP says; of btrfs these places are in its own address space, see `device_place`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        buffer = bytearray(FIEMAP_HEAD.size + EXTENTS_MAX * FIEMAP_EXTENT.size)
        FIEMAP_HEAD.pack_into(buffer, 0, 0, 2**64 - 1, 1, 0, EXTENTS_MAX, 0)
        fcntl.ioctl(descriptor, FIEMAP, buffer)
    finally:
        os.close(descriptor)
    count = FIEMAP_HEAD.unpack_from(buffer)[3]
    assert count < EXTENTS_MAX
    rows = FIEMAP_EXTENT.iter_unpack(bytes(buffer[FIEMAP_HEAD.size :][: count * FIEMAP_EXTENT.size]))
    return [Extent(offset, place, size) for offset, place, size, *_ in rows]


def btrfs_chunks(disk: BlockDevice) -> list[Extent]:
    """Logical address ranges of the data chunks and their places on the device."""
    text = run("btrfs", "inspect-internal", "dump-tree", "-t", "chunk", disk.path)
    item = r"CHUNK_ITEM (\d+)\).*?length (\d+) .*?type DATA\|single.*?stripe 0 devid 1 offset (\d+)"
    chunks = [found.groups() for part in text.split("\titem ") if (found := re.search(item, part, re.DOTALL))]
    return [Extent(int(logical), int(place), int(size)) for logical, size, place in chunks]


def device_place(offset: int, parts: list[Extent]) -> tuple[int, int] | None:
    """Where a byte of a file lies and how many bytes follow it there; None if nowhere."""
    for part in parts:
        if part.offset <= offset < part.offset + part.size:
            inside = offset - part.offset
            return part.place + inside, part.size - inside
    return None


def lies_at(offset: int, size: int, place: int, files: list[Extent], chunks: list[Extent]) -> bool:
    """Whether a range of a file is one range of the device."""
    while size > 0:
        found = device_place(offset, files)
        if found and chunks:
            logical, left = found
            found = device_place(logical, chunks)
            found = found and (found[0], min(found[1], left))
        if not found or found[0] != place:
            return False
        step = min(size, found[1])
        offset, place, size = offset + step, place + step, size - step
    return True
