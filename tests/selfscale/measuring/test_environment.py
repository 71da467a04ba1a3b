# SPDX-License-Identifier: Apache-2.0
"""What is said of a machine, from files of /proc and /sys that are made up."""

import os
from pathlib import Path

import pytest

from selfscale.measuring import environment
from selfscale.simulation.read_ahead_rules import read_ahead_rules

pytestmark = pytest.mark.parallel

MIB = 1 << 20
AVAILABLE = 1000 * MIB
GROUP = 200 * MIB


@pytest.fixture
def made_system(tmp_path, monkeypatch):
    """What /proc and /sys have, by path and text."""

    def make(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setattr(environment, "PROC", tmp_path / "proc")
        monkeypatch.setattr(environment, "SYS", tmp_path / "sys")

    return make


@pytest.mark.parametrize(
    ("limits", "version", "size_bytes", "expected"),
    [
        ((0, 20), 1, AVAILABLE, 200 * MIB),
        ((0, 20), 1, GROUP, 200 * MIB),  # a group of version 1 has the machine's limit
        ((0, 20), 2, AVAILABLE, 200 * MIB),
        ((0, 20), 2, GROUP, 40 * MIB),
        ((0, 20), 2, 2 * AVAILABLE, 200 * MIB),
        ((50 * MIB, 0), 1, GROUP, 50 * MIB),
        ((50 * MIB, 0), 2, AVAILABLE, 50 * MIB),
        ((50 * MIB, 0), 2, GROUP, 10 * MIB),  # a twentieth of what is available, and so of the group
        ((5000 * MIB, 0), 2, GROUP, GROUP),
    ],
)
def test_the_dirty_limit_is_that_of_the_group_or_of_the_machine(made_system, limits, version, size_bytes, expected):
    """Limits: /proc/sys/vm/dirty_bytes and dirty_ratio. Version: of control groups, which may be a container's."""
    dirty_bytes, ratio = limits
    made_system(
        {
            "proc/meminfo": f"MemTotal: 9999999 kB\nMemAvailable: {AVAILABLE // 1024} kB\n",
            "proc/sys/vm/dirty_bytes": f"{dirty_bytes}\n",
            "proc/sys/vm/dirty_ratio": f"{ratio}\n",
            **({"sys/fs/cgroup/cgroup.controllers": "memory\n"} if version == 2 else {}),
        }
    )
    assert environment.dirty_limit_bytes(size_bytes) == expected


@pytest.mark.parametrize(
    ("asked", "own", "expected"),
    [
        (None, None, AVAILABLE),
        (None, GROUP, GROUP),
        (None, 2 * AVAILABLE, AVAILABLE),
        (GROUP, None, GROUP),
        (GROUP, GROUP // 2, GROUP // 2),  # of a container that has less than a group in it is to have
        (GROUP, 2 * GROUP, GROUP),
    ],
)
def test_the_cache_is_no_larger_than_any_of_the_groups_lets_it_be(monkeypatch, asked, own, expected):
    monkeypatch.setattr(environment, "memory_bytes", lambda: {"MemAvailable": AVAILABLE})
    monkeypatch.setattr("replayer.running.confine.current_limit", lambda: own)
    assert environment.cache_limit_bytes(asked) == expected


def test_of_two_mounts_at_one_place_the_last_one_is_told(tmp_path, monkeypatch):
    """btrfs gives files other device numbers than that of its mount, so that these do not tell which it is."""
    place = tmp_path / "data"
    place.mkdir()
    lines = [
        "1 0 0:999 / / rw - ext4 /dev/root rw",
        f"2 1 0:998 / {place} rw - autofs systemd-1 rw",
        f"3 2 0:997 / {place} rw,noatime - btrfs /dev/disk rw",
        "4 1 0:996 / /elsewhere rw - tmpfs none rw",
    ]
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(environment, "PROC", tmp_path)
    assert environment.mount_of(place / ".") == ("btrfs", "/dev/disk", "rw,noatime")


@pytest.mark.parametrize(
    ("facts", "rules"),
    [
        ({}, (32, 320, True)),
        ({"read_ahead_bytes": 4 << 20}, (1024, 320, True)),
        ({"read_ahead_bytes": 0}, (1, 320, True)),
        ({"filesystem": "overlay", "kernel": "6.18.44", "read_ahead_bytes": None}, (32, 320, True)),
        ({"filesystem": "ext4", "kernel": "6.18.44", "request_bytes": 1 << 20}, (32, 256, True)),
        ({"filesystem": "ext4", "kernel": "6.15.2", "request_bytes": 512.0}, (32, 1, False)),
        ({"filesystem": "xfs", "kernel": "6.1.0-56-amd64"}, (32, 320, True)),
        ({"filesystem": "btrfs", "kernel": "6.18.44", "request_bytes": 1 << 20}, (32, 32, False)),
        ({"filesystem": "f2fs", "kernel": "?"}, (32, 320, False)),
        ({"filesystem": "ext4", "kernel": "?"}, (32, 320, True)),
    ],
)
def test_what_is_read_ahead_by(facts, rules):
    assert read_ahead_rules(facts) == rules


@pytest.mark.parametrize(
    ("files", "identity"),
    [
        ({"wwid": "eui.0025388b710116a1\n", "device/serial": "S4EWNX0R\n"}, "eui.0025388b710116a1, 4096000 bytes"),
        ({"wwid": "\n", "device/serial": "S4EWNX0R  \n"}, "S4EWNX0R, 4096000 bytes"),
        ({}, "4096000 bytes"),
    ],
)
@pytest.mark.parametrize("partition", ["", "disk1"])
def test_what_tells_a_disk_from_others(tmp_path, monkeypatch, files, identity, partition):
    """By its own name for itself, also of a partition."""
    device = next((path for path in Path("/dev").iterdir() if path.is_block_device()), None)
    if device is None:
        pytest.skip("there is no block device")
    disk = tmp_path / "devices/disk"
    for name, text in {"queue/rotational": "0\n", f"{partition or '.'}/size": "8000\n", **files}.items():
        (disk / name).parent.mkdir(parents=True, exist_ok=True)
        (disk / name).write_text(text)
    number = device.stat().st_rdev
    link = tmp_path / f"dev/block/{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(disk / partition)
    monkeypatch.setattr(environment, "SYS", tmp_path)
    assert environment.identity_of(str(device)) == identity


@pytest.mark.parametrize("partition", ["", "disk1"])
@pytest.mark.parametrize("numbered", [True, False])
def test_requests_of_a_device_are_told_by_its_number_or_its_name(tmp_path, monkeypatch, partition, numbered):
    """Cloud images mount "/dev/root", which is none in /sys, and btrfs has numbers of no device."""
    number = os.stat(tmp_path).st_dev
    queue = tmp_path / "devices/disk/queue/max_sectors_kb"
    queue.parent.mkdir(parents=True)
    queue.write_text("256\n")
    (tmp_path / "devices/disk" / partition).mkdir(exist_ok=True)
    place = f"dev/block/{os.major(number)}:{os.minor(number)}" if numbered else "class/block/disk"
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).symlink_to(tmp_path / "devices/disk" / partition)
    monkeypatch.setattr(environment, "SYS", tmp_path)
    monkeypatch.setattr(environment, "mount_of", lambda _: ("ext4", "/dev/root" if numbered else "/dev/disk", ""))
    assert environment.request_bytes(tmp_path) == 256 << 10


def test_what_is_no_block_device_has_no_identity():
    assert [environment.identity_of(name) for name in ("/dev/null", "/", "server:/export", "none")] == [None] * 4
