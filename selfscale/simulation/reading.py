# SPDX-License-Identifier: Apache-2.0
"""Turns reads of pages into which pages are loaded for them: mm/readahead.c of Linux 6.18, with marks on large folios.

`selfscale.models.read_ahead` says the same as means over runs, without folios. What a simulation makes of the pages
that are to be loaded is its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selfscale.simulation.kernel import kernel
from selfscale.simulation.read_ahead_rules import ReadAheadRules

NODE_PAGES = 64
"""Of the tree of a file's pages (XA_CHUNK_SIZE)."""
ORDER_STEP = 2
"""By which the order of the folios grows from one window to the next."""


class Readers(NamedTuple):
    """Files as they are held open (struct file_ra_state), shape (r,) each but for the marks, with n pages in all.

    Attributes
    ----------
    begin, end : ndarray of int64
        Pages of the file.
    behind : ndarray of int64
        Page in which the last read ended; the next one where it ended with a page (file_ra_state.prev_pos).
    start, size, ahead, order : ndarray of int64
        The window, how many pages before its end the mark lies that has the next one read, and the order of its folios.
    window : ndarray of int64
        Pages of the largest window.
    random : ndarray of bool
        Nothing but what is asked for is read (FMODE_RANDOM).
    folio : ndarray of int32, shape (n,)
        Of every page that is cached how many lie in its folio, whose index is a multiple of that.
    marked : ndarray of bool, shape (n,)
        Folios that have the next window read when they are met.
    rules : ReadAheadRules
    """

    begin: np.ndarray
    end: np.ndarray
    behind: np.ndarray
    start: np.ndarray
    size: np.ndarray
    ahead: np.ndarray
    order: np.ndarray
    window: np.ndarray
    random: np.ndarray
    folio: np.ndarray
    marked: np.ndarray
    rules: ReadAheadRules


def readers_of(begin: np.ndarray, end: np.ndarray, pages: int, rules: ReadAheadRules) -> Readers:
    """Before anything was read."""
    start, size, ahead, order = (np.zeros(len(begin), np.int64) for _ in range(4))
    # Nothing follows it.
    behind = begin.astype(np.int64) - 2
    return Readers(
        begin.astype(np.int64),
        end.astype(np.int64),
        behind,
        start,
        size,
        ahead,
        order,
        np.full(len(begin), rules.window_pages, np.int64),
        np.zeros(len(begin), np.bool_),
        np.ones(pages, np.int32),
        np.zeros(pages, np.bool_),
        rules,
    )


@kernel
def missed(readers, cached, reader, page, need):
    """page_cache_sync_ra, at a page that is not cached: the first page to load and the one behind the last."""
    begin, most = readers.begin[reader], _most(readers, reader, need)
    if readers.random[reader]:
        return page, page + min(need, most)
    if page == begin or need > most or 0 <= page - readers.behind[reader] <= 1:
        size = _first_window(need, most)
        readers.ahead[reader] = size - need if size > need else size // 2
        readers.start[reader], readers.size[reader], readers.order[reader] = page, size, 0
        return _window(readers, cached, reader)
    history, whole = _history(readers, cached, reader, page, most)
    if history <= need:
        return page, min(page + need, readers.end[reader])
    if whole:
        history *= 2
    readers.start[reader], readers.size[reader] = page, min(history + need, most)
    readers.ahead[reader], readers.order[reader] = 1, 0
    return _window(readers, cached, reader)


@kernel
def met_mark(readers, cached, reader, page, behind):
    """page_cache_async_ra, at a page that has a mark and a request to one: the same; as many as none where nothing
    follows from it."""
    begin, end, count = readers.begin[reader], readers.end[reader], readers.folio[page]
    page = begin + (page - begin) // count * count
    need = behind - page
    most = _most(readers, reader, need)
    readers.marked[page : page + count] = False
    expected = readers.start[reader] + readers.size[reader] - readers.ahead[reader] - begin
    if page - begin == expected // count * count:
        readers.start[reader] += readers.size[reader]
        readers.size[reader] = max(readers.size[reader], _next_window(readers.size[reader], most))
    else:
        start = _next_miss(readers, cached, reader, page, most)
        if start >= end or start - page > most:
            return page, page
        readers.start[reader], readers.size[reader] = start, _next_window(start - page + need, most)
    order, behind = readers.order[reader] + ORDER_STEP, readers.start[reader] + readers.size[reader] - begin
    align = min(1 << order, most & -most)
    if behind // align * align > readers.start[reader] - begin:
        readers.size[reader] -= behind % align
    while 1 << order > readers.size[reader]:
        order -= 1
    readers.order[reader], readers.ahead[reader] = order if readers.rules.large_folios else 0, readers.size[reader]
    return _window(readers, cached, reader)


@kernel
def _most(readers, reader, need):
    """ractl_max_pages."""
    return max(readers.window[reader], min(need, readers.rules.request_pages))


@kernel
def _history(readers, cached, reader, page, most):
    """page_cache_prev_miss: how many pages before one are cached, and whether they are all of them.

    As `_next_miss` has it, in the other direction: within a large folio it is at the first slot, pages before its
    index. From the begin of the node it goes on with the index in the node before.
    A folio as large as a node has a slot of the tree's next level.
    """
    begin, index = readers.begin[reader], page - 1 - readers.begin[reader]
    folio = readers.folio[begin + index]
    at = index // folio * folio if folio < NODE_PAGES else index
    for count in range(most):
        if not cached[begin + at]:
            return count, False
        index -= 1
        if index < 0:
            return count + 1, True
        if at % NODE_PAGES:
            at -= 1
        elif index % NODE_PAGES:
            if at == 0:
                return count + 1, False
            at = (at // NODE_PAGES - 1) * NODE_PAGES + index % NODE_PAGES
    return most, False


@kernel
def _next_miss(readers, cached, reader, page, most):
    """page_cache_next_miss, behind the first page of a folio.

    xas_load within a large folio is at its first slot, so that xas_next is a page behind its index from there on: up to
    the end of the node, where it goes on with the index. So a miss in that node is told as the page behind it, which
    leaves a page that is not read ahead. `tests/selfscale/simulation/test_reading.py` compares it with the kernel.
    """
    index, begin = page + 1, readers.begin[reader]
    late = int(1 < readers.folio[page] < NODE_PAGES)
    for _ in range(most):
        if index - late >= readers.end[reader] or not cached[index - late]:
            return index
        index += 1
        if late and (index - late - begin) % NODE_PAGES == 0:
            late = 0
    return index


@kernel
def _first_window(need, most):
    """get_init_ra_size."""
    window = 1
    while window < need:
        window *= 2
    if window <= most // 32:
        return window * 4
    return window * 2 if window <= most // 4 else most


@kernel
def _next_window(window, most):
    """get_next_ra_size."""
    return window * 4 if window < most // 16 else min(window * 2, most)


@kernel
def _window(readers, cached, reader):
    """page_cache_ra_order: the folios of a window that is loaded next, with its mark; its pages, as far as the file has
    them."""
    begin, first, order = readers.begin[reader], readers.start[reader], readers.order[reader]
    behind = min(first + readers.size[reader], readers.end[reader])
    mark = first + readers.size[reader] - readers.ahead[reader]
    page, free = first, True
    while page < behind:
        count = 1 << order
        while (page - begin) % count or page + count > behind:
            count //= 2
        for each in range(page, page + count):
            free &= not cached[each]
        if not free:
            break
        readers.folio[page : page + count] = count
        if readers.ahead[reader] and page <= mark < page + count:
            readers.marked[page : page + count] = True
        page += count
    # From a page on that is cached already they are single ones (do_page_cache_ra).
    if readers.ahead[reader] and page <= mark < behind and not cached[mark]:
        readers.marked[mark] = True
    return first, behind
