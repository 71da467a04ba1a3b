# SPDX-License-Identifier: Apache-2.0
"""Turns the five parameters into what storage has to do for them: Linux's page cache, gone through request by request.

Requests are drawn as Willy draws them. What is read ahead goes by mm/readahead.c (page_cache_sync_ra,
page_cache_async_ra, without large folios), what is written back by mm/page-writeback.c: so much stays dirty, and the
flusher goes round each file in turn. No constant is fitted to measurements; only shares of the cache count, so that a
small one stands for a large one. What is told is the steady state, which real storage may need long to reach.

`selfscale.models.read_ahead` and `selfscale.models.write_back` say the same as means. How well either does is printed
by ``make bench-traffic``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

from characterize.workload import Workload
from selfscale.simulation.page_cache import DIRTY, USED, Pages, clean, dirty, drop, use
from selfscale.simulation.windows import first_window, next_window

PAGE_BYTES = 4096
COMMAND_PAGES = 320
"""Of one request to storage at most."""
FLUSHED_PAGES = 1024
"""That the flusher writes of a file before it goes on to the next (MIN_WRITEBACK_PAGES)."""
TURNS = 2.5
"""Times that the content of the cache is replaced, and all that is dirty once, before it is counted."""
WARM_MAX = 40.0
"""Times the cache that is moved before that at most: where little misses, little is replaced."""
MOVED_PAGES, REQUESTS_MIN, REQUESTS_MAX = 60_000, 400, 6000
"""That are counted."""
CACHE_PAGES_MIN, WINDOWS_MIN, CACHE_REQUESTS_MIN = 3000, 24, 40
"""Of the cache that stands for a larger one: pages, windows of each file, and requests."""
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
    """

    waiting: float
    reads: float
    reads_ahead: float
    read_frac: float
    ahead_frac: float
    writes: float
    written_frac: float


class Walk(NamedTuple):
    """What is drawn: file after file makes one request."""

    files: int
    file_pages: int
    trials: int
    more_frac: float
    seq_frac: float
    read_frac: float


class Limits(NamedTuple):
    """In pages."""

    cache: int
    dirty: int
    window: int
    flushed: int


class Places(NamedTuple):
    """Of each file: page behind the last request, last page that was read, the window, where the flusher is."""

    behind: np.ndarray
    last: np.ndarray
    start: np.ndarray
    size: np.ndarray
    ahead: np.ndarray
    flushed: np.ndarray


class State(NamedTuple):
    """Pages and counts as `selfscale.simulation.page_cache` has them; the pages that have the next window read when
    they are met; the file that is written back, and how much of it was."""

    walk: Walk
    limits: Limits
    pages: Pages
    counts: np.ndarray
    marked: np.ndarray
    places: Places
    turn: np.ndarray


def traffic_of(
    workload: Workload,
    *,
    cache_bytes: float,
    window_bytes: float,
    dirty_bytes: float,
    background_bytes: float = 0.0,
    seed: int = 0,
) -> Traffic:
    """What storage does for a workload.

    Parameters
    ----------
    workload : Workload
        Requests of less than a page are taken for such of a page.
    cache_bytes : float
        Size of the page cache.
    window_bytes : float
        Largest window of read-ahead.
    dirty_bytes : float
        That stay dirty where there is written back.
    background_bytes : float
        Working set up to which nothing is.
    """
    files, request = int(workload.process_num), max(workload.size_mean / PAGE_BYTES, 1.0)
    window, cache = max(1, round(window_bytes / PAGE_BYTES)), cache_bytes / PAGE_BYTES
    least = max(CACHE_PAGES_MIN, WINDOWS_MIN * window * files, CACHE_REQUESTS_MIN * request)
    scale = min(1.0, least / cache)
    trials, within = math.ceil(2 * (request - 1)), workload.unique_bytes <= background_bytes
    walk = Walk(
        files,
        max(math.ceil(request), round(scale * workload.unique_bytes / PAGE_BYTES / files)),
        trials,
        (request - 1) / trials if trials else 0.0,
        float(workload.seq_frac),
        float(workload.read_frac),
    )
    limits = Limits(
        round(scale * cache),
        round(scale * max(dirty_bytes, workload.unique_bytes * within) / PAGE_BYTES),
        window,
        max(1, round(scale * FLUSHED_PAGES)),
    )
    counted = min(max(round(MOVED_PAGES / request), REQUESTS_MIN), REQUESTS_MAX)
    return Traffic(*_run(_state(walk, limits), counted, seed).tolist())


def _state(walk: Walk, limits: Limits) -> State:
    count = walk.files * walk.file_pages
    newer, older, dirtied_next, dirtied_before = (np.full(count + 1, count, np.int32) for _ in range(4))
    flags = [np.zeros(count, np.bool_) for _ in range(4)]
    pages = Pages(newer, older, dirtied_next, dirtied_before, flags[0], flags[1], flags[2], np.zeros(count))
    # Nobody has read: page -2 is followed by none.
    places = Places(*(np.full(walk.files, -2 if name == "last" else 0, np.int64) for name in Places._fields))
    return State(walk, limits, pages, np.zeros(2, np.int64), flags[3], places, np.zeros(2, np.int64))


@numba.njit(cache=True, nogil=True)
def _run(state, counted, seed):
    np.random.seed(seed)
    _fill(state)
    total, moved, replaced, flushed, number = state.walk.files * state.walk.file_pages, 0, 0, 0, 0
    misses, writes_back = (
        total > state.limits.cache and state.walk.read_frac > 0,
        total > state.limits.dirty and state.walk.read_frac < 1,
    )
    while moved < WARM_MAX * state.limits.cache and (
        (misses and replaced < TURNS * state.limits.cache) or (writes_back and flushed < min(total, state.limits.cache))
    ):
        read, pages, done = _request(state, number)
        moved, number = moved + pages, number + 1
        replaced, flushed = replaced + done[3] + done[4], flushed + done[6]
    sums, reads, read_pages, written_pages = np.zeros(7), 0, 0, 0
    for at in range(number, number + counted):
        read, pages, done = _request(state, at)
        reads += read
        read_pages += pages * read
        written_pages += pages * (not read)
        for column in range(7):
            sums[column] += done[column]
    by_reads, by_writes = max(reads, 1), max(counted - reads, 1)
    pages_read, pages_written = max(read_pages, 1), max(written_pages, 1)
    return sums / np.array([by_reads, by_reads, by_reads, pages_read, pages_read, by_writes, pages_written])


@numba.njit(cache=True, nogil=True)
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


@numba.njit(cache=True, nogil=True)
def _request(state, number):
    """Draw a request and do it: whether it reads, its pages, and what storage does, as `Traffic` has it, in pages."""
    places, file = state.places, number % state.walk.files
    size = 1 + (np.random.binomial(state.walk.trials, state.walk.more_frac) if state.walk.trials else 0)
    size = min(size, state.walk.file_pages)
    first = places.behind[file]
    if np.random.random() >= state.walk.seq_frac or first + size > state.walk.file_pages:
        first = np.random.randint(state.walk.file_pages - size + 1)
    places.behind[file] = first + size
    read = np.random.random() < state.walk.read_frac
    waited = ahead = written = (0, 0)
    if read:
        waited, ahead = _read(state, file, first, first + size)
    else:
        for page in range(file * state.walk.file_pages + first, file * state.walk.file_pages + first + size):
            use(state, page)
            dirty(state, page)
        written = _write_back(state)
    while state.counts[USED] > state.limits.cache:
        oldest = state.pages.newer[len(state.pages.cached)]
        if state.pages.dirty[oldest]:
            clean(state, oldest)
            written = _sum(written, (1, 1))
        state.marked[oldest] = False
        drop(state, oldest)
    return read, size, (int(waited[0] > 0), waited[0], ahead[0], waited[1], ahead[1], written[0], written[1])


@numba.njit(cache=True, nogil=True)
def _read(state, file, first, behind):
    """filemap_read: requests and pages that are waited for, and those that are not."""
    places, begin = state.places, file * state.walk.file_pages
    waited, ahead, page = (0, 0), (0, 0), first
    while page < behind:
        if not state.pages.cached[begin + page]:
            waited = _sum(waited, _missed(state, file, page, behind - page))
        mark = -1
        while page < behind and state.pages.cached[begin + page] and mark < 0:
            use(state, begin + page)
            if state.marked[begin + page]:
                mark = page
            page += 1
        if mark >= 0:
            state.marked[begin + mark] = False
            ahead = _sum(ahead, _met_mark(state, file, mark, behind - mark))
    places.last[file] = behind - 1
    return waited, ahead


@numba.njit(cache=True, nogil=True)
def _sum(one, other):
    return one[0] + other[0], one[1] + other[1]


@numba.njit(cache=True, nogil=True)
def _missed(state, file, page, need):
    """page_cache_sync_ra."""
    places, begin = state.places, file * state.walk.file_pages
    most = max(state.limits.window, min(need, COMMAND_PAGES))
    if page == 0 or need > most or 0 <= page - places.last[file] <= 1:
        places.start[file], places.size[file] = page, first_window(need, most)
        size = places.size[file]
        places.ahead[file] = size - need if size > need else size // 2
        return _load(state, file, page, size, places.ahead[file])
    before = page - 1
    while before >= 0 and page - 1 - before < most and state.pages.cached[begin + before]:
        before -= 1
    history = page - 1 - before
    if history <= need:
        return _load(state, file, page, need, 0)
    if before < 0:
        history *= 2
    places.start[file], places.size[file], places.ahead[file] = page, min(history + need, most), 1
    return _load(state, file, page, places.size[file], 1)


@numba.njit(cache=True, nogil=True)
def _met_mark(state, file, page, need):
    """page_cache_async_ra."""
    places, begin = state.places, file * state.walk.file_pages
    most = max(state.limits.window, min(need, COMMAND_PAGES))
    if page == places.start[file] + places.size[file] - places.ahead[file]:
        places.start[file] += places.size[file]
        places.size[file] = next_window(places.size[file], most)
    else:
        start = page + 1
        while start < state.walk.file_pages and start - page <= most and state.pages.cached[begin + start]:
            start += 1
        if start == state.walk.file_pages or start - page > most:
            return 0, 0
        places.start[file], places.size[file] = start, next_window(start - page + need, most)
    places.ahead[file] = places.size[file]
    return _load(state, file, places.start[file], places.size[file], places.ahead[file])


@numba.njit(cache=True, nogil=True)
def _load(state, file, first, count, ahead):
    """do_page_cache_ra: what is not cached of some pages, of which the mark is so many before their end."""
    begin, requests, pages, run = file * state.walk.file_pages, 0, 0, 0
    for page in range(first, min(first + count, state.walk.file_pages)):
        if state.pages.cached[begin + page]:
            run = 0
            continue
        requests += run % COMMAND_PAGES == 0
        run, pages = run + 1, pages + 1
        use(state, begin + page)
        state.marked[begin + page] = page == first + count - ahead
    return requests, pages


@numba.njit(cache=True, nogil=True)
def _write_back(state):
    """Until no more is dirty than may be: each run of dirty pages, in the order of a file, then those of the next."""
    requests, pages, turn, places = 0, 0, state.turn, state.places
    while state.counts[DIRTY] > state.limits.dirty:
        begin, page, looked = turn[0] * state.walk.file_pages, places.flushed[turn[0]], 0
        while looked < state.walk.file_pages and not state.pages.dirty[begin + page]:
            page, looked = (page + 1) % state.walk.file_pages, looked + 1
        run = 0
        while page < state.walk.file_pages and run < COMMAND_PAGES and state.pages.dirty[begin + page]:
            clean(state, begin + page)
            page, run = page + 1, run + 1
        requests, pages, turn[1] = requests + (run > 0), pages + run, turn[1] + run
        places.flushed[turn[0]] = page % state.walk.file_pages
        if run == 0 or turn[1] >= state.limits.flushed:
            turn[0], turn[1] = (turn[0] + 1) % state.walk.files, 0
    return requests, pages
