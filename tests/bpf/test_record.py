# SPDX-License-Identifier: Apache-2.0
"""The recorder against a program whose every operation is known, and against strace; how it ends, what it refuses."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

import characterize
from characterize.layout import Fileop, IoOp
from tests.runs.running_replay import wait_until
from tests.truths.known_io import (  # noqa: F401 (the tests of known_runs)
    KNOWN_IO,
    operations_of,
    test_a_rename_names_the_new_path_and_unlink_finds_it,
    test_created_files_and_flags,
    test_every_data_operation_is_recorded_exactly,
    test_every_file_operation_is_recorded,
    test_records_of_a_thread_are_in_order_and_ids_unique,
    told,
)
from tests.truths.told import RECORDER, interrupt_command, run_recorder, wait_for_recording

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
        assert "does not agree" not in done.stderr
        trace, outputs = characterize.open(trace_path), done.stdout.split("\n\n")[:-1]
        runs += [(trace, told(output), place) for output, place in zip(outputs, directories, strict=True)]
    return runs


def test_the_kernel_has_counted_exactly_as_much(known_runs):
    for closure in (trace.header.metadata["closure"] for trace, *_ in known_runs):
        for name in ("rchar", "wchar", "syscr", "syscw"):
            both = closure["tasks"][name]
            assert both["seen"] == both["kernel"] > 0, name
            assert both["ratio"] == 1
        for both in (both for device in closure["devices"].values() for both in device.values()):
            assert abs(both["seen"] - both["kernel"]) <= 1 << 20


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
    ("arguments", "words"),
    [
        (["-p", "4194304"], "cannot record process 4194304"),
        (["--", "/nonexistent/program"], "cannot start /nonexistent/program"),
    ],
)
def test_what_is_not_there(tmp_path, arguments, words):
    done = subprocess.run(
        [RECORDER, "-o", tmp_path / "t", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert words in done.stderr


def test_the_number_of_a_thread_is_none_of_a_process(tmp_path):
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    command = [RECORDER, "-o", tmp_path / "t", "-p", str(thread.native_id)]
    try:
        refused = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    finally:
        done.set()
        thread.join()
    assert refused.returncode == 1
    assert "it is a thread; give the number of its process" in refused.stderr


def test_an_existing_trace_is_not_overwritten(tmp_path):
    trace = tmp_path / "t"
    trace.write_text("precious")
    assert run_recorder(trace, "true").returncode == 2
    assert trace.read_text() == "precious"


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
