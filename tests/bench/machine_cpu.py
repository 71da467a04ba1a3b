# SPDX-License-Identifier: Apache-2.0
"""Turns a command into one that also tells how long all processors of the machine were busy while it ran.

Read inside the tracer, right before and after the load: what a tracer needs to start and to end is not in it, and what
the kernel, its threads and the tracer do meanwhile is. A tick is 10 ms: noisy below a second, but not disturbed by how
long a shared disk takes.
"""

from __future__ import annotations

import os
from pathlib import Path

# Shell builtins only, so that nothing else is started.
SCRIPT = """
read -r line </proc/stat; echo "$line" >"$0"
"$@"; status=$?
read -r line </proc/stat; echo "$line" >>"$0"
exit $status
"""
COLUMNS_BUSY = (1, 2, 3, 6, 7)  # user, nice, system, irq, softirq; not idle, iowait, steal


def with_busy_time(command: list[str], report: Path) -> list[str]:
    """The command that runs ``command`` and leaves its figures in ``report``."""
    return ["sh", "-c", SCRIPT, str(report), *command]


def busy_ns(report: Path) -> float:
    """Busy time of all processors together while the command ran."""
    before, after = (line.split() for line in report.read_text().splitlines())
    ticks = sum(int(after[column]) - int(before[column]) for column in COLUMNS_BUSY)
    return ticks * 1e9 / os.sysconf("SC_CLK_TCK")
