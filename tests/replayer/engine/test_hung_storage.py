# SPDX-License-Identifier: Apache-2.0
"""A stop ends a replay with its result although storage does not give its calls back; it ends when that does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import characterize
from characterize.layout import Fileop, Source
from replayer.run import CLOSES, INTERRUPTED, SAME_S, replay
from replayer.running.recorder import recorder_command
from tests.machines.hung_storage import (
    BLKIO,
    FSYNC,
    IO_URING_ENTER,
    frozen,
    has_open,
    holding,
    is_in_call,
    let_go,
    opened_by_nobody,
    page_out,
    rest_of_document,
    unreadable,
)
from tests.machines.loop_file_system import loop_file_system
from tests.runs.running_replay import playing, started, wait_until
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import needs_strace, op
from tests.truths.told import PROGRAMS, RECORDER

SMALL = PROGRAMS / "replay_small_segments"  # waits for 2 s, not for 60
PAGE = 4096
PAGES = 16
GAP_NS = 2_000_000
ROUNDS = 5003
SOME_S = 0.2  # for what nobody tells of to have happened

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not SMALL.exists(), reason=f"{SMALL} is not built (make build/test-programs)"),
]


def repeated(make, **fields):
    """Ten seconds of requests, one after the other."""
    return [make(PAGE * (at % PAGES), PAGE, GAP_NS * at, **fields) for at in range(1, ROUNDS)]


def truncations(**fields):
    """That change nothing."""
    return [op(Fileop.TRUNCATE, GAP_NS * at, argument=PAGES * PAGE, **fields) for at in range(1, ROUNDS)]


CASES = {
    "a write": ([], repeated(write), [], 1),
    "writes of three threads": (
        ["--order=thread"],
        [row for thread in (1, 2, 3) for row in repeated(write, thread=thread, file=thread)],
        [],
        3,
    ),
    "a file operation": ([], [read(0, PAGE, 1)], truncations(), 1),
    "a file operation beside a ring": (
        ["--engine=io_uring"],
        repeated(read, source=Source.IO_URING),
        truncations(file=2),
        1,
    ),
    # The second one waits for the first one before the next pass.
    "a write of one of two": (["--loop"], [*repeated(write), read(0, PAGE, 1, thread=2, file=2)], [], 1),
}


@contextlib.contextmanager
def file_system(directory):
    with loop_file_system("ext4", directory) as system:
        try:
            yield system
        finally:
            let_go(system.place)


def held_threads(process):
    """Names of those that are where no signal comes."""
    names = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):  # it ends meanwhile
            name, _, state = (task / "stat").read_text().partition("(")[2].rpartition(") ")
            names += [name] * state.startswith("D")
    return names


@contextlib.contextmanager
def playing_small(trace, image, *options, status=3):
    """The engine, as it plays, until it has ended and left nothing; killed where it does not end."""
    command = [SMALL, trace, f"--directory={image}", "--timing=think", "--interval-ms=20", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killer = threading.Timer(100, process.kill)
    killer.start()
    try:
        assert process.stdout.readline().startswith('{"t_s"')
        yield process
        assert process.wait(timeout=60) == status
        assert not image.exists()
    finally:
        killer.cancel()
        process.kill()
        process.wait()


def made(path, io, fileops):
    files = [{"file": file, "size_bytes": PAGES * PAGE} for file in (1, 2, 3)]
    return characterize.write(made_trace(io, fileops=fileops, files=files), path)


@pytest.mark.parametrize("name", CASES)
def test_its_result_is_of_what_has_come_back(tmp_path, name):
    options, io, fileops, held = CASES[name]
    trace = made(tmp_path / "t.iotrace", io, fileops)
    with (
        file_system(tmp_path) as system,
        playing_small(trace, system.place / "image", *options) as process,
        frozen(system.place),
    ):
        wait_until(lambda: len(held_threads(process.pid)) >= held)
        process.send_signal(signal.SIGTERM)
        document = rest_of_document(process)
        assert process.stdout.read() == ""  # it has ended
        assert process.poll() is None
    operations = document["operations"]
    assert document["stopped"] == "signal"
    assert not document["trustworthy"]
    assert any("storage did not answer" in reason for reason in document["reasons"])
    assert operations["failed"] == document["unanswered"] >= held
    assert document["errors"] == {"ETIMEDOUT": operations["failed"]}
    assert operations["done"] > 0
    assert operations["skipped"] == document["skipped_reasons"]["stopped"]
    for kind, rows in (("io", io), ("fileop", fileops)):
        counts = operations[kind]
        assert counts["records"] == len(rows) == counts["done"] + counts["failed"] + counts["skipped"]
    assert 0 <= document["time_in_io_s"] <= document["elapsed_s"]


@needs_strace
@pytest.mark.parametrize("engine", ["sync", "io_uring"])
def test_who_comes_back_after_the_stop_and_waits_again_is_given_up(tmp_path, engine):
    """A write comes back that a close of another thread has left the closing to."""
    writes = [write(0, PAGE, 10**8 * at) for at in range(1, 31)]
    ends = [op(Fileop.CLOSE, 2 * 10**9, thread=2), op(Fileop.OPEN, 2 * 10**9 + 5, file=3, thread=2)]
    trace = made(tmp_path / "t.iotrace", writes, ends)
    with file_system(tmp_path) as system:
        image = system.place / "image"
        with (
            playing_small(trace, image, "--order=thread", f"--engine={engine}") as process,
            holding(process.pid, "close", image / "f00000001"),
        ):
            with frozen(system.place):
                wait_until(lambda: has_open(process.pid, image / "f00000003"))
                process.send_signal(signal.SIGTERM)
                time.sleep(SOME_S)
            document = rest_of_document(process)
    operations = document["operations"]
    assert (document["unanswered"], operations["failed"]) == (0, 0)
    assert operations["records"] == len(writes) + len(ends) == operations["done"] + operations["skipped"]


@needs_strace
def test_who_has_to_open_a_file_after_the_stop_is_given_up(tmp_path):
    """The stop comes while the thread is about to hand a request to its ring, behind which it makes a call."""
    begin = 8 * 10**9
    io = [read(0, PAGE, begin, 10**6, source=Source.IO_URING), read(0, PAGE, begin + 10, 10, file=2)]
    trace, image = made(tmp_path / "t.iotrace", io, [op(Fileop.CLOSE, 1, file=2)]), tmp_path / "image"
    with playing_small(trace, image) as process, holding(process.pid, "io_uring_enter", delay="delay_exit=1s"):
        wait_until(lambda: not has_open(process.pid, image / "f00000002"))
        with opened_by_nobody(image / "f00000002"):
            wait_until(lambda: is_in_call(process.pid, IO_URING_ENTER))
            process.send_signal(signal.SIGTERM)
            document = rest_of_document(process)
    operations = document["operations"]
    assert any("storage did not answer" in reason for reason in document["reasons"])
    assert (operations["done"], document["skipped_reasons"]) == (2, {"stopped": 1})


@needs_strace
def test_nor_for_what_puts_the_files_back_between_two_passes(tmp_path):
    """Which syncs them; no pass does."""
    trace, image = made(tmp_path / "t.iotrace", [write(0, PAGE, 1), write(PAGE, PAGE, 10**8)], []), tmp_path / "image"
    with (
        playing_small(trace, image, "--loop") as process,
        holding(process.pid, "fsync", image / "f00000001"),
    ):
        wait_until(lambda: is_in_call(process.pid, FSYNC))
        process.send_signal(signal.SIGTERM)
        document = rest_of_document(process)
        assert process.stdout.read() == ""
    operations = document["operations"]
    assert (document["unanswered"], operations["failed"], operations["skipped"]) == (0, 0, 0)
    assert operations["done"] == operations["records"] > 0
    assert any("storage did not answer" in reason for reason in document["reasons"])


@pytest.mark.skipif(not (BLKIO / "blkio.throttle.read_bps_device").exists(), reason="needs blkio of version 1")
def test_its_result_does_not_wait_for_the_trace(tmp_path):
    with file_system(tmp_path) as system:
        trace, image = made(system.place / "t.iotrace", repeated(write), []), tmp_path / "image"
        with trace.open("rb") as stream, playing_small(trace, image) as process:
            os.fsync(stream.fileno())
            with unreadable(system.disk.name, process.pid):
                page_out(process.pid, trace)
                wait_until(lambda: "feed" in held_threads(process.pid))
                process.send_signal(signal.SIGTERM)
                document = rest_of_document(process)
                assert process.stdout.read() == ""
    operations = document["operations"]
    assert (document["stopped"], document["unanswered"], operations["failed"]) == ("signal", 0, 0)
    assert not document["trustworthy"]
    assert any("storage of the trace did not answer" in reason for reason in document["reasons"])
    assert 0 < operations["done"] < operations["records"] == len(repeated(write))


@needs_strace
def test_its_result_does_not_wait_for_the_closing_of_files(tmp_path):
    """NFS writes a file to its server when it is closed."""
    trace, image = made(tmp_path / "t.iotrace", repeated(write), []), tmp_path / "image"
    with playing_small(trace, image, status=0) as process, holding(process.pid, "close", image / "f00000001"):
        process.send_signal(signal.SIGTERM)
        document = rest_of_document(process)
        assert has_open(process.pid, image / "f00000001")
    assert document["stopped"] == "signal"
    assert "unanswered" not in document


@needs_strace
def test_nor_does_who_waits_for_the_engine(tmp_path, monkeypatch):
    monkeypatch.setattr("replayer.run.CLOSING_S", 0.5)
    trace, image = made(tmp_path / "t.iotrace", repeated(write), []), tmp_path / "image"
    engines = []
    with ExitStack() as stack:

        def hold(_line):
            engines.append(playing(image))
            stack.enter_context(holding(engines[0], "close", image / "f00000001"))
            return True

        document = replay(trace, image, timing="think", interval_ms=20, on_interval=hold)
        assert has_open(engines[0], image / "f00000001")
    assert document["unanswered"] == 0
    assert CLOSES in document["warnings"]
    wait_until(lambda: not image.exists())


@pytest.mark.parametrize(
    "options",
    [(), ("--memory", "64M"), pytest.param(("--record",), marks=pytest.mark.records)],
    ids=["alone", "confined", "recorded"],
)
def test_the_verb_tells_it_and_does_not_wait(tmp_path, monkeypatch, options):
    """A recorder, which waits for the engine, has the engine's output open, too."""
    binaries = tmp_path / "binaries"
    binaries.mkdir()
    (binaries / "flextrace-replay").symlink_to(SMALL)
    (binaries / "flextrace-record").symlink_to(RECORDER)
    monkeypatch.setenv("FLEXTRACE_BINARIES", str(binaries))
    trace = made(tmp_path / "t.iotrace", repeated(write), [])
    with loop_file_system("ext4", tmp_path) as system:
        image = system.place / "image"
        process = started(trace, image, "--timing", "think", *options)
        try:
            wait_until(lambda: playing(image))
            time.sleep(SOME_S)
            with frozen(system.place):
                wait_until(lambda: held_threads(playing(image)))
                process.send_signal(signal.SIGINT)
                out, said = process.communicate(timeout=60)
                assert playing(image)
            # What was laid out before the recording leaves its directory, empty.
            wait_until(lambda: not playing(image) and not list(image.glob("*")))
            assert image.exists() == ("--record" in options)
            assert not list(Path("/sys/fs/cgroup").rglob(f"flextrace-{process.pid}-*"))
        finally:
            process.kill()
            process.wait()
            let_go(system.place)
    assert process.returncode == 130, said
    assert "1 failed" in out
    assert "storage did not answer" in said
    assert ("fidelity" in out) == ("--record" in options)
    assert "lost records" not in said


@pytest.fixture
def interruptible():
    """Also where a shell runs the tests aside, and has interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.records
@pytest.mark.usefixtures("interruptible")
def test_a_recorder_that_it_holds_costs_no_result(tmp_path, monkeypatch):
    """Another signal ends the waiting for it."""
    monkeypatch.setattr("replayer.run.END_S", 0.5)
    io = repeated(write)[:1503]
    trace, image = made(tmp_path / "t.iotrace", io, []), tmp_path / "image"
    ended = threading.Event()

    def interrupt():
        wait_until(lambda: not playing(image))
        for _ in range(2):
            if not ended.wait(SAME_S + SOME_S):
                os.kill(os.getpid(), signal.SIGINT)

    interrupts = threading.Thread(target=interrupt)
    with loop_file_system("ext4", tmp_path) as system:
        recorder = recorder_command(system.place / "replay.iotrace", image)
        with ExitStack() as stack:

            def hang(_line):
                if interrupts.ident is None:
                    stack.enter_context(frozen(system.place))
                    interrupts.start()

            options = {"timing": "think", "interval_ms": 100, "on_interval": hang}
            try:
                document = replay(trace, image, recorder=recorder, finish_on_signal=True, **options)
            except KeyboardInterrupt:
                document = None
            ended.set()
        let_go(system.place)
    assert document is not None, "its result is lost"
    assert (document["stopped"], document["operations"]["done"]) == ("end", len(io))
    assert document["fidelity_missing"] == INTERRUPTED


def test_an_error_does_not_wait_for_it_either(tmp_path, monkeypatch):
    monkeypatch.setattr("replayer.run.END_S", 0.5)
    trace = made(tmp_path / "t.iotrace", repeated(write), [])
    with loop_file_system("ext4", tmp_path) as system:
        image = system.place / "image"
        with ExitStack() as stack:

            def fail(_line):
                stack.enter_context(frozen(system.place))
                wait_until(lambda: held_threads(playing(image)))
                raise RuntimeError("enough")

            with pytest.raises(RuntimeError, match="enough"):
                replay(trace, image, timing="think", interval_ms=20, on_interval=fail)
        let_go(system.place)
