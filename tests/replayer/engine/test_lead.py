# SPDX-License-Identifier: Apache-2.0
"""``--lead``: threads that keep step. Who did how much follows from sizes: requests and bytes are two equations."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

import characterize
from characterize.layout import Fileop, HeaderFlag
from tests.machines.hung_storage import FSYNC, holding, is_in_call
from tests.runs.running_replay import looped, wait_until
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ENGINE, needs_strace

SMALL, LARGE = 512, 1 << 20
REQUESTS = 1009  # of both together, behind which a loop is stopped
FILES = [{"file": 1, "size_bytes": LARGE}, {"file": 2, "size_bytes": LARGE}]


def two_threads(path, small_count: int, large_count: int, fileops=()):
    """Of which one has reads that take many times as long as the other's."""
    io = [read(0, SMALL, at, 0, thread=1, file=1) for at in range(small_count)]
    io += [read(0, LARGE, at, 0, thread=2, file=2) for at in range(large_count)]
    trace = made_trace(io, fileops=list(fileops), files=FILES, flags=HeaderFlag.UNTIMED)
    return characterize.write(trace, path)


def run(*arguments) -> dict:
    done = subprocess.run([ENGINE, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def counts(document: dict) -> tuple[int, int]:
    """Requests of the thread with small ones, and of the other."""
    requests, moved_bytes = document["requests"]["read"], document["bytes"]["read"]
    large, rest = divmod(moved_bytes - SMALL * requests, LARGE - SMALL)
    assert rest == 0
    return requests - large, large


@pytest.mark.parametrize("engine", [["sync"], ["io_uring"], ["io_uring", "--depth=7"], ["null"]], ids=" ".join)
@pytest.mark.parametrize("lead", [1, 16, 101])
def test_no_thread_gets_further_ahead(tmp_path, engine, lead):
    trace = two_threads(tmp_path / "t", 997, 997)
    arguments = [f"--lead={lead}", f"--engine={engine[0]}", *engine[1:], "--cache=warm"]
    document = looped([ENGINE, trace, "-d", tmp_path / "image", *arguments], REQUESTS)
    small, large = counts(document)
    assert document["lead"] == lead
    # Whole blocks: one eighth of the lead, and what the one ahead had begun when the other was counted.
    assert abs(small - large) <= max(lead, 8) + 8
    assert min(small, large) > 2 * lead
    assert not any("--lead" in warning for warning in document["warnings"]), "who waited did not see the stop"


def test_without_it_the_faster_one_does_many_times_as_much(tmp_path):
    trace = two_threads(tmp_path / "t", 997, 997)
    small, large = counts(looped([ENGINE, trace, "-d", tmp_path / "image", "--cache=warm"], REQUESTS))
    assert small > 5 * large


def test_when_one_has_ended_the_others_go_on(tmp_path):
    trace = two_threads(tmp_path / "t", 20_011, 101)
    document = run(trace, "-d", tmp_path / "image", "--lead=16")
    assert counts(document) == (20_011, 101)
    assert not any("--lead" in warning for warning in document["warnings"])


def test_threads_that_cannot_keep_step_go_on_and_it_is_said(tmp_path):
    """Where passes wait for each other a thread with few operations waits for one with many, which waits for it."""
    longer = {"op": Fileop.TRUNCATE, "thread": 2, "file": 2, "argument": 2 * LARGE, "start_ns": 11, "duration_ns": 0}
    trace = two_threads(tmp_path / "t", 1009, 11, fileops=[longer])
    document = looped([ENGINE, trace, "-d", tmp_path / "image", "--lead=16", "--cache=warm"], 1009 + 11 + 1)
    assert any("--lead was given up" in warning for warning in document["warnings"])
    assert counts(document)[0] >= 1009


@needs_strace
@pytest.mark.parametrize("engine", ["sync", "io_uring"])
def test_a_thread_that_moves_nothing_is_waited_for(tmp_path, engine):
    """It only syncs, and one sync takes longer than it takes to see that no thread can go on."""
    syncs = [{"op": Fileop.FSYNC, "thread": 2, "file": 2, "start_ns": at, "duration_ns": 0} for at in range(997)]
    trace, image = two_threads(tmp_path / "t", 997, 0, fileops=syncs), tmp_path / "image"
    options = [f"--engine={engine}", "--loop", "--lead=16", "--interval-ms=50", "--cache=warm"]
    with subprocess.Popen([ENGINE, trace, "-d", image, *options], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        with holding(process.pid, "fsync", image / "f00000002"):
            wait_until(lambda: is_in_call(process.pid, FSYNC))
            moved = [json.loads(process.stdout.readline())["requests"] for _ in range(60)]
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=30)
    assert moved[-1] == 0
    assert not any("--lead" in warning for warning in json.loads(text[text.index("{\n") :])["warnings"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lead=0"], "needs a positive number"),
        (["--lead=1.5"], "needs a whole number"),
        (["--lead=2000000"], "needs a whole number up to 1048576"),
        (["--lead=8", "--timing=recorded"], "--lead is for --timing asap"),
    ],
)
def test_what_is_refused(tmp_path, arguments, words):
    trace = two_threads(tmp_path / "t", 2, 2)
    done = subprocess.run(
        [ENGINE, trace, "-d", tmp_path / "image", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert words in done.stderr
