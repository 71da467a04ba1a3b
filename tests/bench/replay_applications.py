# SPDX-License-Identifier: Apache-2.0
"""Applications, recorded, beside their unmodified replays on the same machine: elapsed and response times.

Elapsed is from the start of the first operation to the end of the last. The times of the original are those of its
recording; those of a replay are the engine's own, and, of one that is itself recorded, those of the recording, which
costs the replay what it cost the original. A replay that is not recorded is to take as long as the original without a
recorder, which is run for this once more.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd

from characterize.layout import RecordKind, Source
from characterize.requests import requests_of
from characterize.response_time import syncs_of, times_by_kind
from characterize.stream import open_stream, stream_of
from characterize.trace import Trace
from characterize.trace import open as open_trace
from replayer.checking.order_check import check_order
from replayer.checking.replay_recording import replay_part
from replayer.run import engine_command, prepare
from replayer.running.binaries import find_binary
from replayer.running.engine_options import EngineOptions
from tests.bench.backed_memory import back_free_memory
from tests.bench.findings import Bar, Finding, print_table
from tests.bench.load import Load, UnavailableError
from tests.bench.postgres_load import postgres_load
from tests.bench.recording import recording_of_process
from tests.bench.replay_list import run_json
from tests.bench.rocksdb_load import rocksdb_load
from tests.bench.spread import exactly, spread_of
from tests.bench.sqlite_load import sqlite_load
from tests.demo.sort_input import write_sort_input

ELAPSED_TARGET_PERCENT = 5
RESPONSE_TARGET_PERCENT = 10
ORIGINAL, UNRECORDED = "original", "original, not recorded"
THINK, THINK_RECORDED = "think", "think, inside a recorder"
REPLAYS = (THINK, THINK_RECORDED)
KINDS = ("read", "write", "sync")
JUDGED_PLAIN = ("elapsed_s",)
JUDGED_RECORDED = ("elapsed_s", *(f"{kind}_mean_us" for kind in KINDS))
SORT_BYTES_PER_S = 40_000_000
SORT_BUFFER = "8M"  # so that it merges from files


@contextmanager
def sort_load(directory: Path, seconds: float) -> Iterator[Load]:
    """GNU sort, which writes its runs to files and merges them."""
    text, runs, sorted_text = directory / "lines.txt", directory / "runs", directory / "sorted.txt"
    runs.mkdir()
    try:
        size = write_sort_input(text, round(SORT_BYTES_PER_S * seconds))
        command = ["sort", "--parallel=1", "-S", SORT_BUFFER, "-T", str(runs), "-o", str(sorted_text), str(text)]
        yield Load(f"GNU sort of {size / 1e6:.0f} MB", "files", 5, command, None)
    finally:
        for path in (text, sorted_text):
            path.unlink(missing_ok=True)
        runs.rmdir()


APPLICATIONS: dict[str, Callable[[Path, float], AbstractContextManager[Load]]] = {
    "sort": sort_load,
    "sqlite": sqlite_load,
    "rocksdb": rocksdb_load,
    "postgres": postgres_load,
    # Of reads that pay for the first touch of their memory a replay knows how many pages that were, not what each took.
    "postgres, touched": partial(postgres_load, touched=True),
}


def measure_applications(directory: Path, rounds: int, seconds: float) -> tuple[list[Finding], dict[str, str]]:
    """Record each, replay it in both ways, and again, print a table; the findings, and what could not be measured."""
    findings, skipped = [], {}
    for name, make in APPLICATIONS.items():
        try:
            with make(directory, seconds) as load:
                runs, oddities = run_rounds(load, directory / f"{name}.iotrace", directory / f"{name}-image", rounds)
        except UnavailableError as error:
            skipped[name] = str(error)
            continue
        medians = runs.groupby("replay", sort=False).median().drop(columns="round")
        print_table(f"{load.title}: originals and replays, medians of {rounds} rounds", medians.T)
        apart = originals_apart(runs)
        if not apart.empty:
            print_table(f"{load.title}: how far recorded originals of neighbouring rounds lie apart, %", apart)
        for what, count in oddities.items():
            print(f"  {what}: {count}", flush=True)
        findings += findings_of(load.title, runs)
    return findings, skipped


def run_rounds(load: Load, trace: Path, image: Path, rounds: int) -> tuple[pd.DataFrame, Counter[str]]:
    """A new original in each round and both replays of it, so that what the disk does meanwhile is done to both.

    Returns
    -------
    DataFrame, one row for each run
        ``round``, ``replay``, ``elapsed_ratio`` to the original of the round that was recorded if it was, and the
        columns of `run_replay`.
    Counter of str
        What did not go as recorded, in all runs.
    """
    rows, oddities = [], Counter[str]()
    for number in range(rounds):
        # On both sides, since a load may find more in place the second time.
        before = run_unrecorded(load)
        told = record(load, trace)
        original = original_times(open_trace(trace))
        unrecorded_s = unrecorded_elapsed_s(load, original["elapsed_s"], told, [before, run_unrecorded(load)])
        oddities.update(dict(mapped_reads(open_trace(trace))))
        rows.append({"round": number, "replay": ORIGINAL, "elapsed_ratio": 1.0} | original)
        rows.append({"round": number, "replay": UNRECORDED, "elapsed_ratio": 1.0, "elapsed_s": unrecorded_s})
        first = number % len(REPLAYS)
        for way in REPLAYS[first:] + REPLAYS[:first]:
            row, odd = run_replay(trace, image, way)
            ratio = row["elapsed_s"] / (original["elapsed_s"] if way == THINK_RECORDED else unrecorded_s)
            rows.append({"round": number, "replay": way, "elapsed_ratio": ratio} | row)
            oddities.update(odd)
        trace.unlink()
    order = [ORIGINAL, UNRECORDED, *REPLAYS]
    return pd.DataFrame(rows).sort_values("replay", key=lambda titles: titles.map(order.index), kind="stable"), oddities


def originals_apart(runs: pd.DataFrame) -> pd.DataFrame:
    """How far recorded originals lie apart that ran minutes apart, as a replay runs minutes after its own.

    Parameters
    ----------
    runs : DataFrame
        Of `run_rounds`.

    Returns
    -------
    DataFrame, one row for each time that is judged
        ``median`` and ``largest``, percent of the smaller one; empty of a single round.
    """
    originals = runs[runs["replay"] == ORIGINAL].sort_values("round")
    times = originals[[*JUDGED_RECORDED]].dropna(axis="columns", how="all")
    apart_percent = 100 * np.expm1(np.log(times).diff().abs()).iloc[1:]
    return pd.DataFrame({"median": apart_percent.median(), "largest": apart_percent.max()}).dropna()


def record(load: Load, trace: Path) -> str:
    """Record a load: the command, or the server that does the I/O for it; what the command printed.

    Raises
    ------
    RuntimeError
        It failed, or records were lost.
    """
    load.prepare()
    back_free_memory()
    if load.server is None:
        recorder = [str(find_binary("flextrace-record")), "--quiet", "--force", "--layer=vfs", "-o", str(trace), "--"]
        done = subprocess.run([*recorder, *load.command], capture_output=True, text=True, check=False)
    else:
        with recording_of_process(load.server, trace, "--layer=vfs"):
            done = subprocess.run(load.command, capture_output=True, text=True, check=False)
    if done.returncode or open_trace(trace).header.lost:
        raise RuntimeError(f"{load.title}: its recording failed (exit {done.returncode}): {done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class Unrecorded:
    """A run without a recorder: how long it took as a whole, and what it printed."""

    taken_s: float
    told: str


def run_unrecorded(load: Load) -> Unrecorded:
    """Run a load without a recorder.

    Raises
    ------
    RuntimeError
        It failed.
    """
    load.prepare()
    back_free_memory()
    begun_s = time.monotonic()
    done = subprocess.run(load.command, capture_output=True, text=True, check=False)
    taken_s = time.monotonic() - begun_s
    if done.returncode:
        raise RuntimeError(f"{load.title} failed (exit {done.returncode}): {done.stderr}")
    return Unrecorded(taken_s, done.stdout)


def unrecorded_elapsed_s(load: Load, recorded_s: float, told: str, runs: list[Unrecorded]) -> float:
    """How long a load takes without a recorder, mean of runs: by the rates that it tells itself, or else as a whole.

    Parameters
    ----------
    load : Load
    recorded_s : float
        How long it took inside a recorder.
    told : str
        What it printed there.
    runs : list of Unrecorded
    """
    if load.result is None:
        return mean(run.taken_s for run in runs)
    recorded_rate = load.result(told).rate
    return mean(recorded_s * recorded_rate / load.result(run.told).rate for run in runs)


def original_times(trace: Trace) -> dict[str, float]:
    """Elapsed time, and means and sums of the response times of what a replay repeats."""
    operations = pd.concat([trace.io, trace.fileops])
    elapsed_ns = (operations["start_ns"] + operations["duration_ns"]).max() - operations["start_ns"].min()
    return {"elapsed_s": elapsed_ns / 1e9} | columns_of(response_times(requests_of(trace), syncs_of(trace)))


def response_times(requests: pd.DataFrame, syncs: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Response times by kind, as they stand in the result of a replay."""
    return {
        kind: {"count": len(times), "mean_ns": times.mean(), "p50_ns": times.quantile(interpolation="lower")}
        for kind, times in times_by_kind(requests, syncs).items()
    }


def columns_of(times: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Of the response times by kind: means, medians, and sums in seconds of all threads together; NaN where none is."""
    columns = {}
    for kind in KINDS:
        count, mean_ns, p50_ns = (times[kind][name] or math.nan for name in ("count", "mean_ns", "p50_ns"))
        columns |= {
            f"{kind}_mean_us": mean_ns / 1e3,
            f"{kind}_p50_us": p50_ns / 1e3,
            f"{kind}_s": mean_ns * count / 1e9,
        }
    return columns


def mapped_reads(trace: Trace) -> list[tuple[str, int]]:
    """Page faults, which the engine repeats as reads: another operation, with other times."""
    faults = int((requests_of(trace)["source"] == Source.MMAP).sum())
    return [("requests that were page faults", faults)] if faults else []


def run_replay(trace: Path, image: Path, way: str) -> tuple[dict[str, float], Counter[str]]:
    """Times of one replay, and counts of what did not go as recorded."""
    prepare(trace, image)
    back_free_memory()
    again = image.with_suffix(".iotrace")
    options: EngineOptions = {"phase": "run", "keep_image": True, "timing": "think"}
    command = engine_command(trace, image, options)
    if way == THINK_RECORDED:
        recorder = find_binary("flextrace-record")
        command = [
            str(recorder),
            "--quiet",
            "--force",
            "--layer=vfs",
            f"--path={image}",
            "-o",
            str(again),
            "--",
            *command,
        ]
    try:
        document = run_json(command)
        times = document["response_time"]
        violations = math.nan
        if way == THINK_RECORDED:
            recording = open_trace(again)
            times = response_times(*of_workers(recording))
            violations = order_violations(trace, recording)
    finally:
        shutil.rmtree(image)
        again.unlink(missing_ok=True)
    odd: Counter[str] = Counter()
    for name in ("mismatches", "errors", "skipped_reasons"):
        odd.update({f"{way}: {name.replace('_', ' ')}, {what}": count for what, count in document[name].items()})
    odd.update(f"{way}: not trustworthy: {reason}" for reason in document["reasons"])
    odd.update(f"{way}: {warning}" for warning in document["warnings"])
    row = {"elapsed_s": document["elapsed_s"]} | columns_of(times)
    return row | {"unaccounted": unaccounted(trace, document), "order_violations": violations}, odd


def of_workers(recording: Trace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Requests and syncs of a recorded replay, without those by which its main thread has the files ready."""
    frames = (requests_of(recording, mmap="none"), syncs_of(recording))
    requests, syncs = (frame[~frame["thread"].isin(recording.tasks["process"])] for frame in frames)
    return requests, syncs


def unaccounted(trace: Path, document: dict[str, Any]) -> int:
    """Operations of a trace that its replay neither did nor says why not."""
    count = open_trace(trace).header.count
    outcomes = sum(document["operations"][outcome] for outcome in ("done", "short", "failed", "skipped"))
    return abs(count[RecordKind.IO] + count[RecordKind.FILEOP] - outcomes)


def order_violations(trace: Path, recording: Trace) -> int:
    """Operations of a recorded replay that began before one that they had to wait for."""
    return check_order(open_stream(trace), replay_part(stream_of(recording)), "resource").violations


def findings_of(title: str, runs: pd.DataFrame) -> list[Finding]:
    """How far the replays with think times are off, either way, and what no replay may do.

    Elapsed times are judged of both ways, each by the original that was recorded if it was. Response times are those of
    recordings on both sides: the engine's own have the way into the kernel and back in them, those of the original have
    not.
    """
    judged = {THINK: JUDGED_PLAIN, THINK_RECORDED: JUDGED_RECORDED}
    by_round = runs.set_index("round")
    findings = []
    for way, columns in judged.items():
        replay = by_round[by_round["replay"] == way]
        original = by_round[by_round["replay"] == (ORIGINAL if way == THINK_RECORDED else UNRECORDED)]
        for column in columns:
            target = ELAPSED_TARGET_PERCENT if column == "elapsed_s" else RESPONSE_TARGET_PERCENT
            off_percent = (100 * (replay[column] / original[column] - 1)).dropna()
            if len(off_percent):
                what = f"{title}: {column} of {way} by the original's"
                findings.append(Finding("applications", what, Bar(target, -target), spread_of(off_percent), "%"))
    for column in ("unaccounted", "order_violations"):
        if len(counts := runs[column].dropna()):
            findings.append(Finding("applications", f"{title}: {column}", Bar(0), exactly(float(counts.max())), ""))
    return findings
