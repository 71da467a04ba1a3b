# SPDX-License-Identifier: Apache-2.0
"""What a run of tests leaves that is killed is taken away by the next one, and nothing of a run that lives."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machines.left_behind import take_away
from tests.runs.running_replay import wait_until
from tests.truths.straced import ROOT

pytestmark = [pytest.mark.root, pytest.mark.parallel]

FIRST_SECTOR = 4321
LEAVES = f"""
import signal, subprocess

from tests.machines.block_device import loop_device, partition, run
from tests.machines.loop_file_system import loop_file_system
from tests.runs.ordinary_user import directory_of_user
from tests.machines.own_place import own_place
from replayer.running.confine import MemoryGroup

pytest_plugins = ["tests.machines.own_group", "tests.machines.small_file_system"]


def test_that_does_not_end(tmp_path, group, small_file_system):
    (group / "inner").mkdir()
    with (
        loop_file_system("ext4", tmp_path) as system,
        loop_device(tmp_path / "alone", 8 << 20) as disk,
        partition(disk, {FIRST_SECTOR}),
        loop_device(small_file_system / "inside", 1 << 20),
        own_place() as memory,
        loop_file_system("ext4", memory),
        loop_device(memory / "alone", 1 << 20),
        directory_of_user() as other,
        MemoryGroup(64 << 20) as limited,
    ):
        run("fsfreeze", "--freeze", system.place)
        process = subprocess.Popen(["sleep", "infinity"])
        print("made", process.pid, group, limited.path, memory, other, flush=True)
        signal.pause()
"""

RUNS_A_VM = """
import sys
from pathlib import Path

from tests.vm import machine

machine.BUILD = Path(sys.argv[1])
machine._vng = lambda *_: ["bash", "-c", "(read process _ </proc/self/stat; echo $process; sleep infinity) & wait"]
machine.run("6.1", "", machine.BUILD / "results", 600)
"""


def said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def runs(process: str) -> bool:
    """Whether it is there, and not only to be waited for."""
    with contextlib.suppress(OSError):  # it has ended
        return Path("/proc", process, "stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def left(base: Path, process: str, made: list[Path]) -> tuple[int, int, int, int, bool]:
    """Mounts, loop devices of files below a run's places, partitions, how many groups and directories, the process."""
    mounts = said("findmnt", "--list", "--noheadings", "--output", "TARGET")
    images = said("losetup", "--list", "--noheadings", "--output", "BACK-FILE")
    return (
        sum(mounts.count(f"{place}/") for place in (base, *made)),
        sum(images.count(f"{place}/") for place in (base, *made)),
        said("lsblk", "--raw", "--noheadings", "--output", "START").split().count(str(FIRST_SECTOR)),
        sum(place.exists() for place in made),
        runs(process),
    )


def test_what_is_left_goes_when_its_run_has_ended(tmp_path):
    test, base = tmp_path / "test_leaves.py", tmp_path / "base"
    test.write_text(LEAVES)
    command = [sys.executable, "-m", "pytest", "-s", "-q", "-p", "tests.conftest", "-c", "/dev/null"]
    command += [f"--rootdir={ROOT}", f"--basetemp={base}", str(test)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        try:
            process, *made = next(line.split()[1:] for line in run.stdout if line.startswith("made "))
            made = [Path(word) for word in made]
            take_away()
            assert left(base, process, made) == (3, 5, 1, 4, True)
        finally:
            run.kill()
    take_away()
    wait_until(lambda: left(base, process, made) == (0, 0, 0, 0, False))


def test_a_vm_ends_with_the_run_that_it_belongs_to(tmp_path):
    """Also what its process has started, as virtme-ng starts QEMU."""
    console = tmp_path / "results" / "console"
    with subprocess.Popen([sys.executable, "-c", RUNS_A_VM, tmp_path], cwd=ROOT) as run:
        try:
            wait_until(lambda: console.exists() and console.read_text().endswith("\n"))
        finally:
            run.kill()
    wait_until(lambda: not runs(console.read_text().strip()))
