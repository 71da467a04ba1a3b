# SPDX-License-Identifier: Apache-2.0
"""flextrace-record as a tracer of a load, and what its traces say: losses and bytes through the rings."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from characterize.layout import TRACE_RECORD_BYTES, RecordKind
from characterize.trace import Trace
from characterize.trace import open as open_trace
from replayer.running.binaries import find_binary
from tests.bench.load import Load
from tests.told import wait_for_recording

RING_RECORD_BYTES = TRACE_RECORD_BYTES + 8  # and the header that the kernel's ring buffer gives each event
RING_KINDS = (RecordKind.IO, RecordKind.FILEOP, RecordKind.BLOCK)
END_SECONDS_MAX = 120


@dataclass(frozen=True)
class Recording:
    """What one trace says of itself."""

    data_operations: int
    other_operations: int  # file operations and block requests
    ring_bytes: int
    lost: int


def ring_bytes(trace: Trace) -> int:
    """Bytes that went through the rings: as the recorder counted them, or else by the records that must have."""
    metadata = trace.header.metadata
    # Without the count of events the same key is the size of a ring.
    if "ring_events" in metadata:
        return int(metadata["ring_bytes"])
    return RING_RECORD_BYTES * sum(trace.header.count[kind] for kind in RING_KINDS)


def read_recording(path: Path) -> Recording:
    """Take in a trace and remove it."""
    trace = open_trace(path)
    count = trace.header.count
    recording = Recording(
        count[RecordKind.IO],
        count[RecordKind.FILEOP] + count[RecordKind.BLOCK],
        ring_bytes(trace),
        sum(trace.header.lost.values()),
    )
    path.unlink()
    return recording


@contextmanager
def recording_of_process(process: int, trace: Path, *options: str) -> Iterator[None]:
    """Record a running process and all its children while inside."""
    command = [str(find_binary("flextrace-record")), "--force", "-o", str(trace), *options, "-p", str(process)]
    recorder = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert recorder.stderr
        wait_for_recording(recorder.stderr)
        yield
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.communicate(timeout=END_SECONDS_MAX)


class Recorder:
    """flextrace-record: before the command, or attached to the server that does the load's I/O."""

    def __init__(self, name: str, *options: str):
        self.name = name
        self.options = options
        self.recordings: list[Recording] = []

    @property
    def lost(self) -> int:
        """Lost records in all recordings."""
        return sum(recording.lost for recording in self.recordings)

    @contextmanager
    def around(self, load: Load, directory: Path) -> Iterator[list[str]]:
        """Record while inside, and read what was recorded."""
        trace = directory / "trace.iotrace"
        if load.server is None:
            yield [str(find_binary("flextrace-record")), "--quiet", "--force", "-o", str(trace), *self.options, "--"]
        else:
            with recording_of_process(load.server, trace, *self.options):
                yield []
        recording = read_recording(trace)
        if not recording.data_operations + recording.other_operations:
            raise RuntimeError(f"{load.title}: {self.name} recorded nothing")
        self.recordings.append(recording)
