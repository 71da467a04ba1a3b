# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into operations on pages that can be run on another machine: think times, processor times, places.

What another machine changes is how long a request waits for storage. The rest stays as recorded: what a thread does
between two operations, and the processor's time of a request that waits for nothing. A trace that has not run yet has
the former in its schedule and the latter of its parent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from characterize.durations_of import durations_of
from characterize.errors import FlextraceError
from characterize.layout import NOT_MEASURED_U32, Fileop, IoFlag, IoOp, RecordKind
from characterize.processor_share import processor_shares
from characterize.requests import OFFSET_MAX, left_out, missed_bytes_of
from characterize.response_time import MS_SYNC
from characterize.run_delay import run_delay_shares
from characterize.trace import Trace
from selfscale.simulation.file_pages import file_pages
from selfscale.simulation.pauses import Pauses, pauses_of
from selfscale.simulation.processor_times import processor_times
from selfscale.simulation.read_ahead_rules import PAGE_BYTES
from selfscale.simulation.recorded_waits import Waits, recorded_waits

OPERATIONS_MAX = 4_000_000
"""They are run nine times, at about a microsecond each."""
RENAMES = (Fileop.RENAME, Fileop.UNLINK, Fileop.MKDIR, Fileop.RMDIR, Fileop.LINK, Fileop.SYMLINK)
"""What changes names in a directory, beside an open that makes a file."""


class Kind(IntEnum):
    """What an operation does to the cache."""

    READ = 0
    WRITE = 1
    DISCARD = 2
    SYNC = 3
    DIRECTORY_SYNC = 4
    FLUSH = 5
    FETCH = 6
    GIVE_BACK = 7
    NO_READ_AHEAD = 8
    USUAL_READ_AHEAD = 9
    MORE_READ_AHEAD = 10
    NONE = 11


ADVICE = {
    os.POSIX_FADV_NORMAL: Kind.USUAL_READ_AHEAD,
    os.POSIX_FADV_RANDOM: Kind.NO_READ_AHEAD,
    os.POSIX_FADV_SEQUENTIAL: Kind.MORE_READ_AHEAD,
    os.POSIX_FADV_WILLNEED: Kind.FETCH,
    os.POSIX_FADV_DONTNEED: Kind.GIVE_BACK,
}
"""What Linux makes of posix_fadvise (mm/fadvise.c, generic_fadvise); of the rest nothing that is simulated."""
RANGED = (Kind.FLUSH, Kind.FETCH, Kind.GIVE_BACK)


@dataclass(frozen=True)
class Operations:
    """n operations in the order of their starts, by m threads, on f files that lie end to end in p pages and that r
    readers have open.

    Attributes
    ----------
    kind : ndarray of int8, shape (n,)
        `Kind`.
    thread, reader : ndarray of int64, shape (n,)
        From 0. A reader is a file as one process has it open.
    first, pages, size_bytes : ndarray of int64, shape (n,)
        First page and number of pages; of a discard the first that is dropped.
    head, tail : ndarray of bool, shape (n,)
        The first, or last, page is written in part.
    direct, synced : ndarray of bool, shape (n,)
        Passes the cache by; is a write that ends when it is durable.
    processor_ns, gap_ns : ndarray of float64, shape (n,)
        Without waiting for storage, but of syncs as recorded; from the end of the thread's operation before, or from
        its start where `together`, without what the thread slept for the one that this one `waits_for`.
    wait_gap_ns : ndarray of float64, shape (n,)
        From the end of the one that it waits for; it begins when both have passed.
    computing_ns : ndarray of float64, shape (n,)
        Of the gap, for how long the thread had a processor; NaN: not measured.
    run_delay_ns : ndarray of float64, shape (n,)
        What a thread that has waited for storage waits for a processor then: as recorded, or the mean of those that
        waited for storage where this one did not; 0 where that was not recorded.
    together : ndarray of bool, shape (n,)
        Starts before the thread's operation before has ended (asynchronous I/O).
    waits_for : ndarray of int64, shape (n,)
        Operation of another thread for whose end this one's thread waited; -1: for none.
    after : ndarray of int64, shape (m,)
        Operation whose end a thread's first one follows; -1: the begin.
    reader_file : ndarray of int64, shape (r,)
    file_begin, file_end : ndarray of int64, shape (f,)
        Pages of every file, beyond its end one that is nobody's.
    stored : ndarray of bool, shape (p,)
        What storage holds at the begin.
    cached : ndarray of int64
        Pages that are cached at the begin. The trace does not say when they were used: taken for the one used longest
        ago is the first one, in the order of files and places.
    span_s : float
        From the first operation to the end of the last one, as recorded.
    size_factor : float
        Requests are so many times as large as those whose `processor_ns` they have.
    """

    kind: np.ndarray
    thread: np.ndarray
    reader: np.ndarray
    first: np.ndarray
    pages: np.ndarray
    size_bytes: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    direct: np.ndarray
    synced: np.ndarray
    processor_ns: np.ndarray
    gap_ns: np.ndarray
    wait_gap_ns: np.ndarray
    computing_ns: np.ndarray
    run_delay_ns: np.ndarray
    together: np.ndarray
    waits_for: np.ndarray
    after: np.ndarray
    reader_file: np.ndarray
    file_begin: np.ndarray
    file_end: np.ndarray
    stored: np.ndarray
    cached: np.ndarray
    span_s: float
    size_factor: float = 1.0

    @property
    def moves(self) -> np.ndarray:
        """Which are requests, shape (n,)."""
        return self.kind <= Kind.WRITE


def operations_of(trace: Trace) -> Operations:
    """The operations of a recording, or of a trace that was made of one and has its schedule.

    Raises
    ------
    FlextraceError
        There is no request, the trace does not say what was cached, or there is too much of it.
    """
    durations = durations_of(trace)
    io, fileops = _records(trace)
    _check(trace, io, fileops)
    columns = _in_order(trace, io, fileops)
    kind, offset, size_bytes = columns["kind"], columns["offset"], columns["size_bytes"]
    start, end = columns["start_ns"], columns["start_ns"] + columns["duration_ns"]
    files, file = np.unique(columns["file"], return_inverse=True)
    _keep_what_lives(kind, columns["operation"], file)
    threads, thread = np.unique(columns["thread"], return_inverse=True)
    opened, reader = np.unique(np.stack((file, columns["process"])), axis=1, return_inverse=True)
    moves = kind <= Kind.WRITE
    places = file_pages(trace, files, file[moves], (offset + size_bytes)[moves])
    first, behind = _pages_of(kind, offset, size_bytes, places.begin[file], places.end[file])
    waits = recorded_waits(trace, columns["thread"], start, end)
    pauses = pauses_of(thread, start, end, *_processes(trace, threads), recorded=waits)
    measured = columns | {
        "duration_ns": columns["duration_ns"] / durations.time_factor,
        "size_bytes": size_bytes / durations.size_factor,
    }
    processor_ns = measured["duration_ns"].copy()
    processor_ns[moves] = processor_times({name: column[moves] for name, column in measured.items()})
    return Operations(
        kind=kind,
        thread=thread,
        reader=reader,
        first=first,
        pages=behind - first,
        size_bytes=size_bytes,
        head=offset % PAGE_BYTES != 0,
        tail=(offset + size_bytes) % PAGE_BYTES != 0,
        direct=columns["direct"],
        synced=columns["synced"],
        processor_ns=processor_ns,
        gap_ns=pauses.gap_ns,
        wait_gap_ns=pauses.wait_gap_ns,
        computing_ns=_computing_ns(pauses, waits, columns["processor_share"]),
        run_delay_ns=_run_delays(measured),
        together=pauses.together,
        waits_for=pauses.waits_for,
        after=pauses.after,
        reader_file=opened[0],
        file_begin=places.begin,
        file_end=places.end,
        stored=places.stored,
        cached=places.cached,
        span_s=float(end.max() - start[0]) / 1e9,
        size_factor=durations.size_factor,
    )


def _computing_ns(pauses: Pauses, waits: Waits | None, processor_share: np.ndarray) -> np.ndarray:
    """`Operations.computing_ns`; the share is of the whole time since the thread's operation before."""
    if waits is None:
        # What follows another thread's end has a shorter gap than the one that the share is of.
        return np.where(pauses.waits_for < 0, processor_share * pauses.gap_ns, np.nan)
    return np.minimum(processor_share * (pauses.gap_ns + waits.slept_ns), pauses.gap_ns)


def _records(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """IO records that are requests, and FILEOP records that succeeded."""
    io = trace.arrays[RecordKind.IO]
    fileops = trace.arrays[RecordKind.FILEOP]
    return io[(io["result"] > 0) & ~left_out(trace)], fileops[fileops["result"] >= 0]


def _check(trace: Trace, io: np.ndarray, fileops: np.ndarray) -> None:
    """Refuse what cannot be simulated."""
    if not len(io):
        raise FlextraceError("the trace has no request of an application")
    if len(io) + len(fileops) > OPERATIONS_MAX:
        raise FlextraceError(
            f"the trace has {len(io) + len(fileops):,} operations, {OPERATIONS_MAX:,} can be simulated; "
            "take a part of it with 'flextrace cut'"
        )
    reads = io["op"] == IoOp.READ
    # In a trace that has not run, those that were reads say it, whatever they are now.
    if reads.any() and (missed_bytes_of(io[reads] if trace.measured else io) == NOT_MEASURED_U32).all():
        raise FlextraceError("the trace does not say which reads were cached; record the application with flextrace")


def _in_order(trace: Trace, io: np.ndarray, fileops: np.ndarray) -> dict[str, np.ndarray]:
    """One table of both in the order of the starts, and which have become of the ``other_kind`` than was recorded."""
    columns = _columns(io, fileops)
    columns["other_kind"] = np.zeros(len(columns["kind"]), bool)
    if not trace.measured:
        # Only of reads it is measured what they missed, and it stays the parent's (`replayer.flexible.draft`).
        columns["other_kind"][: len(io)] = (io["op"] == IoOp.READ) == (missed_bytes_of(io) == NOT_MEASURED_U32)
    order = np.argsort(columns["start_ns"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    columns["kind"][_unchanged(columns)] = Kind.NONE
    return columns


def _columns(io: np.ndarray, fileops: np.ndarray) -> dict[str, np.ndarray]:
    """One table of both."""
    operation, flags = fileops["op"], fileops["flags"]
    truncated = operation == Fileop.TRUNCATE
    emptied = (operation == Fileop.UNLINK) | ((operation == Fileop.OPEN) & ((flags & IoFlag.TRUNCATED) != 0))
    measured = np.isin(operation, (Fileop.FSYNC, Fileop.FDATASYNC))
    synced = measured | ((operation == Fileop.MSYNC) & ((flags >> 16 & MS_SYNC) != 0))
    of_directory = synced & ((flags & IoFlag.DIRECTORY) != 0)
    flushed = operation == Fileop.SYNC_FILE_RANGE
    advised = [(operation == Fileop.FADVISE) & (flags >> 16 == advice) for advice in ADVICE]
    kinds = np.select(
        # Advice is for a descriptor, and here for the process's file until that is opened again.
        [truncated | emptied, of_directory, synced, flushed, operation == Fileop.OPEN, *advised],
        [Kind.DISCARD, Kind.DIRECTORY_SYNC, Kind.SYNC, Kind.FLUSH, Kind.USUAL_READ_AHEAD, *ADVICE.values()],
        Kind.NONE,
    )
    ranged = np.isin(kinds, RANGED)
    begin = np.minimum(fileops["argument"], OFFSET_MAX)
    # A length of 0 is all to the end.
    length = np.minimum(np.where(fileops["length"] == 0, OFFSET_MAX, fileops["length"]), OFFSET_MAX - begin)
    delays = np.where(measured, run_delay_shares(flags), np.nan)
    renames = np.isin(operation, RENAMES) | ((operation == Fileop.OPEN) & ((flags & IoFlag.CREATED) != 0))
    none, missed = np.zeros(len(fileops), np.int64), missed_bytes_of(io)
    pairs = {
        "kind": (np.where(io["op"] == IoOp.READ, Kind.READ, Kind.WRITE), kinds),
        "operation": (np.zeros(len(io)), operation),
        "start_ns": (io["start_ns"], fileops["start_ns"]),
        # What ran took time, also where the clock did not see it.
        "duration_ns": (np.maximum(io["duration_ns"], 1), np.maximum(fileops["duration_ns"], 1)),
        "thread": (io["thread"], fileops["thread"]),
        "process": (io["process"], fileops["process"]),
        "file": (io["file"], fileops["file"]),
        "offset": (io["offset"], np.where(truncated | ranged, begin, 0)),
        "size_bytes": (io["result"], np.where(ranged, length, 0)),
        "missed_bytes": (np.where(missed == NOT_MEASURED_U32, 0, missed), none),
        "direct": ((io["flags"] & IoFlag.DIRECT) != 0, none),
        "synced": ((io["op"] == IoOp.WRITE) & ((io["flags"] & (IoFlag.SYNC | IoFlag.DSYNC)) != 0), none),
        "renames": (np.zeros(len(io)), renames),
        "processor_share": (processor_shares(io["processor_share"]), processor_shares(fileops["processor_share"])),
        "run_delay_share": (run_delay_shares(io["flags"]), delays),
    }
    types: dict[str, type] = {"kind": np.int8, **dict.fromkeys(("direct", "synced", "renames"), bool)}
    types |= dict.fromkeys(("processor_share", "run_delay_share"), float)
    return {name: np.concatenate(pair).astype(types.get(name, np.int64)) for name, pair in pairs.items()}


def _run_delays(columns: dict[str, np.ndarray]) -> np.ndarray:
    """`Operations.run_delay_ns`."""
    delay_ns = columns["run_delay_share"] * columns["duration_ns"]
    read, sync = columns["kind"] == Kind.READ, np.isin(columns["kind"], (Kind.SYNC, Kind.DIRECTORY_SYNC))
    waited = (sync | (read & (columns["missed_bytes"] > 0))) & np.isfinite(delay_ns)
    for alike in (read, sync):
        known = alike & waited
        delay_ns[alike & ~waited] = delay_ns[known].mean() if known.any() else 0.0
    return np.where(read | sync, delay_ns, 0.0)


def _processes(trace: Trace, threads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Process of every thread, and the process that started it, shape (m,); -1 of what the trace does not describe."""
    tasks = trace.arrays[RecordKind.TASK]
    numbers, first = np.unique(tasks["thread"], return_index=True)
    place = np.minimum(np.searchsorted(numbers, threads), max(len(numbers) - 1, 0))
    described = numbers[place] == threads if len(numbers) else np.zeros(len(threads), bool)
    process, parent = np.full(len(threads), -1, np.int64), np.full(len(threads), -1, np.int64)
    process[described] = tasks["process"][first[place[described]]]
    parent[described] = tasks["parent_process"][first[place[described]]]
    return process, parent


def _unchanged(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Syncs of directories since the last one of which no name has changed, of whichever directory; shape (n,)."""
    unchanged = np.zeros(len(columns["file"]), bool)
    syncs = np.flatnonzero(columns["kind"] == Kind.DIRECTORY_SYNC)
    syncs = syncs[np.argsort(columns["file"][syncs], kind="stable")]
    file, renames = columns["file"][syncs], np.cumsum(columns["renames"])[syncs]
    before = np.where(file[1:] == file[:-1], renames[:-1], 0)
    unchanged[syncs] = renames == np.append(0, before)[: len(syncs)]
    return unchanged


def _keep_what_lives(kind: np.ndarray, operation: np.ndarray, file: np.ndarray) -> None:
    """Let an unlink drop nothing, in place, where its file has another name, or is used after that.

    What is used without a name is dropped by the close behind the last request. `file` is numbered from 0.
    """
    named = np.flatnonzero(np.isin(operation, (Fileop.LINK, Fileop.UNLINK)))
    named = named[np.argsort(file[named], kind="stable")]
    change = np.where(operation[named] == Fileop.LINK, 1, -1)
    total = np.cumsum(change)
    names = 1 + total - (total - change)[np.searchsorted(file[named], file[named])]
    last = np.full(file.max() + 1, -1)
    np.maximum.at(last, file, np.where(kind <= Kind.WRITE, np.arange(len(kind)), -1))
    unlinks, gone = named[change < 0], names[change < 0] <= 0
    used = last[file[unlinks]] > unlinks
    kind[unlinks[used | ~gone]] = Kind.NONE
    closes = np.flatnonzero((operation == Fileop.CLOSE) & np.isin(file, file[unlinks[used & gone]]))
    closes = closes[closes > last[file[closes]]]
    kind[closes[np.unique(file[closes], return_index=True)[1]]] = Kind.DISCARD


def _pages_of(
    kind: np.ndarray, offset: np.ndarray, size_bytes: np.ndarray, file_begin: np.ndarray, file_end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """First page of every operation and the one behind its last, shape (n,)."""
    # What is dropped in part stays.
    inside, up = np.isin(kind, (Kind.DISCARD, Kind.GIVE_BACK)), PAGE_BYTES - 1
    first = np.minimum(file_begin + (offset + np.where(inside, up, 0)) // PAGE_BYTES, file_end)
    behind = np.minimum(file_begin + (offset + size_bytes + np.where(inside, 0, up)) // PAGE_BYTES, file_end)
    return first, np.where((kind <= Kind.WRITE) | np.isin(kind, RANGED), np.maximum(first, behind), first)
