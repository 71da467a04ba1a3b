# SPDX-License-Identifier: Apache-2.0
"""A machine that is made of files as in /proc and /sys, for what `flextrace doctor` says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flextrace.checks.host import Host


@pytest.fixture
def host(tmp_path):
    """A machine on which all is well, by its files; `put` changes one."""
    made = Host(tmp_path / "proc", tmp_path / "sys", "6.12.9+deb12-amd64", "x86_64")
    for path, text in {
        "sys/kernel/btf/vmlinux": "BTF",
        "sys/kernel/security/lockdown": "[none] integrity confidentiality",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
        "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm",
        "proc/sys/kernel/unprivileged_bpf_disabled": "2",
        "proc/sys/kernel/perf_event_paranoid": "3",
        "sys/bus/virtio/devices/virtio0/device": "0x0005",
        "sys/bus/virtio/devices/virtio0/features": "0110000",
        "proc/self/io": "rchar: 1",
        "proc/self/uid_map": "         0          0 4294967295",
        "proc/self/status": "Name:\tx\nNoNewPrivs:\t0\nCapEff:\t000000c000000000",
        "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw",
    }.items():
        put(tmp_path / path, text)
    return made


def put(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
