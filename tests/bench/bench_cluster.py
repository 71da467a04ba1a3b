# SPDX-License-Identifier: Apache-2.0
"""How long one process and one, two ... workers take for the same trace: ``make bench-cluster``.

Workers are started, and have loaded what they need, before the clock runs. On a machine that is not idle the ratio says
little: the processor time of all of them is printed beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import psutil  # distributed needs it

from characterize.characterization import characterize
from characterize.cluster.characterize_set import characterize_set
from characterize.cluster.engine import dask_engine
from characterize.cluster.recording_set import Engine
from characterize.stream import open_stream
from tests.bench.mixed_trace import make_mixed_trace
from tests.bench.scratch import work_directory


def cpu_s(process: psutil.Process) -> float:
    """Processor time of a process and of what it started, s."""
    every = [process, *process.children(recursive=True)]
    return sum(sum(its.cpu_times()[:2]) for its in every)


def measure(path: Path, engine: Engine, parts: int) -> tuple[float, float, dict]:
    """Elapsed and processor time, s, and the document."""
    me = psutil.Process()
    began, used = time.perf_counter(), cpu_s(me)
    document = characterize_set([path], engine=engine, parts=parts).as_document()
    return time.perf_counter() - began, cpu_s(me) - used, document


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    with work_directory(None) as directory:
        path = make_mixed_trace(directory / "a.iotrace", options.records)
        small = make_mixed_trace(directory / "small.iotrace", 10_000)
        characterize(open_stream(small))
        began, used = time.perf_counter(), cpu_s(psutil.Process())
        whole = characterize(open_stream(path)).as_document()
        print(f"{options.records} records of 64 bytes; machine load {psutil.getloadavg()[0]:.1f}")
        elapsed, used = time.perf_counter() - began, cpu_s(psutil.Process()) - used
        print(f"one process, not divided: {elapsed:.1f} s elapsed, {used:.1f} s of processors")
        first = None
        for workers in options.workers:
            with dask_engine(workers=workers) as (engine, parts):
                characterize_set([small], engine=engine, parts=parts)
                runs = [measure(path, engine, parts) for _ in range(options.runs)]
            assert all(document == whole for _, _, document in runs)
            elapsed, used = (median(run[place] for run in runs) for place in (0, 1))
            least, most = (extreme(run[0] for run in runs) for extreme in (min, max))
            first = elapsed if first is None else first
            print(
                f"{workers} workers, {parts} parts: {elapsed:.1f} s elapsed ({least:.1f} to {most:.1f}), "
                f"{used:.1f} s of processors, "
                f"{first / elapsed:.2f} times as fast as with {options.workers[0]}; same document"
            )


if __name__ == "__main__":
    main()
