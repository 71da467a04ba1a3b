# SPDX-License-Identifier: Apache-2.0
"""What belongs to a recording and what does not: limits that its end meets, filters of names, the recorder itself."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections import Counter

import pandas as pd
import pytest

import characterize
from characterize.layout import Fileop, IoOp, RecordKind
from tests.machines.loop_file_system import loop_file_system
from tests.machines.overlay import overlay
from tests.truths.told import NAMED_BY_ARGUMENT, RECORDER, open_closed, run_recorder, wait_for_recording

pytest_plugins = ["tests.machines.own_group"]
pytestmark = pytest.mark.records


def test_a_limit_that_only_the_last_records_meet_is_told(tmp_path):
    """All records of a program of some ms are held back until it has ended."""
    script = f"dd if=/dev/zero of={tmp_path}/file bs=1 count=17000; exit 5"
    options = ("--max-size", "1M", "--layer", "vfs")
    done = run_recorder(tmp_path / "t", "sh", "-c", script, options=options)
    assert done.returncode == 5, done.stderr
    trace = open_closed(tmp_path / "t")
    assert (tmp_path / "t").stat().st_size <= 1 << 20
    written = (trace.io["op"] == IoOp.WRITE).sum()
    assert written + trace.header.metadata["lost"].get("IO", 0) < 17000
    assert trace.header.metadata["stopped_by"] == "max-size"
    assert "ended at 1048576 bytes (--max-size)" in done.stderr
    # What came later is no part of its time.
    operations = pd.concat([trace.io, trace.fileops])
    assert (operations["start_ns"] + operations["duration_ns"]).max() == trace.header.end_monotonic_ns
    realtime_ns = trace.header.end_realtime_ns - trace.header.start_realtime_ns
    assert abs(realtime_ns - (trace.header.end_monotonic_ns - trace.header.start_monotonic_ns)) < 10_000_000


# On files that are opened and on some that are not, in a directory that is recorded (in) and one that is not (out).
CALLS_ON_NAMES = """
import os, sys
for place in sys.argv[1:]:
    os.chdir(place)
    open("new", "w").close()
    os.rename("new", "renamed")
    os.mkdir("made")
    os.rmdir("made")
    os.link("old", "linked")
    os.symlink("old", "symbolic")
    os.unlink("linked")
    os.truncate("old", 7)
    try: open("missing")
    except FileNotFoundError: pass
    try: os.unlink("absent")
    except FileNotFoundError: pass
os.rename(sys.argv[1] + "/renamed", sys.argv[2] + "/moved-out")
os.rename(sys.argv[2] + "/renamed", sys.argv[1] + "/moved-in")
os.sync()
"""
# By operation: what the program above does in a directory, with the two renames between them.
NAMED = {Fileop.RENAME: 3, Fileop.MKDIR: 1, Fileop.RMDIR: 1, Fileop.LINK: 1, Fileop.SYMLINK: 1, Fileop.TRUNCATE: 1}
NAMED |= {Fileop.UNLINK: 2, Fileop.SYNCFS: 1}


def named(trace: characterize.Trace) -> Counter[Fileop]:
    return Counter(Fileop(op) for op in trace.fileops["op"] if Fileop(op) in NAMED)


def test_a_prefix_leaves_out_calls_on_other_names(tmp_path):
    places = [tmp_path / "in", tmp_path / "out"]
    for place in places:
        place.mkdir()
        (place / "old").write_bytes(bytes(100))
    done = run_recorder(
        *(tmp_path / "t", "python3", "-I", "-c", CALLS_ON_NAMES, *places), options=("--path", str(places[0]))
    )
    assert done.returncode == 0, done.stderr
    trace = open_closed(tmp_path / "t")
    assert named(trace) == NAMED
    assert (trace.fileops.loc[trace.fileops["op"] == Fileop.OPEN, "result"] == 0).all()
    outside = {path for path in trace.paths.values() if not path.startswith(f"{places[0]}")}
    assert outside == {f"{places[1]}/moved-out", f"{places[1]}/renamed"}
    # Nine calls on names and two opens in the other directory.
    assert trace.header.metadata["skips"]["filtered"] >= 11


def test_a_prefix_that_is_made_meanwhile_is_only_noted(tmp_path):
    place = tmp_path / "place"
    script = f"mkdir {place}; echo 1234 > {place}/file; mkdir {tmp_path}/other"
    done = run_recorder(tmp_path / "t", "sh", "-c", script, options=("--path", str(place)))
    assert done.returncode == 0, done.stderr
    assert f"there is no {place} yet" in done.stderr
    assert "no operation was" not in done.stderr
    # Now it is there, and nobody uses it: which is said even by who says nothing but that.
    done = run_recorder(tmp_path / "q", "true", options=("--path", str(place), "--quiet"))
    assert f"no operation was on a file below {place}: all" in done.stderr
    assert " yet" not in done.stderr
    dry = run_recorder(tmp_path / "d", "true", options=("--path", str(tmp_path / "new"), "--dry-run"))
    assert f"there is no {tmp_path}/new yet" in dry.stdout


# Two processes, each of which opens each file when the other does.
OPEN_TOGETHER = """
import mmap, os, sys
os.chdir(sys.argv[1])
turns = mmap.mmap(-1, 2)
own = 1 if os.fork() else 0
for number in range(int(sys.argv[2])):
    turns[own] = number % 256
    while (turns[1 - own] - number) % 256 > 127: pass
    file = os.open(str(number), os.O_RDONLY)
    os.read(file, 1)
    os.close(file)
if own: os.wait()
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_a_prefix_leaves_out_a_file_that_two_see_first(tmp_path):
    files = 3000
    for number in range(files):
        (tmp_path / str(number)).touch()
    command = ("python3", "-I", "-c", OPEN_TOGETHER, tmp_path, str(files))
    done = run_recorder(tmp_path / "t", *command, options=("--path", str(tmp_path / "none")))
    assert done.returncode == 0, done.stderr
    trace = open_closed(tmp_path / "t")
    assert (len(trace.io), len(trace.fileops)) == (0, 0)
    assert trace.header.metadata["skips"]["filtered"] >= 2 * 3 * files


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_a_device_leaves_out_calls_on_names_elsewhere(tmp_path, kind):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_bytes(bytes(100))
    script = CALLS_ON_NAMES.replace("os.rename(sys", "0 and os.rename(sys")  # not between file systems
    with loop_file_system(kind, tmp_path) as system:
        (system.place / "old").write_bytes(bytes(100))
        done = run_recorder(
            *(tmp_path / "t", "python3", "-I", "-c", script, system.place, tmp_path / "out"),
            options=("--device", system.disk.path),
        )
        assert done.returncode == 0, done.stderr
    trace = open_closed(tmp_path / "t")
    assert named(trace) == {**NAMED, Fileop.RENAME: 1}
    assert all(path.startswith(str(system.place)) for path in trace.paths.values())


@pytest.mark.parametrize("option", ["-p", "--in-cgroup"])
def test_the_recorder_leaves_itself_out(tmp_path, group, option):
    """Of the session that it was started in, by its process or by its control group."""
    target = "$$" if option == "-p" else str(group)
    script = (
        f"echo $$ > {group}/cgroup.procs; {RECORDER} -o {tmp_path}/t {option} {target} & echo $!;"
        f"read go; echo 1234 > {tmp_path}/file; kill $!; wait $!"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(["sh", "-c", script], text=True, **pipes) as shell:
        recorder = int(shell.stdout.readline())
        wait_for_recording(shell.stderr)
        _, said = shell.communicate("go\n", timeout=120)
    assert shell.returncode == 0, said
    trace = open_closed(tmp_path / "t")
    assert f"{tmp_path}/file" in trace.paths.values()
    processes = set(trace.arrays[RecordKind.TASK]["process"])
    assert processes
    assert recorder not in processes
    assert recorder not in set(trace.io["process"]) | set(trace.fileops["process"])


CALLS_THROUGH_A_LINK = """
import os, sys
os.chdir(sys.argv[1])
for name in "abcd": open("deep/real/" + name, "w").close()
open("deep/e", "w").close()
os.unlink("link/a")
os.rename(os.path.abspath("link/b"), "link/moved")
os.link("link/c", "link//linked")
os.truncate("link/c", 7)
os.symlink("nowhere", "link/symbolic")
os.mkdir("link/made/")
os.unlink("link/../e")
os.chdir("link")
os.unlink("d")
"""


def test_names_through_symbolic_links_are_those_of_their_files(tmp_path):
    (tmp_path / "deep" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to("deep/real")
    done = run_recorder(tmp_path / "t", "python3", "-I", "-c", CALLS_THROUGH_A_LINK, tmp_path)
    assert done.returncode == 0, done.stderr
    trace = open_closed(tmp_path / "t")
    assert not [path for path in trace.paths.values() if path.startswith(f"{tmp_path}/link")]
    opened = {row.file for row in trace.fileops.itertuples() if row.op == Fileop.OPEN and row.file}
    paths = {file: path.removeprefix(f"{tmp_path}/deep/") for file, path in trace.paths.items()}
    paths[0] = ""
    calls = [
        (
            *(Fileop(row.op).name.lower(), paths[row.file]),
            *(paths[row.argument] if row.op in NAMED_BY_ARGUMENT else "", row.file in opened),
        )
        for row in trace.fileops[trace.fileops["op"].isin([*NAMED])].itertuples()
    ]
    assert calls == [
        ("unlink", "real/a", "", True),
        ("rename", "real/b", "real/moved", True),
        ("link", "real/c", "real/linked", True),
        ("truncate", "real/c", "", True),
        ("symlink", "", "real/symbolic", False),
        ("mkdir", "real/made", "", False),
        ("unlink", "e", "", True),
        ("unlink", "real/d", "", True),
    ]


NAMES_OF_PROC = """
import os, sys
place = os.open(sys.argv[1], os.O_DIRECTORY)
os.chdir(place)
file = os.open(".", os.O_TMPFILE | os.O_RDWR)
os.write(file, bytes(1234))
os.link(f"/proc/self/fd/{file}", "named", dst_dir_fd=place)
os.truncate(f"/proc/self/fd/{file}", 7)
os.link(f"/dev/fd/{file}", "again", dst_dir_fd=place)
os.link(f"/proc/self/fd/{place}/named", "third", dst_dir_fd=place)
os.mkdir("/proc/self/cwd/made")
os.unlink("named")
"""


def test_names_of_proc_are_not_those_of_the_recorder(tmp_path):
    """Which has a current directory and descriptors as well."""
    with loop_file_system("ext4", tmp_path) as system:
        done = run_recorder(
            *(tmp_path / "t", "python3", "-I", "-c", NAMES_OF_PROC, system.place), stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stderr
        trace = open_closed(tmp_path / "t")
        written = trace.io.loc[trace.io["result"] == 1234, "file"].item()
        paths = trace.paths
        calls = [
            (Fileop(row.op), row.file == written, paths[row.argument] if row.op in NAMED_BY_ARGUMENT else "")
            for row in trace.fileops[trace.fileops["op"].isin([*NAMED])].itertuples()
        ]
        assert calls[:2] == [(Fileop.LINK, True, f"{system.place}/named"), (Fileop.TRUNCATE, True, "")]
        assert [call[2].rpartition("/")[2] for call in calls[2:4]] == ["again", "third"]
        assert calls[4][0] == Fileop.MKDIR
        assert calls[5:] == [(Fileop.UNLINK, True, "")]
        beside = {path for path in paths.values() if path.startswith(("/proc/", "/dev/fd", os.getcwd() + "/made"))}
        assert {re.sub(r"[0-9]+", "N", path) for path in beside} == {
            "/dev/fd/N",
            "/proc/self/fd/N/named",
            "/proc/self/cwd/made",
        }


def test_links_of_another_root_are_not_those_of_the_recorder(tmp_path):
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "elsewhere").mkdir()
    inside = f"{tmp_path}/root{tmp_path}/link"
    os.makedirs(inside)
    script = (
        f"import os; os.chroot('{tmp_path}/root'); os.chdir('/'); open('{tmp_path}/link/file', 'w').close();"
        f"os.unlink('{tmp_path}/link/file')"
    )
    done = run_recorder(tmp_path / "t", "python3", "-I", "-c", script)
    assert done.returncode == 0, done.stderr
    trace = open_closed(tmp_path / "t")
    unlinked = trace.fileops.loc[trace.fileops["op"] == Fileop.UNLINK, "file"]
    assert [trace.paths[file] for file in unlinked] == [f"{tmp_path}/link/file"]
    assert f"{tmp_path}/elsewhere/file" not in trace.paths.values()


def test_a_new_file_of_an_overlay_is_not_the_one_that_had_its_number(tmp_path):
    """An overlay has the inode numbers of the file system below, but not the generations. Another thread writes.

    In so many rounds that memory is used again as well: it sees a struct file and an inode that it has seen before.
    """
    rounds = 60
    script = f"""
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
os.chdir(sys.argv[1])
writer = ThreadPoolExecutor(1)
for size in range(1, {rounds} + 1):
    name = "file%d" % size
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    writer.submit(os.write, file, bytes(size)).result()
    print(os.fstat(file).st_ino)
    os.close(file)
    os.unlink(name)
    time.sleep(0.02)
"""
    with loop_file_system("ext4", tmp_path) as system, overlay(system.place, {}) as place:
        done = run_recorder(tmp_path / "t", "python3", "-I", "-c", script, place)
    assert done.returncode == 0, done.stderr
    if len(set(done.stdout.split())) > 1:
        pytest.skip("the file system below gives other numbers to new files")
    trace = open_closed(tmp_path / "t")
    writes = trace.io[trace.io["op"] == IoOp.WRITE]
    written = [(trace.paths[row.file], row.result) for row in writes.itertuples()]
    written = [row for row in written if row[0].startswith(f"{place}/")]
    assert written == [(f"{place}/file{size}", size) for size in range(1, rounds + 1)]
    unlinks = trace.fileops[trace.fileops["op"] == Fileop.UNLINK]
    assert [trace.paths[file] for file in unlinks["file"]] == [row[0] for row in written]


def test_a_device_keeps_calls_on_names_in_its_volume_of_a_container(tmp_path):
    """Of which the recorder cannot say where it lies: it has another root."""
    volume = tmp_path / "root" / "volume"
    volume.mkdir(parents=True)
    script = f"import os; os.chroot('{tmp_path}/root'); os.chdir('/'); os.mkdir('volume/made'); os.rmdir('volume/made')"
    with loop_file_system("ext4", tmp_path) as system:
        subprocess.run(["mount", "--bind", system.place, volume], check=True)
        try:
            options = ("--device", system.disk.path)
            done = run_recorder(tmp_path / "t", "python3", "-I", "-c", script, options=options)
        finally:
            subprocess.run(["umount", volume], check=True)
    assert done.returncode == 0, done.stderr
    trace = open_closed(tmp_path / "t")
    calls = trace.fileops[trace.fileops["op"].isin([Fileop.MKDIR, Fileop.RMDIR])]
    assert [trace.paths[file] for file in calls["file"]] == ["/volume/made"] * 2


@pytest.mark.parametrize("mounts", [0, 70])
def test_a_device_keeps_calls_on_names_in_subvolumes(tmp_path, mounts):
    """Mounted or not: each has a device number of its own, and there may be many."""
    if not shutil.which("btrfs"):
        pytest.skip("btrfs (btrfs-progs) is not installed")
    with loop_file_system("btrfs", tmp_path) as system, contextlib.ExitStack() as stack:
        for at in range(max(mounts, 1)):
            place = system.place / f"volume{at}"
            subprocess.run(["btrfs", "subvolume", "create", place], check=True, capture_output=True)
            if mounts:
                place = tmp_path / f"place{at}"
                place.mkdir()
                subprocess.run(["mount", "-o", f"subvol=volume{at}", system.disk.path, place], check=True)
                stack.callback(subprocess.run, ["umount", place], check=True)
        (place / "old").write_bytes(bytes(100))
        script = f"import os; os.mkdir('{place}/made'); os.unlink('{place}/old'); os.mkdir('{tmp_path}/out')"
        options = ("--device", system.disk.path)
        done = run_recorder(tmp_path / "t", "python3", "-I", "-c", script, options=options)
        assert done.returncode == 0, done.stderr
    trace = open_closed(tmp_path / "t")
    calls = trace.fileops[trace.fileops["op"].isin([*NAMED])]
    assert [trace.paths[file] for file in calls["file"]] == [f"{place}/made", f"{place}/old"]


def test_requests_of_a_worker_that_are_left_out_are_no_stores_to_a_mapping(tmp_path):
    """Buffered writes of io_uring to ext4 are done by a thread of the kernel, and dirty pages that were clean."""
    with loop_file_system("ext4", tmp_path) as system:
        file = system.place / "file"
        file.write_bytes(bytes(1 << 20))
        os.sync()
        command = f"fio --name=x --filename={file} --size=1m --invalidate=0 --rw=write --bs=6k --ioengine=io_uring"
        done = run_recorder(tmp_path / "t", *command.split(), options=("--min-size", "8K", "--layer", "vfs"))
    assert done.returncode == 0, done.stderr
    trace = open_closed(tmp_path / "t")
    assert trace.header.metadata["skips"]["filtered"] >= (1 << 20) // (6 << 10)
    number = trace.files.loc[trace.files["path"] == str(file), "file"].iloc[0]
    assert not (trace.io.loc[trace.io["file"] == number, "op"] == IoOp.WRITE).any()


def test_threads_of_the_kernel_are_no_tasks_of_the_group_of_all(tmp_path, group):
    """What a loop device writes to its file is no store of its thread to a mapping."""
    pipe = {"stderr": subprocess.PIPE, "text": True}
    command = [RECORDER, "-o", tmp_path / "t", "--in-cgroup", group.parent, "--path", tmp_path, "--layer", "vfs"]
    with loop_file_system("ext4", tmp_path) as system, subprocess.Popen(command, **pipe) as recorder:
        wait_for_recording(recorder.stderr)
        with (tmp_path / "ext4.image").open("rb"), (system.place / "file").open("wb", 0) as file:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
        recorder.terminate()
        recorder.communicate(timeout=120)
    trace = open_closed(tmp_path / "t")
    written = trace.io.loc[trace.io["op"] == IoOp.WRITE, "file"].map(trace.paths)
    assert f"{tmp_path}/ext4.image" in trace.paths.values()
    assert set(written) == {f"{system.place}/file"}
