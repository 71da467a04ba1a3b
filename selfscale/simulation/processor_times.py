# SPDX-License-Identifier: Apache-2.0
"""Turns the recorded times of requests into what they take of a processor: without waiting for storage.

How long that is say the requests of the same direction and size that were served from the cache; a request that
missed, or was held up, took their median; so does one of an altered trace that was of the other direction when it was
recorded. What nothing recorded tells is the benchmark's, which is the least that a request takes anywhere.
"""

from __future__ import annotations

import numpy as np

HELD_UP = 4.0
"""A read of what was not cached that took this many times what its like take waited for storage."""
PAUSE_NS = 1e6
"""As did any other request that took this long as well: writers beyond the limit on dirty pages sleep for milliseconds
(mm/page-writeback.c, dirty_min_pause). What is shorter is the processor's, wherever the trace is run."""
LIKE_MIN = 5
"""Requests of one size that were served from the cache, for a median of their own."""
FAST = 0.1
"""Share of the requests that waited for nothing, where none of their size is known to have been cached."""


def processor_times(requests: dict[str, np.ndarray]) -> np.ndarray:
    """Time of every request without waiting for storage, ns; 0: as long as the benchmark's."""
    duration, kind, size_bytes = requests["duration_ns"].astype(float), requests["kind"], requests["size_bytes"]
    always, other_kind = requests["direct"] | requests["synced"], requests["other_kind"]
    cold = always | other_kind | (requests["missed_bytes"] > 0)
    group = kind * 64 + np.frexp(size_bytes)[1]
    usual = np.empty(len(duration))
    for each in np.unique(group):
        alike = group == each
        usual[alike] = _usual_ns(duration, alike & ~other_kind, (kind == each // 64) & ~cold, cold)
    # What passes the cache by copies nothing.
    usual[requests["direct"]] = 0.0
    longest = np.where(cold, HELD_UP * usual, np.maximum(HELD_UP * usual, PAUSE_NS))
    return np.where(other_kind | (duration > np.where(always, usual, longest)), usual, duration)


def _usual_ns(duration, alike, hits, cold) -> float:
    """What requests of one kind and size take of a processor."""
    warm = alike & ~cold
    if np.count_nonzero(warm) >= LIKE_MIN:
        return float(np.median(duration[warm]))
    if not hits.any():
        return 0.0
    if not alike.any():
        return float(np.median(duration[hits]))
    # What was read ahead counts as missed, too: of many such reads the fast ones waited for nothing.
    return min(float(np.quantile(duration[alike], FAST)), float(np.median(duration[hits])))
