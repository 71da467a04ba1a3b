# SPDX-License-Identifier: Apache-2.0
"""How fast workloads are that begin with their files cached, beside those that have read them: ``make bench-warm``.

A point begins with its files in the page cache, so that no time goes into reading them. That is the same workload only
if the engine has them read in as the workload does (docs/decisions/0013). Here each is also begun with nothing
cached, and runs until all is.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from characterize.workload import Workload
from flextrace.runs import measuring
from flextrace.runs.interruption import terminated_as_interrupted
from replayer.run import replay
from replayer.running.confine import MemoryGroup
from selfscale.measure import describe, measure
from selfscale.measuring.measurable_sizes import align
from tests.bench.lab_machines import MACHINES, LabMachine, lab_machine
from tests.bench.lab_measurements import Effort, settings_of

UNIQUE_FRAC = 0.35
"""Of the memory: more than may be dirty, and less than is cached."""
SIZES_BYTES = (4096.0, 65536.0, 1048576.0)
SEQ_FRACS = (0.0, 0.5, 0.97, 1.0)
READ_FRACS = (1.0, 0.5, 0.0)
SECONDS = {"recorded": 2.0, "cold": 6.0}
"""Of a run, by what is cached at its start; the second half counts."""


def main() -> int:
    """Measure in turns, print both throughputs of every workload and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=MACHINES, default="memory", help="(memory)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="(3)")
    parser.add_argument("--directory", type=Path, default=Path("build"), metavar="DIR")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with terminated_as_interrupted():
        samples = measured(MACHINES[arguments.machine], arguments.directory.resolve(), arguments.rounds)
    table = ratios(samples)
    print(f"machine {arguments.machine}: {MACHINES[arguments.machine].title}")
    print(table.to_string(float_format=lambda value: f"{value:,.4g}"))
    off = np.abs(np.log(table["ratio"]))
    print(f"ratio: median off {np.expm1(off.median()):.0%}, 90th percentile {np.expm1(off.quantile(0.9)):.0%}")
    return 0


def measured(machine: LabMachine, directory: Path, rounds: int) -> pd.DataFrame:
    """A row per run: workload, what was cached at its start, throughput."""
    rows = []
    unique_bytes = align(UNIQUE_FRAC * machine.memory_bytes)
    with (
        lab_machine(machine, directory) as place,
        MemoryGroup(machine.memory_bytes) as group,
        measuring.image_directory(place, keep=False) as image,
    ):
        measuring.lay_out(settings_of(machine.memory_bytes, Effort(0, 0, 0, 0, seed=1)), image, say)
        for number, size, seq, read in itertools.product(range(rounds), SIZES_BYTES, SEQ_FRACS, READ_FRACS):
            workload = Workload(unique_bytes, seq, read, size, 1.0)
            for cache in SECONDS:
                rate = throughput(workload, image, group, cache, number)
                say(f"round {number + 1}, {describe(workload)}, {cache}: {rate / 1e6:.4g} MB/s")
                rows.append((size, seq, read, cache, rate))
    return pd.DataFrame(rows, columns=["sizeMean", "seqFrac", "readFrac", "cache", "bytes_per_s"])


def throughput(workload: Workload, image: Path, group: MemoryGroup, cache: str, seed: int) -> float:
    """Bytes per s in the second half of a run."""
    lines: list[dict[str, Any]] = []

    def begun(*arguments: Any, **options: Any) -> dict[str, Any]:
        if options.get("phase") == "run":
            options |= {"cache": cache, "on_interval": lines.append}
        return replay(*arguments, **options)

    measure(workload, image, memory_group=group, seed=seed, max_seconds=SECONDS[cache], replay=begun)
    half = next(number for number, line in enumerate(lines) if line["t_s"] >= lines[-1]["t_s"] / 2)
    return sum(line["bytes"] for line in lines[half + 1 :]) / (lines[-1]["t_s"] - lines[half]["t_s"])


def ratios(samples: pd.DataFrame) -> pd.DataFrame:
    """Per workload: medians in MB/s, and of the rounds' ratios the median, least and largest."""
    keys = ["sizeMean", "seqFrac", "readFrac"]
    samples = samples.assign(round=samples.groupby([*keys, "cache"]).cumcount())
    wide = samples.pivot(index=[*keys, "round"], columns="cache", values="bytes_per_s")
    ratio = (wide["recorded"] / wide["cold"]).groupby(keys)
    return pd.DataFrame(
        {
            "begun cached, MB/s": wide["recorded"].groupby(keys).median() / 1e6,
            "begun cold, MB/s": wide["cold"].groupby(keys).median() / 1e6,
            "ratio": ratio.median(),
            "least": ratio.min(),
            "most": ratio.max(),
        }
    )


def say(text: str) -> None:
    """Progress."""
    print(f"bench-warm: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
