# SPDX-License-Identifier: Apache-2.0
"""How fast the engine replays a list without waiting, beside fio on the same list, and how fast it would be alone.

fio reads its log before it starts to count, and its statistics are on, as the engine's are; both find the files as the
other left them. fio drawing random requests of its own, without a list, stands beside that.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench.findings import Bar, Finding, print_table
from tests.bench.interleaved import Sample, Way, run_interleaved
from tests.bench.replay_list import FIO, ReplayList, Requests, make_list, run_json
from tests.bench.spread import ratio_table, spread_of

RATIO_TARGET = 0.95
NULL_TARGET_M = 3
NULL_REQUESTS = 500_000
NULL_SPEED = 1e6
PROBE_SECONDS = 0.3
PROBE_REQUESTS = 20_000
FIO_ALONE_EVERY = 3  # rounds
DEPTH = 32
ENGINE, FIO_LIST, FIO_ALONE = "flextrace", "fio, same list", "fio, without a list"


@dataclass(frozen=True)
class Load:
    """Requests and how they are issued."""

    requests: Requests
    depth: int = 1  # of io_uring, per thread; 1: synchronous calls

    @property
    def title(self) -> str:
        """For the reader of a table."""
        return f"{self.requests.title}, {f'io_uring, depth {self.depth}' if self.depth > 1 else 'sync'}"

    @property
    def engine_options(self) -> list[str]:
        """For the engine."""
        if self.depth > 1:
            return ["--engine=io_uring", f"--depth={self.depth}"]
        return ["--engine=sync"]

    @property
    def fio_options(self) -> list[str]:
        """The same for fio. It can register its buffers then, but no files that a log has it open."""
        how = ["--ioengine=psync"]
        if self.depth > 1:
            how = ["--ioengine=io_uring", f"--iodepth={self.depth}", "--fixedbufs=1"]
        return [*how, f"--direct={int(self.requests.direct)}"]


LOADS = (
    Load(Requests()),
    Load(Requests(threads=4)),
    Load(Requests(read=False)),
    Load(Requests(size_bytes=65536)),
    Load(Requests(direct=True)),
    Load(Requests(), DEPTH),
    Load(Requests(direct=True), DEPTH),
)


def measure_throughput(directory: Path, rounds: int, seconds: float) -> tuple[list[Finding], dict[str, str]]:
    """Print a table of each load; the findings, and what could not be measured."""
    findings = []
    for number, load in enumerate(LOADS):
        place = directory / f"throughput-{number}"
        probe = make_list(load.requests, place, PROBE_REQUESTS)
        rate = engine_rate(probe, load, "--loop", f"--max-seconds={PROBE_SECONDS}").rate
        plan = make_list(load.requests, place / "whole", max(round(rate * seconds), PROBE_REQUESTS))
        ways = [
            Way(FIO_LIST, partial(fio_list_rate, plan, load)),
            Way(ENGINE, partial(engine_rate, plan, load)),
            Way(FIO_ALONE, partial(fio_alone_rate, plan, load, seconds), FIO_ALONE_EVERY),
        ]
        samples = run_interleaved(ways, rounds)
        print_table(
            f"{load.title}, {plan.count} requests, {rounds} rounds, requests/s",
            ratio_table(samples).drop(columns="cpu_ratio"),
        )
        own = samples[samples["way"] == ENGINE]
        ratio = spread_of(own["rate"] / own["reference_rate"])
        what = f"{load.title}: rate by fio's on the same list"
        findings.append(Finding("throughput", what, Bar(low=RATIO_TARGET), ratio, "", digits=3))
        shutil.rmtree(place)
    return findings, {}


def engine_rate(plan: ReplayList, load: Load, *options: str) -> Sample:
    """Requests/s by the engine's own document, which has the response time of each request in its histograms."""
    result = run_json(plan.engine_command(*load.engine_options, *options))
    return Sample((result["requests"]["read"] + result["requests"]["write"]) / result["elapsed_s"])


def fio_list_rate(plan: ReplayList, load: Load) -> Sample:
    """Requests/s by fio's own document."""
    result = run_json(plan.fio_command(*load.fio_options, "--replay_no_stall=1"))
    requests = result["jobs"][0]["read" if load.requests.read else "write"]
    if requests["total_ios"] != plan.count:
        raise RuntimeError(f"fio did {requests['total_ios']} of {plan.count} requests")
    return Sample(requests["iops"])


def fio_alone_rate(plan: ReplayList, load: Load, seconds: float) -> Sample:
    """Requests/s of fio on the same files, with random places of its own."""
    requests = load.requests
    files = sorted(plan.image.glob("f*"))
    result = run_json(
        [
            *(*FIO, "--name=global", f"--size={requests.file_bytes}", f"--bs={requests.size_bytes}", "--norandommap"),
            *(f"--rw={'randread' if requests.read else 'randwrite'}", "--overwrite=1", *load.fio_options),
            *(f"--runtime={round(seconds * 1000)}ms", "--time_based", "--output-format=json"),
            *(word for file in files for word in (f"--name={file.name}", f"--filename={file}")),
        ]
    )
    return Sample(result["jobs"][0]["read" if requests.read else "write"]["iops"])


def measure_null(directory: Path, rounds: int, seconds: float) -> tuple[list[Finding], dict[str, str]]:
    """Requests that the engine schedules without issuing them, per second of processor time.

    Without times, and with due times so close that none of them is waited for.
    """
    findings = []
    for name, rate_per_s, options in (
        ("without times", None, ()),
        ("with due times", 1e6, ("--timing=recorded", f"--speed={NULL_SPEED}")),
    ):
        plan = make_list(Requests(), directory / f"null-{rate_per_s}", NULL_REQUESTS, rate_per_s)
        command = plan.engine_command("--engine=null", "--loop", f"--max-seconds={seconds}", *options)
        rates = [requests_per_processor_second(command) / 1e6 for _ in range(rounds)]
        what = f"requests scheduled per second of processor time, {name}"
        findings.append(Finding("null", what, Bar(low=NULL_TARGET_M), spread_of(rates), "M", digits=2))
    return findings, {}


def requests_per_processor_second(command: list[str]) -> float:
    """By the time of all of the engine, from its start to its end."""
    before = os.times()
    result = run_json(command)
    after = os.times()
    busy_s = (after.children_user - before.children_user) + (after.children_system - before.children_system)
    return result["requests"]["read"] / busy_s
