# SPDX-License-Identifier: Apache-2.0
"""Rings of CPUs that are not online when recording begins: what memory they take, and that nothing is lost in silence.

The recorder is shown other CPUs than there are.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import characterize
from characterize.layout import IoOp, RecordKind
from tests.truths.told import run_recorder

CPUS = Path("/sys/devices/system/cpu")

# What each possible CPU has of the tables of the recorder that has started this: bytes by line.
TABLES = """
import os
for entry in os.scandir(f"/proc/{os.getppid()}/fdinfo"):
    fields = dict(line.rstrip().split(":\t", 1) for line in open(entry.path) if ":\t" in line)
    if fields.get("map_type") in {"5", "6"}:  # BPF_MAP_TYPE_PERCPU_HASH and _ARRAY
        print(int(fields["value_size"]) * int(fields["max_entries"]))
"""

pytestmark = pytest.mark.records


def seeing(tmp_path: Path, **lists: str) -> list[str]:
    """What stands before a program that is to see these lists of CPUs."""
    mounts = ""
    for name, text in lists.items():
        (tmp_path / name).write_text(f"{text}\n")
        mounts += f"mount --bind {tmp_path / name} {CPUS / name} && "
    return ["unshare", "--mount", "sh", "-c", f'{mounts} exec "$@"', "sh"]


def test_cpus_that_are_only_possible_take_little_memory(tmp_path):
    before = seeing(tmp_path, possible="0-127", online="0-1")
    done = run_recorder(tmp_path / "t", "true", before=before, options=("--dry-run", "--ring-bytes", "16M"))
    assert done.returncode == 0, done.stderr
    told = "rings         2 x 16777216 bytes + 126 x 262144 bytes, of CPUs that are not online, = 63 MiB of memory"
    assert told in done.stdout


def test_a_possible_cpu_takes_little_memory_in_tables(tmp_path):
    done = run_recorder(tmp_path / "t", "python3", "-I", "-c", TABLES)
    sizes = [int(line) for line in done.stdout.split()]
    assert len(sizes) > 5, done.stderr
    assert sum(sizes) < (64 << 10) + 64 * len(os.listdir("/sys/block"))


def test_what_is_done_on_a_cpu_that_came_online_later_is_recorded_or_counted(tmp_path):
    """As the recorder sees it: here the last one has always been there."""
    last = (os.cpu_count() or 1) - 1
    if not last:
        pytest.skip("there is only one CPU")
    writes = 20_011
    command = f"taskset -c {last} dd if=/dev/zero of={tmp_path}/file bs=1 count={writes}"
    before = seeing(tmp_path, online="0")
    options = ("--layer", "vfs", "--ring-bytes", "16M")
    done = run_recorder(tmp_path / "t", *command.split(), before=before, options=options)
    trace = characterize.open(tmp_path / "t")
    written = trace.io[(trace.io["op"] == IoOp.WRITE) & (trace.io["asked_bytes"] == 1)]
    assert len(written) <= writes <= len(written) + trace.header.lost.get(RecordKind.IO, 0)
    assert done.returncode == (3 if trace.header.lost else 0), done.stderr
    assert trace.header.metadata["ring"]["memory_bytes"] == (16 << 20) + last * (256 << 10)
