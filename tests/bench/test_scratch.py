# SPDX-License-Identifier: Apache-2.0
"""What benchmarks make to work in is gone when they have ended, also by a signal."""

import signal
import subprocess
import sys

import pytest

from tests.runs.running_replay import own_process
from tests.truths.straced import ROOT

pytestmark = pytest.mark.parallel

WORKS = """
import signal, sys
from pathlib import Path
from tests.bench.scratch import work_directory
with work_directory(Path(sys.argv[1])) as work:
    (work / "trace").write_text("x")
    print("made", flush=True)
    signal.pause()
"""
HANGS_UP = WORKS.replace("signal.pause()", "signal.raise_signal(signal.SIGHUP); print('goes on')")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_work_directory_goes_where_a_signal_ends_the_program(number, tmp_path):
    with own_process([sys.executable, "-c", WORKS, tmp_path], cwd=ROOT) as process:
        assert process.stdout.readline() == "made\n"
        assert [path.name for path in tmp_path.glob("*/*")] == ["trace"]
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode
    assert list(tmp_path.iterdir()) == []


def test_who_takes_its_terminal_away_ends_no_program_that_nohup_has_started(tmp_path):
    command = ["nohup", sys.executable, "-c", HANGS_UP, tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "made\ngoes on\n"), done.stderr
    assert list(tmp_path.iterdir()) == []
