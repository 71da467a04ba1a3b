# SPDX-License-Identifier: Apache-2.0
"""flextrace-record as a tracer of a load, and what its traces lack."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from characterize.layout import RecordKind
from characterize.trace import open as open_trace
from replayer.running.binaries import find_binary
from tests.bench.load import Load
from tests.truths.told import wait_for_recording

OPERATIONS = (RecordKind.IO, RecordKind.FILEOP, RecordKind.BLOCK)
END_SECONDS_MAX = 120


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
        self.lost = 0

    @contextmanager
    def around(self, load: Load, directory: Path) -> Iterator[list[str]]:
        """Record while inside, and count what was lost."""
        trace = directory / "trace.iotrace"
        if load.server is None:
            yield [str(find_binary("flextrace-record")), "--quiet", "--force", "-o", str(trace), *self.options, "--"]
        else:
            with recording_of_process(load.server, trace, *self.options):
                yield []
        header = open_trace(trace).header
        trace.unlink()
        if not any(header.count[kind] for kind in OPERATIONS):
            raise RuntimeError(f"{load.title}: {self.name} recorded nothing")
        self.lost += sum(header.lost.values())
