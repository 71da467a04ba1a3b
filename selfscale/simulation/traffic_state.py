# SPDX-License-Identifier: Apache-2.0
"""What `selfscale.simulation.traffic` goes through requests with: the draws, the kernel's limits, every page and file.

numba compiles what works on it; state lives in arrays that the functions share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selfscale.simulation.page_cache import Pages, pages_of
from selfscale.simulation.read_ahead_rules import ReadAheadRules
from selfscale.simulation.reading import Readers, readers_of

COMMAND_PAGES = 320
"""Of one request to storage at most."""
ACTIVE, FILE, LEFT, LOOKED, HEAD, QUEUED, LEAVING, STARTS = range(8)
"""Of `State.flusher`: whether it works, on which file, pages that it still writes of that and has looked at, the oldest
request that storage has, how many, of how many pages, and how often it began to work."""


class Walk(NamedTuple):
    """What is drawn: file after file makes one request.

    Attributes
    ----------
    trials, more_frac : int, float
        Of the binomial distribution of what a request has beyond its first page.
    stay_frac : float
        Share of sequential requests that go on within the page of the one before.
    """

    files: int
    file_pages: int
    trials: int
    more_frac: float
    stay_frac: float
    seq_frac: float
    read_frac: float


class Limits(NamedTuple):
    """In pages, but for the requests that storage has at once.

    Attributes
    ----------
    cache : int
        Of the page cache.
    background, held : int
        Dirty pages with which the flusher begins, and pages dirty or on their way to storage with which writers wait.
    chunk : int
        That the flusher writes of a file before it goes on to the next (writeback_chunk_size).
    queue : int
        Requests that storage takes from the flusher before it has done the first.
    read_ahead : ReadAheadRules
    """

    cache: int
    background: int
    held: int
    chunk: int
    queue: int
    read_ahead: ReadAheadRules


class Places(NamedTuple):
    """Of each file: page behind the last request, and where the flusher is."""

    behind: np.ndarray
    flushed: np.ndarray


class Queue(NamedTuple):
    """Requests that storage has: their first pages and lengths, in a ring; and the pages that are on their way."""

    first: np.ndarray
    pages: np.ndarray
    leaving: np.ndarray


class State(NamedTuple):
    """Pages and counts as `selfscale.simulation.page_cache` has them, and of every file its one reader."""

    walk: Walk
    limits: Limits
    pages: Pages
    counts: np.ndarray
    readers: Readers
    places: Places
    flusher: np.ndarray
    queue: Queue


def state_of(walk: Walk, limits: Limits) -> State:
    """Before the first request."""
    count = walk.files * walk.file_pages
    pages = pages_of(np.zeros(count, np.bool_))
    begin = np.arange(walk.files) * walk.file_pages
    readers = readers_of(begin, begin + walk.file_pages, count, limits.read_ahead)
    places = Places(np.zeros(walk.files, np.int64), np.zeros(walk.files, np.int64))
    queue = Queue(np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64), np.zeros(count, np.bool_))
    return State(walk, limits, pages, np.zeros(2, np.int64), readers, places, np.zeros(STARTS + 1, np.int64), queue)
