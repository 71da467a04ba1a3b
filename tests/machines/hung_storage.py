# SPDX-License-Identifier: Apache-2.0
"""Storage that does not answer.

A frozen file system holds who writes to it, in the kernel, where no signal comes; a control group holds who reads from
a disk, strace who makes a call, and a lease who opens a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.machines.own_group import made_group
from tests.runs.running_replay import wait_until
from tests.truths.page_cache import resident_pages

BLKIO = Path("/sys/fs/cgroup/blkio")
MADV_PAGEOUT, SYS_PROCESS_MADVISE = 21, 440
FSYNC, IO_URING_ENTER = 74, 426  # numbers of calls


@contextlib.contextmanager
def frozen(place: Path) -> Iterator[None]:
    """A mounted file system, as long as this lasts."""
    subprocess.run(["fsfreeze", "--freeze", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", place], check=True)


def page_out(process: int, file: Path) -> None:
    """Take the pages of a file that a process has mapped out of memory, as the kernel does that lacks some."""
    lines = [line.split() for line in Path(f"/proc/{process}/maps").read_text().splitlines()]
    begin, end = (int(word, 16) for word in next(line[0] for line in lines if line[-1] == str(file)).split("-"))
    parts = (ctypes.c_uint64 * 2)(begin, end - begin)  # struct iovec
    descriptor = os.pidfd_open(process)
    moved = ctypes.CDLL(None, use_errno=True).syscall(SYS_PROCESS_MADVISE, descriptor, parts, 1, MADV_PAGEOUT, 0)
    os.close(descriptor)
    assert moved == end - begin
    with file.open("rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert not any(resident_pages(file))


@contextlib.contextmanager
def unreadable(device: str, process: int) -> Iterator[None]:
    """A disk (MAJOR:MINOR) for one process, as long as this lasts."""
    with made_group(BLKIO) as group:
        limit = group / "blkio.throttle.read_bps_device"
        try:
            limit.write_text(f"{device} 1")
            (group / "cgroup.procs").write_text(str(process))
            yield
        finally:
            limit.write_text(f"{device} 0")
            with contextlib.suppress(OSError):  # it has ended
                (BLKIO / "cgroup.procs").write_text(str(process))


@contextlib.contextmanager
def opened_by_nobody(file: Path) -> Iterator[None]:
    """Who opens it waits, as long as this lasts, for 45 s at most (/proc/sys/fs/lease-break-time)."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # which is ignored
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def holding(process: int, call: str, file: Path | None = None, delay: str = "delay_enter=60s") -> Iterator[None]:
    """Whoever of a process makes this call, on a file, as long as this lasts, for a minute at most."""
    options = ["-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{delay}"]
    command = ["strace", "-f", "-p", str(process), *(["-P", str(file)] if file else []), *options]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr
    try:
        assert any("attached" in line for line in tracer.stderr)
        yield
    finally:
        tracer.terminate()
        tracer.communicate()


def has_open(process: int, file: Path) -> bool:
    """Whether a process has a file open."""
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if str(descriptor.readlink()).removesuffix(" (deleted)") == str(file):
                return True
    return False


def is_in_call(process: int, number: int) -> bool:
    """Whether a thread of a process is in a call that holds it."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):  # it ends meanwhile
            if (thread / "syscall").read_text().split()[0] == str(number):
                return True
    return False


def rest_of_document(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The lines behind the interval lines, up to the end of the document: the process may hang behind it."""
    assert process.stdout
    lines: list[str] = []
    for line in process.stdout:
        if lines or line == "{\n":
            lines.append(line)
        if lines and line == "}\n":
            break
    return json.loads("".join(lines))


def let_go(place: Path) -> None:
    """Wait until the kernel has taken a ring apart, which holds its files for a moment after its process has ended."""
    remount = ["mount", "-o", "remount,ro", place]
    wait_until(lambda: subprocess.run(remount, capture_output=True, check=False).returncode == 0)
