# SPDX-License-Identifier: Apache-2.0
"""Signatures by which tools know what is on a block device, by hand where what makes them is not installed."""

from __future__ import annotations

import os
import struct
import subprocess
import uuid
import zlib
from pathlib import Path

SECTOR = 512


def put(device: Path | str, offset: int, data: bytes) -> None:
    with open(device, "r+b") as stream:
        stream.seek(offset)
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def blkid(device: str) -> dict[str, str]:
    """What the tool of util-linux finds by a look at the device itself."""
    done = subprocess.run(["blkid", "-p", "-o", "export", device], capture_output=True, text=True, check=False)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def lvm_volume(device: str) -> None:
    """Label of a physical volume in sector 1 (lib/label/label.h of LVM2)."""
    label = struct.pack("<I8s", 32, b"LVM2 001") + uuid.uuid4().hex.encode() + struct.pack("<Q", 1 << 20)
    label = label.ljust(SECTOR - 20, b"\0")
    check = zlib.crc32(label, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    put(device, SECTOR, struct.pack("<8sQI", b"LABELONE", 1, check) + label)


def raid_member(device: str) -> None:
    """Superblock of md, version 1.2, at 4 KiB (include/uapi/linux/raid/md_p.h)."""
    block = bytearray(4096)
    struct.pack_into("<II", block, 0, 0xA92B4EFC, 1)
    block[16:32] = uuid.uuid4().bytes
    struct.pack_into("<Q", block, 144, 8)  # super_offset
    put(device, 4096, bytes(block))


def dos_table(device: str) -> None:
    """One Linux partition."""
    entry = struct.pack("<B3sB3sII", 0, b"\0" * 3, 0x83, b"\0" * 3, 2048, 8192)
    put(device, 446, entry + bytes(48) + b"\x55\xaa")


def gpt(device: str, size_bytes: int, *, only_copy: bool = False) -> None:
    """An empty GUID partition table (UEFI 2.10, 5.3), or only its second copy at the end of the device."""
    last = size_bytes // SECTOR - 1
    entries = bytes(128 * 128)
    disk = uuid.uuid4().bytes_le

    def header(here: int, other: int, table: int) -> bytes:
        def packed(check: int) -> bytes:
            return struct.pack(
                "<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, check, 0, here, other, 34, last - 33, disk, table,
                128, 128, zlib.crc32(entries),
            )  # fmt: skip

        return packed(zlib.crc32(packed(0)))

    if not only_copy:
        protective = struct.pack("<B3sB3sII", 0, b"\0\2\0", 0xEE, b"\xff" * 3, 1, last)
        put(device, 446, protective + bytes(48) + b"\x55\xaa")
        put(device, SECTOR, header(1, last, 2))
    put(device, last * SECTOR, header(last, 1, last - 32))


def made_by(*command: str) -> object:
    """A signature that a tool makes; it gets the device as its last argument."""

    def make(device: str) -> None:
        subprocess.run([*command, device], check=True, capture_output=True, timeout=60)

    return make
