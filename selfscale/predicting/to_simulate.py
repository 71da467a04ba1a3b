# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into what a simulation takes of it: operations, the elapsed time, on what it rests; or why nothing.

A trace that has not run yet has think times in its schedule, as a replay takes them, and response times of its parent's
requests, which tell what these took of a processor (docs/decisions/0026).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from characterize.durations_of import durations_of
from characterize.errors import FlextraceError
from characterize.layout import NOT_MEASURED_U64, FileFlag, FileType, RecordKind
from characterize.requests import has_schedule
from characterize.trace import Trace
from selfscale.predicting.elapsed import RecordedTimes
from selfscale.simulation.operations import Operations, operations_of


@dataclass(frozen=True)
class ToSimulate:
    """What there is.

    Attributes
    ----------
    operations : Operations or None
    elapsed_s : float
        Of the recording; of a trace that has not run, of its schedule.
    rests_on : list of str
        Of a trace that has not run: what is taken from elsewhere, or not known.
    why_not : str
        Where there are no operations.
    """

    operations: Operations | None = None
    elapsed_s: float = math.nan
    rests_on: list[str] = field(default_factory=list)
    why_not: str = ""


def to_simulate(trace: Trace, times: RecordedTimes | None) -> ToSimulate:
    """What there is to simulate of a trace.

    Parameters
    ----------
    trace : Trace
    times : RecordedTimes or None
        None where its times are not measurements.
    """
    if trace.untimed:
        return ToSimulate(why_not="it is synthetic and its times are only an order: record its replay")
    if not has_schedule(trace):
        return ToSimulate(why_not="it has no durations, which tell think times from waiting: record its replay")
    if times is None and trace.measured:
        return ToSimulate(why_not="all that it has happened at one moment")
    try:
        operations = operations_of(trace)
    except FlextraceError as error:
        return ToSimulate(why_not=str(error))
    if times is not None:
        return ToSimulate(operations, times.elapsed_s)
    return ToSimulate(operations, _planned_elapsed_s(trace, operations.span_s), _rests_on(trace))


def _planned_elapsed_s(trace: Trace, span_s: float) -> float:
    """Of a schedule whose operations take `span_s`, with what is before the first one and behind the last one."""
    header = trace.header
    if not 0 < header.start_monotonic_ns < header.end_monotonic_ns:
        return span_s
    return max((header.end_monotonic_ns - header.start_monotonic_ns) / 1e9, span_s)


def _rests_on(trace: Trace) -> list[str]:
    notes = ["the trace has not run: think times are its schedule's, processor times its parent's"]
    factor = durations_of(trace).size_factor
    if factor != 1:
        notes.append(
            f"requests are {factor:.4g} times their parent's: the benchmark's processor time for the difference"
        )
    return notes + _cached_at_first(trace)


def _cached_at_first(trace: Trace) -> list[str]:
    """What is not known of the page cache at the begin, of files that were there."""
    files = trace.arrays[RecordKind.FILE]
    used = np.isin(files["file"], trace.arrays[RecordKind.IO]["file"])
    there = (files["flags"] & (FileFlag.CREATED | FileFlag.NEW_NAME)) == 0
    files = files[used & there & (files["size_bytes"] > 0) & (files["type"] != FileType.DIRECTORY)]
    known = files["resident_bytes"] != NOT_MEASURED_U64
    notes = []
    if not known.all():
        notes.append(f"files of which it is not known what was cached at first, taken as nothing: {(~known).sum()}")
    partly = known & (files["resident_bytes"] > 0) & (files["resident_bytes"] < files["size_bytes"])
    unplaced = partly & ~np.isin(files["file"], trace.arrays[RecordKind.RESIDENT]["file"])
    if unplaced.any():
        notes.append(
            f"files of which only how much was cached at first is known, taken as their begin: {unplaced.sum()}"
        )
    return notes
