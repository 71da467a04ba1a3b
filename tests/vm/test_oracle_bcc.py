# SPDX-License-Identifier: Apache-2.0
"""The trace of a run against a BCC script, which saw each call of the same run in the kernel's vfs_read and vfs_write.

Runs only in a VM: kprobes are refused where the project is developed.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import characterize
from characterize.layout import IoFlag, IoOp, Source
from tests.truths.told import PROGRAMS, RECORDER, compare

SCRIPT = Path(__file__).parent / "bcc_vfs.py"
PYTHON = "/usr/bin/python3"
PROGRAM = "known_io"
HEADERS = Path("/lib/modules") / platform.release() / "build"


def has_bcc() -> bool:
    return not subprocess.run([PYTHON, "-c", "import bcc"], capture_output=True, check=False).returncode


pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not os.environ.get("FLEXTRACE_VM"), reason="needs kprobes: runs in a VM (make test-vm)"),
    pytest.mark.skipif(not HEADERS.exists(), reason="the headers of this kernel are not there (tests/vm/fetch_kernel)"),
]


def seen_by_bcc(log: Path) -> Counter[tuple]:
    """(kind, inode, thread, offset, asked, result) of each call."""
    lines = (line.split() for line in log.read_text().splitlines())
    return Counter((kind, *map(int, numbers)) for kind, *numbers in lines)


def recorded(trace: characterize.Trace) -> Counter[tuple]:
    """The same of the trace; a call of many buffers (readv) does not go through vfs_read."""
    inodes = trace.files.drop_duplicates("file").set_index("file")["inode"]
    io = trace.io[(trace.io["source"] == Source.SYSCALL) & ((trace.io["flags"] & int(IoFlag.VECTORED)) == 0)]
    return Counter(
        (IoOp(row.op).name.lower(), int(inodes[row.file]), row.thread, row.offset, row.asked_bytes, row.result)
        for row in io.itertuples()
    )


def test_each_call_is_one_that_bcc_saw(tmp_path):
    if not has_bcc():
        pytest.skip("BCC is not installed (python3-bpfcc)")
    directory = tmp_path / "known"
    directory.mkdir()
    log, trace_path = tmp_path / "log", tmp_path / "t"
    command = [RECORDER, "-o", trace_path, "--", PROGRAMS / PROGRAM, directory]
    done = subprocess.run(
        [PYTHON, SCRIPT, PROGRAM, log, *command], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    trace = characterize.open(trace_path)
    assert not trace.header.lost
    # The first calls of the process are the recorder's, before it becomes the program, and the loader's are both's.
    truth = seen_by_bcc(log)
    assert truth.total() > 2000
    compare(truth.elements(), recorded(trace).elements())
