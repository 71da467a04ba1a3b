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
from selfscale.models.measured import Columns, Measured, miss_frac
from selfscale.models.read_ahead import PAGE_BYTES, PIECE_BYTES, RANDOM_FRAC_MIN, storage_reads
from selfscale.models.residual import PHYSICS_ERROR, FormulaValues
from selfscale.models.write_back import kept_frac, neighbour_frac

SCAN_EAGERNESS = 10
"""How many times as fast as those of drawn requests the misses of scans grow behind the border."""
TRAFFIC_ERROR, TRAFFIC_FRAC_MIN = 0.4, 0.02
"""The same of the bytes that storage moves, and what is added to their share: less than that does not count."""
QUEUED = 128
"""Requests of the flusher that a read finds before it, while there are any (nr_requests of loop devices and many
others)."""

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
    "worker_access_s": Guess(3e-6, 1.5),
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
processor per page. Besides, what storage reads or writes takes worker_access_s and worker_page_s of the kernel's own
threads (write-back, loop devices, compression), which a request does not wait for as long as there is a processor."""
SHARPNESS = list(CONSTANTS).index("sharpness")


def _miss_frac(k: dict[str, np.ndarray], table: Columns, border_bytes: float) -> np.ndarray:
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


def demand_at(constants: np.ndarray, table: Columns, border_bytes: float, cpus: int = 0) -> Demand:
    """What a mean request of n workloads asks of the machine.

    Parameters
    ----------
    constants : ndarray, shape (36,), or (36, k, 1) for k sets at once
        Natural logarithms of `CONSTANTS`.
    border_bytes : float
        Where the throughput falls, as the profile has it.
    cpus : int
        Processors of the machine; 0 where nobody tells.
    """
    k = dict(zip(CONSTANTS, np.exp(constants), strict=True))
    read, size, sequential = table.read_frac, table.size_mean, table.seq_frac
    write, random = 1 - read, 1 - sequential
    miss = _miss_frac(k, table, border_bytes)
    kept = kept_frac(table.unique_bytes, border_bytes * k["write_cache"], k["stays_frac"])
    spill = 1 - kept + np.minimum(k["spill_frac"], 1.0) * kept
    far = miss_frac(table.unique_bytes, k["near_cache_bytes"], 0.1)
    pages = np.maximum(size, PAGE_BYTES) / PAGE_BYTES
    # Whole pages move; sequential requests of less than a page share one. What is written in part is read before.
    moved = random * np.maximum(size, PAGE_BYTES) + sequential * size
    partial = np.where(size < PAGE_BYTES, moved / PAGE_BYTES, 0.0) * write * miss
    longer, overlapped = np.maximum(0.0, moved - PIECE_BYTES), 1 - np.minimum(k["overlap_frac"], 1.0)
    factors = k["ahead_factor"], k["context_factor"]
    ahead = storage_reads(table, np.clip(1 - miss, 0, 1), k["window_bytes"], factors)
    # A run of writes ends where one of its requests is read.
    extents = 1 - sequential * write * (1 - np.minimum(k["random_frac"], 1.0))
    extents = extents * (1 - np.minimum(k["merge_frac"], 1.0) * neighbour_frac(kept, table.process_num))
    cheaper = (1 - np.minimum(k["ahead_page_frac"], 1.0)) * ahead.behind_bytes
    processor = (
        read * (k["read_call_s"] + size * k["read_byte_s"])
        + write * (k["write_call_s"] + size * k["write_byte_s"])
        + far * size * k["far_byte_s"]
        + miss * (read * (ahead.bytes - cheaper) / PAGE_BYTES + write * pages) * k["miss_page_s"]
        + pages * write * spill * k["spill_page_s"]
    )
    accesses = random + k["restart_frac"] * (ahead.first + ahead.behind)
    piece_bytes = ahead.bytes - overlapped * np.minimum(ahead.long_bytes + ahead.own * longer, ahead.bytes)
    read_access = (read * miss * accesses + partial) * k["access_read_s"]
    read_bytes = (read * miss * piece_bytes + partial * PAGE_BYTES) * k["device_read_byte_s"]
    behind_bytes = piece_bytes * ahead.behind_bytes / ahead.bytes
    behind = (
        read * miss * (k["restart_frac"] * ahead.behind * k["access_read_s"] + behind_bytes * k["device_read_byte_s"])
    )
    read_accesses, write_accesses = read * miss * (random + ahead.first + ahead.behind), write * spill * extents
    write_access = write_accesses * k["access_write_s"]
    write_bytes = write * spill * (moved - overlapped * longer) * k["device_write_byte_s"]
    # The kernel's threads serve storage beside the processes: one leaves them a processor, many do not.
    workers = (read_accesses + write_accesses) * k["worker_access_s"]
    workers = workers + (read * miss * ahead.bytes + write * spill * moved) / PAGE_BYTES * k["worker_page_s"]
    waiting = (
        read_access
        + read_bytes
        - np.minimum(k["hidden_frac"], 1.0) * behind
        + np.minimum(k["write_wait_frac"], 1.0) * (write_access + write_bytes)
    )
    seconds = resources(
        k,
        table,
        cpus=cpus,
        processor=processor,
        workers=workers,
        waiting=waiting,
        misses=read * miss * (random + ahead.first) + partial,
        reading=longer_of(k, read_access, read_bytes),
        writes=write_accesses,
        writing=longer_of(k, write_access, write_bytes),
    )
    return Demand(
        seconds,
        (read * miss * ahead.bytes + partial * PAGE_BYTES) / size,
        write * spill * moved / size,
    )


def resources(
    k: dict[str, np.ndarray],
    table: Columns,
    *,
    cpus: int,
    processor: np.ndarray,
    workers: np.ndarray,
    waiting: np.ndarray,
    misses: np.ndarray,
    reading: np.ndarray,
    writes: np.ndarray,
    writing: np.ndarray,
) -> dict[str, np.ndarray]:
    """Seconds at every resource of what a mean request takes of a processor, of the kernel's threads beside it, in
    waiting for so many reads of its own, and of the device by direction, in so many writes.

    Reads wait behind what the flusher has given the device before, so that processes stand still while it works, but
    for what they do from one miss to the next. That takes all of them time at once, however many they are.

    More processes than processors are as fast as those of them that take turns with the most others, since they keep
    step.
    """
    flushing = writing / k["device_servers"]
    alone, behind = processor + waiting, QUEUED * misses * flushing
    standing = np.minimum(k["behind_frac"], 1.0) * flushing * behind / (alone * writes + behind + np.finfo(float).tiny)
    return {
        "process": alone / table.process_num + standing,
        "turns": processor * turns_of(table.process_num, cpus) / table.process_num,
        "processors": (processor + workers) / k["cpu_servers"],
        "device": (reading + writing) / k["device_servers"],
        "reads": reading / k["direction_servers"],
        "writes": writing / k["direction_servers"],
        "lock": k["lock_s"] + table.size_mean * k["lock_byte_s"],
    }


def turns_of(process_num: np.ndarray, cpus: int) -> np.ndarray:
    """In how many turns n processes run, shape (n,); 0 where each has a processor, or nobody tells how many."""
    return np.where(process_num > cpus, np.ceil(process_num / cpus), 0.0) if cpus else np.zeros_like(process_num)


def longer_of(k: dict[str, np.ndarray], accesses_s: np.ndarray, bytes_s: np.ndarray) -> np.ndarray:
    """Time of a device that is limited in accesses and in bytes: between the sum of both and the longer one."""
    power = 1 + k["limits_apart"]
    return (accesses_s**power + bytes_s**power + np.finfo(float).tiny) ** (1 / power)


def log_throughput(constants: np.ndarray, table: Columns, demand: Demand) -> np.ndarray:
    """ln(bytes per s) with these constants."""
    return bottleneck(demand.seconds, table, constants[SHARPNESS])


def bottleneck(seconds: dict[str, np.ndarray], table: Columns, log_sharpness: np.ndarray) -> np.ndarray:
    """ln(bytes per s): the longest resource, rounded off where two are equally long."""
    times = np.array(list(seconds.values()))
    sharpness = 1 + np.exp(log_sharpness)
    longest = times.max(axis=0)
    return np.log(table.size_mean / longest) - np.log(((times / longest) ** sharpness).sum(axis=0)) / sharpness


@dataclass(frozen=True)
class ServiceTimes:
    """The formula with its constants found.

    Attributes
    ----------
    constants : ndarray, shape (36,)
        Natural logarithms of `CONSTANTS`.
    covariance : ndarray, shape (36, 36)
        What points and guesses leave open of them (Laplace's approximation).
    border_bytes : float
        The border that the sizes of the caches are relative to.
    cpus : int
        Processors of the machine; 0 where nobody tells.
    """

    constants: np.ndarray
    covariance: np.ndarray
    border_bytes: float
    cpus: int = 0

    def at(self, table: Columns) -> FormulaValues:
        """What it says of n workloads, with one share: the device's."""
        demand = demand_at(self.constants, table, self.border_bytes, self.cpus)
        share = demand.seconds["device"] / (demand.seconds["device"] + demand.seconds["processors"])
        return FormulaValues(log_throughput(self.constants, table, demand), share[:, None])

    def explained(self, data: Measured) -> np.ndarray:
        """ln(throughput) of n points, shape (n,)."""
        return self.at(data.columns).log_throughput

    def sensitivity(self, table: Columns) -> np.ndarray:
        """Derivative of ln(throughput) by the constants, shape (n, 36)."""
        return derivative(
            lambda sets: log_throughput(sets, table, demand_at(sets, table, self.border_bytes, self.cpus)),
            self.constants,
        )


def fit_service_times(
    data: Measured, borders_bytes: Sequence[float], cpus: int = 0, start: ServiceTimes | None = None
) -> ServiceTimes:
    """Find the constants that explain the points, held near their guesses.

    Parameters
    ----------
    data : Measured
    borders_bytes : sequence of float
        Candidates for the border where reads begin to miss; the one that explains the points best is taken.
    cpus : int
        Processors of the machine; 0 where nobody tells.
    start : ServiceTimes, optional
        Of nearly the same points: the search begins, and the border stays, there.
    """
    weight = 1 / np.hypot(data.noise, PHYSICS_ERROR)

    def errors_at(constants: np.ndarray, border_bytes: float) -> np.ndarray:
        demand = demand_at(constants, data.columns, border_bytes, cpus)
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
    return ServiceTimes(found.constants, found.covariance, border_bytes, cpus)


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
