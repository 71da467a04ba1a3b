# SPDX-License-Identifier: Apache-2.0
"""What is told of a replay while it runs: a line on a terminal, or one now and then, and nothing of a short one."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from flextrace.output import replay_progress
from flextrace.output.replay_progress import ERASE, ReplayProgress
from replayer.run import replay
from tests.runs.running_replay import slow, wait_until
from tests.runs.terminal import on_terminal
from tests.truths.straced import ROOT, needs_engine

pytestmark = pytest.mark.parallel


def told(max_seconds: float | None = None, *, loop: bool = False) -> str:
    """After 3 s and 300 of 1200 requests, in two intervals."""
    progress = ReplayProgress(max_seconds, loop=loop)
    progress.step("laying out the files")
    assert progress.text().startswith("laying out the files: ")
    progress.on_interval({"t_s": 1.5, "requests": 100, "requests_of_pass": 1200})
    progress.on_interval({"t_s": 3.0, "requests": 200, "requests_of_pass": 1200})
    return progress.text()


def test_the_rest_is_expected_to_take_as_long_by_its_requests_but_no_longer_than_it_may():
    assert told() == "replaying: 3 s, 25% of 1200 requests, ETA 9 s"
    assert told(60.0) == "replaying: 3 s, 25% of 1200 requests, ETA 9 s"
    assert told(10.0) == "replaying: 3 s, 25% of 1200 requests, ETA 7 s"
    assert told(10.0, loop=True) == "replaying: 3 s, 300 requests, ETA 7 s"


def test_a_trace_without_requests_has_no_share():
    progress = ReplayProgress()
    progress.on_interval({"t_s": 2.0, "requests": 0, "requests_of_pass": 0})
    assert progress.text() == "replaying: 2 s, 0 requests"


def test_a_line_now_and_then_and_nothing_at_first(capsys, monkeypatch):
    with ReplayProgress() as progress:
        progress.step("laying out the files")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(replay_progress, "LINE_S", 0.3)
    lines = []

    def told_so_far():
        lines.extend(capsys.readouterr().err.splitlines())
        return len(lines)

    begin = time.monotonic()
    with ReplayProgress() as progress:
        progress.step("laying out the files")
        wait_until(lambda: told_so_far() >= 2)
    assert told_so_far() <= (time.monotonic() - begin) / 0.3
    assert all(line.startswith("flextrace replay: laying out the files: ") for line in lines)
    progress.close()


@needs_engine
def test_the_engine_tells_how_many_requests_there_are(tmp_path):
    lines = []
    options = {"timing": "think", "interval_ms": 20, "max_seconds": 0.3}
    replay(slow(tmp_path / "slow.iotrace"), tmp_path / "image", on_interval=lines.append, **options)
    assert {line["requests_of_pass"] for line in lines} == {100}


@needs_engine
@pytest.mark.parametrize("columns", [0, 24, 200])
def test_on_a_terminal_a_line_follows_the_replay_and_is_gone_at_the_end(tmp_path, columns):
    """Of one that wrapped the terminal would keep a part, every second; 0: it does not say how wide it is."""
    command = [sys.executable, "-m", "flextrace", "replay", slow(tmp_path / "slow.iotrace"), "--directory"]
    command += [tmp_path / "image", "--timing", "think", "--max-time", "4"]
    begin = time.monotonic()
    said, out = on_terminal(command, columns)
    took_s = time.monotonic() - begin
    lines = said.split(ERASE)
    assert lines[0] == ""
    replaying = [line for line in lines if line.startswith("replaying: ")]
    assert any(("of 100 requests, ETA " in line) == (columns != 24) for line in replaying)
    assert 2 <= len(lines) <= 1 + took_s
    assert columns == 0 or all(len(line) < columns for line in replaying)
    assert "replaying" not in lines[-1]
    assert "ended by max-time" in out


@needs_engine
def test_a_short_replay_is_silent(tmp_path):
    command = [sys.executable, "-m", "flextrace", "replay", slow(tmp_path / "slow.iotrace"), "--directory"]
    command += [tmp_path / "image", "--timing", "think", "--max-time", "1.5"]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
