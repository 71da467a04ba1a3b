# SPDX-License-Identifier: Apache-2.0
"""Turns requests into where they went over time: which files, and where in them, in bins that bound the memory.

Files stand above each other in the order of their first use, each as high as the end of its last byte that was asked
for; a *place* is a byte in this stack. How high it becomes is known only when all requests were seen, so that requests
are looked at twice: by `Spans`, then by `Places`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from characterize.counting.numbering import Numbering, room_for
from characterize.references import Columns
from characterize.trace import PATH_DTYPE

POINTS_MAX = 8_000
"""Most requests that are kept one by one: more cannot be told apart in a figure."""
WINDOWS, BANDS = 150, 100
FILES_SHOWN = 24
OTHERS = "all others"


class Spans:
    """First and only what has to be known of each file before: its height, and how much it is used."""

    def __init__(self) -> None:
        self._files = Numbering()
        # By file: its height, requests, their bytes.
        self._counts = np.zeros((0, 3), np.int64)

    def add(self, requests: Columns) -> None:
        """Count a chunk; chunks come in the order of the starts."""
        size = requests["bytes"]
        self._count(requests["file"], np.column_stack([requests["offset"] + size, np.ones_like(size), size]))

    def merge(self, following: Spans) -> None:
        """Count what `following` counted, all of whose requests start after these."""
        self._count(following._files.keys.copy(), following._counts[: len(following._files)])

    def _count(self, files: np.ndarray, counts: np.ndarray) -> None:
        numbers = self._files.number(files)
        self._counts = room_for(self._counts, len(self._files))
        np.maximum.at(self._counts[:, 0], numbers, counts[:, 0])
        for column in (1, 2):
            np.add.at(self._counts[:, column], numbers, counts[:, column])

    def files(self) -> pd.DataFrame:
        """By file, in the order of first use: ``base_bytes`` (place of its begin), ``span_bytes, requests, bytes``."""
        span, requests, moved = self._counts[: len(self._files)].T.copy()
        # A file may end next to 2^63: several of these above each other are too high for whole numbers.
        height = np.cumsum(span, dtype=np.int64 if span.sum(dtype=np.float64) < 2**63 else np.float64)
        columns = {"base_bytes": height - span, "span_bytes": span, "requests": requests, "bytes": moved}
        return pd.DataFrame(columns, index=pd.Index(self._files.keys.copy(), name="file"))


@dataclass
class PlaceCounts:
    """What is counted of places.

    Attributes
    ----------
    requests : ndarray of int64, shape (2, BANDS, WINDOWS)
        By direction (read, written), place and time of their start.
    moved : ndarray of int64, shape (2, files, WINDOWS)
        Bytes by direction, file (as `Places.names`) and time.
    points : list of DataFrame
        The requests one by one, where they are few.
    """

    requests: np.ndarray
    moved: np.ndarray
    points: list[pd.DataFrame] = field(default_factory=list)

    def merge(self, following: PlaceCounts) -> None:
        """Count what `following` counted, all of whose requests start after these."""
        self.requests += following.requests
        self.moved += following.moved
        self.points += following.points


class Places:
    """Where and when requests went.

    Parameters
    ----------
    files : DataFrame
        As from `Spans.files`, of the same requests.
    first_ns, last_ns : int
        Begin of the first window of time, and a moment that the last one has to reach.
    name_of : callable
        Path of a file, name of a device.

    Attributes
    ----------
    counted : PlaceCounts
    band_bytes : float
        Height of the bands.
    names : list of str
        Of the `FILES_SHOWN` files with most bytes, most first; the last one is `OTHERS` if there are more.
    """

    def __init__(self, files: pd.DataFrame, first_ns: int, last_ns: int, name_of: Callable[[int], str]) -> None:
        self._files, self._first, self._name_of = files, first_ns, name_of
        self._width_ns = max(1, -(-(last_ns - first_ns + 1) // WINDOWS))
        height = (files["base_bytes"] + files["span_bytes"]).max()
        self.band_bytes = max(1, -(-height // BANDS))
        order = np.argsort(-files["bytes"].to_numpy(), kind="stable")
        self._row_of = np.minimum(np.argsort(order), FILES_SHOWN)
        self.names = [name_of(int(file)) for file in files.index[order[:FILES_SHOWN]]]
        self.names += [OTHERS] * (len(files) > FILES_SHOWN)
        self._single = int(files["requests"].sum()) <= POINTS_MAX
        self.counted = PlaceCounts(
            np.zeros((2, BANDS, WINDOWS), np.int64), np.zeros((2, len(self.names), WINDOWS), np.int64)
        )

    def add(self, requests: Columns) -> None:
        """Count a chunk."""
        number = self._files.index.get_indexer(pd.Index(requests["file"]))
        place = self._files["base_bytes"].to_numpy()[number] + requests["offset"]
        since = requests["start_ns"] - self._first
        window, written = since // self._width_ns, (~requests["read"]).astype(np.int64)
        # What is too high for whole numbers may be rounded up to the end of the last band.
        band = np.minimum(place // self.band_bytes, BANDS - 1).astype(np.int64)
        np.add.at(self.counted.requests, (written, band, window), 1)
        np.add.at(self.counted.moved, (written, self._row_of[number], window), requests["bytes"])
        if self._single:
            columns = {"time_s": since / 1e9, "place_bytes": place, "number": number, "read": requests["read"]}
            self.counted.points.append(pd.DataFrame(columns | {name: requests[name] for name in ("offset", "bytes")}))

    @property
    def counts(self) -> np.ndarray:
        """Requests by direction, place and time."""
        return self.counted.requests

    @property
    def moved(self) -> np.ndarray:
        """Bytes by direction, file and time."""
        return self.counted.moved

    @property
    def requests(self) -> int:
        """How many there are."""
        return int(self.counts.sum())

    @property
    def window_s(self) -> float:
        """Width of the windows."""
        return self._width_ns / 1e9

    def points(self) -> pd.DataFrame | None:
        """Every request: ``time_s`` since the begin, ``place_bytes, file, offset, bytes, read``; None if too many."""
        if not self._single:
            return None
        frame = pd.concat(self.counted.points, ignore_index=True)
        names = np.array([self._name_of(int(file)) for file in self._files.index], object)
        frame.insert(2, "file", pd.Series(names[frame.pop("number").to_numpy()], dtype=PATH_DTYPE))
        return frame

    def bins(self) -> pd.DataFrame:
        """Requests by place and time: ``from_s, place_bytes`` (where window and band begin), ``reads, writes``.

        A row per window and band in which there are any.
        """
        band, window = np.nonzero(self.counts.sum(axis=0))
        columns = {"from_s": window * self.window_s, "place_bytes": band * self.band_bytes}
        return pd.DataFrame(
            columns | {name: self.counts[i, band, window] for i, name in enumerate(("reads", "writes"))}
        )

    def by_file(self) -> pd.DataFrame:
        """Bytes by file and time: ``file, from_s, read_bytes, written_bytes``; a row per window that has any."""
        row, window = np.nonzero(self.moved.sum(axis=0))
        file = pd.Series(np.array(self.names, object)[row], dtype=PATH_DTYPE)
        columns = {"file": file, "from_s": window * self.window_s}
        sums = {name: self.moved[i, row, window] for i, name in enumerate(("read_bytes", "written_bytes"))}
        return pd.DataFrame(columns | sums)
