# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into what is predicted of its application: workloads, operations, and where its time went."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

import characterize
from characterize.characterization import NOT_RUN
from characterize.characterization import characterize as characterization_of
from characterize.errors import FlextraceError
from characterize.requests import requests_of, times_measured
from characterize.response_time import syncs_of
from characterize.trace import Trace
from characterize.workload import FIELD_OF, Workload
from selfscale.predicting.elapsed import RecordedTimes, recorded_times
from selfscale.predicting.to_simulate import ToSimulate, to_simulate
from selfscale.predicting.uncached import device_share
from selfscale.simulation.operations import Operations


@dataclass(frozen=True)
class Application:
    """What there is to predict.

    Attributes
    ----------
    workloads : list of (str, Workload)
        With what uniqueBytes is based on.
    extended : dict
        Extended parameters of the trace.
    read_share : float
        Read bytes / bytes.
    times : RecordedTimes or None
        None where the trace's times are not measurements.
    times_with_syncs : RecordedTimes or None
        The same with syncs as requests of no bytes: what compares with the throughput of workloads that sync.
    elapsed_s : float
        Of the recording; of a trace that has not run, of its schedule. NaN where nothing is simulated.
    moved_bytes : int
    why_no_times : str
        Where `times` is None, of a trace.
    fixed_processes : bool
        processNum was asked for, so that it is not to be replaced with the recorded number in flight.
    memory_limit_bytes : float or None
        That it was recorded under.
    operations : Operations or None
        To be simulated; None where they cannot be, `warnings` says why, or are not to be.
    rests_on : list of str
        What a simulation of them takes from elsewhere, or does not know, where the trace has not run.
    warnings : list of str
    complete : bool
        No record of the trace is missing.
    """

    workloads: list[tuple[str, Workload]]
    extended: dict[str, Any] = field(default_factory=dict)
    read_share: float = math.nan
    times: RecordedTimes | None = None
    times_with_syncs: RecordedTimes | None = None
    elapsed_s: float = math.nan
    moved_bytes: int = 0
    why_no_times: str = ""
    fixed_processes: bool = False
    memory_limit_bytes: float | None = None
    operations: Operations | None = None
    rests_on: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    complete: bool = True

    @property
    def device_share(self) -> float:
        """Share of all bytes that are read from the device for other reasons than the size of the cache."""
        return device_share(self.extended, self.read_share)


def application_of(path: str | os.PathLike[str], changes: dict[str, float]) -> Application:
    """Read a trace.

    Parameters
    ----------
    path : path-like
    changes : dict
        Fields of `Workload` that differ from the trace.

    Raises
    ------
    FlextraceError
        The trace cannot be read or has no request of an application.
    """
    trace = characterize.open(path)
    characterization = characterization_of(trace)
    layer = characterization.layers["vfs"]
    if not layer.requests:
        raise FlextraceError(f"{path} has no request of an application: record it with --layer vfs or both")
    names = [name for name, field in FIELD_OF.items() if field in changes]
    changed = f", {', '.join(names)} as given" if names else ""
    footprint = layer.parameters.replace(**{name: float(value) for name, value in changes.items()})
    workloads = [(f"uniqueBytes = footprint of the trace{changed}", footprint)]
    equivalent = layer.locality.equivalent_unique_bytes
    if "unique_bytes" not in changes and math.isfinite(equivalent) and equivalent > 0:
        basis = f"uniqueBytes = 2 x mean LRU depth of the trace{changed}"
        workloads.append((basis, footprint.replace(unique_bytes=equivalent)))
    times = with_syncs = None
    if times_measured(trace) and math.isfinite(characterization.elapsed_s):
        requests, elapsed_s = requests_of(trace), characterization.elapsed_s
        times = recorded_times(requests, elapsed_s, layer.time["time_in_sync_s"])
        columns = ["thread", "start_ns", "end_ns", "bytes"]
        both = pd.concat([requests[columns], syncs_of(trace).assign(bytes=0)[columns]])
        with_syncs = recorded_times(both.sort_values("start_ns", kind="stable"), elapsed_s, 0.0)
    # Nobody has recorded what changed parameters would do.
    part = ToSimulate() if changes else to_simulate(trace, times)
    warnings = [each for each in characterization.warnings if part.operations is None or each != NOT_RUN]
    if part.why_not:
        alone = "" if times else "; the prediction rests on the five parameters alone"
        warnings.append(f"the operations of the trace are not simulated: {part.why_not}{alone}")
    moved = layer.counts["read_bytes"] + layer.counts["written_bytes"]
    return Application(
        workloads=workloads,
        extended=layer.extended,
        read_share=layer.counts["read_bytes"] / moved,
        times=times,
        times_with_syncs=with_syncs,
        elapsed_s=part.elapsed_s,
        moved_bytes=times.moved_bytes if times else int(moved),
        why_no_times="" if times else _why_no_times(trace),
        fixed_processes="process_num" in changes,
        memory_limit_bytes=trace.header.metadata.get("memory_limit_bytes"),
        operations=part.operations,
        rests_on=part.rests_on,
        warnings=warnings,
        complete=trace.header.complete,
    )


def _why_no_times(trace: Trace) -> str:
    if trace.untimed:
        return "the trace is synthetic and its times are only an order"
    if not trace.measured:
        return "the trace has not run"
    return "all of the trace happened at one moment" if times_measured(trace) else "the trace has no durations"
