# SPDX-License-Identifier: Apache-2.0
"""Turns a workload into the trace that its point replays, as long as it must be.

How long the trace must be
    The trace is repeated (``--loop``). A repeated trace touches the same bytes in the same order again and again, so
    one pass must touch all of uniqueBytes U (Willy sees to that with U / s requests of size s) and must do so
    several times, or every reuse would lie one whole pass back and a cache would hit always or never: N = 4 U / s.
    Where that is more records than the run can use (or than the cap of 4 M records, 256 MB), the trace is as long as
    the run can be and is *not* repeated: a fresh random sequence has the full working set even where it never touches
    all of it, while a short one repeated would not. A run that comes to the end of such a trace stops there. From a
    warm cache of M bytes the share of hits is M / U in both cases.

    Every pass writes the same blocks. Where few requests write, N requests write few of U's blocks, which could stay
    dirty below the kernel's limit for ever, while in the workload all blocks come to be written: so it is the *writes*
    that go four times over U, N = 4 U / s / (1 - readFrac), up to `WRITTEN_REQUESTS_MAX`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from characterize.workload import Workload

if TYPE_CHECKING:
    from characterize.trace import Trace

COVERAGE = 4.0
"""Times that a repeated trace goes over uniqueBytes in one pass."""
REQUESTS_MIN, REQUESTS_MAX = 20_000, 4_000_000
WRITTEN_REQUESTS_MAX = 2_000_000
"""More are not made for the sake of the writes alone: that many take a second to make."""
REQUESTS_PER_S_MAX = 1_000_000
"""No machine makes more buffered requests a second per thread; bounds a trace that is not repeated."""
SCATTERED_RUN_BYTES_MAX = 256 * 1024
"""Mean length of runs up to which the cache begins with what was used last, wherever that is. Of longer ones little is
scattered, and the engine can bring the first part of a file into the cache in large folios, as they do."""


def trace_length(workload: Workload, max_seconds: float, sync_frac: float = 0.0) -> tuple[int, bool]:
    """Requests of the trace, and whether it may be repeated (see the top of this file).

    Parameters
    ----------
    workload : Workload
    max_seconds : float
        Of the run.
    sync_frac : float
        Syncs per write, which are records of the trace, too.

    Returns
    -------
    requests : int
    loop : bool
        False where the trace is too short to stand for uniqueBytes when repeated.
    """
    cover = math.ceil(COVERAGE * workload.unique_bytes / workload.size_mean)
    write_frac = 1 - workload.read_frac
    written = math.ceil(min(cover / write_frac, WRITTEN_REQUESTS_MAX)) if write_frac > 0 else 0
    usable = math.ceil(REQUESTS_PER_S_MAX * max_seconds * workload.process_num)
    most = math.floor(REQUESTS_MAX / (1 + write_frac * sync_frac))
    requests = max(REQUESTS_MIN, min(max(cover, written), usable, most))
    return requests, requests >= cover


def write_willy(
    workload: Workload,
    path: Path,
    requests: int,
    seed: int,
    *,
    device: str | None = None,
    cache_bytes: float = math.inf,
    cached_share: float = 1.0,
    sync_frac: float = 0.0,
    dsync: bool = False,
    gap_ns: int = 0,
    computing: bool = False,
    first_file: int = 1,
) -> None:
    """Willy's trace, on files or laid end to end on a device.

    Parameters
    ----------
    cache_bytes, cached_share : float
        In the cache at the begin: equal shares of all files, as much as it holds, and no more than this of each. Of
        short runs it is what the trace used last (`selfscale.measuring.last_used`), else the first part of each.
    sync_frac : float
        Syncs per write.
    dsync : bool
        Writes have O_DSYNC.
    gap_ns : int
        Between the starts of two requests; 0: the trace has no times.
    computing : bool
        Where it has times: each process has a processor all the time between its requests.
    first_file : int
        Number of the first process's file.
    """
    import numpy as np  # noqa: PLC0415 (this, pandas and Willy only when something is measured)

    import characterize  # noqa: PLC0415
    from characterize.layout import PROCESSOR_SHARE_ALL, HeaderFlag, IoFlag, IoOp, RecordKind  # noqa: PLC0415
    from characterize.stream import stream_of  # noqa: PLC0415
    from replayer.devices.device_trace import geometry_of, make_device_trace  # noqa: PLC0415
    from replayer.willy import make_trace  # noqa: PLC0415
    from selfscale.measuring.last_used import last_used  # noqa: PLC0415

    trace = make_trace(workload, requests=requests, seed=seed, sync_frac=sync_frac, allow_partial=True)
    move_files(trace, first_file)
    io, fileops = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILEOP]
    if dsync:
        io["flags"][io["op"] == IoOp.WRITE] |= np.uint32(IoFlag.DSYNC)
    if gap_ns:
        # A sync comes right behind its write.
        fileops["start_ns"] = np.searchsorted(io["start_ns"], fileops["start_ns"] - 1) * gap_ns + 1
        io["start_ns"] = np.arange(len(io)) * gap_ns
        io["processor_share"] = PROCESSOR_SHARE_ALL if computing else 0
        trace.header.flags &= ~HeaderFlag.UNTIMED
    if device is None:
        share = min(cached_share, cache_bytes / workload.unique_bytes)
        files = trace.arrays[RecordKind.FILE]
        files["resident_bytes"] = (share * files["size_bytes"]).astype("u8")
        run_bytes = workload.size_mean / max(1 - workload.seq_frac, 1e-9)
        if 0 < share < 1 and run_bytes <= SCATTERED_RUN_BYTES_MAX:
            ranges = last_used(trace, share)
            trace.arrays[RecordKind.RESIDENT] = ranges
            trace.header.count[RecordKind.RESIDENT] = len(ranges)
        characterize.write(trace, path)
    else:
        make_device_trace(stream_of(trace), path, geometry_of(Path(device)))


def move_files(trace: Trace, first_file: int) -> None:
    """Give Willy's files numbers from this one on instead of 1, in place."""
    from characterize.layout import RecordKind  # noqa: PLC0415

    for kind in (RecordKind.IO, RecordKind.FILEOP, RecordKind.FILE):
        trace.arrays[kind]["file"] += first_file - 1
