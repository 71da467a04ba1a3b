# SPDX-License-Identifier: Apache-2.0
"""Turns pages that are missed, and pages that are dirty, into work of storage, which has a time for each of them.

Storage works while the application does other things: on what is read ahead, and on writing back from the background
limit on (mm/page-writeback.c). All times are in ns from the begin.
"""

from __future__ import annotations

from selfscale.simulation.kernel import kernel
from selfscale.simulation.page_cache import (
    ACCESSES,
    BOTH,
    BYTES,
    COMPUTING,
    DIRTY,
    LAST,
    READS,
    USED,
    USED_LAST,
    clean,
    drop,
    use,
)

SHORT_PAUSE_NS, PAUSE_NS = 75e3, 3e6
"""Since storage was done with a read or a sync, from which on the processor that serves the next one has likely gone to
sleep, and from which on a read counts as rested; by hand, between 50 and 100 us, and between 1 and 5 ms (0026)."""
SHORT_PAUSE_FRAC = 0.8
"""Of a rested read, that one after a short pause takes: 0.84 on *memory*, 0.77 on *disk*, 1.2 on *zram* (0026)."""
LONG_PAGES = 32
"""Of a longer request the parts overlap (`selfscale.models.read_ahead.PIECE_BYTES`)."""


@kernel
def start_writing(state, now):
    """Let storage begin to write back now, unless it does already."""
    clocks = state.clocks
    if max(clocks[ACCESSES], clocks[BYTES]) < now:
        clocks[ACCESSES] = clocks[BYTES] = now
        clocks[BOTH] = max(clocks[BOTH], now)


@kernel
def store(state, page):
    """Write a dirty page back, with the access where it follows none that was written before it; whether it did."""
    clocks, counts = state.clocks, state.counts
    clean(state, page)
    state.pages.stored[page] = True
    # With its neighbour, which is written next or was a moment ago, it is one access.
    place = page != counts[LAST] + 1 and not (page > 0 and state.pages.dirty[page - 1])
    if place:
        clocks[ACCESSES] += state.costs.write_busy_ns
        clocks[BOTH] += state.costs.write_busy_ns * state.costs.shared_frac
    counts[LAST] = page
    clocks[BYTES] += state.costs.write_page_busy_ns
    clocks[BOTH] += state.costs.write_page_busy_ns * state.costs.shared_frac
    return place


@kernel
def flush(state, now, begin, behind):
    """Write back a range's dirty pages; until when storage is busy, at how many places, and whether one was new."""
    pages, clocks, ring, places, new = state.pages, state.clocks, len(state.pages.dirty), 0, False
    before = state.counts[DIRTY]
    if before:
        start_writing(state, now)
    if behind - begin < before:
        for page in range(begin, behind):
            if pages.dirty[page]:
                new |= not pages.stored[page]
                places += store(state, page)
    else:
        page = pages.dirtied_next[ring]
        while page != ring:
            following = pages.dirtied_next[page]
            if begin <= page < behind:
                new |= not pages.stored[page]
                places += store(state, page)
            page = following
    if state.counts[DIRTY] == before:
        return now, 0, False
    return max(clocks[ACCESSES], clocks[BYTES], clocks[BOTH]), places, new


@kernel
def write_back(state, now, limit_pages, waiting):
    """Write back down to a limit, as far as there was time for it until now, or waiting; until when storage is busy."""
    clocks, pages, ring = state.clocks, state.pages, len(state.pages.dirty)
    until = max(clocks[ACCESSES], clocks[BYTES], clocks[BOTH])
    while state.counts[DIRTY] > limit_pages and (waiting or until < now):
        store(state, pages.dirtied_next[ring])
        until = max(clocks[ACCESSES], clocks[BYTES], clocks[BOTH])
    return until


@kernel
def evict(state, now):
    """Drop the pages used longest ago until the rest has room; those that are dirty are written back first."""
    pages, ring = state.pages, len(state.pages.cached)
    while state.counts[USED] > state.costs.cache_pages:
        page = pages.newer[ring]
        if pages.dirty[page]:
            start_writing(state, now)
            store(state, page)
        drop(state, page)


@kernel
def give_back(state, now, begin, behind):
    """Drop a range's pages, but those that are dirty: these begin to be written back, and stay."""
    pages = state.pages
    for page in range(begin, behind):
        if pages.cached[page] and not pages.dirty[page]:
            drop(state, page)
    flush(state, now, begin, behind)


@kernel
def fetch(state, now, begin, behind):
    """Have storage read the pages of a range that are not cached; what that takes of a processor."""
    pages, clocks, storage, count = state.pages, state.clocks, state.costs.storage, 0
    ahead = clocks[READS] - now > storage.held_up_ns
    start = max(now, clocks[BOTH], clocks[READS] if ahead else now)
    first_ns, pause_ns = storage.read_ns, now - clocks[USED_LAST]
    if pause_ns > PAUSE_NS:
        first_ns = storage.rested_read_ns
    elif pause_ns > SHORT_PAUSE_NS:
        first_ns = max(storage.read_ns, SHORT_PAUSE_FRAC * storage.rested_read_ns)
    elif state.counts[COMPUTING] == state.costs.processors - 1:
        first_ns = storage.awake_read_ns
    for page in range(begin, behind):
        if pages.stored[page] and not pages.cached[page]:
            use(state, page)
            more = min(count, LONG_PAGES) * storage.read_page_ns
            more += max(count - LONG_PAGES, 0) * storage.read_page_busy_ns
            pages.ready_ns[page] = start + first_ns + more
            count += 1
    if count:
        busy = max(storage.read_busy_ns, count * storage.read_page_busy_ns)
        clocks[READS] = max(clocks[READS], start) + busy
        clocks[USED_LAST] = start + first_ns + min(count, LONG_PAGES) * storage.read_page_ns
        clocks[BOTH] = max(clocks[BOTH], now) + busy * state.costs.shared_frac
    return count * state.costs.miss_page_ns
