# SPDX-License-Identifier: Apache-2.0
"""Turns a draft, or the records of a parent as they are, into a trace with the parent's header and a new lineage."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from characterize.durations_of import DIFFERENT, known_durations
from characterize.durations_of import KEY as DURATIONS_OF
from characterize.errors import FlextraceError
from characterize.layout import TRACE_RECORD_BYTES, HeaderFlag, RecordKind
from characterize.loss import RECORDING_KEYS
from characterize.requests import Layer, block_records, data_moved, left_out
from characterize.trace import Header, Trace
from characterize.trace_files.provenance import sha256_of, tool_version
from characterize.units import format_bytes
from characterize.workload import Workload, workload_of_records
from replayer.flexible.block_layer import operations_of_blocks
from replayer.flexible.draft import Draft

TIME_MAX_NS = 2**63 - 1
"""Of a header, whatever the times of a damaged trace add up to."""

RECORDS_MAX = 2**31
"""Of operations, or of block requests, that a replay takes."""

RANGES = (RecordKind.RESIDENT, RecordKind.HOLE)
"""Kinds of records on ranges of files, as these were when they were first seen."""


def planned(
    parent: Trace,
    draft: Draft,
    made_by: str,
    process_num: float,
    kept: Mapping[RecordKind, np.ndarray] | None = None,
) -> Trace:
    """A trace that has not run yet: PLANNED, but for synthetic parents, which stay UNTIMED.

    Parameters
    ----------
    parent : Trace
    draft : Draft
    made_by : str
        The verb, for the lineage.
    process_num : float
        What the trace declares; NaN where it is not known.
    kept : dict of RecordKind to ndarray
        Records of the kinds `RANGES`, where files have the places and sizes that they had; GAP records where theirs are
        not the parent's times.
    """
    arrays = {
        RecordKind.IO: draft.io,
        RecordKind.FILEOP: draft.fileops,
        RecordKind.FILE: draft.files,
        RecordKind.TASK: draft.tasks,
        RecordKind.WAKE: draft.wakes,
        RecordKind.GAP: parent.arrays[RecordKind.GAP],
    }
    arrays |= kept or {}
    made = _planned(parent, arrays, draft.paths, made_by, process_num)
    made.header.metadata |= _processors(made.header.metadata.get("processors", {}), draft)
    made.header.metadata.pop(DURATIONS_OF, None)
    made.header.metadata |= _durations(parent, draft)
    if not parent.untimed:
        _end_later(made.header, _last_end_ns(draft.io, draft.fileops) - _last_end_of(parent))
    return made


def planned_blocks(parent: Trace, blocks: np.ndarray, made_by: str, process_num: float) -> Trace:
    """As `planned`, of BLOCK records; who caused them is as it was."""
    arrays = {
        RecordKind.BLOCK: blocks,
        RecordKind.TASK: parent.arrays[RecordKind.TASK],
        RecordKind.GAP: parent.arrays[RecordKind.GAP],
    }
    made = _planned(parent, arrays, {}, made_by, process_num)
    if not parent.untimed:
        _end_later(made.header, _last_end_ns(blocks) - _last_end_ns(parent.arrays[RecordKind.BLOCK]))
    return made


def _planned(
    parent: Trace, arrays: dict[RecordKind, np.ndarray], paths: dict[int, str], made_by: str, process_num: float
) -> Trace:
    metadata = {key: value for key, value in parent.header.metadata.items() if key not in RECORDING_KEYS}
    metadata["made_by"] = made_by
    metadata["declared"] = {} if math.isnan(process_num) else {"processNum": int(process_num)}
    flags = parent.header.flags | (HeaderFlag(0) if parent.untimed else HeaderFlag.PLANNED)
    return Trace(_header(parent, flags, arrays, metadata), arrays, paths, warnings=list(parent.warnings))


def _last_end_of(parent: Trace) -> int:
    io = parent.arrays[RecordKind.IO]
    return _last_end_ns(io[~left_out(parent)], parent.arrays[RecordKind.FILEOP])


def _last_end_ns(*arrays: np.ndarray) -> int:
    ends = [(records["start_ns"] + records["duration_ns"]).max(initial=0) for records in arrays]
    return int(max(ends))


def _end_later(header: Header, later_ns: int) -> None:
    """Let a trace end as long after its last operation as its parent did, on both clocks; unless that is not known."""
    for name in ("end_monotonic_ns", "end_realtime_ns"):
        if end_ns := getattr(header, name):
            setattr(header, name, min(max(end_ns + later_ns, 1), TIME_MAX_NS))


def _durations(parent: Trace, draft: Draft) -> dict[str, Any]:
    """Response times stay the parent's, so what they are of goes along."""
    if parent.untimed:
        return {}
    known = known_durations(parent)
    if known is None:
        return {DURATIONS_OF: DIFFERENT}
    factors = [draft.notes.get(step, {}).get("factor", 1.0) for step in ("sizeMean", "timeScale")]
    return known.scaled(*factors).as_metadata()


def _processors(known: dict[str, float], draft: Draft) -> dict[str, Any]:
    """What recording, and a call, took of each think time has become longer or shorter with it."""
    factor = draft.notes.get("timeScale", {}).get("factor", 1) * draft.notes.get("thinkScale", {}).get("strength", 1)
    if factor == 1:
        return {}
    taken = {name: value * factor for name, value in known.items() if name in ("recording_ns", "call_ns")}
    return {"processors": known | taken} if taken else {}


def check_record_count(records: int, what: str) -> None:
    """Refuse what nothing can run, and what cannot be made here, before memory or the disk is full of it.

    Raises
    ------
    FlextraceError
    """
    if records > RECORDS_MAX:
        raise FlextraceError(f"{what} are {records} records, of which a replay takes up to {RECORDS_MAX}", 2)
    if records * TRACE_RECORD_BYTES > memory_bytes():
        raise FlextraceError(
            f"{what} take {format_bytes(records * TRACE_RECORD_BYTES)} of memory while they are made, this machine has "
            f"{format_bytes(memory_bytes())}: make less of it"
        )


def memory_bytes() -> int:
    """Of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def unchanged(parent: Trace) -> Trace:
    """A trace of the parent's records, all of them and bit by bit."""
    header = _header(parent, parent.header.flags, parent.arrays, dict(parent.header.metadata))
    return Trace(
        header, parent.arrays, parent.paths, warnings=list(parent.warnings), block_of_data=parent.block_of_data
    )


def derived(trace: Trace, parents: Sequence[Trace], verb: str, options: dict[str, str]) -> Trace:
    """The trace, with what it was made from in its header.

    Parameters
    ----------
    trace : Trace
        Its metadata are changed.
    parents : sequence of Trace
    verb : str
    options : dict of str to str
        As the verb was asked.
    """
    trace.header.metadata["made_by"] = verb
    trace.header.metadata["lineage"] = {
        "verb": verb,
        "options": options,
        "tool_version": tool_version(),
        "parameters": _parameters(trace),
        "parents": [
            {
                "parent": parent.path.name if parent.path else "",
                "parent_sha256": sha256_of(parent.path) if parent.path else None,
                "parameters": _parameters(parent),
                "earlier": parent.header.metadata.get("lineage"),
            }
            for parent in parents
        ],
    }
    return trace


def _parameters(trace: Trace) -> dict[str, float | None]:
    """The five of the application's layer; of a trace with block requests only, of the block layer."""
    return layer_workload(trace, "vfs" if request_count(trace) or not _has_blocks(trace) else "block").as_document()


def layer_workload(trace: Trace, layer: Layer) -> Workload:
    """The five parameters of one layer; processNum as declared where the trace has not run yet."""
    return workload_of_records(operations_of_blocks(trace) if layer == "block" else trace)


def request_count(trace: Trace) -> int:
    """Number of requests of the application's layer."""
    return int(((trace.arrays[RecordKind.IO]["result"] > 0) & ~left_out(trace)).sum())


def _has_blocks(trace: Trace) -> bool:
    return bool(data_moved(block_records(trace)).any())


def layer_of(trace: Trace, verb: str) -> Layer:
    """What a trace is made another one of: requests of the application's layer or, without any, of the block layer.

    Raises
    ------
    FlextraceError
        It has neither.
    """
    if request_count(trace):
        return "vfs"
    if _has_blocks(trace):
        return "block"
    raise FlextraceError(
        f"cannot {verb} {trace.path or 'the trace'}: it has no requests that moved data, neither of programs nor of "
        "the block layer; 'flextrace info' shows what it has"
    )


def _header(parent: Trace, flags: HeaderFlag, arrays: dict[RecordKind, Any], metadata: dict[str, Any]) -> Header:
    return Header(
        flags=flags,
        start_monotonic_ns=parent.header.start_monotonic_ns,
        start_realtime_ns=parent.header.start_realtime_ns,
        end_monotonic_ns=parent.header.end_monotonic_ns,
        end_realtime_ns=parent.header.end_realtime_ns,
        count={kind: len(array) for kind, array in arrays.items()},
        lost=dict(parent.header.lost),
        metadata=metadata,
    )
