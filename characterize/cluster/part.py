# SPDX-License-Identifier: Apache-2.0
"""Turns a part of a set of recordings into its summaries: a task of the engine, which any worker can do again."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from characterize.characterization import TraceSummary
from characterize.cluster.plan import Part
from characterize.cluster.recording import Recording
from characterize.cluster.survey import nothing_in_flight
from characterize.grouping import Grouping, requests_by_key
from characterize.groups import RequestsByKey
from characterize.layer_summary import Sample
from characterize.layout import RecordKind
from characterize.requests import Layer, Mmap, words_of
from characterize.stream import TIMED, Chunk, Linked, Stream, one_ahead, stream_of_pieces
from characterize.trace import Trace

_LINKED = (RecordKind.BLOCK, RecordKind.BLOCK_DATA)


@dataclass(frozen=True)
class PartTask:
    """A part, and all that is needed to summarize it.

    Attributes
    ----------
    part : Part
    facts : Trace
    recordings : dict of int to Recording
        Those that its places name.
    first_ns, last_ns : int
    all_stacked : bool
        Of the whole set, as `facts`.
    mmap : {"data", "all", "none"}
    in_flight : Chunk
        Records that start before the part and end after its begin, where it is to be summarized.
    sample : Sample or None
    grouping : Grouping or None
        With its keys, once they are known.
    """

    part: Part
    facts: Trace
    recordings: dict[int, Recording]
    first_ns: int
    last_ns: int
    all_stacked: bool
    mmap: Mmap
    in_flight: Chunk = field(default_factory=nothing_in_flight)
    sample: Sample | None = None
    grouping: Grouping | None = None


def summarize(task: PartTask) -> bytes:
    """The pickled `TraceSummary` of a part, to be merged into those before.

    Raises
    ------
    FlextraceError
        A file cannot be read or is damaged.
    """
    stream = stream_of_part(task)
    summary = TraceSummary(stream, task.mmap, task.sample, task.grouping, task.in_flight)
    for chunk in one_ahead(stream.chunks()):
        summary.add(chunk)
    # Its records are not needed any more, and cannot be sent.
    summary.stream = Stream(Trace(task.facts.header, {}), no_chunks, task.first_ns, task.last_ns, task.all_stacked)
    return pickle.dumps(summary)


def count_keys(task: PartTask) -> dict[Layer, RequestsByKey]:
    """How many requests of a part each key of its grouping has, by layer."""
    assert task.grouping is not None
    return requests_by_key(stream_of_part(task), task.mmap, task.grouping)


def stream_of_part(task: PartTask) -> Stream:
    """The records of a part, with what is known of the whole set."""
    # The header that is counted in is a part's; the facts are those of the whole set.
    stream = stream_of_pieces(lambda: _pieces(task), lambda _: Trace(replace(task.facts.header), {}))
    return replace(stream, facts=task.facts, first_ns=task.first_ns, last_ns=task.last_ns, all_stacked=task.all_stacked)


def no_chunks() -> Iterator[Chunk | Linked]:
    """Of a summary whose chunks were counted elsewhere."""
    return iter(())


def _pieces(task: PartTask) -> Iterator[np.ndarray]:
    """The records of a part, in the order of its files."""
    for place in task.part.places:
        records = task.recordings[place.recording].read(place.piece)
        start = words_of(records)[:, 1].astype(np.int64)
        kinds = records[:, 0]
        if (data := kinds == RecordKind.BLOCK_DATA).any():
            # A piece belongs where the request before it does.
            block = np.maximum.accumulate(np.where(kinds == RecordKind.BLOCK, np.arange(len(kinds)), -1))
            owner = np.where(block >= 0, start[block], place.open_ns)
            start = np.where(data, owner, start)
        within = (start >= task.part.begin_ns) & (start < task.part.end_ns)
        yield records[within & np.isin(kinds, (*TIMED, *_LINKED))]
