# SPDX-License-Identifier: Apache-2.0
"""The trace of a run against bpftrace, which counted the same run in the kernel's own vfs_read and vfs_write.

Runs only in a VM: fentry programs are refused where the project is developed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import characterize
from characterize.layout import IoFlag, IoOp, Source
from tests.truths.known_io import KNOWN_IO
from tests.truths.told import RECORDER

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not os.environ.get("FLEXTRACE_VM"), reason="needs fentry: runs in a VM (make test-vm)"),
    pytest.mark.skipif(not shutil.which("bpftrace"), reason="bpftrace is not installed"),
]

# bpftrace has no octal numbers: (mode & S_IFMT) == S_IFREG.
PROBE = """
kretfunc:vfs_{call} / comm == "known_io" && retval >= 0 && (args->file->f_inode->i_mode & 0xf000) == 0x8000 / {{
    @{call}_calls = count();
    @{call}_bytes = sum(retval);
}}
"""


def counted_by_bpftrace(log: Path, *command: str | Path) -> dict[str, int]:
    """Calls and bytes of regular files while a command runs, which starts only when the probes are attached."""
    script = "".join(PROBE.format(call=call) for call in ("read", "write"))
    done = subprocess.run(
        ["bpftrace", "-f", "json", "-o", log, "-c", " ".join(map(str, command)), "-e", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events = map(json.loads, log.read_text().splitlines())
    return {name[1:]: number for event in events if event["type"] == "map" for name, number in event["data"].items()}


def counted_by_trace(trace: characterize.Trace) -> dict[str, int]:
    # A call of many buffers (readv) does not go through vfs_read.
    one_buffer = (trace.io["flags"] & int(IoFlag.VECTORED)) == 0
    done = trace.io[one_buffer & (trace.io["result"] >= 0) & (trace.io["source"] == Source.SYSCALL)]
    counted: dict[str, int] = {}
    for op in (IoOp.READ, IoOp.WRITE):
        results = done.loc[done["op"] == op, "result"]
        counted |= {f"{op.name.lower()}_calls": len(results), f"{op.name.lower()}_bytes": int(results.sum())}
    return counted


def test_calls_and_bytes_are_those_that_vfs_read_and_vfs_write_saw(tmp_path):
    directory = tmp_path / "known"
    directory.mkdir()
    trace_path = tmp_path / "t"
    truth = counted_by_bpftrace(tmp_path / "log", RECORDER, "-o", trace_path, "--", KNOWN_IO, directory)
    trace = characterize.open(trace_path)
    assert not trace.header.lost
    assert truth["read_calls"] > 1000
    assert truth["write_calls"] > 1000
    assert counted_by_trace(trace) == truth
