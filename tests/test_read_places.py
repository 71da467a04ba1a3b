# SPDX-License-Identifier: Apache-2.0
"""Where in memory the engine's reads go to, told by strace."""

import re
import subprocess

import pytest

import characterize
from tests.made_trace import made_trace, read
from tests.straced import ENGINE, needs_engine, needs_strace

pytestmark = [needs_engine, needs_strace]

PAGE = 4096
READ_PLACES = 1024
"""replayer/engine/buffer.h"""


def addresses_of(place, sizes, *options):
    """Of one thread's reads of these sizes, a microsecond apart: in turn where they went to, lowest = 0."""
    io = [read(0, size, 1000 + 1000 * at, 500) for at, size in enumerate(sizes)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": max(sizes)}])
    trace = characterize.write(made, place / "reads.iotrace", force=True)
    log = place / "log"
    command = [ENGINE, trace, f"--directory={place / 'image'}", "--engine=sync", *options]
    strace = ["strace", "-f", "-e", "trace=pread64", "-e", "raw=pread64", "-o", log]
    done = subprocess.run([*strace, *command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, 3), done.stderr  # under strace nothing is on time
    calls = re.findall(r"pread64\(\w+, (\w+), (\w+), 0\) = (\w+)", log.read_text())
    assert [int(size, 16) for _, _, size in calls[-len(sizes) :]] == list(sizes)
    addresses = [int(address, 16) for address, _, _ in calls[-len(sizes) :]]
    return [address - min(addresses) for address in addresses]


@pytest.mark.parametrize("timing", ["think", "recorded"])
def test_reads_with_times_go_to_places_that_are_cold(tmp_path, timing):
    """As in an application; no place comes again before as many pages were read as caches hold."""
    addresses = addresses_of(tmp_path, [PAGE] * 1511, f"--timing={timing}")
    assert len(set(addresses[:READ_PLACES])) == READ_PLACES
    assert max(addresses) == (READ_PLACES - 1) * PAGE
    assert addresses[READ_PLACES:] == addresses[: 1511 - READ_PLACES]


def test_reads_without_times_go_to_one_place(tmp_path):
    """As fio's do, beside which their rate is measured."""
    assert set(addresses_of(tmp_path, [PAGE] * 13, "--timing=asap")) == {0}


def test_large_reads_move_within_their_memory(tmp_path):
    """A read of more than the engine maps at once: none fails for its place."""
    assert len(set(addresses_of(tmp_path, [9 << 20] * 3, "--timing=think"))) == 3
