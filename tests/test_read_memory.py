# SPDX-License-Identifier: Apache-2.0
"""Memory that threads read into: what the machine lacks is refused before anything is laid out; limits are named."""

import json
import re
import subprocess
from pathlib import Path

import pytest

import characterize
from tests.made_trace import made_trace, read
from tests.straced import ENGINE, needs_engine

pytestmark = needs_engine

WINDOW = 8 << 20  # of a larger buffer no more is there (buffer.h)
THREADS_MAX = 8192  # that are to run at once


def threads_that_read(place, count, size=WINDOW):
    io = [read(0, size, 10 * at, 1, thread=at) for at in range(1, count + 1)]
    return characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": size}]), place / "t.iotrace")


def available():
    told = Path("/proc/meminfo").read_text()
    return sum(int(kib) << 10 for kib in re.findall(r"^(?:MemAvailable|SwapFree): +(\d+) kB", told, re.MULTILINE))


def test_more_than_there_is_is_refused_before_anything_is_laid_out(tmp_path):
    threads = 2 * available() // WINDOW
    if threads > THREADS_MAX:
        pytest.skip(f"to need twice this machine's memory takes {threads} threads")
    trace = threads_that_read(tmp_path, threads)
    command = [ENGINE, trace, f"--directory={tmp_path / 'image'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    needed, there, missing = (int(number) for number in re.findall(r"(\d{6,}) (?:bytes|are)", done.stderr))
    assert needed == threads * WINDOW
    assert missing == needed - there
    assert not (tmp_path / "image").exists()
    done = subprocess.run([*command, "--phase=prepare"], capture_output=True, check=False, timeout=60)
    assert done.returncode == 0  # nothing is read
    null = subprocess.run([ENGINE, trace, "--engine=null"], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(null.stdout)["operations"]["done"] == threads


def test_the_limit_of_mappings_is_named_where_memory_cannot_be_mapped(tmp_path):
    trace = threads_that_read(tmp_path, 100, 1 << 20)
    command = ["prlimit", f"--as={60 << 20}", ENGINE, trace, f"--directory={tmp_path / 'image'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "vm.max_map_count" in done.stderr
