# SPDX-License-Identifier: Apache-2.0
"""Turns five numbers into a synthetic trace: Willy, the workload generator of Chen 1992, section 3.4.

What the thesis leaves open, and what is done here (docs/decisions/0003-flexible-traces.md has the reasons):

- Shares are kept exactly instead of on average: as many requests are reads, and as many are not sequential, as the
  parameters say; which ones is random.
- Every byte of the files is touched. "Addresses are chosen randomly for data being accessed for the first time": some
  of the runs of sequential requests are laid end to end over the file in a random order, at random moments of the trace
  (depth binomial: first of all); every other run starts at a place drawn by the depth family.
- Offsets and sizes are multiples of `align_bytes`, or of a half, quarter, ... of it where sizeMean is below it or
  uniqueBytes is not met within 0.25 % otherwise.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal, NamedTuple, get_args

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import (
    FILE_DTYPE,
    FILEOP_DTYPE,
    IO_DTYPE,
    NOT_MEASURED_U32,
    TASK_DTYPE,
    Fileop,
    FileType,
    HeaderFlag,
    IoFlag,
    IoOp,
    RecordKind,
    Source,
)
from characterize.trace import Header, Trace
from characterize.trace_files.provenance import tool_version
from characterize.units import format_bytes
from characterize.workload import Workload
from replayer.flexible.planned import check_record_count
from replayer.synthetic.file_walk import SHARE_TOLERANCE, Geometry, walk_file
from replayer.synthetic.request_sizes import SIZE_FAMILIES, SizeFamily, Sizes, coefficient_of_variation
from replayer.synthetic.source_shape import EMPIRICAL, SourceShape

DepthFamily = Literal["uniform", "binomial"]
DEPTH_FAMILIES: tuple[str, ...] = get_args(DepthFamily)

SIZE_BYTES_MAX = 2**30
PROCESSES_MAX = 4096
REQUESTS_MIN = 100
REQUESTS_PER_PROCESS_MIN = 50
UNIQUE_TOLERANCE = 0.0025
# Sizes of a trace are missed by more than this share of them in at most that share of the requests.
ROUNDING, ROUNDED_SHARE_MAX = 1 / 16, 0.1


class Families(NamedTuple):
    """What depths and sizes are drawn from."""

    depth: str | SourceShape
    size: str | Sizes


def requests_needed(workload: Workload) -> int:
    """Requests that a trace must have at least so that it can have all five parameters.

    Every byte has to be touched (uniqueBytes / sizeMean requests), every process starts with a request that is not
    sequential, and the shares are counted in whole requests.
    """
    processes = int(workload.process_num)
    return max(
        math.ceil(workload.unique_bytes / workload.size_mean) + 2 * processes,
        math.ceil(processes / (1 - workload.seq_frac + SHARE_TOLERANCE)),
        REQUESTS_MIN,
        REQUESTS_PER_PROCESS_MIN * processes,
    )


def requests_default(workload: Workload) -> int:
    """Requests of a trace for which the user named no number: every byte four times on average, 10 000 at least."""
    return max(4 * requests_needed(workload), 10_000)


def make_trace(
    workload: Workload,
    *,
    requests: int | None = None,
    depth: DepthFamily | Literal["empirical"] = "uniform",
    size: SizeFamily | Literal["empirical"] = "binomial",
    like: SourceShape | None = None,
    seed: int = 0,
    align_bytes: int = 4096,
    sync_frac: float = 0.0,
    allow_partial: bool = False,
) -> Trace:
    """Make Willy's trace for a workload: one process and one file ``willy.K`` each, overwrites only, warm start.

    Parameters
    ----------
    workload : Workload
    requests : int, optional
        Of all processes together; default `requests_default`.
    depth : {"uniform", "binomial", "empirical"}
        Distribution of the LRU stack depth of requests that are not sequential; the mean of the first two is half of
        uniqueBytes (3.4.1.1). The thesis says binomial, whose requests then keep to half of the data; uniform equals
        random access; empirical is that of `like`, by shares of uniqueBytes.
    size : {"binomial", "bernoulli", "fixed", "empirical"}
        See `replayer.synthetic.request_sizes.draw_sizes`; empirical is that of `like`, stretched to sizeMean.
    like : SourceShape, optional
        Of the trace to draw from.
    seed : int
        Equal arguments and seed give an equal trace.
    align_bytes : int
    sync_frac : float
        Share of the writes that an fdatasync follows; 0 is the thesis's Willy.
    allow_partial : bool
        Make the trace also where it cannot have all five parameters: too few requests then touch only a part of the
        files (their size is uniqueBytes, places are independent draws), and seqFrac is the nearest possible. For
        callers that loop a trace over primed files.

    Returns
    -------
    Trace
        Header flag UNTIMED; what could not be met is in ``warnings``.

    Raises
    ------
    FlextraceError
        A parameter is out of its range, or the five are not possible together or not with so few requests.
    """
    _check(workload, depth, size, align_bytes, sync_frac)
    if like is None and EMPIRICAL in {depth, size}:
        raise FlextraceError("depth or size is empirical: say of which trace", 2)
    sizes_bytes = like.sizes(workload.size_mean) if like is not None and size == EMPIRICAL else None
    geometry = _geometry(workload, size, align_bytes, sizes_bytes)
    families = Families(
        like if like is not None and depth == EMPIRICAL else depth,
        (sizes_bytes[0] / geometry.unit_bytes, sizes_bytes[1]) if sizes_bytes is not None else size,
    )
    count = requests_default(workload) if requests is None else requests
    covering, warnings = _covers(workload, count, allow_partial=allow_partial)
    starts, clipped = _starts_by_process(workload, geometry, count, allow_partial)
    parts = _make_records(workload, geometry, starts, count, families, sync_frac, seed, covering=covering)
    metadata = {
        "made_by": "willy",
        "tool_version": tool_version(),
        "declared": workload.replace(unique_bytes=geometry.unique_bytes).as_document(),
        "seed": seed,
        "depth": depth,
        "size": size,
        "size_coefficient_of_variation": round(_spread_of_sizes(families.size, geometry), 4),
        "align_bytes": geometry.unit_bytes,
        "sync_frac": sync_frac,
        "partial": not covering,
    }
    return _trace(parts, geometry, metadata, warnings + clipped)


def _covers(workload: Workload, count: int, *, allow_partial: bool) -> tuple[bool, list[str]]:
    """Whether so many requests can touch every byte, and what is to be said where they need not."""
    check_record_count(count, f"{count} requests")
    processes = int(workload.process_num)
    if count < processes:
        raise FlextraceError(f"{count} requests are too few for {processes} processes: give one to each at least", 2)
    needed = requests_needed(workload)
    if count >= needed:
        return True, []
    if not allow_partial:
        raise FlextraceError(
            f"{count} requests cannot have all five parameters (uniqueBytes {format_bytes(workload.unique_bytes)} "
            f"in requests of {format_bytes(workload.size_mean)}): give at least {needed} requests",
            2,
        )
    return False, [f"{count} requests touch only a part of uniqueBytes, {needed} are needed: loop it over primed files"]


def _check_share(name: str, share: float) -> None:
    if not 0 <= share <= 1:
        raise FlextraceError(f"{name} is {share:g}: give a number from 0 to 1", 2)


def check_workload(workload: Workload) -> None:
    """Refuse parameters that no trace of Willy's has, with a file for each process.

    Raises
    ------
    FlextraceError
        One is out of its range, or a file is less than a request.
    """
    _check_share("seqFrac", workload.seq_frac)
    _check_share("readFrac", workload.read_frac)
    processes = workload.process_num
    if not (1 <= processes <= PROCESSES_MAX and processes == int(processes)):
        raise FlextraceError(f"processNum is {processes:g}: give a whole number from 1 to {PROCESSES_MAX}", 2)
    if not 1 <= workload.size_mean <= SIZE_BYTES_MAX:
        raise FlextraceError(
            f"sizeMean is {workload.size_mean:g} bytes: give 1 byte to {format_bytes(SIZE_BYTES_MAX)}", 2
        )
    if not workload.unique_bytes >= workload.size_mean * processes:
        raise FlextraceError(
            f"uniqueBytes {format_bytes(workload.unique_bytes)} is less than one request of "
            f"{format_bytes(workload.size_mean)} in each of {processes:g} files: lower sizeMean or processNum, "
            f"or raise uniqueBytes to {workload.size_mean * processes:.0f} bytes",
            2,
        )


def _check(workload: Workload, depth: str, size: str, align_bytes: int, sync_frac: float) -> None:
    check_workload(workload)
    _check_share("the share of syncs", sync_frac)
    if depth not in {*DEPTH_FAMILIES, EMPIRICAL} or size not in {*SIZE_FAMILIES, EMPIRICAL}:
        raise FlextraceError(
            f"depth {depth!r}, size {size!r} is unknown: choose of {DEPTH_FAMILIES}, {SIZE_FAMILIES}, {EMPIRICAL!r}", 2
        )
    if align_bytes < 1:
        raise FlextraceError(f"an alignment of {align_bytes} bytes is not possible: give 1 or more, such as 4096", 2)


def _geometry(workload: Workload, size: str, align_bytes: int, sizes_bytes: Sizes | None) -> Geometry:
    unique, mean, processes = workload.unique_bytes, workload.size_mean, int(workload.process_num)
    slots = round(unique / mean)
    if size == "fixed" and mean % align_bytes == 0 and abs(slots * mean - unique) <= UNIQUE_TOLERANCE * unique:
        # All requests are alike and fit into the files without rest: they start at multiples of their size.
        step = int(mean) // align_bytes
        return Geometry(align_bytes, step, [slots_here * step for slots_here in _split(slots, processes)], step)
    unit = align_bytes
    smallest_mean_units = 2 if size == "bernoulli" else 1  # with one unit in the mean there is no smaller outcome
    while unit > 1 and (
        mean < unit * smallest_mean_units
        or abs(round(unique / unit) * unit - unique) > UNIQUE_TOLERANCE * unique
        or round(unique / unit) // processes * unit < mean
        or (sizes_bytes is not None and _rounded_share(sizes_bytes, unit) > ROUNDED_SHARE_MAX)
    ):
        unit //= 2
    return Geometry(unit, 1, _split(round(unique / unit), processes), mean / unit)


def _rounded_share(sizes_bytes: Sizes, unit: int) -> float:
    """Share of the requests whose sizes whole units miss by more than `ROUNDING`."""
    sizes, shares = sizes_bytes
    return float(shares[np.abs(np.rint(sizes / unit) * unit - sizes) > ROUNDING * sizes].sum())


def _spread_of_sizes(size: str | Sizes, geometry: Geometry) -> float:
    """Coefficient of variation of what is drawn, where the largest requests are those of the smallest file."""
    largest = min(geometry.largest_units(process) for process in range(len(geometry.file_units)))
    return coefficient_of_variation(size, geometry.size_units, largest)


def _split(total: int, parts: int) -> list[int]:
    """`total` in whole `parts` that differ by one at most."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def _starts_by_process(
    workload: Workload, geometry: Geometry, count: int, allow_partial: bool
) -> tuple[list[int], list[str]]:
    """How many requests of every process are not sequential, and a warning if seqFrac had to be lowered."""
    requests = _split(count, len(geometry.file_units))
    fewest = [
        max(1, math.ceil(here * geometry.size_units / file_units - 1e-9))
        for here, file_units in zip(requests, geometry.file_units, strict=True)
    ]
    highest = 1 - sum(fewest) / count
    warnings = []
    if workload.seq_frac > highest + SHARE_TOLERANCE:
        what = (
            f"seqFrac {workload.seq_frac:g} is not possible: files of "
            f"{format_bytes(workload.unique_bytes / len(requests))} hold so few requests of "
            f"{format_bytes(workload.size_mean)} that starting over at their beginning brings it down to {highest:.3g}"
        )
        if not allow_partial:
            raise FlextraceError(f"{what}: lower seqFrac, sizeMean or processNum, or raise uniqueBytes", 2)
        warnings.append(what)
    wanted = np.diff(np.round(np.cumsum([0, *requests]) * (1 - workload.seq_frac))).astype(np.int64)
    return np.clip(wanted, fewest, requests).tolist(), warnings


def _make_records(  # noqa: PLR0917
    workload: Workload,
    geometry: Geometry,
    starts: list[int],
    count: int,
    families: Families,
    sync_frac: float,
    seed: int,
    *,
    covering: bool,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """IO and FILEOP records of every process."""
    generator = np.random.default_rng(seed)
    reads = generator.permutation(count) < round(workload.read_frac * count)
    writes = np.flatnonzero(~reads)
    synced = np.zeros(count, bool)
    synced[generator.permutation(writes)[: round(sync_frac * len(writes))]] = True

    last = np.cumsum([0, *_split(count, len(starts))])
    total_units = np.diff(np.round(last * geometry.size_units)).astype(np.int64)
    parts = []
    for process, (begin, end) in enumerate(itertools.pairwise(last.tolist())):
        offsets, sizes = walk_file(
            geometry,
            process,
            count=end - begin,
            total_units=int(total_units[process]),
            start_count=starts[process],
            depth=families.depth,
            size=families.size,
            covering=covering,
            seed=seed,
        )
        unit = geometry.unit_bytes
        parts.append(_records(process, offsets * unit, sizes * unit, reads[begin:end], synced[begin:end]))
    return parts


def _records(
    process: int, offsets: np.ndarray, sizes: np.ndarray, reads: np.ndarray, synced: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """IO and FILEOP records of one process, numbered through in ``start_ns``."""
    number = np.arange(len(offsets)) + np.cumsum(synced) - synced
    io = np.zeros(len(offsets), IO_DTYPE)
    io["kind"], io["op"] = RecordKind.IO, np.where(reads, IoOp.READ, IoOp.WRITE)
    io["flags"] = IoFlag.POSITIONED
    io["start_ns"] = number
    io["offset"], io["asked_bytes"], io["result"] = offsets, sizes, sizes
    io["missed_bytes"] = NOT_MEASURED_U32
    fileops = np.zeros(int(synced.sum()), FILEOP_DTYPE)
    fileops["kind"], fileops["op"] = RecordKind.FILEOP, Fileop.FDATASYNC
    fileops["start_ns"] = number[synced] + 1
    for records in (io, fileops):
        records["source"] = Source.SYNTHETIC
        records["thread"] = records["process"] = records["file"] = process + 1
    return io, fileops


def _trace(
    parts: list[tuple[np.ndarray, np.ndarray]], geometry: Geometry, metadata: dict, warnings: list[str]
) -> Trace:
    io, fileops = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    io = io[np.argsort(io["start_ns"], kind="stable")]
    fileops = fileops[np.argsort(fileops["start_ns"], kind="stable")]
    io["id"] = np.arange(1, len(io) + 1)
    fileops["id"] = np.arange(len(io) + 1, len(io) + len(fileops) + 1)
    processes = np.arange(1, len(geometry.file_units) + 1)
    files = np.zeros(len(processes), FILE_DTYPE)
    files["kind"], files["type"] = RecordKind.FILE, FileType.REGULAR
    files["file"] = files["inode"] = processes
    files["size_bytes"] = files["resident_bytes"] = np.array(geometry.file_units) * geometry.unit_bytes
    tasks = np.zeros(len(processes), TASK_DTYPE)
    tasks["kind"], tasks["comm"] = RecordKind.TASK, b"willy"
    tasks["thread"] = tasks["process"] = processes
    arrays = {RecordKind.IO: io, RecordKind.FILEOP: fileops, RecordKind.FILE: files, RecordKind.TASK: tasks}
    header = Header(
        flags=HeaderFlag.UNTIMED,
        count={kind: len(array) for kind, array in arrays.items()},
        metadata=metadata,
    )
    return Trace(header, arrays, {int(file): f"willy.{file}" for file in processes}, warnings=warnings)
