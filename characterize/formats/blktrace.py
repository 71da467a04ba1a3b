# SPDX-License-Identifier: Apache-2.0
"""Turns the binary files of blktrace into chunks of BLOCK records.

``NAME.blktrace.CPU``, a file of each CPU: all that stand beside the given one, compressed like it, are merged by their
times. Also the one file that ``blkparse -d`` writes. Events are ``struct blk_io_trace`` of <linux/blktrace_api.h>
(version 7, 48 bytes; 8 is ``struct blk_io_trace2``, 64 bytes, its action wider), each followed by its payload, in the
byte order of the machine that wrote them. Times are ns since tracing began; a timestamp event says what time of day
that was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Literal

import numba
import numpy as np

from characterize.errors import FlextraceError
from characterize.formats.block_events import EVENT_DTYPE, STATUS_OF_ERROR, Action, EventPairing
from characterize.formats.compressed import opened
from characterize.formats.reading import BEGAN, Chunk, Reading
from characterize.layout import BlockFlag, BlockOp
from characterize.requests import SECTOR_BYTES

MAGIC, MAGIC_MASK = 0x65617400, 0xFFFFFF00
_FIRST = [("magic", "u4"), ("sequence", "u4"), ("time", "u8"), ("sector", "u8"), ("bytes", "u4")]
_LAST = [("device", "u4"), ("cpu", "u4"), ("error", "u2"), ("payload_bytes", "u2")]
EVENT_OF_VERSION = {
    7: np.dtype([*_FIRST, ("action", "u4"), ("thread", "u4"), *_LAST]),
    8: np.dtype([*_FIRST, ("thread", "u4"), ("action", "u8"), *_LAST, ("reserved", "V12")]),
}
_PAYLOAD_AT = {48: 46, 64: 50}  # payload_bytes, by the size of an event
READ_BYTES = 8 << 20
_CPU_FILE = re.compile(r"(.+\.blktrace\.)(\d+)(\.(?:gz|zst|xz|bz2|lz4))?")

# enum blktrace_cat, in the bits of an action from the 16th on
_CATEGORY_SHIFT = 16
_WRITE, _FLUSH, _SYNC, _PASS_THROUGH, _NOTIFY = 1 << 1, 1 << 2, 1 << 3, 1 << 9, 1 << 10
_AHEAD, _META, _DISCARD, _FUA = 1 << 11, 1 << 12, 1 << 13, 1 << 15
# Of version 8 alone; in 7 zeroes are writes. Appends to a zone (bit 16) are, too.
_ZONES, _WRITE_ZEROES = 0b11111 << 17, 1 << 22
# enum blktrace_act, in the low ones; a request of a control group says so in a bit of its own
_ACT_MASK = 0xFF
_ACTIONS = {
    1: Action.QUEUED,
    2: Action.MERGED,
    3: Action.FRONT_MERGED,
    6: Action.REQUEUED,
    7: Action.ISSUED,
    8: Action.COMPLETED,
    15: Action.REMAPPED,
}
_REMAP, _REMAP_BYTES = 15, 16
"""At the end of its payload: struct blk_io_trace_remap, big endian, which begins with the device that it came from."""
_NOTIFY_PROCESS, _NOTIFY_TIMESTAMP = 0, 1
_FLAGS = {_SYNC: BlockFlag.SYNC, _META: BlockFlag.META, _AHEAD: BlockFlag.READAHEAD, _FUA: BlockFlag.FUA}


def looks_like(head: bytes) -> bool:
    """Whether a file begins with an event of a known version, in either byte order."""
    return _dtype_of(head) is not None


def _dtype_of(head: bytes) -> np.dtype | None:
    orders: tuple[Literal["<", ">"], ...] = ("<", ">")
    for order in orders:
        if len(head) >= 4:
            magic = int(np.frombuffer(head, f"{order}u4", 1)[0])
            if magic & MAGIC_MASK == MAGIC and magic & ~MAGIC_MASK in EVENT_OF_VERSION:
                return EVENT_OF_VERSION[magic & ~MAGIC_MASK].newbyteorder(order)
    return None


def chunks(reading: Reading) -> Iterator[Chunk]:
    """Read all files of a trace; requests that never completed are left out and counted.

    Raises
    ------
    FlextraceError
        A file holds something else than events from some byte on, or is cut off within one.
    """
    pairing = EventPairing(reading)
    with ExitStack() as stack:
        files = [
            _EventFile(path, stack.enter_context(opened(path)), pairing, reading) for path in _files_of(reading.path)
        ]
        reading.facts["files"] = len(files)
        while any(not file.ended for file in files):
            for file in files:
                file.fill()
            # What a file may still bring is not before its last event so far.
            safe_ns = min((file.last_ns for file in files if not file.ended), default=None)
            events = np.concatenate([file.take(safe_ns) for file in files])
            yield pairing.chunk(events[np.argsort(events["time_ns"], kind="stable")])
    pairing.end()


def _files_of(path: Path) -> list[Path]:
    named = _CPU_FILE.fullmatch(path.name)
    if not named:
        return [path]
    siblings = [
        (int(found[2]), it)
        for it in path.parent.iterdir()
        if (found := _CPU_FILE.fullmatch(it.name)) and found.group(1, 3) == named.group(1, 3)
    ]
    return [it for _, it in sorted(siblings) if it.stat().st_size]


class _EventFile:
    """One file: events that were read and not yet taken, in the order of the file."""

    def __init__(self, path: Path, stream: BinaryIO, pairing: EventPairing, reading: Reading):
        self.path, self.stream, self.pairing, self.reading = path, stream, pairing, reading
        self.ended = False
        self.last_ns = 0
        self._rest = b""
        self._at = 0
        self._dtype: np.dtype | None = None
        self._events = np.zeros(0, EVENT_DTYPE)

    def fill(self) -> None:
        """Read on, unless there are events left from before."""
        if self.ended or len(self._events):
            return
        content = self._rest + self.stream.read(READ_BYTES)
        if not content:  # also of a CPU that saw nothing, compressed
            self.ended = True
            return
        self._dtype = self._dtype or _dtype_of(content)
        if self._dtype is None:
            raise FlextraceError(f"{self.path} is not a file of blktrace: it does not begin with one of its events")
        raw = np.frombuffer(content, np.uint8)
        magic = np.frombuffer(content[:4], np.uint8)
        big = self._dtype["magic"].byteorder == ">"
        places, end, fine = _events_at(raw, magic, self._dtype.itemsize, _PAYLOAD_AT[self._dtype.itemsize], big)
        if not fine or (len(content) == len(self._rest) and end < len(content)):
            what = "an event of blktrace" if not fine else f"a whole event, not {len(content) - end} bytes"
            raise FlextraceError(
                f"{self.path} byte {self._at + end}: expected {what}, found {content[end : end + 16]!r}"
            )
        self.ended = len(content) == len(self._rest)
        self._rest, self._at = content[end:], self._at + end
        if len(places):
            found = raw[places[:, None] + np.arange(self._dtype.itemsize)].view(self._dtype).reshape(-1)
            self._notices(found, places, content)
            self._events = _events(found, _sources(found, places, raw))
            self.last_ns = max(self.last_ns, int(found["time"].max()))

    def take(self, safe_ns: int | None) -> np.ndarray:
        """The events up to a time; all of them without one."""
        if safe_ns is None:
            taken, self._events = self._events, self._events[:0]
        else:
            early = self._events["time_ns"] <= safe_ns
            taken, self._events = self._events[early], self._events[~early]
        return taken

    def _notices(self, found: np.ndarray, places: np.ndarray, content: bytes) -> None:
        """Names of processes, and the time of day."""
        notice = found["action"].astype(np.int64) >> _CATEGORY_SHIFT & _NOTIFY != 0
        for row in np.flatnonzero(notice).tolist():
            event, begin = found[row], int(places[row]) + found.dtype.itemsize
            payload = content[begin : begin + int(event["payload_bytes"])]
            what = int(event["action"]) & _ACT_MASK
            if what == _NOTIFY_PROCESS:
                self.pairing.name_one(int(event["thread"]), payload.rstrip(b"\0"))
            elif what == _NOTIFY_TIMESTAMP and len(payload) >= 8:
                seconds, nanoseconds = np.frombuffer(payload, found.dtype["time"].str[0] + "u4", 2).tolist()
                self.reading.facts.setdefault(BEGAN, seconds * 10**9 + nanoseconds - int(event["time"]))


def _sources(found: np.ndarray, places: np.ndarray, raw: np.ndarray) -> np.ndarray:
    """Devices that passed requests on, of the remaps; 0 of other events."""
    sources = np.zeros(len(found), ">u4")
    payload_bytes = found["payload_bytes"].astype(np.int64)
    remaps = np.flatnonzero((found["action"] & _ACT_MASK == _REMAP) & (payload_bytes >= _REMAP_BYTES))
    begin = places[remaps] + found.dtype.itemsize + payload_bytes[remaps] - _REMAP_BYTES
    sources[remaps] = raw[begin[:, None] + np.arange(4)].view(">u4").reshape(-1)
    return sources


def _events(found: np.ndarray, sources: np.ndarray) -> np.ndarray:
    action = found["action"].astype(np.int64)
    category, what = action >> _CATEGORY_SHIFT, action & _ACT_MASK
    events = np.zeros(len(found), EVENT_DTYPE)
    events["time_ns"], events["bytes"], events["thread"] = found["time"], found["bytes"], found["thread"]
    events["sector"] = np.where(found["sector"] < 2**63 // SECTOR_BYTES, found["sector"], 0)
    events["device"], events["source"] = found["device"], sources
    table = np.zeros(_ACT_MASK + 1, np.uint8)
    table[list(_ACTIONS)] = list(_ACTIONS.values())
    skipped = category & (_NOTIFY | _PASS_THROUGH) != 0
    events["action"] = np.where(skipped, Action.OTHER, table[what])
    of_category = (_WRITE_ZEROES, _ZONES, _DISCARD, _WRITE)
    events["op"] = np.select(
        [*(category & bits != 0 for bits in of_category), found["bytes"] > 0, category & _FLUSH != 0],
        [BlockOp.WRITE_ZEROES, BlockOp.ZONE, BlockOp.DISCARD, BlockOp.WRITE, BlockOp.READ, BlockOp.FLUSH],
        BlockOp.OTHER,
    )
    for bit, flag in _FLAGS.items():
        events["flags"] |= np.where(category & bit, int(flag), 0).astype(np.uint32)
    preflush = (category & _FLUSH != 0) & (events["op"] == BlockOp.WRITE)
    events["flags"] |= np.where(preflush, int(BlockFlag.PREFLUSH), 0).astype(np.uint32)
    completed = events["action"] == Action.COMPLETED
    events["status"] = np.where(completed & (found["error"] != 0), STATUS_OF_ERROR, 0)
    return events[events["action"] != Action.OTHER]


@numba.njit(cache=True)
def _events_at(
    raw: np.ndarray, magic: np.ndarray, event_bytes: int, payload_at: int, big: bool
) -> tuple[np.ndarray, int, bool]:
    """Where the events begin; where the last whole one ends; whether all have the magic number."""
    places = np.empty(len(raw) // event_bytes, np.int64)
    count = at = 0
    while at + event_bytes <= len(raw):
        for byte in range(4):
            if raw[at + byte] != magic[byte]:
                return places[:count], at, False
        first, second = int(raw[at + payload_at]), int(raw[at + payload_at + 1])
        payload = first << 8 | second if big else second << 8 | first
        if at + event_bytes + payload > len(raw):
            break
        places[count] = at
        count += 1
        at += event_bytes + payload
    return places[:count], at, True
