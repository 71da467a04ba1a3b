# SPDX-License-Identifier: Apache-2.0
"""Has numba compile what most verbs need before somebody waits for it: ``make build`` runs this file.

Compiling takes more than a minute, most verbs take seconds, and ``scale`` would do it within its budget. numba
keeps the result beside each source file, and the Makefile removes it when one of these changes. What only few need is
compiled when they do: reading other tools' traces, and checking the order of a replay.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

import characterize
from characterize.errors import FlextraceError
from characterize.layout import HeaderFlag, RecordKind
from characterize.trace import Trace
from characterize.workload import Workload
from flextrace.main import main
from replayer.willy import make_trace
from selfscale.measuring.storage import StorageTimes
from selfscale.models.service_time import CONSTANTS, ServiceTimes
from selfscale.simulation.machine_costs import machine_costs
from selfscale.simulation.operations import operations_of
from selfscale.simulation.run import run
from selfscale.simulation.traffic import traffic_of

WORKLOAD = Workload(unique_bytes=float(1 << 20), seq_frac=0.5, read_frac=0.5, size_mean=8192.0, process_num=2.0)
ALTERED = ("--size-mean=2x", "--process-num=2x", "--process-num=0.5x", "--seq-frac=1.2x", "--think-scale=2")
REQUESTS = 1000


def compile_kernels() -> None:
    """Run what has kernels on a small trace: only the types of the numbers count, not the numbers.

    Raises
    ------
    FlextraceError
        A verb failed, and said why.
    """
    with tempfile.TemporaryDirectory(prefix="flextrace-") as directory:
        path = Path(directory) / "recorded.iotrace"
        characterize.write(_as_recorded(make_trace(WORKLOAD, requests=REQUESTS)), path)
        # Compiling holds the interpreter's lock: each in a process.
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            tasks: list[Callable[[Path], None]] = [_simulate, _characterize, _alter]
            for done in [pool.submit(task, path) for task in tasks]:
                done.result()


def _as_recorded(trace: Trace) -> Trace:
    """Say of the times that they were measured, and of the requests that the recorder saw what they missed."""
    trace.header.flags &= ~HeaderFlag.UNTIMED
    trace.arrays[RecordKind.IO]["missed_bytes"] = 0
    return trace


def _characterize(trace: Path) -> None:
    _run_verb("characterize", str(trace))


def _alter(trace: Path) -> None:
    for change in ALTERED:
        _run_verb("alter", str(trace), change, "--nearest", "--force", f"--output={trace.with_suffix('.altered')}")


def _simulate(trace: Path) -> None:
    """As `predict --trace` does it, on a machine of any speed."""
    constants = ServiceTimes(np.zeros(len(CONSTANTS)), np.eye(len(CONSTANTS)), WORKLOAD.unique_bytes)
    costs = machine_costs(constants, StorageTimes(*[1000.0] * len(StorageTimes._fields)), {})
    run(operations_of(characterize.open(trace)), costs)
    traffic_of(
        WORKLOAD,
        cache_bytes=WORKLOAD.unique_bytes / 2,
        dirty_limit_bytes=WORKLOAD.unique_bytes / 4,
        read_ahead=costs.read_ahead,
    )


def _run_verb(*words: str) -> None:
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main(list(words))
    # What only came near to what was asked for has been computed, too.
    if code not in (0, 3):
        raise FlextraceError(f"flextrace {' '.join(words)} failed with {code}: {said.getvalue().strip()}")


if __name__ == "__main__":
    try:
        compile_kernels()
    except FlextraceError as error:
        sys.exit(f"kernels were not compiled: {error}")
