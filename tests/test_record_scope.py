# SPDX-License-Identifier: Apache-2.0
"""What belongs to a recording and what does not: limits that its end meets, filters of names, the recorder itself."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

import characterize
from characterize.layout import HeaderFlag, IoOp
from tests.told import run_recorder

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="recording needs root"),
    pytest.mark.skipif(not Path("/sys/kernel/btf/vmlinux").exists(), reason="this kernel has no BTF"),
]


def open_trace(path: Path) -> characterize.Trace:
    trace = characterize.open(path)
    assert not trace.header.flags & HeaderFlag.INCOMPLETE
    return trace


def test_a_limit_that_only_the_last_records_meet_is_told(tmp_path):
    """All records of a program of some ms are held back until it has ended."""
    script = f"dd if=/dev/zero of={tmp_path}/file bs=1 count=17000; exit 5"
    options = ("--max-size", "1M", "--layer", "vfs")
    done = run_recorder(tmp_path / "t", "sh", "-c", script, options=options)
    assert done.returncode == 5, done.stderr
    trace = open_trace(tmp_path / "t")
    assert (tmp_path / "t").stat().st_size <= 1 << 20
    written = (trace.io["op"] == IoOp.WRITE).sum()
    assert written + trace.header.metadata["lost"].get("IO", 0) < 17000
    assert trace.header.metadata["stopped_by"] == "max-size"
    assert "ended at 1048576 bytes (--max-size)" in done.stderr
    # What came later is no part of its time.
    operations = pd.concat([trace.io, trace.fileops])
    assert (operations["start_ns"] + operations["duration_ns"]).max() == trace.header.end_monotonic_ns
    realtime_ns = trace.header.end_realtime_ns - trace.header.start_realtime_ns
    assert abs(realtime_ns - (trace.header.end_monotonic_ns - trace.header.start_monotonic_ns)) < 10_000_000
