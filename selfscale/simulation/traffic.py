# SPDX-License-Identifier: Apache-2.0
"""Turns the five parameters into what storage has to do for them: Linux's page cache, gone through request by request.

Requests are drawn as Willy draws them. What is read ahead is in `selfscale.simulation.reading`, what is written back in
`selfscale.simulation.flusher`. What a caller may take from measurements is `queue`; nothing else is fitted. Only shares
of the cache count, so that a small one stands for a large one. What is told is the steady state, which real storage may
need long to reach.

`selfscale.models.read_ahead` and `selfscale.models.write_back` say the same as means. How well either does is printed
by ``make bench-traffic``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

from characterize.workload import Workload
from selfscale.simulation.dirty_limits import BACKGROUND_FRAC, HELD_FRAC, chunk_pages
from selfscale.simulation.flusher import write_back
from selfscale.simulation.kernel import kernel
from selfscale.simulation.page_cache import DIRTY, USED, clean, dirty, drop, use
from selfscale.simulation.read_ahead_rules import PAGE_BYTES, ReadAheadRules
from selfscale.simulation.reading import met_mark, missed
from selfscale.simulation.traffic_state import COMMAND_PAGES, LEAVING, STARTS, Limits, Walk, state_of

TURNS = 1.5
"""Times that the content of the cache is replaced, and all that is dirty once, before it is counted."""
WARM_MAX = 10.0
"""Times the cache that is moved before that at most: where little misses, little is replaced."""
MOVED_PAGES, REQUESTS_MIN, REQUESTS_MAX = 20_000, 300, 3000
"""That are counted."""
LONGER_MAX = 10
"""Times as many, until the flusher has come round `CYCLES_MIN` times: it works in bursts."""
CYCLES_MIN = 3
CACHE_PAGES_MIN, WINDOWS_MIN, CACHE_REQUESTS_MIN = 2000, 8, 30
"""Of the cache that stands for a larger one: pages, windows of each file, and requests."""
CACHES_MAX, FILES_MAX = 64, 256
"""What stands for larger workloads: files of so many times the cache, which hardly ever hit, and so many of them."""
REQUEST_PAGES_MAX, REQUESTED_PAGES_MAX = 1 << 16, 1 << 22
"""What stands for longer requests, of which every file has one at least; and so many pages of one request each."""
FILE_PAGES_MIN, FILE_REQUESTS_MIN = 3000, 30
"""Of the files that stand for larger ones where all are cached: pages, and requests of each."""
KEPT_MAX = 0.5
"""Of the cache, that reclaim passes over because it is dirty or on its way to storage."""
FILL_MAX = 0.97
"""Of the files, that the cache is filled with at first where it does not hold all."""


class Traffic(NamedTuple):
    """What storage does.

    Attributes
    ----------
    waiting : float
        Share of the reads that wait for storage.
    reads, reads_ahead : float
        Requests to storage per read that it waits for, and that it does not.
    read_frac, ahead_frac : float
        Bytes of them over those that are read.
    writes : float
        Requests to storage per write.
    written_frac : float
        Bytes of them over those that are written.
    filled : float
        Pages per write that are read first, since only a part of them is written.
    """

    waiting: float
    reads: float
    reads_ahead: float
    read_frac: float
    ahead_frac: float
    writes: float
    written_frac: float
    filled: float


def traffic_of(
    workload: Workload,
    *,
    cache_bytes: float,
    dirty_limit_bytes: float,
    read_ahead: ReadAheadRules,
    queue: int | None = None,
    seed: int = 0,
) -> Traffic:
    """What storage does for a workload.

    Parameters
    ----------
    workload : Workload
        Requests of less than a page come to the same page several times where they are sequential.
    cache_bytes : float
        Size of the page cache.
    dirty_limit_bytes : float
        Where the kernel makes writers wait (vm.dirty_bytes, or the ratio of the memory).
    read_ahead : ReadAheadRules
    queue : int, optional
        Requests that storage takes before it has done the first of them; None: all.
    """
    request = min(max(workload.size_mean / PAGE_BYTES, 1.0), REQUEST_PAGES_MAX)
    files = max(1, round(min(workload.process_num, FILES_MAX, REQUESTED_PAGES_MAX // request)))
    window, cache = read_ahead.window_pages, cache_bytes / PAGE_BYTES
    seq_frac, read_frac = float(workload.seq_frac), float(workload.read_frac)
    if workload.unique_bytes <= cache_bytes:
        # Reads do nothing, so only writes are drawn: one continues another where no read was between them.
        seq_frac, read_frac = seq_frac * (1 - read_frac), 0.0
        scale = max(FILE_PAGES_MIN, FILE_REQUESTS_MIN * request * files) * PAGE_BYTES / workload.unique_bytes
    else:
        workload = workload.replace(unique_bytes=min(workload.unique_bytes, CACHES_MAX * cache_bytes))
        scale = max(CACHE_PAGES_MIN, WINDOWS_MIN * window * files, CACHE_REQUESTS_MIN * request) / cache
    scale, dirty_limit = min(1.0, scale), dirty_limit_bytes / PAGE_BYTES
    trials, background = math.ceil(2 * (request - 1)), scale * BACKGROUND_FRAC * dirty_limit
    walk = Walk(
        files,
        max(math.ceil(request), round(scale * workload.unique_bytes / PAGE_BYTES / files)),
        trials,
        (request - 1) / trials if trials else 0.0,
        max(0.0, 1 - workload.size_mean / PAGE_BYTES),
        seq_frac,
        read_frac,
    )
    held, all_pages = round(scale * HELD_FRAC * dirty_limit), files * walk.file_pages
    limits = Limits(
        cache=round(scale * cache),
        background=round(background),
        held=held,
        chunk=max(1, round(scale * chunk_pages(dirty_limit))),
        # Time passes here where writers wait, so where they never do storage has done all by the next request.
        queue=all_pages if queue is None or all_pages <= held else max(1, round(scale * queue)),
        read_ahead=read_ahead,
    )
    counted = min(max(round(MOVED_PAGES / request), REQUESTS_MIN), REQUESTS_MAX)
    return Traffic(*_run(state_of(walk, limits), counted, seed).tolist())


@numba.njit(cache=True, nogil=True)
def _run(state, counted, seed):
    np.random.seed(seed)
    _fill(state)
    number, flushing = _warm_up(state), state.walk.read_frac < 1 and _total(state) > state.limits.background
    # Reads and their pages, writes and theirs, then what storage did, as `_request` has it; at every start of the
    # flusher what the sums were, for the writes count from one to another.
    sums, first, last, starts = np.zeros(12), np.zeros(12), np.zeros(12), 0
    for at in range(number, number + LONGER_MAX * counted):
        before = state.flusher[STARTS]
        reads, pages, done = _request(state, at)
        if state.flusher[STARTS] > before:
            starts += 1
            if starts == 1:
                first[:] = sums
            last[:] = sums
        sums[0 if reads else 2] += 1
        sums[1 if reads else 3] += pages
        for column in range(8):
            sums[4 + column] += done[column]
        if at >= number + counted and (starts > CYCLES_MIN or not flushing):
            break
    cycles = last - first if starts > CYCLES_MIN else sums
    reads, read_pages = max(sums[0], 1.0), max(sums[1], 1.0)
    writes, written_pages = max(cycles[2], 1.0), max(cycles[3], 1.0)
    by = np.array([reads, reads, reads, read_pages, read_pages, writes, written_pages, writes])
    return np.concatenate((sums[4:9], cycles[9:])) / by


@kernel
def _total(state):
    return state.walk.files * state.walk.file_pages


@kernel
def _warm_up(state):
    """Requests until the cache holds, and the flusher has left, what they always will."""
    total, moved, replaced, flushed, number = _total(state), 0, 0, 0, 0
    misses, writes_back = (
        total > state.limits.cache and state.walk.read_frac > 0,
        total > state.limits.background and state.walk.read_frac < 1,
    )
    while moved < WARM_MAX * state.limits.cache and (
        (misses and replaced < TURNS * state.limits.cache) or (writes_back and flushed < min(total, state.limits.cache))
    ):
        _, pages, done = _request(state, number)
        moved, number = moved + pages, number + 1
        replaced, flushed = replaced + done[3] + done[4], flushed + done[6]
    return number


@kernel
def _fill(state):
    """Let the cache hold requests of any places."""
    total = state.walk.files * state.walk.file_pages
    if total <= state.limits.cache:
        for page in range(total):
            use(state, page)
        return
    while state.counts[USED] < min(state.limits.cache, FILL_MAX * total):
        file, size = np.random.randint(state.walk.files), 1 + round(state.walk.trials * state.walk.more_frac)
        first = np.random.randint(state.walk.file_pages - size + 1)
        for page in range(first, first + size):
            use(state, file * state.walk.file_pages + page)


@kernel
def _request(state, number):
    """Draw a request and do it: whether it reads, its pages, and what storage does, as `Traffic` has it, in pages."""
    places, file = state.places, number % state.walk.files
    size = 1 + (np.random.binomial(state.walk.trials, state.walk.more_frac) if state.walk.trials else 0)
    size = min(size, state.walk.file_pages)
    first = places.behind[file]
    if state.walk.stay_frac > 0 and first > 0 and np.random.random() < state.walk.stay_frac:
        first -= 1
    if np.random.random() >= state.walk.seq_frac:
        first = np.random.randint(state.walk.file_pages - size + 1)
    elif first + size > state.walk.file_pages:
        # As Willy does: a scan meets nothing that it left.
        first = 0
    places.behind[file] = first + size
    reads, fits = np.random.random() < state.walk.read_frac, _total(state) <= state.limits.cache
    waited, ahead, written, filled = (0, 0), (0, 0), (0, 0), 0
    if reads:
        waited, ahead = read(state, file, first, first + size)
    else:
        for page in range(file * state.walk.file_pages + first, file * state.walk.file_pages + first + size):
            if not fits:
                filled += state.walk.stay_frac > 0 and not state.pages.cached[page]
                use(state, page)
            dirty(state, page)
        written = write_back(state)
    if state.counts[USED] > state.limits.cache:
        written = _add(written, _reclaim(state))
    return reads, size, (int(waited[0] > 0), waited[0], ahead[0], waited[1], ahead[1], written[0], written[1], filled)


@kernel
def read(state, file, first, behind):
    """filemap_read: requests and pages that are waited for, and those that are not."""
    cached, readers, begin = state.pages.cached, state.readers, file * state.walk.file_pages
    waited, ahead, page, behind = (0, 0), (0, 0), begin + first, begin + behind
    while page < behind:
        if not cached[page]:
            waited = _add(waited, _load(state, missed(readers, cached, file, page, behind - page)))
        mark = -1
        while page < behind and cached[page] and mark < 0:
            use(state, page)
            if readers.marked[page]:
                mark = page
            page += 1
        if mark >= 0:
            ahead = _add(ahead, _load(state, met_mark(readers, cached, file, mark, behind)))
    readers.behind[file] = behind - (state.walk.stay_frac > 0)
    return waited, ahead


@kernel
def _add(one, other):
    """Requests and pages."""
    return one[0] + other[0], one[1] + other[1]


@kernel
def _load(state, pages):
    """Requests and pages for what is not cached of a range."""
    requests, loaded, run = 0, 0, 0
    for page in range(pages[0], pages[1]):
        if state.pages.cached[page]:
            run = 0
            continue
        requests += run % COMMAND_PAGES == 0
        run, loaded = run + 1, loaded + 1
        use(state, page)
    return requests, loaded


@kernel
def _reclaim(state):
    """Drop what was used longest ago. What is dirty or on its way to storage is passed over, as shrink_folio_list does;
    where there is little else it is written one by one."""
    requests = 0
    while state.counts[USED] > state.limits.cache:
        oldest = state.pages.newer[len(state.pages.cached)]
        kept = state.queue.leaving[oldest] or state.pages.dirty[oldest]
        if kept and state.counts[DIRTY] + state.flusher[LEAVING] < KEPT_MAX * state.limits.cache:
            use(state, oldest)
            continue
        if state.pages.dirty[oldest]:
            clean(state, oldest)
            requests += 1
        drop(state, oldest)
    return requests, requests
