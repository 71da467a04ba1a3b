# SPDX-License-Identifier: Apache-2.0
"""Traces that look like applications, made without running them, for the tests of flexible traces."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from hypothesis import strategies as st

from characterize.layout import (
    FILE_DTYPE,
    FILEOP_DTYPE,
    IO_DTYPE,
    NOT_MEASURED_U32,
    TASK_DTYPE,
    FileFlag,
    Fileop,
    FileType,
    IoFlag,
    IoOp,
    RecordKind,
    Source,
)
from characterize.trace import Header, Trace
from characterize.workload import Workload
from replayer.willy import make_trace

SECOND_NS = 10**9


class Recording:
    """Appends records as a recorder would: one clock, operations of a thread one after the other."""

    def __init__(self) -> None:
        self.io: list[tuple] = []
        self.fileops: list[tuple] = []
        self.files: list[tuple] = []
        self.clock: dict[int, int] = {}
        self.paths: dict[int, str] = {}
        self.ids = 0

    def _time(self, thread: int, duration: int) -> tuple[int, int]:
        start = self.clock.get(thread, 1000 + thread * 7)
        self.clock[thread] = start + duration + 500
        self.ids += 1
        return start, self.ids

    def file(self, path: str, size: int = 0, *, created: bool = False) -> int:
        file = len(self.files) + 1
        flags = int(FileFlag.CREATED) if created else 0
        self.files.append(
            (RecordKind.FILE, FileType.REGULAR, len(path), flags, 0, file, 8 << 20, file, 0, 0, size, size // 2, 0)
        )
        self.paths[file] = path
        return file

    def transfer(  # noqa: PLR0917
        self, op: IoOp, thread: int, file: int, offset: int, size: int, done: int | None = None
    ) -> None:
        done = size if done is None else done
        duration = 2000 + done // 10
        start, number = self._time(thread, duration)
        self.io.append(
            (
                *(RecordKind.IO, op, Source.SYSCALL, 0, 0, start, duration, thread, thread, file, size, offset, done),
                *(NOT_MEASURED_U32, number),
            )
        )

    def read(self, thread: int, file: int, offset: int, size: int, done: int | None = None) -> None:
        self.transfer(IoOp.READ, thread, file, offset, size, done)

    def write(self, thread: int, file: int, offset: int, size: int) -> None:
        self.transfer(IoOp.WRITE, thread, file, offset, size)

    def operate(self, op: Fileop, thread: int, file: int, *, flags: int = 0, argument: int = 0) -> None:
        start, number = self._time(thread, 1000)
        self.fileops.append(
            (RecordKind.FILEOP, op, Source.SYSCALL, 0, flags, start, 1000, thread, thread, file, 0, argument, 0, number)
        )

    def wait_for(self, waiting: int, threads: list[int]) -> None:
        self.clock[waiting] = max(self.clock[thread] for thread in threads) + 1000

    def trace(self) -> Trace:
        tasks = [(RecordKind.TASK, b"", 0, 0, thread, thread, 1, 0, 0, b"program", 0) for thread in sorted(self.clock)]
        arrays = {
            RecordKind.IO: np.array(self.io, IO_DTYPE),
            RecordKind.FILEOP: np.array(self.fileops, FILEOP_DTYPE),
            RecordKind.FILE: np.array(self.files, FILE_DTYPE),
            RecordKind.TASK: np.array(tasks, TASK_DTYPE),
        }
        return Trace(Header(metadata={"command": "program"}), arrays, self.paths)


def sort_like(threads: int = 2, input_bytes: int = 24 << 20, block: int = 16384) -> Trace:
    """Like an external merge sort: a large input is read, sorted parts are written and read again, a result written."""
    recording = Recording()
    source = recording.file("/data/input", input_bytes + 100)
    share = input_bytes // threads
    parts: list[tuple[int, int]] = []
    for thread in range(1, threads + 1):
        recording.operate(Fileop.OPEN, thread, source)
        for at in range(0, share, share // 4):
            file = recording.file(f"/tmp/sort{thread}.{at}", created=True)
            for offset in range(at, at + share // 4, block):
                recording.read(thread, source, (thread - 1) * share + offset, block)
            recording.operate(Fileop.OPEN, thread, file, flags=int(IoFlag.CREATED))
            for offset in range(0, share // 4, block):
                recording.write(thread, file, offset, block)
            recording.operate(Fileop.CLOSE, thread, file)
            parts.append((thread, file))
    recording.read(threads, source, threads * share, block, done=100)
    recording.read(threads, source, threads * share + 100, block, done=0)
    recording.wait_for(1, list(recording.clock))
    result = recording.file("/data/output", created=True)
    recording.operate(Fileop.OPEN, 1, result, flags=int(IoFlag.CREATED))
    out = 0
    for _, file in parts:
        recording.operate(Fileop.OPEN, 1, file)
    for offset in range(0, share // 4, block):
        for _, file in parts:
            recording.read(1, file, offset, block)
            recording.write(1, result, out, block)
            out += block
    for _, file in parts:
        recording.operate(Fileop.UNLINK, 1, file)
    recording.operate(Fileop.FSYNC, 1, result)
    return recording.trace()


def database_like(transactions: int = 2000, pages: int = 3000, seed: int = 0) -> Trace:
    """Like SQLite with a rollback journal: random pages are read and written; a journal lives for each transaction."""
    random = np.random.default_rng(seed)
    recording = Recording()
    database = recording.file("/data/bank.db", pages * 4096)
    recording.operate(Fileop.OPEN, 1, database)
    for number in range(transactions):
        touched = np.unique(np.append(0, random.zipf(1.3, 4) % pages * 7919 % pages))
        for page in touched:
            recording.read(1, database, int(page) * 4096, 4096)
        journal = recording.file(f"/data/bank.db-journal.{number}", created=True)
        recording.operate(Fileop.OPEN, 1, journal, flags=int(IoFlag.CREATED))
        recording.write(1, journal, 0, 512)
        at = 512
        for _ in touched:
            for size in (4, 4096, 4):
                recording.write(1, journal, at, size)
                at += size
        recording.operate(Fileop.FSYNC, 1, journal)
        recording.write(1, journal, 0, 12)
        recording.operate(Fileop.FSYNC, 1, journal)
        for page in touched:
            recording.write(1, database, int(page) * 4096, 4096)
        recording.operate(Fileop.FDATASYNC, 1, database)
        recording.operate(Fileop.CLOSE, 1, journal)
        recording.operate(Fileop.UNLINK, 1, journal)
    return recording.trace()


def laid_out_then_used(blocks=256, threads=2):
    """Like fio: one thread writes a file for every other one from end to end, which then use it in random order."""
    recording, random = Recording(), np.random.default_rng(1)
    files = []
    for number in range(threads):
        files.append(recording.file(f"/data/{number}", created=True))
        recording.operate(Fileop.OPEN, 9, files[-1], flags=int(IoFlag.CREATED))
        for block in range(blocks):
            recording.write(9, files[-1], block * 4096, 4096)
    for thread in range(threads):
        recording.wait_for(thread, [9])
        for block in random.permutation(blocks).tolist():
            recording.read(thread, files[thread], block * 4096, 4096)
    return recording.trace()


def willy(processes: int = 2, size: str = "binomial") -> Trace:
    """A synthetic trace."""
    workload = Workload(8 << 20, 0.5, 0.5, 16384, processes)
    return make_trace(workload, requests=4000, size=size, seed=5)  # type: ignore[arg-type]


KINDS: dict[str, Callable[[], Trace]] = {
    "sort": sort_like,
    "database": database_like,
    "willy": willy,
    "willy fixed": partial(willy, 1, "fixed"),
}
"""By their names what makes them."""


@st.composite
def recordings(draw):
    """Small recordings of whatever a program may do."""
    recording = Recording()
    threads = draw(st.integers(1, 3))
    block = draw(st.sampled_from([512, 4096, 5000]))
    known = [recording.file(f"/f{index}", 64 * block) for index in range(draw(st.integers(1, 3)))]
    for number in range(draw(st.integers(4, 30))):
        thread = draw(st.integers(1, threads))
        what = draw(st.sampled_from(["read", "write", "stream", "temporary"]))
        file = draw(st.sampled_from(known))
        offset = draw(st.integers(0, 48)) * block
        if what == "read":
            recording.read(thread, file, offset, block * draw(st.integers(1, 4)))
        elif what == "write":
            recording.write(thread, file, offset, block * draw(st.integers(1, 4)))
        elif what == "stream":
            for step in range(draw(st.integers(2, 12))):
                recording.read(thread, file, offset + step * block, block)
        else:
            temporary = recording.file(f"/t{number}", created=True)
            recording.operate(Fileop.OPEN, thread, temporary, flags=int(IoFlag.CREATED))
            for step in range(3):
                recording.write(thread, temporary, step * block, block)
            recording.read(thread, temporary, 0, block)
            if draw(st.booleans()):
                recording.operate(Fileop.TRUNCATE, thread, temporary, argument=block)
                recording.read(thread, temporary, 0, block)
            recording.operate(Fileop.UNLINK, thread, temporary)
    return recording.trace()


def replay_size_violations(trace):
    """Reads that would not find their data, by following every file record by record."""
    size = {}
    for file in trace.arrays[RecordKind.FILE]:
        created = file["flags"] & (FileFlag.CREATED | FileFlag.NEW_NAME)
        size[int(file["file"])] = 0 if created else int(file["size_bytes"])
    operations = [(int(row["start_ns"]), 1, row) for row in trace.arrays[RecordKind.IO] if row["result"] > 0]
    operations += [(int(row["start_ns"]), 0, row) for row in trace.arrays[RecordKind.FILEOP] if row["result"] >= 0]
    violations = 0
    for _, is_io, row in sorted(operations, key=lambda operation: operation[:2]):
        file = int(row["file"])
        if is_io:
            end = int(row["offset"]) + int(row["result"])
            if row["op"] == IoOp.READ:
                violations += end > size[file]
            else:
                size[file] = max(size[file], end)
        elif row["op"] == Fileop.TRUNCATE:
            size[file] = int(row["argument"])
        elif row["op"] == Fileop.UNLINK or (row["op"] == Fileop.OPEN and row["flags"] & IoFlag.TRUNCATED):
            size[file] = 0
    return violations
