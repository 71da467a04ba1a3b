# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into a flexible trace: some of the five parameters changed, the others held (Chen 1992, 6.2).

Several changes compose in this order, whatever the order of the options: sizeMean, uniqueBytes (also to bring back
what a stretched sizeMean did to it), seqFrac (also to bring back what the two did to it), readFrac, processNum. Each
works on what the one before it left. The result is measured like any other trace; the manifest has wanted, achieved
and held.

BLOCK and BLOCK_DATA records are not carried over: what the altered requests do to the device is not known before they
run. Neither are RESIDENT records, since places and sizes of files change; how much of a file is cached stays in its
FILE record. Pages read of mapped programs are no requests and are left out.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import HeaderFlag, IoFlag, RecordKind
from characterize.loss import RECORDING_KEYS
from characterize.provenance import sha256_of, tool_version
from characterize.requests import left_out
from characterize.trace import Header, Trace
from characterize.units import format_bytes, parse_fraction, parse_size
from characterize.workload import FIELD_OF, PARAMETERS, Workload, workload_of_records
from replayer.flexible.draft import Draft, UnreachableError
from replayer.flexible.process_num import change_process_num, in_flight
from replayer.flexible.read_frac import change_read_frac
from replayer.flexible.readable import make_readable
from replayer.flexible.seq_frac import change_seq_frac
from replayer.flexible.size_mean import change_size_mean
from replayer.flexible.unique_bytes import change_unique_bytes

SHARES = ("seqFrac", "readFrac")
# From this deviation on a held parameter is brought back where that is possible.
HELD_TOLERANCE = 0.005
# A change by less than this is none.
UNCHANGED = 1e-9


@dataclass(frozen=True)
class Relative:
    """A change by a factor."""

    factor: float

    def __str__(self) -> str:
        return f"{self.factor:g}x"


@dataclass
class Manifest:
    """What an alteration did, for the lineage in the trace's header.

    Attributes
    ----------
    before, wanted, achieved : Workload
        The parent; the parent with the changes wanted; the altered trace as measured.
    changes : dict of str to str
        As they were asked for.
    deviation : dict of str to float
        Achieved against wanted for all five: absolute for shares, else relative.
    requests, moved : int
        Requests of the altered trace, and how many of them differ from their original or have none.
    reuse_before, reuse : float
        Bytes moved by unique bytes (rho).
    notes : dict
        What each step did.
    """

    parent: str
    parent_sha256: str | None
    seed: int
    changes: dict[str, str]
    before: Workload
    wanted: Workload
    achieved: Workload
    requests: int
    moved: int
    reuse_before: float
    reuse: float
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def deviation(self) -> dict[str, float]:
        """Achieved against wanted."""
        result = {}
        for name in PARAMETERS:
            wanted, achieved = (getattr(workload, FIELD_OF[name]) for workload in (self.wanted, self.achieved))
            if math.isnan(wanted) or math.isnan(achieved):
                continue
            result[name] = achieved - wanted if name in SHARES else achieved / wanted - 1
        return result

    def as_document(self) -> dict[str, Any]:
        """As JSON needs it."""
        return {
            "parent": self.parent,
            "parent_sha256": self.parent_sha256,
            "tool_version": tool_version(),
            "seed": self.seed,
            "changes": self.changes,
            "before": self.before.as_document(),
            "wanted": self.wanted.as_document(),
            "achieved": self.achieved.as_document(),
            "deviation": self.deviation,
            "requests": self.requests,
            "moved": self.moved,
            "reuse_before": self.reuse_before,
            "reuse": self.reuse,
            "steps": self.notes,
        }


def parse_change(name: str, text: str) -> float | Relative:
    """A change from text: ``2x``, ``0.5x``, or an absolute value such as ``64MiB``, ``0.8``, ``4``.

    Raises
    ------
    FlextraceError
        Not understood.
    """
    factor = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*x\s*", text)
    if factor:
        if not float(factor[1]) > 0:
            raise FlextraceError(f"{name} {text!r}: a factor must be greater than 0, such as 2x", 2)
        return Relative(float(factor[1]))
    if name in SHARES:
        return parse_fraction(text)
    if name == "processNum":
        if not re.fullmatch(r"\s*[0-9]+\s*", text):
            raise FlextraceError(f"processNum {text!r} is not understood: give a whole number such as 4, or 2x", 2)
        return float(text)
    return float(parse_size(text))


def alter(trace: Trace, changes: Mapping[str, float | Relative], seed: int = 0) -> tuple[Trace, Manifest]:
    """Make a flexible trace.

    Parameters
    ----------
    trace : Trace
        With records of the application's layer (IO).
    changes : mapping of str to float or Relative
        By the papers' names (`PARAMETERS`).
    seed : int
        Equal arguments and seed give an equal trace.

    Returns
    -------
    trace : Trace
        Header flag PLANNED, but for synthetic traces, which stay UNTIMED; ``declared`` has processNum. Where nothing
        changes, the records are those of the parent, bit by bit.
    manifest : Manifest

    Raises
    ------
    FlextraceError
        A target is out of reach (the message has the reachable range), or the trace has no requests to alter.
    """
    before = _before(trace)
    wanted = _wanted(before, changes)
    if all(_same(wanted, before, name) for name in PARAMETERS):
        return _finish(trace, None, changes, before, wanted, seed)
    draft = Draft.of(trace)
    generator = np.random.default_rng(seed)
    original = draft.io[draft.requests].copy()

    if not _same(wanted, before, "sizeMean"):
        change_size_mean(draft, wanted.size_mean)
    _change_unique_bytes(draft, wanted, before, generator)
    if abs(float(draft.sequential().mean()) - wanted.seq_frac) > HELD_TOLERANCE or not _same(wanted, before, "seqFrac"):
        _change_seq_frac(draft, wanted, before, generator)
    if not _same(wanted, before, "readFrac"):
        change_read_frac(draft, wanted.read_frac, generator)
    changed = _drop_what_moved(draft, original)
    make_readable(draft, changed)
    if not _same(wanted, before, "processNum"):
        change_process_num(draft, wanted.process_num, generator)
    return _finish(trace, draft, changes, before, wanted, seed)


def _before(trace: Trace) -> Workload:
    name = trace.path or "the trace"
    if not _request_count(trace):
        only_blocks = " (it has block requests only)" if len(trace.arrays[RecordKind.BLOCK]) else ""
        raise FlextraceError(
            f"cannot alter {name}: it has no requests of the application's layer{only_blocks}: "
            "record with --layer vfs or both"
        )
    return workload_of_records(trace)


def _request_count(trace: Trace) -> int:
    """Number of requests of the application's layer."""
    io = trace.arrays[RecordKind.IO]
    return int(((io["result"] > 0) & ~left_out(trace)).sum())


def _wanted(before: Workload, changes: Mapping[str, float | Relative]) -> Workload:
    if not changes:
        raise FlextraceError("nothing to alter: give at least one parameter, such as --read-frac 0.8", 2)
    wanted = before
    for name, change in changes.items():
        if name not in FIELD_OF:
            raise FlextraceError(f"parameter {name!r} is unknown: choose of {', '.join(PARAMETERS)}", 2)
        present = getattr(before, FIELD_OF[name])
        if math.isnan(present):
            raise FlextraceError(f"{name} of this trace is not known (no durations): it cannot be changed")
        value = present * change.factor if isinstance(change, Relative) else float(change)
        if name == "processNum":
            value = float(round(value)) if isinstance(change, Relative) else value
        if name in SHARES and not 0 <= value <= 1:
            raise FlextraceError(
                f"{name} {value:g} is not reachable: shares are from 0 to 1 (it is {present:.4g} now)", 2
            )
        if not math.isfinite(value) or (name not in SHARES and value < 1):
            raise FlextraceError(f"{name} {value:g} is not reachable: give at least 1", 2)
        wanted = wanted.replace(**{FIELD_OF[name]: value})
    return wanted


def _same(one: Workload, other: Workload, name: str) -> bool:
    a, b = getattr(one, FIELD_OF[name]), getattr(other, FIELD_OF[name])
    return (math.isnan(a) and math.isnan(b)) or abs(a - b) <= UNCHANGED * max(abs(a), abs(b))


def _change_unique_bytes(draft: Draft, wanted: Workload, before: Workload, generator: np.random.Generator) -> None:
    """Bring uniqueBytes where it is wanted, or back after requests were stretched."""
    changed = not _same(wanted, before, "uniqueBytes")
    if not changed and abs(draft.unique_bytes() / wanted.unique_bytes - 1) <= HELD_TOLERANCE:
        return
    try:
        change_unique_bytes(draft, wanted.unique_bytes, generator)
    except UnreachableError as error:
        if changed:
            raise
        # sizeMean moved and uniqueBytes is to be held: then the range is one of sizeMean.
        few = error.high < wanted.unique_bytes
        touched = error.high if few else error.low
        mean = wanted.size_mean * wanted.unique_bytes / touched
        raise UnreachableError(
            f"sizeMean {format_bytes(wanted.size_mean)} is not reachable with uniqueBytes held at "
            f"{format_bytes(wanted.unique_bytes)}: the same number of requests then touches {format_bytes(touched)} at "
            f"{'most' if few else 'least'}; reachable is about {format_bytes(mean)} or {'more' if few else 'less'}, "
            "or change uniqueBytes with it",
            mean if few else 1,
            math.inf if few else mean,
        ) from error


def _change_seq_frac(draft: Draft, wanted: Workload, before: Workload, generator: np.random.Generator) -> None:
    """Bring seqFrac where it is wanted; where it is only to be held, as near as it goes."""
    try:
        change_seq_frac(draft, wanted.seq_frac, generator)
    except UnreachableError:
        if not _same(wanted, before, "seqFrac"):
            raise
    # Moved runs may have left bytes that nobody touches now.
    if abs(draft.unique_bytes() / wanted.unique_bytes - 1) > HELD_TOLERANCE:
        with contextlib.suppress(UnreachableError):
            change_unique_bytes(draft, wanted.unique_bytes, generator)


def _drop_what_moved(draft: Draft, original: np.ndarray) -> np.ndarray:
    """Say that moved requests are where they are by name, not by appending; ids of the files that changed."""
    indices = draft.requests
    now = draft.io[indices]
    moved = (now["offset"] != original["offset"]) | (now["file"] != original["file"])
    changed = moved | (now["op"] != original["op"]) | (now["result"] != original["result"])
    flags = now["flags"][moved] & ~np.uint32(IoFlag.APPEND | IoFlag.OFFSET_INFERRED)
    draft.io["flags"][indices[moved]] = flags | np.uint32(IoFlag.POSITIONED)
    draft.note("all", changed_requests=int(changed.sum()))
    return np.unique(now["file"][changed]).astype(np.int64)


def _finish(  # noqa: PLR0917
    trace: Trace,
    draft: Draft | None,
    changes: Mapping[str, float | Relative],
    before: Workload,
    wanted: Workload,
    seed: int,
) -> tuple[Trace, Manifest]:
    """Measure the altered trace and write its lineage."""
    old_requests = _request_count(trace)
    if draft is None:
        arrays, paths, flags = trace.arrays, trace.paths, trace.header.flags
    else:
        arrays = {
            RecordKind.IO: draft.io,
            RecordKind.FILEOP: draft.fileops,
            RecordKind.FILE: draft.files,
            RecordKind.TASK: draft.tasks,
            RecordKind.GAP: trace.arrays[RecordKind.GAP],
        }
        paths = draft.paths
        flags = trace.header.flags | (HeaderFlag(0) if trace.untimed else HeaderFlag.PLANNED)
    metadata = {key: value for key, value in trace.header.metadata.items() if key != "lineage"}
    if draft is not None:
        for key in RECORDING_KEYS:
            metadata.pop(key, None)
        declared = before.process_num if wanted.process_num == before.process_num else in_flight(draft)
        metadata["made_by"] = "alter"
        metadata["declared"] = {} if math.isnan(declared) else {"processNum": int(declared)}
    header = Header(
        flags=flags,
        start_monotonic_ns=trace.header.start_monotonic_ns,
        start_realtime_ns=trace.header.start_realtime_ns,
        end_monotonic_ns=trace.header.end_monotonic_ns,
        end_realtime_ns=trace.header.end_realtime_ns,
        count={kind: len(array) for kind, array in arrays.items()},
        lost=dict(trace.header.lost),
        metadata=metadata,
    )
    owners = trace.block_of_data if draft is None else None
    altered = Trace(header, arrays, paths, warnings=list(trace.warnings), block_of_data=owners)
    achieved = before if draft is None else workload_of_records(altered)
    requests = _request_count(altered)
    notes = {} if draft is None else draft.notes
    manifest = Manifest(
        parent=trace.path.name if trace.path else "",
        parent_sha256=sha256_of(trace.path) if trace.path else None,
        seed=seed,
        changes={name: str(change) for name, change in changes.items()},
        before=before,
        wanted=wanted,
        achieved=achieved,
        requests=requests,
        moved=notes.get("all", {}).get("changed_requests", 0) + requests - old_requests,
        reuse_before=before.size_mean * old_requests / before.unique_bytes,
        reuse=achieved.size_mean * requests / achieved.unique_bytes,
        notes=notes,
    )
    lineage = {**manifest.as_document(), "earlier": trace.header.metadata.get("lineage")}
    metadata["lineage"] = lineage
    return altered, manifest
