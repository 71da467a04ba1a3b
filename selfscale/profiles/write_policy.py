# SPDX-License-Identifier: Apache-2.0
"""Turns points inside the file cache into its write policy (Chen & Patterson 1994, 4.2).

*Write-through*: every write goes to storage, whether or not a buffer lets the writer continue meanwhile. *Write-
cancelling* (write-back): a block that is written again before it went out goes out once. Operating systems' authors
confused a write buffer with write-back; bytes tell them apart. The kernel counts, for the process that writes, the
bytes of pages that were clean and became dirty: rewriting a page that waits in the cache costs nothing, rewriting one
that went out at once costs its bytes each time.

Where the kernel does not count (tmpfs, some network file systems), the papers' sign remains: inside the cache, writes
of a write-through system are as slow as the disk and reads are not (thesis 4.5.1.5, figure 4.12b; 1994, figure 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from selfscale.measure import Point
from selfscale.profile import Region
from selfscale.profiles.direction_caches import READS, UNCACHED_FRAC, WRITES, fastest, of_direction
from selfscale.profiles.regions import CACHED_DEVICE_FRAC

THROUGH, CANCELLING, UNCACHED, UNDECIDED = "write-through", "write-cancelling", "uncached", "undecided"
SYNCED = "synced"
"""The workloads themselves have what they write sent to storage, whatever the policy is."""

THROUGH_FRAC = 0.9
"""From this share of the written bytes on: all went to storage (the rest is what was in flight at the ends), unless
writes are that much faster than beyond the cache that large folios must have been counted for a few flushed pages."""
CANCELLED_FRAC = 0.5
"""Up to this share: most writes were cancelled. Between the two the policy is not told."""
MUCH = 4.0
"""By throughput only: "much slower than reads", and "much faster than the disk"."""
ALIKE = 1.6
"""By throughput only: as fast as the disk, as in `selfscale.profiles.regions.DROP_MIN`."""


@dataclass(frozen=True)
class WritePolicy:
    """What the file cache does with writes.

    Attributes
    ----------
    kind : str
        `THROUGH`, `CANCELLING`, `UNCACHED`, `SYNCED` or `UNDECIDED`.
    basis : str
        ``traffic``, or ``throughput`` where that is not counted; empty where nothing was measured.
    unique_bytes : float or None
        Where it was measured.
    written_frac : float or None
        Bytes that went to storage over bytes written there, as the kernel counts them. Far above 1 where only the
        account of the process tells them and the cache keeps pages in large folios, since a write to one of their
        pages counts the whole folio.
    read_bytes_per_s, write_bytes_per_s : float or None
        There, reads only and writes only.
    steady : bool
        Whether the runs that it rests on were.
    """

    kind: str
    basis: str = ""
    unique_bytes: float | None = None
    written_frac: float | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    steady: bool = True


def write_policy(points: Sequence[Point], regions: Sequence[Region], *, synced: bool = False) -> WritePolicy:
    """Classify a machine's file cache by the smallest uniqueBytes at which writes alone were measured.

    Parameters
    ----------
    points : sequence of Point
        Of a profile.
    regions : sequence of Region
    synced : bool
        Whether its workloads have what they write made stable.
    """
    reads, writes = (of_direction(points, regions, frac) if regions else {} for frac in (READS, WRITES))
    if not writes or not reads:
        return WritePolicy(UNDECIDED)
    # The smallest of each: that of writes may be smaller, where it was looked for a cache of theirs.
    (read, *_), (write, *_) = ([fastest(measured) for measured in curve.values()] for curve in (reads, writes))
    far_read, far_write = (fastest(list(curve.values())[-1]) for curve in (reads, writes))
    rests_on: list[Point] = [read, write]
    sign = _by_throughput(read, write, far_read, far_write)
    kind, basis = _by_traffic(read, write), "traffic"
    if not kind or not _counted(points):
        kind, basis = sign, "throughput"
        rests_on += [far_read, far_write]
    elif (kind, sign) == (THROUGH, CANCELLING):
        kind = UNDECIDED
    if synced and kind != UNCACHED:
        kind = SYNCED
    return WritePolicy(
        kind,
        basis,
        write.workload.unique_bytes,
        write.device_frac if basis == "traffic" else None,
        read.throughput_bytes_per_s,
        write.throughput_bytes_per_s,
        all(point.steady for point in rests_on),
    )


def _counted(points: Sequence[Point]) -> bool:
    """Whether the kernel counts what this file system moves: of some workload, anything reached storage."""
    return any((point.device_frac or 0.0) >= CACHED_DEVICE_FRAC for point in points)


def _by_traffic(read: Point, write: Point) -> str:
    if read.device_frac is None or write.device_frac is None:
        return ""
    if read.device_frac > UNCACHED_FRAC:
        return UNCACHED  # so its writes say nothing of a cache
    if write.device_frac >= THROUGH_FRAC:
        return THROUGH
    return CANCELLING if write.device_frac <= CANCELLED_FRAC else UNDECIDED


def _by_throughput(read: Point, write: Point, far_read: Point, far_write: Point) -> str:
    """The papers' sign; `far` are the largest uniqueBytes, which storage serves."""
    cached, written, fetched, stored = (point.throughput_bytes_per_s for point in (read, write, far_read, far_write))
    if cached < MUCH * fetched:
        return UNDECIDED  # without a fall of the reads nothing tells the cache's speed from the disk's
    if written >= MUCH * stored:
        return CANCELLING
    return THROUGH if cached >= MUCH * written and written < ALIKE * stored and far_write is not write else UNDECIDED
