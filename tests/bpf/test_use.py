# SPDX-License-Identifier: Apache-2.0
"""What the user of the recorder chooses and is told: filters, limits, --dry-run, full disks, privileges."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import characterize
from characterize.layout import HeaderFlag, IoOp
from tests.machines.block_device import BlockDevice, loop_device, mounted, partition
from tests.machines.loop_file_system import loop_file_system
from tests.machines.own_group import GROUPS, made_group
from tests.machines.own_place import own_place
from tests.runs.terminal import on_terminal
from tests.truths.told import RECORDER, open_closed, run_recorder, wait_for_recording, without_map_iterators

pytest_plugins = ["tests.machines.small_file_system"]
pytestmark = pytest.mark.records


def written(trace: characterize.Trace) -> dict[str, int]:
    """Bytes written by path."""
    io = trace.io[(trace.io["op"] == IoOp.WRITE) & (trace.io["result"] > 0)]
    return {trace.paths[file]: int(rows["result"].sum()) for file, rows in io.groupby("file")}


@contextlib.contextmanager
def started(*arguments: str | Path, **keywords):
    """A recorder that runs, past the line that says so."""
    recorder = subprocess.Popen(
        # Whoever runs the tests in the background of a shell hands an ignored SIGINT down.
        ["env", "--default-signal=INT", RECORDER, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **keywords,
    )
    try:
        wait_for_recording(recorder.stderr)
        yield recorder
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(recorder.pid, signal.SIGKILL)
        recorder.wait(timeout=120)


def test_path_prefix_is_of_whole_components_and_without_links(tmp_path):
    for name in ("data", "database"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    script = f"for d in data database; do echo 1234 > {tmp_path}/$d/file; done; echo 1 > {tmp_path}/file"
    for prefix, expected in (("link", {"data/file": 5}), ("data/../file", {"file": 2}), ("data/new", {}), ("dat", {})):
        done = run_recorder(tmp_path / "t", "sh", "-c", script, options=("--path", prefix, "--force"), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        trace = open_closed(tmp_path / "t")
        assert written(trace) == {f"{tmp_path}/{name}": size for name, size in expected.items()}
        assert trace.header.metadata["skips"]["filtered"] >= 3 - len(expected)
        assert trace.header.metadata["filters"]["path"].startswith(str(tmp_path))
        unused = f"no operation was on a file below {tmp_path}/{prefix}, where nothing is: all were left out"
        assert (unused in done.stderr) == (not expected)


def test_min_size_counts_what_it_leaves_out(tmp_path):
    script = f"dd if=/dev/zero of={tmp_path}/small bs=511 count=7; dd if=/dev/zero of={tmp_path}/large bs=512 count=11"
    done = run_recorder(tmp_path / "t", "sh", "-c", script, options=("--min-size", "512"))
    assert done.returncode == 0, done.stderr
    trace = open_closed(tmp_path / "t")
    assert written(trace) == {f"{tmp_path}/large": 11 * 512}
    assert (trace.io["asked_bytes"] >= 512).all()
    assert trace.header.metadata["skips"]["filtered"] >= 7


@pytest.mark.parametrize("form", ["path", "number"])
def test_device_keeps_both_layers_to_one(tmp_path, form):
    with loop_file_system("ext4", tmp_path) as system:
        number = system.place.stat().st_dev
        device = f"{os.major(number)}:{os.minor(number)}"
        if form == "path":
            device = os.path.realpath(f"/dev/block/{device}") if Path(f"/dev/block/{device}").exists() else device
        script = f"dd if=/dev/zero of={system.place}/in bs=4k count=13 oflag=direct; dd if=/dev/zero of={tmp_path}/out"
        done = run_recorder(tmp_path / "t", "sh", "-c", f"{script} count=17 conv=fsync", options=("--device", device))
        assert done.returncode == 0, done.stderr
        trace = open_closed(tmp_path / "t")
        assert written(trace) == {f"{system.place}/in": 13 * 4096}
        assert set(trace.blocks["device"]) == {os.major(number) << 20 | os.minor(number)}


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_a_disk_stands_for_what_lies_on_it(tmp_path, kind):
    """A file system on its only partition; btrfs has a device number of its own."""
    with (
        loop_device(tmp_path / "image", 512 << 20, "--partscan") as disk,
        partition(disk, 2048) as part,
        mounted(kind, BlockDevice(part), tmp_path / "place") as place,
    ):
        script = f"dd if=/dev/zero of={place}/in bs=4k count=13 oflag=direct; dd if=/dev/zero of={tmp_path}/out"
        done = run_recorder(
            tmp_path / "t", "sh", "-c", f"{script} count=17 conv=fsync", options=("--device", disk.path)
        )
        assert done.returncode == 0, done.stderr
        trace = open_closed(tmp_path / "t")
        assert written(trace) == {f"{place}/in": 13 * 4096}
        assert set(trace.blocks["device"]) == {disk.number}
        assert trace.blocks["bytes"].sum() >= 13 * 4096


def test_a_disk_stands_for_file_systems_in_files_on_it(tmp_path):
    with (
        loop_file_system("ext4", tmp_path) as outer,
        loop_device(outer.place / "image", 64 << 20) as inner,
        mounted("ext4", inner, tmp_path / "place") as place,
    ):
        script = f"dd if=/dev/zero of={place}/in bs=4k count=13 oflag=direct; dd if=/dev/zero of={tmp_path}/out"
        options = ("--device", outer.disk.path)
        done = run_recorder(tmp_path / "t", "sh", "-c", f"{script} count=17 conv=fsync", options=options)
        assert done.returncode == 0, done.stderr
        trace = open_closed(tmp_path / "t")
    assert written(trace) == {f"{place}/in": 13 * 4096}
    assert set(trace.blocks["device"]) <= {outer.disk.number}


@pytest.fixture(params=["freezer", "unified", "."])
def group(request):
    """A control group of version 1 or 2 with one below it."""
    hierarchy = GROUPS / request.param
    if not (hierarchy / "cgroup.procs").exists():
        pytest.skip(f"{hierarchy} is no hierarchy of control groups here")
    with made_group(hierarchy) as place:
        (place / "inner").mkdir()
        yield place


def test_in_cgroup_takes_who_is_there_who_comes_and_who_is_born(tmp_path, group):
    shells = {
        name: subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("there", "below", "comes", "outside")
    }
    try:
        (group / "cgroup.procs").write_text(str(shells["there"].pid))
        (group / "inner" / "cgroup.procs").write_text(str(shells["below"].pid))
        with started("-o", tmp_path / "t", "--in-cgroup", group) as recorder:
            (group / "inner" / "cgroup.procs").write_text(str(shells["comes"].pid))
            for name, shell in shells.items():
                # Once by itself and once by a child.
                shell.stdin.write(f"echo x > {tmp_path}/{name}; cp {tmp_path}/{name} {tmp_path}/{name}-child; echo\n")
                shell.stdin.flush()
                shell.stdout.readline()
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(timeout=120) == 0
    finally:
        for shell in shells.values():
            shell.kill()
            shell.wait()
    trace = open_closed(tmp_path / "t")
    names = {f"{tmp_path}/{name}{child}" for name in ("there", "below", "comes") for child in ("", "-child")}
    opened = {path for path in trace.paths.values() if path.startswith(str(tmp_path)) and not path.endswith("/t")}
    assert names <= opened
    assert not {path for path in opened if "outside" in path}
    assert trace.header.metadata["stopped_by"] == "signal"
    assert trace.header.metadata["in_cgroup"] == str(group)


def test_in_cgroup_takes_all_threads_of_a_process_that_comes(tmp_path, group):
    program = (
        "import threading, time, sys, os\n"
        "def run(n):\n"
        f"    with open('{tmp_path}/thread' + str(n), 'wb', 0) as f:\n"
        "        while True: f.write(b'x'); time.sleep(0.01)\n"
        "[threading.Thread(target=run, args=(n,), daemon=True).start() for n in range(3)]\n"
        "print('ready', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen(["python3", "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        with started("-o", tmp_path / "t", "--in-cgroup", group, "--max-time", "1s") as recorder:
            (group / "cgroup.procs").write_text(str(process.pid))
            assert recorder.wait(timeout=120) == 0
    finally:
        process.kill()
        process.wait()
    assert {Path(path).name for path in written(open_closed(tmp_path / "t"))} >= {"thread0", "thread1", "thread2"}


def test_max_time_leaves_the_command_running_and_passes_its_status_on(tmp_path):
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    script = f"echo 1 > {tmp_path}/early; {wait}; echo 2 > {tmp_path}/late; exit 41"
    with started("-o", tmp_path / "t", "--max-time", "2s", "--", "sh", "-c", script) as recorder:
        said = recorder.stderr.readline() + recorder.stderr.readline()
        while "next:" not in said:
            said += recorder.stderr.readline()
        trace = open_closed(tmp_path / "t")  # closed while the command still runs
        (tmp_path / "go").touch()
        assert recorder.wait(timeout=120) == 41
    assert "goes on, unrecorded" in said
    assert "records/s" not in said, "which is for a terminal"
    assert (tmp_path / "late").exists()
    assert set(written(trace)) == {f"{tmp_path}/early"}
    assert trace.header.metadata["stopped_by"] == "max-time"
    assert trace.header.metadata["exit_status"] is None


def test_duration_of_a_process_leaves_it_alone(tmp_path):
    loop = f"while :; do echo x >> {tmp_path}/log; sleep 0.01; done"
    process = subprocess.Popen(["sh", "-c", loop])
    try:
        done = subprocess.run(
            [RECORDER, "-q", "--layer=vfs", "-o", tmp_path / "t", "--max-time", "0.3", "-p", str(process.pid)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    trace = open_closed(tmp_path / "t")
    assert len(trace.io)
    tasks = trace.header.metadata["closure"]["tasks"]
    assert tasks["wchar"]["seen"] == pytest.approx(tasks["wchar"]["kernel"], abs=4)


def test_max_size_is_kept_and_the_command_runs_to_its_end(tmp_path):
    limit = 2 << 20
    dd = f"dd if=/dev/zero of={tmp_path}/file bs=1 count=100000; echo done > {tmp_path}/after"
    done = run_recorder(tmp_path / "t", "sh", "-c", dd, options=("--max-size", "2M", "--layer", "vfs"))
    assert done.returncode in (0, 3), done.stderr
    trace = open_closed(tmp_path / "t")
    assert limit * 0.9 < (tmp_path / "t").stat().st_size <= limit
    assert trace.header.metadata["stopped_by"] == "max-size"
    assert "--max-size" in done.stderr
    assert (tmp_path / "file").stat().st_size == 100000
    # A clean cut: what is there is the beginning, without a hole, unless records were lost.
    writes = trace.io[trace.io["op"] == IoOp.WRITE]
    if not trace.header.lost:
        assert writes["offset"].tolist() == list(range(len(writes)))


def test_dry_run_says_all_and_makes_nothing(tmp_path):
    options = ("--dry-run", "--path", str(tmp_path), "--min-size", "4K", "--ring-bytes", "1M")
    done = run_recorder(tmp_path / "t", "touch", tmp_path / "made", options=options)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    for words in ("touch and everything it starts", f"files below {tmp_path}", "4096 bytes", "tp_btf/sys_enter"):
        assert words in done.stdout
    assert f"= {(os.sysconf('SC_NPROCESSORS_CONF'))} MiB of memory" in done.stdout
    lines = [line.split(maxsplit=1) for line in done.stdout.split("programs\n")[1].splitlines()]
    fine = ("loads", "left out: this kernel has", "not needed")
    refused = {name for name, state in lines if not state.startswith(fine)}
    expected = {"iter/bpf_map_elem:find_ended_requests"} if without_map_iterators(done.stderr) != done.stderr else set()
    assert refused == expected
    (tmp_path / "t").write_text("precious")
    done = run_recorder(tmp_path / "t", "true", options=("--dry-run",))
    assert done.returncode == 2
    assert "--force" in done.stdout


def test_same_disk_is_told_once_and_not_for_memory(tmp_path):
    device = tmp_path.stat().st_dev
    if not Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").exists():
        pytest.skip("the temporary directory is not on a block device")
    told = run_recorder(tmp_path / "t", "true", cwd=tmp_path).stderr
    assert told.count("written to the disk that") == 1
    quiet = run_recorder(tmp_path / "q", "true", cwd=tmp_path, options=("--quiet",)).stderr
    assert without_map_iterators(quiet) == ""
    with own_place() as memory:
        assert "written to the disk that" not in run_recorder(memory / "t", "true", cwd=tmp_path).stderr


def test_full_disk_is_told_and_leaves_what_was_written(small_file_system, tmp_path):
    program = f"dd if=/dev/zero of={tmp_path}/file bs=1 count=150000"
    done = run_recorder(small_file_system / "t", *program.split(), options=("--layer", "vfs"))
    assert done.returncode == 1
    assert "No space left on device; it is marked incomplete" in done.stderr
    assert "--max-size" in done.stderr
    assert (tmp_path / "file").stat().st_size == 150000
    trace = characterize.open(small_file_system / "t")
    assert trace.header.flags & HeaderFlag.INCOMPLETE
    assert len(trace.io) > 30000


@pytest.mark.parametrize(("quiet", "columns"), [(False, 0), (True, 0), (False, 20)])
def test_status_line_on_a_terminal(tmp_path, quiet, columns):
    """Of a line that wraps the terminal would keep a part; 0: it does not say how wide it is."""
    script = f"for i in 1 2 3 4 5 6 7 8; do echo x >> {tmp_path}/log; sleep 0.3; done"
    options = ["--quiet"] * quiet
    text, _ = on_terminal([RECORDER, *options, "-o", tmp_path / "t", "--", "sh", "-c", script], columns)
    rest = r"[^\x1b]*" if columns else r"\d+ records/s, [\d.]+ MB written, \d+ lost"
    lines = re.findall(rf"\r((\d+) s: {rest})\x1b\[K", text)
    assert not (quiet and lines)
    assert quiet or [int(second) for _, second in lines][:2] == [1, 2]
    assert {len(line) for line, _ in lines} == {columns - 1} or not columns
    assert quiet or "\r\x1b[Kflextrace record:" in text  # it is gone before the last words


STUBBORN = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", flush=True)
signal.sigwait([signal.SIGINT])
print("told", flush=True)
sys.stdin.readline()
sys.exit(7)
"""


def test_second_ctrl_c_ends_the_recording_of_a_stubborn_command(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started("-o", tmp_path / "t", "--", "python3", "-I", "-c", STUBBORN, **pipes) as recorder:
        for word in ("ready", "told"):
            assert recorder.stdout.readline() == f"{word}\n"
            recorder.send_signal(signal.SIGINT)
        said = ""
        while "next:" not in said:
            said += recorder.stderr.readline()
        trace = open_closed(tmp_path / "t")
        recorder.stdin.write("end\n")
        recorder.stdin.flush()
        assert recorder.wait(timeout=120) == 7
    assert "ended by a signal; the command goes on" in said
    assert trace.header.metadata["stopped_by"] == "signal"


def test_two_capabilities_are_enough(tmp_path):
    tmp_path.chmod(0o777)
    capabilities = "-all,+bpf,+perfmon"
    done = subprocess.run(
        [
            *("setpriv", f"--bounding-set={capabilities}", f"--inh-caps={capabilities}"),
            *(RECORDER, "-o", tmp_path / "t", "--", "sh", "-c", f"echo x > {tmp_path}/file"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert written(open_closed(tmp_path / "t")) == {f"{tmp_path}/file": 2}


@pytest.mark.parametrize(
    ("kept", "missing"), [("", "CAP_BPF, CAP_PERFMON"), (",+bpf", "CAP_PERFMON"), (",+perfmon", "CAP_BPF")]
)
def test_the_missing_capability_is_named(tmp_path, kept, missing):
    done = subprocess.run(
        ["setpriv", f"--bounding-set=-all{kept}", RECORDER, "-o", tmp_path / "t", "--", "true"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert f"(missing: {missing})" in done.stderr
    assert "sudo" in done.stderr
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to record"),
        (["-p", "1", "--", "true"], "choose one"),
        (["-p", "x"], "not a number"),
        (["--layer", "disk", "--", "true"], "choose vfs, block or both"),
        (["--ring-bytes", "50000", "--", "true"], "power of two"),
        (["--ring-bytes", "16K", "--", "true"], "not a size from 32768 to"),
        (["--max-files", "0", "--", "true"], "not a number from 1 to"),
        (["--in-cgroup", "/tmp", "--", "true"], "not the directory of a control group"),
        (["--in-cgroup", "/sys/fs/cgroup/nowhere"], "cannot find control group"),
        (["--device", "/dev/null", "--", "true"], "is not a block device"),
        (["--device", "4095:1", "--", "true"], "there is no block device 4095:1"),
        (["--path", "/", "--", "true"], "leaves nothing out"),
        (["--path", "/" + "x" * 300, "--", "true"], "longer than 255 bytes"),
        (["--min-size", "4Q", "--", "true"], "such as 65536, 64K or 1.5M"),
        (["--min-size", "1K", "--layer", "block", "--", "true"], "does not record"),
        (["--max-size", "1K", "--", "true"], "1048576"),
        (["--max-time", "5 parsecs", "--", "true"], "such as 30s, 500ms or 5m"),
        (["--max-time", "0", "--", "true"], "such as 30s"),
        (["-p", "1", "--in-cgroup", "/sys/fs/cgroup/freezer"], "choose one"),
    ],
)
def test_bad_usage(tmp_path, arguments, words):
    if "freezer" in "".join(arguments) and not Path(arguments[-1]).exists():
        pytest.skip("no control groups of version 1 here")
    done = subprocess.run(
        [RECORDER, "-o", tmp_path / "t", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stderr.startswith("flextrace record: ")
    assert done.stderr.endswith(" (flextrace record --help)\n")
    assert not (tmp_path / "t").exists()
