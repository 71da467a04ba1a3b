# SPDX-License-Identifier: Apache-2.0
"""Turns an application and a profile into what that machine does with it, also from how it ran on another one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from characterize.errors import FlextraceError
from characterize.workload import Workload
from selfscale.measuring.storage import StorageTimes, storage_times
from selfscale.models.measured import Z90
from selfscale.predict import Prediction, Predictor
from selfscale.predicting.application import Application
from selfscale.predicting.elapsed import RecordedTimes
from selfscale.predicting.relative import Estimated, half_way, relative
from selfscale.predicting.uncached import knows_device, with_device_reads
from selfscale.simulation.machine_costs import RequestCosts, machine_costs
from selfscale.simulation.operations import Operations
from selfscale.simulation.simulate import Simulated, simulate_uncertain

SIMULATION = "operations of the trace, simulated"
SIMULATED_NOTE = (
    "interval covers what is not known of the machine's constants, and how far off such simulations were; "
    "cold reads, new files, syncs and think times as in the trace, the processor as fast as that of the recording"
)
SIMULATION_ERROR, SYNC_ERROR, REST_ERROR = 0.2, 0.4, 0.1
"""Standard deviations of ln(simulated / measured) over the applications of ``make bench-predict``: of the throughput,
of the time in syncs, and of what is in neither, so that nine of ten intervals hold (docs/decisions/0026)."""
LEAST_SHARE = 0.5
"""Of a simulated time, below which its interval does not fall."""


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
    synced = predictor.profile.access.sync_frac > 0
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


def not_recorded(why: str = "") -> FlextraceError:
    """Of a prediction that is to start from how the application ran, where that was not recorded, and why not."""
    return FlextraceError(
        f"the trace has no recorded throughput to start from{f', since {why}' if why else ''}; leave out "
        "--measured-on, or record the application, or the replay of this trace, on that machine, and give that",
        2,
    )


@dataclass(frozen=True)
class Relative:
    """What one machine is predicted to do from how the application ran on another one.

    Attributes
    ----------
    in_io : Estimated
        Recorded throughput in I/O x predicted here / predicted there, bytes per s; of simulations half way to that.
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
    in_io = relative(times.throughput_bytes_per_s, here.in_io, there.in_io)
    elapsed_s = elapsed_of(here.times, in_io, here.saturation)
    if here.simulated is not None and here.elapsed_s is not None and there.elapsed_s is not None:
        # What is off on one machine is so on another one in part (docs/decisions/0026).
        in_io = half_way(here.in_io, in_io)
        elapsed_s = half_way(here.elapsed_s, relative(times.elapsed_s, here.elapsed_s, there.elapsed_s))
    return Relative(in_io, elapsed_s, off, there.prediction.outside)


def _inverse(throughput: Estimated, moved_bytes: float) -> Estimated:
    """Seconds of a throughput; the ends change places."""
    return Estimated(moved_bytes / throughput.value, moved_bytes / throughput.high, moved_bytes / throughput.low)
