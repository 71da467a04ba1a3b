# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into one with more processes (split) or fewer (merged), and its schedule with it.

More: the runs of every thread are dealt to several (`replayer.flexible.split`).

Fewer: where no more threads than wanted have the requests in flight, and so some have several, these begin later
(`replayer.flexible.queue_depth`). Else threads become one thread, run by run; the schedule moves so that no two
operations of one thread overlap. Either way every operation still starts behind those that had ended before it; where a
run of another thread that shares only read data is let through whole, that holds for operations on the same data. In a
trace without times, of which each thread has but its own order, one with twice the work would go on alone when the
others are done; there the runs of those that go are dealt to those that stay, where they are not as many to each.
"""

from __future__ import annotations

import heapq

import numpy as np

from characterize.counting.intervals import overlap_at_starts
from characterize.errors import FlextraceError
from characterize.layout import Fileop, IoFlag, IoOp
from replayer.flexible.draft import Draft
from replayer.flexible.queue_depth import change_queue_depth
from replayer.flexible.reschedule import reschedule
from replayer.flexible.split import SYNC_OPERATIONS, split_threads

PROCESSES_MAX = 4096
# Threads are evenly merged where none has more than this times the mean of operations.
EVEN = 1.05


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
    process_of = dict(zip(draft.io["thread"].tolist(), draft.io["process"].tolist(), strict=True))
    process_of.update(zip(draft.fileops["thread"].tolist(), draft.fileops["process"].tolist(), strict=True))
    both = np.concatenate(
        [draft.io[["start_ns", "duration_ns", "thread"]], draft.fileops[["start_ns", "duration_ns", "thread"]]]
    )
    order = np.lexsort((np.arange(len(both)), both["start_ns"], both["thread"], _unit_begins(draft)))
    if draft.untimed:
        thread = _dealt(draft, both, _merged(both, _groups(draft, target)))
        by_thread = order[np.argsort(thread[order], kind="stable")]
        _, first, counts = np.unique(thread[by_thread], return_index=True, return_counts=True)
        new = np.empty(len(both), np.int64)
        new[by_thread] = np.arange(len(both)) - np.repeat(first, counts)
    else:
        thread, new = _scheduled(draft, both, order, target)
    for records, mine in ((draft.io, slice(0, len(draft.io))), (draft.fileops, slice(len(draft.io), None))):
        records["start_ns"] = new[mine]
        records["thread"] = thread[mine]
        records["processor_share"] = 0  # of another time between two calls
        records["process"] = [process_of[name] for name in thread[mine].tolist()]
    draft.sort()
    draft.tasks = draft.tasks[np.isin(draft.tasks["thread"], thread)]
    draft.note("processNum", merged_threads=len(np.unique(both["thread"])), into=target)


def _groups(draft: Draft, target: int, *, with_last: bool = False) -> dict[int, int]:
    """Thread that every thread becomes: the busiest moment is spread over all of them, then work is evened out.

    Or all that do not stay go to that one of them which began last at that moment (`with_last`).
    """
    threads, count = np.unique(np.concatenate([draft.io["thread"], draft.fileops["thread"]]), return_counts=True)
    work = dict(zip(threads.tolist(), count.tolist(), strict=True))
    together = _busiest(draft).tolist()
    rest = sorted(set(work) - set(together), key=lambda thread: -work[thread])
    leader = {thread: thread for thread in together[:target]}
    if with_last:
        return leader | dict.fromkeys([*together[target:], *rest], together[target - 1])
    # Of those that have as much to do the one that comes first.
    least = [(work[thread], at, thread) for at, thread in enumerate(leader)]
    heapq.heapify(least)
    for thread in [*together[target:], *rest]:
        load, at, leader[thread] = least[0]
        heapq.heapreplace(least, (load + work[thread], at, leader[thread]))
    return leader


def _merged(both: np.ndarray, leader: dict[int, int]) -> np.ndarray:
    """New thread of every record, if threads are merged whole."""
    # Not by a table: the numbers of a damaged trace's threads may be any.
    threads, at = np.unique(both["thread"], return_inverse=True)
    return np.array([leader[one] for one in threads.tolist()], np.int64)[at]


def _dealt(draft: Draft, both: np.ndarray, merged: np.ndarray) -> np.ndarray:
    """New thread of every record of a trace without times: `merged` if that is even, else run by run.

    Each run of a thread that goes is for whoever has the least to do, with the syncs behind its requests. A thread that
    opens, makes or removes files is merged whole.
    """
    if np.unique(merged, return_counts=True)[1].max() <= EVEN * len(both) / len(np.unique(merged)):
        return merged
    others = draft.fileops["thread"][~np.isin(draft.fileops["op"], SYNC_OPERATIONS)]
    order, run = draft.runs()
    run_of = np.full(len(both), -1, np.int64)
    run_of[draft.requests[order]] = run
    by_thread = np.lexsort((both["start_ns"], both["thread"]))
    before = by_thread[np.maximum.accumulate(np.where(run_of[by_thread] >= 0, np.arange(len(both)), 0))]
    run_of[by_thread] = np.where(both["thread"][before] == both["thread"][by_thread], run_of[before], -1)
    dealt = np.flatnonzero((run_of >= 0) & ~np.isin(both["thread"], np.concatenate([merged, others])))
    in_time = run_of[dealt[np.argsort(both["start_ns"][dealt], kind="stable")]]
    runs, first, length = np.unique(in_time, return_index=True, return_counts=True)
    stays = np.ones(len(both), bool)
    stays[dealt] = False
    threads, work = np.unique(merged[stays], return_counts=True)
    least = list(zip(work.tolist(), threads.tolist(), strict=True))
    heapq.heapify(least)
    taker = np.empty(len(order), np.int64)
    for at in np.argsort(first).tolist():
        load, thread = least[0]
        taker[runs[at]] = thread
        heapq.heapreplace(least, (load + int(length[at]), thread))
    thread = merged.copy()
    thread[dealt] = taker[run_of[dealt]]
    return thread


def _scheduled(draft: Draft, both: np.ndarray, order: np.ndarray, target: int) -> tuple[np.ndarray, np.ndarray]:
    """New thread and start of every record; where too few meet, the first ones of the busiest moment stay alone.

    What the last one of them waits for then does not come behind these.
    """
    start = both["start_ns"].astype(np.int64)
    lasting = np.maximum(both["duration_ns"].astype(np.int64), 1)
    for with_last in (False, True):
        thread = _merged(both, _groups(draft, target, with_last=with_last))
        new = reschedule(start, start + lasting, np.unique(thread, return_inverse=True)[1], order)
        requests = new[draft.requests]
        if overlap_at_starts(requests, requests + lasting[draft.requests]).max() == target:
            break
    return thread, new


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
