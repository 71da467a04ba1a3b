# SPDX-License-Identifier: Apache-2.0
"""Turns paths into recordings that are one workload, surveyed and cut into parts, on which an engine can work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from characterize.cluster.part import PartTask
from characterize.cluster.plan import Plan, plan_of
from characterize.cluster.recording import Recording, files_of, open_recording
from characterize.cluster.survey import Survey, survey
from characterize.requests import Mmap
from characterize.stream import PIECE_RECORDS

# A worker holds a part of several files in memory while it puts it in order.
PART_RECORDS = 1 << 22
_SPAN_PIECES = 8

Engine = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Calls a function for each item, on whatever workers, and gives the results in the order of the items; as `map`."""


@dataclass(frozen=True)
class RecordingSet:
    """Recordings as one workload, and who works on its parts.

    Attributes
    ----------
    files : list of Path
    plan : Plan
    engine : callable
        `map` is this process alone.
    """

    files: list[Path]
    plan: Plan
    engine: Engine

    def tasks(self, mmap: Mmap) -> list[PartTask]:
        """One task for each part, in the order of time."""
        plan = self.plan
        return [
            PartTask(
                part=part,
                facts=plan.facts,
                recordings={place.recording: plan.recordings[place.recording] for place in part.places},
                first_ns=plan.first_ns,
                last_ns=plan.last_ns,
                all_stacked=plan.all_stacked,
                mmap=mmap,
            )
            for part in plan.parts
        ]


def open_set(
    paths: Sequence[Path], *, engine: Engine = map, parts: int = 1, piece_records: int = PIECE_RECORDS
) -> RecordingSet:
    """Survey recordings and divide them.

    Parameters
    ----------
    paths : sequence of Path
        Trace files, archives, and directories of both. Several are recordings of the same time on several machines or
        devices: requests are put in order by the clocks of the day, no two recordings have a file, a thread or a device
        in common, and all share one LRU stack.
    engine : callable
        Who works; `map` is this process alone.
    parts : int
        At least so many parts; more, if they would have more than `PART_RECORDS`.
    piece_records : int
        How many records are read at once.

    Raises
    ------
    FlextraceError
        A file cannot be read, or the recordings cannot be one workload.
    """
    files = files_of(list(paths))
    recordings = [open_recording(path, piece_records) for path in files]
    surveys = _surveys(recordings, engine)
    wanted = max(parts, -(-sum(it.records for it in surveys) // PART_RECORDS))
    return RecordingSet(files, plan_of(recordings, surveys, wanted), engine)


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
