# SPDX-License-Identifier: Apache-2.0
"""Turns requests into how unevenly they are spread over files (layer vfs) or devices. Mergeable in any order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from characterize.counting.grouped_sums import GroupedSums
from characterize.references import Columns
from characterize.trace import PATH_DTYPE

FILES_LISTED = 20
_SUMS = ("reads", "writes", "read_bytes", "written_bytes")


@dataclass(frozen=True)
class FileSkew:
    """Requests and bytes by file.

    Attributes
    ----------
    by_file : DataFrame
        ``file, reads, writes, read_bytes, written_bytes``, most bytes first.
    """

    by_file: pd.DataFrame

    def shares(self) -> dict[str, Any]:
        """How uneven it is.

        Returns
        -------
        dict
            ``files``; ``topShare``, ``top10Share``: share of the bytes that the file with the most, and the ten with
            the most, have; ``gini``: 0 if all have the same, towards 1 if one has all. NaN without requests.
        """
        size = (self.by_file["read_bytes"] + self.by_file["written_bytes"]).to_numpy()
        total, count = int(size.sum()), len(size)
        if not total:
            return {"files": count, **dict.fromkeys(("topShare", "top10Share", "gini"), math.nan)}
        ranked = size[::-1].astype(np.float64) @ (2 * np.arange(1, count + 1) - count - 1)
        return {
            "files": count,
            "topShare": int(size[0]) / total,
            "top10Share": int(size[:10].sum()) / total,
            "gini": float(ranked / (count * total)),
        }

    def listed(self, paths: dict[int, str]) -> pd.DataFrame:
        """The files with the most bytes, with their paths."""
        frame = self.by_file.head(FILES_LISTED).copy()
        frame.insert(1, "path", pd.Series([paths.get(int(file), "") for file in frame["file"]], dtype=PATH_DTYPE))
        return frame


class FileSkewSummary:
    """The same of requests that come in chunks; memory by files."""

    def __init__(self) -> None:
        self._sums = GroupedSums(*_SUMS)

    def add(self, requests: Columns) -> None:
        """Count a chunk."""
        read, size = requests["read"], requests["bytes"]
        self._sums.add(requests["file"], read, ~read, size * read, size * ~read)

    def merge(self, other: FileSkewSummary) -> None:
        """Count what `other` counted, too."""
        self._sums.merge(other._sums)

    def result(self) -> FileSkew:
        """What was counted so far."""
        file, sums = self._sums.result()
        order = np.lexsort((file, -(sums[2] + sums[3])))
        columns = {name: column[order] for name, column in zip(_SUMS, sums, strict=True)}
        return FileSkew(pd.DataFrame({"file": file[order], **columns}))
