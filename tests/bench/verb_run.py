# SPDX-License-Identifier: Apache-2.0
"""Runs a verb in a process of its own: how long that took, by the clock and of processors, and its memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass

# Not by getrusage, which a child begins with its parent's.
TELLING_ITS_MEMORY = """
import sys
from flextrace.main import main
status = main(sys.argv[1:])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")))
sys.exit(status)
"""


@dataclass(frozen=True)
class VerbRun:
    """Of one command, with the start of the program."""

    elapsed_s: float
    processor_s: float
    peak_bytes: int  # of its resident set


def run_verb(*words: object) -> VerbRun:
    """One that succeeds."""
    begin, before = time.monotonic(), os.times()
    command = [sys.executable, "-c", TELLING_ITS_MEMORY, *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    elapsed_s, after = time.monotonic() - begin, os.times()
    processor_s = after.children_user + after.children_system - before.children_user - before.children_system
    peak = done.stdout[done.stdout.rindex("VmHWM:") :]
    return VerbRun(elapsed_s, processor_s, int(peak.split()[1]) * 1024)
