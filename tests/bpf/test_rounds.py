# SPDX-License-Identifier: Apache-2.0
"""When the recorder looks into its rings: rarely, but at once for a file that is new, and before a ring is full.

And what it looks at stays as it was.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import characterize
from characterize.layout import IoFlag, IoOp
from tests.machines.own_place import own_place
from tests.truths.page_cache import PAGE_BYTES, cache_only, resident_pages
from tests.truths.told import RECORDER, run_recorder, wait_for_recording

ATTEMPTS = 5
INTERVAL_S = 0.020
PAGES = 64
CACHED = [(3 * PAGE_BYTES, 8 * PAGE_BYTES)]
FILES = 20

pytestmark = pytest.mark.records

# Each file is read as a whole while the recorder still holds its FILE record back, which it does for 40 ms.
OPEN_AND_READ = f"""
import os, sys, time
for number in range({FILES}):
    file = os.open(f"{{sys.argv[1]}}/{{number}}", os.O_RDONLY)
    time.sleep(0.020)
    os.pread(file, {PAGES * PAGE_BYTES}, 0)
"""

# The recorder has looked for holes in each file before it is written.
OPEN_AND_WRITE = f"""
import os, sys, time
for number in range({FILES}):
    file = os.open(f"{{sys.argv[1]}}/{{number}}", os.O_WRONLY)
    time.sleep(0.020)
    os.pwrite(file, b"seven..", 0)
"""

# Fills most of a ring of its processor again and again, which takes less than the time between two rounds.
RING_BYTES = 128 << 10
BURSTS, BURST_WRITES = 100, 1400  # of 72 bytes in the ring
FILL_RING = f"""
import os, sys, time
os.sched_setaffinity(0, {{max(os.sched_getaffinity(0))}})
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for _ in range({BURSTS}):
    for _ in range({BURST_WRITES}):
        os.pwrite(file, b"seven..", 0)
    time.sleep(0.005)
"""


def sleeps(process: int) -> int:
    """How often its first thread has gone to sleep."""
    status = Path(f"/proc/{process}/task/{process}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[1])


def test_rounds_are_few_where_nothing_happens():
    with own_place() as memory:
        command = [RECORDER, "-o", memory / "t", "--", "sleep", "600"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
            wait_for_recording(recorder.stderr)
            begin, before = time.monotonic(), sleeps(recorder.pid)
            time.sleep(1)
            count = sleeps(recorder.pid) - before
            elapsed = time.monotonic() - begin
            recorder.send_signal(signal.SIGINT)
    # The first ones, for the program's own files, are near each other; once a second it writes.
    assert count <= elapsed / INTERVAL_S + 20


def test_what_was_cached_is_asked_before_the_program_has_read_on(tmp_path):
    """On a busy machine the recorder may come too late, but not for all of the files."""
    for number in range(FILES):
        path = tmp_path / str(number)
        path.write_bytes(os.urandom(PAGES * PAGE_BYTES))
        cache_only(path, CACHED)
    before = {str(tmp_path / str(number)): resident_pages(tmp_path / str(number)) for number in range(FILES)}
    done = run_recorder(tmp_path / "t", sys.executable, "-c", OPEN_AND_READ, tmp_path)
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    told = trace.resident.groupby(trace.resident["file"].map(trace.paths))["bytes"].sum()
    cached = {path: PAGE_BYTES * sum(pages) for path, pages in before.items()}
    assert all(0 < cached[path] < PAGE_BYTES * sum(resident_pages(Path(path))) for path in cached)
    assert any(told.get(path) == cached[path] for path in cached)


def test_looking_at_a_file_does_not_change_what_its_next_write_does(tmp_path):
    """Since Linux 6.13 a write does more to a file whose times somebody has asked for (IoFlag.CTIME_QUERIED)."""
    for number in range(FILES):
        (tmp_path / str(number)).write_bytes(bytes(PAGE_BYTES))
    done = run_recorder(tmp_path / "t", sys.executable, "-c", OPEN_AND_WRITE, tmp_path)
    assert done.returncode == 0, done.stderr
    io = characterize.open(tmp_path / "t").io
    writes = io[io["op"] == IoOp.WRITE]
    assert len(writes) == FILES
    assert not (writes["flags"] & int(IoFlag.CTIME_QUERIED)).any()


def test_a_ring_that_fills_between_two_rounds_loses_nothing(tmp_path):
    """On a busy machine the recorder may come too late, but not in all of the runs."""
    options = ("--layer", "vfs", "--force", "--ring-bytes", str(RING_BYTES))
    for _ in range(ATTEMPTS):
        run_recorder(tmp_path / "t", sys.executable, "-c", FILL_RING, tmp_path / "file", options=options)
        trace = characterize.open(tmp_path / "t")
        writes = trace.io[(trace.io["op"] == IoOp.WRITE) & (trace.io["asked_bytes"] == len("seven.."))]
        if not trace.header.lost:
            break
    assert not trace.header.lost
    assert len(writes) == BURSTS * BURST_WRITES
