# SPDX-License-Identifier: Apache-2.0
"""Turns a probe into its trace where Willy's is not it: a file that is written from its begin again and again, or made
anew, and reads behind that.

The file that is written is none of those that other traces use: these need not be laid out again afterwards. What is
read is none that points write: where every write goes to a new place (btrfs), a file of which single pages were written
at random lies scattered, and applications mostly read what was written in one go (docs/decisions/0026).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from characterize.layout import Fileop, IoFlag, RecordKind
from characterize.workload import Workload
from selfscale.measuring.point_trace import move_files

if TYPE_CHECKING:
    import numpy as np

    from characterize.trace import Trace

NAME, PLACE = "written", "place"
WRITTEN_FILE, PLACE_FILE, FIRST_READ_FILE = 4097, 4098, 4099
"""Numbers: of the file that is written, of the directory of files that are made anew, and of the first process's one of
those that are only read. Points use at most the first `replayer.willy.PROCESSES_MAX`."""
BURST_BYTES, PIECE_BYTES = 8 << 20, 1 << 20
"""What is written back at once before each read, and how it is written."""
BURSTS_APART = 2
"""The same pages are written again no sooner, so that storage is done with them."""
WRITTEN_BYTES = BURSTS_APART * BURST_BYTES
"""Of the largest file of any probe."""


def write_appends(workload: Workload, path: Path, requests: int, seed: int, *, synced: bool) -> None:
    """A trace that appends to a file, and empties it when it has uniqueBytes.

    Parameters
    ----------
    seed : int
        Nothing is random here.
    synced : bool
        An fdatasync follows every write.
    """
    import numpy as np  # noqa: PLC0415 (this and Willy only when something is measured)

    import characterize  # noqa: PLC0415

    trace = _over_and_over(workload, requests, seed)
    io = trace.arrays[RecordKind.IO]
    _add_operations(trace, [(Fileop.TRUNCATE, 0, io["offset"] == 0), (Fileop.FDATASYNC, 2, np.full(len(io), synced))])
    characterize.write(trace, path)


def write_overwrites(workload: Workload, path: Path, requests: int, seed: int) -> None:
    """A trace that goes over the first uniqueBytes of a file again and again: only the first time are they new.

    Parameters
    ----------
    seed : int
        Nothing is random here.
    """
    import characterize  # noqa: PLC0415

    trace = _over_and_over(workload, requests, seed)
    trace.arrays[RecordKind.FILEOP] = trace.arrays[RecordKind.FILEOP][:0]
    trace.header.count[RecordKind.FILEOP] = 0
    characterize.write(trace, path)


def write_new_files(workload: Workload, path: Path, requests: int, seed: int) -> None:
    """A trace that makes a file of one synchronous write, syncs its directory, and removes it, once per request.

    The write is synchronous so that the directory's are the only operations that count as syncs.

    Parameters
    ----------
    seed : int
        Nothing is random here.
    """
    import numpy as np  # noqa: PLC0415

    import characterize  # noqa: PLC0415
    from characterize.layout import FileFlag, FileType  # noqa: PLC0415

    trace = _writes(workload, requests, seed)
    io, files = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILE]
    io["offset"] = 0
    io["flags"] = IoFlag.DSYNC | IoFlag.POSITIONED
    every = np.ones(len(io), bool)
    _add_operations(
        trace,
        [(Fileop.OPEN, 0, every), (Fileop.FSYNC, 2, every), (Fileop.CLOSE, 3, every), (Fileop.UNLINK, 4, every)],
    )
    operations = trace.arrays[RecordKind.FILEOP]
    operations["flags"][operations["op"] == Fileop.OPEN] = IoFlag.CREATED | IoFlag.DSYNC
    place = files.copy()
    place["file"] = PLACE_FILE
    place["type"] = FileType.DIRECTORY
    of_place = operations["op"] == Fileop.FSYNC
    operations["file"][of_place] = PLACE_FILE
    operations["flags"][of_place] = IoFlag.DIRECTORY
    files["flags"] = FileFlag.CREATED
    trace.arrays[RecordKind.FILE] = np.concatenate([files, place])
    trace.header.count[RecordKind.FILE] = 2
    trace.paths = {int(files["file"][0]): f"{PLACE}/{NAME}", int(place["file"][0]): PLACE}
    characterize.write(trace, path)


def write_reads_behind_bursts(workload: Workload, path: Path, requests: int, seed: int) -> None:
    """A trace of Willy's reads, none cached, each right behind `BURST_BYTES` that storage is told to write.

    Parameters
    ----------
    requests : int
        Writes included.
    """
    import numpy as np  # noqa: PLC0415

    import characterize  # noqa: PLC0415
    from characterize.layout import FileFlag, IoOp  # noqa: PLC0415
    from replayer.willy import make_trace  # noqa: PLC0415

    pieces = BURST_BYTES // PIECE_BYTES
    bursts = max(1, requests // (pieces + 1))
    trace = make_trace(workload, requests=bursts, size="fixed", seed=seed, allow_partial=True)
    move_files(trace, FIRST_READ_FILE)
    reads, files = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILE]
    turn, piece = np.arange(bursts) * (pieces + 2), np.arange(bursts * pieces)
    reads["start_ns"] = turn + pieces + 1
    writes = np.repeat(reads, pieces)
    writes["op"], writes["file"] = IoOp.WRITE, WRITTEN_FILE
    writes["asked_bytes"] = writes["result"] = PIECE_BYTES
    writes["offset"] = piece % (BURSTS_APART * pieces) * PIECE_BYTES
    writes["start_ns"] = np.repeat(turn, pieces) + piece % pieces
    writes["id"] = reads["id"].max() + 1 + piece
    flushes = np.zeros(bursts, trace.arrays[RecordKind.FILEOP].dtype)
    for field in ("source", "thread", "process"):
        flushes[field] = reads[field]
    flushes["kind"], flushes["op"], flushes["file"] = RecordKind.FILEOP, Fileop.SYNC_FILE_RANGE, WRITTEN_FILE
    flushes["argument"], flushes["length"] = np.arange(bursts) % BURSTS_APART * BURST_BYTES, BURST_BYTES
    flushes["start_ns"] = turn + pieces
    flushes["id"] = writes["id"].max() + 1 + np.arange(bursts)
    written = files[:1].copy()
    written["file"], written["size_bytes"], written["flags"] = WRITTEN_FILE, 0, FileFlag.CREATED
    files["resident_bytes"] = written["resident_bytes"] = 0
    both = np.concatenate([reads, writes])
    trace.arrays[RecordKind.IO] = both[np.argsort(both["start_ns"], kind="stable")]
    trace.arrays[RecordKind.FILEOP] = flushes
    trace.arrays[RecordKind.FILE] = np.concatenate([files, written])
    for kind in (RecordKind.IO, RecordKind.FILEOP, RecordKind.FILE):
        trace.header.count[kind] = len(trace.arrays[kind])
    trace.paths = {**trace.paths, WRITTEN_FILE: NAME}
    characterize.write(trace, path)


def _writes(workload: Workload, requests: int, seed: int) -> Trace:
    """Willy's writes of one process, all of one size, without a place yet."""
    from replayer.willy import make_trace  # noqa: PLC0415

    trace = make_trace(workload, requests=requests, size="fixed", seed=seed, sync_frac=1.0, allow_partial=True)
    move_files(trace, WRITTEN_FILE)
    files = trace.arrays[RecordKind.FILE]
    files["size_bytes"] = files["resident_bytes"] = 0
    trace.paths = {WRITTEN_FILE: NAME}
    return trace


def _over_and_over(workload: Workload, requests: int, seed: int) -> Trace:
    """The same, from the begin of the file to uniqueBytes again and again."""
    import numpy as np  # noqa: PLC0415

    trace = _writes(workload, requests, seed)
    io = trace.arrays[RecordKind.IO]
    io["offset"] = np.arange(len(io)) % int(workload.unique_bytes // workload.size_mean) * int(workload.size_mean)
    return trace


def _add_operations(trace: Trace, added: Sequence[tuple[Fileop, int, np.ndarray]]) -> None:
    """Give some of the writes operations, in the order of their places: before the write, which has 1, or after it."""
    import numpy as np  # noqa: PLC0415

    io, template = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILEOP]
    turn = np.arange(len(io)) * (1 + max(place for _, place, _ in added))
    io["start_ns"] = turn + 1
    parts = []
    for operation, place, wanted in added:
        part = template[wanted].copy()
        part["op"] = operation
        part["start_ns"] = turn[wanted] + place
        parts.append(part)
    operations = np.concatenate(parts)
    operations = operations[np.argsort(operations["start_ns"], kind="stable")]
    operations["id"] = io["id"].max() + 1 + np.arange(len(operations))
    trace.arrays[RecordKind.FILEOP] = operations
    trace.header.count[RecordKind.FILEOP] = len(operations)
