# SPDX-License-Identifier: Apache-2.0
"""Turns uses of pages into what is cached and what is dirty: two rings, by last use and by when a page was dirtied.

numba compiles what is here; state lives in arrays that the functions share. Their states are those of `run` and of
`traffic`, which have pages, readers and counts in common.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selfscale.simulation.kernel import kernel
from selfscale.simulation.machine_costs import MachineCosts
from selfscale.simulation.operations import Operations
from selfscale.simulation.reading import Readers, readers_of

USED, DIRTY, LAST, COMPUTING, BURST, ALIKE = range(6)
READS, BOTH, ACCESSES, BYTES, SYNCS, USED_LAST, BEHIND = range(7)


class Pages(NamedTuple):
    """Every page, in two rings that begin and end at the last index: by use, and by when it was dirtied."""

    newer: np.ndarray
    older: np.ndarray
    dirtied_next: np.ndarray
    dirtied_before: np.ndarray
    cached: np.ndarray
    dirty: np.ndarray
    stored: np.ndarray
    ready_ns: np.ndarray


class Files(NamedTuple):
    """What of f files, which lie end to end, is on its way to storage or there, but not durable.

    Attributes
    ----------
    begin : ndarray of int64
        First page.
    written_ns, synced_ns : ndarray of float64
        Until when storage writes what it was given of the file, and until when the file's last sync takes.
    unsynced, new : ndarray of bool
        Storage was given pages since that sync, and some that it did not have before.
    """

    begin: np.ndarray
    written_ns: np.ndarray
    synced_ns: np.ndarray
    unsynced: np.ndarray
    new: np.ndarray


class State(NamedTuple):
    """A machine while it runs.

    Attributes
    ----------
    counts : ndarray of int64
        Cached pages, dirty pages, the page that was written back last, threads that compute beside the one whose
        operation it is, pages that are left of what the flusher writes at once, and how many threads there are if all
        have as many operations in a time: those with few hardly count.
    clocks : ndarray of float64
        Until when storage is busy: with reads, with both directions, with accesses and with bytes of writing back, and
        with syncs; when it was last done with a read or a sync; and until when reads are behind a burst of writes.
    """

    pages: Pages
    files: Files
    readers: Readers
    counts: np.ndarray
    clocks: np.ndarray
    costs: MachineCosts


def pages_of(stored: np.ndarray) -> Pages:
    """Pages of which storage holds some, and the cache nothing; `stored` is changed from here on."""
    count = len(stored)
    newer, older, dirtied_next, dirtied_before = (np.full(count + 1, count, np.int32) for _ in range(4))
    in_cache, is_dirty = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    return Pages(newer, older, dirtied_next, dirtied_before, in_cache, is_dirty, stored, np.zeros(count))


def state_of(operations: Operations, costs: MachineCosts) -> State:
    """A machine before the first operation, with what was cached at recording, as far as there is room."""
    begin, end = (place[operations.reader_file] for place in (operations.file_begin, operations.file_end))
    readers = readers_of(begin, end, len(operations.stored), costs.read_ahead)
    begin, count = operations.file_begin.astype(np.int64), len(operations.file_begin)
    files = Files(begin, np.zeros(count), np.zeros(count), np.zeros(count, np.bool_), np.zeros(count, np.bool_))
    pages = pages_of(operations.stored.copy())
    state = State(pages, files, readers, np.array([0, 0, -2, 0, 0, 0]), np.zeros(7), costs)
    _fill(state, operations.cached[-costs.cache_pages :])
    return state


@kernel
def use(state, page):
    """Let a page be the one used last; it is cached from here on."""
    pages, ring = state.pages, len(state.pages.cached)
    if pages.cached[page]:
        pages.newer[pages.older[page]] = pages.newer[page]
        pages.older[pages.newer[page]] = pages.older[page]
    else:
        pages.cached[page] = True
        pages.ready_ns[page] = 0.0
        state.counts[USED] += 1
    newest = pages.older[ring]
    pages.older[page], pages.newer[page] = newest, ring
    pages.newer[newest], pages.older[ring] = page, page


@kernel
def _fill(state, cached):
    for page in cached:
        use(state, page)


@kernel
def drop(state, page):
    """Let a page be cached no more."""
    pages = state.pages
    pages.newer[pages.older[page]] = pages.newer[page]
    pages.older[pages.newer[page]] = pages.older[page]
    pages.cached[page] = False
    state.readers.folio[page], state.readers.marked[page] = 1, False
    state.counts[USED] -= 1


@kernel
def clean(state, page):
    """Take a page off those that are dirty."""
    pages = state.pages
    pages.dirtied_next[pages.dirtied_before[page]] = pages.dirtied_next[page]
    pages.dirtied_before[pages.dirtied_next[page]] = pages.dirtied_before[page]
    pages.dirty[page] = False
    state.counts[DIRTY] -= 1


@kernel
def dirty(state, page):
    """Let a page be the one dirtied last, unless it is dirty."""
    pages, ring = state.pages, len(state.pages.dirty)
    if pages.dirty[page]:
        return
    newest = pages.dirtied_before[ring]
    pages.dirtied_before[page], pages.dirtied_next[page] = newest, ring
    pages.dirtied_next[newest], pages.dirtied_before[ring] = page, page
    pages.dirty[page] = True
    state.counts[DIRTY] += 1


@kernel
def discard(state, begin, behind):
    """Pages that are truncated or deleted are neither written back nor read again."""
    for page in range(begin, behind):
        if state.pages.dirty[page]:
            clean(state, page)
        if state.pages.cached[page]:
            drop(state, page)
        state.pages.stored[page] = False
