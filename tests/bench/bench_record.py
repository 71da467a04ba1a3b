# SPDX-License-Identifier: Apache-2.0
"""What recording costs, beside its targets: ``make bench-record``.

Every load runs without recording, under flextrace and, where they exist, under other tracers, in turns; each run is
compared with its two neighbours without recording. All processors are free for application and recorder alike. Traces
and logs of all tracers go to a file system in memory, so that no tracer disturbs the disk of the next run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from tests.bench.attach_time import measure_attach
from tests.bench.bpf_profile import profile_recording
from tests.bench.findings import Bar, Finding, print_findings, print_table
from tests.bench.fio_load import Reads, fio_load
from tests.bench.interleaved import Way, run_interleaved
from tests.bench.load import Load, Tracer, UnavailableError, run_load
from tests.bench.peers import BIOSNOOP, HISTOGRAM, Bpftrace, NoTracer, PerfTrace, Strace
from tests.bench.postgres_load import postgres_load
from tests.bench.recording import Recorder
from tests.bench.rocksdb_load import rocksdb_load
from tests.bench.scratch import tmpfs, tracefs, work_directory
from tests.bench.spread import exactly, ratio_table, spread_of
from tests.bench.sqlite_load import sqlite_load
from tests.bench.untraced import CALLS, measure_untraced

UNTRACED_TARGET_NS = 20  # per system call
ATTACH_TARGET_MS = 1000
OUTPUT_BYTES_MAX = 16 << 30  # of one tracer's run, in memory
PEERS_EVERY = 4  # rounds, in rows of many short ones

LoadMaker = Callable[[Path, float], AbstractContextManager[Load]]  # directory, seconds


@dataclass(frozen=True)
class Row:
    """Loads with one name on the command line, and how often and long they run unless told otherwise."""

    rounds: int
    seconds: float
    loads: Sequence[LoadMaker] = ()
    peers: Callable[[], list[Tracer]] = list
    peers_every: int = 1


def reads(*args: Any, **options: Any) -> LoadMaker:
    """Maker of fio's load."""
    return partial(fio_load, Reads(*args, **options))


def direct_reads(*engines: str, depth: int) -> list[LoadMaker]:
    """On the disk, and on a quieter device."""
    return [reads(engine, depth, device=device) for device in ("disk", "loop") for engine in engines]


def block_peers() -> list[Tracer]:
    """For loads that a device limits."""
    return [Bpftrace("bpftrace, biosnoop to a file", BIOSNOOP), PerfTrace(), Strace()]


def call_peers() -> list[Tracer]:
    """For loads that system calls limit."""
    return [Bpftrace("bpftrace, one histogram", HISTOGRAM), PerfTrace(), Strace()]


ROWS = {
    "cached": Row(7, 3, [reads("psync", direct=False, target_percent=25)], call_peers),
    # Many short pairs: the rate of a shared disk changes from second to second.
    "direct1": Row(20, 1, direct_reads("psync", depth=1), block_peers, PEERS_EVERY),
    "direct32": Row(20, 1, direct_reads("io_uring", "libaio", depth=32), block_peers, PEERS_EVERY),
    "sqlite": Row(10, 3, [sqlite_load]),
    "rocksdb": Row(10, 4, [rocksdb_load]),
    "postgres": Row(10, 5, [postgres_load]),
    "untraced": Row(10, 0),
    "attach": Row(10, 0),
}


@dataclass
class Report:
    """Everything that was measured."""

    findings: list[Finding] = field(default_factory=list)
    samples: dict[str, list[dict[Hashable, Any]]] = field(default_factory=dict)
    profiles: dict[str, list[dict[Hashable, Any]]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def findings_of(row: str, load: Load, samples: pd.DataFrame, recorder: Recorder) -> list[Finding]:
    """Loss of throughput, and lost records, of the recordings of one load."""
    runs = samples[samples["way"] == recorder.name]
    lost_percent = spread_of(100 * (1 - runs["rate"] / runs["reference_rate"]))
    return [
        Finding(row, f"{load.title}: throughput lost", Bar(load.target_percent), lost_percent, "%"),
        Finding(row, f"{load.title}: lost records", Bar(0), exactly(recorder.lost), ""),
    ]


def measure_load(name: str, row: Row, load: Load, outputs: Path, report: Report) -> None:
    """Run all tracers of a load in turns, print its table and enter it into the report."""
    recorder, vfs_only = Recorder("flextrace, both layers"), Recorder("flextrace, vfs only", "--layer", "vfs")
    others = row.peers()
    ways = [
        *(Way(tracer.name, partial(run_load, load, tracer, outputs)) for tracer in (NoTracer(), recorder)),
        *(Way(tracer.name, partial(run_load, load, tracer, outputs), row.peers_every) for tracer in others),
    ]
    if others:
        ways.append(Way(vfs_only.name, partial(run_load, load, vfs_only, outputs), row.peers_every))
    samples = run_interleaved(ways, row.rounds)
    table = ratio_table(samples)
    table["lost events"] = pd.Series({tracer.name: tracer.lost for tracer in (recorder, vfs_only, *others)})
    print_table(f"{load.title}, {row.rounds} rounds, {load.operation}/s", table.fillna({"lost events": 0}))
    report.samples[load.title] = samples.to_dict("records")
    report.findings += findings_of(name, load, samples, recorder)


def profile_load(load: Load, outputs: Path, report: Report) -> None:
    """Print which BPF programs of a recording the time goes to, and enter it into the report."""
    table = profile_recording(load, Recorder("flextrace, both layers"), outputs)
    print_table(f"{load.title}: BPF programs of the recording", table)
    report.profiles[load.title] = table.reset_index().to_dict("records")


def measure_row_untraced(outputs: Path, rounds: int, report: Report) -> None:
    """Print and enter the time that a recording of another process adds to a system call."""
    for call in CALLS:
        samples = measure_untraced(call, outputs, rounds)
        added = samples.assign(added_ns=samples["cpu_ns"] - samples["reference_cpu_ns"])
        spreads = {way: spread_of(runs["added_ns"]) for way, runs in added.groupby("way", sort=False)}
        table = pd.DataFrame({way: asdict(spread) for way, spread in spreads.items()}).T.add_prefix("added_ns_")
        table.insert(0, "call_ns", added.groupby("way")["cpu_ns"].median())
        title = f"{call} of a process that is not recorded"
        print_table(f"{title}, {rounds} rounds, added to the empty probe pair", table)
        report.samples[title] = samples.to_dict("records")
        report.findings.append(Finding("untraced", title, Bar(UNTRACED_TARGET_NS), spreads["flextrace"], "ns"))


def measure_row_attach(outputs: Path, rounds: int, report: Report) -> None:
    """Enter the time that a recording takes to begin and to end."""
    samples = measure_attach(outputs, rounds)
    report.samples["attach"] = samples.to_dict("records")
    for what, column in (("from its start to recording", "attach_s"), ("from Ctrl-C to its exit", "detach_s")):
        report.findings.append(Finding("attach", what, Bar(ATTACH_TARGET_MS), spread_of(1000 * samples[column]), "ms"))


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default=",".join(ROWS), help="which, separated by commas (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help="of each row (default: the row's own)")
    parser.add_argument("--seconds", type=float, help="of each run (default: the row's own)")
    parser.add_argument("--directory", type=Path, help="where files are read and written (default: a temporary one)")
    parser.add_argument("--no-peers", action="store_true", help="flextrace only, without strace, perf and bpftrace")
    parser.add_argument("--profile", action="store_true", help="also tell which BPF programs the time goes to")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write findings and all samples to FILE")
    arguments = parser.parse_args()
    arguments.rows = arguments.rows.split(",")
    if unknown := set(arguments.rows) - set(ROWS):
        parser.error(f"unknown rows {', '.join(sorted(unknown))}: choose from {', '.join(ROWS)}")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds is at least 1")
    return arguments


def row_as_asked(row: Row, arguments: argparse.Namespace) -> Row:
    """The row with what the command line changes."""
    return replace(
        row,
        rounds=arguments.rounds or row.rounds,
        seconds=arguments.seconds or row.seconds,
        peers=list if arguments.no_peers else row.peers,
    )


def measure(arguments: argparse.Namespace, directory: Path, outputs: Path) -> Report:
    """All rows that were asked for."""
    report = Report()
    for name in arguments.rows:
        row = row_as_asked(ROWS[name], arguments)
        if name == "untraced":
            measure_row_untraced(outputs, row.rounds, report)
        if name == "attach":
            measure_row_attach(outputs, row.rounds, report)
        for number, make in enumerate(row.loads):
            try:
                with make(directory, row.seconds) as load:
                    measure_load(name, row, load, outputs, report)
                    if arguments.profile:
                        profile_load(load, outputs, report)
            except UnavailableError as error:
                report.skipped[f"{name}, load {number + 1}"] = str(error)
    return report


def main() -> None:
    """Measure, print, and write JSON where it is wanted."""
    arguments = parse_arguments()
    with work_directory(arguments.directory) as directory, tracefs():
        directory.chmod(0o711)  # the server of PostgreSQL runs as another user
        with tmpfs(directory / "outputs", OUTPUT_BYTES_MAX) as outputs:
            report = measure(arguments, directory, outputs)
    print_findings(report.findings, report.skipped)
    if arguments.json:
        findings = [asdict(finding) | {"met": finding.met} for finding in report.findings]
        document = {"schema": "flextrace-bench-record 2"} | asdict(report) | {"findings": findings}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
