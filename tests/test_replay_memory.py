# SPDX-License-Identifier: Apache-2.0
"""Peak memory of what replay does in Python with a trace: that of a trace ten times as long is no larger."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from characterize.layout import BLOCK_DTYPE, NOT_MEASURED_U64, BlockOp, RecordKind
from characterize.trace import Header
from characterize.trace_writer import write_chunks

ROOT = Path(__file__).resolve().parent.parent
SMALL, LARGE = 100_000, 1_000_000
PIECE_RECORDS = 1 << 14
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
        "from replayer.device_places import Geometry\nfrom replayer.device_trace import make_device_trace\n"
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
