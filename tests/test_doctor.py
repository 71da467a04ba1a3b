# SPDX-License-Identifier: Apache-2.0
"""``flextrace doctor`` against made-up machines: what each check says of each fact, and what it advises."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from characterize.errors import FlextraceError
from flextrace import doctor
from flextrace.checks import groups, kernel, packages, places, recorder
from flextrace.checks.check import Status, Verdict, fail, ok, verdict_of, warn
from flextrace.checks.host import Host
from flextrace.main import main
from replayer.running.confine import ADVICE

pytestmark = pytest.mark.parallel

GIB = 1 << 30
RECORDER = Path("/opt/flex trace/flextrace-record")


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


def capabilities(*held: str) -> dict:
    rows = {"CAP_BPF": True, "CAP_PERFMON": True, "CAP_FOWNER": False, "CAP_SYS_PTRACE": False}
    return {
        "capabilities": [
            {"name": name, "has": name in held, "required": required, "loss": f"without {name}"}
            for name, required in rows.items()
        ]
    }


def test_capabilities_by_name_and_by_need(host, monkeypatch):
    monkeypatch.setattr(recorder, "ignores_file_capabilities", lambda path: False)
    found = recorder.capability_checks(capabilities("CAP_BPF", "CAP_SYS_PTRACE"), RECORDER, host)
    assert [(check.name, check.status) for check in found] == [
        ("CAP_BPF", "ok"),
        ("CAP_PERFMON", "fail"),
        ("CAP_FOWNER", "warn"),
        ("CAP_SYS_PTRACE", "ok"),
    ]
    quoted = "'/opt/flex trace/flextrace-record'"
    assert found[1].remedy.startswith(f"sudo setcap cap_bpf,cap_perfmon=ep {quoted} ")
    assert found[2].remedy.startswith(f"sudo setcap cap_bpf,cap_perfmon,cap_fowner,cap_sys_ptrace=ep {quoted} ")
    assert found[2].cause == "without CAP_FOWNER"


def test_setcap_is_not_advised_where_it_has_no_effect(host, tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "ignores_file_capabilities", lambda path: True)
    assert recorder.capability_checks(capabilities(), RECORDER, host)[0].remedy.startswith("sudo ")
    assert "nosuid" in recorder.capability_checks(capabilities(), RECORDER, host)[0].remedy
    put(tmp_path / "proc/self/status", "Name:\tx\nNoNewPrivs:\t1\n")
    assert "sudo" not in recorder.capability_checks(capabilities(), RECORDER, host)[0].remedy


@pytest.mark.parametrize(
    ("release", "limit", "has_resource", "status"),
    [
        ("6.1.0", 65536, False, "ok"),
        ("5.10.0", 65536, False, "fail"),
        ("5.10.0", 65536, True, "ok"),
        ("5.10.0", resource.RLIM_INFINITY, False, "ok"),
    ],
)
def test_locked_memory_counts_on_old_kernels_only(tmp_path, release, limit, has_resource, status):
    made = Host(tmp_path, tmp_path, release, "x86_64")
    assert recorder.locked_memory_check(made, limit, has_resource).status == status


def test_rings_against_memory():
    assert recorder.ring_check(2, 16 << 20, GIB).status == Status.OK
    assert recorder.ring_check(2, 16 << 20, None).status == Status.OK
    many = recorder.ring_check(128, 16 << 20, GIB)
    assert many.status == Status.WARN
    # A power of two, so that all of them fit into a quarter of the memory.
    assert many.remedy == f"flextrace record --ring-bytes {GIB // 4 // 128} ..."
    assert recorder.ring_check(128, 16 << 20, 1000).remedy == "flextrace record --ring-bytes 32768 ..."


def row(**given) -> dict:
    blank = {"name": "tp_btf/x", "program": "x", "layer": "vfs", "state": "loads", "required": False}
    return {**blank, "loss": "this is lost", "since": None, "feature": None, "error": None, "words": None, **given}


@pytest.mark.parametrize(
    ("given", "status", "cause", "remedy"),
    [
        ({}, "ok", "loads", ""),
        ({"required": True}, "ok", "loads", ""),
        ({"state": "not needed", "required": True}, "ok", "not needed on this kernel", ""),
        ({"state": "missing", "since": "6.6"}, "warn", "this is lost: ", "Linux 6.6 has it: sudo apt install -t"),
        ({"state": "missing"}, "warn", "this kernel has no tp_btf/x", "module"),
        (
            {"state": "missing", "feature": "CONFIG_BLOCK", "required": True, "layer": "block"},
            *(
                "fail",
                "this kernel has no tp_btf/x",
                "flextrace record --layer vfs ... works without; use a kernel built with CONFIG_B",
            ),
        ),
        (
            {"state": "refused", "error": "Permission denied", "words": "unknown func bpf_other#9"},
            *("warn", 'refuses the program (Permission denied: "unknown func bpf_other#9")', "report"),
        ),
        ({"state": "refused", "error": "No", "required": True}, "fail", "(No)", "--layer block ... works without"),
        ({"state": "refused", "error": "No", "required": True, "layer": "both"}, "fail", "(No)", "sudo apt"),
        ({"state": "refused", "error": "No", "required": True, "layer": "group"}, "warn", "(No)", "sudo apt"),
    ],
)
def test_a_program_and_what_is_lost_without_it(given, status, cause, remedy):
    (found,) = recorder.program_checks({"error": None, "programs": [row(**given)]}, "")
    assert (found.name, found.status, bool(found.remedy)) == ("x", status, bool(remedy))
    assert cause in found.cause
    assert remedy in found.remedy


def test_programs_that_were_not_asked_for():
    (unprivileged,) = recorder.program_checks({**capabilities("CAP_BPF"), "error": "Operation not permitted"}, "words")
    assert (unprivileged.status, unprivileged.cause) == ("fail", "not tried, for want of privileges")
    (other,) = recorder.program_checks({**capabilities("CAP_BPF", "CAP_PERFMON"), "error": "E"}, "cannot load: E")
    assert (other.status, other.cause) == ("fail", "cannot load: E")


def test_message_is_the_recorders_without_the_kernels_log():
    stderr = "flextrace record: cannot do: E; flextrace doctor says more\nlibbpf: prog 'x': failed\n"
    assert recorder.message_of(stderr) == "cannot do: E"
    assert recorder.message_of("flextrace record: missing: X; flextrace doctor says what else helps\n") == "missing: X"
    assert recorder.message_of("flextrace record: warning: X (flextrace doctor says what is lost)\n") == "warning: X"
    assert recorder.message_of("ld.so: no such library\n") == "ld.so: no such library"


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ((0, "", 8192), "ok"),
        ((0, "the trace does not agree", 8192), "warn"),
        ((3, "9 RECORDS WERE LOST", 8192), "warn"),
        ((1, "cannot load", 0), "fail"),
        ((-11, "", 8192), "fail"),
        ((0, "", 0), "fail"),
    ],
)
def test_trial(outcome, status):
    assert recorder.trial_outcome(*outcome).status == status


def binary(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "statuses"),
    [
        ("#!/bin/sh\necho NAME 1.2.3\n", ("ok", "ok")),
        ("#!/bin/sh\necho NAME 0.9\n", ("warn", "warn")),
        ("#!/bin/sh\nexit 1\n", ("fail", "warn")),
        ("no program", ("fail", "warn")),
        ("", ("fail", "warn")),
    ],
)
def test_binaries(tmp_path, monkeypatch, script, statuses):
    monkeypatch.setenv("FLEXTRACE_BINARIES", str(tmp_path))
    for name, status in zip(("flextrace-record", "flextrace-replay"), statuses, strict=True):
        path = binary(tmp_path / name, script)
        found, where = recorder.binary_check(name, "1.2.3")
        assert found.status == status
        assert str(path) in found.cause
        assert (where == path) == ("echo" in script)


def test_binaries_that_were_not_built(monkeypatch):
    def missing(name):
        raise FlextraceError(f"{name} is not built: run 'make build'")

    monkeypatch.setattr(recorder, "find_binary", missing)
    assert recorder.binary_check("flextrace-record", "1")[0].status == Status.FAIL
    engine, where = recorder.binary_check("flextrace-replay", "1")
    assert (engine.status, engine.remedy, where) == ("warn", "run 'make build'", None)
    assert "replay, scale and compare do not work" in engine.cause


def test_a_recorder_that_knows_no_survey(tmp_path, host, monkeypatch):
    monkeypatch.setenv("FLEXTRACE_BINARIES", str(tmp_path))
    for name in ("flextrace-record", "flextrace-replay"):
        binary(tmp_path / name, "#!/bin/sh\necho flextrace 0.0\n")
    found = recorder.recorder_checks(host, tmp_path, "0.1", GIB)
    assert (found[0].name, found[0].status, found[0].remedy) == ("flextrace-record", "fail", recorder.REBUILD)
    assert "gave no answer" in found[0].cause


def test_control_groups(host, tmp_path):
    assert groups.memory_check("").status == Status.OK
    refused = groups.memory_check(f"cannot make a memory group (/x: Permission denied): {ADVICE}")
    assert (refused.status, refused.remedy) == ("warn", ADVICE)
    assert refused.cause == "does not work: cannot make a memory group (/x: Permission denied)"
    unmounted = groups.memory_check("cannot limit memory: none is mounted; mount one (mount -t cgroup2 ...)")
    assert unmounted.remedy == "mount one (mount -t cgroup2 ...)"
    assert groups.record_check(host).cause == "groups of version 2 below /sys/fs/cgroup"
    put(tmp_path / "proc/self/mountinfo", "1 2 0:1 / /a rw - cgroup c rw,memory\n1 2 0:1 / /b rw - cgroup c rw,cpu\n")
    assert groups.record_check(host).cause == "of version 1 below /a /b"
    put(tmp_path / "proc/self/mountinfo", "1 2 0:1 / / rw - ext4 /dev/vda rw\n")
    assert groups.record_check(host).remedy == "sudo mount -t cgroup2 none /sys/fs/cgroup"


def test_directory(tmp_path):
    assert places.output_check(tmp_path, "", 5 * GIB, "ext4").status == Status.OK
    assert "takes memory" in places.output_check(tmp_path, "", 5 * GIB, "tmpfs").cause
    little = places.output_check(tmp_path, "", 100 << 20, "ext4")
    assert (little.status, "--max-size 50M" in little.remedy) == ("warn", True)
    refused = places.output_check(tmp_path, "Read-only file system", 0, "?")
    assert (refused.status, "/dev/shm/FILE" in refused.remedy) == ("fail", True)
    assert places.direct_check(tmp_path, False).status == Status.WARN
    assert places.direct_check(tmp_path, True).status == Status.OK
    assert places.why_not_writable(tmp_path) == ""
    assert places.why_not_writable(tmp_path / "none") == "No such file or directory"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("room_bytes", "status"), [(1 << 30, "ok"), (1 << 20, "warn")])
def test_shared_memory(monkeypatch, room_bytes, status):
    monkeypatch.setattr("selfscale.measuring.scratch.memory_room", lambda: room_bytes)
    assert places.memory_directory_check().status == status


def test_packages(tmp_path, monkeypatch):
    (tmp_path / "flextrace_broken.py").write_text("raise ValueError('bent')")
    monkeypatch.syspath_prepend(tmp_path)
    good, *bad = packages.package_checks(["json", "flextrace_missing>=3", "flextrace_broken"])
    assert (good.status, good.cause.endswith("with json")) == ("ok", True)
    assert [(check.name, check.status) for check in bad] == [
        ("flextrace_missing", "warn"),
        ("flextrace_broken", "warn"),
    ]
    assert bad[0].remedy.endswith("-m pip install 'flextrace_missing>=3'")
    assert "ValueError: bent" in bad[1].cause


def test_requirements_are_those_of_the_project():
    wanted = {text.partition(">")[0] for text in packages.requirements()}
    assert {"pandas", "numpy"} <= wanted
    assert "pytest" not in wanted


def test_all_requirements_are_here():
    """Also those whose module has another name, such as scikit-learn."""
    assert [check.status for check in packages.package_checks(packages.requirements())] == ["ok"]


def test_verdict_text_and_document(tmp_path):
    good, limit, bad = ok("kernel", "a", "x"), warn("kernel", "b", "y", "do"), fail("recording", "c", "z", "do that")
    assert verdict_of([good]) is Verdict.WORKS
    assert doctor.verdict_line([good]) == "recording works here"
    assert doctor.verdict_line([good, limit]) == "recording works here, with limits: b"
    assert doctor.verdict_line([bad, limit]) == "recording does not work here: c"
    assert doctor.render([good, limit, warn("kernel", "bb", "yy", "do"), bad]) == [
        *("kernel", "  ok    a   x", "  warn  b   y", "  warn  bb  yy", "        -> do", ""),
        *("recording", "  fail  c   z", "        -> do that", ""),
        "recording does not work here: c",
    ]
    document = json.loads(json.dumps(doctor.as_document([good, bad], tmp_path)))
    assert (document["schema"], document["verdict"]) == ("flextrace.doctor/1", "fails")
    assert (document["command"][0], document["tool_version"]) == ("flextrace", doctor.own_version())
    assert list(document["checks"][1].values()) == ["recording", "c", "fail", "z", "do that"]
    assert list(document["checks"][1]) == ["area", "name", "status", "cause", "remedy"]


def test_a_long_cause_is_broken_where_a_line_ends():
    cause = f"groups of version 1 below {' '.join(f'/sys/fs/cgroup/{number}' for number in range(20))}"
    _, first, *rest, _, _ = doctor.render([ok("kernel", "--in-cgroup", cause)])
    begin = "  ok    --in-cgroup  "
    assert first.startswith(begin)
    assert all(line.startswith(" " * len(begin)) for line in rest)
    assert max(map(len, [first, *rest])) < 100
    assert " ".join(line[len(begin) :] for line in [first, *rest]) == cause


@pytest.mark.parametrize("name", ["nowhere", "file", "nul\0"])
def test_a_directory_that_is_none(tmp_path, capsys, name):
    (tmp_path / "file").touch()
    assert main(["doctor", "--directory", f"{tmp_path}/{name}"]) == 2
    assert "name a directory that is there" in capsys.readouterr().err
