# SPDX-License-Identifier: Apache-2.0
"""Turns chunks of BLOCK records into operations on one block device, in lanes that the engine runs as threads.

They are of one recorded device, or of all, which then lie end to end on the one.

A *lane* is a row of requests that do not overlap in time. Requests are given to the fewest lanes that are possible
(interval partitioning): as many as were in flight at once. The engine then starts a request when all that had ended
before its recorded start have completed (docs/decisions/0002-order.md), so that the recorded depth is kept
without threads being known. Of several free lanes a request gets the one that became free last: the think time before
it then starts at the completion that came last before its arrival, which is the slack of hfplayer's dependency graph
(Haghdoost et al., FAST'17; docs/decisions/0011-block-replay.md says what is kept of it and why).
"""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np

from characterize.device_name import device_name
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
)
from characterize.requests import SECTOR_BYTES
from characterize.stream import Chunk, Stream
from characterize.trace import Trace
from replayer.run import THREADS_MAX

DEVICE_FILE = 1  # file id of the device in the operations
ALL_DEVICES = "all"
_PAGE_BYTES = 4096
_ERROR_IO = -5  # what a request that failed came to
_PUNCH_HOLE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_ZERO_RANGE = 0x10 | 0x01  # FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE
_FALLOCATE_MODES = {
    BlockOp.DISCARD: _PUNCH_HOLE,
    BlockOp.SECURE_ERASE: _PUNCH_HOLE,
    BlockOp.WRITE_ZEROES: _ZERO_RANGE,
}


class Lanes:
    """Gives requests that come in chunks, ordered by start, to the fewest lanes in which no two overlap.

    Of several free lanes a request gets the one freed last. A request may begin when another one ends; one of no
    duration overlaps with nothing. Memory is that of the requests in flight.

    Attributes
    ----------
    used : int
        Lanes so far.
    """

    def __init__(self) -> None:
        self.used = 0
        # Of requests in flight, by their ends; equal ends in the order of the requests.
        self._ends, self._lanes = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._free = np.zeros(0, np.int64)  # a stack

    def add(self, start_ns: np.ndarray, duration_ns: np.ndarray) -> np.ndarray:
        """Lane of each request of the next chunk, from 0: int64, shape (n,)."""
        start, earlier = np.ascontiguousarray(start_ns, np.int64), len(self._ends)
        end = np.concatenate([self._ends, start + np.ascontiguousarray(duration_ns, np.int64)])
        lasting = np.flatnonzero(np.concatenate([np.ones(earlier, bool), end[earlier:] > start]))
        by_end = lasting[np.argsort(end[lasting], kind="stable")]
        lanes = np.concatenate([self._lanes, np.empty(len(start), np.int64)])
        free = np.concatenate([self._free, np.empty(len(end) + 1, np.int64)])
        ended, count, self.used = _partition(start, end, by_end, lanes, free, len(self._free), self.used)
        self._ends, self._lanes, self._free = end[by_end[ended:]], lanes[by_end[ended:]], free[:count].copy()
        return lanes[earlier:]


@numba.njit(cache=True)
def _partition(  # noqa: PLR0917 (a kernel has its state in arguments)
    start: np.ndarray,
    end: np.ndarray,
    by_end: np.ndarray,
    lanes: np.ndarray,
    free: np.ndarray,
    free_count: int,
    used: int,
) -> tuple[int, int, int]:
    """Fill in the lanes of the requests that start; those before them in `end` and `lanes` are in flight.

    `by_end`: the requests that have a duration, in the order of their ends. Returns how many of these are over, how
    many lanes are free and how many there are.
    """
    ended, earlier = 0, len(end) - len(start)
    for place in range(len(start)):
        request = earlier + place
        # What ends here began before, so that it has a lane.
        while ended < len(by_end) and end[by_end[ended]] <= start[place]:
            free[free_count] = lanes[by_end[ended]]
            free_count += 1
            ended += 1
        if free_count:
            free_count -= 1
            lanes[request] = free[free_count]
        else:
            lanes[request] = used
            used += 1
        if end[request] == start[place]:
            free[free_count] = lanes[request]
            free_count += 1
    return ended, free_count, used


class BlockOperations:
    """The block requests of one device, or of all, as operations on one, by direct I/O.

    Reads and writes stay what they are (a write with FUA gets O_DSYNC), flushes become fsync, discards and secure
    erases punch a hole, write-zeroes zero a range. Other kinds (zones, pass-through) are left out and counted.

    Parameters
    ----------
    stream : Stream
    source : str, optional
        ``major:minor`` of a device, or `ALL_DEVICES`; default: the only one that the trace has, apart from stacked ones
        (dm, md, loop), whose requests those below them repeat.
    lanes : int, optional
        At most so many requests in flight, given in turn, instead of as many as were recorded.

    Attributes
    ----------
    source : str
        Where they were recorded.
    stacked : list of str
        Devices on top of others (dm, md, loop) whose requests the trace has as well; of the default source only.
    size_bytes : int
        Of the recorded devices together: as the trace tells it, at least as far as their requests reach.
    lanes : int
        As many as the last pass over the operations needed.
    left_out : dict of str to int
        Requests that are not repeated, by reason.
    timed : bool
        Whether the trace knows how long requests took: else there is no depth in it, and one lane.

    Raises
    ------
    FlextraceError
        There is no device, or more than one and `source` does not choose; no request can be repeated.
    """

    def __init__(self, stream: Stream, source: str | None = None, lanes: int | None = None) -> None:
        self._stream, self._chosen_lanes = stream, lanes
        self._with_stacked = source not in {None, ALL_DEVICES} or stream.all_stacked
        self._above: set[int] = set()
        found: dict[int, np.ndarray] = {}  # by device: requests, those that are repeated, and of these with a duration
        reach: dict[int, int] = {}
        for blocks in self._blocks():
            kept = can_be_repeated(blocks)
            devices, row = np.unique(blocks["device"], return_inverse=True)
            every = np.zeros((len(devices), 3), np.int64)
            np.add.at(every, row, np.column_stack([row >= 0, kept, kept & (blocks["duration_ns"] > 0)]))
            placed, last = kept & (blocks["op"] != BlockOp.FLUSH), np.zeros(len(devices), np.uint64)
            np.maximum.at(last, row[placed], (blocks["sector"] * np.uint64(SECTOR_BYTES) + blocks["bytes"])[placed])
            for device, counts, end in zip(devices.tolist(), every, last.tolist(), strict=True):
                found[device] = found.get(device, 0) + counts
                reach[device] = max(reach.get(device, 0), end)
        self.stacked = [device_name(device) for device in sorted(self._above)] if source is None else []
        chosen = _choose(sorted(found), source, self.stacked)
        requests, repeated, lasting = np.sum([found[device] for device in chosen], axis=0).tolist()
        if not repeated:
            raise FlextraceError("the trace has no block request that can be repeated")
        sizes = [max(reach[device], _size_bytes(stream.facts, device)) for device in chosen]
        ends = np.cumsum([-(-size // _PAGE_BYTES) * _PAGE_BYTES for size in sizes])
        self._devices, self._base = np.array(chosen), np.concatenate([[0], ends[:-1]]).astype(np.uint64)
        self.size_bytes = int(self._base[-1]) + sizes[-1]
        self.source = device_name(chosen[0]) if len(chosen) == 1 else f"{len(chosen)} devices"
        self.lanes, self.timed = 0, lasting > 0
        self.left_out = {"other_kinds": requests - repeated} if requests > repeated else {}

    def _blocks(self) -> Iterator[np.ndarray]:
        """All but those of stacked devices that were not chosen, whose numbers are kept."""
        for part in self._stream.chunks():
            if isinstance(part, Chunk):
                blocks = part.arrays[RecordKind.BLOCK]
                stacked = ((blocks["flags"] & BlockFlag.STACKED) != 0) & (not self._with_stacked)
                self._above.update(np.unique(blocks["device"][stacked]).tolist())
                yield blocks[~stacked]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """IO and FILEOP records of file `DEVICE_FILE`, each by start, a chunk at a time; ``thread``: lane, from 1.

        Raises
        ------
        FlextraceError
            More lanes are needed than the engine has threads.
        """
        partition, done, identity = Lanes(), 0, 1
        for every in self._blocks():
            blocks = every[np.isin(every["device"], self._devices) & can_be_repeated(every)]
            blocks["sector"] += self._base[np.searchsorted(self._devices, blocks["device"])] // np.uint64(SECTOR_BYTES)
            if self._chosen_lanes:
                lane = np.arange(done, done + len(blocks)) % self._chosen_lanes
                self.lanes = min(done + len(blocks), self._chosen_lanes)
            else:
                lane = partition.add(blocks["start_ns"], blocks["duration_ns"])
                self.lanes = partition.used
            done += len(blocks)
            if self.lanes > THREADS_MAX:
                raise FlextraceError(
                    f"{self.lanes} requests were in flight at once, {THREADS_MAX} are possible: give --lanes", 2
                )
            io, fileops = _operations(blocks, lane)
            for records in (io, fileops):
                records["id"] = np.arange(identity, identity + len(records))
                identity += len(records)
            yield io, fileops


def _choose(devices: list[int], source: str | None, stacked: list[str]) -> list[int]:
    names = {device_name(device): device for device in devices}
    if not names:
        raise FlextraceError(
            "the trace has no block requests: replay it in a --directory, or, if it is synthetic or its programs did "
            "I/O on a block device, by --layer vfs"
        )
    if source == ALL_DEVICES:
        return devices
    if source is None and len(names) > 1:
        above = f", and on top of others {', '.join(stacked)}" if stacked else ""
        raise FlextraceError(
            f"the trace has requests of the devices {', '.join(names)}{above}: choose one by --source, or lay all end "
            f"to end on the device by --source {ALL_DEVICES}",
            2,
        )
    if source is not None and source not in names:
        raise FlextraceError(f"the trace has no requests of device {source}, only of {', '.join(names)}", 2)
    return [names[source or next(iter(names))]]


def _size_bytes(facts: Trace, device: int) -> int:
    """Of a recorded device, if the trace tells it, else 0."""
    for it in facts.header.metadata.get("devices", []):
        if it.get("device") == device_name(device) and it.get("sectors"):
            return int(it["sectors"]) * SECTOR_BYTES
    return 0


def _data(blocks: np.ndarray) -> np.ndarray:
    """Which requests are to move data."""
    return np.isin(blocks["op"], (BlockOp.READ, BlockOp.WRITE)) & (blocks["bytes"] > 0)


def can_be_repeated(blocks: np.ndarray) -> np.ndarray:
    """Which requests have an operation on a block device that does the same; bool, shape (n,)."""
    return _data(blocks) | np.isin(blocks["op"], (BlockOp.FLUSH, *_FALLOCATE_MODES))


def _operations(blocks: np.ndarray, lane: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """IO and FILEOP records of requests."""
    data = _data(blocks)
    # The kernel shows the flush before a write as a request of its own, except with bios.
    before = data & (blocks["form"] == BlockForm.BIO) & ((blocks["flags"] & BlockFlag.PREFLUSH) != 0)
    fileops = np.concatenate([_others(blocks[~data], lane[~data]), _flushes(blocks[before], lane[before])])
    fileops = fileops[np.argsort(fileops["start_ns"], kind="stable")]
    return _accesses(blocks[data], lane[data], before[data]), fileops


def _same(records: np.ndarray, blocks: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """Fills in what both kinds of records have."""
    records["source"] = Source.SYNTHETIC
    records["start_ns"], records["duration_ns"] = blocks["start_ns"], blocks["duration_ns"]
    records["thread"], records["process"], records["file"] = lane + 1, 1, DEVICE_FILE
    records["result"] = np.where(blocks["status"] == 0, 0, _ERROR_IO)
    return records


def _accesses(blocks: np.ndarray, lane: np.ndarray, flushed: np.ndarray) -> np.ndarray:
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
