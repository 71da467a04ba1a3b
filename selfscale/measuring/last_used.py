# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into the ranges of its files that a cache holds which has seen it: those that were used last.

After any number of requests that is what is left in a cache which drops what was used longest ago. Their places matter,
not only their sum: a request of several pages that meets scattered ones reads what is missing at several places.
"""

from __future__ import annotations

import numpy as np

from characterize.layout import RESIDENT_DTYPE, RecordKind
from characterize.trace import Trace
from selfscale.measuring.measurable_sizes import PAGE_BYTES

USES = 6.0
"""Times a file that is looked at, back from the end of the trace: of 400 pages then one was not used."""
RANGES_MAX = 4000
"""Of all files: each is read by itself. More of them become coarser ones."""


def last_used(trace: Trace, share: float) -> np.ndarray:
    """RESIDENT records of a share of every file.

    Parameters
    ----------
    trace : Trace
        Of requests that are in the order of their starts.
    share : float
        Of every file, 0 to 1.
    """
    io, files = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILE]
    return np.concatenate(
        [_ranges_of(io[io["file"] == file["file"]], file, share, RANGES_MAX // len(files)) for file in files]
    )


def _ranges_of(io: np.ndarray, file: np.void, share: float, ranges_max: int) -> np.ndarray:
    """Of one file; in blocks that are large enough for so many ranges at most."""
    pages = -(-int(file["size_bytes"]) // PAGE_BYTES)
    last_use, block_pages = _last_uses(io, pages), 1
    while len(edges := _edges(_latest(last_use, block_pages, round(share * pages)))) > 2 * max(ranges_max, 1):
        block_pages *= 2
    ranges = np.zeros(len(edges) // 2, RESIDENT_DTYPE)
    ranges["kind"], ranges["file"] = RecordKind.RESIDENT, file["file"]
    ranges["offset"] = edges[::2] * PAGE_BYTES
    ranges["bytes"] = np.minimum(edges[1::2] * PAGE_BYTES, int(file["size_bytes"])) - ranges["offset"]
    return ranges


def _last_uses(io: np.ndarray, pages: int) -> np.ndarray:
    """When every page was used last, as the number of a request; -1: not among those that are looked at."""
    sizes = io["result"].astype(np.int64)
    bytes_behind = np.cumsum(sizes[::-1])
    io = io[max(0, len(io) - int(np.searchsorted(bytes_behind, USES * pages * PAGE_BYTES)) - 1) :]
    offsets = io["offset"].astype(np.int64)
    first, behind = offsets // PAGE_BYTES, -(-(offsets + io["result"]) // PAGE_BYTES)
    counts = behind - first
    number = np.repeat(np.arange(len(io)), counts)
    place = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    last_use = np.full(pages, -1, np.int64)
    # Of several uses of a page the last one stays.
    last_use[place] = number
    return last_use


def _edges(kept: np.ndarray) -> np.ndarray:
    """Where runs of pages begin and end, in turn."""
    return np.flatnonzero(np.diff(np.concatenate([[False], kept, [False]]).astype(np.int8)))


def _latest(last_use: np.ndarray, block_pages: int, wanted_pages: int) -> np.ndarray:
    """Which pages lie in the blocks that were used last, so many pages in all, shape (pages,)."""
    blocks = np.maximum.reduceat(last_use, np.arange(0, len(last_use), block_pages))
    wanted = min(len(blocks), round(wanted_pages / block_pages))
    kept = np.zeros(len(blocks), bool)
    kept[np.argsort(blocks, kind="stable")[len(blocks) - wanted :]] = True
    return np.repeat(kept, block_pages)[: len(last_use)]
