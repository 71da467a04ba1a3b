# SPDX-License-Identifier: Apache-2.0
"""Turns a made trace into the recording that a replay of it would have: threads, files and times as the engine's.

And into what the engine would say of that replay, and into the comparison of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from characterize.layout import FileType, RecordKind
from characterize.stream import stream_of
from characterize.trace import Trace
from replayer.checking.repeated_operations import RepeatedIo, repeated_fileops
from selfscale.comparing import fidelity
from tests.traces.made_trace import records

IMAGE = "/scratch/image"
PROCESS = 70_000
DIRECTORY = 9_000_000
SHIFT_NS = 10**12
STEP = 7


def replayed(trace: Trace, *, main_io: Iterable[dict] = (), main_fileops: Iterable[dict] = ()) -> Trace:
    """The recording of a perfect replay of a trace with small file numbers, as fast as the original.

    `main_io` and `main_fileops` are rows of what the engine's main thread does beside it.
    """
    io, fileops = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILEOP]
    arrays = {
        RecordKind.IO: io[RepeatedIo(trace)(io)],
        RecordKind.FILEOP: fileops[repeated_fileops(fileops)],
    }
    every = np.concatenate([trace.arrays[kind]["thread"] for kind in arrays])
    threads = {int(thread): PROCESS + 1 + at for at, thread in enumerate(np.unique(every))}
    files = trace.arrays[RecordKind.FILE]
    directories = files["file"][files["type"] == FileType.DIRECTORY]
    for array in arrays.values():
        array["thread"] = [threads[int(thread)] for thread in array["thread"]]
        array["process"] = PROCESS
        array["start_ns"] += SHIFT_NS
        array["file"] = np.where(np.isin(array["file"], directories), DIRECTORY, array["file"] + 500)
    paths = {file + 500: f"{IMAGE}/f{file:08}" for file in range(1, 100)} | {DIRECTORY: IMAGE}
    main = {"thread": PROCESS, "process": PROCESS, "file": 501}
    for kind, rows in ((RecordKind.IO, main_io), (RecordKind.FILEOP, main_fileops)):
        arrays[kind] = np.concatenate([records(kind, [{**row, **main} for row in rows]), arrays[kind]])
    tasks = [{"thread": PROCESS, "process": PROCESS, "comm": b"flextrace-repla"}]
    tasks += [{"thread": new, "process": PROCESS, "comm": f"play {old}".encode()} for old, new in threads.items()]
    arrays[RecordKind.TASK] = records(RecordKind.TASK, tasks)
    return Trace(trace.header, arrays, paths)


def result(trace: Trace, **changes: Any) -> dict[str, Any]:
    """What the engine says of a replay that went as recorded."""
    records = len(trace.io) + len(trace.fileops)
    return {
        "schema": "flextrace.replay/1",
        "trace": "/data/t.iotrace",
        "timing": "think",
        "order": "recorded",
        "cache": "recorded",
        "stopped": "end",
        "operations": {"records": records, "skipped": 0},
        "mismatches": {},
        "accuracy": {},
        "reasons": [],
        **changes,
    }


def fidelity_of(trace: Trace, recording: Trace, document: dict[str, Any]) -> dict[str, Any]:
    """Of both read in small pieces."""
    return fidelity.fidelity_of(stream_of(trace, STEP), stream_of(recording, STEP), document)
