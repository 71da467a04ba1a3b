# SPDX-License-Identifier: Apache-2.0
"""Turns surveys of a set of recordings into one workload: clock, numbers, files, and parts that follow in time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from characterize.cluster.recording import NUMBERS_END, OPERATIONS_END, Recording
from characterize.cluster.survey import NEVER, Piece, Survey
from characterize.distinct_names import numbered
from characterize.errors import FlextraceError
from characterize.groups import process_names
from characterize.layout import RECORD_DTYPE, TRACE_RECORD_BYTES, HeaderFlag, RecordKind
from characterize.stream import SMALL, Arrays
from characterize.trace import Content, Header, Trace, trace_of
from characterize.trace_files.joint_metadata import joint_metadata

_RUN_KINDS = HeaderFlag.UNTIMED | HeaderFlag.PLANNED


@dataclass(frozen=True)
class Place:
    """A piece of a recording.

    Attributes
    ----------
    recording, piece : int
    open_ns : int
        Start of the last BLOCK record before it, which its first BLOCK_DATA records may be pieces of; 0 without one.
    """

    recording: int
    piece: int
    open_ns: int


@dataclass(frozen=True)
class Part:
    """What starts in some time.

    Attributes
    ----------
    begin_ns, end_ns : int
        The end is excluded.
    places : list of Place
        Where such records stand, in the order of the recordings.
    """

    begin_ns: int
    end_ns: int
    places: list[Place]


@dataclass(frozen=True)
class Plan:
    """A set of recordings as one workload.

    Attributes
    ----------
    facts : Trace
        As of a `characterize.stream.Stream`.
    recordings : list of Recording
    first_ns, last_ns : int
    all_stacked : bool
    parts : list of Part
    crossing : list of (recording, piece, list of int)
        Pieces that may hold records in flight at borders, and which borders: parts, by number, that begin there.
    """

    facts: Trace
    recordings: list[Recording]
    first_ns: int
    last_ns: int
    all_stacked: bool
    parts: list[Part]
    crossing: list[tuple[int, int, list[int]]]


def plan_of(recordings: Sequence[Recording], surveys: Sequence[Survey], parts: int) -> Plan:
    """Cut a set into about as many parts as asked for, with as many records each.

    Raises
    ------
    FlextraceError
        The recordings cannot be one workload: some have not run, or a clock is not known.
    """
    placed = _placed(recordings, surveys)
    pieces = [
        (number, at, _shifted(piece, recording.shift_ns))
        for number, (recording, survey) in enumerate(zip(placed, surveys, strict=True))
        for at, piece in enumerate(survey.pieces)
    ]
    timed = [piece for _, _, piece in pieces if piece.timed]
    borders = _borders(timed, parts)
    bounds = [0, *borders, NEVER]
    places: list[list[Place]] = [[] for _ in bounds[1:]]
    crossing = []
    open_ns: dict[int, int] = {}
    for number, at, piece in pieces:
        before = open_ns.get(number, 0)
        low, high = min(piece.first_ns, NEVER - 1), piece.last_ns
        if piece.begins_with_data:
            low, high = min(low, before), max(high, before)
        first = int(np.searchsorted(bounds, low, side="right")) - 1
        for part in range(first, len(places)):
            if bounds[part] > high:
                break
            places[part].append(Place(number, at, before))
        if piece.last_block_ns >= 0:
            open_ns[number] = piece.last_block_ns
        if crossed := [part for part, border in enumerate(borders, 1) if piece.first_ns < border < piece.end_ns]:
            crossing.append((number, at, crossed))
    return Plan(
        facts=_facts(placed, surveys),
        recordings=placed,
        first_ns=min((piece.first_ns for piece in timed), default=0),
        last_ns=max((piece.end_ns for piece in timed), default=0),
        all_stacked=not any(survey.unstacked for survey in surveys),
        parts=[Part(low, high, its) for (low, high), its in zip(pairwise(bounds), places, strict=True)],
        crossing=crossing,
    )


def _shifted(piece: Piece, shift_ns: int) -> Piece:
    return replace(
        piece,
        first_ns=piece.first_ns + shift_ns if piece.timed else NEVER,
        last_ns=piece.last_ns + shift_ns if piece.timed else -1,
        end_ns=piece.end_ns + shift_ns if piece.timed else -1,
        last_block_ns=piece.last_block_ns + shift_ns if piece.last_block_ns >= 0 else -1,
        starts=piece.starts + shift_ns,
    )


def _borders(pieces: Sequence[Piece], parts: int) -> list[int]:
    """Times between the first and the last start at which parts begin."""
    if not pieces:
        return []
    starts = np.concatenate([piece.starts for piece in pieces])
    weights = np.concatenate([np.full(len(piece.starts), piece.timed / len(piece.starts)) for piece in pieces])
    order = np.argsort(starts, kind="stable")
    reached = np.cumsum(weights[order])
    wanted = reached[-1] * np.arange(1, parts) / parts
    chosen = starts[order][np.minimum(np.searchsorted(reached, wanted), len(order) - 1)]
    return [int(border) for border in np.unique(chosen) if border > min(piece.first_ns for piece in pieces)]


def _placed(recordings: Sequence[Recording], surveys: Sequence[Survey]) -> list[Recording]:
    """The recordings on one clock, with numbers that no two have in common."""
    shifts = _shifts(recordings) if len(recordings) > 1 else [0]
    placed = []
    files = tasks = operations = 0
    devices: set[int] = set()
    for recording, survey, shift in zip(recordings, surveys, shifts, strict=True):
        taken = devices | survey.devices
        free = (number for number in range(1, NUMBERS_END) if number not in taken)
        table = {device: next(free) for device in sorted(survey.devices & devices) if device}
        numbered = replace(recording, files=files, tasks=tasks, operations=operations, devices=table)
        placed.append(replace(numbered, records=survey.records, shift_ns=shift))
        devices |= {table.get(device, device) for device in survey.devices}
        files += survey.file
        tasks += survey.task
        operations += survey.operation
        if max(files, tasks) >= NUMBERS_END or operations >= OPERATIONS_END:
            raise FlextraceError(
                f"the numbers of files, threads or operations up to {recording.path} are too many for one workload: "
                "give fewer files"
            )
    return placed


def _shifts(recordings: Sequence[Recording]) -> list[int]:
    """What to add to the times of each, so that all are on one clock of the day and none is negative."""
    ahead = []
    for recording in recordings:
        raw = recording.header
        if int(raw["flags"]) & _RUN_KINDS:
            raise FlextraceError(
                f"{recording.path} has not run yet, and has no time at which it ran beside the others: "
                "characterize it alone, or record its replay"
            )
        if not raw["start_realtime_ns"]:
            raise FlextraceError(
                f"{recording.path} does not say when it was recorded, and cannot be put beside the others in time: "
                "characterize it alone"
            )
        ahead.append(int(raw["start_realtime_ns"]) - int(raw["start_monotonic_ns"]))
    return [mine - min(ahead) for mine in ahead]


def _facts(recordings: Sequence[Recording], surveys: Sequence[Survey]) -> Trace:
    each = [_facts_of(*pair) for pair in zip(recordings, surveys, strict=True)]
    if len(each) == 1:
        return each[0]
    flags, lost, count = HeaderFlag(0), dict.fromkeys(RecordKind, 0), dict.fromkeys(RecordKind, 0)
    paths: dict[int, str] = {}
    taken: set[str] = set()
    for number, facts in enumerate(each, 1):
        flags |= facts.header.flags | (HeaderFlag.INCOMPLETE if facts.header.lacks_uncounted else HeaderFlag(0))
        for kind in RecordKind:
            lost[kind] += facts.header.lost.get(kind, 0)
            count[kind] += facts.header.count[kind]
        names = numbered(set(facts.paths.values()), taken, number)
        paths |= {file: names[path] for file, path in facts.paths.items()}
        taken.update(names.values())
    # Where one recorder was killed nobody knows when; its records may go on behind the end of the others.
    ended = all(facts.header.start_monotonic_ns < facts.header.end_monotonic_ns for facts in each)
    header = Header(
        flags=flags,
        start_monotonic_ns=min(facts.header.start_monotonic_ns for facts in each),
        start_realtime_ns=min(facts.header.start_realtime_ns for facts in each),
        end_monotonic_ns=max(facts.header.end_monotonic_ns for facts in each) if ended else 0,
        end_realtime_ns=max(facts.header.end_realtime_ns for facts in each) if ended else 0,
        count=count,
        lost={kind: lost[kind] for kind in RecordKind if lost[kind]},
        metadata=joint_metadata(each),
    )
    arrays: Arrays = {kind: np.concatenate([facts.arrays[kind] for facts in each]) for kind in each[0].arrays}
    together = Trace(header, arrays, paths, None, [warning for facts in each for warning in facts.warnings])
    for number, (recording, its, facts) in enumerate(zip(recordings, surveys, each, strict=True), 1):
        devices = {device: recording.devices.get(device, device) for device in its.devices if device}
        named = {new: facts.device_name(old) for old, new in devices.items()}
        names = numbered(set(named.values()), set(together.device_names.values()), number)
        together.device_names |= {device: names[name] for device, name in named.items()}
        if recording.tasks:
            together.process_names |= {it: f"{name} ({number})" for it, name in process_names(facts).items()}
    return together


def _facts_of(recording: Recording, survey: Survey) -> Trace:
    """What `characterize.stream` has of one trace, on the clock and with the numbers of the set."""
    arrays = {kind: np.zeros(0, dtype) for kind, dtype in RECORD_DTYPE.items()}
    for kind in SMALL:
        found = np.concatenate([arrays[kind], *survey.small[kind]])
        records = recording.relabelled(found.view(np.uint8).reshape(-1, TRACE_RECORD_BYTES))
        arrays[kind] = records.view(RECORD_DTYPE[kind]).reshape(-1)
    content = Content(recording.head, recording.file_bytes, arrays, np.zeros(0, np.int64), recording.text)
    facts = trace_of(recording.path, content)
    header = facts.header
    header.count = {kind: int(survey.count[kind]) for kind in RecordKind}
    if header.start_monotonic_ns:
        header.start_monotonic_ns += recording.shift_ns
        header.end_monotonic_ns += recording.shift_ns
    return facts


def input_of(each: Sequence[dict]) -> dict:
    """What a document says of the input, made of that of every file (`characterize.trace_files.provenance`)."""
    if len(each) == 1:
        return each[0]
    inputs = [it["input"] for it in each]
    parents = [Path(it["path"]).parent for it in inputs]
    if len({parent.is_absolute() for parent in parents}) > 1:
        parents = [parent.absolute() for parent in parents]
    directory = os.path.commonpath(parents)
    return {
        **each[0],
        "input": {
            "path": f"{len(inputs)} recordings in {directory or '.'}",
            "bytes": sum(it["bytes"] for it in inputs),
            "sha256": None,
            "files": inputs,
        },
    }
