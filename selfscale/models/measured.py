# SPDX-License-Identifier: Apache-2.0
"""Turns points into the arrays that a regression needs, and says how far a workload lies from what was measured."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from characterize.errors import FlextraceError
from characterize.workload import FIELD_OF, PARAMETERS, Workload
from selfscale.measure import Point
from selfscale.profile import Region

LOGARITHMIC = frozenset({"uniqueBytes", "sizeMean", "processNum"})
"""Parameters that are spread, and interpolated, on a logarithmic axis (docs/decisions/0004)."""
NOISE_MIN, NOISE_UNSTEADY, NOISE_UNKNOWN = 0.02, 0.08, 0.3
"""Standard deviation of ln(throughput) of a point: at least, at least where it was not steady, and of a run too short
for an interval."""
Z90, Z95 = 1.644854, 1.959964
PROCESS_POINTS_MAX = 1000
"""That a Gaussian process is fitted to: its time grows with their third power, and its memory with their square."""


@dataclass(frozen=True)
class Columns:
    """The five parameters of n workloads, shape (n,) each."""

    unique_bytes: np.ndarray
    seq_frac: np.ndarray
    read_frac: np.ndarray
    size_mean: np.ndarray
    process_num: np.ndarray


def columns(workloads: Sequence[Workload]) -> Columns:
    """Workloads as columns.

    Raises
    ------
    FlextraceError
        A parameter is not a number.
    """
    for workload in workloads:
        for name in PARAMETERS:
            if not math.isfinite(getattr(workload, FIELD_OF[name])):
                raise FlextraceError(f"cannot predict a workload without {name}: give it, or a trace with requests")
    return Columns(*(np.array([getattr(workload, field) for workload in workloads]) for field in FIELD_OF.values()))


@dataclass(frozen=True)
class Measured:
    """Points to learn from.

    Attributes
    ----------
    indices : ndarray of int, shape (n,)
        Into the points that were given; those without throughput are left out.
    columns : Columns
    log_throughput : ndarray, shape (n,)
        ln(bytes per s).
    noise : ndarray, shape (n,)
        Standard deviation of it that the measurement itself had.
    device_read_frac, device_write_frac : ndarray, shape (n,)
        Bytes that storage read and wrote over those that were moved; nan where unknown.
    device_reads, device_writes : ndarray, shape (n,)
        Requests to storage by request; nan where unknown.
    """

    indices: np.ndarray
    columns: Columns
    log_throughput: np.ndarray
    noise: np.ndarray
    device_read_frac: np.ndarray
    device_write_frac: np.ndarray
    device_reads: np.ndarray
    device_writes: np.ndarray


def measured(points: Sequence[Point]) -> Measured:
    """The points that moved something, as arrays."""
    indices = [index for index, point in enumerate(points) if point.throughput_bytes_per_s > 0]
    used = [points[index] for index in indices]
    throughput = np.array([point.throughput_bytes_per_s for point in used])
    moved = np.array([point.device_frac for point in used], float)
    written = np.array([point.device_write_frac for point in used], float)
    return Measured(
        np.array(indices, int),
        columns([point.workload for point in used]),
        np.log(throughput),
        noise_of(used),
        moved - written,
        written,
        np.array([point.device_reads for point in used], float),
        np.array([point.device_writes for point in used], float),
    )


def noise_of(points: Sequence[Point]) -> np.ndarray:
    """Standard deviation of ln(throughput) that the measurements themselves had, shape (n,)."""
    throughput = np.array([point.throughput_bytes_per_s for point in points])
    half_width = np.array([point.ci95_half_width_bytes_per_s for point in points])
    # Of a table's single rows nobody tells the noise: its models find that among all rows.
    unknown = np.where([point.role == "table" for point in points], NOISE_MIN, NOISE_UNKNOWN)
    noise = np.where(np.isfinite(half_width), half_width / Z95 / throughput, unknown)
    steady = np.array([point.steady for point in points], bool)
    return np.maximum(noise, np.where(steady, NOISE_MIN, NOISE_UNSTEADY))


def drawn(count: int) -> np.ndarray:
    """Which of so many points a Gaussian process is fitted to, ascending: of a large table they are drawn."""
    return np.array(sorted(random.Random(0).sample(range(count), min(count, PROCESS_POINTS_MAX))), int)


def miss_frac(unique_bytes: np.ndarray, cache_bytes: float | np.ndarray, width: float = 0.02) -> np.ndarray:
    """Share of uniformly drawn requests beyond a cache: max(0, 1 - cache / uniqueBytes), rounded off over `width`."""
    beyond = 1 - cache_bytes / unique_bytes
    return (beyond + np.sqrt(beyond**2 + width**2)) / 2


def region_of(regions: Sequence[Region], unique_bytes: float) -> int:
    """Index of the region that a working set lies in; beyond the last it is the last."""
    last = max(0, len(regions) - 1)
    return next((index for index, region in enumerate(regions) if unique_bytes <= region.high_bytes), last)


def ranges_of(workloads: Sequence[Workload]) -> dict[str, tuple[float, float]]:
    """Least and largest value of every parameter."""
    table = {name: [getattr(workload, field) for workload in workloads] for name, field in FIELD_OF.items()}
    return {name: (min(values), max(values)) for name, values in table.items()}


def beyond(ranges: dict[str, tuple[float, float]], workload: Workload) -> dict[str, str]:
    """Parameters of a workload that lie beyond the measured values, each with its distance in words."""
    distances = {}
    for name, (low, high) in ranges.items():
        text = distance(name, getattr(workload, FIELD_OF[name]), low, high, logarithmic=name in LOGARITHMIC)
        if text:
            distances[name] = text
    return distances


def distance(name: str, value: float, low: float, high: float, *, logarithmic: bool) -> str:
    """How far a value lies beyond the measured ones, in words; empty if it does not."""
    tolerance = 1e-9 * max(abs(low), abs(high))
    if low - tolerance <= value <= high + tolerance:
        return ""
    side, edge = ("largest", high) if value > high else ("least", low)
    far = f"{value / edge:.3g} times" if logarithmic and edge > 0 else f"{abs(value - edge):.3g} away from"
    return f"{name} is {far} the {side} measured"
