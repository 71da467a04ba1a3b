# SPDX-License-Identifier: Apache-2.0
"""How late the engine and fio begin requests that are due at given times, by one recording of each.

A request is ready when it is due and the one before it of the same thread has ended. Late is its start, as `flextrace
record` saw it, after that; behind is its start after its due time. When a replay began to count its time only it knows:
it is taken from the first requests, of which a tenth counts as early or punctual. What the engine says of itself stands
beside that, and what its null engine says of itself, which does no I/O and is not recorded: what this host allows. The
recorder runs on another processor where there is one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from characterize.layout import Source
from characterize.trace import open as open_trace
from replayer.running.binaries import find_binary
from tests.bench.findings import Bar, Finding, print_table
from tests.bench.replay_list import ReplayList, Requests, make_list, run_json
from tests.bench.spread import spread_of

RATE_PER_S = 5000
QUANTILES = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999, "max_us": 1.0}
DRIFT_TARGET_US = 100
EDGE_SHARE = 0.01  # of the requests, at each end, between which drift is measured
PUNCTUAL_SHARE = 0.1
ENGINE, NULL, FIO = "flextrace", "null engine", "fio iolog"


@dataclass(frozen=True)
class Place:
    """On which processors the replay runs, and how late it may be."""

    title: str
    one_processor: bool
    targets_us: dict[str, float]

    def command(self, command: list[str], trace: Path) -> list[str]:
        """The replay on its processors, inside a recorder on the last one, out of the way."""
        record = [str(find_binary("flextrace-record")), "--quiet", "--force", "--layer=vfs", "-o", str(trace), "--"]
        return ["taskset", "-c", processors()[-1], *record, *self.unrecorded(command)]

    def unrecorded(self, command: list[str]) -> list[str]:
        """The replay on its processors."""
        own = processors()[:1] if self.one_processor else processors()
        return ["taskset", "-c", ",".join(own), *command]


def processors() -> list[str]:
    """Those that this process may run on."""
    return [str(processor) for processor in sorted(os.sched_getaffinity(0))]


PLACES = (
    Place("one processor, none to spare", True, {"p99_us": 200, "p999_us": 1000}),
    Place("all processors, one to spin on", False, {"p99_us": 20}),
)


def measure_lateness(directory: Path, rounds: int, seconds: float) -> tuple[list[Finding], dict[str, str]]:
    """Print a table for each number of threads and place; the findings, and what could not be measured: nothing."""
    findings: list[Finding] = []
    for threads in (1, 4):
        files = directory / f"lateness-{threads}"
        plan = make_list(Requests(threads), files, round(RATE_PER_S * seconds), RATE_PER_S)
        for place in PLACES:
            title = f"{RATE_PER_S} I/Os per second, {threads} thread{'s' * (threads > 1)}, {place.title}"
            table = run_rounds(plan, place, directory / "lateness.iotrace", rounds)
            medians = table.groupby(["replay", "by"], sort=False).median()
            print_table(f"Lateness at {title}; {rounds} rounds of {seconds:g} s, us", medians)
            recorded = medians.xs("recording", level="by")
            print(f"later at the 99th percentile: {recorded['p99_us'].idxmax()}; "
                  f"further behind: {recorded['behind_p99_us'].idxmax()}; "
                  f"drifts more: {recorded['drift_us'].abs().idxmax()}")  # fmt: skip
            own = table[(table["replay"] == ENGINE) & (table["by"] == "recording")]
            for column, target in place.targets_us.items():
                findings.append(Finding("lateness", f"{title}: {column}", Bar(target), spread_of(own[column]), "us"))
            drift = spread_of(own["drift_us"].abs())
            what = f"{title}: drift after {seconds:g} s"
            findings.append(Finding("lateness", what, Bar(DRIFT_TARGET_US), drift, "us"))
        shutil.rmtree(files)
    return findings, {}


def measure_drift(directory: Path, rounds: int, seconds: float) -> tuple[list[Finding], dict[str, str]]:
    """How much further behind the engine is at the end than at the beginning; findings, and nothing that is missing."""
    findings = []
    place = PLACES[0]
    for threads in (1, 4):
        files = directory / f"drift-{threads}"
        plan = make_list(Requests(threads), files, round(RATE_PER_S * seconds), RATE_PER_S)
        table = pd.DataFrame(
            [row for _ in range(rounds) for row in engine_lateness(plan, place, directory / "drift.iotrace")]
        )
        title = f"{RATE_PER_S} I/Os per second, {threads} thread{'s' * (threads > 1)}, {place.title}"
        print_table(
            f"Drift at {title}; {rounds} rounds of {seconds:g} s, us",
            table.groupby("by")[["drift_us", "p99_us"]].median(),
        )
        recorded = table.loc[table["by"] == "recording", "drift_us"].abs()
        findings.append(
            Finding("drift", f"{title}: drift after {seconds:g} s", Bar(DRIFT_TARGET_US), spread_of(recorded), "us")
        )
        shutil.rmtree(files)
    return findings, {}


def run_rounds(plan: ReplayList, place: Place, trace: Path, rounds: int) -> pd.DataFrame:
    """Lateness of engine and fio in turns; one row for each run and who measured it."""
    ways: list[Callable[[], list[dict[str, Any]]]] = [
        lambda: engine_lateness(plan, place, trace),
        lambda: null_lateness(plan, place),
        lambda: fio_lateness(plan, place, trace),
    ]
    rows = []
    for number in range(rounds):
        for way in ways if number % 2 == 0 else ways[::-1]:
            rows += way()
    return pd.DataFrame(rows)


def engine_lateness(plan: ReplayList, place: Place, trace: Path) -> list[dict[str, Any]]:
    """By a recording, and by the engine itself, in the same run."""
    document = run_json(place.command(plan.engine_command("--timing=recorded"), trace))
    recorded = {"replay": ENGINE, "by": "recording"} | summary_of(*lateness_ns(trace, plan))
    return [recorded, {"replay": ENGINE, "by": "itself"} | own_summary(document)]


def null_lateness(plan: ReplayList, place: Place) -> list[dict[str, Any]]:
    """By itself: it issues nothing that a recording could have."""
    document = run_json(place.unrecorded(plan.engine_command("--timing=recorded", "--engine=null")))
    return [{"replay": NULL, "by": "itself"} | own_summary(document)]


def own_summary(document: dict[str, Any]) -> dict[str, float]:
    """What an engine says of its lateness."""
    accuracy = document["accuracy"]
    own = {name: accuracy["lateness"][f"{name.removesuffix('_us')}_ns"] / 1e3 for name in QUANTILES}
    own["behind_p99_us"] = accuracy["behind"]["p99_ns"] / 1e3
    own["drift_us"] = accuracy["drift_ns"] / 1e3
    return own


def fio_lateness(plan: ReplayList, place: Place, trace: Path) -> list[dict[str, Any]]:
    """By a recording; fio says nothing of it."""
    run_json(place.command(plan.fio_command("--ioengine=psync"), trace))
    return [{"replay": FIO, "by": "recording"} | summary_of(*lateness_ns(trace, plan))]


def lateness_ns(trace: Path, plan: ReplayList) -> tuple[np.ndarray, np.ndarray]:
    """How late and how far behind each request of the list was in the recording of its replay, which is removed.

    Returns
    -------
    late_ns, behind_ns : ndarray of float, shape (requests,)
        By due time.

    Raises
    ------
    RuntimeError
        The recording has other requests than the list.
    """
    recording = open_trace(trace)
    trace.unlink()
    starts, ends = [], []
    for thread in range(len(plan.due_ns)):
        name = str(plan.image / f"f{thread + 1:08d}")
        ids = [file for file, path in recording.paths.items() if path == name]
        own = recording.io[recording.io["file"].isin(ids) & (recording.io["source"] == Source.SYSCALL)]
        own = own.sort_values("start_ns")
        if not np.array_equal(own["offset"].to_numpy().astype(np.int64), plan.offsets[thread]):
            raise RuntimeError(f"the recording has not the {plan.offsets[thread].size} requests on {name}: {len(own)}")
        starts.append(own["start_ns"].to_numpy())
        ends.append((own["start_ns"] + own["duration_ns"]).to_numpy())
    start, end, due = np.stack(starts), np.stack(ends), plan.due_ns
    by_due = np.argsort(due.ravel(), kind="stable")
    since = (start - due).ravel()[by_due]
    due = due + np.quantile(since[: edge_of(since)], PUNCTUAL_SHARE)
    ready = due.copy()
    ready[:, 1:] = np.maximum(due[:, 1:], end[:, :-1])
    return (start - ready).ravel()[by_due], (start - due).ravel()[by_due]


def edge_of(values: np.ndarray) -> int:
    """How many requests make the beginning, and the end."""
    return max(round(EDGE_SHARE * len(values)), 1)


def summary_of(late_ns: np.ndarray, behind_ns: np.ndarray) -> dict[str, float]:
    """Quantiles, and how much further behind the last requests are than the first (medians)."""
    edge = edge_of(behind_ns)
    drift_ns = np.median(behind_ns[-edge:]) - np.median(behind_ns[:edge])
    quantiles = {name: float(np.quantile(late_ns, share)) / 1e3 for name, share in QUANTILES.items()}
    return quantiles | {"behind_p99_us": float(np.quantile(behind_ns, 0.99)) / 1e3, "drift_us": float(drift_ns) / 1e3}
