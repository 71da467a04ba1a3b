# SPDX-License-Identifier: Apache-2.0
"""What a recording costs the processes that are not recorded: time per system call.

Any probe on system calls sends those of every process through the slow path, so the reference is a pair of programs
that do nothing. getppid is never recorded; for pread the recorder has to look at the process.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from replayer.running.binaries import find_binary
from tests.bench.interleaved import Sample, Way, run_interleaved
from tests.bench.recording import recording_of_process

CALLS = ("getppid", "pread")


@contextmanager
def empty_probes() -> Iterator[None]:
    """A pair of empty programs on the entry and the exit of all system calls while inside."""
    loader = find_binary("bench/attach_probes")
    command = [loader, loader.with_name("empty_probes.bpf.o")]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if not holder.stdout or holder.stdout.readline() != "attached\n":
            raise RuntimeError(f"the empty probes were not attached: {holder.communicate()[1]}")
        yield
    finally:
        holder.terminate()
        holder.communicate()


@contextmanager
def recording_of_sleeper(trace: Path) -> Iterator[None]:
    """A recording of a process that does nothing while inside."""
    sleeper = subprocess.Popen(["sleep", "infinity"])
    try:
        with recording_of_process(sleeper.pid, trace):
            yield
    finally:
        sleeper.terminate()
        sleeper.wait()
        trace.unlink(missing_ok=True)


def time_call(call: str) -> Sample:
    """Time of one call, by a program that makes ten million of them."""
    output = subprocess.run(
        [find_binary("tests/system_calls"), call], check=True, capture_output=True, text=True
    ).stdout
    call_ns = float(output)
    return Sample(1e9 / call_ns, call_ns)


def measure_untraced(call: str, directory: Path, rounds: int) -> pd.DataFrame:
    """Samples of the time of a call: without probes and beside a recording, each against the empty probes."""

    def beside_empty_probes() -> Sample:
        with empty_probes():
            return time_call(call)

    def beside_recording() -> Sample:
        with recording_of_sleeper(directory / "sleeper.iotrace"):
            return time_call(call)

    return run_interleaved(
        [
            Way("empty probe pair", beside_empty_probes),
            Way("no probes", lambda: time_call(call)),
            Way("flextrace", beside_recording),
        ],
        rounds,
    )
