# SPDX-License-Identifier: Apache-2.0
"""Memory that threads read into: what the machine lacks is refused before anything is laid out; limits are named."""

import json
import re
import subprocess
from pathlib import Path

import pytest

import characterize
from characterize.layout import HeaderFlag, Source
from tests.machines.own_group import GROUPS, made_group
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ENGINE, needs_engine

pytestmark = needs_engine

WINDOW = 8 << 20  # of a larger buffer no more is there (buffer.h)
THREADS_MAX = 8192  # that are to run at once
MIB = 1 << 20
REGISTERED = 8  # flights of 1 MiB that have memory without asking (ring.c)


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


@pytest.mark.root
def test_limits_of_processes_are_named_where_threads_cannot_be_started(tmp_path):
    if not (GROUPS / "pids").is_dir():
        pytest.skip("there are no control groups of version 1 that limit processes")
    trace = threads_that_read(tmp_path, 100, 4096)
    with made_group(GROUPS / "pids") as group:
        (group / "pids.max").write_text("20")
        join = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group]
        command = [*join, ENGINE, trace, f"--directory={tmp_path / 'image'}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "(ulimit -u, or pids.max of the control group)" in done.stderr
    assert not (tmp_path / "image").exists()


class TestInFlight:
    """Requests of a ring have memory of their own each, while they are in flight."""

    pytestmark = pytest.mark.root

    def run(self, place, io, *options, available_bytes, flags=0):
        """The engine, where the kernel says that so much memory is available."""
        told, image = place / "meminfo", place / "image"
        told.write_text(f"MemAvailable: {available_bytes >> 10} kB\nSwapFree: 0 kB\n")
        made = made_trace(io, files=[{"file": 1, "size_bytes": 64 * MIB}], flags=flags)
        trace = characterize.write(made, place / "t.iotrace", force=True)
        script = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /proc/meminfo && exec "$@"', told]
        command = [*script, ENGINE, trace, f"--directory={image}", "--engine=io_uring", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def reads(self, count, size=MIB):
        """All at once."""
        return [read(MIB * (at % 64), size, at, 1000, source=Source.IO_URING) for at in range(count)]

    def test_no_more_of_them_than_there_is_memory_for(self, tmp_path):
        done = self.run(tmp_path, self.reads(64), available_bytes=16 * MIB)
        document = json.loads(done.stdout)
        assert done.returncode == 3, done.stderr
        assert document["operations"]["done"] == 64
        assert document["engine"]["in_flight_max_per_thread"] == REGISTERED + 16
        assert any("found no memory left by those in flight" in reason for reason in document["reasons"])

    @pytest.mark.parametrize("timing", ["asap", "think"])
    def test_each_takes_what_it_reads_and_not_what_the_largest_does(self, tmp_path, timing):
        io = [*self.reads(63, 4096), *self.reads(1, WINDOW)]
        done = self.run(tmp_path, io, f"--timing={timing}", available_bytes=32 * MIB)
        document = json.loads(done.stdout)
        assert (done.returncode, document["operations"]["done"]) == (0, 64), document["reasons"]
        assert document["engine"]["in_flight_max_per_thread"] >= 32

    def test_where_they_are_known_before_they_are_refused_before_anything_is_laid_out(self, tmp_path):
        synthetic = {"available_bytes": 16 * MIB, "flags": HeaderFlag.UNTIMED}
        done = self.run(tmp_path, self.reads(40), "--depth=32", **synthetic)
        assert done.returncode == 1
        needed = int(re.search(r"need (\d+) bytes", done.stderr)[1])
        assert 33 * MIB <= needed < 34 * MIB
        assert "give a smaller --depth" in done.stderr
        assert not (tmp_path / "image").exists()
        done = self.run(tmp_path, self.reads(40), "--depth=14", **synthetic)
        assert done.returncode == 0, done.stderr
