# SPDX-License-Identifier: Apache-2.0
"""Memory groups: the kernel's own files and a program that fills its page cache say whether they bound and go away."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from characterize.errors import FlextraceError
from flextrace.record import warm
from replayer.running import confine
from replayer.running.confine import MemoryGroup, current_limit, processor_limit
from tests.runs.running_replay import wait_until
from tests.truths.straced import ROOT

pytestmark = [pytest.mark.root, pytest.mark.parallel]

LIMIT_BYTES = 64 << 20


def output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_a_command_runs_in_the_group_and_the_group_is_gone_afterwards():
    with MemoryGroup(LIMIT_BYTES) as group:
        listing = output(group.wrap(["cat", "/proc/self/cgroup"]))
        assert group.path.name in listing
        path = group.path
        assert path.is_dir()
    assert not path.exists()


def test_the_limit_is_seen_from_inside():
    program = "from replayer.running.confine import current_limit; print(current_limit())"
    with MemoryGroup(LIMIT_BYTES) as group:
        seen = output(group.wrap([sys.executable, "-c", program]))
    assert int(seen) == LIMIT_BYTES


def test_page_cache_is_bounded(tmp_path):
    """A file twice as large as the limit, written inside the group, cannot stay cached; fincore is the truth."""
    file = tmp_path / "filled"
    with MemoryGroup(LIMIT_BYTES) as group:
        output(group.wrap(["dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=128", "conv=fsync"]))
        assert group.usage_bytes() <= LIMIT_BYTES
        assert int(output(["fincore", "--bytes", "--noheadings", "--output", "RES", str(file)])) <= LIMIT_BYTES


def test_arguments_arrive_unchanged():
    arguments = ["a b", "$HOME", "'", '"', "", "*"]
    with MemoryGroup(LIMIT_BYTES) as group:
        out = output(group.wrap(["printf", "%s\\n", *arguments]))
        status = subprocess.run(group.wrap(["sh", "-c", "exit 7"]), check=False).returncode
    assert out.split("\n")[:-1] == arguments
    assert status == 7


def test_group_is_removed_after_an_error_with_a_process_still_in_it():
    started = []

    def fail_in_a_group():
        with MemoryGroup(LIMIT_BYTES) as group:
            process = subprocess.Popen(group.wrap(["sleep", "100"]))
            started.append((group.path, process))
            wait_until(lambda: str(process.pid) in (group.path / "cgroup.procs").read_text().split())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_a_group()
    path, process = started[0]
    assert not path.exists()
    assert process.wait(timeout=10) == -9


def test_a_process_of_another_pid_namespace_is_none_to_end(tmp_path, monkeypatch):
    """Version 2 lists it as 0, and a signal to 0 goes to the sender and all of its group."""
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "cgroup.procs").write_text("0\n17\n0\n")
    ended = []
    monkeypatch.setattr(os, "kill", lambda process, signal: ended.append(process))
    monkeypatch.setattr(confine, "_REMOVE_SECONDS", 0)
    group = MemoryGroup(LIMIT_BYTES)
    group.path, group._version = tmp_path / "group", 1
    with pytest.raises(FlextraceError, match="cannot remove"):
        group._remove()
    assert set(ended) == {17}


@pytest.mark.parametrize(("owner", "name"), [(os, "mkdir"), (MemoryGroup, "_limit")])
def test_an_interruption_while_a_group_is_made_leaves_none(owner, name, monkeypatch):
    call = getattr(owner, name)

    def interrupted(*arguments):
        call(*arguments)
        raise KeyboardInterrupt

    group = MemoryGroup(LIMIT_BYTES)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            group.__enter__()
    assert (group._own / "cgroup.procs").exists()
    places = (group._own, *group._own.parents)
    assert [path for place in places for path in place.glob(f"flextrace-{os.getpid()}-*")] == []


def test_groups_do_not_collide():
    with MemoryGroup(LIMIT_BYTES) as first, MemoryGroup(2 * LIMIT_BYTES) as second:
        assert first.path != second.path


def test_an_absurd_limit_is_a_usage_error():
    with pytest.raises(FlextraceError, match="at least") as caught:
        MemoryGroup(1000)
    assert caught.value.exit_code == 2


def test_without_permission_the_error_names_the_remedy():
    program = (
        "import os; os.setuid(65534)\n"
        "from characterize.errors import FlextraceError\n"
        "from replayer.running.confine import MemoryGroup\n"
        "try:\n    MemoryGroup(64 << 20).__enter__()\n"
        "except FlextraceError as error:\n    print(error)\n"
    )
    out = output([sys.executable, "-c", "import characterize.units, replayer.running.confine\n" + program])
    assert "run as root" in out


def test_names_of_mounts_and_groups_are_of_any_bytes(tmp_path, monkeypatch):
    group = tmp_path / "groups" / os.fsdecode(b"caf\xe9")
    (tmp_path / "self").mkdir()
    group.mkdir(parents=True)
    mounts = b"1 2 0:1 / /mnt/caf\xe9 rw - tmpfs none rw\n2 2 0:1 / /mnt/a\xe2\x80\xa8b\xc2\xa0c rw - tmpfs none rw\n"
    mounts += f"3 2 0:2 / {group.parent} rw - cgroup2 none rw\n".encode()
    (tmp_path / "self/mountinfo").write_bytes(mounts)
    (tmp_path / "self/cgroup").write_bytes(b"0::/caf\xe9\n")
    (group.parent / "cgroup.controllers").write_text("cpu memory\n")
    (group / "memory.max").write_text(f"{LIMIT_BYTES}\n")
    monkeypatch.setattr("replayer.running.confine.PROC", tmp_path)
    assert current_limit() == LIMIT_BYTES
    (group / "memory.max").write_text("max\n")
    assert current_limit() is None


def groups_below(place, monkeypatch, kind, options):
    """A group and the one below it, which this process is said to be in, of a hierarchy that is mounted in `place`."""
    own = place / "groups" / "slice" / "service"
    (place / "self").mkdir()
    own.mkdir(parents=True)
    (place / "self/mountinfo").write_text(f"3 2 0:2 / {place / 'groups'} rw - {kind} none {options}\n")
    (place / "self/cgroup").write_text("4:cpu,cpuacct:/slice/service\n0::/slice/service\n")
    (place / "groups" / "cgroup.controllers").write_text("cpu memory\n")
    monkeypatch.setattr("replayer.running.confine.PROC", place)
    return own.parent, own


def test_the_processors_of_a_group_are_the_fewest_of_those_around_it(tmp_path, monkeypatch):
    """As of systemd-run -p CPUQuota=250% in a slice, or docker run --cpus=2.5."""
    outer, own = groups_below(tmp_path, monkeypatch, "cgroup2", "rw")
    assert processor_limit() is None
    (own / "cpu.max").write_text("max 100000\n")
    assert processor_limit() is None
    (outer / "cpu.max").write_text("250000 100000\n")
    assert processor_limit() == 2.5
    (own / "cpu.max").write_text("20000 40000\n")
    assert processor_limit() == 0.5
    assert current_limit() is None


def test_the_processors_of_a_group_of_version_1(tmp_path, monkeypatch):
    outer, own = groups_below(tmp_path, monkeypatch, "cgroup", "rw,cpu,cpuacct")
    for group, quota in ((outer, 300_000), (own, -1)):
        (group / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (group / "cpu.cfs_period_us").write_text("100000\n")
    assert processor_limit() == 3


def test_what_cannot_be_warmed_is_told(tmp_path):
    with MemoryGroup(LIMIT_BYTES) as group, pytest.raises(FlextraceError, match=f"cannot warm {tmp_path}: .*directory"):
        warm([tmp_path], group)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # nobody writes into it
    with MemoryGroup(LIMIT_BYTES) as group, pytest.raises(FlextraceError, match=f"cannot warm {pipe}: .*pipe"):
        warm([pipe], group)


def test_a_group_that_cannot_go_is_told_behind_the_error_that_ended_its_block(monkeypatch):
    """What the user has to know is why the work ended, not only what it left."""
    monkeypatch.setattr("replayer.running.confine._REMOVE_SECONDS", 0.0)
    left = []
    told = "the engine refused it\ncannot remove the memory group"

    def fail_with_a_group_below():
        with MemoryGroup(LIMIT_BYTES) as group:
            (group.path / "below").mkdir()
            left.extend([group.path / "below", group.path])
            raise FlextraceError("the engine refused it", 2)

    try:
        with pytest.raises(FlextraceError, match=told) as caught:
            fail_with_a_group_below()
        assert caught.value.exit_code == 2
    finally:
        for path in left:
            path.rmdir()


def test_an_interruption_stays_one_where_a_group_cannot_go(monkeypatch):
    monkeypatch.setattr(MemoryGroup, "_remove", fail_to_remove)
    with pytest.raises(KeyboardInterrupt) as caught, MemoryGroup(LIMIT_BYTES) as group:
        raise KeyboardInterrupt
    group.path.rmdir()
    assert caught.value.__notes__ == ["cannot remove the memory group"]


def fail_to_remove(group):
    raise FlextraceError("cannot remove the memory group")
