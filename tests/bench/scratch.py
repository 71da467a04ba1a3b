# SPDX-License-Identifier: Apache-2.0
"""Makes places to work in that leave nothing behind: directories, memory file systems, loop devices, tracefs."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flextrace.runs.interruption import terminated_as_interrupted
from tests.bench.load import UnavailableError


@contextmanager
def work_directory(parent: Path | None) -> Iterator[Path]:
    """A temporary directory, which also goes where a signal ends the program."""
    with terminated_as_interrupted(), tempfile.TemporaryDirectory(prefix="flextrace-bench-", dir=parent) as name:
        yield Path(name)


@contextmanager
def tmpfs(place: Path, size_bytes: int) -> Iterator[Path]:
    """A file system in memory, mounted at a directory that is made."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        place.rmdir()


@contextmanager
def loop_device(place: Path, size_bytes: int) -> Iterator[Path]:
    """A block device of requests over a file in memory, read and written directly: quieter than a shared disk."""
    with tmpfs(place, size_bytes + (16 << 20)) as memory:
        image = memory / "image"
        image.touch()
        subprocess.run(["fallocate", "-l", str(size_bytes), image], check=True)
        command = ["losetup", "--find", "--show", "--direct-io=on", str(image)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise UnavailableError(f"no loop device: {made.stderr.strip()}")
        device = Path(made.stdout.strip())
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)


@contextmanager
def tracefs() -> Iterator[None]:
    """Mount the file system from which bpftrace and perf read the tracepoints, where it is not mounted."""
    mounted = Path("/sys/kernel/tracing/events").exists()
    if not mounted:
        subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=True)
    try:
        yield
    finally:
        if not mounted:
            # Not checked: another user may have come to need it meanwhile.
            subprocess.run(["umount", "/sys/kernel/tracing"], check=False)
