# SPDX-License-Identifier: Apache-2.0
"""A file system of its own on a loop device of its own, for tests that compare a trace with what a device did."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

IMAGE_BYTES = 512 << 20  # the smallest that all of them accept; the image is sparse
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q"],
    "btrfs": ["mkfs.btrfs", "-q"],
}
STATISTICS = {"reads": 0, "read_bytes": 2, "writes": 4, "write_bytes": 6}  # columns of /sys/block/DEVICE/stat


@dataclass
class LoopFileSystem:
    """A mounted file system."""

    kind: str
    place: Path
    device_path: str

    @property
    def number(self) -> tuple[int, int]:
        status = os.stat(self.device_path)
        return os.major(status.st_rdev), os.minor(status.st_rdev)

    @property
    def device(self) -> int:
        """As in the records of a trace."""
        major, minor = self.number
        return major << 20 | minor

    @property
    def system_directory(self) -> Path:
        return Path("/sys/block") / Path(self.device_path).name

    def statistics(self) -> dict[str, int]:
        """What the kernel says that the device has done, in requests and bytes."""
        columns = [int(word) for word in (self.system_directory / "stat").read_text().split()]
        return {name: columns[column] * (512 if name.endswith("bytes") else 1) for name, column in STATISTICS.items()}


@contextlib.contextmanager
def loop_file_system(kind: str, directory: Path) -> Iterator[LoopFileSystem]:
    """Make, mount, and take away again."""
    if os.geteuid() != 0:
        pytest.skip("a loop device needs root")
    image, place = directory / f"{kind}.image", directory / kind
    with image.open("wb") as stream:
        stream.truncate(IMAGE_BYTES)
    subprocess.run([*MAKE[kind], image], check=True, capture_output=True)
    place.mkdir()
    attached = subprocess.run(
        ["losetup", "--find", "--show", image], check=True, capture_output=True, text=True
    ).stdout.strip()
    try:
        mounted = subprocess.run(["mount", attached, place], capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"this kernel does not mount {kind}: {mounted.stderr.strip()}")
        try:
            yield LoopFileSystem(kind, place, attached)
        finally:
            subprocess.run(["umount", place], check=True)
    finally:
        subprocess.run(["losetup", "--detach", attached], check=True)
        image.unlink()
