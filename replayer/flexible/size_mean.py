# SPDX-License-Identifier: Apache-2.0
"""Turns requests into longer or shorter ones: every file is stretched like a rubber band, which keeps what touches.

Two requests that were sequential stay so, two that shared bytes share bytes; number, order and direction stay. What
grows with the sizes is uniqueBytes, which is brought back afterwards (`replayer.flexible.unique_bytes`).
"""

from __future__ import annotations

import math

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
    factor, grid, sizes = _choose_stretch(start, end, alignment, target)
    achieved = float(sizes.mean())
    if abs(achieved / target - 1) > ACCEPTED:
        raise UnreachableError(
            f"sizeMean {format_bytes(target)} is not reachable: requests cannot be smaller than their alignment, and "
            f"reach {format_bytes(achieved)}; reachable is that up to {told}",
            achieved,
            most,
        )

    requests = draft.requests
    draft.io["offset"][requests] = _stretch(start, factor, grid)
    asked = draft.io["asked_bytes"][requests].astype(np.int64)
    result = draft.io["result"][requests].astype(np.int64)
    draft.io["asked_bytes"][requests] = np.minimum(np.maximum(asked * sizes // result, sizes), RESULT_BYTES_MAX)
    draft.io["result"][requests] = sizes
    _stretch_the_rest(draft, factor, dict(zip(file.tolist(), grid.tolist(), strict=True)))
    draft.note("sizeMean", factor=factor)


def _choose_stretch(
    start: np.ndarray, end: np.ndarray, alignment: np.ndarray, target: float
) -> tuple[float, np.ndarray, np.ndarray]:
    """Factor, grid and new sizes that meet the mean: on the coarsest grid on which that works.

    The grid of a file is its alignment, halved (down to a sector) with sizes that shrink and where too many requests go
    to the same few places for rounding up and down to even out.
    """
    first = target / float((end - start).mean())
    best: tuple[float, float, np.ndarray, np.ndarray] | None = None
    fewest = math.ceil(max(-math.log2(first), 0))
    for halvings in range(fewest, max(fewest + 1, HALVINGS_MAX)):
        grid = np.maximum(alignment >> halvings, np.minimum(alignment, GRID_BYTES_MIN))
        low, high, factor = first / 2, first * 2, first
        for _ in range(ATTEMPTS):
            sizes = np.maximum(_stretch(end, factor, grid) - _stretch(start, factor, grid), grid)
            achieved = float(sizes.mean())
            if best is None or abs(achieved - target) < best[0]:
                best = abs(achieved - target), factor, grid, sizes
            if best[0] <= TOLERANCE * target:
                return best[1:]
            low, high = (factor, high) if achieved < target else (low, factor)
            next_factor = factor * target / achieved
            factor = next_factor if low < next_factor < high else (low + high) / 2
    assert best is not None
    return best[1:]


def _stretch(position: np.ndarray, factor: float, grid: np.ndarray | int) -> np.ndarray:
    """Where positions are then; lengths near 2^63, which say "to the end wherever that is", stay about there."""
    return np.floor(np.clip(position * factor, -OFFSET_MAX, OFFSET_MAX) / grid + 0.5).astype(np.int64) * grid


def _stretch_the_rest(draft: Draft, factor: float, grid_of: dict[int, int]) -> None:
    """Operations without data, file operations and sizes of files."""
    other = np.flatnonzero(draft.io["result"] <= 0)
    grid = np.array([grid_of.get(file, 1) for file in draft.io["file"][other].tolist()], np.int64)
    draft.io["offset"][other] = _stretch(draft.io["offset"][other].astype(np.int64), factor, grid)
    draft.io["asked_bytes"][other] = np.minimum(draft.io["asked_bytes"][other] * factor, RESULT_BYTES_MAX).astype(
        np.int64
    )

    places = (Fileop.TRUNCATE, Fileop.FALLOCATE, Fileop.SYNC_FILE_RANGE, Fileop.FADVISE, Fileop.MSYNC)
    placed = np.flatnonzero(np.isin(draft.fileops["op"], places))
    grid = np.array([grid_of.get(file, 1) for file in draft.fileops["file"][placed].tolist()], np.int64)
    for name in ("argument", "length"):
        draft.fileops[name][placed] = _stretch(draft.fileops[name][placed].astype(np.int64), factor, grid)
    room = OFFSET_MAX - draft.fileops["argument"][placed]
    draft.fileops["length"][placed] = np.minimum(draft.fileops["length"][placed], room)

    described = np.flatnonzero((draft.files["flags"] & FileFlag.NEW_NAME) == 0)
    grid = np.array([grid_of.get(file, 1) for file in draft.files["file"][described].tolist()], np.int64)
    draft.files["size_bytes"][described] = _stretch(draft.files["size_bytes"][described].astype(np.int64), factor, grid)
    measured = np.flatnonzero(draft.files["resident_bytes"] != NOT_MEASURED_U64)
    resident = np.floor(draft.files["resident_bytes"][measured] * factor).astype(np.int64)
    draft.files["resident_bytes"][measured] = np.minimum(resident, draft.files["size_bytes"][measured].astype(np.int64))
