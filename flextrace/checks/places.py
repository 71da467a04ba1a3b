# SPDX-License-Identifier: Apache-2.0
"""Turns a directory, and memory that serves as one, into checks: what can be written there, how, and how much."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from characterize.units import format_bytes
from flextrace.checks.check import Check, fail, ok, warn
from selfscale.measuring.environment import mount_of

AREA = "places"
FREE_BYTES_MIN = 1 << 30
"""About what an hour of a busy database takes up; less is worth a word."""


def place_checks(directory: Path) -> list[Check]:
    """The directory for traces and replays, and shared memory."""
    reason = why_not_writable(directory)
    if reason:
        return [output_check(directory, reason, 0, "?"), memory_directory_check()]
    free = shutil.disk_usage(directory).free
    return [
        output_check(directory, "", free, _filesystem(directory)),
        direct_check(directory, takes_direct_io(directory)),
        memory_directory_check(),
    ]


def _filesystem(directory: Path) -> str:
    try:
        return mount_of(directory)[0]
    except OSError:  # no /proc
        return "an unknown file system"


def why_not_writable(directory: Path) -> str:
    """Make a file, write to it and remove it: empty if that works, else the reason."""
    try:
        descriptor, path = tempfile.mkstemp(prefix=".flextrace-doctor-", dir=directory)
        try:
            os.write(descriptor, b"x")
        finally:
            os.close(descriptor)
            os.unlink(path)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def output_check(directory: Path, reason: str, free_bytes: int, filesystem: str) -> Check:
    """Where a trace would go."""
    if reason:
        return fail(
            *(AREA, "directory", f"no trace can be written to {directory}: {reason}"),
            "flextrace record -o FILE ... with FILE elsewhere, such as /dev/shm/FILE "
            "(flextrace doctor --directory DIRECTORY tries one)",
        )
    memory = ", which takes memory" if filesystem in ("tmpfs", "ramfs") else ""
    told = f"{directory}: {format_bytes(free_bytes)} free on {filesystem}{memory}"
    if free_bytes < FREE_BYTES_MIN:
        limit = max(free_bytes // 2 >> 20, 1)
        return warn(AREA, "directory", told, f"flextrace record --max-size {limit}M ..., or -o FILE on another disk")
    return ok(AREA, "directory", told)


def takes_direct_io(directory: Path) -> bool:
    """Whether a file there can be opened past the page cache."""
    try:
        descriptor, path = tempfile.mkstemp(prefix=".flextrace-doctor-", dir=directory)
        os.close(descriptor)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
        finally:
            os.unlink(path)
    except OSError:
        return False
    return True


def direct_check(directory: Path, works: bool) -> Check:
    """What a replay of an application with direct I/O needs."""
    if works:
        return ok(AREA, "direct I/O", f"files in {directory} can be opened with O_DIRECT")
    return warn(
        *(AREA, "direct I/O", f"{directory} takes no O_DIRECT: a replay there sends direct requests by the page cache"),
        "flextrace replay --directory DIRECTORY ... on a disk with ext4, xfs or btrfs",
    )


def memory_directory_check() -> Check:
    """Where scale and compare keep the traces that they replay: in memory, apart from the disk that they measure."""
    try:
        # Only this check needs more than the standard library.
        from selfscale.measuring.point_trace import REQUESTS_PER_S_MAX  # noqa: PLC0415
        from selfscale.measuring.scratch import memory_room, willy_bytes  # noqa: PLC0415
    except ImportError:
        return warn(AREA, "/dev/shm", "not looked at: scale does not work, see Python", "what is said there")
    try:
        room = memory_room()
    except OSError:
        return ok(AREA, "/dev/shm", "/proc does not say how much of it can be taken")
    if room >= willy_bytes(REQUESTS_PER_S_MAX):
        return ok(AREA, "/dev/shm", f"takes traces of scale and compare of up to {format_bytes(room)}")
    return warn(
        *(AREA, "/dev/shm", f"takes only {format_bytes(room)}: scale keeps larger traces in {tempfile.gettempdir()}"),
        "sudo mount -o remount,size=1G /dev/shm",
    )
