# SPDX-License-Identifier: Apache-2.0
"""Turns a trace and a machine's costs into the throughput and the elapsed time of its application there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from characterize.counting.intervals import union_length
from selfscale.measuring.storage import StorageTimes
from selfscale.models.service_time import ServiceTimes
from selfscale.simulation.machine_costs import MachineCosts, RequestCosts, machine_costs
from selfscale.simulation.operations import Kind, Operations
from selfscale.simulation.page_cache import state_of
from selfscale.simulation.run import Schedule, run_in, schedule_of

NS = 1e9
DRAWS, SIGMAS_MAX = 8, 2.0
"""Sets of constants that are simulated for an interval, and how far they may be drawn."""


@dataclass(frozen=True)
class Simulated:
    """How an application would run.

    Attributes
    ----------
    throughput_bytes_per_s : float
        In I/O: bytes over the time with a request in flight.
    span_s : float
        From the first operation to the end of the last one.
    read_wait_s, write_wait_s, sync_wait_s : float
        That operations wait for storage, all threads added.
    read_mean_ns, write_mean_ns : float
        Mean times of a read and of a write; nan without any.
    sync_s : float
        With at least one sync in flight.
    sigma, span_sigma : float
        Standard deviations of the logarithms of both, by what is not known of the machine's constants; 0 of one run.
    """

    throughput_bytes_per_s: float
    span_s: float
    read_wait_s: float
    write_wait_s: float
    sync_wait_s: float
    read_mean_ns: float
    write_mean_ns: float
    sync_s: float
    sigma: float = 0.0
    span_sigma: float = 0.0


def simulate(
    operations: Operations,
    costs: MachineCosts,
    recorded_on: RequestCosts | None = None,
    schedule: Schedule | None = None,
) -> Simulated:
    """Run operations on a machine, see `selfscale.simulation.run`; their schedule may be given."""
    schedule = schedule or schedule_of(operations)
    start_ns, end_ns, waited_ns = run_in(state_of(operations, costs), schedule, recorded_on)
    moves = operations.moves
    reads, writes = (operations.kind == kind for kind in (Kind.READ, Kind.WRITE))
    syncs = np.isin(operations.kind, (Kind.SYNC, Kind.DIRECTORY_SYNC))

    def busy_ns(chosen: np.ndarray) -> int:
        return union_length(np.rint(start_ns[chosen]).astype(np.int64), np.rint(end_ns[chosen]).astype(np.int64))

    def mean_ns(chosen: np.ndarray) -> float:
        return float((end_ns - start_ns)[chosen].mean()) if chosen.any() else math.nan

    return Simulated(
        throughput_bytes_per_s=float(operations.size_bytes[moves].sum()) / max(busy_ns(moves), 1) * NS,
        span_s=float(end_ns.max()) / NS,
        read_wait_s=float(waited_ns[reads].sum()) / NS,
        write_wait_s=float(waited_ns[writes].sum()) / NS,
        sync_wait_s=float(waited_ns[syncs].sum()) / NS,
        read_mean_ns=mean_ns(reads),
        write_mean_ns=mean_ns(writes),
        sync_s=busy_ns(syncs) / NS,
    )


def simulate_uncertain(
    operations: Operations,
    service_times: ServiceTimes,
    storage: StorageTimes,
    environment: Mapping[str, Any],
    recorded_on: RequestCosts | None = None,
) -> Simulated:
    """The same with what the uncertainty of the constants means."""
    schedule = schedule_of(operations)
    found = simulate(operations, machine_costs(service_times, storage, environment), recorded_on, schedule)
    generator = np.random.default_rng(0)
    normal = generator.standard_normal((DRAWS, len(service_times.constants)))
    spread = np.linalg.cholesky(service_times.covariance)
    drawn = []
    for off in np.clip(normal, -SIGMAS_MAX, SIGMAS_MAX) @ spread.T:
        costs = machine_costs(service_times, storage, environment, service_times.constants + off)
        one = simulate(operations, costs, recorded_on, schedule)
        drawn.append((one.throughput_bytes_per_s / found.throughput_bytes_per_s, one.span_s / found.span_s))
    sigma, span_sigma = np.sqrt((np.log(drawn) ** 2).mean(axis=0))
    return replace(found, sigma=float(sigma), span_sigma=float(span_sigma))
