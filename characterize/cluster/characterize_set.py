# SPDX-License-Identifier: Apache-2.0
"""Turns a set of recordings into one characterization, by tasks of an engine: survey, borders, parts.

Between the rounds stands what has to be known of the whole set. What a worker returns depends on its task alone, so
that a task whose worker died is done again elsewhere, with the same result.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from characterize.characterization import Characterization, TraceSummary, characterization_of
from characterize.cluster.part import count_keys, no_chunks, summarize
from characterize.cluster.plan import input_of
from characterize.cluster.recording_set import Engine, RecordingSet, open_set
from characterize.cluster.survey import in_flight, joined
from characterize.grouping import Grouping
from characterize.layer_summary import Sample
from characterize.requests import Mmap
from characterize.stream import PIECE_RECORDS, Arrays, Chunk, Stream
from characterize.trace_files.provenance import provenance_of


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
    """Reduce recordings to the numbers of one workload; as `open_set` and `characterize_recordings`."""
    recordings = open_set(paths, engine=engine, parts=parts, piece_records=piece_records)
    return characterize_recordings(recordings, mmap, sample=sample, grouping=grouping)


def characterize_recordings(
    recordings: RecordingSet, mmap: Mmap = "data", *, sample: Sample | None = None, grouping: Grouping | None = None
) -> Characterization:
    """Reduce recordings to the numbers of one workload.

    Parameters
    ----------
    recordings : RecordingSet
    mmap : {"data", "all", "none"}
        Which accesses to mapped files count as requests, see `characterize.requests.left_out`.
    sample : Sample or None
        Estimate stack depths from a sample of the blocks; None: they are exact.
    grouping : Grouping or None
        What else to divide the requests by.

    Returns
    -------
    Characterization
        The same as from `characterize.characterization.characterize`, however many parts there are; what is estimated
        or not always exact is listed in docs/decisions/0021.

    Raises
    ------
    FlextraceError
        A file cannot be read, or what is asked for does not exist in this workload.
    """
    plan, engine = recordings.plan, recordings.engine
    if grouping and grouping.by:
        grouping = _with_keys(grouping, recordings, mmap)
    stream = Stream(plan.facts, no_chunks, plan.first_ns, plan.last_ns, plan.all_stacked)
    whole = TraceSummary(stream, mmap, sample, grouping)
    tasks = [
        replace(task, in_flight=flying, sample=sample, grouping=grouping)
        for task, flying in zip(recordings.tasks(mmap), _in_flight(recordings), strict=True)
    ]
    for summary in engine(summarize, tasks):
        whole.merge(pickle.loads(summary))
    return characterization_of(whole, input_of(list(engine(provenance_of, recordings.files))))


def _with_keys(grouping: Grouping, recordings: RecordingSet, mmap: Mmap) -> Grouping:
    """The same with those keys that have most requests in the whole set."""
    tasks = [replace(task, grouping=grouping) for task in recordings.tasks(mmap)]
    first, *others = recordings.engine(count_keys, tasks)
    for counts in others:
        for layer, count in counts.items():
            first[layer].merge(count)
    return replace(grouping, keys={layer: count.heaviest() for layer, count in first.items()})


def _in_flight(recordings: RecordingSet) -> list[Chunk]:
    """For each part what is in flight where it begins."""
    plan = recordings.plan
    asked = [
        (plan.recordings[recording], piece, [plan.parts[part].begin_ns for part in parts])
        for recording, piece, parts in plan.crossing
    ]
    flying: list[list[Arrays]] = [[] for _ in plan.parts]
    for (_, _, parts), found in zip(plan.crossing, recordings.engine(in_flight, asked), strict=True):
        for part, arrays in zip(parts, found, strict=True):
            flying[part].append(arrays)
    return [joined(arrays) for arrays in flying]
