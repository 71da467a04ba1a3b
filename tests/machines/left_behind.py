# SPDX-License-Identifier: Apache-2.0
"""Takes away what tests left that were killed: processes, mounts, devices, control groups, settings of this host.

Only what is theirs for certain, and of a run that has ended: what lies in the directory of a run, which holds a lock on
a file in there as long as it lives; and what has the number of its process in its name, or in its environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.machines.host_settings import put_back_of_the_dead

LOCK = ".flextrace-tests"
RUN = "FLEXTRACE_TESTS"
"""Of the environment of all that tests start: the process of their run."""
GROUPS, SHARED_MEMORY = Path("/sys/fs/cgroup"), Path("/dev/shm")
NUMBERED = re.compile(r"flextrace-(?:test-)?(\d+)(?:-\d+)?")
"""Names of tests' own groups and directories (`own_group`, `own_place`), and of flextrace's memory groups."""


@contextlib.contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Let other runs know that what lies in a directory, and what is started, is of one that lives."""
    os.environ[RUN] = str(os.getpid())
    with (directory / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def take_away() -> list[str]:
    """What was there, and is not any more unless somebody uses it; needs root."""
    processes, settings = _end_processes(), put_back_of_the_dead()
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
    paths = [*settings, *(place for _, place in mounts), *images, *places, *groups]
    return sorted({*processes, *devices, *map(str, paths)})


def _end_processes() -> list[str]:
    """Some would go on for ever, and hold what they have open."""
    ended = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ends meanwhile
            found = re.search(rb"(?:^|\0)%b=(\d+)\0" % RUN.encode(), (process / "environ").read_bytes())
            if found and not Path("/proc", found[1].decode()).exists():
                os.kill(int(process.name), signal.SIGKILL)
                ended.append(f"process {process.name}")
    return ended


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
