# SPDX-License-Identifier: Apache-2.0
"""fio as a load: one thread that reads 4 KiB blocks at random, from the page cache or from a device."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.load import Load, Result
from tests.bench.scratch import loop_device

CALLS = {"psync": ("pread64",), "io_uring": ("io_uring_enter",), "libaio": ("io_submit", "io_getevents")}
MIB = 1 << 20


@dataclass(frozen=True)
class Reads:
    """Which reads."""

    engine: str = "psync"
    depth: int = 1
    direct: bool = True
    device: str = "disk"  # under the directory of the benchmark; or loop, over memory
    target_percent: float = 2

    @property
    def title(self) -> str:
        """For the reader of a table."""
        if not self.direct:
            return f"cached 4 KiB pread loop ({self.engine})"
        return f"4 KiB O_DIRECT reads, queue depth {self.depth} ({self.engine}), {self.device}"


def result_of(output: str) -> Result:
    """From fio's JSON."""
    read = json.loads(output[output.index("{") :])["jobs"][0]["read"]
    return Result(read["iops"], read["total_ios"])


def fio_command(reads: Reads, path: Path, size_bytes: int, seconds: float) -> list[str]:
    """The reads on a file or device, which fio writes first where it is shorter than this."""
    return [
        *("fio", "--name=load", f"--filename={path}", f"--size={size_bytes}", "--rw=randread", "--bs=4k"),
        *(f"--ioengine={reads.engine}", f"--iodepth={reads.depth}", f"--direct={int(reads.direct)}"),
        *("--invalidate=0", "--thread", "--norandommap"),
        *(f"--runtime={round(seconds * 1000)}ms", "--time_based", "--output-format=json"),
    ]


@contextmanager
def file_on_disk(path: Path, size_bytes: int, cached: bool) -> Iterator[Path]:
    """A file that is written, wholly in the page cache or not at all."""
    subprocess.run(["fio", "--name=load", f"--filename={path}", f"--size={size_bytes}", "--rw=write", "--bs=1M"],
                   check=True, capture_output=True)  # fmt: skip
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while cached and file.read(MIB):
            pass
    try:
        yield path
    finally:
        path.unlink()


@contextmanager
def fio_load(reads: Reads, directory: Path, seconds: float) -> Iterator[Load]:
    """fio with these reads, on what they are read from."""
    size_bytes = (1024 if reads.direct and reads.device == "disk" else 256 if reads.direct else 64) * MIB
    place = (
        loop_device(directory / "loop", size_bytes)
        if reads.device == "loop"
        else file_on_disk(directory / "data", size_bytes, not reads.direct)
    )
    with place as path:
        command = fio_command(reads, path, size_bytes, seconds)
        yield Load(reads.title, "reads", reads.target_percent, command, result_of, CALLS[reads.engine])
