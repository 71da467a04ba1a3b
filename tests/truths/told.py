# SPDX-License-Identifier: Apache-2.0
"""Turns the lines of a test program (tests/programs/told.h) and the records of a trace into comparable rows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import pytest

import characterize
from characterize.layout import (
    FILEOP_NAME_SHIFT,
    IO_RUN_DELAY_SHIFT,
    NOT_MEASURED_U32,
    Fileop,
    HeaderFlag,
    IoFlag,
    IoOp,
    Source,
)
from tests.machines.kernel import has_tracepoint
from tests.runs.running_replay import children, wait_until
from tests.truths.straced import ROOT

PROGRAMS = ROOT / "build" / "tests"
RECORDER = ROOT / "build" / "flextrace-record"
DATA_KINDS = {"read", "write"}
MAPPED_KINDS = {"load", "store"}
MAP_ITERATORS_REFUSED = (
    r"flextrace record: warning: this kernel refuses the program find_ended_requests "
    r"\(Operation not permitted\): going on without it.*\n"
)
TOLD_FLAGS = ((1 << IO_RUN_DELAY_SHIFT) - 1) & ~int(IoFlag.SHARED_MEMORY | IoFlag.REUSED_MEMORY)
"""Of the flags of IO records and syncs; how many page faults a program has in a call, of which memory, and for how long
it waits for a processor, it does not tell."""
NAMED_BY_ARGUMENT = {Fileop.RENAME, Fileop.LINK, Fileop.SYMLINK}
TOLD_LINE = re.compile(r"\S+ \S+ \d+ -?\d+ -?\d+ -?\d+ \d+ \d+ (-|\d+)")


def arguments_of(program: str) -> list[str]:
    """What a test program has to leave out, since this kernel tells nothing of it."""
    # Before 6.6 no tracepoint tells the end of what io_submit began and its process did not wait for.
    return ["reaped"] if program == "aio" and not has_tracepoint("iomap_dio_complete") else []


class Row(NamedTuple):
    """One operation; offset and asked are argument and length of a file operation."""

    kind: str
    name: str
    thread: int
    offset: int
    asked: int
    result: int
    source: Source
    flags: IoFlag
    high_flags: int  # the upper half, which belongs to the operation
    missed: int | None


def make_row(kind, name, numbers: Iterable[int], missed: int | None) -> Row:
    thread, offset, asked, result, source, flags = map(int, numbers)
    return Row(
        kind,
        name,
        thread,
        offset & 2**64 - 1,
        asked,
        result,
        Source(source),
        IoFlag(flags & 0xFFFF),
        flags >> 16,
        missed,
    )


def parse(output: str) -> tuple[list[Row], dict[str, list[list[str]]]]:
    """What a program told: its operations, and its other lines by their first word."""
    rows, others = [], {}
    for line in output.splitlines():
        kind, *words = line.split()
        if TOLD_LINE.fullmatch(line):
            name, *numbers, missed = words
            rows.append(make_row(kind, name, map(int, numbers), None if missed == "-" else int(missed)))
        else:
            others.setdefault(kind, []).append(words)
    return rows, others


@dataclass
class Recorded:
    """A program that was recorded: what it told and what the trace says."""

    directory: Path
    told: list[Row]
    others: dict[str, list[list[str]]]
    trace: characterize.Trace
    stderr: str

    @property
    def names(self) -> dict[int, str]:
        """Files of the test by id: relative to its directory, or absolute if the program told such a name."""
        absolute = {name for row in self.told for name in row.name.split(">") if name.startswith("/")}
        prefix = f"{self.directory}/"
        names = {}
        for file, path in self.trace.paths.items():
            if path == str(self.directory):
                names[file] = "."
            elif path.startswith(prefix):
                names[file] = path.removeprefix(prefix)
            elif path in absolute:
                names[file] = path
        return names

    def data(self, sources: set[Source] | None = None) -> list[Row]:
        """IO records of the test's files."""
        names = self.names
        return [
            make_row(
                IoOp(row.op).name.lower(),
                names[row.file],
                (row.thread, row.offset, row.asked_bytes, row.result, row.source, row.flags & TOLD_FLAGS),
                None if row.missed_bytes == NOT_MEASURED_U32 else int(row.missed_bytes),
            )
            for row in self.trace.io.itertuples()
            if row.file in names and (sources is None or row.source in sources)
        ]

    def file_operations(self) -> list[Row]:
        """FILEOP records of the test's files, and those of no file, except opens: the loader tries some in vain."""
        names, rows = self.names, []
        for row in self.trace.fileops.itertuples():
            if (row.file and row.file not in names) or (not row.file and row.op == Fileop.OPEN):
                continue
            name, argument, length = names.get(row.file, "?"), row.argument, row.length
            if row.op in {Fileop.RENAME, Fileop.UNLINK}:
                length &= (1 << FILEOP_NAME_SHIFT) - 1
            if row.op in NAMED_BY_ARGUMENT:
                if not row.file and row.argument not in names:
                    continue
                name, argument = f"{name}>{names.get(row.argument, '?')}", 0
            flags = row.flags & TOLD_FLAGS if row.op in {Fileop.FSYNC, Fileop.FDATASYNC} else row.flags
            numbers = (row.thread, argument, length, row.result, row.source, flags)
            rows.append(make_row(Fileop(row.op).name.lower(), name, numbers, None))
        return rows

    def told_data(self) -> list[Row]:
        return [row for row in self.told if row.kind in DATA_KINDS]

    def told_file_operations(self) -> list[Row]:
        return [row for row in self.told if row.kind not in DATA_KINDS | MAPPED_KINDS]


def run_recorder(
    trace: Path, *command: str | Path, options: tuple[str, ...] = (), before: Iterable[str] = (), **keywords
):
    """Record a command; `before` stands before the recorder, such as what makes it run as somebody else."""
    return subprocess.run(
        [*before, RECORDER, "-o", trace, *options, "--", *command],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **keywords,
    )


def open_closed(trace: Path) -> characterize.Trace:
    """A recording that came to its end."""
    opened = characterize.open(trace)
    assert not opened.header.flags & HeaderFlag.INCOMPLETE
    return opened


def without_map_iterators(said: str) -> str:
    """What a recorder says, but that the kernel lets nobody load an iterator over a map, as those of some machines.

    Even an empty one: EPERM, before the verifier looks at it. What the verifier itself refuses is EACCES or EINVAL.
    """
    return re.sub(MAP_ITERATORS_REFUSED, "", said)


def wait_for_recording(said: IO[str]) -> None:
    """Read what a recorder says until it records; what the kernel refuses it says before."""
    lines = []
    while "Ctrl-C ends it" not in (line := said.readline()):
        assert line, f"it ended before it recorded: {''.join(lines)}"
        lines.append(line)


def interrupt_command(recorder: int) -> None:
    """Before it has begun: it waits until the programs are attached, which takes some hundred times as long."""
    wait_until(lambda: children(recorder))
    os.kill(int(children(recorder)[0]), signal.SIGINT)


def record(directory: Path, program: str, *arguments: str, options: tuple[str, ...] = ()) -> Recorded:
    """Record one run of a test program in a new directory; the trace is kept beside it."""
    directory.mkdir()
    trace = directory.with_suffix(".iotrace")
    done = run_recorder(trace, PROGRAMS / program, directory, *arguments, options=options)
    assert done.returncode == 0, done.stderr
    return recorded(directory, done.stdout, trace, done.stderr)


def recorded(directory: Path, output: str, trace: Path, stderr: str) -> Recorded:
    told, others = parse(output)
    opened = characterize.open(trace)
    assert not opened.header.lost
    assert opened.header.metadata["in_flight_end"] == 0
    return Recorded(directory, told, others, opened, stderr)


def compare(expected: Iterable[tuple], actual: Iterable[tuple]) -> None:
    """Fail with what is missing from the trace and what is there beyond."""
    wanted, got = Counter(expected), Counter(actual)
    lines = [f"missing    {count} x {row}" for row, count in (wanted - got).items()]
    lines += [f"unexpected {count} x {row}" for row, count in (got - wanted).items()]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)
