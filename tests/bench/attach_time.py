# SPDX-License-Identifier: Apache-2.0
"""How long a recording takes to begin and to end: from its start to its first word, and from Ctrl-C to its exit."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pandas as pd

from replayer.running.binaries import find_binary
from tests.bench.recording import END_SECONDS_MAX
from tests.truths.told import wait_for_recording


def _record_once(process: int, trace: Path) -> dict[str, float]:
    command = [str(find_binary("flextrace-record")), "--force", "-o", str(trace), "-p", str(process)]
    begin = time.monotonic()
    recorder = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert recorder.stderr
    wait_for_recording(recorder.stderr)
    attached = time.monotonic()
    recorder.send_signal(signal.SIGINT)
    recorder.communicate(timeout=END_SECONDS_MAX)
    return {"attach_s": attached - begin, "detach_s": time.monotonic() - attached}


def measure_attach(directory: Path, rounds: int) -> pd.DataFrame:
    """``attach_s, detach_s`` of recordings of a process that does nothing, one row each."""
    sleeper = subprocess.Popen(["sleep", "infinity"])
    try:
        return pd.DataFrame([_record_once(sleeper.pid, directory / "attach.iotrace") for _ in range(rounds)])
    finally:
        sleeper.terminate()
        sleeper.wait()
