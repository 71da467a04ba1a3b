# SPDX-License-Identifier: Apache-2.0
"""The lab machines of the benchmarks: what is said of them is what the kernel says, and nothing of them stays."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from replayer.running.confine import MemoryGroup
from selfscale.measure import evict
from selfscale.measuring.environment import environment, mount_of
from tests.bench import lab_machines
from tests.bench.lab_machines import MIB, READ_AHEAD_KB, VM, LabMachine, Throttle, lab_machine
from tests.bench.load import UnavailableError
from tests.machines.block_device import loop_device
from tests.machines.left_behind import take_away
from tests.runs.running_replay import own_process

SMALL = 16 * MIB
MACHINES = [
    LabMachine("disk", SMALL, "ext4", "disk"),
    LabMachine("memory", SMALL, "xfs", "memory"),
    LabMachine("zram", SMALL, "btrfs", "zram"),
    LabMachine("slow", SMALL, "ext4", "memory", Throttle(5000, 40_000_000)),
]
BACKING = {"disk": "flextrace-lab-", "memory": "/dev/shm/flextrace-lab-"}


@pytest.fixture(autouse=True)
def small_devices(monkeypatch):
    monkeypatch.setattr(lab_machines, "ROOM_BYTES_MIN", 400 * MIB)


def traces_left() -> list[str]:
    """What of lab machines the kernel still has."""
    left = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "flextrace-lab-" in line]
    left += [
        str(file) for file in Path("/sys/block").glob("loop*/loop/backing_file") if "flextrace-lab-" in file.read_text()
    ]
    left += [str(path) for path in Path("/dev/shm").glob("flextrace-lab-*")]
    left += [str(path) for path in Path("/sys/block").glob("zram*") if (path / "disksize").read_text() != "0\n"]
    left += [f"{path}: {path.read_text()}" for path in VM.glob("dirty_*")]
    left += [f"{path}: {path.read_text()}" for path in Path("/sys/fs/cgroup").glob("blkio/blkio.throttle.*_device")]
    return left


@pytest.fixture
def nothing_left(tmp_path):
    before = traces_left()
    yield
    assert traces_left() == before
    assert not list(tmp_path.glob("flextrace-lab-*"))


@pytest.mark.parametrize(
    "name", ["with a space", "no\u00a0break", "two\u2028lines", "Größe", os.fsdecode(b"caf\xe9"), "back\\slash"]
)
def test_a_mount_point_of_any_name_is_found(name, tmp_path):
    """/proc/self/mountinfo writes some bytes as octal numbers, and all others as they are."""
    place = tmp_path / name
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noatime", "flextrace-test", place], check=True)
    try:
        assert mount_of(place)[:2] == ("tmpfs", "flextrace-test")
    finally:
        subprocess.run(["umount", place], check=True)


def backing_file(device: str) -> str:
    return (Path("/sys/block") / Path(device).name / "loop/backing_file").read_text()


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_machine_has_the_file_system_the_device_and_the_cache_that_it_states(machine, tmp_path, nothing_left):
    try:
        with lab_machine(machine, tmp_path) as place:
            kind, device, _ = mount_of(place)
            assert kind == machine.file_system
            sectors = int((Path("/sys/block") / Path(device).name / "size").read_text())
            assert sectors * 512 == machine.size_bytes
            if machine.device == "zram":
                assert device.startswith("/dev/zram")
            else:
                assert BACKING[machine.device] in backing_file(device)
                assert backing_file(device).startswith("/dev/shm") == (machine.device == "memory")
            with MemoryGroup(machine.memory_bytes) as group:
                facts = environment(place, machine.memory_bytes)
                assert facts["cache_limit_bytes"] == machine.memory_bytes
                assert facts["dirty_limit_bytes"] == machine.memory_bytes // 5
                if machine.device != "zram" and machine.file_system != "btrfs":  # whose window is its own
                    assert facts["read_ahead_bytes"] == READ_AHEAD_KB * 1024
                # Reading more than the limit leaves at most the limit charged.
                file = place / "f0"
                file.write_bytes(os.urandom(3 * machine.memory_bytes))
                evict(place)
                subprocess.run(group.wrap(["cat", str(file)]), stdout=subprocess.DEVNULL, check=True)
                assert machine.memory_bytes / 2 < group.usage_bytes() <= machine.memory_bytes
    except UnavailableError as error:
        pytest.skip(str(error))


def test_throttled_machine_is_not_faster_than_its_throttle(tmp_path, nothing_left):
    machine = replace(MACHINES[3], throttle=Throttle(100_000, 8_000_000))
    try:
        with lab_machine(machine, tmp_path) as place:
            for flags in (["if=/dev/zero", f"of={place}/f", "oflag=direct"], [f"if={place}/f", "of=/dev/null"]):
                direct = ["iflag=direct"] if flags[1] == "of=/dev/null" else []
                begin = time.monotonic()
                subprocess.run(["dd", "bs=64k", "count=128", *flags, *direct], check=True, capture_output=True)
                # A lower limit, which other work on the machine cannot break; the first slice may be for nothing.
                assert time.monotonic() - begin > 0.7 * 8 * MIB / 8_000_000
    except UnavailableError as error:
        pytest.skip(str(error))


def test_many_small_dirty_blocks_are_no_reason_to_write_back(tmp_path, nothing_left):
    # On a small btrfs they are, long before the limit on dirty pages: here that is a tenth of 192 MiB.
    machine = LabMachine("zram", 192 * MIB, "btrfs", "zram")
    blocks = 3989
    try:
        with lab_machine(machine, tmp_path) as place:
            file = place / "f0"
            file.write_bytes(os.urandom(2 * 4096 * blocks))
            os.sync()
            written = Path("/sys/block") / Path(mount_of(place)[1]).name / "stat"
            before = int(written.read_text().split()[6])
            descriptor = os.open(file, os.O_WRONLY)
            for number in range(blocks):
                os.pwrite(descriptor, b"x" * 4096, 2 * 4096 * number)
            os.close(descriptor)
            assert int(written.read_text().split()[6]) - before < 0.1 * 8 * blocks
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.root
def test_what_fails_inside_takes_everything_away(tmp_path, nothing_left):
    def fail() -> None:
        with lab_machine(MACHINES[1], tmp_path) as place:
            (place / "file").write_bytes(b"x" * 4096)
            raise RuntimeError("measured nothing")

    with pytest.raises(RuntimeError, match="measured nothing"):
        fail()


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_program_takes_everything_away(number, tmp_path, nothing_left):
    program = f"""
import signal, sys, time
from pathlib import Path
from flextrace.runs.interruption import terminated_as_interrupted
from selfscale.measure import evict
from tests.bench import lab_machines
lab_machines.ROOM_BYTES_MIN = 400 << 20
machine = lab_machines.LabMachine("memory", 16 << 20, "xfs", "memory")
with terminated_as_interrupted(), lab_machines.lab_machine(machine, Path({str(tmp_path)!r})) as place:
    (place / "file").write_text("x")
    print("made", flush=True)
    time.sleep(60)
"""
    command = [sys.executable, "-c", program]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout
    assert running.stdout.readline() == "made\n", running.communicate()[1]
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert running.returncode
    assert "KeyboardInterrupt" in said


CHANGES = f"""
import contextlib, signal, sys
from pathlib import Path
from tests.bench import lab_machines
with contextlib.ExitStack() as stack:
    lab_machines._dirty_limits(stack, {SMALL})
    lab_machines._throttle(stack, Path(sys.argv[1]), lab_machines.Throttle(5000, 40_000_000))
    print("changed", flush=True)
    signal.pause()
"""


@pytest.mark.root
@pytest.mark.parametrize("next_run", ["tests", "machine"])
def test_settings_that_a_killed_program_changed_are_put_back(next_run, tmp_path, nothing_left):
    before = traces_left()
    with (
        loop_device(tmp_path / "disk", MIB) as device,
        own_process([sys.executable, "-c", CHANGES, device.path]) as running,
    ):
        if running.stdout.readline() != "changed\n":
            pytest.skip(running.communicate()[1].splitlines()[-1])
        assert traces_left() != before
        running.kill()
        running.wait()
        if next_run == "tests":
            assert sum("flextrace-settings-" in each for each in take_away()) == 2
        else:
            with (
                contextlib.suppress(UnavailableError),
                lab_machine(LabMachine("huge", 1 << 50, "ext4", "disk"), tmp_path),
            ):
                pytest.fail("there is no such room")
        assert traces_left() == before


@pytest.mark.root
def test_machine_without_room_says_how_much_it_needs(tmp_path):
    huge = LabMachine("huge", 1 << 50, "ext4", "disk")
    with pytest.raises(UnavailableError, match=r"machine huge: \d+ MiB are needed"), lab_machine(huge, tmp_path):
        pass
