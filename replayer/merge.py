# SPDX-License-Identifier: Apache-2.0
"""Turns several traces into one in which they run at the same time, on disjoint files and threads.

With copies of one trace that is scaling out: N independent instances of an application (TBBT's spatial scaling;
research/replay.md D3, rule v). uniqueBytes and processNum add up, the other three are means.

Traces of block requests alone are merged as well, on disjoint devices (`replayer.parts.merged_blocks`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from characterize.distinct_names import numbered
from characterize.errors import FlextraceError
from characterize.layout import TRACE_FIRST_NAME_ID, HeaderFlag, RecordKind
from characterize.requests import Layer, times_measured
from characterize.trace import Header, Trace
from characterize.trace_files.joint_metadata import joint_metadata
from replayer.flexible.block_layer import operations_of_blocks
from replayer.flexible.draft import Draft
from replayer.flexible.file_state import NAMING, relabel_names
from replayer.flexible.planned import RANGES, check_record_count, derived, layer_of, unchanged
from replayer.flexible.process_num import in_flight
from replayer.parts.merged_blocks import merged_blocks
from replayer.parts.operation_ids import put_behind

COPIES_MAX = 1024

Align = Literal["starts", "clocks"]
LAYER_KINDS: dict[Layer, tuple[RecordKind, ...]] = {
    "vfs": (RecordKind.IO, RecordKind.FILEOP),
    "block": (RecordKind.BLOCK,),
}
"""What a trace of a layer is made of."""


def merge(traces: Sequence[Trace], align: Align = "starts") -> Trace:
    """One trace of all operations of several traces, which have no file, device or thread in common in it.

    Parameters
    ----------
    traces : sequence of Trace
    align : {"starts", "clocks"}
        All begin together, when the first one did; or as their clocks of the day say that they did.

    Returns
    -------
    Trace
        PLANNED; of synthetic traces UNTIMED. Of one trace its records, bit by bit. A path that another trace had before
        gets a number behind it: the files are not the same ones. Calls wait for those of their own trace, as they did.

    Raises
    ------
    FlextraceError
        Nothing to merge, a trace without requests, block requests and those of programs, synthetic and timed traces
        together, or a clock is not known.
    """
    if not traces:
        raise FlextraceError("nothing to merge: give at least one trace", 2)
    layer = _common_layer(traces)
    if len(traces) == 1:
        return derived(unchanged(traces[0]), traces, "merge", {"traces": "1"})
    check_record_count(_record_count(traces, layer), "these traces together")
    merged = _merge(traces, _shifts(traces, align, LAYER_KINDS[layer]), layer)
    return derived(merged, traces, "merge", {"traces": str(len(traces)), "align": align})


def clone(trace: Trace, copies: int) -> Trace:
    """`copies` independent instances of a trace at the same time, each on files, devices and threads of its own.

    Raises
    ------
    FlextraceError
        A number of copies that makes no sense, or a trace without requests.
    """
    layer = layer_of(trace, "clone")
    if not 1 <= copies <= COPIES_MAX:
        raise FlextraceError(f"{copies} copies cannot be made: give a number from 1 to {COPIES_MAX}", 2)
    check_record_count(copies * _record_count([trace], layer), f"{copies} copies of this trace")
    copied = unchanged(trace) if copies == 1 else _merge([trace] * copies, [0] * copies, layer)
    return derived(copied, [trace], "clone", {"copies": str(copies)})


def _record_count(traces: Sequence[Trace], layer: Layer) -> int:
    return sum(len(trace.arrays[kind]) for trace in traces for kind in LAYER_KINDS[layer])


def _common_layer(traces: Sequence[Trace]) -> Layer:
    """What is merged of all traces."""
    of = {layer_of(trace, "merge"): trace.path or "a trace" for trace in traces}
    if len(of) > 1:
        raise FlextraceError(
            f"cannot merge {of['block']} with {of['vfs']}: of the first there are only block requests, which a replay "
            "makes on a device, of the other requests of programs, which it makes in files: merge traces of one kind"
        )
    return next(iter(of))


def _shifts(traces: Sequence[Trace], align: Align, kinds: Sequence[RecordKind]) -> list[int]:
    """What to add to the times of every trace, ns."""
    if any(trace.untimed for trace in traces):
        if all(trace.untimed for trace in traces):
            return [0] * len(traces)
        name = next(trace.path or "a trace" for trace in traces if trace.untimed)
        raise FlextraceError(
            f"cannot merge {name} with traces that have times: it is synthetic and has only an order; record its "
            "replay, and merge the recording"
        )
    if align == "starts":
        begins = [begin_ns(trace, kinds) for trace in traces]
        return [begins[0] - begin for begin in begins]
    for trace in traces:
        if not trace.header.start_realtime_ns:
            raise FlextraceError(f"cannot merge {trace.path or 'a trace'} by the clock: it has none; align the starts")
    ahead = [trace.header.start_realtime_ns - trace.header.start_monotonic_ns for trace in traces]
    # By the first one's clock; where the machine has booted since the earliest trace, that began before it did. A start
    # of 0 would be an unknown one.
    earliest = min(begin_ns(trace, kinds) + mine - ahead[0] for trace, mine in zip(traces, ahead, strict=True))
    return [mine - ahead[0] - min(earliest - 1, 0) for mine in ahead]


def begin_ns(trace: Trace, kinds: Sequence[RecordKind]) -> int:
    """When the recording began; where that is not known, the first start of a record of these kinds."""
    starts = [int(trace.arrays[kind]["start_ns"].min()) for kind in kinds if len(trace.arrays[kind])]
    return trace.header.start_monotonic_ns or min(starts)


def _merge(traces: Sequence[Trace], shifts: list[int], layer: Layer) -> Trace:
    if layer == "block":
        merged = merged_blocks(traces, shifts)
        header = _header(traces, shifts, in_flight(Draft.of(operations_of_blocks(merged))))
        header.metadata |= merged.header.metadata
        return Trace(header, merged.arrays, warnings=merged.warnings)
    taken = _TakenIds()
    drafts, gaps = [], []
    ranges: dict[RecordKind, list[np.ndarray]] = {kind: [] for kind in RANGES}
    for trace, shift in zip(traces, shifts, strict=True):
        draft, of_files = Draft.of(trace), {kind: trace.arrays[kind].copy() for kind in RANGES}
        gap = trace.arrays[RecordKind.GAP].copy()
        taken.make_disjoint(draft, of_files.values())
        for records, name in (
            *((records, "start_ns") for records in (draft.io, draft.fileops, draft.wakes, gap)),
            (draft.wakes, "woken_ns"),
            *((records, "time_ns") for records in (draft.files, draft.tasks, *of_files.values())),
        ):
            records[name] = np.maximum(records[name].astype(np.int64) + shift, 0)
        drafts.append(draft)
        for kind, records in of_files.items():
            ranges[kind].append(records)
        gaps.append(gap)
    joined = Draft.joined(drafts)
    arrays = {
        RecordKind.IO: joined.io,
        RecordKind.FILEOP: joined.fileops,
        RecordKind.FILE: joined.files,
        RecordKind.TASK: joined.tasks,
        RecordKind.WAKE: joined.wakes,
        RecordKind.GAP: np.concatenate(gaps),
        **{kind: np.concatenate(parts) for kind, parts in ranges.items()},
    }
    return Trace(
        _header(traces, shifts, in_flight(joined)),
        arrays,
        joined.paths,
        warnings=[line for trace in dict.fromkeys(traces) for line in trace.warnings],
    )


def _header(traces: Sequence[Trace], shifts: list[int], scheduled: int) -> Header:
    """`scheduled`: number in flight by the times of the merged trace."""
    untimed = traces[0].untimed
    flags = HeaderFlag(0) if untimed else HeaderFlag.PLANNED
    lost: dict[RecordKind, int] = {}
    for trace in traces:
        flags |= trace.header.flags & HeaderFlag(HeaderFlag.LOST | HeaderFlag.UNTIMED)
        flags |= HeaderFlag.INCOMPLETE if trace.header.lacks_uncounted else HeaderFlag(0)
        for kind, count in trace.header.lost.items():
            lost[kind] = lost.get(kind, 0) + count
    first = traces[0].header
    metadata = joint_metadata(traces)
    if any(_process_num_is_unknown(trace) for trace in traces):
        metadata["durations"] = "unknown"
        metadata["declared"] = {}
    else:
        declared = [trace.declared.get("processNum", math.nan) for trace in traces]
        number = sum(declared) if untimed else scheduled
        metadata["declared"] = {} if math.isnan(number) else {"processNum": int(number)}
    headers = [trace.header for trace in traces]
    begins = [
        mine.start_monotonic_ns + shift for mine, shift in zip(headers, shifts, strict=True) if mine.start_monotonic_ns
    ]
    start = min(begins, default=0)
    end = max(mine.end_monotonic_ns + shift for mine, shift in zip(headers, shifts, strict=True))
    ahead_at_start = first.start_realtime_ns - first.start_monotonic_ns - shifts[0]
    ahead_at_end = first.end_realtime_ns - first.end_monotonic_ns - shifts[0]
    return Header(
        flags=flags,
        start_monotonic_ns=start,
        start_realtime_ns=start + ahead_at_start if first.start_realtime_ns else 0,
        end_monotonic_ns=end,
        end_realtime_ns=end + ahead_at_end if first.end_realtime_ns else 0,
        lost=lost,
        metadata=metadata,
    )


def _process_num_is_unknown(trace: Trace) -> bool:
    return not times_measured(trace) and "processNum" not in trace.declared


class _TakenIds:
    """Ids and paths that are taken; gives later traces others."""

    def __init__(self) -> None:
        self.files = self.names = self.operations = 0
        self.tasks: set[int] = set()
        self.paths: set[str] = set()
        self.traces = 0

    def make_disjoint(self, draft: Draft, ranges: Iterable[np.ndarray]) -> None:
        """Give files, names, threads, processes and operations ids that no draft before has, and paths likewise."""
        self.traces += 1
        self._relabel_files(draft, ranges)
        self._relabel_tasks(draft)
        columns = [draft.io["id"], draft.fileops["id"], draft.wakes["id"], draft.wakes["cause"]]
        self.operations = put_behind(columns, self.operations)

    def _relabel_files(self, draft: Draft, ranges: Iterable[np.ndarray]) -> None:
        naming = np.isin(draft.fileops["op"], NAMING)
        ids = [draft.io["file"], draft.fileops["file"], draft.files["file"], draft.fileops["argument"][naming]]
        known = np.unique(np.concatenate(ids)).astype(np.int64)
        plain, named = known[(known > 0) & (known < TRACE_FIRST_NAME_ID)], known[known >= TRACE_FIRST_NAME_ID]

        def moved(file: np.ndarray) -> np.ndarray:
            file = file.astype(np.int64)
            return np.where(file == 0, 0, file + np.where(file < TRACE_FIRST_NAME_ID, self.files, self.names))

        relabel_names(draft.fileops, moved)
        for records in (draft.io, draft.fileops, draft.files, *ranges):
            records["file"] = moved(records["file"])
        paths = {int(moved(np.array(file))): path for file, path in draft.paths.items()}
        names = numbered(set(paths.values()), self.paths, self.traces)
        draft.paths = {file: names[path] for file, path in paths.items()}
        self.paths.update(draft.paths.values())
        self.files += int(plain.max(initial=0))
        self.names += int(named.max(initial=TRACE_FIRST_NAME_ID - 1)) - TRACE_FIRST_NAME_ID + 1

    def _relabel_tasks(self, draft: Draft) -> None:
        columns = [
            records[name]
            for records in (draft.io, draft.fileops, draft.tasks, draft.wakes)
            for name in ("thread", "process")
        ]
        columns.append(draft.wakes["waker"])
        own = np.unique(np.concatenate(columns)).tolist()
        if not self.tasks.isdisjoint(own):
            top = max(*self.tasks, *own)
            table = {name: top + number for number, name in enumerate(own, start=1)}
            for column in columns:
                column[:] = [table[name] for name in column.tolist()]
            parents = draft.tasks["parent_process"]
            parents[:] = [table.get(name, 0) for name in parents.tolist()]
            own = list(table.values())
        self.tasks.update(own)
