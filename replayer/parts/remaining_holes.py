# SPDX-License-Identifier: Apache-2.0
"""Turns what was done to a file since it was first seen into what of its holes is left then, for parts of traces.

What was written or allocated is no hole any more, by whole blocks. Holes that were made since (truncation, punching)
are not known of: a replay has data there.
"""

from __future__ import annotations

import numpy as np

from characterize.layout import Fileop, IoOp
from characterize.references import BLOCK_BYTES

# linux/falloc.h; the mode is in the high half of fileop_record.flags.
PUNCH_HOLE, COLLAPSE_RANGE, INSERT_RANGE = 0x02, 0x08, 0x20


def remaining_holes(holes: np.ndarray, size_bytes: int, io: np.ndarray, fileops: np.ndarray) -> np.ndarray:
    """HOLE records.

    Parameters
    ----------
    holes : ndarray
        HOLE records of a file.
    size_bytes : int
        Of the file by then.
    io, fileops : ndarray
        IO and FILEOP records of the file until then.
    """
    allocated = fileops[(fileops["op"] == Fileop.FALLOCATE) & (fileops["result"] >= 0)]
    mode = allocated["flags"] >> 16
    if not len(holes) or (mode & (COLLAPSE_RANGE | INSERT_RANGE)).any():
        return holes[:0]
    written = io[(io["op"] == IoOp.WRITE) & (io["result"] > 0)]
    allocated = allocated[(mode & PUNCH_HOLE) == 0]
    start = np.concatenate([written["offset"], allocated["argument"]]).astype(np.int64)
    length = np.concatenate([written["result"].astype(np.int64), allocated["length"].astype(np.int64)])
    end = -(-(start + length) // BLOCK_BYTES) * BLOCK_BYTES
    start = start // BLOCK_BYTES * BLOCK_BYTES
    begins = np.minimum(holes["offset"], size_bytes).astype(np.int64)
    ends = np.minimum(holes["offset"] + holes["bytes"], size_bytes).astype(np.int64)
    edges, place = np.unique(np.concatenate([begins, ends, start, end]), return_inverse=True)
    hole, filled = (
        _covered(place[first : first + count], place[first + count : first + 2 * count], len(edges))
        for first, count in ((0, len(holes)), (2 * len(holes), len(start)))
    )
    left = np.concatenate([[False], hole & ~filled])
    begins, ends = edges[left[1:] & ~left[:-1]], edges[left[:-1] & ~left[1:]]
    remaining = np.zeros(len(begins), holes.dtype)
    for name in ("kind", "file", "time_ns"):
        remaining[name] = holes[name][0]
    remaining["offset"], remaining["bytes"] = begins, ends - begins
    return remaining


def _covered(first: np.ndarray, last: np.ndarray, edges: int) -> np.ndarray:
    """Of every edge whether what follows it is in an interval; of the last one it is not."""
    depth = np.zeros(edges, np.int64)
    np.add.at(depth, first, 1)
    np.add.at(depth, last, -1)
    return np.cumsum(depth) > 0
