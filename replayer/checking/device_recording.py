# SPDX-License-Identifier: Apache-2.0
"""Turns a trace, and the recording of its replay onto a block device, into the block requests that can be compared.

Of the original those that a replay repeats (`replayer.devices.block_lanes`), of the replay those that reached its
device while its threads did their operations: nobody else may use the device meanwhile (docs/decisions/0011).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from characterize.errors import FlextraceError
from characterize.layout import BlockOp, Fileop, IoOp, RecordKind
from characterize.stream import Chunk, Linked, Stream
from characterize.trace import Trace
from replayer.checking.replay_recording import replay_part
from replayer.devices.block_lanes import can_be_repeated

Choice = Callable[[np.ndarray], np.ndarray]
"""Makes of BLOCK records a bool for each."""

_CHANGES = (BlockOp.WRITE, BlockOp.DISCARD, BlockOp.SECURE_ERASE, BlockOp.WRITE_ZEROES)


def original_requests(original: Stream, source: str, *, writes: bool) -> Stream:
    """Of a trace the block requests that a replay onto a device repeats.

    Parameters
    ----------
    original : Stream
    source : str
        ``major:minor`` of the recorded device.
    writes : bool
        Whether the replay may write: else only what changes nothing is repeated.
    """
    major, minor = map(int, source.split(":"))

    def chosen(blocks: np.ndarray) -> np.ndarray:
        mine = (blocks["device"] == major << 20 | minor) & can_be_repeated(blocks)
        return mine if writes else mine & ~np.isin(blocks["op"], _CHANGES)

    return _requests(original, chosen)


def replay_requests(recording: Stream, device: Path) -> Stream:
    """Of the recording of a replay the block requests of its device, from its first operation to its last one.

    Raises
    ------
    FlextraceError
        The device has gone.
    """
    disk, first, sectors = _place_of(device)

    def chosen(blocks: np.ndarray) -> np.ndarray:
        # A partition's requests are recorded as its disk's; a flush is of the whole disk.
        within = (blocks["sector"] >= first) & (blocks["sector"] < first + sectors)
        return (blocks["device"] == disk) & (within | (blocks["op"] == BlockOp.FLUSH))

    return _requests(replay_part(recording), chosen)


def without_writes(placed: Stream) -> Stream:
    """Of a trace that was made for a device the operations that a replay does without ``--write``."""

    def chunks() -> Iterator[Chunk | Linked]:
        for part in placed.chunks():
            if isinstance(part, Chunk):
                io, fileops = part.arrays[RecordKind.IO], part.arrays[RecordKind.FILEOP]
                kept = {
                    RecordKind.IO: io[io["op"] == IoOp.READ],
                    RecordKind.FILEOP: fileops[fileops["op"] != Fileop.FALLOCATE],
                }
                yield Chunk(part.arrays | kept)

    return dataclasses.replace(placed, chunks=chunks)


def _place_of(device: Path) -> tuple[int, int, int]:
    """The number of a block device's disk, and the first sector and the sectors that the device has of it."""
    try:
        number = os.stat(device).st_rdev
        place = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve(strict=True)
        part = (place / "partition").exists()
        major, minor = map(int, (place.parent if part else place).joinpath("dev").read_text().split(":"))
        first = int((place / "start").read_text()) if part else 0
        sectors = int((place / "size").read_text())
    except OSError as error:
        raise FlextraceError(f"cannot look up device {device}: {error.strerror}") from error
    return major << 20 | minor, first, sectors


def _requests(stream: Stream, chosen: Choice) -> Stream:
    """Some block requests of a stream, and nothing else, from the first start to the last end."""

    def chunks() -> Iterator[Chunk]:
        for part in stream.chunks():
            if isinstance(part, Chunk):
                blocks = part.arrays[RecordKind.BLOCK]
                nothing = {kind: records[:0] for kind, records in part.arrays.items()}
                yield Chunk(nothing | {RecordKind.BLOCK: blocks[chosen(blocks)]})

    first, last = None, 0
    for part in chunks():
        blocks = part.arrays[RecordKind.BLOCK]
        if len(blocks):
            first = int(blocks["start_ns"][0]) if first is None else first
            last = max(last, int((blocks["start_ns"] + blocks["duration_ns"]).max()))
    facts = stream.facts
    header = dataclasses.replace(facts.header, start_monotonic_ns=first or 0, end_monotonic_ns=last)
    return Stream(
        facts=Trace(header, facts.arrays, facts.paths, facts.path, facts.warnings),
        chunks=chunks,
        first_ns=first or 0,
        last_ns=last,
        # One device alone: nothing is counted twice.
        all_stacked=True,
    )
