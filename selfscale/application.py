# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into what is predicted of its application: workloads, operations, and where its time went."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
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
from selfscale.access import Access
from selfscale.elapsed import RecordedTimes, recorded_times
from selfscale.models.measured import Z90
from selfscale.predict import Prediction, Predictor
from selfscale.relative import Estimated, relative
from selfscale.simulation.machine_costs import RequestCosts, machine_costs
from selfscale.simulation.operations import Operations
from selfscale.simulation.simulate import Simulated, simulate_uncertain
from selfscale.storage import StorageTimes, storage_times
from selfscale.to_simulate import ToSimulate, to_simulate
from selfscale.uncached import device_share, knows_device, with_device_reads

SIMULATION = "operations of the trace, simulated"
SIMULATED_NOTE = (
    "interval covers what is not known of the machine's constants, and how far off such simulations were; "
    "cold reads, new files, syncs and think times as in the trace, the processor as fast as that of the recording"
)
SIMULATION_ERROR, SYNC_ERROR, REST_ERROR = 0.2, 0.4, 0.1
"""Standard deviations of ln(simulated / measured) over the applications of ``make bench-predict``: of the throughput,
of the time in syncs, and of what is in neither, so that nine of ten intervals hold (docs/decisions/0026)."""
LEAST_SHARE = 0.5
"""Of a simulated time, below which neither its interval nor a recorded time with a difference falls."""


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


@dataclass(frozen=True)
class Estimate:
    """What one machine is predicted to do with an application.

    Attributes
    ----------
    basis : str
    workload : Workload
    prediction : Prediction
        Of the five parameters, as the thesis has it.
    times : RecordedTimes or None
        Of the recording, as they compare with the profile's: the application's, with its syncs where those have them.
    in_io : Estimated or None
        Throughput in I/O with the recorded number in flight and with the reads that come from the device, bytes per s.
    in_flight : float
        That number.
    device_share : float
        Share of the bytes read from the device whatever the cache holds, as far as it was used.
    saturation : float
        Throughput with processNum in flight over that with `in_flight`, at least 1.
    elapsed_s : Estimated or None
        Of the application; `low` is the short end.
    simulated : Simulated or None
        Of the operations of the trace; then the prediction is of these and not of the workload.
    """

    basis: str
    workload: Workload
    prediction: Prediction
    times: RecordedTimes | None = None
    in_io: Estimated | None = None
    in_flight: float = math.nan
    device_share: float = 0.0
    saturation: float = 1.0
    elapsed_s: Estimated | None = None
    simulated: Simulated | None = None


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


def not_recorded(why: str = "") -> FlextraceError:
    """Of a prediction that is to start from how the application ran, where that was not recorded, and why not."""
    return FlextraceError(
        f"the trace has no recorded throughput to start from{f', since {why}' if why else ''}; leave out "
        "--measured-on, or record the application, or the replay of this trace, on that machine, and give that",
        2,
    )


def estimates(predictor: Predictor, application: Application, measured_on: Predictor | None = None) -> list[Estimate]:
    """What a machine is predicted to do, for every workload of the application, and for its operations one by one.

    Parameters
    ----------
    measured_on : Predictor, optional
        Of the machine of the recording, so that what requests took there beyond the benchmark's is known.
    """
    return workload_estimates(predictor, application) + _simulated(predictor, application, measured_on)


def workload_estimates(predictor: Predictor, application: Application) -> list[Estimate]:
    """The same without the operations."""
    return [_estimate(predictor, application, basis, workload) for basis, workload in application.workloads]


def with_basis(found: Sequence[Estimate], basis: str) -> Estimate | None:
    """The estimate with a basis; None where that machine has none (its storage was not measured)."""
    return next((estimate for estimate in found if estimate.basis == basis), None)


def simulation_of(
    predictor: Predictor, operations: Operations, recorded_on: RequestCosts | None = None
) -> Simulated | None:
    """How operations would run on a machine; None where its profile has not what a simulation needs."""
    storage = _storage_of(predictor)
    if storage is None:
        return None
    return simulate_uncertain(operations, predictor.service_times, storage, predictor.profile.environment, recorded_on)


def _storage_of(predictor: Predictor) -> StorageTimes | None:
    """None where a simulation would lack it, or the device behind the cache."""
    return storage_times(predictor.profile.storage) if knows_device(predictor) else None


def _request_costs(predictor: Predictor) -> RequestCosts | None:
    storage = _storage_of(predictor)
    if storage is None:
        return None
    return machine_costs(predictor.service_times, storage, predictor.profile.environment).requests


def simulated_in_io(found: Simulated) -> Estimated:
    """Throughput in I/O, bytes per s."""
    return _estimated(found.throughput_bytes_per_s, math.hypot(found.sigma, SIMULATION_ERROR))


def _simulated(predictor: Predictor, application: Application, measured_on: Predictor | None) -> list[Estimate]:
    """One estimate, where the trace and the profile have what a simulation needs."""
    if application.operations is None:
        return []
    recorded_on = _request_costs(measured_on) if measured_on is not None else None
    found = simulation_of(predictor, application.operations, recorded_on)
    if found is None:
        return []
    in_io = simulated_in_io(found)
    io_s, span_s = _inverse(in_io, application.moved_bytes), _estimated(found.span_s, found.span_sigma)
    elapsed_s = found.span_s + application.elapsed_s - application.operations.span_s
    workload = application.workloads[0][1]
    waits = f"read {found.read_wait_s:.3g} s, write {found.write_wait_s:.3g} s, sync {found.sync_wait_s:.3g} s"
    notes = [f"waiting for storage, all threads added: {waits}", *application.rests_on]
    if recorded_on is not None:
        notes.append("requests take as much longer than the benchmark's as where they were recorded")
    prediction = Prediction(
        throughput_bytes_per_s=in_io.value,
        interval_low=in_io.low,
        interval_high=in_io.high,
        model="simulation",
        region=predictor.predict(workload).region,
        inside_range=True,
        extended_note=SIMULATED_NOTE,
        notes=notes,
    )
    # What is off in the I/O is off in the elapsed time.
    rest_s = max(0.0, elapsed_s - io_s.value - found.sync_s)
    more_s = Z90 * math.hypot(SYNC_ERROR * found.sync_s, REST_ERROR * rest_s)
    elapsed = Estimated(
        elapsed_s,
        max(
            elapsed_s - math.hypot(io_s.value - io_s.low, span_s.value - span_s.low, more_s),
            LEAST_SHARE * elapsed_s,
        ),
        elapsed_s + math.hypot(io_s.high - io_s.value, span_s.high - span_s.value, more_s),
    )
    times = application.times
    in_flight = times.in_flight if times else math.nan
    return [Estimate(SIMULATION, workload, prediction, times, in_io, in_flight, elapsed_s=elapsed, simulated=found)]


def _estimated(value: float, sigma: float) -> Estimated:
    return Estimated(value, value * math.exp(-Z90 * sigma), value * math.exp(Z90 * sigma))


def _estimate(predictor: Predictor, application: Application, basis: str, workload: Workload) -> Estimate:
    prediction = predictor.predict(workload)
    synced = Access.of(predictor.profile.settings).sync_frac > 0
    times = application.times_with_syncs if synced else application.times
    if times is None:
        return Estimate(basis, workload, prediction)
    in_flight = workload.process_num if application.fixed_processes else times.in_flight
    share = application.device_share if knows_device(predictor) else 0.0
    as_run = workload.replace(process_num=in_flight)
    in_io = with_device_reads(predictor, as_run, predictor.predict(as_run).estimated, share)
    saturation = max(1.0, with_device_reads(predictor, workload, prediction.estimated, share).value / in_io.value)
    elapsed_s = elapsed_of(times, in_io, saturation)
    return Estimate(basis, workload, prediction, times, in_io, in_flight, share, saturation, elapsed_s)


def elapsed_of(times: RecordedTimes, in_io: Estimated, saturation: float) -> Estimated:
    """Elapsed seconds of an application whose I/O has this throughput, and of the interval's ends."""
    value, shortest, longest = (times.elapsed_with(each, saturation) for each in (in_io.value, in_io.high, in_io.low))
    return Estimated(value, shortest, longest)


@dataclass(frozen=True)
class Relative:
    """What one machine is predicted to do from how the application ran on another one.

    Attributes
    ----------
    in_io : Estimated
        Recorded throughput in I/O x predicted here / predicted there, bytes per s.
    elapsed_s : Estimated
    off : float
        Predicted / recorded - 1 on the machine of the recording: what the ratio cancels.
    outside : list of str
        Parameters beyond the measured values of that machine.
    """

    in_io: Estimated
    elapsed_s: Estimated
    off: float
    outside: list[str]


def relative_of(here: Estimate, there: Estimate) -> Relative:
    """Estimates of two machines, of the second of which the application's recording is.

    Raises
    ------
    FlextraceError
        The trace has no throughput.
    """
    times = there.times
    if times is None or here.times is None or here.in_io is None or there.in_io is None:
        raise not_recorded()
    off = there.in_io.value / times.throughput_bytes_per_s - 1
    if here.simulated is not None and here.elapsed_s is not None and there.elapsed_s is not None:
        io_s = _changed(times.io_s, _inverse(here.in_io, times.moved_bytes), _inverse(there.in_io, times.moved_bytes))
        elapsed_s = _changed(times.elapsed_s, here.elapsed_s, there.elapsed_s)
        return Relative(_inverse(io_s, times.moved_bytes), elapsed_s, off, there.prediction.outside)
    in_io = relative(times.throughput_bytes_per_s, here.in_io, there.in_io)
    return Relative(in_io, elapsed_of(here.times, in_io, here.saturation), off, there.prediction.outside)


def _inverse(estimated: Estimated, moved_bytes: float) -> Estimated:
    """Seconds of a throughput, or the throughput of seconds; the ends change places."""
    return Estimated(moved_bytes / estimated.value, moved_bytes / estimated.high, moved_bytes / estimated.low)


def _changed(recorded_s: float, here: Estimated, there: Estimated) -> Estimated:
    """Recorded seconds with the difference between two simulations, so that what these leave out stays as recorded.

    Both are off, and not by the same (docs/decisions/0026).
    """
    value = max(recorded_s + here.value - there.value, LEAST_SHARE * here.value)
    low = value - math.hypot(here.value - here.low, there.high - there.value)
    high = value + math.hypot(here.high - here.value, there.value - there.low)
    return Estimated(value, max(low, LEAST_SHARE * here.low), high)
