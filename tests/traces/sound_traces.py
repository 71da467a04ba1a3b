# SPDX-License-Identifier: Apache-2.0
"""What a trace made of traces has to be: sound, and such that the engine does all of it; and one to make them of."""

import numpy as np

from characterize import trace as trace_file
from characterize.layout import Fileop, IoFlag, RecordKind
from replayer.run import replay
from tests.traces.flexible_traces import Recording

PAGE = 4096
SECOND_NS = 10**9


def assert_sound(trace):
    """Ids are unique, and everything that is used is described."""
    io, fileops = trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILEOP]
    ids = np.concatenate([io["id"], fileops["id"]])
    assert len(np.unique(ids)) == len(ids)
    files = trace.arrays[RecordKind.FILE]["file"]
    assert len(np.unique(files)) == len(files)
    assert set(io["file"]) | set(fileops["file"]) <= set(files)
    assert set(io["thread"]) | set(fileops["thread"]) <= set(trace.arrays[RecordKind.TASK]["thread"])


def assert_replays(trace, tmp_path, skipped=0):
    """The engine does every operation with the recorded result."""
    path = trace_file.write(trace, tmp_path / "made.iotrace", force=True)
    result = replay(path, tmp_path / "image")
    assert result["trustworthy"], result["reasons"]
    operations = result["operations"]
    assert (operations["failed"], operations["short"], operations["skipped"]) == (0, 0, skipped)
    assert operations["done"] == len(trace.io) + len(trace.fileops) - skipped
    assert not any(result["mismatches"].values()), result["mismatches"]


def opens(recording, thread, file, **flags):
    recording.operate(Fileop.OPEN, thread, file, **flags)


def log_and_temporary():
    """One thread appends to a log that exists, makes, fills, reads, renames and removes a temporary file."""
    recording = Recording()
    log, table = recording.file("/log", 3 * PAGE), recording.file("/table", 64 * PAGE)
    temporary = recording.file("/t", created=True)
    for file in (log, table):
        opens(recording, 1, file)
    for step in range(5):
        recording.write(1, log, (3 + step) * PAGE, PAGE)
        recording.read(1, table, step * 7 * PAGE, PAGE)
    recording.read(1, log, 8 * PAGE, PAGE, done=0)
    opens(recording, 1, temporary, flags=int(IoFlag.CREATED))
    recording.write(1, temporary, 0, 5 * PAGE)
    recording.read(1, temporary, 4 * PAGE, 2 * PAGE, done=PAGE)
    recording.operate(Fileop.TRUNCATE, 1, temporary, argument=PAGE)
    recording.read(1, temporary, 0, 2 * PAGE, done=PAGE)
    recording.operate(Fileop.UNLINK, 1, temporary)
    return recording.trace()
