# SPDX-License-Identifier: Apache-2.0
"""Turns the machine and a directory on it into the facts that a measurement made there needs beside it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROC, SYS = Path("/proc"), Path("/sys")
SECTOR_BYTES = 512
MEMORY_TOLERANCE = 0.01
"""Two memory limits further apart than this share are different (the kernel rounds a limit to pages)."""
TELLING = ("kernel", "machine", "cpus", "filesystem", "device", "device_bytes", "memory_bytes", "memory_limit_bytes")
"""What of an environment tells one machine from another."""
IDENTITIES = ("wwid", "device/wwid", "serial", "device/serial", "dm/uuid", "md/uuid", "loop/backing_file")
"""Below a disk in /sys: what tells it from others."""


def memory_bytes() -> dict[str, int]:
    """The lines of /proc/meminfo in bytes, such as ``MemTotal`` and ``MemAvailable``."""
    lines = (line.split() for line in (PROC / "meminfo").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) == 3}


def cache_limit_bytes(memory_limit_bytes: int | None) -> int:
    """Most that the page cache can hold: a memory group's limit, else what is available; no more than our own group's,
    which may be that of a container."""
    from replayer.running.confine import current_limit  # noqa: PLC0415

    limit = memory_bytes()["MemAvailable"] if memory_limit_bytes is None else memory_limit_bytes
    own = current_limit()
    return limit if own is None else min(own, limit)


def same_limit(one: float | None, other: float | None) -> bool:
    """Whether two memory limits in bytes (None = none) are the same for a page cache."""
    if one is None or other is None:
        return one is other
    return abs(one - other) <= MEMORY_TOLERANCE * max(one, other)


def dirty_limit_bytes(limit_bytes: int) -> int:
    """Dirty bytes at which the kernel throttles writers.

    It counts per memory group in version 2 of control groups only, where an absolute limit is the same share of the
    group as of the whole machine (mm/page-writeback.c, domain_dirty_limits); in version 1 a confined writer is held to
    the limit of the whole machine, and reclaim in its group is what makes it wait.

    Parameters
    ----------
    limit_bytes : int
        Size of the cache; less than what is available where a memory group has less, be it a container's.
    """
    whole = memory_bytes()["MemAvailable"]
    absolute = int((PROC / "sys/vm/dirty_bytes").read_text())
    limit = min(absolute, whole) if absolute else whole * int((PROC / "sys/vm/dirty_ratio").read_text()) / 100
    of_groups = (SYS / "fs/cgroup/cgroup.controllers").exists()
    return round(limit * min(limit_bytes / whole, 1.0) if of_groups else limit)


def mount_of(directory: str | os.PathLike[str]) -> tuple[str, str, str]:
    """File system type, device and mount options of a directory, from /proc/self/mountinfo.

    Returns
    -------
    tuple of str
        ``("?", "?", "")`` where the mount is not listed.
    """
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    path = os.path.realpath(directory)
    best: tuple[int, tuple[str, str, str]] = (-1, ("?", "?", ""))
    # Names in it are of any bytes; only blanks and ends of lines are written otherwise.
    for line in os.fsdecode((PROC / "self/mountinfo").read_bytes()).split("\n")[:-1]:
        head, _, tail = line.partition(" - ")
        fields = head.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda escaped: chr(int(escaped[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # btrfs gives files other device numbers than its mount: then the longest mount point decides.
        rank = len(point) + (1 << 20 if fields[2] == number else 0) if inside else -2
        # Of several at one place, such as what systemd has mounted there when it was used, the last one is seen.
        if rank >= best[0]:
            kind, source, _ = tail.split(" ")[:3]
            best = (rank, (kind, source, fields[5]))
    return best[1]


def read_ahead_places(directory: str | os.PathLike[str]) -> list[Path]:
    """Directories of /sys that may have the ``read_ahead_kb`` of the file system that a directory is on."""
    number = os.stat(directory).st_dev
    places = [SYS / f"class/bdi/{os.major(number)}:{os.minor(number)}"]
    # btrfs gives its files a device number that no device has.
    device = Path(os.path.realpath(mount_of(directory)[1])).name
    places += [path.parent.parent / "bdi" for path in SYS.glob(f"fs/btrfs/*/devices/{device}")]
    return [place for place in places if (place / "read_ahead_kb").exists()]


def read_ahead_bytes(directory: str | os.PathLike[str]) -> int | None:
    """Largest window of read-ahead of the file system that a directory is on; None where the kernel does not say."""
    for place in read_ahead_places(directory):
        with contextlib.suppress(OSError, ValueError):
            return 1024 * int((place / "read_ahead_kb").read_text())
    return None


def request_bytes(directory: str | os.PathLike[str]) -> int | None:
    """Largest request to the device that a directory is on; None where the kernel does not say."""
    number = os.stat(directory).st_dev
    # btrfs gives its files a number that no device has; of a root file system the name may be none ("/dev/root").
    named = SYS / "class/block" / Path(os.path.realpath(mount_of(directory)[1])).name
    for device in (SYS / f"dev/block/{os.major(number)}:{os.minor(number)}", named):
        # A partition has the queue of its disk.
        for place in (device.resolve(), device.resolve().parent):
            with contextlib.suppress(OSError, ValueError):
                return 1024 * int((place / "queue/max_sectors_kb").read_text())
    return None


def identity_of(device: str) -> str | None:
    """What tells a block device from another one that has its name some other day; None: it is none, such as of NFS."""
    try:
        status = os.stat(device)
        if not stat.S_ISBLK(status.st_mode):
            return None
        place = (SYS / f"dev/block/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}").resolve()
        size_bytes = SECTOR_BYTES * int((place / "size").read_text())
    except OSError:
        return None
    disk = place if (place / "queue").exists() else place.parent  # of a partition
    for name in IDENTITIES:
        with contextlib.suppress(OSError):
            if called := (disk / name).read_text(errors="replace").strip(" \0\n"):
                return f"{called}, {size_bytes} bytes"
    return f"{size_bytes} bytes"


def changed(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Which facts of `TELLING` are not as they were, of those that both environments have."""

    def same(name: str) -> bool:
        # From one start to the next a kernel keeps some more or less of the memory for itself.
        return same_limit(then[name], now[name]) if name.startswith("memory") else then[name] == now[name]

    return [name for name in TELLING if name in then and name in now and not same(name)]


def host() -> dict[str, Any]:
    """What an environment says of the machine, wherever on it is measured."""
    from replayer.running.confine import current_limit  # noqa: PLC0415

    total, own = memory_bytes()["MemTotal"], current_limit()
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        # Of a container that has less, its memory is all that the machine has.
        "memory_bytes": total if own is None else min(own, total),
    }


def device_environment(path: str) -> dict[str, Any]:
    """What a profile of a raw device says of where it was measured; a page cache has no part in it."""
    from replayer.devices.device_trace import geometry_of  # noqa: PLC0415

    geometry = geometry_of(Path(path))
    device = {"device": path, "device_bytes": geometry.size_bytes, "logical_block_bytes": geometry.block_bytes}
    return {**host(), **device, "memory_limit_bytes": None}


def environment(directory: str | os.PathLike[str], memory_limit_bytes: int | None) -> dict[str, Any]:
    """What a profile says of where it was measured (contract: ``environment`` of flextrace.profile/1)."""
    filesystem, device, options = mount_of(directory)
    return {
        **host(),
        "memory_limit_bytes": memory_limit_bytes,
        "cache_limit_bytes": cache_limit_bytes(memory_limit_bytes),
        "directory": str(Path(directory).resolve()),
        "filesystem": filesystem,
        "mount_options": options,
        "device": device,
        "read_ahead_bytes": read_ahead_bytes(directory),
        "request_bytes": request_bytes(directory),
        "free_bytes": shutil.disk_usage(directory).free,
        "dirty_limit_bytes": dirty_limit_bytes(cache_limit_bytes(memory_limit_bytes)),
    }
