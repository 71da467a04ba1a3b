# SPDX-License-Identifier: Apache-2.0
"""Turns a trace and the size of a block device into a trace file whose operations all lie on that device.

What is repeated is either the I/O of programs on block devices (layer vfs), or what reached a device (layer block,
`block_lanes`). Files of a synthetic trace, which stand for nothing but places, are laid end to end. The trace is read
and written chunk by chunk, so that memory does not depend on its length; so who waited for whom (WAKE) is left out:
whether a call's cause is on the device is not known in its chunk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
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
from characterize.requests import SECTOR_BYTES, left_out_of, system_files
from characterize.stream import Chunk, Stream
from characterize.trace import Header, Trace
from characterize.trace_files.provenance import tool_version
from characterize.trace_files.trace_writer import write_chunks
from replayer.devices.block_lanes import DEVICE_FILE, BlockOperations
from replayer.devices.device_places import Geometry, Places, reach_of

_RANGED = (Fileop.FALLOCATE, Fileop.SYNC_FILE_RANGE, Fileop.FADVISE, Fileop.MSYNC)  # argument: offset
_PAGE_BYTES = 4096


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
    stream: Stream,
    path: Path,
    geometry: Geometry,
    *,
    layer: str | None = None,
    source: str | None = None,
    lanes: int | None = None,
    fit: str = "exact",
) -> dict[str, Any]:
    """Write the trace that the engine runs on a device.

    Parameters
    ----------
    stream : Stream
        Of the original.
    path : Path
        The new file: one FILE record, of a block device, and operations on it.
    geometry : Geometry
        Of the device.
    layer : {"vfs", "block"}, optional
        Default: vfs where all files that data was moved of are block devices, or where the trace is synthetic.
    source : str, optional
        ``major:minor`` of the recorded device whose requests are repeated, or ``all``, end to end; layer block.
    lanes : int, optional
        At most so many requests in flight; layer block.
    fit : {"exact", "wrap", "scale"}
        What becomes of addresses, see `replayer.devices.device_places.fit_places`.

    Returns
    -------
    dict
        ``layer, source, fit``; ``lanes``, ``timed`` and ``stacked`` in layer block; ``left_out``, operations that are
        not repeated, by reason; ``moved`` and ``aligned``, how many were given another place, and were widened to whole
        blocks.

    Raises
    ------
    FlextraceError
        Nothing of the trace can be done on a device, the device is too small, or the file cannot be written.
    """
    facts = stream.facts
    layer = layer or ("vfs" if _on_devices(stream) else "block")
    operations: BlockOperations | ProgramOperations
    if layer == "block":
        operations = BlockOperations(stream, source, lanes)
    else:
        if source is not None or lanes is not None:
            raise FlextraceError("--source and --lanes are for block requests: give --layer block", 2)
        operations = ProgramOperations(stream)
    reach = max((reach_of(*chunk, geometry.block_bytes) for chunk in operations), default=0) if fit != "wrap" else 0
    if fit == "exact" and reach > geometry.size_bytes:
        raise FlextraceError(_too_small(operations, reach, geometry), 2)
    places = Places(geometry, fit, max(operations.size_bytes, reach))

    def notes() -> dict[str, Any]:
        found: dict[str, Any] = {"layer": layer, "source": operations.source, "fit": fit}
        found["left_out"] = operations.left_out
        if isinstance(operations, BlockOperations):
            found |= {"lanes": operations.lanes, "timed": operations.timed, "stacked": operations.stacked}
        return found | {"moved": places.moved, "aligned": places.aligned}

    write_chunks(_placed(operations, places, geometry), lambda: _header(facts, notes()), path)
    return notes()


def _too_small(operations: BlockOperations | ProgramOperations, reach: int, geometry: Geometry) -> str:
    what, ways = "the trace reaches", ["give a larger one", "--fit wrap or scale"]
    if isinstance(operations, BlockOperations):
        what = f"the trace's requests of {operations.source} reach"
        if operations.stacked:
            ways.append(f"--source {' or '.join(operations.stacked)}, on top of others")
    return f"the device is too small: {what} up to byte {reach}, it has {geometry.size_bytes}; {', or '.join(ways)}"


def _placed(
    operations: BlockOperations | ProgramOperations, places: Places, geometry: Geometry
) -> Iterator[tuple[dict[RecordKind, np.ndarray], dict[int, str]]]:
    files = np.zeros(1, FILE_DTYPE)
    files["kind"], files["type"], files["file"] = RecordKind.FILE, FileType.BLOCK_DEVICE, DEVICE_FILE
    files["size_bytes"], files["resident_bytes"] = geometry.size_bytes, NOT_MEASURED_U64
    yield {RecordKind.FILE: files}, {DEVICE_FILE: operations.source}
    for io, fileops in operations:
        places.place(io, fileops)
        yield {RecordKind.IO: io, RecordKind.FILEOP: fileops}, {}


def _header(facts: Trace, notes: dict[str, Any]) -> Header:
    header = facts.header
    return Header(
        flags=HeaderFlag(header.flags & HeaderFlag.UNTIMED or HeaderFlag.PLANNED),
        start_monotonic_ns=header.start_monotonic_ns,
        end_monotonic_ns=header.end_monotonic_ns,
        lost=header.lost,
        metadata={"made_by": "flextrace replay --device", "tool_version": tool_version(), "device_trace": notes},
    )


def _on_devices(stream: Stream) -> bool:
    """Whether the I/O of the programs is on block devices, or could as well be."""
    if stream.facts.untimed:
        return True
    system, devices, some = system_files(stream.facts), _device_files(stream.facts)["file"], False
    for part in stream.chunks():
        if isinstance(part, Chunk):
            io = part.arrays[RecordKind.IO]
            moved = io["file"][(io["result"] > 0) & ~left_out_of(io, "data", system)]
            if not np.isin(moved, devices).all():
                return False
            some |= len(moved) > 0
    return some


def _device_files(facts: Trace) -> np.ndarray:
    files = facts.arrays[RecordKind.FILE]
    return files if facts.untimed else files[files["type"] == FileType.BLOCK_DEVICE]


class ProgramOperations:
    """The operations on block devices (of a synthetic trace: on all files), one behind the other on one device.

    Attributes
    ----------
    source : str
        Their paths.
    size_bytes : int
        Of all of them together.
    left_out : dict of str to int
        Operations that are not repeated, by reason.

    Raises
    ------
    FlextraceError
        There are none.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream, facts = stream, stream.facts
        files = _device_files(facts)
        self._files, first = np.unique(files["file"], return_index=True)
        used, accessed, others = np.zeros(len(first), np.int64), np.zeros(len(first), bool), 0
        for io, fileops in self._arrays():
            mine = io[np.isin(io["file"], self._files)]
            others += len(io) - len(mine) + int((~np.isin(fileops["file"], self._files)).sum())
            number = np.searchsorted(self._files, mine["file"])
            np.maximum.at(used, number, (mine["offset"] + mine["asked_bytes"]).astype(np.int64))
            accessed[number] = True
        if not accessed.any():
            raise FlextraceError(
                "no program of the trace did I/O on a block device: give --layer block, or --directory", 2
            )
        used = np.maximum(used, files["size_bytes"][first].astype(np.int64))
        pages = np.where(accessed, -(-used // _PAGE_BYTES), 0)
        self._base = (np.cumsum(pages) - pages) * _PAGE_BYTES
        self.size_bytes = int(pages.sum()) * _PAGE_BYTES
        shown = self._files[accessed].tolist()
        self.source = ", ".join(facts.paths.get(file, f"file {file}") for file in shown)
        self.left_out = {"other_files": others} if others else {}

    def _arrays(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for part in self._stream.chunks():
            if isinstance(part, Chunk):
                yield part.arrays[RecordKind.IO], part.arrays[RecordKind.FILEOP]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """IO and FILEOP records of file `DEVICE_FILE`, each by start, a chunk at a time."""
        for arrays in self._arrays():
            io, fileops = (records[np.isin(records["file"], self._files)] for records in arrays)
            io["offset"] += self._base_of(io)
            ranged = np.isin(fileops["op"], _RANGED)
            fileops["argument"][ranged] += self._base_of(fileops[ranged])
            io["file"] = fileops["file"] = DEVICE_FILE
            if self._stream.facts.untimed:
                # A file of Willy's on a raw device, which has no cache (thesis 4.5.1.6).
                io["flags"] |= np.uint32(IoFlag.DIRECT)
            yield io, fileops

    def _base_of(self, records: np.ndarray) -> np.ndarray:
        return self._base[np.searchsorted(self._files, records["file"])].astype(np.uint64)
