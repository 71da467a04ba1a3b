# SPDX-License-Identifier: Apache-2.0
"""Turns what a part of a trace appended to files that began empty into what files of some size had of it before.

A write of ``[offset, end)`` to a file of size s that has grown to M since appends what of ``[max(offset, M), end)`` is
behind s. So the ranges, shifted to where they would be at the begin, are all that has to be known.
"""

from __future__ import annotations

import numpy as np

from characterize.file_sizes import UNKNOWN, FileSizes
from characterize.references import Columns


class AppendedRanges:
    """Ranges of files that requests appended; no byte is in two."""

    def __init__(self) -> None:
        # File, begin, end.
        self._ranges = [np.zeros((0, 3), np.int64)]

    def add(self, requests: Columns) -> None:
        """Note those of a chunk, with the columns of `characterize.file_sizes`; ranges that meet become one."""
        chosen = np.flatnonzero((requests["appended"] > 0) & (requests["appended_to"] != UNKNOWN))
        file, high = requests["file"][chosen], requests["appended_to"][chosen]
        low = high - requests["appended"][chosen]
        order = np.lexsort((low, file))
        file, low, high = file[order], low[order], high[order]
        begins = np.ones(len(file), bool)
        begins[1:] = (file[1:] != file[:-1]) | (low[1:] != high[:-1])
        self._ranges.append(np.column_stack([file[begins], low[begins], high[np.roll(begins, -1)]]))

    def within(self, sizes: FileSizes) -> int:
        """How many of the bytes files of these sizes had already."""
        file, low, high = np.concatenate(self._ranges).T
        return int((np.clip(sizes.of(file), low, high) - low).sum())
