# SPDX-License-Identifier: Apache-2.0
"""Takes away what tests left that were killed: mounts, devices, control groups.

Only what is theirs for certain, and of a run that has ended: what lies in the directory of a run, which holds a lock on
a file in there as long as it lives; and what has the number of its process in its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOCK = ".flextrace-tests"
GROUPS, SHARED_MEMORY = Path("/sys/fs/cgroup"), Path("/dev/shm")
NUMBERED = re.compile(r"flextrace-(?:test-)?(\d+)(?:-\d+)?")
"""Names of tests' own groups and directories (`own_group`, `own_place`), and of flextrace's memory groups."""


@contextlib.contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Let other runs know that what lies in a directory is of one that lives."""
    with (directory / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def take_away() -> list[str]:
    """What was there, and is not any more unless somebody uses it; needs root."""
    files = _backing_files()
    mounts = [(source, place) for source, place in _mounts() if _is_abandoned(place)]
    devices = {device for device, file in files.items() if _is_abandoned(file)}
    devices |= {source for source, _ in mounts if source in files}
    for device in devices:
        _detach(device)  # the kernel does so when nobody has it open or mounted any more
    for source, place in reversed(mounts):
        _run("fsfreeze", "--unfreeze", place)
        _run("umount", place)
        if source.startswith("/dev/zram"):
            _remove_zram(source.removeprefix("/dev/zram"))
    images = [files[device] for device in devices if files[device].match(f"{SHARED_MEMORY}/flextrace-*")]
    for path in images:
        path.unlink(missing_ok=True)
    places = [SHARED_MEMORY, Path(tempfile.gettempdir())]
    places = [path for place in places for path in place.glob("flextrace-test-*") if _is_of_the_dead(path)]
    for path in places:
        shutil.rmtree(path, ignore_errors=True)
    groups = [Path(directory) for directory, *_ in os.walk(GROUPS, topdown=False)]
    groups = [group for group in groups if _is_of_the_dead(group)]
    for group in groups:
        with contextlib.suppress(OSError):  # a process of it lives
            group.rmdir()
    return sorted({*devices, *(str(place) for _, place in mounts), *map(str, [*images, *places, *groups])})


def _is_abandoned(path: Path) -> bool:
    """Whether it lies in the directory of a run that has ended, or in a place of one of its processes."""
    if _is_of_the_dead(path):
        return True
    for directory in path.parents:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), (directory / LOCK).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True
    return False


def _is_of_the_dead(path: Path) -> bool:
    """Whether it, or what it lies in, has the number of a process that there is none of."""
    numbers = [found[1] for part in path.parts if (found := NUMBERED.fullmatch(part))]
    return any(not Path("/proc", number).exists() for number in numbers)


def _mounts() -> list[tuple[str, Path]]:
    """Source and place, in the order in which they were mounted."""
    told = _run("findmnt", "--list", "--json", "--nofsroot", "--output", "SOURCE,TARGET")
    return [(row["source"] or "", Path(row["target"])) for row in json.loads(told)["filesystems"]]


def _backing_files() -> dict[str, Path]:
    """Of all loop devices."""
    files = {}
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # detached meanwhile
            files[f"/dev/{path.parts[3]}"] = Path(path.read_text().removesuffix("\n").removesuffix(" (deleted)"))
    return files


def _detach(device: str) -> None:
    name = Path(device).name
    for partition in Path("/sys/block", name).glob(f"{name}p*/partition"):
        _run("delpart", device, partition.read_text().strip())
    _run("losetup", "--detach", device)


def _remove_zram(number: str) -> None:
    with contextlib.suppress(OSError):  # still in use
        Path("/sys/block", f"zram{number}", "reset").write_text("1")
        Path("/sys/class/zram-control/hot_remove").write_text(number)


def _run(*command: str | Path) -> str:
    """What it says; nothing where it fails, such as where another run of tests was first."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
