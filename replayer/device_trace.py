# SPDX-License-Identifier: Apache-2.0
"""Turns a trace and the size of a block device into a trace whose operations all lie on that device.

What is repeated is either the I/O of programs on block devices (layer vfs), or what reached a device (layer block,
`replayer.block_lanes`). Files of a synthetic trace, which stand for nothing but places, are laid end to end.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import (
    FILE_DTYPE,
    NOT_MEASURED_U64,
    Fileop,
    FileType,
    HeaderFlag,
    IoFlag,
    RecordKind,
)
from characterize.provenance import tool_version
from characterize.requests import SECTOR_BYTES, left_out
from characterize.trace import Header, Trace
from replayer.block_lanes import DEVICE_FILE, Operations, operations_of

STRETCHES = 1024  # of a device, at least, whose places are scaled
_RANGED = (Fileop.FALLOCATE, Fileop.SYNC_FILE_RANGE, Fileop.FADVISE, Fileop.MSYNC)  # argument: offset


@dataclass(frozen=True)
class Geometry:
    """Size of a block device, and of what direct I/O on it has to be a multiple of."""

    size_bytes: int
    block_bytes: int


def geometry_of(path: Path) -> Geometry:
    """What sysfs says of a block device; the engine asks the device itself once more.

    Raises
    ------
    FlextraceError
        It is no block device, or has gone.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISBLK(status.st_mode):
            raise FlextraceError(f"{path} is not a block device: give one, or --directory to replay in files", 2)
        place = Path(f"/sys/dev/block/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}").resolve(strict=True)
        disk = place if (place / "queue").exists() else place.parent  # of a partition
        block_bytes = int((disk / "queue" / "logical_block_size").read_text())
        size_bytes = int((place / "size").read_text()) * SECTOR_BYTES
    except OSError as error:
        raise FlextraceError(f"cannot use device {path}: {error.strerror}") from error
    return Geometry(size_bytes // block_bytes * block_bytes, block_bytes)


def make_device_trace(
    trace: Trace,
    geometry: Geometry,
    *,
    layer: str | None = None,
    source: str | None = None,
    lanes: int | None = None,
    fit: str = "exact",
) -> tuple[Trace, dict[str, Any]]:
    """Make the trace that the engine runs on a device.

    Parameters
    ----------
    trace : Trace
    geometry : Geometry
        Of the device.
    layer : {"vfs", "block"}, optional
        Default: vfs where all files that data was moved of are block devices, or where the trace is synthetic.
    source : str, optional
        ``major:minor`` of the recorded device whose requests are repeated; layer block.
    lanes : int, optional
        At most so many requests in flight; layer block.
    fit : {"exact", "wrap", "scale"}
        What becomes of addresses, see `fit_places`.

    Returns
    -------
    Trace
        One file, a block device.
    dict
        ``layer, source, fit``; ``lanes`` in layer block; ``left_out``, operations that are not repeated, by reason;
        ``moved`` and ``aligned``, how many were given another place, and were widened to whole blocks.

    Raises
    ------
    FlextraceError
        Nothing of the trace can be done on a device, or the device is too small.
    """
    layer = layer or ("vfs" if _on_devices(trace) else "block")
    if layer == "block":
        operations = operations_of(trace, source, lanes)
        size_bytes = _recorded_size(trace, operations.source)
    else:
        if source is not None or lanes is not None:
            raise FlextraceError("--source and --lanes are for block requests: give --layer block", 2)
        operations, size_bytes = _programs_io(trace)
    notes: dict[str, Any] = {"layer": layer, "source": operations.source, "fit": fit, "left_out": operations.left_out}
    if layer == "block":
        notes |= {"lanes": operations.lanes, "timed": operations.timed}
    notes |= _place(operations, geometry, size_bytes, fit)
    return _trace(trace, operations, geometry, notes), notes


def _on_devices(trace: Trace) -> bool:
    """Whether the I/O of the programs is on block devices, or could as well be."""
    if trace.header.flags & HeaderFlag.UNTIMED:
        return True
    io = trace.arrays[RecordKind.IO]
    moved = io[(io["result"] > 0) & ~left_out(trace, "data")]
    return len(moved) > 0 and bool(np.isin(moved["file"], _device_files(trace)["file"]).all())


def _device_files(trace: Trace) -> np.ndarray:
    files = trace.arrays[RecordKind.FILE]
    if trace.header.flags & HeaderFlag.UNTIMED:
        return files
    return files[files["type"] == FileType.BLOCK_DEVICE]


def _recorded_size(trace: Trace, source: str) -> int | None:
    """Of the recorded device, if the trace tells it."""
    for device in trace.header.metadata.get("devices", []):
        if device.get("device") == source and device.get("sectors"):
            return int(device["sectors"]) * SECTOR_BYTES
    return None


def _programs_io(trace: Trace) -> tuple[Operations, int | None]:
    """The operations on block devices (of a synthetic trace: on all files), one behind the other on one device."""
    files = _device_files(trace)
    io, fileops = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILEOP]
    untimed = bool(trace.header.flags & HeaderFlag.UNTIMED)
    mine, my_ops = io[np.isin(io["file"], files["file"])], fileops[np.isin(fileops["file"], files["file"])]
    if not len(mine):
        raise FlextraceError("no program of the trace did I/O on a block device: give --layer block, or --directory", 2)
    others = len(io) + len(fileops) - len(mine) - len(my_ops)
    mine, my_ops = mine.copy(), my_ops.copy()
    bases: dict[int, int] = {}
    end = 0
    for row in files[np.argsort(files["file"])]:
        here = mine["file"] == row["file"]
        if not here.any():
            continue
        bases[int(row["file"])] = end
        used = int((mine["offset"][here] + mine["asked_bytes"][here]).max())
        end += -(-max(used, int(row["size_bytes"])) // 4096) * 4096
        mine["offset"][here] += np.uint64(bases[int(row["file"])])
        ranged = (my_ops["file"] == row["file"]) & np.isin(my_ops["op"], _RANGED)
        my_ops["argument"][ranged] += np.uint64(bases[int(row["file"])])
    mine["file"] = my_ops["file"] = DEVICE_FILE
    if untimed:
        # A file of Willy's on a raw device, which has no cache (thesis 4.5.1.6).
        mine["flags"] |= np.uint32(IoFlag.DIRECT)
    source = ", ".join(trace.paths.get(file, f"file {file}") for file in bases)
    reasons = {"other_files": others} if others else {}
    return Operations(mine, my_ops, source, lanes=0, left_out=reasons), end


def _place(operations: Operations, geometry: Geometry, size_bytes: int | None, fit: str) -> dict[str, int]:
    """Gives all operations a place on the device, in place."""
    io, fileops = operations.io, operations.fileops
    ranged = np.flatnonzero(fileops["op"] == Fileop.FALLOCATE)
    direct = (io["flags"] & IoFlag.DIRECT) != 0
    whole = np.concatenate([direct, np.ones(len(ranged), bool)])
    offset = np.concatenate([io["offset"], fileops["argument"][ranged]]).astype(np.int64)
    size = np.concatenate([io["asked_bytes"].astype(np.uint64), fileops["length"][ranged]]).astype(np.int64)
    first, last = _aligned(offset, size, geometry.block_bytes, whole)
    aligned = int(((first != offset) | (last - first != size)).sum())
    placed = fit_places(first, last - first, geometry, fit, size_bytes)
    widened = (last - first)[: len(io)] != size[: len(io)]
    io["offset"], fileops["argument"][ranged] = placed[: len(io)], placed[len(io) :]
    io["asked_bytes"], fileops["length"][ranged] = (last - first)[: len(io)], (last - first)[len(io) :]
    io["result"] = np.where(widened & (io["result"] > 0), io["asked_bytes"].astype(np.int64), io["result"])
    return {"moved": int((placed != first).sum()), "aligned": aligned}


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

    ``exact`` leaves them, and refuses what does not fit. ``wrap`` takes them modulo the size: neighbours stay
    neighbours, and what was far apart may overlap. ``scale`` keeps distances in proportion to the device: in
    stretches of at most 1/1024 of it, within which neighbours stay neighbours (dividing every address, as fio's
    replay_scale does, would break all runs). In both, what would reach over the end is moved back to end there.

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
        They do not fit (exact), or a request is larger than the device.
    """
    total = geometry.size_bytes
    reach = int((offset + size).max(initial=0))
    if fit == "exact":
        if reach > total:
            raise FlextraceError(
                f"the device is too small: the trace reaches up to byte {reach}, it has {total}; "
                "give a larger one, or --fit wrap or scale",
                2,
            )
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
        ratio = (total // stretch, -(-max(reach, recorded_bytes or 0) // stretch))
        placed = offset // stretch * ratio[0] // ratio[1] * stretch + offset % stretch
    return np.minimum(placed, total - size)


def _trace(trace: Trace, operations: Operations, geometry: Geometry, notes: dict[str, Any]) -> Trace:
    files = np.zeros(1, FILE_DTYPE)
    files["kind"], files["type"], files["file"] = RecordKind.FILE, FileType.BLOCK_DEVICE, DEVICE_FILE
    files["size_bytes"], files["resident_bytes"] = geometry.size_bytes, NOT_MEASURED_U64
    flags = trace.header.flags & HeaderFlag.UNTIMED or HeaderFlag.PLANNED
    metadata = {"made_by": "flextrace replay --device", "tool_version": tool_version(), "device_trace": notes}
    header = Header(
        flags=HeaderFlag(flags),
        start_monotonic_ns=trace.header.start_monotonic_ns,
        end_monotonic_ns=trace.header.end_monotonic_ns,
        lost=trace.header.lost,
        metadata=metadata,
    )
    arrays = {RecordKind.FILE: files, RecordKind.IO: operations.io, RecordKind.FILEOP: operations.fileops}
    return Trace(header, arrays, {DEVICE_FILE: operations.source})
