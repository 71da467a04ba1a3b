# SPDX-License-Identifier: Apache-2.0
"""Turns dirty pages into the requests that write them back: Linux's flusher (fs/fs-writeback.c, mm/page-writeback.c).

It begins when more is dirty than the background limit, goes through all files, of each as much as a chunk from where it
was last, and then looks again. It does not wait for storage but where that takes no more requests, so of several files
it finds all that is dirty in one go, and of a long one a part. A page on its way to storage that becomes dirty again
is passed over. Writers wait while too much is dirty or on its way.
"""

from __future__ import annotations

from selfscale.simulation.kernel import kernel
from selfscale.simulation.page_cache import DIRTY, clean
from selfscale.simulation.traffic_state import (
    ACTIVE,
    COMMAND_PAGES,
    FILE,
    HEAD,
    LEAVING,
    LEFT,
    LOOKED,
    QUEUED,
    STARTS,
)


@kernel
def write_back(state):
    """What follows a write: requests and pages of the flusher, and the wait of the writer."""
    requests, pages, flusher, limits = 0, 0, state.flusher, state.limits
    if state.counts[DIRTY] > limits.background and not flusher[ACTIVE]:
        flusher[ACTIVE], flusher[FILE], flusher[LEFT], flusher[LOOKED] = 1, 0, limits.chunk, 0
        flusher[STARTS] += 1
    while True:
        while flusher[ACTIVE] and flusher[QUEUED] < limits.queue:
            run = _submit(state)
            requests, pages = requests + (run > 0), pages + run
        if flusher[QUEUED] == 0 or state.counts[DIRTY] + flusher[LEAVING] <= limits.held:
            return requests, pages
        _complete(state)


@kernel
def _submit(state):
    """Pages of the flusher's next request; 0 where it goes on to the next file, or ends."""
    flusher, places, dirty, leaving = state.flusher, state.places, state.pages.dirty, state.queue.leaving
    file, size = flusher[FILE], state.walk.file_pages
    begin, page, looked, run = file * size, places.flushed[file], flusher[LOOKED], 0
    while looked < size and (leaving[begin + page] or not dirty[begin + page]):
        page, looked = page + 1, looked + 1
        if page == size:
            page = 0
    first = page
    while looked < size and page < size and run < COMMAND_PAGES:
        if leaving[begin + page] or not dirty[begin + page]:
            break
        clean(state, begin + page)
        leaving[begin + page] = True
        page, run, looked = page + 1, run + 1, looked + 1
    places.flushed[file] = 0 if page == size else page
    flusher[LOOKED] = looked
    if run:
        tail = (flusher[HEAD] + flusher[QUEUED]) % len(state.queue.first)
        state.queue.first[tail], state.queue.pages[tail] = begin + first, run
        flusher[QUEUED], flusher[LEAVING] = flusher[QUEUED] + 1, flusher[LEAVING] + run
        flusher[LEFT] -= run
    if flusher[LEFT] <= 0 or flusher[LOOKED] >= size:
        flusher[FILE], flusher[LEFT], flusher[LOOKED] = file + 1, state.limits.chunk, 0
        if flusher[FILE] == state.walk.files:
            flusher[FILE] = 0
            if state.counts[DIRTY] <= state.limits.background:
                flusher[ACTIVE] = 0
            elif run == 0 and flusher[QUEUED]:
                # All that is dirty is on its way already.
                _complete(state)
    return run


@kernel
def _complete(state):
    """Storage has done the oldest request."""
    flusher, queue = state.flusher, state.queue
    head = flusher[HEAD]
    for page in range(queue.first[head], queue.first[head] + queue.pages[head]):
        queue.leaving[page] = False
    flusher[LEAVING] -= queue.pages[head]
    flusher[HEAD], flusher[QUEUED] = (head + 1) % len(queue.first), flusher[QUEUED] - 1
