# SPDX-License-Identifier: Apache-2.0
"""Turns a set of recordings into one characterization, by tasks of an engine: survey, borders, parts.

Between the rounds stands what has to be known of the whole set. What a worker returns depends on its task alone, so
that a task whose worker died is done again elsewhere, with the same result.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from characterize.characterization import Characterization, TraceSummary, characterization_of
from characterize.cluster.part import PartTask, count_keys, no_chunks, summarize
from characterize.cluster.plan import Plan, input_of, plan_of
from characterize.cluster.recording import Recording, files_of, open_recording
from characterize.cluster.survey import Survey, in_flight, joined, survey
from characterize.errors import FlextraceError
from characterize.grouping import Grouping
from characterize.layer_summary import Sample
from characterize.provenance import provenance_of
from characterize.requests import MMAP_RULES, Mmap
from characterize.stream import PIECE_RECORDS, Arrays, Stream

# A worker holds a part of several files in memory while it puts it in order.
PART_RECORDS = 1 << 22
_SPAN_PIECES = 8

Engine = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Calls a function for each item, on whatever workers, and gives the results in the order of the items; as `map`."""


def characterize_set(
    paths: Sequence[Path],
    mmap: Mmap = "data",
    *,
    sample: Sample | None = None,
    grouping: Grouping | None = None,
    engine: Engine = map,
    parts: int = 1,
    piece_records: int = PIECE_RECORDS,
) -> Characterization:
    """Reduce recordings to the numbers of one workload.

    Parameters
    ----------
    paths : sequence of Path
        Trace files, archives, and directories of both. Several are recordings of the same time on several machines or
        devices: requests are put in order by the clocks of the day, no two recordings have a file, a thread or a device
        in common, and all share one LRU stack.
    mmap : {"data", "all", "none"}
        Which accesses to mapped files count as requests, see `characterize.requests.left_out`.
    sample : Sample or None
        Estimate stack depths from a sample of the blocks; None: they are exact.
    grouping : Grouping or None
        What else to divide the requests by.
    engine : callable
        Who works; `map` is this process alone.
    parts : int
        At least so many parts; more, if they would have more than `PART_RECORDS`.
    piece_records : int
        How many records are read at once.

    Returns
    -------
    Characterization
        The same as from `characterize.characterization.characterize`, however many parts there are; what is estimated
        or not always exact is listed in docs/decisions/0021.

    Raises
    ------
    FlextraceError
        A file cannot be read, or the recordings cannot be one workload.
    """
    if mmap not in MMAP_RULES:
        raise FlextraceError(f"rule {mmap!r} for mapped files is unknown: choose of {', '.join(MMAP_RULES)}", 2)
    files = files_of(list(paths))
    recordings = [open_recording(path, piece_records) for path in files]
    surveys = _surveys(recordings, engine)
    wanted = max(parts, -(-sum(it.records for it in surveys) // PART_RECORDS))
    plan = plan_of(recordings, surveys, wanted)
    stream = Stream(plan.facts, no_chunks, plan.first_ns, plan.last_ns, plan.all_stacked)
    tasks = _tasks(plan, engine, mmap, sample)
    if grouping and grouping.by:
        grouping = _with_keys(grouping, tasks, engine)
    whole = TraceSummary(stream, mmap, sample, grouping)
    for summary in engine(summarize, [replace(task, grouping=grouping) for task in tasks]):
        whole.merge(pickle.loads(summary))
    return characterization_of(whole, input_of(list(engine(provenance_of, files))))


def _surveys(recordings: Sequence[Recording], engine: Engine) -> list[Survey]:
    """One survey of each recording, up to its first hole."""
    spans = [
        (number, begin, min(begin + _SPAN_PIECES, recording.pieces))
        for number, recording in enumerate(recordings)
        for begin in range(0, recording.pieces, _SPAN_PIECES)
    ]
    found = engine(survey, [(recordings[number], begin, end) for number, begin, end in spans])
    surveys = [Survey() for _ in recordings]
    for (number, begin, _), its in zip(spans, found, strict=True):
        if len(surveys[number].pieces) == begin and surveys[number].records == _records_before(
            recordings[number], begin
        ):
            surveys[number].add(its)
    return surveys


def _records_before(recording: Recording, piece: int) -> int:
    return min(piece * recording.piece_records, recording.records)


def _with_keys(grouping: Grouping, tasks: Sequence[PartTask], engine: Engine) -> Grouping:
    """The same with those keys that have most requests in the whole set."""
    first, *others = engine(count_keys, [replace(task, grouping=grouping) for task in tasks])
    for counts in others:
        for layer, count in counts.items():
            first[layer].merge(count)
    return replace(grouping, keys={layer: count.heaviest() for layer, count in first.items()})


def _tasks(plan: Plan, engine: Engine, mmap: Mmap, sample: Sample | None) -> list[PartTask]:
    """One task for each part, with what is in flight where it begins."""
    asked = [
        (plan.recordings[recording], piece, [plan.parts[part].begin_ns for part in parts])
        for recording, piece, parts in plan.crossing
    ]
    flying: list[list[Arrays]] = [[] for _ in plan.parts]
    for (_, _, parts), found in zip(plan.crossing, engine(in_flight, asked), strict=True):
        for part, arrays in zip(parts, found, strict=True):
            flying[part].append(arrays)
    return [
        PartTask(
            part=part,
            facts=plan.facts,
            recordings={place.recording: plan.recordings[place.recording] for place in part.places},
            first_ns=plan.first_ns,
            last_ns=plan.last_ns,
            all_stacked=plan.all_stacked,
            in_flight=joined(arrays),
            mmap=mmap,
            sample=sample,
            grouping=None,
        )
        for part, arrays in zip(plan.parts, flying, strict=True)
    ]
