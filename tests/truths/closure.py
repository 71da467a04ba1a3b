# SPDX-License-Identifier: Apache-2.0
"""Whether what a recording has seen of its tasks is what the kernel has counted of them, as in /proc/PID/io."""

from __future__ import annotations

from pathlib import Path

import characterize

TOLERANCE = 0.001
# A network file system, as the root of the VMs is one, charges the reading of programs, which no block device sees.
PROGRAMS_ON_NETWORK = any(
    line.split()[1:3] == ["/", "9p"] for line in Path("/proc/self/mounts").read_text().splitlines()
)
ACCOUNTS = ["rchar", "wchar", "syscr", "syscw", *([] if PROGRAMS_ON_NETWORK else ["read_bytes"]), "write_bytes"]


def agree(seen: int, kernel: int) -> bool:
    return abs(seen - kernel) <= TOLERANCE * kernel


def assert_tasks_agree(trace: characterize.Trace) -> None:
    assert not trace.header.lost
    both = trace.header.metadata["closure"]["tasks"]
    off = {name: both[name] for name in ACCOUNTS if not agree(both[name]["seen"], both[name]["kernel"])}
    assert not off
