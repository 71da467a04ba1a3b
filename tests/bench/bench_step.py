# SPDX-License-Identifier: Apache-2.0
"""How far measurements of one workload lie apart, with processes that keep step and without: ``make bench-step``.

On one lab machine, in turns; a workload is measured with another seed in every round, both ways with the same one
(docs/decisions/0025-processes-keep-step.md).
"""

from __future__ import annotations

import argparse
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

# uniqueBytes as a share of the memory; seqFrac, readFrac, sizeMean, processNum. The last one has one process only.
WORKLOADS = [
    (1.2, 0.2, 0.5, 2048.0, 4.0),
    (1.2, 0.3, 0.7, 65536.0, 2.0),
    (1.6, 0.1, 1.0, 4096.0, 4.0),
    (1.6, 0.5, 0.5, 16384.0, 2.0),
    (1.6, 0.1, 1.0, 4096.0, 1.0),
]
WAYS = {"as they can": False, "in step": True}


def free(*arguments: Any, **options: Any) -> dict[str, Any]:
    """`replay` without the lead that `measure` asks for."""
    return replay(*arguments, **{**options, "lead": None})


def main() -> int:
    """Measure in turns, print the spread of every workload both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=MACHINES, default="slow", help="(slow)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="(7)")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="longest run of a point (4)")
    parser.add_argument("--directory", type=Path, default=Path("build"), metavar="DIR")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with terminated_as_interrupted():
        samples = measured(MACHINES[arguments.machine], arguments.directory.resolve(), arguments)
    print(f"machine {arguments.machine}: {MACHINES[arguments.machine].title}")
    print(spreads(samples).to_string(index=False, float_format=lambda value: f"{value:,.4g}"))
    return 0


def measured(machine: LabMachine, directory: Path, arguments: argparse.Namespace) -> pd.DataFrame:
    """A row per run: workload, way, throughput, whether it was steady."""
    rows = []
    workloads = [Workload(align(share * machine.memory_bytes), *rest) for share, *rest in WORKLOADS]
    with (
        lab_machine(machine, directory) as place,
        MemoryGroup(machine.memory_bytes) as group,
        measuring.image_directory(place, keep=False) as image,
    ):
        measuring.lay_out(settings_of(machine.memory_bytes, Effort(0, 0, 0, 0, seed=1)), image, say)
        for number in range(arguments.rounds):
            for workload in workloads:
                for way, keeps_step in WAYS.items():
                    point = measure(
                        workload,
                        image,
                        memory_group=group,
                        seed=number,
                        max_seconds=arguments.seconds,
                        replay=replay if keeps_step else free,
                    )
                    rate = point.throughput_bytes_per_s
                    say(f"round {number + 1}, {describe(workload)}, {way}: {rate / 1e6:.4g} MB/s")
                    rows.append((describe(workload), way, rate, point.steady))
    return pd.DataFrame(rows, columns=["workload", "way", "bytes_per_s", "steady"])


def spreads(samples: pd.DataFrame) -> pd.DataFrame:
    """Per workload and way: median, smallest and largest throughput, and by how much two of its runs differ."""
    rows = []
    for (workload, way), runs in samples.groupby(["workload", "way"], sort=False):
        rates = runs["bytes_per_s"].to_numpy()
        first, second = np.triu_indices(len(rates), 1)
        apart = np.abs(np.log(rates[first] / rates[second]))
        rows.append(
            {
                "workload": workload,
                "processes": way,
                "median MB/s": float(np.median(rates)) / 1e6,
                "least": rates.min() / 1e6,
                "most": rates.max() / 1e6,
                "two runs differ by, % (median)": 100 * float(np.expm1(np.median(apart))) if len(apart) else np.nan,
                "steady, %": 100 * float(runs["steady"].mean()),
            }
        )
    return pd.DataFrame(rows)


def say(text: str) -> None:
    """Progress."""
    print(f"bench-step: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
