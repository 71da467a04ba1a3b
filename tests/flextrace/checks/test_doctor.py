# SPDX-License-Identifier: Apache-2.0
"""``flextrace doctor``: what it says of groups, places and packages, and how it puts its checks into words."""

from __future__ import annotations

import json

import pytest

from flextrace import doctor
from flextrace.checks import groups, packages, places
from flextrace.checks.check import Status, Verdict, fail, ok, verdict_of, warn
from flextrace.main import main
from replayer.running.confine import ADVICE
from tests.machines.made_host import put

pytestmark = pytest.mark.parallel
pytest_plugins = ["tests.machines.made_host"]

GIB = 1 << 30


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
