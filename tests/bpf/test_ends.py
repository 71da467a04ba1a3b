# SPDX-License-Identifier: Apache-2.0
"""Recordings that end by signals, and by what befalls the recorder: what was seen until then is in the trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import characterize
from characterize.layout import HeaderFlag, IoOp
from tests.machines.block_device import loop_device, run
from tests.runs.running_replay import wait_until
from tests.truths.told import PROGRAMS, RECORDER, ROOT, run_recorder, wait_for_recording

SECONDS_MAX = 30

pytest_plugins = ["tests.machines.small_file_system"]
pytestmark = pytest.mark.records


def test_little_is_written_soon_as_well(tmp_path):
    """So that it is there where the recorder is killed: here, while its command still runs."""
    command = ["sh", "-c", f"echo x > {tmp_path}/file; sleep {10 * SECONDS_MAX}"]
    with subprocess.Popen(
        [RECORDER, "-o", tmp_path / "t", "--layer", "vfs", "--", *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as recorder:
        try:
            wait_for_recording(recorder.stderr)
            for _ in range(10 * SECONDS_MAX):
                time.sleep(0.1)
                trace = characterize.open(tmp_path / "t")
                writes = trace.io[trace.io["op"] == IoOp.WRITE]
                if len(writes):
                    break
        finally:
            os.killpg(recorder.pid, signal.SIGKILL)
    assert trace.header.flags & HeaderFlag.INCOMPLETE
    assert [(trace.paths[row.file], row.result) for row in writes.itertuples()] == [(f"{tmp_path}/file", 2)]


def test_a_limit_on_the_size_of_files_is_told_and_leaves_what_was_written(tmp_path):
    calls, bytes_max = 150_000, 1_000_003
    program = f"dd if=/dev/zero of={tmp_path}/file bs=1 count={calls}"
    before = ["prlimit", f"--fsize={bytes_max}"]
    done = run_recorder(tmp_path / "t", *program.split(), options=("--layer", "vfs"), before=before)
    assert done.returncode == 1
    assert "File too large; it is marked incomplete" in done.stderr
    assert "ulimit -f" in done.stderr
    assert (tmp_path / "file").stat().st_size == calls
    assert (tmp_path / "t").stat().st_size <= bytes_max
    trace = characterize.open(tmp_path / "t")
    assert trace.header.flags & HeaderFlag.INCOMPLETE
    assert len(trace.io) > 10_000


def test_max_size_holds_whatever_the_length_of_the_command(tmp_path):
    """Each byte that is not ASCII takes six in the JSON block."""
    limit = 1 << 20
    dd = f"dd if=/dev/zero of={tmp_path}/file bs=1 count=50000"
    command = ("sh", "-c", dd, *(["\u00e9" * 10_000] * 20))
    done = run_recorder(tmp_path / "t", *command, options=("--max-size", "1M", "--layer", "vfs"))
    assert done.returncode in (0, 3), done.stderr
    trace = characterize.open(tmp_path / "t")
    assert limit * 0.9 < (tmp_path / "t").stat().st_size <= limit
    told = trace.header.metadata["command"]
    assert told[:3] == list(command[:3])
    assert told[-1].endswith("...")


def test_a_command_finds_the_signals_that_python_ignores_as_they_are(tmp_path):
    """Whoever writes into a closed pipe is meant to end."""
    script = f"grep SigIgn /proc/self/status > {tmp_path}/ignored"
    command = [sys.executable, "-m", "flextrace", "record", "-o", tmp_path / "t", "--", "sh", "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    ignored = int((tmp_path / "ignored").read_text().split()[1], 16)
    assert not [number for number in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (number - 1) & 1]


def test_a_disk_that_takes_nothing_is_told_though_the_page_cache_takes_it(tmp_path, small_file_system):
    """Its disk is a sparse file where no space is left: what is written fails when it is written back."""
    place = tmp_path / "place"
    place.mkdir()
    with loop_device(small_file_system / "disk", 64 << 20) as disk:
        run("mkfs.ext4", "-q", "-N", "64", "-O", "^has_journal", disk.path)
        run("mount", disk.path, place)
        try:
            fill = f"dd if=/dev/zero of={small_file_system}/full bs=4096"
            assert "No space left" in subprocess.run(fill.split(), capture_output=True, text=True, check=False).stderr
            done = run_recorder(place / "t", "true", options=("--layer", "vfs"))
            trace = characterize.open(place / "t")
        finally:
            run("umount", place)
    assert done.returncode == 1, done.stderr
    assert f"cannot go on writing trace {place}/t: " in done.stderr
    assert trace.header.flags & HeaderFlag.INCOMPLETE


COUNT_SIGNALS = """
import signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # before anybody is told
print("ready", flush=True)
signal.sigwait([signal.SIGINT])
print("one", flush=True)
time.sleep(0.3)  # for another one
more = signal.sigtimedwait([signal.SIGINT], 0)
open(sys.argv[1], "w").write("two" if more else "one")
"""


@pytest.mark.parametrize("sent_to", ["recorder", "group", "both"])
def test_a_signal_reaches_the_command_once_and_its_end_is_recorded(tmp_path, sent_to):
    """However it is sent; timeout(1) sends it to its child, and then to its group."""
    command = ["python3", "-c", COUNT_SIGNALS, tmp_path / "count"]
    with subprocess.Popen(
        # Whoever runs the tests in the background of a shell hands an ignored SIGINT down.
        ["env", "--default-signal=INT", RECORDER, "-o", tmp_path / "t", "--", *command],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as recorder:
        recorder.stdout.readline()
        if sent_to == "group":
            recorder.send_signal(signal.SIGSTOP)  # the command is to be first
        else:
            recorder.send_signal(signal.SIGINT)
        if sent_to != "recorder":
            os.killpg(recorder.pid, signal.SIGINT)
        recorder.stdout.readline()
        recorder.send_signal(signal.SIGCONT)
        assert recorder.wait(timeout=120) == 0
    assert (tmp_path / "count").read_text() == "one"
    trace = characterize.open(tmp_path / "t")
    assert trace.header.metadata["stopped_by"] == "end"
    assert f"{tmp_path}/count" in trace.paths.values()


WAIT_FOR_A_PIPE = """
import os, sys
source, _ = os.pipe()
sys.stdin.readline()
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(file, b"x")
os.splice(source, file, 1009)
"""


def test_what_is_in_flight_when_recording_ends_is_counted(tmp_path):
    """A call that waits for a pipe."""
    file, pipes = tmp_path / "file", {"stdin": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-I", "-c", WAIT_FOR_A_PIPE, file], **pipes) as program:
        try:
            command = [RECORDER, "-o", tmp_path / "t", "--layer", "vfs", "-p", str(program.pid)]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
                wait_for_recording(recorder.stderr)
                program.stdin.write("go\n")
                program.stdin.flush()
                status = Path(f"/proc/{program.pid}/status")
                wait_until(lambda: file.exists() and file.stat().st_size and "State:\tS" in status.read_text())
                recorder.send_signal(signal.SIGINT)
                said = recorder.communicate(timeout=120)[1]
        finally:
            program.kill()
    assert recorder.returncode == 0, said
    trace = characterize.open(tmp_path / "t")
    written = [row.result for row in trace.io.itertuples() if trace.paths.get(row.file) == str(file)]
    assert written == [1]
    assert trace.header.metadata["in_flight_end"] == 1


def records_of(program, file, rounds):
    """Two numbers of records, as tests/programs/PROGRAM.c tells them."""
    file.write_bytes(b"x")
    command = [PROGRAMS / program, file, str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return map(int, done.stdout.split())


def test_the_first_page_fault_of_a_thread_is_not_lost_where_tracing_of_it_ends(tmp_path):
    """The kernel refuses to keep something new of a thread while the only thing that it has kept of it goes."""
    recorded, lost = records_of("short_tracing", tmp_path / "file", 9001)
    assert recorded
    assert not lost


# What an emulated processor does not survive: tests/bpf/test_arrivals.py.
@pytest.mark.skipif("virtme_hostname" in Path("/proc/cmdline").read_text(), reason="a VM without KVM panics")
def test_no_record_comes_when_all_programs_are_detached(tmp_path):
    recorded, late = records_of("late_records", tmp_path / "file", 101)
    assert recorded
    assert not late


def test_what_goes_on_when_the_command_has_ended_is_told(tmp_path):
    done = run_recorder(tmp_path / "t", "sh", "-c", "sleep 1 & sleep 1 &")
    assert done.returncode == 0, done.stderr
    assert "ended with the command: 2 threads that descend from it go on" in done.stderr
    done = run_recorder(tmp_path / "u", "sh", "-c", "sleep 0.01 & wait")
    assert "ended with" not in done.stderr
