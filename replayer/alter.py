# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into a flexible trace: some of the five parameters changed, the others held (Chen 1992, 6.2).

Several changes compose in this order, whatever the order of the options: sizeMean, uniqueBytes (also to bring back
what a stretched sizeMean did to it), seqFrac (also to bring back what the two did to it), readFrac, processNum, then
think times and the time scale. Each works on what the one before it left. The result is measured like any other trace;
the manifest has wanted, achieved and held. A trace of which something is off is not returned, unless asked for.

BLOCK and BLOCK_DATA records are not carried over: what the altered requests do to the device is not known before they
run. Neither are RESIDENT and HOLE records where requests or files change, since places and sizes do; how much of a
file is cached stays in its FILE record. Pages read of mapped programs are no requests and are left out. WAKE records
stay where they still hold (`replayer.flexible.wakes`): not those of threads that were dealt or merged.

Of a trace that has block requests only, these are altered (`replayer.flexible.block_layer`), and the result has BLOCK
records, for ``replay --device``. There processNum is the queue depth, and nobody thinks.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import IoFlag, RecordKind
from characterize.trace import Trace
from characterize.trace_files.provenance import sha256_of
from characterize.units import format_bytes, parse_fraction, parse_size
from characterize.workload import FIELD_OF, PARAMETERS, Workload, workload_of_records
from replayer.flexible.block_layer import blocks_of_operations, operations_of_blocks
from replayer.flexible.curve import CURVE_HELD, CurveChange, apart, curve_of, scaled_curve_of
from replayer.flexible.draft import Draft, UnreachableError
from replayer.flexible.manifest import HELD_TOLERANCE, SHARES, TIMES, Manifest
from replayer.flexible.planned import RANGES, layer_of, planned, request_count, unchanged
from replayer.flexible.process_num import change_process_num, in_flight
from replayer.flexible.read_frac import change_read_frac
from replayer.flexible.readable import make_readable
from replayer.flexible.seq_frac import change_seq_frac
from replayer.flexible.size_mean import change_size_mean
from replayer.flexible.times import elapsed_ns, scale_think_times, scale_times
from replayer.flexible.unavoidable import least_error
from replayer.flexible.unique_bytes import change_unique_bytes
from replayer.flexible.wakes import settled

# A change by less than this is none.
UNCHANGED = 1e-9
# Where a change moves what is to be held, the largest change that does not is searched for in so many steps.
RANGE_STEPS = 5


@dataclass(frozen=True)
class Relative:
    """A change by a factor."""

    factor: float

    def __str__(self) -> str:
        return f"{self.factor:g}x"


def parse_change(name: str, text: str) -> float | Relative:
    """A change from text: ``2x``, ``0.5x``, or an absolute value such as ``64MiB``, ``0.8``, ``4``.

    Raises
    ------
    FlextraceError
        Not understood.
    """
    factor = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(x?)\s*", text)
    if factor and (factor[2] or name in TIMES):
        if not 0 < float(factor[1]) < math.inf:
            raise FlextraceError(f"{name} {text!r}: a factor must be a number greater than 0, such as 2x", 2)
        return Relative(float(factor[1]))
    if name in TIMES:
        raise FlextraceError(f"{name} {text!r} is not understood: give a factor such as 2 or 0.5", 2)
    if name == "processNum":
        if not re.fullmatch(r"\s*[0-9]+\s*", text):
            raise FlextraceError(f"processNum {text!r} is not understood: give a whole number such as 4, or 2x", 2)
        return float(text)
    try:
        return parse_fraction(text) if name in SHARES else float(parse_size(text))
    except FlextraceError as error:
        raise FlextraceError(f"{name}: {error}", error.exit_code) from error


def alter(
    trace: Trace, changes: Mapping[str, float | Relative], seed: int = 0, *, nearest: bool = False
) -> tuple[Trace, Manifest]:
    """Make a flexible trace.

    Parameters
    ----------
    trace : Trace
        With requests of the application's layer (IO), or else of the block layer.
    changes : mapping of str to float or Relative
        By the papers' names (`PARAMETERS`), and `TIMES`, which are factors in any case.
    seed : int
        Equal arguments and seed give an equal trace.
    nearest : bool
        Return a trace also where a parameter is off by more than is tolerated; its manifest says so (`Manifest.off`).

    Returns
    -------
    trace : Trace
        Header flag PLANNED, but for synthetic traces, which stay UNTIMED; ``declared`` has processNum. Where nothing
        changes, the records are those of the parent, bit by bit.
    manifest : Manifest

    Raises
    ------
    UnreachableError
        A target is out of reach, or the others cannot be held there; the message has the reachable range.
    FlextraceError
        The trace has no requests to alter, or a change is not understood.
    """
    of_blocks = layer_of(trace, "alter") == "block"
    if of_blocks and "thinkScale" in changes:
        raise FlextraceError(
            "thinkScale cannot be changed: block requests are of no thread, so that nobody is known to think between "
            "them; change timeScale",
            2,
        )
    parent = operations_of_blocks(trace) if of_blocks else trace
    altered, manifest = _altered(parent, changes, seed, queued=of_blocks)
    if manifest.off and not nearest:
        raise _refusal(parent, changes, manifest, queued=of_blocks)
    if not of_blocks:
        return altered, manifest
    if altered.arrays[RecordKind.IO] is not parent.arrays[RecordKind.IO]:
        return blocks_of_operations(altered, trace), manifest
    same = unchanged(trace)
    same.header.metadata = altered.header.metadata
    return same, manifest


def _altered(
    trace: Trace,
    changes: Mapping[str, float | Relative],
    seed: int,
    *,
    queued: bool,
    curve_held: float = CURVE_HELD,
) -> tuple[Trace, Manifest]:
    before = workload_of_records(trace)
    wanted = _wanted(before, changes)
    times = {name: _factor(name, changes[name]) for name in TIMES if name in changes}
    asked = _Asked(trace, changes, seed, before, wanted, {name: (factor, 1.0) for name, factor in times.items()})
    if all(_same(wanted, before, name) for name in PARAMETERS) and all(factor == 1 for factor in times.values()):
        return asked.of(None)
    draft = Draft.of(trace)
    generator = np.random.default_rng(seed)
    parent = draft.copy()

    if not _same(wanted, before, "sizeMean"):
        change_size_mean(draft, wanted.size_mean)
    asked.sized = draft.copy()
    _change_unique_bytes(draft, wanted, before, generator, parent, curve_held=curve_held)
    if abs(float(draft.sequential().mean()) - wanted.seq_frac) > HELD_TOLERANCE or not _same(wanted, before, "seqFrac"):
        _change_seq_frac(draft, wanted, before, generator, curve_held=curve_held)
    if not _same(wanted, before, "readFrac"):
        change_read_frac(draft, wanted.read_frac, generator)
    changed = _drop_what_moved(draft, parent)
    make_readable(draft, changed)
    files_changed = not np.array_equal(draft.files, parent.files)
    ranges = {kind: trace.arrays[kind].copy() for kind in RANGES}
    gaps = trace.arrays[RecordKind.GAP].copy()
    if not _same(wanted, before, "processNum"):
        change_process_num(draft, wanted.process_num, queued=queued)
    if times.get("thinkScale", 1) != 1:
        asked.times["thinkScale"] = times["thinkScale"], scale_think_times(draft, times["thinkScale"])
    if times.get("timeScale", 1) != 1:
        present = elapsed_ns(draft)
        scale_times(draft, times["timeScale"], ranges.values(), gaps)
        # A trace of one moment stays one.
        asked.times["timeScale"] = times["timeScale"], elapsed_ns(draft) / present if present else times["timeScale"]
    recorded = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILEOP]
    draft.wakes = settled(draft.wakes, recorded, (draft.io, draft.fileops))
    return asked.of(draft, ({} if len(changed) or files_changed else ranges) | {RecordKind.GAP: gaps})


def _refusal(
    trace: Trace, changes: Mapping[str, float | Relative], manifest: Manifest, *, queued: bool
) -> UnreachableError:
    """The error for a result that is off; of a single change with the range in which nothing is off."""
    remedy = "change less at once, change what moved with it, or take the trace for what it achieves with --nearest"
    names = [name for name in changes if name in FIELD_OF]
    if len(changes) > 1 or not names:
        wished = ", ".join(f"{name} {change}" for name, change in manifest.changes.items())
        return UnreachableError(
            f"{wished} is not reachable: off would be {manifest.off_text}: {remedy}", math.nan, math.nan
        )
    name = names[0]
    present, target = (getattr(workload, FIELD_OF[name]) for workload in (manifest.before, manifest.wanted))
    good, bad = present, target
    for _ in range(RANGE_STEPS):
        middle = (good + bad) / 2 if name in SHARES else math.sqrt(good * bad)
        if name == "processNum" and (middle := float(round(middle))) in {good, bad}:
            break
        try:
            # A curve that is not held is no reason to refuse, and to hold it takes the longest.
            tried = _altered(trace, {name: middle}, manifest.seed, queued=queued, curve_held=math.inf)
            met = not tried[1].off
        except UnreachableError:
            met = False
        good, bad = (middle, bad) if met else (good, middle)
    show = "{:.3g}".format if name in (*SHARES, "processNum") else format_bytes
    low, high = sorted((present, good))
    return UnreachableError(
        f"{name} {show(target)} is not reachable with the others held: off would be {manifest.off_text}; reachable is "
        f"about {show(low)} to {show(high)}; {remedy}",
        low,
        high,
    )


def _wanted(before: Workload, changes: Mapping[str, float | Relative]) -> Workload:
    if not changes:
        raise FlextraceError("nothing to alter: give at least one parameter, such as --read-frac 0.8", 2)
    wanted = before
    for name, change in changes.items():
        if name in TIMES:
            continue
        if name not in FIELD_OF:
            raise FlextraceError(f"parameter {name!r} is unknown: choose of {', '.join((*PARAMETERS, *TIMES))}", 2)
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


def _factor(name: str, change: float | Relative) -> float:
    factor = change.factor if isinstance(change, Relative) else float(change)
    if not 0 < factor < math.inf:
        raise FlextraceError(f"{name} {factor:g} is not reachable: give a factor greater than 0", 2)
    return factor


def _same(one: Workload, other: Workload, name: str) -> bool:
    a, b = getattr(one, FIELD_OF[name]), getattr(other, FIELD_OF[name])
    return (math.isnan(a) and math.isnan(b)) or abs(a - b) <= UNCHANGED * max(abs(a), abs(b))


def _change_unique_bytes(
    draft: Draft,
    wanted: Workload,
    before: Workload,
    generator: np.random.Generator,
    parent: Draft,
    *,
    curve_held: float,
) -> None:
    """Bring uniqueBytes where it is wanted, or back after requests were stretched, on the curve of `parent`."""
    changed = not _same(wanted, before, "uniqueBytes")
    if not changed and abs(draft.unique_bytes() / wanted.unique_bytes - 1) <= HELD_TOLERANCE:
        return
    try:
        change_unique_bytes(draft, wanted.unique_bytes, generator, parent, curve_held=curve_held)
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


def _change_seq_frac(
    draft: Draft, wanted: Workload, before: Workload, generator: np.random.Generator, *, curve_held: float
) -> None:
    """Bring seqFrac where it is wanted; where it is only to be held, as near as it goes."""
    try:
        change_seq_frac(draft, wanted.seq_frac, generator, curve_held=curve_held)
    except UnreachableError:
        if not _same(wanted, before, "seqFrac"):
            raise
    # Moved runs may have left bytes that nobody touches now.
    if abs(draft.unique_bytes() / wanted.unique_bytes - 1) > HELD_TOLERANCE:
        with contextlib.suppress(UnreachableError):
            change_unique_bytes(draft, wanted.unique_bytes, generator, curve_held=curve_held)


def _drop_what_moved(draft: Draft, parent: Draft) -> np.ndarray:
    """Say that moved requests are where they are by name, not by appending; ids of the files that changed."""
    indices = draft.requests
    now, original = draft.io[indices], parent.io[parent.requests]
    moved = (now["offset"] != original["offset"]) | (now["file"] != original["file"])
    changed = moved | (now["op"] != original["op"]) | (now["result"] != original["result"])
    flags = now["flags"][moved] & ~np.uint32(IoFlag.APPEND | IoFlag.OFFSET_INFERRED)
    draft.io["flags"][indices[moved]] = flags | np.uint32(IoFlag.POSITIONED)
    draft.note("all", changed_requests=int(changed.sum()))
    if "by_depth" in draft.notes.get("uniqueBytes", {}):
        # By whichever steps they went there.
        draft.note("uniqueBytes", requests_on_other_files=int((now["file"] != original["file"]).sum()))
    # Also those that requests have left: what they wrote there is missing to who reads it.
    return np.union1d(now["file"][changed], original["file"][changed]).astype(np.int64)


@dataclass
class _Asked:
    """What was asked of a trace; makes the altered trace and its manifest from the draft."""

    trace: Trace
    changes: Mapping[str, float | Relative]
    seed: int
    before: Workload
    wanted: Workload
    times: dict[str, tuple[float, float]]
    sized: Draft | None = None  # with the wanted sizes, before anything is moved

    def of(self, draft: Draft | None, kept: Mapping[RecordKind, np.ndarray] | None = None) -> tuple[Trace, Manifest]:
        """Measure the altered trace and write its lineage; without a draft nothing was changed."""
        trace, before = self.trace, self.before
        altered = unchanged(trace)
        if draft is not None:
            altered = planned(trace, draft, "alter", self._process_num(draft), kept)
        achieved = before if draft is None else workload_of_records(altered)
        requests = request_count(trace)
        notes = {} if draft is None else draft.notes
        manifest = Manifest(
            parent=trace.path.name if trace.path else "",
            parent_sha256=sha256_of(trace.path) if trace.path else None,
            seed=self.seed,
            changes={name: str(change) for name, change in self.changes.items()},
            before=before,
            wanted=self.wanted,
            achieved=achieved,
            times=self.times,
            requests=requests,
            moved=notes.get("all", {}).get("changed_requests", 0),
            reuse_before=before.size_mean * requests / before.unique_bytes,
            reuse=achieved.size_mean * requests / achieved.unique_bytes,
            curve=self._curve_change(altered),
            notes=notes,
        )
        altered.header.metadata["lineage"] = {
            **manifest.as_document(),
            "earlier": trace.header.metadata.get("lineage"),
        }
        return altered, manifest

    def _curve_change(self, altered: Trace) -> CurveChange:
        if self.sized is None:
            return CurveChange(0.0, 0.0)
        before, factor = curve_of(self.trace), self.wanted.size_mean / self.before.size_mean
        runs_stay = all(_same(self.wanted, self.before, name) for name in ("seqFrac", "processNum"))
        return CurveChange(
            apart(before, curve_of(altered)),
            least_error(before, self.sized, self.wanted.unique_bytes, runs_stay=runs_stay),
            None if abs(factor - 1) <= UNCHANGED else apart(before, scaled_curve_of(altered, factor)),
        )

    def _process_num(self, draft: Draft) -> float:
        held = self.wanted.process_num == self.before.process_num and not self.times
        return self.before.process_num if held or math.isnan(self.before.process_num) else in_flight(draft)
