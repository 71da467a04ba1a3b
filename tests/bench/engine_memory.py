# SPDX-License-Identifier: Apache-2.0
"""Turns a command of the replay engine into its result, when it began, and how much memory it had, by ``/proc``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAMPLE_S = 0.01


@dataclass(frozen=True)
class EngineMemory:
    """Bytes are the largest ones seen; those of the whole are the kernel's own maximum (``VmHWM``)."""

    document: dict[str, Any]
    samples: int
    resident_bytes_max: int
    anonymous_bytes_max: int
    file_bytes_max: int  # pages of mapped files, of the trace above all
    start_s: float  # from the start of the process to that of its threads, just before the first operation
    start_cpu_s: float  # processor time in that


def _threads_started(process: int) -> bool:
    """Whether there are threads of a replay, which are named when they start."""
    try:
        threads = [
            Path(f"/proc/{process}/task/{task}/comm").read_text() for task in os.listdir(f"/proc/{process}/task")
        ]
    except OSError:
        return False
    return any(name.startswith("play ") for name in threads)


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_memory(command: list[str | os.PathLike[str]]) -> EngineMemory:
    """Run the engine, which has to succeed, and sample what it takes."""
    peaks = dict.fromkeys(("VmHWM", "RssAnon", "RssFile"), 0)
    samples, start_s, start_cpu_s = 0, 0.0, 0.0
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        with subprocess.Popen(command, stdout=output) as engine:
            while engine.poll() is None:
                try:
                    status = Path(f"/proc/{engine.pid}/status").read_text()
                except OSError:
                    break
                for name in peaks:
                    found = re.search(rf"{name}:\s+(\d+) kB", status)
                    peaks[name] = max(peaks[name], int(found[1]) * 1024 if found else 0)
                samples += 1
                if not start_s and _threads_started(engine.pid):
                    start_s, start_cpu_s = time.monotonic() - began, _cpu_s(engine.pid)
                time.sleep(SAMPLE_S)
        output.seek(0)
        text = output.read()
    if engine.returncode not in (0, 3):
        raise RuntimeError(f"the engine ended with {engine.returncode}: {command}")
    return EngineMemory(json.loads(text), samples, *peaks.values(), start_s, start_cpu_s)
