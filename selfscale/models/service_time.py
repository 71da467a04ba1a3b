# SPDX-License-Identifier: Apache-2.0
"""Turns points into the seconds that a request takes at processors, lock, cache and device: the physics of `learned`.

Lee's sum of overheads (5.1) with what a regression cannot have: the sizes of the cache for reads and for writes, how
much of the device's latency sequential access saves, how many requests processors and device serve at once, and how
sharply the bottleneck takes over. All are positive and found by least squares on ln(throughput), each held near a wide
guess, so that what the points do not tell stays plausible.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from selfscale.models.constants import Guess, derivative, find_constants
from selfscale.models.machine_time import Constants, Storage, Transfers, bottleneck, call_s, pages_in_s, resources
from selfscale.models.measured import Columns, Measured, miss_frac
from selfscale.models.read_ahead import PAGE_BYTES, PIECE_BYTES, RANDOM_FRAC_MIN, storage_reads
from selfscale.models.residual import PHYSICS_ERROR, FormulaValues
from selfscale.models.write_back import kept_frac, neighbour_frac

SCAN_EAGERNESS = 10
"""How many times as fast as those of drawn requests the misses of scans grow behind the border."""
TRAFFIC_ERROR, TRAFFIC_FRAC_MIN = 0.4, 0.02
"""What the formula is trusted with of ln(bytes that storage moves), a standard deviation, and what is added to their
share: less than that does not count."""

CONSTANTS = {
    "read_call_s": Guess(8e-7, 1.0),
    "write_call_s": Guess(1.4e-6, 1.0),
    "read_byte_s": Guess(8e-11, 1.0),
    "write_byte_s": Guess(1.2e-10, 1.2),
    "far_byte_s": Guess(5e-11, 1.0),
    "miss_page_s": Guess(3.5e-7, 1.2),
    "ahead_page_frac": Guess(0.4, 0.7),
    "lock_s": Guess(3e-7, 1.0),
    "lock_byte_s": Guess(2e-11, 1.0),
    "access_read_s": Guess(7e-5, 3.0),
    "access_write_s": Guess(3e-5, 3.0),
    "device_read_byte_s": Guess(2e-9, 2.0),
    "device_write_byte_s": Guess(1.8e-9, 2.0),
    "overlap_frac": Guess(0.5, 0.7),
    "random_frac": Guess(0.3, 1.0),
    "restart_frac": Guess(1.0, 0.5),
    "window_bytes": Guess(5e5, 1.5),
    "ahead_factor": Guess(0.7, 0.5),
    "context_factor": Guess(0.45, 0.4),
    "hidden_frac": Guess(0.65, 0.5),
    "write_wait_frac": Guess(0.1, 0.8),
    "behind_frac": Guess(0.7, 1.5),
    "spill_frac": Guess(0.004, 1.2),
    "spill_page_s": Guess(3e-7, 0.5),
    "worker_read_s": Guess(3e-6, 1.5),
    "worker_write_s": Guess(3e-6, 1.5),
    "worker_page_s": Guess(1.3e-6, 1.2),
    "stays_frac": Guess(0.75, 0.3),
    "read_cache": Guess(1.0, 0.25),
    "write_cache": Guess(0.15, 1.0),
    "near_cache_bytes": Guess(2e7, 0.8),
    "cpu_servers": Guess(1.6, 0.7),
    "device_servers": Guess(2.5, 0.8),
    "direction_servers": Guess(3.0, 1.0),
    "merge_frac": Guess(0.9, 0.5),
    "limits_apart": Guess(0.8, 1.0),
    "sharpness": Guess(5.0, 0.8),
}
"""Guesses lie about where fits to all points of four lab machines on one host have them (docs/decisions/0016), as wide
as other processors and devices may be from these; narrow is spill_page_s, since a writer's part of write-back looks
like that of the kernel's threads unless processNum differs.

The processors' own cache is one of near_cache_bytes, the others are shares of the border of the profile. Shares, 1 at
most: overlap_frac of the time of a byte beyond the first window is left of it, since a long request becomes commands
that overlap; random_frac of the access of a request that is written back is left if it is sequential; a writer waits
for write_wait_frac of the device's time; behind_frac of the time in which the device writes back reads wait behind that
(all of it where both directions have one queue, nothing where each has its own); spill_frac of what fits the write
cache is written back all the same; merge_frac of the accesses of blocks whose neighbours are dirty, too, are saved. The
device serves direction_servers requests at once in one direction, device_servers in both; limits_apart is 0 where it
takes the time of its accesses and that of their bytes, and large where the longer counts.

Read-ahead (`selfscale.models.read_ahead`) has windows of window_bytes at most. One that is waited for costs
restart_frac of an access; of the time of the others hidden_frac is not waited for, and their pages take
ahead_page_frac of miss_page_s, since they are brought in as large folios. Write-back
(`selfscale.models.write_back`) begins at write_cache, of which stays_frac stays dirty then, and takes spill_page_s of a
processor per page. Besides, a request that storage reads or writes takes worker_read_s or worker_write_s, and each page
worker_page_s, of the kernel's own threads (write-back, loop devices, compression), which nobody waits for as long as
there is a processor. A write may take many times a read: btrfs gives it a new place."""
SHARPNESS = list(CONSTANTS).index("sharpness")


def _miss_frac(k: Constants, table: Columns, border_bytes: float) -> np.ndarray:
    """Share of the reads that miss the cache."""
    drawn = miss_frac(table.unique_bytes, border_bytes * k["read_cache"])
    # A run as long as its file finds nothing that the one before it left: the last pages pushed the first ones out.
    file_share = table.size_mean * table.process_num / table.unique_bytes
    scanned = file_share / (file_share + np.maximum(1 - table.seq_frac, RANDOM_FRAC_MIN))
    return drawn + (1 - drawn) * scanned * (1 - np.maximum(1 - drawn, 0.0) ** SCAN_EAGERNESS)


@dataclass(frozen=True)
class Demand:
    """What a mean request asks of the machine.

    Attributes
    ----------
    seconds : dict of str to ndarray, shape (n,)
        At every resource.
    read_frac, write_frac : ndarray, shape (n,)
        Bytes that storage reads and writes over those that are moved.
    """

    seconds: dict[str, np.ndarray]
    read_frac: np.ndarray
    write_frac: np.ndarray


def demand_at(constants: np.ndarray, table: Columns, border_bytes: float) -> Demand:
    """What a mean request of n workloads asks of the machine.

    Parameters
    ----------
    constants : ndarray, shape (37,), or (37, k, 1) for k sets at once
        Natural logarithms of `CONSTANTS`.
    border_bytes : float
        Where the throughput falls, as the profile has it.
    """
    k = dict(zip(CONSTANTS, np.exp(constants), strict=True))
    size, write, whole = table.size_mean, 1 - table.read_frac, np.maximum(table.size_mean, PAGE_BYTES)
    miss = _miss_frac(k, table, border_bytes)
    kept = kept_frac(table.unique_bytes, border_bytes * k["write_cache"], k["stays_frac"])
    spilled = write * (1 - kept + np.minimum(k["spill_frac"], 1.0) * kept)
    # Whole pages move; sequential requests of less than a page share one. What is written in part is read before.
    moved = (1 - table.seq_frac) * whole + table.seq_frac * size
    filled = np.where(size < PAGE_BYTES, moved / PAGE_BYTES, 0.0) * write * miss
    waited, ahead = _reads(k, table, miss, moved, filled)
    written = _writes(k, table, spilled, moved, neighbour_frac(kept, table.process_num))
    processor = (
        call_s(k, table)
        + pages_in_s(k, waited, ahead)
        + (miss * write * k["miss_page_s"] + spilled * k["spill_page_s"]) * whole / PAGE_BYTES
    )
    storage = Storage(waited, ahead, written, waited.requests + filled)
    return Demand(
        resources(k, table, processor=processor, storage=storage),
        (waited.bytes + ahead.bytes + filled * PAGE_BYTES) / size,
        written.bytes / size,
    )


def _reads(
    k: Constants, table: Columns, miss: np.ndarray, moved: np.ndarray, filled: np.ndarray
) -> tuple[Transfers, Transfers]:
    """What a request waits for, and what is read ahead of it.

    Of `filled` pages, which are read since a part of them is written, the device's time alone is among the former.
    """
    missed, random = table.read_frac * miss, 1 - table.seq_frac
    reads = storage_reads(table, np.clip(1 - miss, 0, 1), k["window_bytes"], (k["ahead_factor"], k["context_factor"]))
    long_bytes = reads.long_bytes + reads.own * np.maximum(0.0, moved - PIECE_BYTES)
    piece_bytes = reads.bytes - _overlapped(k) * np.minimum(long_bytes, reads.bytes)
    ahead_share, restart = reads.behind_bytes / reads.bytes, k["restart_frac"]
    waited = Transfers(
        missed * (random + reads.first),
        missed * (reads.bytes - reads.behind_bytes),
        (missed * (random + restart * reads.first) + filled) * k["access_read_s"],
        (missed * piece_bytes * (1 - ahead_share) + filled * PAGE_BYTES) * k["device_read_byte_s"],
    )
    ahead = Transfers(
        missed * reads.behind,
        missed * reads.behind_bytes,
        missed * restart * reads.behind * k["access_read_s"],
        missed * piece_bytes * ahead_share * k["device_read_byte_s"],
    )
    return waited, ahead


def _writes(k: Constants, table: Columns, spilled: np.ndarray, moved: np.ndarray, neighbours: np.ndarray) -> Transfers:
    """What is written back, with a share of the blocks whose neighbours are dirty, too."""
    # A run of writes ends where one of its requests is read.
    extents = 1 - table.seq_frac * (1 - table.read_frac) * (1 - np.minimum(k["random_frac"], 1.0))
    requests = spilled * extents * (1 - np.minimum(k["merge_frac"], 1.0) * neighbours)
    piece_bytes = moved - _overlapped(k) * np.maximum(0.0, moved - PIECE_BYTES)
    return Transfers(
        requests,
        spilled * moved,
        requests * k["access_write_s"],
        spilled * piece_bytes * k["device_write_byte_s"],
    )


def _overlapped(k: Constants) -> np.ndarray:
    """Share of the time of what lies beyond a request's first piece that is hidden behind the others."""
    return 1 - np.minimum(k["overlap_frac"], 1.0)


def log_throughput(constants: np.ndarray, table: Columns, demand: Demand) -> np.ndarray:
    """ln(bytes per s) with these constants."""
    return bottleneck(demand.seconds, table, constants[SHARPNESS])


@dataclass(frozen=True)
class ServiceTimes:
    """The formula with its constants found.

    Attributes
    ----------
    constants : ndarray, shape (37,)
        Natural logarithms of `CONSTANTS`.
    covariance : ndarray, shape (37, 37)
        What points and guesses leave open of them (Laplace's approximation).
    border_bytes : float
        The border that the sizes of the caches are relative to.
    """

    constants: np.ndarray
    covariance: np.ndarray
    border_bytes: float

    def at(self, table: Columns) -> FormulaValues:
        """What it says of n workloads, with one share: the device's."""
        demand = demand_at(self.constants, table, self.border_bytes)
        share = demand.seconds["device"] / (demand.seconds["device"] + demand.seconds["processors"])
        return FormulaValues(log_throughput(self.constants, table, demand), share[:, None])

    def explained(self, data: Measured) -> np.ndarray:
        """ln(throughput) of n points, shape (n,)."""
        return self.at(data.columns).log_throughput

    def sensitivity(self, table: Columns) -> np.ndarray:
        """Derivative of ln(throughput) by the constants, shape (n, 37)."""
        return derivative(
            lambda sets: log_throughput(sets, table, demand_at(sets, table, self.border_bytes)),
            self.constants,
        )


def fit_service_times(
    data: Measured, borders_bytes: Sequence[float], start: ServiceTimes | None = None
) -> ServiceTimes:
    """Find the constants that explain the points, held near their guesses.

    Parameters
    ----------
    data : Measured
    borders_bytes : sequence of float
        Candidates for the border where reads begin to miss; the one that explains the points best is taken.
    start : ServiceTimes, optional
        Of nearly the same points: the search begins, and the border stays, there.
    """
    weight = 1 / np.hypot(data.noise, PHYSICS_ERROR)

    def errors_at(constants: np.ndarray, border_bytes: float) -> np.ndarray:
        demand = demand_at(constants, data.columns, border_bytes)
        errors = [(log_throughput(constants, data.columns, demand) - data.log_throughput) * weight]
        for share, wanted in ((demand.read_frac, data.device_read_frac), (demand.write_frac, data.device_write_frac)):
            off = np.log((share + TRAFFIC_FRAC_MIN) / (wanted + TRAFFIC_FRAC_MIN)) / TRAFFIC_ERROR
            errors.append(np.where(np.isnan(wanted), 0.0, off))
        return np.concatenate(errors, axis=-1)

    results = [
        (float(border_bytes), find_constants(partial(errors_at, border_bytes=border_bytes), CONSTANTS, constants))
        for border_bytes, constants in ([(start.border_bytes, start.constants)] if start else _starts(borders_bytes))
    ]
    border_bytes, found = min(results, key=lambda entry: (entry[1].cost, entry[0]))
    return ServiceTimes(found.constants, found.covariance, border_bytes)


def _starts(borders_bytes: Sequence[float]) -> list[tuple[float, np.ndarray]]:
    """Where to search from: a border of reads, and constants. Few or many requests at the device are two basins."""
    starts = []
    for border, written, count in itertools.product(borders_bytes, borders_bytes, (1.0, 8.0)):
        if written <= border:
            values = {name: constant.value for name, constant in CONSTANTS.items()} | {"device_servers": count}
            if written < border:
                values["write_cache"] = written / border
            starts.append((border, np.log(list(values.values()))))
    return starts
