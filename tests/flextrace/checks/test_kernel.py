# SPDX-License-Identifier: Apache-2.0
"""What ``flextrace doctor`` says of each fact of a kernel and a machine that are made up, and what it advises."""

from __future__ import annotations

import pytest

from flextrace.checks import kernel
from flextrace.checks.check import Status
from flextrace.checks.host import Host
from tests.machines.made_host import put

pytestmark = pytest.mark.parallel
pytest_plugins = ["tests.machines.made_host"]


def test_a_good_machine_passes_all_checks_of_the_kernel(host):
    checks = kernel.kernel_checks(host)
    assert [check.status for check in checks] == [Status.OK] * len(checks)
    assert len({check.name for check in checks}) == len(checks)


BALLOON = "sys/bus/virtio/devices/virtio0"
CLOCK = "sys/devices/system/clocksource/clocksource0"


@pytest.mark.parametrize(
    "case",
    [
        (
            "sys/kernel/btf/vmlinux",
            None,
            "BTF",
            "fail",
            "CONFIG_DEBUG_INFO_BTF=y",
            "sudo apt install linux-image-amd64",
        ),
        ("sys/kernel/btf/vmlinux", "", "BTF", "fail", "cannot be read", "sudo chmod 444 "),
        ("sys/kernel/security/lockdown", "none [integrity] confidentiality", "lockdown", "ok", "integrity", ""),
        ("sys/kernel/security/lockdown", None, "lockdown", "ok", "does not say", ""),
        (
            *("sys/kernel/security/lockdown", "none integrity [confidentiality]"),
            *("lockdown", "fail", "no program read its memory", "sudo update-grub"),
        ),
        ("proc/self/uid_map", "0 1000 1", "user namespace", "fail", "only inside", "--cap-add PERFMON"),
        ("proc/self/uid_map", None, "user namespace", "ok", "", ""),
        ("proc/sys/kernel/perf_event_paranoid", None, "settings", "ok", "unprivileged_bpf_disabled=2: need not", ""),
        ("proc/self/io", None, "I/O accounts", "warn", "cannot be compared", "CONFIG_TASK_IO_ACCOUNTING=y"),
        (f"{CLOCK}/current_clocksource", "hpet", "clock", "warn", "hpet: slow", "echo tsc | sudo tee "),
        (f"{CLOCK}/current_clocksource", "kvm-clock", "clock", "ok", "kvm-clock", ""),
        (f"{CLOCK}/current_clocksource", None, "clock", "ok", "does not say", ""),
        (f"{BALLOON}/features", "0110010", "free memory", "ok", "takes it back", ""),
        (f"{BALLOON}/features", "0110001", "free memory", "ok", "stays", ""),
        ("sys/module/damon_reclaim/parameters/enabled", "Y", "idle memory", "ok", "DAMON pages out", ""),
        ("sys/module/damon_reclaim/parameters/enabled", "N", "idle memory", "ok", "stays", ""),
    ],
)
def test_one_fact_of_the_kernel_differs(host, tmp_path, case):
    path, text, name, status, cause, remedy = case
    put(tmp_path / path, text)
    by_name = {check.name: check for check in kernel.kernel_checks(host)}
    found = by_name.pop(name)
    assert (found.status, bool(found.remedy)) == (status, bool(remedy))
    assert cause in found.cause
    assert remedy in found.remedy
    assert {check.status for check in by_name.values()} == {Status.OK}


@pytest.mark.parametrize(
    ("state", "action", "pages_out"), [("on", "pageout", True), ("off", "pageout", False), ("on", "stat", False)]
)
def test_who_pages_out_what_is_idle(host, tmp_path, state, action, pages_out):
    thread = tmp_path / "sys/kernel/mm/damon/admin/kdamonds/0"
    put(thread / "state", state)
    put(thread / "contexts/0/schemes/0/action", action)
    assert ("DAMON" in kernel.idle_memory_check(host).cause) == pages_out


def test_a_clock_without_a_better_one(host, tmp_path):
    put(tmp_path / CLOCK / "current_clocksource", "acpi_pm")
    put(tmp_path / CLOCK / "available_clocksource", "acpi_pm hpet")
    assert "expect a higher cost" in kernel.clock_check(host).remedy


@pytest.mark.parametrize(("link", "status"), [("pid:[4026531836]", "ok"), ("pid:[4026532201]", "fail"), (None, "ok")])
def test_numbers_of_processes(host, link, status):
    if link:
        (host.proc / "self/ns").mkdir()
        (host.proc / "self/ns/pid").symlink_to(link)
    found = kernel.pid_namespace_check(host)
    assert (found.status, "--pid=host" in found.remedy) == (status, status == "fail")


def test_no_proc_is_told_from_no_accounts(tmp_path):
    assert kernel.accounts_check(Host(tmp_path, tmp_path)).remedy == "sudo mount -t proc proc /proc"


@pytest.mark.parametrize(
    ("release", "machine", "statuses"),
    [
        ("6.1.0-28-amd64", "x86_64", ("ok", "ok")),
        ("5.10.0-33-amd64", "x86_64", ("ok", "warn")),
        ("strange", "x86_64", ("ok", "warn")),
        ("6.12.0", "aarch64", ("fail", "ok")),
    ],
)
def test_machine_and_release(tmp_path, release, machine, statuses):
    made = Host(tmp_path, tmp_path, release, machine)
    assert (kernel.machine_check(made).status, kernel.release_check(made).status) == statuses
