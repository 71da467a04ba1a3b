# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into a part of it: a window of time, some threads, processes, files or devices.

What stays was measured and stays so. Every file begins as it was when the part first uses it: with the size, the name
and the data in the page cache that the operations left out had given it. That a call waited for another one (WAKE) is
left out where that is.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from characterize.device_name import device_name
from characterize.errors import FlextraceError
from characterize.layout import NOT_MEASURED_U64, FileFlag, RecordKind
from characterize.loss import RECORDING_KEYS
from characterize.stream import Arrays
from characterize.trace import Header, Trace
from replayer.flexible.block_layer import operations_of_blocks
from replayer.flexible.draft import Draft, RowsOfFiles
from replayer.flexible.file_state import NAMING, follow_renames, makers, states_after
from replayer.flexible.planned import RANGES, derived, unchanged
from replayer.flexible.process_num import in_flight
from replayer.flexible.readable import make_readable
from replayer.flexible.wakes import standing
from replayer.merge import LAYER_KINDS, begin_ns
from replayer.parts.cached_ranges import all_synced, cached_ranges
from replayer.parts.remaining_holes import remaining_holes

NANOSECONDS = 10**9
FOREVER_NS = 2**63 - 1
OPERATIONS = LAYER_KINDS["vfs"]


@dataclass(frozen=True)
class Selection:
    """What is to stay; None: whatever it is.

    Attributes
    ----------
    begin_s, end_s : float
        Operations that start in ``[begin_s, end_s)``, seconds after the recording began.
    threads, processes : collection of int
    names : collection of str
        Patterns of the threads' names.
    files : collection of str
        Patterns of paths, as the shell has them.
    devices : collection of str
        As MAJOR:MINOR: of a file that of its file system, of a block request the disk.
    """

    begin_s: float | None = None
    end_s: float | None = None
    threads: Collection[int] | None = None
    processes: Collection[int] | None = None
    names: Collection[str] | None = None
    files: Collection[str] | None = None
    devices: Collection[str] | None = None

    def as_options(self) -> dict[str, str]:
        """For the lineage: what was chosen."""
        return {name: str(value) for name, value in vars(self).items() if value is not None}


def cut(trace: Trace, selection: Selection) -> Trace:
    """The part of a trace that is selected.

    Returns
    -------
    Trace
        With the parent's header flags, and of a window its times. Where everything stays, its records, bit by bit.

    Raises
    ------
    FlextraceError
        A synthetic trace is to be cut by time, or nothing would stay.
    """
    kinds = _kinds(trace)
    base = _base_ns(trace, selection, kinds)
    masks = {kind: _chosen(trace, kind, selection, base) for kind in (*OPERATIONS, RecordKind.BLOCK)}
    if not any(masks[kind].any() for kind in kinds):
        there_is = _what_there_is(trace, kinds, base)
        raise FlextraceError(f"nothing of {trace.path or 'the trace'} is selected: {there_is}")
    options = selection.as_options()
    if all(mask.all() for mask in masks.values()):
        return derived(unchanged(trace), [trace], "cut", options)
    arrays, owners = _blocks(trace, masks[RecordKind.BLOCK])
    draft, ranges = _part(trace, masks) if kinds == OPERATIONS else _of_blocks(trace, arrays)
    _keep_of_blocks(trace, draft, arrays)
    arrays |= {
        RecordKind.IO: draft.io,
        RecordKind.FILEOP: draft.fileops,
        RecordKind.FILE: draft.files,
        RecordKind.TASK: draft.tasks,
        **ranges,
        RecordKind.WAKE: draft.wakes,
    }
    gaps = trace.arrays[RecordKind.GAP]
    end = np.full(len(gaps), _limit_ns(base, selection.end_s, FOREVER_NS))
    behind = gaps["start_ns"] + gaps["duration_ns"] >= _limit_ns(base, selection.begin_s, 0)
    arrays[RecordKind.GAP] = gaps[behind & (gaps["start_ns"] < end)]
    part = Trace(_header(trace, selection, base, arrays), arrays, draft.paths, block_of_data=owners)
    if "processNum" in trace.declared:
        # What was declared was so of the whole.
        requests = draft if kinds == OPERATIONS else Draft.of(operations_of_blocks(part))
        part.header.metadata["declared"] = {"processNum": in_flight(requests)}
    return derived(part, [trace], "cut", options)


# ---- what is selected ----


def _kinds(trace: Trace) -> tuple[RecordKind, ...]:
    """What a part is made of: operations of the application's layer, or, without any, block requests."""
    if any(len(trace.arrays[kind]) for kind in OPERATIONS):
        return OPERATIONS
    if len(trace.arrays[RecordKind.BLOCK]):
        return LAYER_KINDS["block"]
    raise FlextraceError(f"cannot cut {trace.path or 'the trace'}: it has neither operations nor block requests")


def _base_ns(trace: Trace, selection: Selection, kinds: tuple[RecordKind, ...]) -> int:
    if trace.untimed and (selection.begin_s is not None or selection.end_s is not None):
        raise FlextraceError(
            f"cannot cut {trace.path or 'the trace'} by time: it is synthetic and has only an order; cut a recording "
            "of its replay"
        )
    return begin_ns(trace, kinds)


def _limit_ns(base: int, moment_s: float | None, default: int) -> int:
    return default if moment_s is None else base + round(moment_s * NANOSECONDS)


def _chosen(trace: Trace, kind: RecordKind, selection: Selection, base: int) -> np.ndarray:
    """Which records of a kind stay by their own fields, bool."""
    records = trace.arrays[kind]
    start = records["start_ns"].astype(np.int64)
    mask = start >= _limit_ns(base, selection.begin_s, 0)
    mask &= start < _limit_ns(base, selection.end_s, FOREVER_NS)
    if selection.threads is not None:
        mask &= np.isin(records["thread"], list(selection.threads))
    if selection.processes is not None:
        mask &= np.isin(records["process"], list(selection.processes))
    if selection.names is not None:
        mask &= np.isin(records["thread"], _threads_like(trace, selection.names))
    if kind is RecordKind.BLOCK:
        if selection.devices is not None:
            named = [one for one in np.unique(records["device"]).tolist() if _named(trace, one, selection.devices)]
            mask &= np.isin(records["device"], named)
        if selection.files is not None:
            mask &= _moved_data_of(trace, _files_like(trace, selection.files))
        return mask
    for wanted, files in ((selection.files, _files_like), (selection.devices, _files_on)):
        if wanted is not None:
            mask &= np.isin(records["file"], files(trace, wanted))
    return mask


def _is_like(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _threads_like(trace: Trace, patterns: Collection[str]) -> list[int]:
    tasks = trace.arrays[RecordKind.TASK]
    named = zip(tasks["thread"].tolist(), tasks["comm"].tolist(), strict=True)
    return [thread for thread, name in named if _is_like(name.decode(errors="surrogateescape"), patterns)]


def _files_like(trace: Trace, patterns: Collection[str]) -> list[int]:
    return [file for file, path in trace.paths.items() if _is_like(path, patterns)]


def _files_on(trace: Trace, devices: Collection[str]) -> list[int]:
    files = trace.arrays[RecordKind.FILE]
    return [int(record["file"]) for record in files if _named(trace, int(record["device"]), devices)]


def _named(trace: Trace, device: int, names: Collection[str]) -> bool:
    return device_name(device) in names or trace.device_name(device) in names


def _moved_data_of(trace: Trace, files: list[int]) -> np.ndarray:
    """Which block requests moved data of one of some files."""
    mine = np.isin(trace.arrays[RecordKind.BLOCK_DATA]["file"], files) & (trace.block_of_data >= 0)
    return np.isin(np.arange(len(trace.arrays[RecordKind.BLOCK])), trace.block_of_data[mine])


def _what_there_is(trace: Trace, kinds: tuple[RecordKind, ...], base: int) -> str:
    records = [trace.arrays[kind] for kind in kinds if len(trace.arrays[kind])]
    last = max(int(of["start_ns"].max()) for of in records)
    threads = np.unique(np.concatenate([of["thread"] for of in records]))
    what = "operations" if kinds == OPERATIONS else "block requests"
    there = trace.arrays[RecordKind.FILE if kinds == OPERATIONS else RecordKind.BLOCK]["device"]
    devices = sorted({trace.device_name(device) for device in np.unique(there).tolist()})
    return (
        f"its {what} start up to {(last - base) / NANOSECONDS:.6g} s, it has {len(threads)} threads and the "
        f"devices {', '.join(devices) or 'none'}; 'flextrace info' lists threads and files"
    )


def _blocks(trace: Trace, mask: np.ndarray) -> tuple[dict[RecordKind, Any], np.ndarray]:
    """Block requests of the part with their pieces; and the row of the request that each piece is of."""
    blocks, pieces = trace.arrays[RecordKind.BLOCK], trace.arrays[RecordKind.BLOCK_DATA]
    place = np.cumsum(mask) - 1
    owner = trace.block_of_data
    kept = (owner >= 0) & mask[owner] if len(blocks) else np.zeros(len(pieces), bool)
    return {RecordKind.BLOCK: blocks[mask], RecordKind.BLOCK_DATA: pieces[kept]}, place[owner[kept]]


def _of_blocks(trace: Trace, part: Arrays) -> tuple[Draft, Arrays]:
    """What else there is of a trace of block requests: the files that they moved data of, and who caused them."""
    files, tasks = (trace.arrays[kind] for kind in (RecordKind.FILE, RecordKind.TASK))
    files = files[np.isin(files["file"], part[RecordKind.BLOCK_DATA]["file"])]
    tasks = tasks[np.isin(tasks["thread"], part[RecordKind.BLOCK]["thread"])]
    known = set(files["file"].tolist())
    paths = {file: path for file, path in trace.paths.items() if file in known}
    io, fileops, wakes = (trace.arrays[kind] for kind in (*OPERATIONS, RecordKind.WAKE))
    ranges = {kind: trace.arrays[kind][np.isin(trace.arrays[kind]["file"], files["file"])] for kind in RANGES}
    draft = Draft(io, fileops, files, tasks, wakes[:0], paths, trace.untimed)
    return draft, ranges


def _keep_of_blocks(trace: Trace, part: Draft, blocks: Arrays) -> None:
    """Let the part know files and threads, too, of which it has but block requests, such as what is written back.

    Their records are the parent's: a replay lays out only what is used.
    """
    requests, pieces = blocks[RecordKind.BLOCK], blocks[RecordKind.BLOCK_DATA]
    threads = np.concatenate([requests["thread"], pieces["thread"]])
    files, tasks = trace.arrays[RecordKind.FILE], trace.arrays[RecordKind.TASK]
    files = files[np.isin(files["file"], pieces["file"]) & ~np.isin(files["file"], part.files["file"])]
    tasks = tasks[np.isin(tasks["thread"], threads) & ~np.isin(tasks["thread"], part.tasks["thread"])]
    part.files, part.tasks = np.concatenate([part.files, files]), np.concatenate([part.tasks, tasks])
    part.paths |= {file: trace.paths[file] for file in files["file"].tolist() if file in trace.paths}


# ---- files as the part finds them ----


def _part(trace: Trace, masks: Arrays) -> tuple[Draft, Arrays]:
    """The part's records, with its files as they were at its first operation on each; and records of their ranges."""
    part, rest = _draft(trace, masks), _draft(trace, {kind: ~masks[kind] for kind in OPERATIONS})
    named = part.fileops["argument"][np.isin(part.fileops["op"], NAMING)]
    used = np.unique(np.concatenate([part.io["file"], part.fileops["file"], named]))
    part.files = part.files[np.isin(part.files["file"], used)]
    threads = np.unique(np.concatenate([part.io["thread"], part.fileops["thread"]]))
    part.tasks = part.tasks[np.isin(part.tasks["thread"], threads)]

    first, last = _first_and_last_use(part)
    earlier = rest.copy()
    earlier.io, earlier.fileops = (
        records[_start(records) < _of_files(first, records, FOREVER_NS)] for records in (rest.io, rest.fileops)
    )
    others = set(np.concatenate([rest.io["file"], rest.fileops["file"]]).tolist())
    resident = _begin(part, earlier, others, trace.arrays[RecordKind.RESIDENT])
    known = set(used.tolist())
    paths = follow_renames(earlier, dict(zip(first.index.tolist(), first.tolist(), strict=True)))
    part.paths = {file: path for file, path in paths.items() if file in known}
    # What others did to a file meanwhile is gone: what is read must be there nevertheless.
    between = [
        records["file"][
            (_start(records) >= _of_files(first, records, FOREVER_NS)) & (_start(records) < _of_files(last, records, 0))
        ]
        for records in (rest.io, rest.fileops)
    ]
    make_readable(part, np.unique(np.concatenate(between)).astype(np.int64))
    _forget_shares(part, rest)
    holes = _holes(part, rest, last, trace.arrays[RecordKind.HOLE])
    return part, {RecordKind.RESIDENT: resident, RecordKind.HOLE: holes}


def _forget_shares(part: Draft, rest: Draft) -> None:
    """Where the operation before is not in the part, the time since the one that is has another share computed."""
    records = (part.io, part.fileops, rest.io, rest.fileops)
    thread, start = (np.concatenate([of[name] for of in records]) for name in ("thread", "start_ns"))
    order = np.lexsort((start, thread))
    kept = np.arange(len(order)) < len(part.io) + len(part.fileops)
    after_another = np.zeros(len(order), bool)
    same_thread = thread[order[1:]] == thread[order[:-1]]
    after_another[order[1:]] = same_thread & ~kept[order[:-1]]
    part.io["processor_share"][after_another[: len(part.io)]] = 0
    part.fileops["processor_share"][after_another[len(part.io) :][: len(part.fileops)]] = 0


def _draft(trace: Trace, masks: dict[RecordKind, np.ndarray]) -> Draft:
    """Some records, as they are, with all files."""
    io, fileops = (trace.arrays[kind][masks[kind]] for kind in OPERATIONS)
    files, tasks = (trace.arrays[kind].copy() for kind in (RecordKind.FILE, RecordKind.TASK))
    wakes = standing(trace.arrays[RecordKind.WAKE], io, fileops)
    draft = Draft(io, fileops, files, tasks, wakes, dict(trace.paths), trace.untimed)
    draft.sort()
    return draft


def _start(records: np.ndarray) -> np.ndarray:
    return records["start_ns"].astype(np.int64)


def _of_files(moment: pd.Series, records: np.ndarray, default: int) -> np.ndarray:
    """Of every record that moment of its file; `default` where the part does not use it."""
    return moment.reindex(records["file"], fill_value=default).to_numpy()


def _first_and_last_use(part: Draft) -> tuple[pd.Series, pd.Series]:
    """Start of the first and of the last operation on every file, by its id."""
    file = np.concatenate([part.io["file"], part.fileops["file"]]).astype(np.int64)
    by_file = pd.Series(np.concatenate([_start(part.io), _start(part.fileops)])).groupby(file)
    return by_file.min(), by_file.max()


def _begin(part: Draft, earlier: Draft, others: set[int], resident: np.ndarray) -> np.ndarray:
    """Give files the state that earlier operations left them; returns what of them is cached.

    `others` are those that were used by operations that are not in the part.
    """
    states = states_after(earlier)
    size_bytes, named = states["size_bytes"].to_dict(), states["named"].to_dict()
    uses = [(records, RowsOfFiles(records)) for records in (earlier.io, earlier.fileops, resident)]
    all_synced_ns = all_synced(earlier.fileops)
    made = set(part.fileops["file"][makers(part)].tolist())
    touched = set(np.unique(np.concatenate([earlier.io["file"], earlier.fileops["file"]])).tolist())
    untouched = [file for file in part.files["file"].tolist() if file not in touched]
    ranges = [resident[np.isin(resident["file"], untouched)]]
    for record in part.files:
        file = int(record["file"])
        if file not in made and file in others:
            # Whoever made it is not in the part.
            record["flags"] &= ~np.uint32(FileFlag.CREATED)
        if file not in touched or record["flags"] & FileFlag.NEW_NAME:
            continue
        if not named[file] and file in made:
            record["flags"] |= np.uint32(FileFlag.CREATED)
            record["size_bytes"] = record["resident_bytes"] = 0
            continue
        record["flags"] &= ~np.uint32(FileFlag.CREATED)
        record["size_bytes"] = size_bytes[file]
        if record["resident_bytes"] != NOT_MEASURED_U64:
            io, fileops, cached = (records[rows.of(file)] for records, rows in uses)
            ranges.append(cached_ranges(record, io, fileops, cached, all_synced_ns))
    return np.concatenate(ranges)


def _holes(part: Draft, rest: Draft, last: pd.Series, holes: np.ndarray) -> np.ndarray:
    """HOLE records of what nobody else fills before the part uses a file for the last time."""
    until = (records[_start(records) < _of_files(last, records, 0)] for records in (rest.io, rest.fileops))
    uses = [(records, RowsOfFiles(records)) for records in (holes, *until)]
    left = [holes[:0]]
    for record in part.files[np.isin(part.files["file"], holes["file"])]:
        its_holes, io, fileops = (records[rows.of(int(record["file"]))] for records, rows in uses)
        left.append(remaining_holes(its_holes, int(record["size_bytes"]), io, fileops))
    return np.concatenate(left)


def _header(trace: Trace, selection: Selection, base: int, arrays: dict[RecordKind, Any]) -> Header:
    header = trace.header
    begin = max(_limit_ns(base, selection.begin_s, 0), header.start_monotonic_ns)
    end = min(_limit_ns(base, selection.end_s, FOREVER_NS), header.end_monotonic_ns)
    if not header.start_monotonic_ns:
        begin = end = 0

    def moved(realtime_ns: int, by_ns: int) -> int:
        # A trace of another tool may have no time of day.
        return realtime_ns + by_ns if realtime_ns and begin else 0

    return Header(
        flags=header.flags,
        start_monotonic_ns=begin,
        end_monotonic_ns=end,
        start_realtime_ns=moved(header.start_realtime_ns, begin - header.start_monotonic_ns),
        end_realtime_ns=moved(header.end_realtime_ns, end - header.end_monotonic_ns),
        count={kind: len(array) for kind, array in arrays.items()},
        lost=dict(header.lost),
        metadata={key: value for key, value in header.metadata.items() if key not in RECORDING_KEYS},
    )
