# SPDX-License-Identifier: Apache-2.0
"""Turns a load in a few words into one list of requests that the engine and fio both replay, on the same files."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from characterize.formats import fio_iolog
from characterize.layout import (
    FILE_DTYPE,
    IO_DTYPE,
    NOT_MEASURED_U32,
    FileType,
    HeaderFlag,
    IoFlag,
    IoOp,
    RecordKind,
    Source,
)
from characterize.trace import Header, Trace, write
from replayer.run import EXIT_NOT_TRUSTWORTHY, prepare, replay
from replayer.running.binaries import find_binary

# Without what the engine does not do either: random buffers, hints, dropping the cache before.
FIO = ("fio", "--thread", "--group_reporting", "--invalidate=0", "--fadvise_hint=0", "--scramble_buffers=0")


@dataclass(frozen=True)
class Requests:
    """Random requests of one size and direction, in one file per thread."""

    threads: int = 1
    read: bool = True
    size_bytes: int = 4096
    direct: bool = False
    file_bytes: int = 64 << 20

    @property
    def title(self) -> str:
        """For the reader of a table."""
        place = "O_DIRECT" if self.direct else "cached"
        kind = "reads" if self.read else "overwrites"
        return f"{place} {self.size_bytes >> 10} KiB random {kind}, {self.threads} thread{'s' * (self.threads > 1)}"


@dataclass(frozen=True)
class ReplayList:
    """One list, as a trace and as logs of fio, and the directory in which its files are laid out.

    Attributes
    ----------
    due_ns : ndarray of int64, shape (threads, requests of a thread)
        Time of each request since the earliest of all.
    offsets : ndarray of int64, same shape
    """

    trace: Path
    logs: list[Path]
    image: Path
    due_ns: np.ndarray
    offsets: np.ndarray

    @property
    def count(self) -> int:
        """Requests in the list."""
        return self.due_ns.size

    def engine_command(self, *options: str) -> list[str]:
        """The engine on the files as they are, and as they are cached; they stay."""
        return [
            *(str(find_binary("flextrace-replay")), str(self.trace), f"--directory={self.image}"),
            *("--phase=run", "--keep-image", "--cache=keep", "--order=thread", *options),
        ]

    def fio_command(self, *options: str) -> list[str]:
        """fio on the same list and files, one job for each thread."""
        names = ":".join(map(str, self.logs))
        return [
            *(*FIO, "--name=list", f"--read_iolog={names}", f"--numjobs={len(self.logs)}"),
            *(*options, "--output-format=json"),
        ]


def make_list(requests: Requests, directory: Path, count: int, rate_per_s: float | None = None) -> ReplayList:
    """Draw the requests, and lay out their files.

    Parameters
    ----------
    requests : Requests
    directory : Path
        Is made; holds all of it.
    count : int
        Requests of all threads together.
    rate_per_s : float, optional
        Of all threads together. The gaps of a thread are drawn evenly from half to one and a half of their mean, so
        that a thread is hardly ever still busy when its next request is due. None: in order only.
    """
    directory.mkdir()
    trace = draw(requests, count, rate_per_s)
    io = trace.arrays[RecordKind.IO]
    threads = [io[io["thread"] == thread] for thread in range(1, requests.threads + 1)]
    image = directory / "image"
    path = write(trace, directory / "list.iotrace")
    prepare(path, image)
    if not requests.direct:
        replay(path, image, phase="run", cache="warm", keep_image=True, max_seconds=0.001)
    with fio_iolog.written(trace, directory / "list.fio", image) as exported:
        logs = exported.logs
    return ReplayList(
        path,
        logs,
        image,
        np.stack([own["start_ns"].astype(np.int64) for own in threads]),
        np.stack([own["offset"].astype(np.int64) for own in threads]),
    )


def draw(requests: Requests, count: int, rate_per_s: float | None) -> Trace:
    """Equally many requests for each thread at random places of its own file, which is cached as a whole."""
    generator = np.random.default_rng(1)
    each = count // requests.threads
    io = np.zeros((requests.threads, each), IO_DTYPE)
    io["kind"], io["op"], io["source"] = RecordKind.IO, IoOp.READ if requests.read else IoOp.WRITE, Source.SYSCALL
    io["flags"] = IoFlag.POSITIONED | (IoFlag.DIRECT if requests.direct else 0)
    io["thread"] = io["process"] = io["file"] = np.arange(1, requests.threads + 1)[:, None]
    io["offset"] = generator.integers(requests.file_bytes // requests.size_bytes, size=io.shape) * requests.size_bytes
    io["asked_bytes"] = io["result"] = requests.size_bytes
    io["start_ns"] = np.arange(each)
    io["missed_bytes"] = NOT_MEASURED_U32
    if rate_per_s is not None:
        gaps_ns = generator.uniform(0.5, 1.5, io.shape) * 1e9 * requests.threads / rate_per_s
        # Whole microseconds, which is what fio's log can say.
        io["start_ns"] = np.cumsum(gaps_ns, axis=1) // 1000 * 1000
        io["start_ns"] -= io["start_ns"].min()
        io["duration_ns"] = 1
    files = np.zeros(requests.threads, FILE_DTYPE)
    files["kind"], files["type"] = RecordKind.FILE, FileType.REGULAR
    files["file"] = files["inode"] = np.arange(1, requests.threads + 1)
    files["size_bytes"] = files["resident_bytes"] = requests.file_bytes
    flags = HeaderFlag.UNTIMED if rate_per_s is None else HeaderFlag.PLANNED
    records = io.ravel()[np.argsort(io["start_ns"].ravel(), kind="stable")]
    return Trace(Header(flags), {RecordKind.IO: records, RecordKind.FILE: files})


def run_json(command: Sequence[str]) -> dict[str, Any]:
    """The JSON document that the engine or fio prints at its end.

    Raises
    ------
    RuntimeError
        It failed. A result that the engine does not trust (late, for one) is one to be measured.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, EXIT_NOT_TRUSTWORTHY) or "{" not in done.stdout:
        raise RuntimeError(f"{command[0]} failed with exit status {done.returncode}: {done.stderr or done.stdout}")
    return json.loads(done.stdout[done.stdout.index("{") :])
