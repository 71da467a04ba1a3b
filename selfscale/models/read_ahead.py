# SPDX-License-Identifier: Apache-2.0
"""Turns runs of requests into what Linux reads of storage for them: mm/readahead.c as a mean over many runs.

A run is a place in a file and the requests from there on, some of which read and some write. Who reads first has its
own pages read. Who reads behind it, or behind two requests of whatever kind, has a window read, two or four times its
own length; who comes to the mark in that has the next one read, two or four times as long, and does not wait for it.
Where the mark is written, and not read, the next window begins at the end of the last one, as a first one or as long
as what is cached before. What is left of the windows at the end of a run was read in vain. A single request that misses
behind cached pages is taken for the end of a run as long as these.

Three numbers are not the kernel's: the largest window, the share that is read in vain, and how often such single
requests are taken so. `selfscale.models.service_time` fits them to the bytes that storage moved (docs/decisions/0016).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selfscale.models.measured import Columns

GROWN_WINDOWS = 9
"""From 4 KiB to megabytes; all later ones are of the largest size."""
PAGE_BYTES = 4096.0
PIECE_BYTES = 128 * 1024.0
"""Of a longer read the parts overlap."""
RANDOM_FRAC_MIN = 1e-4
"""Of what is called sequential throughout: Willy's runs end at the ends of their files."""
REQUESTS_MAX = 1e4
"""Of a run: more have no end that counts."""
READ_FRAC_MIN = 1e-3


class StorageReads(NamedTuple):
    """What storage reads for a mean read of a run of which nothing is cached, each of shape (n,).

    Attributes
    ----------
    own, first, behind : ndarray
        Number of reads of no more than the request, of windows that are waited for, and of those that are not.
    bytes, behind_bytes : ndarray
        Of all of them, and of the last kind.
    long_bytes : ndarray
        Of all windows, what of each lies beyond `PIECE_BYTES`.
    """

    own: np.ndarray
    first: np.ndarray
    behind: np.ndarray
    bytes: np.ndarray
    long_bytes: np.ndarray
    behind_bytes: np.ndarray


def storage_reads(
    table: Columns,
    hit_frac: np.ndarray,
    window_bytes: float | np.ndarray,
    factors: tuple[float | np.ndarray, float | np.ndarray],
) -> StorageReads:
    """What storage reads, see the top of this file.

    Parameters
    ----------
    table : Columns
        Of n workloads.
    hit_frac : ndarray, shape (n,)
        Share of the reads that are cached.
    window_bytes : float, or ndarray of shape (k, 1) for k sets at once
        The largest window (read_ahead_kb of the device).
    factors : (float, float)
        Of what is read in vain, and of what is read for cached pages before a single request.
    """
    # Requests of less than a page come to a page several times.
    size = np.maximum(table.size_mean, PAGE_BYTES)
    on_page = size / table.size_mean
    read = np.maximum(1 - (1 - table.read_frac) ** on_page, READ_FRAC_MIN)
    goes_on = (1 - np.maximum(1 - table.seq_frac, RANDOM_FRAC_MIN)) ** on_page
    written = 1 - read

    # Whether a run comes to a window: behind two requests, behind a first one that was read, and from its begin.
    behind_two = goes_on * read / (1 - goes_on * written)
    behind_read = goes_on * (read + written * behind_two)
    begun = read * behind_read + written * goes_on * (read * behind_read + written * behind_two)
    alone = read + written * goes_on * read

    # Of the sets of constants that a derivative asks for, all but two have the same largest window.
    largest, which = np.unique(window_bytes, return_inverse=True)
    windows_of = _windows(size, read, goes_on, largest[:, None])
    first, behind, total_bytes, long_bytes, behind_bytes = windows_of[:, which.reshape(np.shape(window_bytes)[:-1])]
    # Of a run, per request that reads.
    each = np.maximum(1 - table.seq_frac, RANDOM_FRAC_MIN) / np.maximum(table.read_frac, READ_FRAC_MIN)
    own_bytes, windows = each * alone * size, each * begun
    all_bytes = own_bytes + windows * total_bytes
    moved = table.seq_frac * table.size_mean + (1 - table.seq_frac) * size
    vain_bytes = factors[0] * np.maximum(all_bytes - moved, 0)
    # What was read in windows lies in long pieces, so that little is cached before a request outside of it.
    before = factors[1] * hit_frac * np.sqrt((2 - hit_frac) / np.maximum(1 - hit_frac, 1e-6))
    return StorageReads(
        own=each * alone,
        first=windows * first,
        behind=windows * behind,
        bytes=moved + vain_bytes + before * own_bytes / all_bytes * table.size_mean,
        long_bytes=windows * long_bytes * (moved + vain_bytes) / all_bytes,
        behind_bytes=windows * behind_bytes * (moved + vain_bytes) / all_bytes,
    )


def _windows(size: np.ndarray, read: np.ndarray, goes_on: np.ndarray, window_bytes: np.ndarray) -> np.ndarray:
    """Of a run that comes to its first window: number of windows waited for and of others, bytes, long and behind.

    Parameters
    ----------
    size, read, goes_on : ndarray, shape (n,)
        Bytes of a request, share of them that read, and how probably another one follows.
    window_bytes : ndarray, shape (k, 1)

    Returns
    -------
    ndarray, shape (5, k, n)
    """

    def reached(position: np.ndarray) -> np.ndarray:
        return goes_on ** np.minimum(position / size, REQUESTS_MAX)

    written = 1 - read
    first_bytes = _first_window(size, window_bytes)
    window, start, at_mark = first_bytes, np.zeros_like(first_bytes), reached(size)
    first = np.ones_like(first_bytes)
    behind, behind_bytes, total_bytes = np.zeros_like(first), np.zeros_like(first), first_bytes
    long_bytes = np.maximum(first_bytes - PIECE_BYTES, 0)
    for number in range(GROWN_WINDOWS):
        end = start + window
        at_end = reached(end)
        by_mark, by_end = read * at_mark, written * at_end
        grown = np.maximum(_grown(window, window_bytes), size)
        again = np.maximum(read * first_bytes + written * np.minimum(end + size, window_bytes), size)
        window = (by_mark * grown + by_end * again) / np.maximum(by_mark + by_end, 1e-300)
        if number == GROWN_WINDOWS - 1:
            endless = 1 / np.maximum(1 - reached(window), 1e-9)
            by_mark, by_end = by_mark * endless, by_end * endless
        behind, first = behind + by_mark, first + by_end
        behind_bytes = behind_bytes + by_mark * grown
        total_bytes = total_bytes + (by_mark + by_end) * window
        long_bytes = long_bytes + (by_mark + by_end) * np.maximum(window - PIECE_BYTES, 0)
        # The mark in the next window is where this one ends.
        start, at_mark = end, at_end
    return np.stack([first, behind, total_bytes, long_bytes, behind_bytes])


def _grown(window: np.ndarray, window_bytes: np.ndarray) -> np.ndarray:
    """get_next_ra_size."""
    return np.minimum(window_bytes, window * np.where(window < window_bytes / 16, 4, 2))


def _first_window(size: np.ndarray, window_bytes: np.ndarray) -> np.ndarray:
    """get_init_ra_size: the next power of two, times four or two, or the largest. Never less than the request."""
    rounded = PAGE_BYTES * 2 ** np.ceil(np.log2(size / PAGE_BYTES))
    window = np.where(rounded <= window_bytes / 32, 4 * rounded, 2 * rounded)
    return np.maximum(np.where(rounded <= window_bytes / 4, window, window_bytes), size)
