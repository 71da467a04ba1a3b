# SPDX-License-Identifier: Apache-2.0
"""Turns the choice between page cache, O_DIRECT and a raw device (thesis 4.5.1.6), and of what is written stable, into
what a replay and its trace have to be told.

A profile carries it in its settings, so that validations measure, and predictions speak of, the same.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError, remedy_of
from characterize.workload import Workload

ENGINES = ("auto", "sync", "io_uring")
BLOCK_SIZES = (512, 1024, 2048, 4096)
"""Larger ones would not fit workloads, whose sizes are multiples of 4 KiB."""
PROBE_BYTES = 1 << 16
DIRECT_FRAC_TOLERANCE = 0.05
SYNC_FRAC_TOLERANCE, SYNC_FRAC_NEGLIGIBLE = 0.1, 0.005
"""Of the larger one of two shares of syncs, as their time is proportional to it; and what is no sync to speak of."""


@dataclass(frozen=True)
class Access:
    """How requests reach storage.

    Attributes
    ----------
    mode : {"buffered", "direct", "device"}
        Files by the page cache; files with O_DIRECT; a block device with O_DIRECT.
    device : str or None
        Of mode device.
    writes : bool
        Whether requests may write; else readFrac is 1 throughout.
    engine : {"auto", "sync", "io_uring"}
    depth : int or None
        Requests in flight in each of processNum processes; None: one.
    sync_frac : float
        Share of the writes that an fdatasync of the process follows (design.md section 4, syncFrac).
    dsync : bool
        Whether writes have O_DSYNC.
    """

    mode: str = "buffered"
    device: str | None = None
    writes: bool = True
    engine: str = "auto"
    depth: int | None = None
    sync_frac: float = 0.0
    dsync: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Access:
        """That of a profile's settings, unknown keys ignored; profiles without one were measured by the page cache."""
        document = settings.get("access", {})
        return cls(**{name: document[name] for name in cls.__dataclass_fields__ if name in document})

    @property
    def cached(self) -> bool:
        """Whether the page cache takes part."""
        return self.mode == "buffered"

    @property
    def stable(self) -> bool:
        """Whether the workloads have what they write made stable, so that their throughput has the time of that."""
        return self.dsync or self.sync_frac > 0

    @property
    def syncs(self) -> str:
        """The same in words."""
        if self.dsync:
            return "O_DSYNC on every write"
        if not self.sync_frac:
            return "no sync"
        return f"an fdatasync behind {'every write' if self.sync_frac == 1 else f'{self.sync_frac:.3g} of the writes'}"

    @property
    def classic(self) -> str:
        """What predictions take for granted, in words."""
        cache = "warm cache, overwrites, buffered" if self.cached else "overwrites, O_DIRECT"
        return f"{'' if self.stable else 'classic behaviour: '}{cache}, {self.syncs}, no think time"

    def dirty_bytes_max(self, workload: Workload) -> float:
        """Bytes that a workload leaves dirty in the page cache: in the mean, what is written between a file's syncs.

        Each of its processes has a file of its own.
        """
        if self.dsync:
            return 0.0
        return workload.process_num * workload.size_mean / self.sync_frac if self.sync_frac else math.inf

    def as_document(self) -> dict[str, Any]:
        """The reverse of `of`."""
        return asdict(self)

    def replay_options(self, confirm: str | None) -> dict[str, Any]:
        """Options of `replayer.run.replay`.

        Parameters
        ----------
        confirm : str or None
            Serial number or size of the device, where it is to be written.
        """
        # The trace of a point says how much of each file is to be cached (selfscale.measuring.point_trace.write_willy).
        options: dict[str, Any] = {"cache": "recorded" if self.cached else "cold"}
        if self.mode == "direct":
            options["direct"] = "on"
        if self.mode == "device":
            options |= {"device": self.device, "confirm": confirm if self.writes else None}
        if self.engine != "auto":
            options["engine"] = self.engine
        if self.depth is not None:
            options["depth"] = self.depth
        return options

    def contradictions(self, extended: Mapping[str, Any], *, simulated: bool = False) -> list[str]:
        """In which of its extended parameters a trace does not go about storage as the profile's workloads did.

        Parameters
        ----------
        extended : mapping
        simulated : bool
            The operations of the trace are, with their syncs, which then need not be among those of the profile.
        """
        warnings = [] if simulated else self._other_syncs(extended)
        direct = extended.get("directFrac")
        if isinstance(direct, float) and math.isfinite(direct):
            expected = 0.0 if self.cached else 1.0
            if abs(direct - expected) > DIRECT_FRAC_TOLERANCE:
                other, own = ("O_DIRECT", "buffered") if self.cached else ("buffered", "O_DIRECT")
                warnings.append(
                    f"{abs(direct - expected):.0%} of the trace's requests are {other}, the profile was measured "
                    f"{own}: measure one with 'flextrace scale{' --direct' if self.cached else ''}'"
                )
        if (self.depth or 1) > 1:
            warnings.append(
                f"the profile has {self.depth} requests in flight in each process: processNum counts processes, not "
                "requests in flight"
            )
        return warnings

    def _other_syncs(self, extended: Mapping[str, Any]) -> list[str]:
        warnings = []
        syncs = extended.get("syncFrac")
        if isinstance(syncs, float) and math.isfinite(syncs):
            tolerance = SYNC_FRAC_NEGLIGIBLE + SYNC_FRAC_TOLERANCE * max(syncs, self.sync_frac)
            if abs(syncs - self.sync_frac) > tolerance:
                nearest = min(1.0, syncs) if syncs > SYNC_FRAC_NEGLIGIBLE else 0.0
                option = f" --sync-frac {nearest:.2g}" if nearest else ""
                remedy = f": measure one with 'flextrace scale{option}'" if nearest != self.sync_frac else ""
                warnings.append(
                    f"the trace has {syncs:.2g} syncs per write, the profile was measured with {self.syncs}{remedy}"
                )
        stable = extended.get("syncWriteFrac")
        if isinstance(stable, float) and math.isfinite(stable) and abs(stable - self.dsync) > DIRECT_FRAC_TOLERANCE:
            remedy = "" if self.dsync else " --dsync"
            warnings.append(
                f"{stable:.0%} of the trace's writes have O_SYNC or O_DSYNC, the profile was measured with "
                f"{self.syncs}: measure one with 'flextrace scale{remedy}'"
            )
        return warnings


BUFFERED = Access()


def direct_block_bytes(directory: Path) -> int:
    """Smallest request that O_DIRECT takes in a directory without a page of the page cache.

    It is tried, as file systems have limits of their own and serve by the page cache what they do not take: btrfs
    smaller reads than its blocks, tmpfs everything.

    Raises
    ------
    FlextraceError
        There is none.
    """
    buffer = mmap.mmap(-1, PROBE_BYTES)
    try:
        descriptor, name = tempfile.mkstemp(prefix=".flextrace-direct-", dir=directory)
        os.close(descriptor)
        path = Path(name)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
            try:
                os.pwritev(descriptor, [buffer], 0)
                os.fdatasync(descriptor)
                block_bytes = next((size for size in BLOCK_SIZES if _reads_direct(descriptor, buffer, size)), None)
            finally:
                os.close(descriptor)
        finally:
            path.unlink()
    except OSError as error:
        if remedy := remedy_of(error):
            raise FlextraceError(f"cannot write in {directory}: {error.strerror}{remedy}") from error
        raise FlextraceError(
            f"{directory} takes no O_DIRECT ({error.strerror}): leave --direct out, or give a directory on a disk", 2
        ) from error
    if block_bytes is None:
        raise FlextraceError(
            f"the file system of {directory} serves O_DIRECT by the page cache, or in blocks of more than 4 KiB: leave "
            "--direct out, or give a directory on a disk",
            2,
        )
    return block_bytes


def _reads_direct(descriptor: int, buffer: mmap.mmap, size: int) -> bool:
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        done = os.preadv(descriptor, [memoryview(buffer)[:size]], size)
    except OSError:
        return False
    return done == size and not _any_resident(descriptor)


def _any_resident(descriptor: int) -> bool:
    """Whether a page of the first `PROBE_BYTES` of a file is in the page cache, by mincore(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    states = (ctypes.c_ubyte * (PROBE_BYTES // mmap.PAGESIZE))()
    with mmap.mmap(descriptor, PROBE_BYTES) as pages:
        start = ctypes.c_char.from_buffer(pages)
        failed = libc.mincore(ctypes.byref(start), ctypes.c_size_t(PROBE_BYTES), states)
        del start
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return any(state & 1 for state in states)
