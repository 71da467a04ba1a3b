# SPDX-License-Identifier: Apache-2.0
"""What a recorder was started with, and its command is to find as without it: closed streams, blocked signals."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

import characterize
from flextrace.record import run_recorder as run_verb
from tests.runs.running_replay import wait_until
from tests.truths.told import RECORDER, run_recorder

pytestmark = [pytest.mark.records, pytest.mark.parallel]


def test_closed_streams_are_nothing_that_the_recorder_writes_to(tmp_path):
    """Else what it says goes to the first files that it opens, such as the pipe by which it holds the command back."""
    look = f"for n in 0 1 2; do if [ -e /proc/$$/fd/$n ]; then echo $n >> {tmp_path}/open; fi; done"
    wait = f"touch {tmp_path}/ready; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    command = [RECORDER, "-o", tmp_path / "t", "--layer", "vfs", "--", "sh", "-c", f"{look}; {wait}"]
    with subprocess.Popen(["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *command]) as recorder:
        try:
            wait_until((tmp_path / "ready").exists)
            streams = [os.readlink(f"/proc/{recorder.pid}/fd/{number}") for number in range(3)]
        finally:
            (tmp_path / "go").touch()
        assert recorder.wait(timeout=120) == 0
    assert streams == ["/dev/null"] * 3
    assert not (tmp_path / "open").exists()
    assert f"{tmp_path}/ready" in characterize.open(tmp_path / "t").paths.values()


def test_the_command_has_the_signals_blocked_that_it_would_have(tmp_path):
    """Among them one that the recorder waits for, and so blocks itself."""
    numbers = (signal.SIGUSR1, signal.SIGTERM)
    blocking = ["env", *(f"--block-signal={number.name.removeprefix('SIG')}" for number in numbers)]
    command = ["grep", "SigBlk", "/proc/self/status"]
    alone = subprocess.run([*blocking, *command], capture_output=True, text=True, check=True).stdout
    done = run_recorder(tmp_path / "t", *command, options=("--layer", "vfs"), before=blocking)
    assert done.returncode == 0, done.stderr
    assert done.stdout == alone
    assert int(alone.split()[1], 16) == sum(1 << number - 1 for number in numbers)


OPEN_A_PIPE = """
import os, signal, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.read(file, 1)
os.unlink(sys.argv[1])
os.mkfifo(sys.argv[1])
signal.alarm(1)
os.open(sys.argv[1], os.O_WRONLY)
"""


def test_a_pipe_in_the_place_of_a_file_has_no_reader(tmp_path):
    """The recorder looks a little later what was cached of the file, and must not open what is there then."""
    file = tmp_path / "file"
    file.write_bytes(bytes(8192))
    done = run_recorder(tmp_path / "t", "python3", "-I", "-c", OPEN_A_PIPE, file)
    assert done.returncode == 128 + signal.SIGALRM, done.stderr


def test_a_signal_while_the_recorder_is_started_ends_it(monkeypatch):
    """It would go on by itself if whoever starts it ended instead."""

    class Interrupted(subprocess.Popen):
        def __init__(self, command):
            super().__init__(command)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    assert run_verb(["sleep", "20"]) == 128 + signal.SIGTERM
