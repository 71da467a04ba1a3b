# SPDX-License-Identifier: Apache-2.0
"""Turns the BLOCK records of a trace into operations on one block device, in lanes that the engine runs as threads.

A *lane* is a row of requests that do not overlap in time. Requests are given to the fewest lanes that are possible
(interval partitioning): as many as were in flight at once. The engine then starts a request when all that had ended
before its recorded start have completed (docs/decisions/0002-order.md), so that the recorded depth is kept
without threads being known. Of several free lanes a request gets the one that became free last: the think time before
it then starts at the completion that came last before its arrival, which is the slack of hfplayer's dependency graph
(Haghdoost et al., FAST'17; docs/decisions/0011-block-replay.md says what is kept of it and why).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numba
import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import (
    FILEOP_DTYPE,
    IO_DTYPE,
    NOT_MEASURED_U32,
    BlockFlag,
    BlockForm,
    BlockOp,
    Fileop,
    IoFlag,
    IoOp,
    RecordKind,
    Source,
    device_name,
)
from characterize.requests import SECTOR_BYTES, block_records
from characterize.trace import Trace
from replayer.run import THREADS_MAX

DEVICE_FILE = 1  # file id of the device in the operations
_ERROR_IO = -5  # what a request that failed came to
_PUNCH_HOLE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_ZERO_RANGE = 0x10 | 0x01  # FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE
_FALLOCATE_MODES = {
    BlockOp.DISCARD: _PUNCH_HOLE,
    BlockOp.SECURE_ERASE: _PUNCH_HOLE,
    BlockOp.WRITE_ZEROES: _ZERO_RANGE,
}


@dataclass
class Operations:
    """What is to be done on the device: IO and FILEOP records of file `DEVICE_FILE`, by start.

    Attributes
    ----------
    io, fileops : ndarray
        Of `IO_DTYPE` and `FILEOP_DTYPE`; ``thread`` is the lane, from 1.
    source : str
        Where they were recorded, ``major:minor``.
    lanes : int
    left_out : dict of str to int
        Requests that are not repeated, by reason.
    timed : bool
        Whether the trace knows how long requests took: else there is no depth in it, and one lane.
    """

    io: np.ndarray
    fileops: np.ndarray
    source: str
    lanes: int
    left_out: dict[str, int] = field(default_factory=dict)
    timed: bool = True


def lanes_of(start_ns: np.ndarray, duration_ns: np.ndarray) -> np.ndarray:
    """Lane of every request: the fewest in which no two overlap; of several free ones, the one freed last.

    Parameters
    ----------
    start_ns, duration_ns : ndarray of int, shape (n,)
        Ordered by start. A request may begin when another one ends; one of no duration overlaps with nothing.

    Returns
    -------
    ndarray of int64, shape (n,)
        From 0.
    """
    start = np.ascontiguousarray(start_ns, np.int64)
    end = start + np.ascontiguousarray(duration_ns, np.int64)
    lasting = np.flatnonzero(end > start)
    return _partition(start, end, lasting[np.argsort(end[lasting], kind="stable")])


@numba.njit(cache=True)
def _partition(start: np.ndarray, end: np.ndarray, by_end: np.ndarray) -> np.ndarray:
    """`by_end`: the requests that have a duration, in the order of their ends."""
    lanes = np.empty(len(start), np.int64)
    free = np.empty(len(start) + 1, np.int64)  # a stack
    free_count = used = ended = 0
    for request in range(len(start)):
        # What ends here began before, so that it has a lane.
        while ended < len(by_end) and end[by_end[ended]] <= start[request]:
            free[free_count] = lanes[by_end[ended]]
            free_count += 1
            ended += 1
        if free_count:
            free_count -= 1
            lanes[request] = free[free_count]
        else:
            lanes[request] = used
            used += 1
        if end[request] == start[request]:
            free[free_count] = lanes[request]
            free_count += 1
    return lanes


def choose_source(trace: Trace, source: str | None = None) -> np.ndarray:
    """BLOCK records of one device.

    Parameters
    ----------
    trace : Trace
    source : str, optional
        ``major:minor`` of a device; default: the only one that the trace has, apart from stacked ones (dm, md, loop),
        whose requests those below them repeat.

    Raises
    ------
    FlextraceError
        There is none, or more than one and `source` does not choose.
    """
    blocks = trace.arrays[RecordKind.BLOCK]
    if source is None:
        blocks = block_records(trace)
    names = {device_name(int(device)): int(device) for device in np.unique(blocks["device"])}
    if not names:
        raise FlextraceError("the trace has no block requests and no I/O on a block device: replay it in a --directory")
    if source is None and len(names) > 1:
        raise FlextraceError(f"the trace has requests of the devices {', '.join(names)}: choose one by --source", 2)
    if source is not None and source not in names:
        raise FlextraceError(f"the trace has no requests of device {source}, only of {', '.join(names)}", 2)
    return blocks[blocks["device"] == names[source or next(iter(names))]]


def operations_of(trace: Trace, source: str | None = None, lanes: int | None = None) -> Operations:
    """The block requests of one device as operations on it, by direct I/O.

    Reads and writes stay what they are (a write with FUA gets O_DSYNC), flushes become fsync, discards and secure
    erases punch a hole, write-zeroes zero a range. Other kinds (zones, pass-through) are left out and counted.

    Parameters
    ----------
    trace : Trace
    source : str, optional
        See `choose_source`.
    lanes : int, optional
        At most so many requests in flight, given in turn, instead of as many as were recorded.

    Raises
    ------
    FlextraceError
        As `choose_source`; no request can be repeated, or more lanes are needed than the engine has threads.
    """
    blocks = choose_source(trace, source)
    blocks = blocks[np.argsort(blocks["start_ns"], kind="stable")]
    data = np.isin(blocks["op"], (BlockOp.READ, BlockOp.WRITE)) & (blocks["bytes"] > 0)
    other = np.isin(blocks["op"], (BlockOp.FLUSH, *_FALLOCATE_MODES))
    blocks, data = blocks[data | other], data[data | other]
    left_out = len(other) - len(blocks)
    if not len(blocks):
        raise FlextraceError("the trace has no block request that can be repeated")
    start, duration = blocks["start_ns"], blocks["duration_ns"]
    timed = bool(duration.any())
    lane = np.arange(len(blocks)) % lanes if lanes else lanes_of(start, duration)
    count = int(lane.max()) + 1
    if count > THREADS_MAX:
        raise FlextraceError(f"{count} requests were in flight at once, {THREADS_MAX} are possible: give --lanes", 2)
    # The kernel shows the flush before a write as a request of its own, except with bios.
    before = data & (blocks["form"] == BlockForm.BIO) & ((blocks["flags"] & BlockFlag.PREFLUSH) != 0)
    io = _data(blocks[data], lane[data], before[data])
    fileops = np.concatenate([_others(blocks[~data], lane[~data]), _flushes(blocks[before], lane[before])])
    fileops = fileops[np.argsort(fileops["start_ns"], kind="stable")]
    io["id"] = np.arange(1, len(io) + 1)
    fileops["id"] = np.arange(len(io) + 1, len(io) + len(fileops) + 1)
    return Operations(
        io=io,
        fileops=fileops,
        source=device_name(int(blocks["device"][0])),
        lanes=count,
        left_out={"other_kinds": left_out} if left_out else {},
        timed=timed,
    )


def _same(records: np.ndarray, blocks: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """Fills in what both kinds of records have."""
    records["source"] = Source.SYNTHETIC
    records["start_ns"], records["duration_ns"] = blocks["start_ns"], blocks["duration_ns"]
    records["thread"], records["process"], records["file"] = lane + 1, 1, DEVICE_FILE
    records["result"] = np.where(blocks["status"] == 0, 0, _ERROR_IO)
    return records


def _data(blocks: np.ndarray, lane: np.ndarray, flushed: np.ndarray) -> np.ndarray:
    io = _same(np.zeros(len(blocks), IO_DTYPE), blocks, lane)
    io["kind"], io["op"] = RecordKind.IO, np.where(blocks["op"] == BlockOp.READ, IoOp.READ, IoOp.WRITE)
    io["flags"] = IoFlag.DIRECT | IoFlag.POSITIONED
    io["flags"] |= np.where((blocks["flags"] & BlockFlag.FUA) != 0, IoFlag.DSYNC, 0).astype(np.uint32)
    io["offset"], io["asked_bytes"] = blocks["sector"] * np.uint64(SECTOR_BYTES), blocks["bytes"]
    io["result"] = np.where(blocks["status"] == 0, blocks["bytes"].astype(np.int64), _ERROR_IO)
    io["missed_bytes"] = NOT_MEASURED_U32
    # The flush before it takes its first nanosecond.
    io["start_ns"] += flushed
    io["duration_ns"] -= flushed & (io["duration_ns"] > 0)
    return io


def _others(blocks: np.ndarray, lane: np.ndarray) -> np.ndarray:
    fileops = _same(np.zeros(len(blocks), FILEOP_DTYPE), blocks, lane)
    fileops["kind"], fileops["op"] = RecordKind.FILEOP, Fileop.FSYNC
    for op, mode in _FALLOCATE_MODES.items():
        here = blocks["op"] == op
        fileops["op"][here], fileops["flags"][here] = Fileop.FALLOCATE, mode << 16
        fileops["argument"][here] = blocks["sector"][here] * np.uint64(SECTOR_BYTES)
        fileops["length"][here] = blocks["bytes"][here]
    return fileops


def _flushes(blocks: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """The flushes before writes."""
    fileops = _same(np.zeros(len(blocks), FILEOP_DTYPE), blocks, lane)
    fileops["kind"], fileops["op"], fileops["result"] = RecordKind.FILEOP, Fileop.FSYNC, 0
    fileops["duration_ns"] = np.minimum(blocks["duration_ns"], 1)
    return fileops
