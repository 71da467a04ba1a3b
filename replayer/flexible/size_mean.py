# SPDX-License-Identifier: Apache-2.0
"""Turns requests into longer or shorter ones: every file is stretched like a rubber band, which keeps what touches.

Two requests that were sequential stay so, two that shared bytes share bytes; number, order and direction stay. What
grows with the sizes is uniqueBytes, which is brought back afterwards (`replayer.flexible.unique_bytes`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from characterize.layout import NOT_MEASURED_U64, FileFlag, Fileop
from characterize.requests import OFFSET_MAX
from characterize.units import format_bytes
from replayer.flexible.draft import Draft, UnreachableError
from replayer.flexible.manifest import ACCEPTED

RESULT_BYTES_MAX = 2**31 - 4096
GRID_BYTES_MIN = 512
ATTEMPTS = 24
HALVINGS_MAX = 8
TOLERANCE = 1e-3
# More than what is lost where a position is a product, in parts of a border.
ROUNDING = 1e-6


def change_size_mean(draft: Draft, target: float) -> None:
    """Stretch every file by the factor that makes the mean size `target`; sizes are rounded to the file's alignment.

    Raises
    ------
    UnreachableError
        A request would exceed what one system call can move, or sizes cannot shrink that far.
    """
    start, end, file = draft.intervals()
    mean = float((end - start).mean())
    alignment = draft.alignment(file, start)
    largest = int((end - start).max())
    most = mean * RESULT_BYTES_MAX / largest
    told = format_bytes(most * (1 - TOLERANCE))  # rounded up it would be refused
    if target > most:
        raise UnreachableError(
            f"sizeMean {format_bytes(target)} is not reachable: the largest request of {format_bytes(largest)} would "
            f"exceed 2 GiB, what one system call moves; reachable is up to {told}",
            1,
            most,
        )
    band, sizes = _choose_band(start, end, alignment, target)
    achieved = float(sizes.mean())
    if abs(achieved / target - 1) > ACCEPTED:
        raise UnreachableError(
            f"sizeMean {format_bytes(target)} is not reachable: requests cannot be smaller than their alignment, and "
            f"reach {format_bytes(achieved)}; reachable is that up to {told}",
            achieved,
            most,
        )

    requests = draft.requests
    draft.io["offset"][requests] = band.stretched(start)
    asked = draft.io["asked_bytes"][requests].astype(np.int64)
    result = draft.io["result"][requests].astype(np.int64)
    draft.io["asked_bytes"][requests] = np.minimum(np.maximum(asked * sizes // result, sizes), RESULT_BYTES_MAX)
    draft.io["result"][requests] = sizes
    _stretch_the_rest(draft, band, file)
    draft.note("sizeMean", factor=band.factor)


@dataclass(frozen=True)
class _Band:
    """A stretch by `factor`; of every position the `grid` on which it is then, and the coarser one of its `border`.

    Of positions that stood a border apart as many come to borders again as there are, each the nearest to one: the
    fewest requests lie across two blocks then.
    """

    factor: float
    grid: np.ndarray
    border: np.ndarray

    def stretched(self, position: np.ndarray) -> np.ndarray:
        """Where positions are then; lengths near 2^63, which say "to the end wherever that is", stay about there."""
        place = np.clip(position * self.factor, -OFFSET_MAX, OFFSET_MAX)
        nearest = np.floor(place / self.border + 0.5)
        # Of two that are equally near it is the one behind, whatever rounding does to either.
        before = nearest - place / self.border + ROUNDING
        at_border = (before > -self.factor / 2) & (before <= self.factor / 2)
        on_grid = np.floor(place / self.grid + 0.5).astype(np.int64) * self.grid
        return np.where(at_border, nearest.astype(np.int64) * self.border, on_grid)


def _choose_band(start: np.ndarray, end: np.ndarray, alignment: np.ndarray, target: float) -> tuple[_Band, np.ndarray]:
    """The band and the new sizes that meet the mean: on the coarsest grid on which that works.

    The grid of a file is its alignment, halved (down to a sector) with sizes that shrink and where too many requests go
    to the same few places for rounding up and down to even out.
    """
    first = target / float((end - start).mean())
    best: tuple[float, _Band, np.ndarray] | None = None
    fewest = math.ceil(max(-math.log2(first), 0))
    tried = [(fewest, True), *((halvings, False) for halvings in range(fewest, max(fewest + 1, HALVINGS_MAX)))]
    for halvings, at_borders in tried:
        grid = np.maximum(alignment >> halvings, np.minimum(alignment, GRID_BYTES_MIN))
        low, high, factor = first / 2, first * 2, first
        for _ in range(ATTEMPTS):
            band = _Band(factor, grid, alignment if at_borders else grid)
            sizes = np.maximum(band.stretched(end) - band.stretched(start), grid)
            achieved = float(sizes.mean())
            if best is None or abs(achieved - target) < best[0]:
                best = abs(achieved - target), band, sizes
            if best[0] <= TOLERANCE * target:
                return best[1:]
            low, high = (factor, high) if achieved < target else (low, factor)
            next_factor = factor * target / achieved
            factor = next_factor if low < next_factor < high else (low + high) / 2
    assert best is not None
    return best[1:]


def _stretch_the_rest(draft: Draft, band: _Band, file: np.ndarray) -> None:
    """Operations without data, file operations and sizes of files; `file` is that of every position of the band."""
    known, first = np.unique(file, return_index=True)

    def stretched(position: np.ndarray, files: np.ndarray) -> np.ndarray:
        """As requests of these files are; to the byte where a file has none."""
        at = np.minimum(np.searchsorted(known, files), len(known) - 1)
        grid, border = (np.where(known[at] == files, of[first[at]], 1) for of in (band.grid, band.border))
        return _Band(band.factor, grid, border).stretched(position.astype(np.int64))

    other = np.flatnonzero(draft.io["result"] <= 0)
    draft.io["offset"][other] = stretched(draft.io["offset"][other], draft.io["file"][other])
    draft.io["asked_bytes"][other] = np.minimum(draft.io["asked_bytes"][other] * band.factor, RESULT_BYTES_MAX).astype(
        np.int64
    )

    places = (Fileop.TRUNCATE, Fileop.FALLOCATE, Fileop.SYNC_FILE_RANGE, Fileop.FADVISE, Fileop.MSYNC)
    placed = np.flatnonzero(np.isin(draft.fileops["op"], places))
    for name in ("argument", "length"):
        draft.fileops[name][placed] = stretched(draft.fileops[name][placed], draft.fileops["file"][placed])
    room = OFFSET_MAX - draft.fileops["argument"][placed]
    draft.fileops["length"][placed] = np.minimum(draft.fileops["length"][placed], room)

    described = np.flatnonzero((draft.files["flags"] & FileFlag.NEW_NAME) == 0)
    draft.files["size_bytes"][described] = stretched(
        draft.files["size_bytes"][described], draft.files["file"][described]
    )
    measured = np.flatnonzero(draft.files["resident_bytes"] != NOT_MEASURED_U64)
    resident = np.floor(draft.files["resident_bytes"][measured] * band.factor).astype(np.int64)
    draft.files["resident_bytes"][measured] = np.minimum(resident, draft.files["size_bytes"][measured].astype(np.int64))
