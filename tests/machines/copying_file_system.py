# SPDX-License-Identifier: Apache-2.0
"""A file system of FUSE with two large files, whose server says of every copy (copy_file_range) that it is done."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

# include/uapi/linux/fuse.h
LOOKUP, FORGET, GETATTR, OPEN, RELEASE, FLUSH, INIT, INTERRUPT, BATCH_FORGET, COPY = 1, 2, 3, 14, 18, 25, 26, 36, 42, 47
VERSION, MAX_WRITE_BYTES, REQUEST_BYTES = (7, 28), 1 << 16, 1 << 20
REQUEST = struct.Struct("=IIQQIIIHH")
ANSWER = struct.Struct("=IiQ")
ATTRIBUTES = struct.Struct("=6Q10I")
COPY_REQUEST = struct.Struct("=7Q")
NAMES = {b"from": 2, b"to": 3}
ROOT = 1


def attributes(node: int, size_bytes: int) -> bytes:
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o644
    return ATTRIBUTES.pack(node, size_bytes, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(operation: int, node: int, argument: bytes, size_bytes: int) -> bytes | int:
    """What the kernel gets, or an error."""
    found = NAMES.get(argument.rstrip(b"\0")) if operation == LOOKUP else None
    if found:
        return struct.pack("=4Q2I", found, 0, 0, 0, 0, 0) + attributes(found, size_bytes)
    if operation == COPY:
        return struct.pack("=II", COPY_REQUEST.unpack(argument)[5], 0)
    return {
        INIT: struct.pack("=IIIIHHI", *VERSION, 0, 0, 1, 1, MAX_WRITE_BYTES).ljust(64, b"\0"),
        LOOKUP: errno.ENOENT,
        GETATTR: bytes(16) + attributes(node, size_bytes),
        OPEN: bytes(16),
        FLUSH: b"",
        RELEASE: b"",
    }.get(operation, errno.ENOSYS)


def serve(device: int, size_bytes: int) -> None:
    """Until it is unmounted."""
    with contextlib.suppress(OSError):
        while request := os.read(device, REQUEST_BYTES):
            _, operation, unique, node, *_ = REQUEST.unpack_from(request)
            if operation in {FORGET, BATCH_FORGET, INTERRUPT}:
                continue
            said = answer(operation, node, request[REQUEST.size :], size_bytes)
            data, error = (b"", -said) if isinstance(said, int) else (said, 0)
            os.write(device, ANSWER.pack(ANSWER.size + len(data), error, unique) + data)


@contextlib.contextmanager
def copying_file_system(place: Path, size_bytes: int) -> Iterator[Path]:
    """Its files are ``from`` and ``to``."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no FUSE: {error}")
    place.mkdir()
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"copying", bytes(place), b"fuse", 0, options):
        pytest.skip(f"cannot mount with FUSE: {os.strerror(ctypes.get_errno())}")
    server = threading.Thread(target=serve, args=(device, size_bytes))
    server.start()
    try:
        yield place
    finally:
        libc.umount2(bytes(place), 0)
        server.join()
        os.close(device)
