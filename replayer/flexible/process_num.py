# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into one with more processes (split) or fewer (merged), and its schedule with it.

More: the runs of every thread are dealt to several (`replayer.flexible.split`).

Fewer: where no more threads than wanted have the requests in flight, and so some have several, these begin later
(`replayer.flexible.queue_depth`). Else threads become one thread, run by run; the schedule moves so that no two
operations of one thread overlap. Either way every operation still starts behind those that had ended before it; where a
run of another thread that shares only read data is let through whole, that holds for operations on the same data.
"""

from __future__ import annotations

import numpy as np

from characterize.counting.intervals import overlap_at_starts
from characterize.errors import FlextraceError
from characterize.layout import Fileop, IoFlag, IoOp
from replayer.flexible.draft import Draft
from replayer.flexible.queue_depth import change_queue_depth
from replayer.flexible.split import split_threads

PROCESSES_MAX = 4096


def in_flight(draft: Draft) -> int:
    """Largest number of requests in flight by the schedule; of a trace without times the number of its threads."""
    requests = draft.io[draft.requests]
    if draft.untimed:
        return len(np.unique(requests["thread"]))
    start, end = _spans(requests)
    return int(overlap_at_starts(start, end).max(initial=0))


def change_process_num(draft: Draft, target: float, *, queued: bool = False) -> None:
    """Make `target` requests be in flight at most, where the schedule had another number.

    `queued` requests are of no thread: only their times change.

    Raises
    ------
    UnreachableError
        Threads cannot be split into so many.
    FlextraceError
        Not a whole number from 1 to 4096.
    """
    if target != int(target) or not 1 <= target <= PROCESSES_MAX:
        raise FlextraceError(
            f"processNum {target:g} is not reachable: give a whole number from 1 to {PROCESSES_MAX}", 2
        )
    present = in_flight(draft)
    if queued:
        change_queue_depth(draft, int(target), busiest_requests(draft))
    elif target > present:
        split_threads(draft, int(target), _width(draft))
    elif target < present and target >= len(_busiest(draft)):
        change_queue_depth(draft, int(target), busiest_requests(draft))
    elif target < present:
        _merge(draft, int(target))


def _spans(records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    start = records["start_ns"].astype(np.int64)
    return start, start + np.maximum(records["duration_ns"].astype(np.int64), 1)


def busiest_requests(draft: Draft) -> np.ndarray:
    """Indices of the IO records that are in flight at the moment when most requests are, in the order of starts."""
    start, end = _spans(draft.io[draft.requests])
    moment = np.sort(start)[int(np.argmax(overlap_at_starts(start, end)))]
    return draft.requests[(start <= moment) & (end > moment)]


def _busiest(draft: Draft) -> np.ndarray:
    """Threads that have a request in flight at the moment when most are, in the order of their starts."""
    if draft.untimed:
        return np.unique(draft.io["thread"][draft.requests])
    threads = draft.io["thread"][busiest_requests(draft)]
    return threads[np.sort(np.unique(threads, return_index=True)[1])]


def _width(draft: Draft) -> dict[int, int]:
    """Requests in flight of every thread at the busiest moment."""
    if draft.untimed:
        return dict.fromkeys(_busiest(draft).tolist(), 1)
    threads, count = np.unique(draft.io["thread"][busiest_requests(draft)], return_counts=True)
    return dict(zip(threads.tolist(), count.tolist(), strict=True))


# ---- fewer ----


def _merge(draft: Draft, target: int) -> None:
    leader = _groups(draft, target)
    process_of = dict(zip(draft.io["thread"].tolist(), draft.io["process"].tolist(), strict=True))
    process_of.update(zip(draft.fileops["thread"].tolist(), draft.fileops["process"].tolist(), strict=True))
    unit_begin = _unit_begins(draft)
    both = np.concatenate(
        [draft.io[["start_ns", "duration_ns", "thread"]], draft.fileops[["start_ns", "duration_ns", "thread"]]]
    )
    own = both["thread"].astype(np.int64)
    # Not by a table: the numbers of a damaged trace's threads may be any.
    threads, at = np.unique(own, return_inverse=True)
    thread = np.array([leader.get(one, one) for one in threads.tolist()], np.int64)[at]
    order = np.lexsort((np.arange(len(both)), both["start_ns"], own, unit_begin))
    if draft.untimed:
        new = np.empty(len(both), np.int64)
        by_thread = order[np.argsort(thread[order], kind="stable")]
        _, first, counts = np.unique(thread[by_thread], return_index=True, return_counts=True)
        new[by_thread] = np.arange(len(both)) - np.repeat(first, counts)
    else:
        from replayer.flexible.reschedule import reschedule  # noqa: PLC0415 (numba is slow to import)

        start = both["start_ns"].astype(np.int64)
        end = start + np.maximum(both["duration_ns"].astype(np.int64), 1)
        new = reschedule(start, end, np.unique(thread, return_inverse=True)[1], order)
    for records, mine in ((draft.io, slice(0, len(draft.io))), (draft.fileops, slice(len(draft.io), None))):
        records["start_ns"] = new[mine]
        records["thread"] = thread[mine]
        records["processor_share"] = 0  # of another time between two calls
        records["process"] = [process_of[name] for name in thread[mine].tolist()]
    draft.sort()
    draft.tasks = draft.tasks[np.isin(draft.tasks["thread"], thread)]
    draft.note("processNum", merged_threads=len(leader), into=target)


def _groups(draft: Draft, target: int) -> dict[int, int]:
    """Thread that every thread becomes: the busiest moment is spread over all of them, then work is evened out."""
    threads, count = np.unique(np.concatenate([draft.io["thread"], draft.fileops["thread"]]), return_counts=True)
    work = dict(zip(threads.tolist(), count.tolist(), strict=True))
    together = _busiest(draft).tolist()
    rest = sorted(set(work) - set(together), key=lambda thread: -work[thread])
    leaders: list[int] = []
    load: dict[int, int] = {}
    leader: dict[int, int] = {}
    for thread in [*together, *rest]:
        if len(leaders) < target:
            leaders.append(thread)
            load[thread] = 0
        chosen = thread if thread in load and thread not in leader else min(leaders, key=lambda name: load[name])
        leader[thread] = chosen
        load[chosen] += work[thread]
    return leader


def _contended(draft: Draft) -> np.ndarray:
    """Files that several threads use and not all of them only read: what was ordered there has to stay so."""
    changing = ~np.isin(draft.fileops["op"], (Fileop.OPEN, Fileop.CLOSE, Fileop.FADVISE))
    changing |= (draft.fileops["flags"] & (IoFlag.CREATED | IoFlag.TRUNCATED)) != 0
    written = np.concatenate([draft.io["file"][draft.io["op"] == IoOp.WRITE], draft.fileops["file"][changing]])
    users = np.concatenate([draft.io[["file", "thread"]], draft.fileops[["file", "thread"]]])
    file, count = np.unique(np.unique(users)["file"], return_counts=True)
    return np.intersect1d(file[count > 1], written)


def _unit_begins(draft: Draft) -> np.ndarray:
    """Start of the unit of every record, IO records first: a run is not divided, what stands between goes with it."""
    begins_run = np.ones(len(draft.io), bool)
    requests = draft.requests
    before, _ = draft.streams()
    by_thread = np.argsort(draft.io["thread"][requests], kind="stable")
    directly = np.zeros(len(requests), bool)
    directly[by_thread[1:]] = before[by_thread[1:]] == by_thread[:-1]
    undivided = draft.sequential() & directly & ~np.isin(draft.io["file"][requests], _contended(draft))
    begins_run[requests[undivided]] = False
    thread = np.concatenate([draft.io["thread"], draft.fileops["thread"]])
    start = np.concatenate([draft.io["start_ns"], draft.fileops["start_ns"]]).astype(np.int64)
    begins = np.concatenate([begins_run, np.ones(len(draft.fileops), bool)])
    order = np.lexsort((start, thread))
    unit = np.cumsum(begins[order]) - 1
    result = np.empty(len(start), np.int64)
    result[order] = start[order][np.flatnonzero(begins[order])][unit]
    return result
