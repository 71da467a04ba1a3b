# SPDX-License-Identifier: Apache-2.0
"""How fast a trace is characterized, how exact samples are, and in how much memory: ``make bench-characterize``.

Rates are by processor time, of all threads, and so per core; the time from the command to its result is elapsed time
as well. Beside the exact stack depths, in the same run and with the same result: the list that is searched (Mattson et
al. 1970) and the tree of last times (Olken 1981, by sortedcontainers), which the machine's drift meets alike.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from sortedcontainers import SortedList

from characterize.counting.shards import SAMPLED_LEAST, SampledLocality
from characterize.formats.foreign import read_foreign
from characterize.locality import Locality, LocalitySummary
from characterize.references import BLOCK_BYTES, BlockNumbers
from characterize.requests import columns_of, requests_of
from tests.bench.findings import Bar, Finding, print_findings, print_table
from tests.bench.mixed_trace import make_mixed_trace
from tests.bench.scratch import work_directory
from tests.bench.spread import exactly, spread_of
from tests.bench.verb_run import run_verb
from tests.traces.real_traces import CLOUDPHYSICS

CHUNK = 1 << 16
RATE, SIZE_BYTES = 0.01, 2 << 20
CURVE_POINTS = 200

Columns = Mapping[str, np.ndarray]


def references(blocks: np.ndarray) -> dict[str, np.ndarray]:
    """Requests of one block each."""
    count = len(blocks)
    return {
        "file": np.ones(count, np.int64),
        "offset": blocks * BLOCK_BYTES,
        "bytes": np.full(count, BLOCK_BYTES),
        "read": np.ones(count, bool),
    }


def workloads(count: int, blocks: int, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """References whose locality differs."""
    random = np.random.default_rng(seed)
    uniform = random.integers(0, blocks, count)
    scan = np.arange(count) % (blocks * 2 // 5)
    mixed = np.where(random.random(count) < 0.3, scan, blocks * 2 // 5 + uniform * 3 // 5)
    weights = np.arange(1, blocks + 1) ** -0.9
    reached = np.cumsum(weights / weights.sum())
    rank = np.minimum(np.searchsorted(reached, random.random(count)), blocks - 1)
    # Popular places lie in extents of 64 blocks, which lie anywhere, or each block lies anywhere.
    extents = random.permutation(blocks // 64 + 1)
    near = extents[rank // 64] * 64 + rank % 64
    apart = random.permutation(blocks)[rank]
    made = {"uniform": uniform, "scan and uniform": mixed, "zipf 0.9, extents": near, "zipf 0.9, blocks": apart}
    return {name: references(numbers) for name, numbers in made.items()}


def in_chunks(requests: Columns, add: Callable[[Columns], None]) -> float:
    """Processor time, in s, that a summary takes for requests."""
    begin = time.process_time()
    for first in range(0, len(requests["file"]), CHUNK):
        add({name: column[first : first + CHUNK] for name, column in requests.items()})
    return time.process_time() - begin


def exact(requests: Columns) -> tuple[Locality, float, float]:
    """Stack depths, processor time in s, bytes per distinct block."""
    blocks, summary = BlockNumbers(), LocalitySummary()

    def add(part: Columns) -> None:
        for batch in blocks.references(part):
            summary.add(part, batch)

    seconds = in_chunks(requests, add)
    return summary.result(), seconds, (blocks.nbytes + summary.nbytes) / blocks.distinct


def resident_bytes() -> int:
    """Of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(requests: Columns) -> float:
    """Largest growth of the resident set while depths are followed, per distinct block, by the kernel's own maximum."""
    gc.collect()
    before = resident_bytes()
    # 5: VmHWM begins anew (proc(5), clear_refs).
    Path("/proc/self/clear_refs").write_text("5")
    locality, _, _ = exact(requests)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    return (peak - before) / locality.cold


def searched_list(blocks: list[int]) -> dict[int, int]:
    """Depths from a list that is searched."""
    stack: list[int] = []
    counts: dict[int, int] = {}
    for block in blocks:
        if block in stack:
            depth = len(stack) - 1 - stack.index(block)
            counts[depth] = counts.get(depth, 0) + 1
            stack.remove(block)
        stack.append(block)
    return counts


def tree_of_times(blocks: list[int]) -> dict[int, int]:
    """Depths from a tree of the last times of all blocks."""
    last: dict[int, int] = {}
    times: SortedList = SortedList()
    counts: dict[int, int] = {}
    for now, block in enumerate(blocks):
        if (before := last.get(block)) is not None:
            depth = len(times) - 1 - times.index(before)
            counts[depth] = counts.get(depth, 0) + 1
            times.remove(before)
        last[block] = now
        times.add(now)
    return counts


def measure_exact(count: int, blocks: int, rounds: int) -> list[Finding]:
    """The exact depths of `count` references to `blocks` blocks, and the peers on as many as they can do."""
    made = workloads(count, blocks, 1)
    exact({name: column[:1000] for name, column in made["uniform"].items()})
    peaks = pd.Series([peak_bytes(made["uniform"]) for _ in range(rounds)])
    rates: dict[str, list[float]] = {name: [] for name in made}
    memory: dict[str, float] = {}
    for _ in range(rounds):
        for name, requests in made.items():
            _, seconds, memory[name] = exact(requests)
            rates[name].append(count / seconds / 1e6)
    rows = {name: {"M refs/s": np.median(its), "bytes/block": memory[name]} for name, its in rates.items()}
    for name, method, few in (("Olken's tree", tree_of_times, 200_000), ("Mattson's list", searched_list, 10_000)):
        part = {key: column[:few] for key, column in made["uniform"].items()}
        numbers = (part["offset"] // BLOCK_BYTES % (few // 10)).tolist()
        begin = time.process_time()
        counts = method(numbers)
        seconds = time.process_time() - begin
        found, mine, _ = exact(references(np.array(numbers)))
        if {depth: its for depth, its in enumerate(found.counts.tolist()) if its} != counts:
            raise SystemExit(f"{name} gives other depths")
        rows[name] = {"M refs/s": few / seconds / 1e6, "times slower": seconds / mine, "distinct": float(few // 10)}
    print_table(f"Exact stack depths, {count:,} references to {blocks:,} blocks", pd.DataFrame(rows).T)
    print(f"largest growth of the resident set: {peaks.median():.1f} bytes a distinct block (uniform)")
    slowest = min(rates, key=lambda name: float(np.median(rates[name])))
    return [
        Finding("exact", f"M references/s per core, {slowest}", Bar(low=6), spread_of(rates[slowest]), "M/s"),
        Finding("exact", "bytes a distinct block, in use", Bar(48), exactly(max(memory.values())), "B"),
        Finding("exact", "the same by the resident set, at most", Bar(48), spread_of(peaks), "B"),
    ]


def mean_error(sample: Locality, whole: Locality) -> float:
    """Mean absolute difference of miss ratios over evenly spaced sizes up to the footprint, as SHARDS' authors do."""
    sizes = np.linspace(1, whole.cold, CURVE_POINTS) * BLOCK_BYTES
    return float(np.abs(sample.miss_ratio(sizes) - whole.miss_ratio(sizes)).mean())


def measure_samples(count: int, blocks: int, rounds: int) -> list[Finding]:
    """Rates of samples, and their errors over some traces."""
    rows = []
    for seed in range(rounds):
        made = workloads(count, blocks, seed)
        if CLOUDPHYSICS.exists():
            real = columns_of(requests_of(read_foreign(CLOUDPHYSICS), "block"))
            # Under the name of another file the sample is another one.
            made["cloudPhysicsIO"] = {**real, "file": real["file"] + seed}
        for name, requests in made.items():
            whole, _, _ = exact(requests)
            samples = {
                "1 %": SampledLocality(RATE),
                "--sample 1%": SampledLocality(RATE, blocks_least=SAMPLED_LEAST),
                "2 MiB": SampledLocality(size_bytes=SIZE_BYTES),
            }
            for kind, sample in samples.items():
                seconds = in_chunks(requests, sample.add)
                rows.append(
                    {
                        "trace": name,
                        "sample": kind,
                        "M refs/s": whole.references / seconds / 1e6,
                        "error": mean_error(sample.result(), whole),
                        "KiB": sample.nbytes / 1024,
                    }
                )
    frame = pd.DataFrame(rows)
    print_table(
        f"Samples, {count:,} references to {blocks:,} blocks, medians of {rounds} seeds",
        frame.groupby(["trace", "sample"], sort=False).median(),
    )
    print(frame.groupby(["trace", "sample"], sort=False)["error"].max().to_string())
    findings = []
    for kind, limit in (("1 %", 0.002), ("--sample 1%", 0.002), ("2 MiB", 0.01)):
        mine = frame[frame["sample"] == kind]
        made_only = mine[mine["trace"] != "cloudPhysicsIO"]
        findings.append(Finding(kind, "M references/s", Bar(low=50), spread_of(made_only["M refs/s"]), "M/s"))
        for name, its in mine.groupby("trace", sort=False):
            findings.append(Finding(kind, f"mean error, {name}", Bar(limit), spread_of(its["error"]), "", digits=4))
    largest = exactly(float(frame.loc[frame["sample"] == "2 MiB", "KiB"].max()))
    return [*findings, Finding("2 MiB", "memory", Bar(2048), largest, "KiB")]


def measure_whole(work: Path, records: int, rounds: int) -> list[Finding]:
    """All measures: of short traces the time to the result, of long ones time and memory."""
    short = make_mixed_trace(work / "short.iotrace", 100_000)
    run_verb("characterize", short)
    times = pd.DataFrame([run_verb("characterize", short, "--format", "json") for _ in range(rounds)])
    rows = {}
    for count in (records // 10, records):
        trace = make_mixed_trace(work / "long.iotrace", count)
        run = run_verb("characterize", trace, "--format", "json")
        rows[f"{count:,} records"] = {
            "elapsed s": run.elapsed_s,
            "processor s": run.processor_s,
            "MB": run.peak_bytes / 1e6,
        }
        trace.unlink()
    print_table("All measures, both layers", pd.DataFrame(rows).T)
    tenth, whole = rows.values()
    return [
        Finding("100 k", "elapsed, command to result", Bar(2), spread_of(times["elapsed_s"]), "s", digits=2),
        Finding("100 k", "processor time of that", Bar(2), spread_of(times["processor_s"]), "s", digits=2),
        Finding(f"{records / 1e6:g} M", "elapsed", Bar(240 * records / 1e8), exactly(whole["elapsed s"]), "s"),
        Finding(f"{records / 1e6:g} M", "processor time", Bar(240 * records / 1e8), exactly(whole["processor s"]), "s"),
        Finding(f"{records / 1e6:g} M", "largest resident set", Bar(4096), exactly(whole["MB"]), "MB", digits=0),
        Finding("memory", "of ten times the records", Bar(1.05), exactly(whole["MB"] / tenth["MB"]), "times", digits=2),
    ]


def main() -> None:
    """Measure and print; the last table is the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000_000, help="of the long trace (default: %(default)s)")
    parser.add_argument("--references", type=int, default=10_000_000, help="of stack depths (default: %(default)s)")
    parser.add_argument("--blocks", type=int, default=1_000_000, help="that these are to (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of what is short (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where the traces are (default: a temporary directory)")
    parser.add_argument("--rows", default="exact,samples,whole", help="parts of it (default: %(default)s)")
    arguments = parser.parse_args()
    findings = []
    rows = arguments.rows.split(",")
    if "exact" in rows:
        findings += measure_exact(arguments.references, arguments.blocks, arguments.rounds)
    if "samples" in rows:
        findings += measure_samples(arguments.references, arguments.blocks, arguments.rounds)
    if "whole" in rows:
        with work_directory(arguments.directory) as work:
            findings += measure_whole(work, arguments.records, arguments.rounds)
    print(
        f"\nload of this machine: {', '.join(f'{load:.1f}' for load in os.getloadavg())} (rates are by processor time)"
    )
    print_findings(findings, {})


if __name__ == "__main__":
    main()
