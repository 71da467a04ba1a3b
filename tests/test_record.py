# SPDX-License-Identifier: Apache-2.0
"""The recorder against programs whose every operation is known, against strace and against the kernel's counters."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import characterize
from characterize.layout import Fileop, IoOp, RecordKind
from tests.known_io import (  # noqa: F401 (the tests of known_runs)
    KNOWN_IO,
    names_below,
    operations_of,
    test_a_rename_names_the_new_path_and_unlink_finds_it,
    test_created_files_and_flags,
    test_every_data_operation_is_recorded_exactly,
    test_every_file_operation_is_recorded,
    test_records_of_a_thread_are_in_order_and_ids_unique,
    told,
)
from tests.running_replay import wait_until
from tests.told import RECORDER, interrupt_command, run_recorder, wait_for_recording

RECORDINGS, RUNS_OF_EACH = (3, 1) if os.environ.get("FLEXTRACE_VM") else (5, 4)
ONE_AFTER_THE_OTHER = 'for place; do "$0" "$place" || exit; echo; done'

pytestmark = pytest.mark.records


@pytest.fixture(scope="module")
def known_runs(tmp_path_factory) -> list[tuple[characterize.Trace, list[tuple], Path]]:
    runs = []
    for number in range(RECORDINGS):
        directories = [tmp_path_factory.mktemp("known") for _ in range(RUNS_OF_EACH)]
        trace_path = directories[0].parent / f"known-{number}.iotrace"
        done = run_recorder(trace_path, "sh", "-c", ONE_AFTER_THE_OTHER, KNOWN_IO, *directories)
        assert done.returncode == 0, done.stderr
        trace, outputs = characterize.open(trace_path), done.stdout.split("\n\n")[:-1]
        runs += [(trace, told(output), place) for output, place in zip(outputs, directories, strict=True)]
    return runs


def test_a_file_that_was_open_before_recording(tmp_path):
    (tmp_path / "early").write_bytes(bytes(109 + 31 * 113))
    program = subprocess.Popen([KNOWN_IO, tmp_path, "early"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    trace_path = tmp_path / "early.iotrace"
    try:
        assert program.stdout.readline().startswith("open early")
        assert program.stdout.readline() == "ready\n"
        recorder = subprocess.Popen(
            [RECORDER, "-o", trace_path, "-p", str(program.pid)], stderr=subprocess.PIPE, text=True
        )
        wait_for_recording(recorder.stderr)
        output, _ = program.communicate("go\n", timeout=120)
        assert recorder.wait(timeout=120) == 0
    finally:
        program.kill()
    trace = characterize.open(trace_path)
    reads = [row for row in told(output) if row[0] == "read"]
    assert len(reads) == 31
    assert Counter(operations_of(trace, tmp_path)) == Counter(reads)
    early = trace.files[trace.files["path"].str.endswith("/early")].iloc[0]
    assert early["size_bytes"] == 109 + 31 * 113


def test_inherited_descriptor_and_exit_status(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(bytes(1009 * 7))
    with source.open("rb") as stream:
        done = run_recorder(tmp_path / "t", "sh", "-c", "dd of=/dev/null bs=1009; exit 41", stdin=stream)
    assert done.returncode == 41, done.stderr
    trace = characterize.open(tmp_path / "t")
    reads = [row for row in operations_of(trace, tmp_path) if row[1] == "source"]
    assert [row[3] for row in reads] == [*range(0, 7 * 1009, 1009), 7 * 1009]
    assert trace.header.metadata["exit_status"] == 41


def test_agrees_with_strace(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_017))
    command = [
        "sh",
        "-c",
        f"cat {source} | gzip -1 > {tmp_path}/packed; cp {source} {tmp_path}/copy; sync {tmp_path}/copy",
    ]
    done = run_recorder(tmp_path / "t", *command)
    assert done.returncode == 0, done.stderr
    log = tmp_path / "strace"
    calls = "read,write,pread64,pwrite64,readv,writev,copy_file_range"
    subprocess.run(["strace", "-ff", "-yy", "-e", f"trace={calls}", "-o", log, *command], check=True)
    totals = Counter()
    for line in "".join(path.read_text() for path in tmp_path.glob("strace.*")).splitlines():
        if match := re.search(rf"(read|write)\w*\(\d+<({tmp_path}/[^>]*)>.*= (\d+)$", line):
            totals[match[1], Path(match[2]).name] += int(match[3])
        if match := re.search(rf"copy_file_range\(\d+<({tmp_path}/[^>]*)>.*<({tmp_path}/[^>]*)>.*= (\d+)$", line):
            totals["read", Path(match[1]).name] += int(match[3])
            totals["write", Path(match[2]).name] += int(match[3])
    trace = characterize.open(tmp_path / "t")
    recorded = Counter()
    for kind, name, _, _, _, result in operations_of(trace, tmp_path):
        recorded[kind, name] += max(result, 0)
    assert totals
    assert +recorded == +totals


def test_block_bytes_agree_with_the_device_statistics(tmp_path):
    # O_DIRECT on a file, so that every byte is a block request at once.
    path = tmp_path / "direct"
    size = 61 * 4096 * 16
    subprocess.run(
        ["dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={size}", "iflag=count_bytes", "conv=fsync"],
        check=True,
        capture_output=True,
    )
    done = run_recorder(tmp_path / "t", "dd", f"if={path}", "of=/dev/null", "bs=65536", "iflag=direct")
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    names = names_below(trace, tmp_path)
    reads = trace.io[trace.io["file"].map(names) == "direct"]
    caused = trace.blocks[trace.blocks["cause"].isin(reads["id"])]
    if (
        caused.empty
        and not Path(f"/sys/dev/block/{os.major(path.stat().st_dev)}:{os.minor(path.stat().st_dev)}").exists()
    ):
        pytest.skip("the temporary directory is not on a block device")
    assert caused["bytes"].sum() == size == reads["result"].sum()
    # On this kernel tracepoints can go by unseen: requests whose end did have no response time, and the trace says so.
    unended = int((caused["duration_ns"] == 0).sum())
    assert unended <= min(trace.header.metadata["ends_unseen"], len(caused) - 1)
    # Each block request lies inside the call that caused it.
    joined = caused.merge(reads, left_on="cause", right_on="id", suffixes=("", "_io"))
    assert (joined["start_ns"] >= joined["start_ns_io"]).all()
    assert (joined["start_ns"] + joined["duration_ns"] <= joined["start_ns_io"] + joined["duration_ns_io"]).all()


def test_forced_loss_is_counted_and_the_sum_is_the_truth(tmp_path):
    operations = 200_003
    program = f"dd if=/dev/zero of={tmp_path}/file bs=7 count={operations}"
    done = run_recorder(tmp_path / "t", *program.split(), options=("--ring-bytes", "32K", "--layer", "vfs"))
    trace = characterize.open(tmp_path / "t")
    if not trace.header.lost:
        pytest.skip("even the smallest ring lost nothing: the drain kept up")
    assert done.returncode == 3
    assert "LOST" in done.stderr
    io_lost = trace.header.lost[RecordKind.IO]
    gaps = trace.gaps[trace.gaps["lost_kind"] == RecordKind.IO]
    assert gaps["lost_count"].sum() == io_lost
    writes = (trace.io["asked_bytes"] == 7) & (trace.io["op"] == IoOp.WRITE)
    others = len(trace.io) - writes.sum()
    # dd reads /dev/zero, which is no file; what else it reads while starting is few, and may be among the lost.
    assert operations <= writes.sum() + io_lost <= operations + 60
    assert others < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_a_recording_cleanly(tmp_path, number):
    log = tmp_path / "log"
    log.touch()
    loop = f"while :; do echo x >> {log}; done"
    recorder = subprocess.Popen(
        # Whoever runs the tests in the background of a shell hands an ignored SIGINT down to the shell in here.
        ["env", "--default-signal=INT,HUP,QUIT", RECORDER, "-o", tmp_path / "t", "--", "sh", "-c", loop],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for_recording(recorder.stderr)
        wait_until(lambda: log.stat().st_size)
        recorder.send_signal(number)
        assert recorder.wait(timeout=120) == 128 + number
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(recorder.pid, signal.SIGKILL)
    trace = characterize.open(tmp_path / "t")
    assert not trace.warnings
    assert len(trace.io) > 0


def test_a_command_that_is_killed_before_it_begins_leaves_no_trace(tmp_path):
    recorder = subprocess.Popen(
        # Whoever runs the tests in the background of a shell hands an ignored SIGINT down.
        ["env", "--default-signal=INT", RECORDER, "-o", tmp_path / "t", "--", "true"],
        stderr=subprocess.PIPE,
        text=True,
    )
    interrupt_command(recorder.pid)
    assert "before it began" in recorder.communicate(timeout=120)[1]
    assert recorder.returncode == 128 + signal.SIGINT
    assert not (tmp_path / "t").exists()


def test_a_recording_outlives_the_reader_of_its_messages(tmp_path):
    recorder = subprocess.Popen(
        [RECORDER, "-o", tmp_path / "t", "--", "sh", "-c", f"sleep 0.3; echo x > {tmp_path}/file"],
        stderr=subprocess.PIPE,
    )
    recorder.stderr.close()
    assert recorder.wait(timeout=120) == 0
    trace = characterize.open(tmp_path / "t")
    assert not trace.warnings
    assert (trace.io["op"] == IoOp.WRITE).sum() == 1


def test_a_killed_recorder_leaves_a_readable_trace(tmp_path):
    """Killed while it writes the records of a command that does not end."""
    program = f"dd if=/dev/zero of={tmp_path}/file bs=1"
    recorder = subprocess.Popen(
        [RECORDER, "-o", tmp_path / "t", "--layer", "vfs", "--", *program.split()],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for_recording(recorder.stderr)
        wait_until(lambda: (tmp_path / "t").stat().st_size > 1 << 18)
    finally:
        os.killpg(recorder.pid, signal.SIGKILL)
    recorder.wait(timeout=120)
    trace = characterize.open(tmp_path / "t")
    assert any("not closed cleanly" in warning for warning in trace.warnings)
    assert len(trace.io) > 1_000


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "nothing to record"),
        (["-p", "1", "--", "true"], 2, "choose one"),
        (["--layer", "disk", "--", "true"], 2, "choose vfs, block or both"),
        (["-p", "x"], 2, "not a number"),
        (["-p", "4194304"], 1, "cannot record process 4194304"),
        (["--ring-bytes", "50000", "--", "true"], 2, "power of two"),
        (["--ring-bytes", "16K", "--", "true"], 2, "not a size from 32768 to"),
        (["--max-files", "0", "--", "true"], 2, "not a number from 1 to"),
        (["--", "/nonexistent/program"], 1, "cannot start /nonexistent/program"),
    ],
)
def test_bad_usage(tmp_path, arguments, code, words):
    done = subprocess.run(
        [RECORDER, "-o", tmp_path / "t", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code
    assert words in done.stderr


def test_an_existing_trace_is_not_overwritten(tmp_path):
    trace = tmp_path / "t"
    trace.write_text("precious")
    assert run_recorder(trace, "true").returncode == 2
    assert trace.read_text() == "precious"
    assert run_recorder(trace, "true", options=("--force",)).returncode == 0
    characterize.open(trace)


def test_without_privilege_the_message_names_the_remedy(tmp_path):
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:
        if parent.owner() == "root" and parent != Path("/tmp") and parent != Path("/"):
            parent.chmod(0o755)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", RECORDER, "-o", tmp_path / "t", "--", "true"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "execute" in done.stderr or "Permission denied" in done.stderr.splitlines()[0][:40]:
        pytest.skip(f"another user cannot run the recorder from this checkout: {done.stderr.strip()}")
    assert done.returncode == 1
    assert "CAP_BPF" in done.stderr
    assert "sudo" in done.stderr
    assert not (tmp_path / "t").exists()


def test_paths_are_those_that_the_task_sees(tmp_path):
    # In a chroot the kernel's own root lies above what the program calls /.
    (tmp_path / "inside").mkdir()
    for place in ("bin", "lib", "lib64", "usr"):
        (tmp_path / place).mkdir()
    binds = [place for place in ("bin", "lib", "lib64", "usr") if Path(f"/{place}").exists()]
    script = " && ".join(f"mount --bind /{place} {tmp_path}/{place}" for place in binds)
    command = "cd /inside && echo x > made && mv made moved && rm moved"
    done = run_recorder(
        tmp_path / "t",
        *("unshare", "--mount", "sh", "-c", f"{script} && exec chroot {tmp_path} /bin/sh -c '{command}'"),
    )
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    made = trace.files[trace.files["path"] == "/inside/made"].iloc[0]
    unlink = trace.fileops[(trace.fileops["op"] == Fileop.UNLINK) & (trace.fileops["result"] == 0)]
    assert unlink["file"].tolist() == [made["file"]]
