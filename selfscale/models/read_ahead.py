# SPDX-License-Identifier: Apache-2.0
"""Turns runs of requests into the bytes that Linux reads of storage for them: mm/readahead.c as a mean over many runs.

The second request of a run begins a window, a multiple of its own length; the third meets the mark behind the second
and has the next window read, two or four times as large; so does whoever comes to the mark where one begins. What is
left of the windows at the end of a run was read in vain. A random request with cached pages before it is taken for the
end of a run as long as these.
"""

from __future__ import annotations

import numpy as np

from selfscale.models.measured import Columns

GROWN_WINDOWS = 8
"""From 4 KiB to megabytes; all later ones are of the largest size."""
REQUESTS_MAX = 1e4
"""Of a run: more have no end that counts."""


def read_in_vain(
    table: Columns,
    hit_frac: np.ndarray,
    window_bytes: float | np.ndarray,
    factors: tuple[float | np.ndarray, float | np.ndarray],
) -> np.ndarray:
    """Bytes beyond its own that storage reads for a read that misses, a mean, shape (n,).

    Parameters
    ----------
    table : Columns
        Of n workloads.
    hit_frac : ndarray, shape (n,)
        Share of the reads that are cached.
    window_bytes : float
        The largest window (read_ahead_kb of the device).
    factors : (float, float)
        Of what runs have read ahead, and of what cached pages before a random request make of it.
    """
    size, seq_frac, read_frac = table.size_mean, table.seq_frac, table.read_frac
    random = 1 - seq_frac
    ahead, weight = np.zeros_like(size * window_bytes), seq_frac
    window, position = _first_window(size, window_bytes), size
    for number in range(GROWN_WINDOWS):
        ahead = ahead + weight * window
        # The mark of the first window is where its request ends; of the others, where they begin.
        weight = seq_frac**2 if number == 0 else seq_frac ** np.minimum(1 + position / size, REQUESTS_MAX)
        position = position + window
        window = np.maximum(np.minimum(window_bytes, window * np.where(window < window_bytes / 16, 4, 2)), size)
    again = seq_frac ** np.minimum(window / size, REQUESTS_MAX)
    ahead = ahead + weight * window / np.maximum(1 - again, 1e-9)
    # In a run of reads and writes one of two neighbours that is read has both read ahead.
    triggered = (1 - (1 - read_frac) ** 2) / np.maximum(read_frac, 1e-3)
    vain = np.maximum(random * (size + ahead * triggered) - size, 0)
    before = size * hit_frac**2 * (2 - hit_frac) / np.maximum(1 - hit_frac, 1e-6)
    return factors[0] * vain + factors[1] * random * np.minimum(before, window_bytes)


def _first_window(size: np.ndarray, window_bytes: float | np.ndarray) -> np.ndarray:
    """get_init_ra_size: the next power of two (in the mean 1.4 times the request), times four or two, or the largest.

    Never less than the request.
    """
    grown = np.minimum(window_bytes, size * np.where(size < window_bytes / 32, 5.6, 2.8))
    return np.maximum(np.where(size < window_bytes / 4, grown, window_bytes), size)
