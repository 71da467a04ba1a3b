# SPDX-License-Identifier: Apache-2.0
"""What recording costs the application: ``make bench-record``.

fio with synchronous 4 KiB reads, as a cached loop (the worst case: nothing but system calls) and with O_DIRECT, without
recording and under flextrace, bpftrace (a map update per read and write, no output) and strace (to a file).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from characterize.layout import RecordKind
from characterize.trace import open as open_trace
from replayer.binaries import find_binary
from tests.bench.interleaved import Way, run_interleaved

BPFTRACE_PROGRAM = """
tracepoint:syscalls:sys_enter_pread64 /comm == "fio"/ { @start[tid] = nsecs; }
tracepoint:syscalls:sys_exit_pread64 /@start[tid]/ { @latency_ns = hist(nsecs - @start[tid]); delete(@start[tid]); }
"""


def fio_command(directory: Path, seconds: float, direct: bool, size: str) -> list[str]:
    """A single-threaded fio job of random 4 KiB reads on a prepared file."""
    return [
        *("fio", "--name=load", f"--filename={directory}/data", f"--size={size}", "--rw=randread", "--bs=4k"),
        *("--ioengine=psync", f"--direct={int(direct)}", "--invalidate=0", "--thread", "--norandommap"),
        *(f"--runtime={seconds}", "--time_based", "--output-format=json"),
    ]


def reads_per_s(output: str) -> float:
    """Rate of reads from fio's JSON output."""
    return json.loads(output[output.index("{") :])["jobs"][0]["read"]["iops"]


@contextmanager
def tracefs() -> Iterator[None]:
    """Mount the file system from which bpftrace reads the tracepoints, where it is not mounted."""
    mounted = Path("/sys/kernel/tracing/events").exists()
    if not mounted:
        subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=True)
    try:
        yield
    finally:
        if not mounted:
            subprocess.run(["umount", "/sys/kernel/tracing"], check=True)


def ways_of(directory: Path, seconds: float, direct: bool, lost: list[int]) -> list[Way]:
    """No recording first: the others are reported as ratios to it."""
    fio = fio_command(directory, seconds, direct, "64M" if not direct else "1G")
    trace = directory / "trace.iotrace"

    def output_of(command: list[str]) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def flextrace(*options: str) -> float:
        recorder = [str(find_binary("flextrace-record")), "--quiet", "--force", "-o", str(trace), *options, "--"]
        done = subprocess.run(recorder + fio, capture_output=True, text=True, check=False)
        recorded = open_trace(trace)
        lost.append(sum(recorded.header.lost.values()))
        if not len(recorded.arrays[RecordKind.IO]) + len(recorded.arrays[RecordKind.BLOCK]):
            raise RuntimeError(f"nothing was recorded: {done.stderr}")
        return reads_per_s(done.stdout)

    def bpftrace() -> float:
        tracer = subprocess.Popen(
            ["bpftrace", "-e", BPFTRACE_PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            # It complains first where RLIMIT_MEMLOCK cannot be raised, and works all the same.
            said = ""
            while tracer.stdout and "Attaching" not in said:
                if not (line := tracer.stdout.readline()):
                    raise RuntimeError(f"bpftrace did not attach: {said}")
                said += line
            return reads_per_s(output_of(fio))
        finally:
            tracer.terminate()
            tracer.communicate()

    def strace() -> float:
        return reads_per_s(output_of(["strace", "-f", "-o", str(directory / "strace.log"), *fio]))

    return [
        Way("no recording", lambda: reads_per_s(output_of(fio))),
        Way("no recording (again)", lambda: reads_per_s(output_of(fio))),
        Way("flextrace, both layers", flextrace),
        Way("flextrace, vfs only", lambda: flextrace("--layer", "vfs")),
        Way("bpftrace histogram", bpftrace),
        Way("strace to a file", strace),
    ]


def main() -> None:
    """Print one table for each load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--directory", type=Path, help="where the file is read (default: a temporary directory)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name, tracefs():
        directory = Path(name)
        for direct, title in ((False, "cached 4 KiB pread loop"), (True, "4 KiB O_DIRECT reads, queue depth 1")):
            fio = fio_command(directory, 1, direct, "64M" if not direct else "1G")
            subprocess.run(fio, check=True, capture_output=True)
            (directory / "data").read_bytes()  # into the page cache
            lost: list[int] = []
            table = run_interleaved(ways_of(directory, arguments.seconds, direct, lost), arguments.rounds)
            print(f"\n{title}: fio psync, {arguments.rounds} rounds of {arguments.seconds:g} s, reads/s")
            print(table.to_string(float_format=lambda value: f"{value:,.3f}" if value < 10 else f"{value:,.0f}"))
            print(f"lost records: {sum(lost)} in {len(lost)} recordings")


if __name__ == "__main__":
    main()
