# SPDX-License-Identifier: Apache-2.0
"""Other tracers of a load, each as one would use it for the same question: strace, perf trace, bpftrace."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.load import Load

ATTACH_SECONDS_MAX = 30

HISTOGRAM = """
tracepoint:syscalls:sys_enter_pread64 /comm == "fio"/ { @start[tid] = nsecs; }
tracepoint:syscalls:sys_exit_pread64 /@start[tid]/ { @latency_ns = hist(nsecs - @start[tid]); delete(@start[tid]); }
"""

# What bcc's biosnoop does: a map by device and sector, a line for each request.
BIOSNOOP = """
tracepoint:block:block_rq_issue { @start[args->dev, args->sector] = nsecs; @comm[args->dev, args->sector] = comm; }
tracepoint:block:block_rq_complete /@start[args->dev, args->sector]/ {
	printf("%lld %s %d %s %lld %d %lld\\n", nsecs, @comm[args->dev, args->sector], args->dev, args->rwbs,
		args->sector, args->nr_sector * 512, nsecs - @start[args->dev, args->sector]);
	delete(@start[args->dev, args->sector]);
	delete(@comm[args->dev, args->sector]);
}
"""


def events_lost(text: str) -> int:
    """Sum of what a tracer says it lost."""
    return sum(int(count) for count in re.findall(r"lost (\d+) events", text, re.IGNORECASE))


class NoTracer:
    """The load alone."""

    name = "no recording"
    lost = 0

    @contextmanager
    def around(self, load: Load, directory: Path) -> Iterator[list[str]]:
        """Nothing around it."""
        yield []


class Strace:
    """Every system call, to a file. It stops the traced thread, so that it loses nothing."""

    name = "strace to a file"
    lost = 0

    @contextmanager
    def around(self, load: Load, directory: Path) -> Iterator[list[str]]:
        """Before the command."""
        output = directory / "strace.log"
        yield ["strace", "-f", "-o", str(output)]
        output.unlink()


class PerfTrace:
    """The system calls that do the I/O, to a file."""

    name = "perf trace to a file"

    def __init__(self) -> None:
        self.lost = 0

    @contextmanager
    def around(self, load: Load, directory: Path) -> Iterator[list[str]]:
        """Before the command."""
        output = directory / "perf.log"
        yield ["perf", "trace", "-o", str(output), "-e", ",".join(load.calls), "--"]
        self.lost += events_lost(output.read_text(errors="replace"))
        output.unlink()


class Bpftrace:
    """A program of bpftrace beside the load, its output to a file."""

    def __init__(self, name: str, program: str):
        self.name = name
        self.program = program
        self.lost = 0

    @contextmanager
    def around(self, load: Load, directory: Path) -> Iterator[list[str]]:
        """Attached while inside."""
        path = directory / "bpftrace.log"
        with path.open("w") as output:
            tracer = subprocess.Popen(["bpftrace", "-e", self.program], stdout=output, stderr=subprocess.STDOUT)
        try:
            # It complains first where RLIMIT_MEMLOCK cannot be raised, and works all the same.
            deadline = time.monotonic() + ATTACH_SECONDS_MAX
            while "Attaching" not in path.read_text():
                if tracer.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"bpftrace did not attach: {path.read_text()}")
                time.sleep(0.05)
            time.sleep(0.2)  # it says so before it does so
            yield []
        finally:
            tracer.terminate()
            tracer.wait()
        self.lost += events_lost(path.read_text(errors="replace"))
        path.unlink()
