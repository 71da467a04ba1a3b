# SPDX-License-Identifier: Apache-2.0
"""Turns places that operations were recorded at into places on a block device of another size, in whole blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import Fileop, IoFlag

STRETCHES = 1024  # of a device, at least, whose places are scaled


@dataclass(frozen=True)
class Geometry:
    """Size of a block device, and of what direct I/O on it has to be a multiple of."""

    size_bytes: int
    block_bytes: int


class Places:
    """Gives operations that come in chunks a place on the device.

    Parameters
    ----------
    geometry : Geometry
    fit : {"exact", "wrap", "scale"}
        See `fit_places`.
    recorded_bytes : int
        Size of the recorded device, if that is known; else at least how far the operations reach (`reach_of`).

    Attributes
    ----------
    moved, aligned : int
        Operations so far that were given another place, and that were widened to whole blocks.
    """

    def __init__(self, geometry: Geometry, fit: str, recorded_bytes: int) -> None:
        self._geometry, self._fit, self._recorded_bytes = geometry, fit, recorded_bytes
        self.moved = self.aligned = 0

    def place(self, io: np.ndarray, fileops: np.ndarray) -> None:
        """Give a chunk its places, in the records.

        Raises
        ------
        FlextraceError
            As `fit_places`.
        """
        ranged, offset, size, first, last = _spans(io, fileops, self._geometry.block_bytes)
        self.aligned += int(((first != offset) | (last - first != size)).sum())
        placed = fit_places(first, last - first, self._geometry, self._fit, self._recorded_bytes)
        self.moved += int((placed != first).sum())
        widened = (last - first)[: len(io)] != size[: len(io)]
        io["offset"], fileops["argument"][ranged] = placed[: len(io)], placed[len(io) :]
        io["asked_bytes"], fileops["length"][ranged] = (last - first)[: len(io)], (last - first)[len(io) :]
        io["result"] = np.where(widened & (io["result"] > 0), io["asked_bytes"].astype(np.int64), io["result"])


def reach_of(io: np.ndarray, fileops: np.ndarray, block_bytes: int) -> int:
    """Last byte + 1 of what operations of a device ask for, in whole blocks where it has to be."""
    return int(_spans(io, fileops, block_bytes)[4].max(initial=0))


def _spans(
    io: np.ndarray, fileops: np.ndarray, block_bytes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of `fileops` that have a place; of all IO records and of these: offset, size, first byte, last byte + 1."""
    ranged = np.flatnonzero(fileops["op"] == Fileop.FALLOCATE)
    direct = (io["flags"] & IoFlag.DIRECT) != 0
    whole = np.concatenate([direct, np.ones(len(ranged), bool)])
    offset = np.concatenate([io["offset"], fileops["argument"][ranged]]).astype(np.int64)
    size = np.concatenate([io["asked_bytes"].astype(np.uint64), fileops["length"][ranged]]).astype(np.int64)
    return ranged, offset, size, *_aligned(offset, size, block_bytes, whole)


def _aligned(
    offset: np.ndarray, size: np.ndarray, block_bytes: int, whole: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """First and last byte + 1, of whole blocks where `whole`."""
    last = offset + size
    first = np.where(whole, offset // block_bytes * block_bytes, offset)
    return first, np.where(whole, -(-last // block_bytes) * block_bytes, last)


def fit_places(
    offset: np.ndarray, size: np.ndarray, geometry: Geometry, fit: str, recorded_bytes: int | None = None
) -> np.ndarray:
    """Places on a device of its size.

    ``exact`` leaves them: whether they fit is looked at before (`device_trace`). ``wrap`` takes them modulo
    the size: neighbours stay neighbours, and what was far apart may overlap. ``scale`` keeps distances in proportion to
    the device: in stretches of at most 1/1024 of it, within which neighbours stay neighbours (dividing every address,
    as fio's replay_scale does, would break all runs). In both, what would reach over the end is moved back to end
    there.

    Parameters
    ----------
    offset, size : ndarray of int64, shape (n,)
        Bytes.
    geometry : Geometry
    fit : {"exact", "wrap", "scale"}
    recorded_bytes : int, optional
        Size of the recorded device, for scale; default: as far as the requests reach.

    Returns
    -------
    ndarray of int64, shape (n,)
        Offsets, such that ``offset + size`` is within the device.

    Raises
    ------
    FlextraceError
        A request is larger than the device.
    """
    total = geometry.size_bytes
    if fit == "exact":
        return offset
    if int(size.max(initial=0)) > total:
        raise FlextraceError(f"the device is too small: a request has {int(size.max())} bytes, it has {total}", 2)
    if fit == "wrap":
        placed = offset % total
    else:
        # A power of two of blocks, so that what is aligned stays so.
        stretch = geometry.block_bytes
        while stretch * 2 * STRETCHES <= total:
            stretch *= 2
        reach = int((offset + size).max(initial=0))
        ratio = (total // stretch, -(-max(reach, recorded_bytes or 0) // stretch))
        placed = offset // stretch * ratio[0] // ratio[1] * stretch + offset % stretch
    return np.minimum(placed, total - size)
