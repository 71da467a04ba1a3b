# SPDX-License-Identifier: Apache-2.0
"""Where a recording's cost is: how often each of its BPF programs runs per operation of the load, and for how long.

The kernel's own statistics, which themselves add two clock reads to each run: a profile, not a measurement of the cost.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tests.bench.load import Load, Tracer, run_load

SAMPLE_SECONDS = 0.1
STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")


@dataclass(frozen=True)
class ProgramRuns:
    """One BPF program so far."""

    name: str
    runs: int
    run_ns: int


Snapshot = tuple[float, dict[int, ProgramRuns]]  # when (s), programs by their id


@contextmanager
def statistics_enabled() -> Iterator[None]:
    """Have the kernel count and time the runs of BPF programs while inside."""
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        yield
    finally:
        STATISTICS.write_text(before)


def snapshot() -> Snapshot:
    """All programs that are loaded now."""
    command = ["bpftool", "prog", "show", "-j"]
    # It fails when a program goes away while it looks.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        programs = json.loads(done.stdout)
    except json.JSONDecodeError:
        programs = []
    return time.monotonic(), {
        program["id"]: ProgramRuns(program.get("name", "?"), program.get("run_cnt", 0), program.get("run_time_ns", 0))
        for program in programs
        if isinstance(program, dict) and "id" in program
    }


def runs_of(taken: Snapshot) -> int:
    """Runs of all programs in a snapshot."""
    return sum(program.runs for program in taken[1].values())


def profile_recording(load: Load, recorder: Tracer, directory: Path) -> pd.DataFrame:
    """Record the load once; one row per program of the recording that ran.

    Taken from the middle of the recording, by runs, so that the start of load and recorder is not in it.
    """
    taken: list[Snapshot] = []
    ended = threading.Event()
    others = snapshot()[1].keys()

    def watch() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            when, programs = snapshot()
            taken.append((when, {key: value for key, value in programs.items() if key not in others}))

    with statistics_enabled():
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            sample = run_load(load, recorder, directory)
        finally:
            ended.set()
            watcher.join()
    # At the end of a recording its programs go away one by one.
    all_programs = max((len(one[1]) for one in taken), default=0)
    taken = [one for one in taken if len(one[1]) == all_programs]
    most = max(map(runs_of, taken), default=0)
    middle = [one for one in taken if 0.15 * most <= runs_of(one) <= 0.85 * most]
    if len(middle) < 2:
        raise RuntimeError(f"{load.title}: too short for a profile")
    (start_s, first), (end_s, last) = middle[0], middle[-1]
    operations = sample.rate * (end_s - start_s)
    rows = []
    for key, program in last.items():
        before = first.get(key, ProgramRuns(program.name, 0, 0))
        if runs := program.runs - before.runs:
            run_ns = program.run_ns - before.run_ns
            rows.append((program.name, runs / operations, run_ns / runs, run_ns / operations))
    columns = ["program", "runs per operation", "ns per run", "ns per operation"]
    return pd.DataFrame(rows, columns=columns).sort_values("ns per operation", ascending=False).set_index("program")
