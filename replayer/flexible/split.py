# SPDX-License-Identifier: Apache-2.0
"""Turns the threads of a trace into more of them: the runs of a thread are dealt to several that work at once.

The requests stay what they are, and nearly in the order in which they were: number, sizes, directions, places, and
with them the miss-ratio curve and reuse. A run stays with one thread, so that what was sequential is. Where runs are so
long that few could be under way at once, they are cut; a cut costs one sequential request, and all cuts together no
more than `CUTS_SHARE` of the requests. What is kept of the order is said in `replayer.flexible.deal`. What moves is the
time that the whole takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from characterize.counting.intervals import overlap_at_starts
from characterize.layout import FileFlag, Fileop, IoFlag, IoOp
from replayer.flexible.curve import CURVE_HELD, apart, curve_of_requests
from replayer.flexible.deal import (
    CHANGES,
    LOOKS_UP,
    NO_NAME,
    READS,
    RENAMES,
    SYNCS,
    SYNCS_ALL,
    WRITES,
    Operations,
    deal,
)
from replayer.flexible.draft import Draft, UnreachableError
from replayer.flexible.reschedule import think_times

CUTS_SHARE = 0.004
# Moments at which the wanted number of requests could meet: looked at, and tried.
MOMENTS, MEETINGS_MAX = 512, 24
SYNC_OPERATIONS = (Fileop.FSYNC, Fileop.FDATASYNC, Fileop.SYNC_FILE_RANGE, Fileop.MSYNC, Fileop.FADVISE)
NAMING = (Fileop.RENAME, Fileop.UNLINK, Fileop.LINK, Fileop.SYMLINK, Fileop.MKDIR, Fileop.RMDIR)


def split_threads(draft: Draft, target: int, width: dict[int, int]) -> None:
    """Deal the work of threads to more of them until `target` requests are in flight at once.

    Parameters
    ----------
    draft : Draft
    target : int
    width : dict of int to int
        Requests in flight of every thread at the busiest moment, by id.

    Raises
    ------
    UnreachableError
        The message has how many are reached.
    """
    threads = np.unique(np.concatenate([draft.io["thread"], draft.fileops["thread"]]))
    children = _children(threads, target, width)
    first_child = np.concatenate([[0], np.cumsum(children)])
    unit, longest, pieces = _units(draft, threads[children > 1])
    operations = _operations(draft, threads, unit)
    schedule = _nearest_order(draft, operations, first_child, target, longest)
    new, child, reached = schedule.start, schedule.child, schedule.in_flight
    if reached < target:
        raise UnreachableError(
            f"processNum {target} is not reachable: runs stay whole and operations on a file keep their order; "
            f"reachable is about 1 to {reached}",
            1,
            reached,
        )
    elapsed = int((new + operations.end - operations.start).max()) - int(new.min())
    before = int(operations.end.max()) - int(operations.start.min())
    _write(draft, operations, schedule, threads, first_child)
    draft.note(
        "processNum",
        threads_before=len(threads),
        threads=len(np.unique(child)),
        runs_cut=pieces,
        elapsed_factor=elapsed / before,
    )


def _children(threads: np.ndarray, target: int, width: dict[int, int]) -> np.ndarray:
    """New threads of every thread: those at the busiest moment get `target` in all, the others in proportion."""
    present = sum(width.values())
    children = np.full(len(threads), max(target // present, 1))
    busy = np.isin(threads, list(width))
    share = np.array([width[thread] for thread in threads[busy].tolist()]) * target / present
    whole = np.floor(share).astype(np.int64)
    largest = np.argsort(whole - share, kind="stable")
    whole[largest[: target - int(whole.sum())]] += 1
    children[busy] = np.maximum(whole, 1)
    return children


def _units(draft: Draft, split: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Unit of every request that is dealt as one, the longest of them in requests, and how often runs were cut."""
    order, run = draft.runs()
    length = np.bincount(run)
    divisible = np.isin(draft.io["thread"][draft.requests][order[np.flatnonzero(np.diff(run, prepend=-1))]], split)
    limit = 1
    while int((-(-length // limit) - 1)[divisible].sum()) > CUTS_SHARE * len(order):
        limit += -(-limit // 16)
    pieces = np.where(divisible, -(-length // limit), 1)
    position = np.arange(len(run)) - (np.cumsum(length) - length)[run]
    unit = np.empty(len(order), np.int64)
    unit[order] = (np.cumsum(pieces) - pieces)[run] + position * pieces[run] // length[run]
    longest = int(np.bincount(unit).max()) if len(unit) else 1
    return unit, longest, int(pieces.sum()) - len(pieces)


def _operations(draft: Draft, threads: np.ndarray, unit: np.ndarray) -> Operations:
    io, fileops = draft.io, draft.fileops
    start, length, thread, name = (
        np.concatenate([io[field], fileops[field]]).astype(np.int64)
        for field in ("start_ns", "duration_ns", "thread", "file")
    )
    end = start + (1 if draft.untimed else np.maximum(length, 1))
    unit_of = np.full(len(start), -1, np.int64)
    unit_of[draft.requests] = unit
    low, high = np.zeros(len(start), np.int64), np.zeros(len(start), np.int64)
    low[: len(io)] = io["offset"]
    high[: len(io)] = low[: len(io)] + np.maximum(io["result"], 0)
    naming = np.zeros(len(start), np.int64)
    created = (fileops["flags"] & IoFlag.CREATED) != 0
    naming[len(io) :] = np.where(
        np.isin(fileops["op"], NAMING) | created, RENAMES, np.where(fileops["op"] == Fileop.OPEN, LOOKS_UP, NO_NAME)
    )
    effect = np.concatenate(
        [
            np.where(io["op"] == IoOp.READ, READS, WRITES),
            np.where(
                fileops["op"] == Fileop.SYNCFS,
                SYNCS_ALL,
                np.where(np.isin(fileops["op"], SYNC_OPERATIONS), SYNCS, CHANGES),
            ),
        ]
    )
    other = np.full(len(start), -1, np.int64)
    two_names = np.isin(fileops["op"], (Fileop.RENAME, Fileop.LINK))
    other[len(io) :][two_names] = fileops["argument"][two_names].astype(np.int64)
    known = np.unique(np.concatenate([name, other]))
    waits = np.zeros(len(start), bool)
    waits[: len(io)] = (io["op"] == IoOp.READ) & (_written_first(draft, high[: len(io)]) | (io["result"] <= 0))

    order = np.argsort(start, kind="stable")
    group = np.searchsorted(threads, thread)
    return Operations(
        row=order,
        start=start[order],
        end=end[order],
        think=think_times(start[order], end[order], group[order]),
        group=group[order],
        unit=unit_of[order],
        low=low[order],
        high=high[order],
        file=np.searchsorted(known, name)[order],
        other_file=np.where(other < 0, -1, np.searchsorted(known, other))[order],
        effect=effect[order],
        naming=naming[order],
        waits=waits[order],
    )


def _written_first(draft: Draft, end: np.ndarray) -> np.ndarray:
    """Which IO records need data that is not in their file before the trace, or is taken from it; bool."""
    described = draft.files[(draft.files["flags"] & (FileFlag.CREATED | FileFlag.NEW_NAME)) == 0]
    emptied = np.isin(draft.fileops["op"], (Fileop.TRUNCATE, Fileop.FALLOCATE, Fileop.UNLINK))
    emptied |= (draft.fileops["flags"] & IoFlag.TRUNCATED) != 0
    described = described[~np.isin(described["file"], draft.fileops["file"][emptied])]
    order = np.argsort(described["file"])
    size = np.append(described["size_bytes"][order].astype(np.int64), -1)
    file = described["file"][order]
    at = np.searchsorted(file, draft.io["file"])
    here = np.append(file, 0)[at] == draft.io["file"]
    return np.where(here, size[at], -1) < end


# ---- the schedule ----


@dataclass(frozen=True)
class Schedule:
    """Start and new thread of every operation, in the order of `Operations`; the most requests in flight at once."""

    start: np.ndarray
    child: np.ndarray
    in_flight: int


def _nearest_order(
    draft: Draft, operations: Operations, first_child: np.ndarray, target: int, longest: int
) -> Schedule:
    """The schedule with the most work at once of those that meet the target and hold the miss-ratio curve.

    The wider the window is in which the order may change, the more is done at once. It starts as wide as one unit for
    every thread, and is halved until the curve is held; of as many operations as threads, it can hardly bend.
    """
    low, high, file = draft.intervals()
    number = np.full(len(operations.start), -1, np.int64)
    number[draft.requests] = np.arange(len(low))
    number = number[operations.row]
    requests = np.flatnonzero(number >= 0)
    before = curve_of_requests(low, high, file)
    best: tuple[tuple[int, float], Schedule] | None = None
    window = target * longest
    while best is None or window >= target:
        schedule = _schedule(operations, first_child, window, target, untimed=draft.untimed)
        order = number[requests[np.argsort(schedule.start[requests], kind="stable")]]
        bent = apart(before, curve_of_requests(low[order], high[order], file[order]))
        rank = target - schedule.in_flight, bent
        if best is None or rank < best[0]:
            best = rank, schedule
        if rank[0] == 0 and bent <= CURVE_HELD:
            break
        window //= 2
    assert best is not None
    return best[1]


def _schedule(operations: Operations, first_child: np.ndarray, window: int, target: int, *, untimed: bool) -> Schedule:
    """Deal; where fewer than `target` requests are in flight, some are delayed until they meet."""
    requests = operations.unit >= 0
    duration = operations.end - operations.start

    def dealt(no_sooner: np.ndarray) -> Schedule:
        new, child = deal(operations, first_child, window, target, no_sooner)
        if untimed:
            return Schedule(new, child, len(np.unique(child[requests])))
        return Schedule(new, child, int(overlap_at_starts(new[requests], (new + duration)[requests]).max(initial=0)))

    first = dealt(np.zeros(len(duration), np.int64))
    if untimed or first.in_flight >= target:
        return first
    for meeting in _meetings(first, duration, requests, target):
        no_sooner = np.zeros(len(duration), np.int64)
        no_sooner[meeting] = first.start[meeting].max() - duration[meeting] + 1
        tried = dealt(no_sooner)
        if tried.in_flight == target:
            return tried
    return first


def _meetings(schedule: Schedule, duration: np.ndarray, requests: np.ndarray, target: int) -> Iterator[np.ndarray]:
    """Requests of `target` threads that start soon after each other, the soonest first, were there no order to keep."""
    start, child = schedule.start, schedule.child
    threads = np.unique(child[requests])
    if len(threads) < target:
        return
    moments = np.sort(start[requests])[:: max(1, int(requests.sum()) // MOMENTS)]
    coming = np.full((len(moments), len(threads)), -1, np.int64)
    for column, thread in enumerate(threads.tolist()):
        mine = np.flatnonzero(requests & (child == thread))
        mine = mine[np.argsort(start[mine], kind="stable")]
        at = np.searchsorted((start + duration)[mine], moments, side="right")
        coming[:, column] = np.append(mine, -1)[at]
    starts = np.where(coming >= 0, start[coming], np.iinfo(np.int64).max)
    first = np.argsort(starts, axis=1, kind="stable")[:, :target]
    wait = np.take_along_axis(starts, first[:, -1:], axis=1)[:, 0] - moments
    for row in np.argsort(wait, kind="stable")[:MEETINGS_MAX]:
        if (coming[row, first[row]] >= 0).all():
            yield coming[row, first[row]]


def _write(
    draft: Draft, operations: Operations, schedule: Schedule, threads: np.ndarray, first_child: np.ndarray
) -> None:
    """Put starts and threads into the records; the first thread of a group is the old one, others are processes."""
    count = len(draft.io)
    start, number = np.empty(len(operations.row), np.int64), np.empty(len(operations.row), np.int64)
    start[operations.row], number[operations.row] = schedule.start, schedule.child
    identifier = np.repeat(threads, np.diff(first_child)).astype(np.int64)
    added = np.ones(len(identifier), bool)
    added[first_child[:-1]] = False
    used = np.unique(schedule.child)
    top = int(max(draft.tasks["thread"].max(initial=0), draft.tasks["process"].max(initial=0), threads.max()))
    born = used[added[used]]
    identifier[born] = top + 1 + np.arange(len(born))
    split = np.repeat(np.diff(first_child) > 1, np.diff(first_child))
    requests = draft.requests
    moved = requests[split[number[requests]]]
    # Several threads cannot share the end or the position of one descriptor.
    flags = draft.io["flags"][moved] & ~np.uint32(IoFlag.APPEND | IoFlag.OFFSET_INFERRED)
    draft.io["flags"][moved] = flags | np.uint32(IoFlag.POSITIONED)
    for records, mine in ((draft.io, slice(0, count)), (draft.fileops, slice(count, None))):
        records["start_ns"] = start[mine]
        records["thread"] = identifier[number[mine]]
        records["processor_share"] = 0  # of another time between two calls
        records["process"] = np.where(added[number[mine]], identifier[number[mine]], records["process"])
    tasks = [draft.tasks]
    group = np.repeat(threads, np.diff(first_child))
    for thread in born.tolist():
        task = draft.tasks[draft.tasks["thread"] == group[thread]].copy()
        task["thread"] = task["process"] = identifier[thread]
        tasks.append(task)
    draft.tasks = np.concatenate(tasks)
    draft.sort()
