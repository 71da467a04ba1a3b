# SPDX-License-Identifier: Apache-2.0
"""Peak memory of what replay does in Python with a trace: that of a trace ten times as long is no larger."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from characterize.layout import BLOCK_DTYPE, FILE_DTYPE, NOT_MEASURED_U64, TASK_DTYPE, WAKE_DTYPE, BlockOp, RecordKind
from characterize.trace import Header
from characterize.trace_files.trace_writer import write_chunks
from tests.bench.large_trace import FILE_BYTES, GAP_NS, read_pieces
from tests.truths.straced import ROOT

pytestmark = pytest.mark.parallel

SMALL, LARGE = 100_000, 1_000_000
PIECE_RECORDS = 1 << 13
"""Small beside what may wait of the operations of a trace below: the last chunk has up to two pieces."""
SPREAD_BYTES = 16 << 20
"""By which two runs of the same program differ at most; the large trace has 64 MB, so that holding it would show."""

MEASURED = """
import resource, sys
from pathlib import Path
from characterize.stream import open_stream
{imports}
def measured(path):
    {call}
measured(Path(sys.argv[1]))  # what is compiled and imported once is no matter of the trace
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
measured(Path(sys.argv[2]))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def growth_bytes(small: Path, large: Path, imports: str, call: str) -> int:
    """By how much the peak of a process grows when, after a small trace, it has a large one."""
    script = MEASURED.format(imports=imports, call=call)
    done = subprocess.run(
        [sys.executable, "-c", script, small, large], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def block_pieces(count: int):
    """Requests of one device, up to 16 in flight."""
    random = np.random.default_rng(1)
    for first in range(0, count, SMALL):
        number = np.arange(first, first + SMALL)
        blocks = np.zeros(SMALL, BLOCK_DTYPE)
        blocks["kind"], blocks["device"], blocks["form"] = RecordKind.BLOCK, 8 << 20, 1
        blocks["op"] = np.where(number % 3, BlockOp.READ, BlockOp.WRITE)
        blocks["start_ns"], blocks["duration_ns"] = 1000 * (number + 1), random.integers(1, 16_000, SMALL)
        blocks["sector"], blocks["bytes"] = 8 * random.integers(0, 1 << 20, SMALL), 4096
        blocks["queued_ns"] = NOT_MEASURED_U64
        yield {RecordKind.BLOCK: blocks}, {}


@pytest.fixture
def block_traces(tmp_path):
    paths = []
    for count in (SMALL, LARGE):
        paths.append(tmp_path / f"{count}.iotrace")
        assert write_chunks(block_pieces(count), Header, paths[-1]) == count
    return paths


def test_a_device_trace_is_made_in_memory_that_its_length_does_not_set(block_traces):
    imports = (
        "from replayer.devices.device_places import Geometry\n"
        "from replayer.devices.device_trace import make_device_trace\n"
        "from characterize.layout import TRACE_HEADER_BYTES, TRACE_RECORD_BYTES"
    )
    call = (
        f"stream, made = open_stream(path, {PIECE_RECORDS}), path.with_suffix('.device')\n"
        "    notes = make_device_trace(stream, made, Geometry(8 << 30, 4096), fit='scale')\n"
        "    assert notes['lanes'] <= 16\n"
        "    records = sum(stream.facts.header.count.values())\n"
        "    assert (made.stat().st_size - TRACE_HEADER_BYTES) // TRACE_RECORD_BYTES >= records"
    )
    assert growth_bytes(*block_traces, imports, call) < SPREAD_BYTES


THREADS = 4
FIRST_THREAD = 70_000
"""Of the replay."""
WOKEN = 10
"""Every so many calls one was woken after the last of another thread that had ended for certain."""


def run_pieces(count: int, first_thread: int, path_of):
    """A run of threads with a file each, and what a recording says of threads and files."""
    files, tasks = np.zeros(THREADS, FILE_DTYPE), np.zeros(THREADS, TASK_DTYPE)
    number = 1 + np.arange(THREADS)
    files["kind"], files["type"], files["file"], files["size_bytes"] = RecordKind.FILE, 1, number, FILE_BYTES
    tasks["kind"], tasks["thread"] = RecordKind.TASK, first_thread + number
    tasks["comm"] = [f"play {thread}".encode() for thread in number]
    yield {RecordKind.FILE: files, RecordKind.TASK: tasks}, {file: path_of(file) for file in number.tolist()}
    for io in read_pieces(count, THREADS):
        io["thread"] += first_thread
        io["id"] = io["start_ns"] // GAP_NS + 1
        calls = io[io["id"] % WOKEN == 0]
        wakes = np.zeros(len(calls), WAKE_DTYPE)
        wakes["kind"], wakes["cause"] = RecordKind.WAKE, calls["id"] - np.uint64(THREADS + 1)
        for name in ("start_ns", "duration_ns", "thread", "process", "id"):
            wakes[name] = calls[name]
        yield {RecordKind.IO: io, RecordKind.WAKE: wakes}, {}


def test_a_replay_is_compared_in_memory_that_its_length_does_not_set(tmp_path):
    paths = []
    for count in (SMALL, LARGE):
        paths.append(tmp_path / f"{count}.iotrace")
        write_chunks(run_pieces(count, 0, lambda file: f"/data/{file}"), Header, paths[-1])
        again = paths[-1].with_suffix(".replay")
        write_chunks(run_pieces(count, FIRST_THREAD, lambda file: f"/image/f{file:08}"), Header, again)
    imports = (
        "from replayer.checking.order_check import check_order\n"
        "from replayer.checking.replay_recording import replay_part, run_part\n"
        "from selfscale.comparing.fidelity import comparison_of"
    )
    call = (
        f"trace, recording = (open_stream(one, {PIECE_RECORDS}) for one in (path, path.with_suffix('.replay')))\n"
        "    replay = replay_part(recording)\n"
        f"    check = check_order(trace, replay, near_operations={SMALL // 4}, waiting_operations={SMALL // 4})\n"
        "    assert check.compared == check.expected == int(path.stem)\n"
        "    assert check.violations == check.far == check.added == 0\n"
        f"    assert check.rules['wake_ups'].checked == int(path.stem) // {WOKEN}\n"
        "    assert comparison_of(run_part(trace), replay)['distance']['read'] == {'ks': 0, 'emd_share': 0}"
    )
    assert growth_bytes(*paths, imports, call) < SPREAD_BYTES
