# SPDX-License-Identifier: Apache-2.0
"""Turns operations into the times at which they would end on a machine.

Reads that meet the cache, and writes below the limit on dirty pages, take a processor's time. The others wait for
storage. Operations run in the order of simulated time, each thread one after the other. What is read ahead is in
`selfscale.simulation.reading`.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from selfscale.simulation.kernel import kernel
from selfscale.simulation.machine_costs import MachineCosts, RequestCosts
from selfscale.simulation.operations import Kind, Operations
from selfscale.simulation.page_cache import (
    ALIKE,
    COMPUTING,
    DIRTY,
    State,
    dirty,
    discard,
    state_of,
    use,
)
from selfscale.simulation.reading import met_mark, missed
from selfscale.simulation.storage_work import (
    evict,
    fetch,
    flush,
    give_back,
    read_direct,
    start_writing,
    sync,
    sync_directory,
    wait_for_room,
    write_back,
    write_direct,
)
from selfscale.simulation.who_computes import Threads, computing, enter, next_thread

READ, WRITE, DISCARD, SYNC, DIRECTORY_SYNC, FLUSH, FETCH, GIVE_BACK, *READ_AHEAD, _ = (int(kind) for kind in Kind)
NO_READ_AHEAD, USUAL_READ_AHEAD, MORE_READ_AHEAD = READ_AHEAD


class Schedule(NamedTuple):
    """n operations of m threads, as `Operations` has them, and in which order they run.

    Attributes
    ----------
    head : ndarray of int64, shape (m,)
        First operation of a thread.
    following : ndarray of int64, shape (n,)
        Of the same thread; -1: none.
    first_child : ndarray of int64, shape (n,)
        First thread that an operation is followed by; -1: none.
    next_child : ndarray of int64, shape (m,)
        The next thread with the same one.
    first_waiter, next_waiter : ndarray of int64, shape (n,)
        The same of the operations that wait for one.
    pace : ndarray of float64, shape (m,)
        Operations of a thread by its time without waiting for storage, per ns.
    size_factor : float
        As `Operations.size_factor`.
    """

    kind: np.ndarray
    thread: np.ndarray
    reader: np.ndarray
    first: np.ndarray
    behind: np.ndarray
    partial_head: np.ndarray
    partial_tail: np.ndarray
    direct: np.ndarray
    synced: np.ndarray
    size_bytes: np.ndarray
    processor_ns: np.ndarray
    gap_ns: np.ndarray
    wait_gap_ns: np.ndarray
    computing_ns: np.ndarray
    run_delay_ns: np.ndarray
    together: np.ndarray
    waits_for: np.ndarray
    after: np.ndarray
    head: np.ndarray
    following: np.ndarray
    first_child: np.ndarray
    next_child: np.ndarray
    first_waiter: np.ndarray
    next_waiter: np.ndarray
    pace: np.ndarray
    size_factor: float


def run(
    operations: Operations, costs: MachineCosts, recorded_on: RequestCosts | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run operations on a machine.

    Parameters
    ----------
    recorded_on : RequestCosts, optional
        Of the machine of the recording: then a request takes as much longer than the benchmark's as it did there. Else
        it takes what it did there, and no less than the benchmark's here, whose instructions stay cached.

    Returns
    -------
    start_ns, end_ns, waited_ns : ndarray of float64, shape (n,)
        Of every operation; how long of it was waiting for storage.
    """
    return run_in(state_of(operations, costs), schedule_of(operations), recorded_on)


def run_in(
    state: State, schedule: Schedule, recorded_on: RequestCosts | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run operations on a machine in a state, which is that after the last one then; as `run` otherwise."""
    return _run(schedule, state, recorded_on or state.costs.requests)


def schedule_of(operations: Operations) -> Schedule:
    """In which order operations run, which is the same on all machines."""
    count = len(operations.thread)
    order = np.argsort(operations.thread, kind="stable")
    thread = operations.thread[order]
    following = np.full(count, -1, np.int64)
    same = thread[1:] == thread[:-1]
    following[order[:-1][same]] = order[1:][same]
    first_child, next_child = _by_cause(operations.after, count)
    first_waiter, next_waiter = _by_cause(operations.waits_for, count)
    return Schedule(
        kind=operations.kind,
        thread=operations.thread,
        reader=operations.reader,
        first=operations.first,
        behind=operations.first + operations.pages,
        partial_head=operations.head,
        partial_tail=operations.tail,
        direct=operations.direct,
        synced=operations.synced,
        size_bytes=operations.size_bytes,
        processor_ns=operations.processor_ns,
        gap_ns=operations.gap_ns,
        wait_gap_ns=operations.wait_gap_ns,
        computing_ns=operations.computing_ns,
        run_delay_ns=operations.run_delay_ns,
        together=operations.together,
        waits_for=operations.waits_for,
        after=operations.after,
        head=np.unique(operations.thread, return_index=True)[1],
        following=following,
        first_child=first_child,
        next_child=next_child,
        first_waiter=first_waiter,
        next_waiter=next_waiter,
        pace=_paces(operations),
        size_factor=float(operations.size_factor),
    )


def _paces(operations: Operations) -> np.ndarray:
    """`Schedule.pace`."""
    time_ns = np.bincount(operations.thread, operations.gap_ns + operations.processor_ns)
    return np.bincount(operations.thread) / np.maximum(time_ns, 1.0)


def _by_cause(cause: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each of `count` operations the first one that has it as its cause, and of that the next; -1: none."""
    first, following = np.full(count, -1, np.int64), np.full(len(cause), -1, np.int64)
    caused = np.flatnonzero(cause >= 0)
    caused = caused[np.argsort(cause[caused], kind="stable")]
    same = cause[caused[1:]] == cause[caused[:-1]]
    following[caused[:-1][same]] = caused[1:][same]
    causes, places = np.unique(cause[caused], return_index=True)
    first[causes] = caused[places]
    return first, following


@numba.njit(cache=True, nogil=True)
def _run(todo, state, recorded_on):
    count = len(todo.kind)
    start_ns, end_ns, waited_ns = np.zeros(count), np.full(count, np.inf), np.zeros(count)
    current, ready_ns, first = todo.head.copy(), np.zeros(len(todo.head)), todo.after < 0
    due_ns, before_ns = np.where(first, todo.gap_ns[todo.head], np.inf), np.where(first, 0.0, -np.inf)
    living, alive = np.zeros(len(current), np.int64), np.zeros(1, np.int64)
    threads = Threads(current, due_ns, before_ns, ready_ns, living, alive)
    for thread in np.flatnonzero(first):
        enter(threads, thread)
    for _ in range(count):
        thread = next_thread(threads)
        now, number = due_ns[thread], current[thread]
        write_back(state, now)
        state.counts[COMPUTING], state.counts[ALIKE] = computing(
            todo, threads, now, thread, state.costs.serving_threads > 0
        )
        ready, processor_ns = _operation(todo, state, recorded_on, now, number)
        evict(state, now)
        start_ns[number], waited_ns[number], ready_ns[thread] = now, ready - now, ready
        end_ns[number] = before_ns[thread] = ready + processor_ns
        following = todo.following[number]
        current[thread], due_ns[thread] = following, np.inf
        if following >= 0:
            if todo.together[following]:
                before_ns[thread] = now
            due_ns[thread] = _due_ns(todo, end_ns, before_ns[thread], following)
        waiter = todo.first_waiter[number]
        while waiter >= 0:
            if current[todo.thread[waiter]] == waiter:
                due_ns[todo.thread[waiter]] = _due_ns(todo, end_ns, before_ns[todo.thread[waiter]], waiter)
            waiter = todo.next_waiter[waiter]
        child = todo.first_child[number]
        while child >= 0:
            enter(threads, child)
            before_ns[child] = end_ns[number]
            due_ns[child] = end_ns[number] + todo.gap_ns[todo.head[child]]
            child = todo.next_child[child]
    return start_ns, end_ns, waited_ns


@kernel
def _due_ns(todo, end_ns, before_ns, number):
    """When an operation begins: never, as long as the one that it waits for has not ended."""
    due_ns = before_ns + todo.gap_ns[number]
    if todo.waits_for[number] >= 0:
        due_ns = max(due_ns, end_ns[todo.waits_for[number]] + todo.wait_gap_ns[number])
    return due_ns


@kernel
def _least_ns(requests, todo, number, new, factor):
    """What a request with so many new pages takes of a processor at least, were it 1 / factor as large, which it was
    when it was recorded; one that passes the cache by copies none."""
    if todo.direct[number]:
        return requests.read_call_ns if todo.kind[number] == READ else requests.write_call_ns
    if todo.kind[number] == READ:
        return requests.read_call_ns + requests.read_byte_ns * todo.size_bytes[number] / factor
    pages = todo.behind[number] - todo.first[number]
    # Less than a page takes what a whole one does.
    share = max(pages / factor, 1.0) / max(pages, 1)
    others_ns = requests.write_page_ns * (pages - new) * share
    if new:
        return requests.append_call_ns + requests.append_page_ns * new * share + others_ns
    return requests.write_call_ns + others_ns


@kernel
def _processor_waits(state):
    """How often an access to storage waits for a processor before its thread goes on.

    Whoever waits for storage leaves a processor to the threads that serve it, unless there are more of them than
    processors.
    """
    return 1.0 + state.costs.serving_threads * (0 < state.costs.processors < state.counts[ALIKE])


@kernel
def _operation(todo, state, recorded_on, now, number):
    """Do one; until when it waits for storage, and what it takes of a processor from there on."""
    kind, processor_ns = todo.kind[number], todo.processor_ns[number]
    begin, end = state.readers.begin[todo.reader[number]], state.readers.end[todo.reader[number]]
    if kind <= WRITE:
        spent, new = 0.0, 0
        if todo.direct[number] and kind == READ:
            ready = read_direct(state, now, todo.first[number], todo.behind[number])
        elif todo.direct[number]:
            ready = write_direct(state, now, todo.first[number], todo.behind[number])
        elif kind == READ:
            ready, spent = _read(todo, state, now, number)
        else:
            ready, spent, new = _write(todo, state, now, number)
        if todo.synced[number]:
            ready = max(ready, sync(state, now, todo.first[number], todo.behind[number]))
        beyond_ns = max(0.0, processor_ns - _least_ns(recorded_on, todo, number, new, todo.size_factor))
        if kind == READ and ready > now:
            beyond_ns += _processor_waits(state) * todo.run_delay_ns[number]
        return ready, spent + _least_ns(state.costs.requests, todo, number, new, 1.0) + beyond_ns
    if kind == DISCARD:
        discard(state, todo.first[number], end)
    if kind == DIRECTORY_SYNC:
        return sync_directory(state, now), 0.0
    if kind == SYNC:
        ready = sync(state, now, begin, end)
        if ready > now:
            return ready, _processor_waits(state) * todo.run_delay_ns[number]
    if kind > DIRECTORY_SYNC:
        _hint(todo, state, now, number)
    return now, processor_ns


@kernel
def _hint(todo, state, now, number):
    """Begin to write or to read, or drop, a range of pages, or let more or less be read ahead (generic_fadvise)."""
    kind, first, behind = todo.kind[number], todo.first[number], todo.behind[number]
    readers, reader, rules = state.readers, todo.reader[number], state.costs.read_ahead
    if kind == FLUSH:
        flush(state, now, first, behind)
    elif kind == FETCH:
        # force_page_cache_ra reads no more at once.
        fetch(state, now, first, min(behind, first + max(readers.window[reader], rules.request_pages)))
    elif kind == GIVE_BACK:
        give_back(state, now, first, behind)
    elif kind == NO_READ_AHEAD:
        readers.random[reader] = True
    elif kind in (USUAL_READ_AHEAD, MORE_READ_AHEAD):
        readers.random[reader] = False
        readers.window[reader] = rules.window_pages * (1 if kind == USUAL_READ_AHEAD else 2)


@kernel
def _read(todo, state, now, number):
    """Read pages, as filemap_read does; when the last one is there, and what bringing pages in took of a processor."""
    pages, readers, ready, spent = state.pages, state.readers, now, 0.0
    reader, page, behind = todo.reader[number], todo.first[number], todo.behind[number]
    while page < behind:
        if not pages.cached[page]:
            first, end = missed(readers, pages.cached, reader, page, behind - page)
            spent += fetch(state, now, first, end)
        if not pages.cached[page]:
            # A hole, which storage does not have.
            use(state, page)
        mark = -1
        while page < behind and pages.cached[page] and mark < 0:
            use(state, page)
            ready = max(ready, pages.ready_ns[page])
            if readers.marked[page]:
                mark = page
            page += 1
        if mark >= 0:
            first, end = met_mark(readers, pages.cached, reader, mark, behind)
            spent += fetch(state, now, first, end)
    readers.behind[reader] = behind - todo.partial_tail[number]
    return ready, spent


@kernel
def _write(todo, state, now, number):
    """Write pages into the cache; when there is room for them among the dirty ones, what bringing those in that are
    written in part took of a processor, and how many are new."""
    pages, ready, spent, new = state.pages, now, 0.0, 0
    first, behind = todo.first[number], todo.behind[number]
    for page in range(first, behind):
        partial = (page == first and todo.partial_head[number]) or (page == behind - 1 and todo.partial_tail[number])
        if partial and pages.stored[page] and not pages.cached[page]:
            spent += fetch(state, now, page, page + 1)
            ready = max(ready, pages.ready_ns[page])
        # A page of a hole may be cached, since it was read.
        new += not pages.stored[page] and not pages.dirty[page]
        use(state, page)
        dirty(state, page)
    if state.counts[DIRTY] > state.costs.background_pages:
        start_writing(state, now)
        write_back(state, now)
    if state.counts[DIRTY] > state.costs.dirty_pages:
        ready = max(ready, wait_for_room(state, now))
    return ready, spent, new
