# SPDX-License-Identifier: Apache-2.0
"""What the engine prints reaches who reads it late, through a pipe of one page, and costs the replay nothing."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import characterize
from tests.runs.running_replay import lines_and_document, wait_until
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ENGINE, needs_engine

pytestmark = needs_engine

PIPE_BYTES = 4096


@dataclass(frozen=True)
class Unread:
    """A replay without end that nobody has read anything of."""

    process: subprocess.Popen[bytes]
    output: int

    @property
    def threads(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:"))

    @property
    def unread_bytes(self) -> int:
        return int.from_bytes(fcntl.ioctl(self.output, termios.FIONREAD, bytes(4)), sys.byteorder)

    def said(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Its interval lines and its document."""
        with os.fdopen(self.output, closefd=False) as stream:
            text = stream.read()
        assert self.process.wait(timeout=30) == 0
        return lines_and_document(text.lstrip("\n"))


@contextmanager
def unread(tmp_path: Path, *options: str, before: bytes = b"") -> Iterator[Unread]:
    """With something in the pipe before."""
    io = [read(4096 * at, 4096, 1 + at) for at in range(16)]
    trace = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 65536}]), tmp_path / "t.iotrace")
    ours, its = os.pipe()
    fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.write(its, before)
    process = subprocess.Popen([ENGINE, trace, "--engine=null", "--loop", *options], stdout=its)
    os.close(its)
    try:
        yield Unread(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_who_reads_late_does_not_hold_the_replay(tmp_path):
    """The lines of a fraction of a second fill the pipe; it is read only when nobody replays any more."""
    begin = time.monotonic()
    with unread(tmp_path, "--interval-ms=5", "--max-seconds=0.5") as replay:
        wait_until(lambda: replay.unread_bytes and replay.threads == 1)
        seconds = time.monotonic() - begin
        lines, document = replay.said()
    assert document["stopped"] == "max-time"
    assert document["elapsed_s"] <= seconds
    assert lines
    assert sum(line["requests"] for line in lines) <= document["requests"]["read"]


def test_a_signal_while_the_result_finds_no_room_costs_nothing_of_it(tmp_path):
    with unread(tmp_path, before=b"\n" * PIPE_BYTES) as replay:
        wait_until(lambda: replay.threads == 2)
        replay.process.send_signal(signal.SIGINT)
        wait_until(lambda: replay.threads == 1)
        for _ in range(3):  # while it prints
            time.sleep(0.2)
            assert replay.process.poll() is None
            replay.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        _, document = replay.said()
    assert document["stopped"] == "signal"
    assert document["bytes"]["read"] == 4096 * document["requests"]["read"]
