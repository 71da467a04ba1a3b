# SPDX-License-Identifier: Apache-2.0
"""Turns points, and what a simulated page cache has storage do for them, into the seconds that a request takes of every
resource: the physics of `traffic`.

The constants are those of `selfscale.models.service_time` without the ones that say what storage does: how many
requests and bytes that is, the simulation tells. What is found is how long they take, and what processors do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from characterize.workload import Workload
from selfscale.models import service_time
from selfscale.models.constants import derivative, find_constants, logarithms
from selfscale.models.machine_time import Storage, Transfers, bottleneck, call_s, pages_in_s, resources
from selfscale.models.measured import Columns, Measured
from selfscale.models.measured_traffic import traffic_of_runs
from selfscale.models.read_ahead import PAGE_BYTES, PIECE_BYTES
from selfscale.models.residual import PHYSICS_ERROR, FormulaValues
from selfscale.simulation.read_ahead_rules import ReadAheadRules
from selfscale.simulation.traffic import Traffic, traffic_of

CONSTANTS = {
    name: service_time.CONSTANTS[name]
    for name in (
        "read_call_s",
        "write_call_s",
        "read_byte_s",
        "write_byte_s",
        "far_byte_s",
        "near_cache_bytes",
        "miss_page_s",
        "ahead_page_frac",
        "spill_page_s",
        "lock_s",
        "lock_byte_s",
        "access_read_s",
        "access_write_s",
        "device_read_byte_s",
        "device_write_byte_s",
        "overlap_frac",
        "hidden_frac",
        "write_wait_frac",
        "behind_frac",
        "worker_read_s",
        "worker_write_s",
        "worker_page_s",
        "cpu_servers",
        "device_servers",
        "direction_servers",
        "limits_apart",
        "sharpness",
    )
}
"""Those of the other formula, with the same guesses."""
SHARPNESS, DEVICE_SERVERS = (list(CONSTANTS).index(name) for name in ("sharpness", "device_servers"))
SERVERS = (1.0, 8.0)
"""Requests that the device serves at once, where the search begins: few and many are two basins."""
SIMULATED_MAX = 1 << 14


@dataclass(frozen=True)
class CacheLimits:
    """What the simulation is told of a machine, see `selfscale.simulation.traffic.traffic_of`."""

    cache_bytes: float
    dirty_limit_bytes: float
    read_ahead: ReadAheadRules
    queue: int | None = None


@lru_cache(SIMULATED_MAX)
def _simulated(workload: tuple[float, ...], limits: CacheLimits) -> Traffic:
    return traffic_of(
        Workload(*workload),
        cache_bytes=limits.cache_bytes,
        dirty_limit_bytes=limits.dirty_limit_bytes,
        read_ahead=limits.read_ahead,
        queue=limits.queue,
    )


def simulated(table: Columns, limits: CacheLimits) -> Traffic:
    """What storage does for n workloads, each field of shape (n,)."""
    rows = zip(
        table.unique_bytes.tolist(),
        table.seq_frac.tolist(),
        table.read_frac.tolist(),
        table.size_mean.tolist(),
        table.process_num.tolist(),
        strict=True,
    )
    return Traffic(*np.array([_simulated(row, limits) for row in rows], float).reshape(-1, len(Traffic._fields)).T)


def seconds_of(constants: np.ndarray, table: Columns, traffic: Traffic) -> dict[str, np.ndarray]:
    """What a mean request of n workloads takes at every resource.

    Parameters
    ----------
    constants : ndarray, shape (27,), or (27, k, 1) for k sets at once
        Natural logarithms of `CONSTANTS`.
    traffic : Traffic
        Of the workloads.
    """
    k = dict(zip(CONSTANTS, np.exp(constants), strict=True))
    read, write, whole = table.read_frac, 1 - table.read_frac, np.maximum(table.size_mean, PAGE_BYTES)

    def transfers(requests: np.ndarray, moved: np.ndarray, way: str) -> Transfers:
        # A long request becomes commands, of which the later ones overlap.
        longer = np.maximum(moved - requests * PIECE_BYTES, 0)
        alone = moved - (1 - np.minimum(k["overlap_frac"], 1.0)) * longer
        return Transfers(requests, moved, requests * k[f"access_{way}_s"], alone * k[f"device_{way}_byte_s"])

    filled = write * traffic.filled
    waited = transfers(read * traffic.reads + filled, read * whole * traffic.read_frac + filled * PAGE_BYTES, "read")
    ahead = transfers(read * traffic.reads_ahead, read * whole * traffic.ahead_frac, "read")
    written = transfers(write * traffic.writes, write * whole * traffic.written_frac, "write")
    processor = call_s(k, table) + pages_in_s(k, waited, ahead) + written.bytes / PAGE_BYTES * k["spill_page_s"]
    storage = Storage(waited, ahead, written, read * traffic.waiting + filled)
    return resources(k, table, processor=processor, storage=storage)


@dataclass(frozen=True)
class TrafficTimes:
    """The formula with its constants found.

    Attributes
    ----------
    constants : ndarray, shape (27,)
        Natural logarithms of `CONSTANTS`.
    covariance : ndarray, shape (27, 27)
        What points and guesses leave open of them (Laplace's approximation).
    limits : CacheLimits
        Of the machine that is simulated.
    """

    constants: np.ndarray
    covariance: np.ndarray
    limits: CacheLimits

    @property
    def border_bytes(self) -> float:
        """Where reads begin to miss."""
        return self.limits.cache_bytes

    def at(self, table: Columns) -> FormulaValues:
        """What it says of n workloads, with two shares: what reading takes and what writing takes."""
        seconds = seconds_of(self.constants, table, simulated(table, self.limits))
        ways = np.column_stack([seconds["reads"], seconds["writes"]])
        shares = ways / (ways.sum(axis=1) + seconds["processors"])[:, None]
        return FormulaValues(bottleneck(seconds, table, self.constants[SHARPNESS]), shares)

    def explained(self, data: Measured) -> np.ndarray:
        """ln(throughput) of n points, shape (n,), by what storage did in their runs."""
        traffic = traffic_of_runs(simulated(data.columns, self.limits), data)
        seconds = seconds_of(self.constants, data.columns, traffic)
        return bottleneck(seconds, data.columns, self.constants[SHARPNESS])

    def sensitivity(self, table: Columns) -> np.ndarray:
        """Derivative of ln(throughput) by the constants, shape (n, 27)."""
        traffic = simulated(table, self.limits)
        return derivative(
            lambda sets: bottleneck(seconds_of(sets, table, traffic), table, sets[SHARPNESS]),
            self.constants,
        )


def fit_traffic_times(data: Measured, limits: CacheLimits, start: TrafficTimes | None = None) -> TrafficTimes:
    """Find the constants that explain the points by what storage did in their runs, held near their guesses.

    Parameters
    ----------
    data : Measured
    limits : CacheLimits
    start : TrafficTimes, optional
        Of nearly the same points: the search begins there.
    """
    weight = 1 / np.hypot(data.noise, PHYSICS_ERROR)
    traffic = traffic_of_runs(simulated(data.columns, limits), data)

    def errors_at(constants: np.ndarray) -> np.ndarray:
        seconds = seconds_of(constants, data.columns, traffic)
        return (bottleneck(seconds, data.columns, constants[SHARPNESS]) - data.log_throughput) * weight

    starts = [start.constants] if start else [_with_servers(logarithms(CONSTANTS), count) for count in SERVERS]
    found = min((find_constants(errors_at, CONSTANTS, one) for one in starts), key=lambda one: one.cost)
    return TrafficTimes(found.constants, found.covariance, limits)


def _with_servers(guess: np.ndarray, count: float) -> np.ndarray:
    constants = guess.copy()
    constants[DEVICE_SERVERS] = np.log(count)
    return constants
