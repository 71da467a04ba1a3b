# SPDX-License-Identifier: Apache-2.0
"""Turns reads of pages into what storage reads for them: mm/readahead.c of Linux 6.18, with its marks on large folios.

`selfscale.models.read_ahead` says the same as means over runs, without folios.
"""

from __future__ import annotations

from selfscale.simulation.kernel import kernel
from selfscale.simulation.page_cache import use
from selfscale.simulation.traffic_state import COMMAND_PAGES
from selfscale.simulation.windows import first_window, next_window

ORDER_STEP = 2
"""By which the order of the folios grows from one window to the next."""


@kernel
def read(state, file, first, behind):
    """filemap_read: requests and pages that are waited for, and those that are not."""
    places, begin = state.places, file * state.walk.file_pages
    waited, ahead, page = (0, 0), (0, 0), first
    while page < behind:
        if not state.pages.cached[begin + page]:
            waited = add(waited, _missed(state, file, page, behind - page))
        mark = -1
        while page < behind and state.pages.cached[begin + page] and mark < 0:
            use(state, begin + page)
            if state.marked[begin + page]:
                mark = page
            page += 1
        if mark >= 0:
            count = state.marked[begin + mark]
            head = mark // count * count
            state.marked[begin + head : begin + head + count] = 0
            ahead = add(ahead, _met_mark(state, file, head, count, behind - mark))
    places.last[file] = behind - 1
    return waited, ahead


@kernel
def add(one, other):
    """Requests and pages."""
    return one[0] + other[0], one[1] + other[1]


@kernel
def _missed(state, file, page, need):
    """page_cache_sync_ra."""
    places, begin = state.places, file * state.walk.file_pages
    most = max(state.limits.window, min(need, COMMAND_PAGES))
    if page == 0 or need > most or 0 <= page - places.last[file] <= 1:
        size = first_window(need, most)
        places.start[file], places.size[file], places.order[file] = page, size, 0
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
    size = min(history + need, most)
    places.start[file], places.size[file], places.ahead[file], places.order[file] = page, size, 1, 0
    return _load(state, file, page, size, 1)


@kernel
def _met_mark(state, file, page, count, need):
    """page_cache_async_ra, for the mark on a folio of so many pages."""
    places, begin = state.places, file * state.walk.file_pages
    most = max(state.limits.window, min(need, COMMAND_PAGES))
    if page == (places.start[file] + places.size[file] - places.ahead[file]) // count * count:
        places.start[file] += places.size[file]
        places.size[file] = max(places.size[file], next_window(places.size[file], most))
    else:
        start = page + 1
        while start < state.walk.file_pages and start - page <= most and state.pages.cached[begin + start]:
            start += 1
        if start == state.walk.file_pages or start - page > most:
            return 0, 0
        places.start[file], places.size[file] = start, next_window(start - page + need, most)
    order, behind = places.order[file] + ORDER_STEP, places.start[file] + places.size[file]
    align = min(1 << order, most & -most)
    if behind // align * align > places.start[file]:
        places.size[file] -= behind % align
    while 1 << order > places.size[file]:
        order -= 1
    places.order[file], places.ahead[file] = order, places.size[file]
    return _load(state, file, places.start[file], places.size[file], places.ahead[file])


@kernel
def _load(state, file, first, count, ahead):
    """page_cache_ra_order: what is not cached of some pages, of which the mark is so many before their end."""
    begin, requests, pages, run = file * state.walk.file_pages, 0, 0, 0
    behind, mark = min(first + count, state.walk.file_pages), first + count - ahead
    marked = _folio_pages(state, begin, mark, behind, state.places.order[file]) if ahead else 0
    for page in range(first, behind):
        if state.pages.cached[begin + page]:
            run = 0
            continue
        requests += run % COMMAND_PAGES == 0
        run, pages = run + 1, pages + 1
        use(state, begin + page)
        state.marked[begin + page] = marked if mark <= page < mark + marked else 0
    return requests, pages


@kernel
def _folio_pages(state, begin, page, behind, order):
    """Of the folio that begins there: aligned, within the window, and single pages where one of them is cached."""
    pages = 1 << order
    while pages > 1 and (page % pages or page + pages > behind):
        pages //= 2
    for each in range(begin + page, min(begin + page + pages, len(state.pages.cached))):
        if state.pages.cached[each]:
            return 1
    return pages
