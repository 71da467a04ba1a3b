# SPDX-License-Identifier: Apache-2.0
"""Turns pages that are missed, and pages that are dirty, into work of storage, which has a time for each of them.

Storage works while the application does other things: on what is read ahead, and on writing back from the background
limit on (mm/page-writeback.c). That comes in bursts, which reads wait for. All times are in ns from the begin.
"""

from __future__ import annotations

import math

from selfscale.measuring.storage import BRIEF_NS, PAUSE_NS, REST_NS
from selfscale.simulation.kernel import kernel
from selfscale.simulation.page_cache import (
    ACCESSES,
    BEHIND,
    BOTH,
    BURST,
    BYTES,
    COMPUTING,
    DIRTY,
    LAST,
    READS,
    SYNCS,
    USED,
    USED_LAST,
    clean,
    drop,
    use,
)

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
    # With its neighbour, which is written next or was a moment ago, it is one access.
    place = page != counts[LAST] + 1 and not (page > 0 and state.pages.dirty[page - 1])
    if place:
        clocks[ACCESSES] += state.costs.write_busy_ns
        clocks[BOTH] += state.costs.write_busy_ns * state.costs.shared_frac
    counts[LAST] = page
    clocks[BYTES] += state.costs.write_page_busy_ns
    clocks[BOTH] += state.costs.write_page_busy_ns * state.costs.shared_frac
    counts[BURST] = max(0, counts[BURST] - 1)
    _give(state, page, _written_ns(state))
    return place


@kernel
def _give(state, page, until):
    """Let storage have a page, which is written until then, but not durable."""
    files, file = state.files, _file_of(state, page)
    files.unsynced[file], files.written_ns[file] = True, max(files.written_ns[file], until)
    files.new[file] |= not state.pages.stored[page]
    state.pages.stored[page] = True


@kernel
def _file_of(state, page):
    """The last one that does not begin behind a page."""
    begin = state.files.begin
    file, behind = 0, len(begin)
    while file + 1 < behind:
        middle = (file + behind) // 2
        if begin[middle] <= page:
            file = middle
        else:
            behind = middle
    return file


@kernel
def flush(state, now, begin, behind):
    """Begin to write a range's dirty pages back; at how many places they are."""
    pages, ring, places = state.pages, len(state.pages.dirty), 0
    before = state.counts[DIRTY]
    if before:
        start_writing(state, now)
    if behind - begin < before:
        for page in range(begin, behind):
            if pages.dirty[page]:
                places += store(state, page)
    else:
        page = pages.dirtied_next[ring]
        while page != ring:
            following = pages.dirtied_next[page]
            if begin <= page < behind:
                places += store(state, page)
            page = following
    return places


@kernel
def sync(state, now, begin, behind):
    """Make a file's pages durable; when they are: now, where they were.

    What storage was given of them before is waited for, by whomever, and so is a sync that runs already. The file
    system's journal follows the data (ext4's ordered mode; xfs and btrfs write the size after it). Storage that only
    lets a number of requests through in a second lets them pass for a while, and then holds all up.
    """
    storage, clocks, files, file = state.costs.storage, state.clocks, state.files, _file_of(state, begin)
    given_ns = files.written_ns[file]
    more = max(0, flush(state, now, begin, behind) - 1)
    if not files.unsynced[file]:
        return max(now, files.synced_ns[file])
    pause_ns = now - clocks[USED_LAST]
    taken_ns = _between(pause_ns, BRIEF_NS, PAUSE_NS, storage.sync_ns, storage.paused_sync_ns)
    taken_ns += more * storage.sync_more_ns
    busy_ns = storage.sync_busy_ns + more * storage.sync_more_busy_ns
    journal_ns = 0.0
    if files.new[file]:
        journal_ns = max(0.0, storage.append_sync_ns - storage.sync_ns)
        busy_ns += max(0.0, storage.append_sync_busy_ns - storage.sync_busy_ns)
    start = max(_behind(now, clocks[SYNCS], storage), _behind(now, given_ns, storage))
    clocks[SYNCS] = max(clocks[SYNCS], now) + busy_ns
    done = max(_behind(now, files.written_ns[file], storage), start + taken_ns) + journal_ns
    files.unsynced[file] = files.new[file] = False
    files.synced_ns[file] = done
    clocks[USED_LAST] = max(clocks[USED_LAST], done)
    return done


@kernel
def sync_directory(state, now):
    """Make names durable; when they are."""
    clocks, done = state.clocks, now + state.costs.storage.directory_sync_ns
    clocks[USED_LAST] = max(clocks[USED_LAST], done)
    return done


@kernel
def _behind(now, until, storage):
    """When who waits for what is written may go on, behind what storage is busy with until then."""
    return until if until - now > storage.sync_held_up_ns else now


@kernel
def write_back(state, now):
    """Write back what there was time for until now: a burst when more than the background limit is dirty, and the next
    one where that is still so at its end (wb_writeback)."""
    counts = state.counts
    counts[BURST] = min(counts[BURST], counts[DIRTY])
    while counts[BURST] > 0 or counts[DIRTY] > state.costs.background_pages:
        if counts[BURST] == 0:
            _begin_burst(state, now)
        if _written_ns(state) >= now:
            break
        store(state, state.pages.dirtied_next[len(state.pages.dirty)])


@kernel
def wait_for_room(state, now):
    """Write back until a writer may go on; when that is."""
    until = now
    while state.counts[DIRTY] > state.costs.dirty_pages:
        if state.counts[BURST] == 0:
            _begin_burst(state, now)
        store(state, state.pages.dirtied_next[len(state.pages.dirty)])
        until = _written_ns(state)
    return until


@kernel
def _begin_burst(state, now):
    """Let the flusher give storage as much of what is dirty as it does at once; reads come behind it."""
    clocks, counts = state.clocks, state.counts
    counts[BURST] = min(counts[DIRTY], state.costs.burst_pages)
    begin = min(now, max(clocks[ACCESSES], clocks[BYTES]))
    clocks[BEHIND] = max(clocks[BEHIND], begin) + counts[BURST] * state.costs.behind_page_ns


@kernel
def _written_ns(state):
    """When storage is done with what it was given to write."""
    return max(state.clocks[ACCESSES], state.clocks[BYTES], state.clocks[BOTH])


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
def _first_page_ns(state, pause_ns):
    """What a read's first page takes, so long after storage was done with a read or a sync."""
    storage = state.costs.storage
    if pause_ns >= PAUSE_NS:
        return _between(pause_ns, PAUSE_NS, REST_NS, storage.paused_read_ns, storage.rested_read_ns)
    awake = state.counts[COMPUTING] == state.costs.processors - 1
    brief_ns = storage.awake_read_ns if awake else storage.read_ns
    return _between(pause_ns, BRIEF_NS, PAUSE_NS, brief_ns, storage.paused_read_ns)


@kernel
def _between(pause_ns, brief_ns, long_ns, after_brief, after_long):
    """Between two that were measured; processors sleep the deeper the longer, so by the pause's order of magnitude."""
    share = math.log(max(pause_ns, brief_ns) / brief_ns) / math.log(long_ns / brief_ns)
    return after_brief + min(share, 1.0) * (after_long - after_brief)


@kernel
def _page_ns(state, pause_ns):
    """What each of a read's next pages takes, so long after: as of a scan, or as after a pause."""
    storage = state.costs.storage
    busy_ns = min(storage.read_page_busy_ns, storage.read_page_ns)
    return _between(pause_ns, BRIEF_NS, PAUSE_NS, busy_ns, storage.read_page_ns)


@kernel
def fetch(state, now, begin, behind):
    """Have storage read the pages of a range that are not cached; what that takes of a processor.

    The pages of a request of the device are there when all of it has been read.
    """
    pages, count, wanted = state.pages, 0, 0
    for page in range(begin, behind):
        wanted += pages.stored[page] and not pages.cached[page]
    if not wanted:
        return 0.0
    start, first_ns, page_ns = _begin_read(state, now, wanted)
    request_pages = state.costs.read_ahead.request_pages
    for page in range(begin, behind):
        if pages.stored[page] and not pages.cached[page]:
            use(state, page)
            more = min(wanted, (count // request_pages + 1) * request_pages) - 1
            pages.ready_ns[page] = start + first_ns + _more_ns(state, more, page_ns)
            count += 1
    bursts = state.counts[BURST] > 0 or state.clocks[BEHIND] > now
    return count * state.costs.miss_page_ns * (state.costs.beside_burst if bursts else 1.0)


@kernel
def _begin_read(state, now, count):
    """Give storage so many pages to read; when it begins, and what the first of them takes and each of the next."""
    clocks, storage = state.clocks, state.costs.storage
    ahead = clocks[READS] - now > storage.held_up_ns
    start = max(now, clocks[BOTH], clocks[BEHIND], clocks[READS] if ahead else now)
    pause_ns = now - clocks[USED_LAST]
    first_ns, page_ns = _first_page_ns(state, pause_ns), _page_ns(state, pause_ns)
    busy = max(storage.read_busy_ns, count * storage.read_page_busy_ns)
    clocks[READS] = max(clocks[READS], start) + busy
    clocks[BOTH] = max(clocks[BOTH], now) + busy * state.costs.shared_frac
    clocks[USED_LAST] = max(clocks[USED_LAST], start + first_ns + _more_ns(state, count - 1, page_ns))
    return start, first_ns, page_ns


@kernel
def _more_ns(state, more, page_ns):
    """What a read's pages beyond the first take; `page_ns` is what each of the first takes of them."""
    return min(more, LONG_PAGES) * page_ns + max(more - LONG_PAGES, 0) * state.costs.storage.read_page_busy_ns


@kernel
def read_direct(state, now, begin, behind):
    """Have storage read pages past the cache, when what of them is dirty is written; when they are there."""
    pages, ready, count = state.pages, _flushed(state, now, begin, behind), 0
    for page in range(begin, behind):
        count += pages.stored[page]
    if count:
        start, first_ns, page_ns = _begin_read(state, ready, count)
        ready = start + first_ns + _more_ns(state, count - 1, page_ns)
    return ready


@kernel
def write_direct(state, now, begin, behind):
    """Write pages past the cache, which has them no more then; when storage has them.

    What one takes that comes alone was not measured: no more than to read a page, or to write one and make it durable.
    """
    clocks, costs, page_ns = state.clocks, state.costs, state.costs.write_page_busy_ns
    ready = _flushed(state, now, begin, behind)
    for page in range(begin, behind):
        if state.pages.cached[page]:
            drop(state, page)
    start_writing(state, ready)
    start = _behind(ready, _written_ns(state), costs.storage)
    first_ns = min(_first_page_ns(state, ready - clocks[USED_LAST]), costs.storage.sync_ns)
    clocks[ACCESSES] += costs.write_busy_ns
    clocks[BYTES] += page_ns * (behind - begin)
    clocks[BOTH] += max(costs.write_busy_ns, page_ns * (behind - begin)) * costs.shared_frac
    ready = start + first_ns + page_ns * (behind - begin - 1)
    clocks[USED_LAST] = max(clocks[USED_LAST], ready)
    for page in range(begin, behind):
        _give(state, page, ready)
    return ready


@kernel
def _flushed(state, now, begin, behind):
    """When pages of a range that are dirty now are written."""
    return _written_ns(state) if flush(state, now, begin, behind) else now
