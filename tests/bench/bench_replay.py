# SPDX-License-Identifier: Apache-2.0
"""The replay engine against fio on the same synthetic load: ``make bench-replay``.

Both do random requests of fixed size in one file per thread, prepared and (unless direct) wholly in the page cache,
with synchronous calls, for the same time. fio runs with its random map and the scrambling of its buffers off (the
engine has neither) and its statistics on (the engine keeps its own).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from characterize.layout import IoFlag, RecordKind
from characterize.trace import write
from characterize.workload import Workload
from replayer.run import replay
from replayer.willy import make_trace
from tests.bench.interleaved import Sample, Way, run_interleaved
from tests.bench.spread import ratio_table


@dataclass(frozen=True)
class Load:
    """A synthetic load that both can do."""

    title: str
    threads: int
    read: bool
    size_bytes: int
    direct: bool
    file_bytes: int = 64 << 20


LOADS = (
    Load("cached 4 KiB random reads, 1 thread", 1, True, 4096, False),
    Load("cached 4 KiB random reads, 4 threads", 4, True, 4096, False),
    Load("cached 4 KiB random overwrites, 1 thread", 1, False, 4096, False),
    Load("cached 64 KiB random reads, 1 thread", 1, True, 65536, False),
    Load("O_DIRECT 4 KiB random reads, 1 thread", 1, True, 4096, True),
)


def fio_rate(load: Load, directory: Path, seconds: float) -> Sample:
    """Requests/s of fio."""
    output = subprocess.run(
        [
            *("fio", "--name=load", f"--directory={directory}", f"--size={load.file_bytes}", f"--bs={load.size_bytes}"),
            *(f"--rw={'randread' if load.read else 'randwrite'}", f"--direct={int(load.direct)}", "--ioengine=psync"),
            *(f"--numjobs={load.threads}", "--thread", "--group_reporting", "--norandommap", "--invalidate=0"),
            *("--fallocate=none", "--overwrite=1", "--scramble_buffers=0", "--pre_read=" + str(int(not load.direct))),
            *(f"--runtime={seconds}", "--time_based", "--output-format=json"),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return Sample(json.loads(output[output.index("{") :])["jobs"][0]["read" if load.read else "write"]["iops"])


def engine_rate(load: Load, trace: Path, directory: Path, seconds: float) -> Sample:
    """Requests/s of the engine, from its own result document."""
    result = replay(trace, directory, cache="warm", keep_image=True, loop=True, max_seconds=seconds)
    return Sample((result["requests"]["read"] + result["requests"]["write"]) / result["elapsed_s"])


def make_load_trace(load: Load, path: Path) -> Path:
    """Willy's trace of a load: random places, one direction, one size."""
    workload = Workload(load.threads * load.file_bytes, 0.0, float(load.read), load.size_bytes, load.threads)
    trace = make_trace(workload, requests=load.threads * 500_000, size="fixed", seed=1)
    if load.direct:
        trace.arrays[RecordKind.IO]["flags"] |= int(IoFlag.DIRECT)
    return write(trace, path)


def main() -> None:
    """Print one table for all loads: the engine's rate as a ratio to fio's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--directory", type=Path, help="where the files are (default: a temporary directory)")
    arguments = parser.parse_args()
    for number, load in enumerate(LOADS):
        with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
            directory = Path(name)
            (directory / "fio").mkdir()
            trace = make_load_trace(load, directory / f"{number}.iotrace")
            ways = [
                Way("fio psync", partial(fio_rate, load, directory / "fio", arguments.seconds)),
                Way("flextrace replay", partial(engine_rate, load, trace, directory / "engine", arguments.seconds)),
            ]
            table = ratio_table(run_interleaved(ways, arguments.rounds)).drop(columns="cpu_ratio")
            print(f"\n{load.title}, {arguments.rounds} rounds of {arguments.seconds:g} s, requests/s")
            print(table.to_string(float_format=lambda value: f"{value:,.3f}" if value < 10 else f"{value:,.0f}"))


if __name__ == "__main__":
    main()
