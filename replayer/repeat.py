# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into itself several times, one pass after the other.

Every pass finds its files as the first one did. A file that only is read and overwritten is the same one in all passes.
One that grew or shrank gets its size back between two passes. One that is made, removed, renamed or linked (a temporary
file, a journal) is another file in every pass, as it would be if the program ran again; what of it was in the page
cache when the trace began is so of each. Block requests find their devices as they were, whatever was written there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from characterize.distinct_names import numbered
from characterize.errors import FlextraceError
from characterize.layout import FILEOP_DTYPE, TRACE_FIRST_NAME_ID, Fileop, FileType, IoFlag, RecordKind, Source
from characterize.trace import Trace
from replayer.flexible.block_layer import requests_to_run
from replayer.flexible.draft import Draft, RowsOfFiles
from replayer.flexible.file_state import NAMING, relabel_names, states_after
from replayer.flexible.planned import (
    RANGES,
    TIME_MAX_NS,
    check_record_count,
    derived,
    layer_of,
    layer_workload,
    planned,
    planned_blocks,
    unchanged,
)
from replayer.parts.operation_ids import put_behind

TIMES_MAX = 100_000
NAME_OPERATIONS = (*NAMING, Fileop.UNLINK, Fileop.MKDIR, Fileop.RMDIR)


def repeat(trace: Trace, times: int) -> Trace:
    """A trace, `times` times.

    Returns
    -------
    Trace
        PLANNED; of a synthetic trace UNTIMED. Threads and processes are the same in all passes, and so are processNum,
        readFrac and sizeMean. Once, its records are those of the parent, bit by bit.

    Raises
    ------
    FlextraceError
        A number that makes no sense, or a trace without requests.
    """
    layer = layer_of(trace, "repeat")
    if not 1 <= times <= TIMES_MAX:
        raise FlextraceError(f"a trace cannot be repeated {times} times: give a number from 1 to {TIMES_MAX}", 2)
    if times == 1:
        return derived(unchanged(trace), [trace], "repeat", {"times": "1"})
    repeated = _repeated_blocks(trace, times) if layer == "block" else _repeated(trace, times)
    return derived(repeated, [trace], "repeat", {"times": str(times)})


def _check_times(end_ns: int, length_ns: int, times: int) -> None:
    if end_ns + (times - 1) * length_ns > TIME_MAX_NS:
        raise FlextraceError(
            f"{times} times this trace would go on for more than 292 years, where its clock ends; reachable are "
            f"{(TIME_MAX_NS - end_ns) // length_ns + 1} times",
            2,
        )


def _repeated(trace: Trace, times: int) -> Trace:
    draft = Draft.of(trace)
    check_record_count((len(draft.io) + len(draft.fileops)) * times, f"{times} times this trace")
    passes = _Passes(draft, {kind: trace.arrays[kind] for kind in RANGES}, times)
    draft.io, draft.fileops, draft.files, draft.wakes = (
        np.concatenate(parts) for parts in (passes.io, passes.fileops, passes.files, passes.wakes)
    )
    ranges = {kind: np.concatenate(parts) for kind, parts in passes.ranges.items()}
    draft.paths = passes.paths
    draft.sort()
    return planned(trace, draft, "repeat", layer_workload(trace, "vfs").process_num, ranges)


def _repeated_blocks(trace: Trace, times: int) -> Trace:
    """As `_repeated`, of block requests: a pass begins behind the last end of the one before it."""
    blocks = requests_to_run(trace)
    check_record_count(len(blocks) * times, f"{times} times this trace")
    end_ns = int((blocks["start_ns"] + blocks["duration_ns"]).max())
    length_ns = end_ns - int(blocks["start_ns"].min()) + 1
    _check_times(end_ns, length_ns, times)
    every = np.tile(blocks, times)
    every["start_ns"] += np.repeat(np.arange(times, dtype=np.uint64) * np.uint64(length_ns), len(blocks))
    return planned_blocks(trace, every, "repeat", layer_workload(trace, "block").process_num)


class _Passes:
    """The records of all passes, and of what stands between two."""

    def __init__(self, draft: Draft, ranges: Mapping[RecordKind, np.ndarray], times: int):
        both = np.concatenate([records[["start_ns", "duration_ns", "id"]] for records in (draft.io, draft.fileops)])
        end = int((both["start_ns"] + both["duration_ns"]).max())
        # A restoring operation takes the nanosecond behind the last end, the next pass begins behind it.
        self.length_ns = end + 2 - int(both["start_ns"].min())
        _check_times(end, self.length_ns, times)
        self.io, self.fileops, self.files, self.wakes = [draft.io], [draft.fileops], [draft.files], [draft.wakes]
        self.ranges = {kind: [records] for kind, records in ranges.items()}
        self.paths = dict(draft.paths)
        self._taken = set(draft.paths.values())
        self._operations = int(both["id"].max())
        self._own = _files_of_every_pass(draft)
        self._restored = _restoring(draft, set(self._own), end)
        known = np.concatenate([draft.files["file"], draft.io["file"], draft.fileops["file"]]).astype(np.int64)
        self._file = int(known[known < TRACE_FIRST_NAME_ID].max(initial=0))
        self._name = int(known[known >= TRACE_FIRST_NAME_ID].max(initial=TRACE_FIRST_NAME_ID - 1))
        for number in range(1, times):
            self._add(draft, number)

    def _add(self, draft: Draft, number: int) -> None:
        between, io, fileops, wakes = (it.copy() for it in (self._restored, draft.io, draft.fileops, draft.wakes))
        between["start_ns"] += np.uint64((number - 1) * self.length_ns)
        between["id"] = np.arange(1, len(between) + 1)
        for columns in ([between["id"]], [io["id"], fileops["id"], wakes["id"], wakes["cause"]]):
            self._operations = put_behind(columns, self._operations)
        table = {file: self._new_id(file) for file in self._own}
        relabel_names(fileops, lambda names: _relabelled(names, table))
        described, *ranges = (
            of[np.isin(of["file"], self._own)] for of in (draft.files, *(parts[0] for parts in self.ranges.values()))
        )
        for records in (io, fileops, described, *ranges):
            records["file"] = _relabelled(records["file"], table)
        for records, name in ((io, "start_ns"), (fileops, "start_ns"), (wakes, "start_ns"), (wakes, "woken_ns")):
            records[name] += np.uint64(number * self.length_ns)
        self.wakes.append(wakes)
        self.io.append(io)
        self.fileops += [between, fileops]
        self.files.append(described)
        for parts, records in zip(self.ranges.values(), ranges, strict=True):
            parts.append(records)
        paths = {file: path for file, path in draft.paths.items() if file in table}
        names = numbered(set(paths.values()), self._taken, number + 1)
        self.paths.update({table[file]: names[path] for file, path in paths.items()})
        self._taken.update(names.values())

    def _new_id(self, file: int) -> int:
        if file >= TRACE_FIRST_NAME_ID:
            self._name += 1
            return self._name
        self._file += 1
        return self._file


def _files_of_every_pass(draft: Draft) -> list[int]:
    """Files whose names change, and what is named like them: other ones in every pass."""
    done = draft.fileops[draft.fileops["result"] >= 0]
    named = done[np.isin(done["op"], NAME_OPERATIONS)]
    targets = named["argument"][np.isin(named["op"], NAMING)]
    made = done["file"][(done["op"] == Fileop.OPEN) & ((done["flags"] & IoFlag.CREATED) != 0)]
    own = {int(file) for part in (named["file"], targets, made, draft.created()) for file in part if file}
    replaced = {draft.paths[file] for file in own if draft.paths.get(file)}
    return sorted(own | {file for file, path in draft.paths.items() if path in replaced})


def _restoring(draft: Draft, own: set[int], end_ns: int) -> np.ndarray:
    """File operations at `end_ns` that give the other files their old size, by the thread that used them last."""
    size = states_after(draft)["size_bytes"].to_dict()
    uses = [(records, RowsOfFiles(records)) for records in (draft.io, draft.fileops)]
    result = []
    for record in draft.files:
        file, before = int(record["file"]), int(record["size_bytes"])
        if record["type"] == FileType.BLOCK_DEVICE or file in own or size.get(file, before) == before:
            continue
        users = [records[row] for records, rows in uses for row in rows.of(file)[-1:]]
        last = max(users, key=lambda operation: int(operation["start_ns"]))
        truncate = np.zeros(1, FILEOP_DTYPE)
        truncate["kind"], truncate["op"], truncate["source"] = RecordKind.FILEOP, Fileop.TRUNCATE, Source.SYNTHETIC
        truncate["start_ns"], truncate["duration_ns"] = end_ns, 0 if draft.untimed else 1
        truncate["thread"], truncate["process"] = last["thread"], last["process"]
        truncate["file"], truncate["argument"] = file, before
        result.append(truncate)
    return np.concatenate(result) if result else np.zeros(0, FILEOP_DTYPE)


def _relabelled(files: np.ndarray, table: dict[int, int]) -> np.ndarray:
    return np.array([table.get(file, file) for file in files.tolist()], files.dtype)
