# SPDX-License-Identifier: Apache-2.0
"""Replays as processes of their own, and what of them is running, for tests that end them early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import characterize
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ROOT


@contextmanager
def own_process(command: Iterable[object], **pipes: Any) -> Iterator[subprocess.Popen[str]]:
    """A process, of which nothing is left at the end, whatever a test finds; nor of what strace would let go of."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "process_group": 0, **pipes}
    with subprocess.Popen(list(map(str, command)), **pipes) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def started(trace: Path, directory: Path, *options: object, place: str = "--directory") -> subprocess.Popen[str]:
    """The verb, on files in a directory."""
    command = [sys.executable, "-m", "flextrace", "replay", trace, place, directory, *options]
    return subprocess.Popen(
        list(map(str, command)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines_and_document(said: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What the engine says while it runs (``--interval-ms``), and its result."""
    begin = said.index("{\n")
    return [json.loads(line) for line in said[:begin].splitlines()], json.loads(said[begin:])


def conserved(counts: dict[str, int]) -> bool:
    """Whether of the records of a result each is done, short, failed or skipped."""
    return counts["records"] == sum(counts[name] for name in ("done", "short", "failed", "skipped"))


def looped(command: Iterable[object], requests: int) -> dict[str, Any]:
    """The result of an engine that is stopped in its loop behind so many requests, however long these take."""
    words = [*map(str, command), "--loop", "--interval-ms=20", "--max-seconds=60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout
        done = 0
        while done < requests:
            done += json.loads(engine.stdout.readline())["requests"]
        engine.send_signal(signal.SIGINT)
        said = engine.communicate(timeout=60)[0]
    assert engine.returncode == 0
    document = lines_and_document(said)[1]
    assert document["stopped"] == "signal"
    return document


def wait_until(happens: Callable[[], object], seconds: float = 60.0) -> None:
    """Poll until it is true."""
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def wait_for_calls(log: Path, call: str, count: int = 1) -> None:
    """Poll the log of strace until it has so many of them."""
    wait_until(lambda: log.exists() and log.read_text().count(f"{call}(") >= count, 100)


def threads(process: Path) -> Iterator[str]:
    """Names of the threads of a process."""
    with suppress(OSError):  # it ends meanwhile
        for comm in process.glob("task/*/comm"):
            with suppress(OSError):  # or a thread of it
                yield comm.read_text().removesuffix("\n")


def stop_for(process: subprocess.Popen[str], seconds: float) -> float:
    """Stop a process for so long; for how long it certainly stood still, which on a busy machine is longer."""
    process.send_signal(signal.SIGSTOP)
    told = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert told.si_code == os.CLD_STOPPED
    begin = time.monotonic()
    time.sleep(seconds)
    stood_s = time.monotonic() - begin
    process.send_signal(signal.SIGCONT)
    return stood_s


def playing(image: Path) -> int | None:
    """The process whose threads replay in this directory, or None."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ends meanwhile
            if "play 1" in threads(process) and str(image) in (process / "cmdline").read_text():
                return int(process.name)
    return None


def children(process: int) -> list[str]:
    """Processes that this one waits for."""
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def slow(path: Path) -> Path:
    """A trace of 100 reads that takes minutes with its think times."""
    io = [read(4096 * at, 4096, 1 + 10**9 * at, 1000) for at in range(100)]
    files = [{"file": 1, "size_bytes": 1 << 20, "resident_bytes": 1 << 20}]
    return characterize.write(made_trace(io, files=files), path)


def endless_layout(path: Path) -> Path:
    """A trace whose file of 40 GB nobody waits for."""
    return characterize.write(made_trace([read(0, 4096, 1)], files=[{"file": 1, "size_bytes": 40 << 30}]), path)
