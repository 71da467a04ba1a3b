# SPDX-License-Identifier: Apache-2.0
"""The order by resource: what has to precede by its rules does, nothing else is waited for."""

import tempfile
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import characterize
from characterize.layout import FILEOP_NAME_SHIFT, FileFlag, Fileop, FileType, IoFlag
from tests.traces.made_trace import made_trace, read, write
from tests.truths.resource_rules import RENAME_EXCHANGE, must_precede
from tests.truths.schedule_walk import add_own, check_pass, ended_before, needs_walk, walk
from tests.truths.straced import op

pytestmark = [needs_walk, pytest.mark.parallel]

NEW_NAME = 1 << 31
MANY = 32  # CONFLICTS_MAX of conflicts.h: who waits for more waits for all that had ended
TICK_NS = 1000  # more than there are rows: ends of different changes of names are never equal
DIRECTORY = 4
PATHS = {1: "/d/a", 2: "/d/b", 3: "/d/a", 4: "/d", 5: "/c", NEW_NAME: "/d/b", NEW_NAME + 1: "/e", NEW_NAME + 2: "/c"}
CREATED = {3}
NEW_NAMES = {file for file in PATHS if file >= NEW_NAME}
FILES = [
    {
        "file": file,
        "type": FileType.DIRECTORY if file == DIRECTORY else FileType.REGULAR,
        "flags": (FileFlag.CREATED if file in CREATED else 0) | (FileFlag.NEW_NAME if file in NEW_NAMES else 0),
    }
    for file in PATHS
]
PLAIN = (Fileop.OPEN, Fileop.CLOSE, Fileop.FSYNC, Fileop.TRUNCATE, Fileop.UNLINK, Fileop.LINK, Fileop.RENAME)
ON_DIRECTORIES = (Fileop.MKDIR, Fileop.RMDIR, Fileop.FSYNC)


class Case(NamedTuple):
    """What a trace is made of, and how it is walked."""

    seed: int
    operations: int
    threads: int
    files: int
    reads: float  # share
    data: float  # share of reads and writes
    spread: int  # of the starts
    longest: int  # duration
    passes: int
    depth: int


CASES = st.builds(
    Case,
    seed=st.integers(0, 2**31 - 1),
    operations=st.one_of(st.integers(1, 60), st.integers(100, 400)),
    threads=st.integers(2, 10),
    files=st.sampled_from([1, 3]),
    reads=st.sampled_from([0.5, 0.95]),
    data=st.sampled_from([0.3, 0.9, 1.0]),
    spread=st.sampled_from([30, 1000, 10**6]),
    longest=st.sampled_from([0, 3, 30, 300]),
    passes=st.integers(1, 3),
    depth=st.integers(1, 8),
)


def random_rows(case):
    """Rows of IO and of file operations, with ids in the order in which they are written where starts are equal."""
    random = np.random.default_rng(case.seed)
    io, fileops = [], []
    for number in range(case.operations):
        start = int(random.integers(1, case.spread + 1)) * TICK_NS
        duration = int(random.integers(0, case.longest + 1) * random.integers(0, 2)) * TICK_NS
        thread = int(random.integers(1, case.threads + 1))
        common = {"thread": thread, "process": 1 + thread % 2, "file": int(random.integers(1, case.files + 1))}
        if random.random() < case.data:
            make = read if random.random() < case.reads else write
            io.append({**make(0, 100, start, duration), **common})
        else:
            fileops.append(random_fileop(random, start, duration + number + 1, common))
    for number, row in enumerate([*io, *fileops]):
        row["id"] = number
    return io, fileops


def random_fileop(random, start, duration, common):
    """A file operation; those of directories and of everything are rare."""
    which = random.random()
    if which < 0.05:
        return {**op(Fileop.SYNCFS, start), **common, "duration_ns": duration}
    if which < 0.2:
        kind = ON_DIRECTORIES[random.integers(len(ON_DIRECTORIES))]
        return {**op(kind, start), **common, "file": DIRECTORY, "duration_ns": duration}
    kind = PLAIN[random.integers(len(PLAIN))]
    flags = int(random.choice([0, 0, IoFlag.CREATED, IoFlag.TRUNCATED])) if kind == Fileop.OPEN else 0
    exchange = RENAME_EXCHANGE if kind == Fileop.RENAME and random.random() < 0.2 else 0
    target = NEW_NAME + int(random.integers(len(NEW_NAMES))) if kind in (Fileop.LINK, Fileop.RENAME) else 0
    taken = int(random.choice([0, 0, *PATHS])) if kind in (Fileop.RENAME, Fileop.UNLINK) else 0
    failed = {"result": -2} if random.random() < 0.1 and kind in (Fileop.OPEN, Fileop.RENAME) else {}
    row = op(kind, start, flags=flags, argument=target, length=exchange | taken << FILEOP_NAME_SHIFT)
    return {**row, **common, "duration_ns": duration, **failed}


def plain(io, fileops):
    """The rows by their ids, with all fields that the rules look at."""
    rows = [{**row, "data": True} for row in io] + [{**row, "data": False} for row in fileops]
    return [{"result": 0, "flags": 0, "argument": 0, "length": 0, **row} for row in rows]


@settings(max_examples=120)
@given(CASES)
def test_operations_may_start_when_all_of_their_rules_have_completed_and_no_later(case):
    io, fileops = random_rows(case)
    rows = plain(io, fileops)
    order = must_precede(rows, PATHS, CREATED, NEW_NAMES)
    for row in rows:
        if row["result"] < 0 and not row["data"]:
            order[row["id"]] = order[:, row["id"]] = False
    names = ("thread", "start_ns", "duration_ns")
    times = np.array([tuple(row[name] for name in names) for row in rows], [(name, np.int64) for name in names])
    interval = ended_before(times)
    at_latest = np.where(order.sum(axis=0) > MANY, interval, order)
    for matrix in (order, at_latest):
        add_own(matrix, times, interval)
    with tempfile.TemporaryDirectory() as directory:
        made = made_trace(io, fileops=fileops, files=FILES, paths=PATHS)
        trace = characterize.write(made, Path(directory) / "t.iotrace")
        events = walk(trace, "resource", case.passes, case.depth, case.seed)
    seen = {number: list(group) for number, group in groupby(events, key=lambda event: event[2])}
    assert sorted(seen) == list(range(case.passes))
    for one_pass in seen.values():
        check_pass(times, one_pass, order, at_latest)
