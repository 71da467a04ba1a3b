# SPDX-License-Identifier: Apache-2.0
"""What ``flextrace doctor`` says of the recorder: privileges, programs, rings and a trial, by what it would answer."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from characterize.errors import FlextraceError
from flextrace.checks import recorder
from flextrace.checks.check import Status
from flextrace.checks.host import Host
from tests.machines.made_host import put

pytestmark = pytest.mark.parallel
pytest_plugins = ["tests.machines.made_host"]

GIB = 1 << 30
RECORDER = Path("/opt/flex trace/flextrace-record")


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
        (
            {"state": "refused", "error": "Operation not permitted"},
            *("warn", "(Operation not permitted)", "nothing, where a rule of this machine forbids it, whatever its"),
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


def test_a_trial_whose_recorder_names_a_directory_that_is_not_utf8_is_told(tmp_path):
    failing = tmp_path / "flextrace-record"
    failing.write_text("#!/bin/sh\nprintf 'flextrace record: cannot write to \\377\\n' >&2; exit 1\n")
    failing.chmod(0o755)
    check = recorder.trial_check(failing, tmp_path)
    assert check.status is Status.FAIL
    assert "cannot write to" in check.cause


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
