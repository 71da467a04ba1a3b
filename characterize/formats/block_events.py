# SPDX-License-Identifier: Apache-2.0
"""Turns events of the block layer (queued, merged, issued, completed) into BLOCK records.

What blktrace, blkparse and perf share. Events of one device, start sector and operation belong together: a completion
ends the oldest issue that waits for one, and an issue takes the oldest queued bio; one that was merged in front of a
request takes its place there. On a device that has no issues (a bio-based one) a completion ends the queueing. Chunks
may cut a request anywhere: what waits is kept.

A remap says that a device passed a request on to another one (dm, md, multipath), where it is seen again: from then on
requests of that device are marked as `flextrace record` marks them, and no total counts them twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import IntEnum

import numba
import numpy as np
import pyarrow as pa

from characterize.device_name import device_name
from characterize.formats.reading import Chunk, Reading
from characterize.layout import (
    BLOCK_DTYPE,
    NOT_MEASURED_U64,
    TASK_DTYPE,
    BlockFlag,
    BlockForm,
    BlockOp,
    RecordKind,
)
from characterize.requests import SECTOR_BYTES

WAITING_MAX = 1 << 18
STATUS_OF_ERROR = 10
"""BLK_STS_IOERR: the trace has an errno, a BLOCK record a blk_status_t; that it failed is what both say."""
NONE = -1
# Columns of a request that was issued: rows of its events; and how it stands.
_QUEUE, _ISSUE, _STATE, _FIRST_ISSUE, _REQUEUE = range(5)
_ISSUED, _WAITS_AGAIN, _ISSUED_AGAIN = range(3)


class Action(IntEnum):
    """What happened to a request or bio; others than these say nothing that a BLOCK record has."""

    OTHER = 0
    QUEUED = 1
    MERGED = 2
    ISSUED = 3
    REQUEUED = 4
    COMPLETED = 5
    REMAPPED = 6
    FRONT_MERGED = 7


EVENT_DTYPE = np.dtype(
    [
        ("time_ns", "<i8"),
        ("sector", "<u8"),
        ("device", "<u4"),
        ("source", "<u4"),  # of a remap: the device that passed it on
        ("bytes", "<u4"),
        ("thread", "<u4"),
        ("flags", "<u4"),
        ("action", "u1"),
        ("op", "u1"),
        ("status", "u1"),
    ]
)

ACTION_OF_LETTER = {
    "Q": Action.QUEUED,
    "M": Action.MERGED,
    "F": Action.FRONT_MERGED,
    "D": Action.ISSUED,
    "R": Action.REQUEUED,
    "C": Action.COMPLETED,
    "A": Action.REMAPPED,
}
# Longer ones first. What is appended to a zone is written.
_OP_OF_LETTERS = {
    "R": BlockOp.READ,
    "WZ": BlockOp.WRITE_ZEROES,
    "W": BlockOp.WRITE,
    "DE": BlockOp.SECURE_ERASE,
    "D": BlockOp.DISCARD,
    "F": BlockOp.FLUSH,
    "ZA": BlockOp.WRITE,
    **dict.fromkeys(("ZRA", "ZR", "ZF", "ZO", "ZC"), BlockOp.ZONE),
}
_FLAG_OF_LETTER = {"F": BlockFlag.FUA, "A": BlockFlag.READAHEAD, "S": BlockFlag.SYNC, "M": BlockFlag.META}
_FLAGS_SHIFT = 8


def op_and_flags(letters: str) -> int:
    """Operation, and from the 8th bit on the flags, of the letters that the kernel prints (``blk_fill_rwbs``)."""
    flags = BlockFlag(0)
    rest = letters
    if len(rest) > 1 and rest[0] == "F":
        flags, rest = BlockFlag.PREFLUSH, rest[1:]
    name = next((name for name in _OP_OF_LETTERS if rest.startswith(name)), "")
    op = _OP_OF_LETTERS.get(name, BlockOp.FLUSH if flags else BlockOp.OTHER)
    for letter in rest[max(len(name), 1) :]:
        flags |= _FLAG_OF_LETTER.get(letter, BlockFlag(0))
    # A flush is one by itself.
    flags &= ~BlockFlag.PREFLUSH if op == BlockOp.FLUSH else ~BlockFlag(0)
    return int(op) | int(flags) << _FLAGS_SHIFT


def set_op_and_flags(events: np.ndarray, numbers: np.ndarray) -> None:
    """Put numbers of `op_and_flags` into events."""
    events["op"], events["flags"] = numbers & ((1 << _FLAGS_SHIFT) - 1), numbers >> _FLAGS_SHIFT


class EventPairing:
    """Requests that wait for their completion, the names of threads, and the devices that pass requests on.

    Parameters
    ----------
    reading : Reading
        Its facts get the numbers of events that no request was made of, and of requests of stacked devices.
    """

    def __init__(self, reading: Reading):
        reading.durations_known = reading.flags_known = True
        self.reading = reading
        self._waiting = np.zeros(0, EVENT_DTYPE)
        self._named: dict[int, bytes] = {}
        self._new_names: dict[int, bytes] = {}
        self._stacked: set[int] = set()
        self._partitions: set[int] = set()

    def name(self, threads: np.ndarray, names: pa.DictionaryArray) -> None:
        """Take note of what the threads are called."""
        pairs = threads.astype(np.int64) << 32 | names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        texts = names.dictionary.to_pylist()
        for pair in np.unique(pairs).tolist():
            self.name_one(pair >> 32, texts[pair & 0xFFFFFFFF])

    def name_one(self, thread: int, name: bytes) -> None:
        """Take note of what a thread is called; the first name stays."""
        if thread and name and thread not in self._named:
            self._named[thread] = self._new_names[thread] = name[:15]

    def chunk(self, events: np.ndarray) -> Chunk:
        """The requests that these events complete, and the threads that are new."""
        events = np.concatenate([self._waiting, self._without_remaps(events)])
        _queue_where_requests_begin(events)
        order = np.lexsort((events["op"], events["sector"], events["device"]))
        grouped = events[order]
        new_group = np.ones(len(grouped), bool)
        keys = grouped[["device", "sector", "op"]]
        new_group[1:] = keys[1:] != keys[:-1]
        pairs, keep, unmatched = _pair(grouped["action"], new_group)
        self._count("left_out_completions_without_an_issue", int(unmatched))
        waiting = grouped[keep][np.argsort(order[keep], kind="stable")]
        if len(waiting) > WAITING_MAX:
            self._count("left_out_events_without_a_completion", len(waiting) - WAITING_MAX)
        self._waiting = waiting[-WAITING_MAX:]
        requests = _requests(grouped, pairs)
        self._mark_stacked(requests)
        return Chunk({RecordKind.TASK: self._tasks(), RecordKind.BLOCK: requests})

    def end(self) -> None:
        """Count what waits in vain."""
        issued = self._waiting["action"] == Action.ISSUED
        self._count("left_out_issues_without_a_completion", int(issued.sum()))

    def _without_remaps(self, events: np.ndarray) -> np.ndarray:
        """The other events; takes note of the devices that pass on what they are given."""
        remapped = events["action"] == Action.REMAPPED
        if not remapped.any():
            return events
        by_thread = events[np.argsort(events["thread"], kind="stable")]
        remaps, behind = by_thread[:-1], by_thread[1:]
        # Of a partition that was traced by itself blkparse names the disk in the remap; what was moved follows, at its
        # place on the disk but with the number of the partition. Nothing of it is seen twice.
        moved = (remaps["action"] == Action.REMAPPED) & (behind["action"] == Action.QUEUED)
        for name, of_remap in (("thread", "thread"), ("device", "source"), ("sector", "sector")):
            moved &= behind[name] == remaps[of_remap]
        self._partitions |= set(behind["device"][moved].tolist())
        passed_on = remapped & (events["source"] != events["device"])
        self._stacked = (self._stacked | set(events["source"][passed_on].tolist())) - self._partitions
        return events[~remapped]

    def _mark_stacked(self, requests: np.ndarray) -> None:
        counts: dict[str, int] = self.reading.facts.get("stacked", {})
        for device in sorted(self._stacked):
            of_device = requests["device"] == device
            if of_device.any():
                requests["flags"][of_device] |= np.uint32(BlockFlag.STACKED)
                counts[device_name(device)] = counts.get(device_name(device), 0) + int(of_device.sum())
        if counts:
            self.reading.facts["stacked"] = counts

    def _count(self, what: str, count: int) -> None:
        if count:
            self.reading.facts[what] = self.reading.facts.get(what, 0) + count

    def _tasks(self) -> np.ndarray:
        tasks = np.zeros(len(self._new_names), TASK_DTYPE)
        tasks["kind"] = RecordKind.TASK
        tasks["thread"], tasks["comm"] = list(self._new_names), list(self._new_names.values())
        self._new_names = {}
        return tasks


def _queue_where_requests_begin(events: np.ndarray) -> None:
    """Of requests that got a bio in front of them, take what was queued first to where the request begins now."""
    front = events[events["action"] == Action.FRONT_MERGED]
    if not len(front):
        return
    places = np.concatenate([front["sector"], front["sector"] + front["bytes"] // np.uint32(SECTOR_BYTES)])
    rows = np.flatnonzero(np.isin(events["sector"], places))
    names = ("action", "device", "sector", "op", "bytes")
    queued: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    issued: Counter[tuple[int, int, int]] = Counter()
    waits_again = set()
    for row, what, device, sector, op, size in zip(
        rows.tolist(), *(events[it][rows].tolist() for it in names), strict=True
    ):
        here = (device, sector, op)
        if what == Action.QUEUED:
            queued[here].append(row)
        elif what in (Action.MERGED, Action.FRONT_MERGED):
            merged = queued[here][-1:]
            del queued[here][-1:]
        elif what == Action.REQUEUED and issued[here]:
            waits_again.add(here)
        elif what == Action.ISSUED and here in waits_again:
            waits_again.remove(here)
        elif what == Action.COMPLETED and issued[here]:
            issued[here] -= 1
            waits_again -= set() if issued[here] else {here}
        elif what in (Action.ISSUED, Action.COMPLETED):
            issued[here] += what == Action.ISSUED
            del queued[here][:1]
        if what == Action.FRONT_MERGED and (behind := queued[device, sector + size // SECTOR_BYTES, op]):
            first = behind.pop(0)
            events[row] = events[first]
            events["sector"][row] = sector
            events["action"][[first, *merged]] = Action.OTHER
            queued[here].append(row)


@numba.njit(cache=True)
def _pair(action: np.ndarray, new_group: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows (queued, issued, completed, requeued) of each request, -1 = none; who still waits; odd completions."""
    count = len(action)
    pairs = np.empty((count, 4), np.int64)
    keep = np.zeros(count, np.bool_)
    queued = np.empty(count + 1, np.int64)
    issued = np.empty((count + 1, 5), np.int64)
    made = unmatched = 0
    first_queued = last_queued = first_issued = last_issued = 0
    for row in range(count + 1):
        if row == count or new_group[row]:
            for at in range(first_queued, last_queued):
                keep[queued[at]] = True
            for at in range(first_issued, last_issued):
                for column in (_QUEUE, _ISSUE, _FIRST_ISSUE, _REQUEUE):
                    if issued[at, column] != NONE:
                        keep[issued[at, column]] = True
            first_queued = last_queued = first_issued = last_issued = 0
            if row == count:
                break
        what = action[row]
        if what == Action.QUEUED:
            queued[last_queued] = row
            last_queued += 1
        elif what in (Action.MERGED, Action.FRONT_MERGED):
            last_queued = max(last_queued - 1, first_queued)
        elif what == Action.ISSUED:
            if first_issued < last_issued and issued[last_issued - 1, _STATE] == _WAITS_AGAIN:
                issued[last_issued - 1, _ISSUE], issued[last_issued - 1, _STATE] = row, _ISSUED_AGAIN
                continue
            issued[last_issued, _QUEUE] = issued[last_issued, _REQUEUE] = NONE
            issued[last_issued, _ISSUE] = issued[last_issued, _FIRST_ISSUE] = row
            issued[last_issued, _STATE] = _ISSUED
            if first_queued < last_queued:
                issued[last_issued, _QUEUE] = queued[first_queued]
                first_queued += 1
            last_issued += 1
        elif what == Action.REQUEUED:
            if first_issued < last_issued:
                issued[last_issued - 1, _REQUEUE], issued[last_issued - 1, _STATE] = row, _WAITS_AGAIN
                issued[last_issued - 1, _ISSUE] = issued[last_issued - 1, _FIRST_ISSUE]
        elif what == Action.COMPLETED:
            if first_issued < last_issued:
                pairs[made, 0], pairs[made, 1] = issued[first_issued, _QUEUE], issued[first_issued, _ISSUE]
                pairs[made, 3] = issued[first_issued, _STATE]
                first_issued += 1
            elif first_queued < last_queued:
                pairs[made, 0], pairs[made, 1], pairs[made, 3] = queued[first_queued], NONE, _ISSUED
                first_queued += 1
            else:
                unmatched += 1
                continue
            pairs[made, 2] = row
            made += 1
    return pairs[:made], keep, unmatched


def _requests(events: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    queued, issued, completed, requeued = pairs.T
    has_queue, is_request = queued != NONE, issued != NONE
    start = events[np.where(is_request, issued, queued)]
    submitted = events[np.where(has_queue, queued, issued)]
    end = events[completed]
    block = np.zeros(len(pairs), BLOCK_DTYPE)
    block["kind"] = RecordKind.BLOCK
    block["form"] = np.where(is_request, BlockForm.REQUEST, BlockForm.BIO)
    for name in ("op", "device", "sector", "bytes"):
        block[name] = start[name]
    block["flags"] = (
        start["flags"]
        | np.where(requeued == _ISSUED_AGAIN, BlockFlag.REQUEUED, 0).astype(np.uint32)
        | np.where(end["bytes"] < start["bytes"], BlockFlag.PARTIAL, 0).astype(np.uint32)
        | np.where(has_queue, 0, BlockFlag.UNATTRIBUTED).astype(np.uint32)
    )
    block["status"] = end["status"]
    block["start_ns"], block["duration_ns"] = start["time_ns"], np.maximum(end["time_ns"] - start["time_ns"], 0)
    block["thread"] = submitted["thread"]
    wait_ns = np.maximum(start["time_ns"] - submitted["time_ns"], 0).astype(np.uint64)
    block["queued_ns"] = np.where(has_queue & is_request, wait_ns, NOT_MEASURED_U64)
    return block
