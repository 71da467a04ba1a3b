# SPDX-License-Identifier: Apache-2.0
"""``flextrace doctor`` and ``flextrace record`` in the same circumstances: what the one says, the other has to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import characterize
from characterize.layout import IoOp
from tests.runs import ordinary_user
from tests.truths.told import PROGRAMS, ROOT, without_map_iterators

FLEXTRACE = [sys.executable, "-m", "flextrace"]
WITHOUT_PACKAGES = [
    *(sys.executable, "-c"),
    "from flextrace import doctor, main; doctor.requirements = list; raise SystemExit(main.main())",
]
"""The same, but that the doctor does not import all that is required: that takes seconds, and says nothing of recording
(`test_doctor` looks at it)."""
USER = ordinary_user.as_user()
UNCONFINED = ["setpriv", f"--reuid={ordinary_user.NUMBER}", f"--regid={ordinary_user.NUMBER}", "--clear-groups"]
OTHERS_FILES = {"CAP_FOWNER", "CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE"}

pytest_plugins = ["tests.machines.small_file_system"]
pytestmark = [pytest.mark.records, pytest.mark.parallel]


def in_mounts(script: str) -> list[str]:
    """What runs a command where other things are mounted."""
    return ["unshare", "--mount", "sh", "-c", f'{script} && cd "$PWD" && exec "$@"', "sh"]


def refused(program: str) -> list[str]:
    """What runs a command on a kernel that does not take a BPF program."""
    return ["env", f"LD_PRELOAD={PROGRAMS / 'refuse_program'}", f"REFUSED_PROGRAM={program}"]


@dataclass
class Circumstance:
    """How flextrace is run, whether recording works so, and which checks have to be named."""

    before: list[str]
    works: bool = True
    failed: set[str] = field(default_factory=set)
    limits: set[str] = field(default_factory=set)


CIRCUMSTANCES = {
    "root": Circumstance([]),
    "two capabilities": Circumstance(ordinary_user.as_user("bpf", "perfmon"), limits=OTHERS_FILES),
    "all useful capabilities": Circumstance(
        ordinary_user.as_user("bpf", "perfmon", "fowner", "dac_read_search", "sys_ptrace")
    ),
    "CAP_SYS_ADMIN": Circumstance(ordinary_user.as_user("sys_admin"), limits=OTHERS_FILES),
    "CAP_BPF": Circumstance(ordinary_user.as_user("bpf"), False, {"CAP_PERFMON"}, OTHERS_FILES),
    "CAP_PERFMON": Circumstance(ordinary_user.as_user("perfmon"), False, {"CAP_BPF"}, OTHERS_FILES),
    "no capability": Circumstance(USER, False, {"CAP_BPF", "CAP_PERFMON"}, OTHERS_FILES),
    "user namespace": Circumstance(["unshare", "--user", "--map-root-user"], False, {"user namespace"}),
    "PID namespace": Circumstance(["unshare", "--pid", "--fork", "--mount-proc"], False, {"PID namespace"}),
    "no BTF": Circumstance(in_mounts("mount -t tmpfs none /sys/kernel/btf"), False, {"BTF"}),
    "no /sys": Circumstance(in_mounts("mount -t tmpfs none /sys"), False, {"BTF"}, {"--memory"}),
    "no /proc": Circumstance(
        in_mounts("mount -t tmpfs none /proc"), limits={"I/O accounts", "--memory", "--in-cgroup"}
    ),
    "read-only": Circumstance(in_mounts('mount -t tmpfs -o ro none "$PWD"'), False, {"directory"}),
    "an optional program refused": Circumstance(
        refused("io_uring_queue_async_work"), limits={"io_uring_queue_async_work"}
    ),
    "a program for groups refused": Circumstance(refused("adopt_group"), limits={"adopt_group"}),
    "a needed program refused": Circumstance(refused("sys_enter"), False, {"sys_enter"}),
}


@pytest.fixture
def place():
    with ordinary_user.directory_of_user() as made:
        yield made


def run(
    before: list[str], place: Path, *arguments: str, program: list[str] = WITHOUT_PACKAGES, **environment: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*before, *program, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=place,
    )
    assert "Traceback" not in done.stderr
    return done


def diagnosis(done: subprocess.CompletedProcess[str]) -> tuple[str, dict[str, set[str]]]:
    """The verdict, and names of checks by status."""
    document = json.loads(done.stdout)
    names: dict[str, set[str]] = {"ok": set(), "warn": set(), "fail": set()}
    for check in document["checks"]:
        names[check["status"]].add(check["name"])
        assert check["cause"]
        assert bool(check["remedy"]) == (check["status"] != "ok"), check
    return document["verdict"], names


def written_bytes(trace: characterize.Trace, name: str) -> int:
    io = trace.io[trace.io["op"] == IoOp.WRITE]
    return sum(row.result for row in io.itertuples() if Path(trace.paths[row.file]).name == name)


def can_start(before: list[str], place: Path) -> bool:
    command = [*before, sys.executable, "-c", "import flextrace.main"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return not subprocess.run(command, env=environment, cwd=place, capture_output=True, check=False).returncode


@pytest.mark.parametrize("name", CIRCUMSTANCES)
def test_the_doctor_is_right_about_a_recording(place, name):
    how = CIRCUMSTANCES[name]
    if not can_start(how.before, place):
        pytest.skip("this checkout cannot be read, or these circumstances not be made, here")
    told = run(how.before, place, "doctor", "--format", "json")
    verdict, names = diagnosis(told)
    assert not list(place.iterdir())
    recorded = run(how.before, place, "record", "--quiet", "-o", "t", "--", "sh", "-c", "echo 1234 >file")
    assert (told.returncode, recorded.returncode) == ((0, 0) if how.works else (1, 1)), recorded.stderr
    assert (verdict == "fails") == (not how.works)
    assert bool(names["fail"]) == (not how.works)
    assert how.failed <= names["fail"]
    assert how.limits <= names["warn"]
    assert (place / "t").exists() == how.works
    if how.works:
        assert written_bytes(characterize.open(place / "t"), "file") == 5
    if name == "root":
        assert not names["warn"] & OTHERS_FILES


def test_little_room_is_a_limit(small_file_system):
    verdict, names = diagnosis(run([], small_file_system, "doctor", "--format", "json"))
    assert verdict == "limited"
    assert "directory" in names["warn"]
    advice = run([], small_file_system, "doctor").stdout.partition("flextrace record --max-size ")[2].split()[0]
    command = ("record", "--quiet", "-o", "t", "--max-size", advice, "--", "sh", "-c", "echo 1234 >file")
    assert run([], small_file_system, *command).returncode == 0
    assert written_bytes(characterize.open(small_file_system / "t"), "file") == 5


def test_the_advice_for_no_capability_is_enough(place):
    """setcap, as the remedy says it, on a copy of the recorder."""
    if not can_start(UNCONFINED, place):
        pytest.skip("this checkout cannot be read by an ordinary user")
    for name in ("flextrace-record", "flextrace-replay"):
        shutil.copy(ROOT / "build" / name, place)
    if os.statvfs(place).f_flag & os.ST_NOSUID:
        pytest.skip("the temporary directory is mounted with nosuid: setcap has no effect there")
    for expected in ("fails", "limited", "limited"):
        told = run(UNCONFINED, place, "doctor", "--format", "json", FLEXTRACE_BINARIES=str(place))
        verdict, names = diagnosis(told)
        assert verdict == expected
        remedies = [check["remedy"] for check in json.loads(told.stdout)["checks"] if check["area"] == "privileges"]
        advice = next((remedy for remedy in remedies if remedy.startswith("sudo setcap ")), None)
        if advice:
            command = advice.removeprefix("sudo ").partition(" (")[0]
            subprocess.run(
                command, shell=True, check=True, env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
            )
    assert advice is None
    assert not names["warn"] & OTHERS_FILES
    command = ("record", "--quiet", "-o", "t", "--", "sh", "-c", "echo 1234 >file")
    recorded = run(UNCONFINED, place, *command, FLEXTRACE_BINARIES=str(place))
    assert (recorded.returncode, without_map_iterators(recorded.stderr)) == (0, "")
    assert written_bytes(characterize.open(place / "t"), "file") == 5


def test_the_layer_that_is_left_can_be_recorded(place):
    """As the remedy for a refused program of the other layer says."""
    for program, layer in (("sys_enter", "block"), ("block_rq_issue", "vfs")):
        told = run(refused(program), place, "doctor", "--format", "json")
        check = next(each for each in json.loads(told.stdout)["checks"] if each["name"] == program)
        assert f"flextrace record --layer {layer} ... works" in check["remedy"]
        assert '(Permission denied: "unknown func bpf_other#9999")' in check["cause"]
        command = ("record", "--quiet", "--force", "--layer", layer, "-o", "t", "--", "true")
        assert run(refused(program), place, *command).returncode == 0


def test_what_fails_in_record_leads_to_the_doctor(place):
    for before in (USER, in_mounts("mount -t tmpfs none /sys/kernel/btf"), refused("sys_exit")):
        if not can_start(before, place):
            continue
        done = run(before, place, "record", "-o", "t", "--", "true")
        assert done.returncode == 1
        assert "flextrace doctor says" in done.stderr
    warned = run(refused("io_uring_complete"), place, "record", "-o", "t", "--", "true")
    assert "flextrace doctor says what is lost" in warned.stderr


def test_dry_run_says_what_is_lost(place):
    done = run(refused("io_uring_file_get"), place, "record", "--dry-run", "-o", "t", "--", "true")
    assert "left out: this kernel refuses it (io_uring requests begin, in the trace, where" in done.stdout


def test_the_text_ends_with_the_verdict_and_names_each_program(place):
    done = run([], place, "doctor", "--directory", str(place), program=FLEXTRACE)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("recording works here")
    sources = "".join(path.read_text() for path in (ROOT / "bpf").glob("*.bpf.c"))
    sections = sum(sources.count(f'SEC("{kind}/') for kind in ("tp_btf", "fentry", "iter"))
    lines = done.stdout.split("\nprograms\n")[1].split("\n\n")[0].splitlines()
    begun = [line.split() for line in lines if line[:8].strip()]  # no remedies, nor second lines
    assert len(begun) == sections > 30
    assert len({name for _, name, *_ in begun}) == sections
