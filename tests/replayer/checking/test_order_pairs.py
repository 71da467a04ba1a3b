# SPDX-License-Identifier: Apache-2.0
"""The order checker against a naive one that looks at every pair, on random operations, traces and replays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from characterize.layout import Fileop, IoFlag, IoOp, RecordKind
from characterize.trace import Trace
from replayer.checking.operation_form import operations_of
from replayer.checking.order_sweep import Times, sweep, sweep_ranges
from tests.traces.made_trace import made_trace, read, write
from tests.traces.replayed import SHIFT_NS, replayed
from tests.truths.checked_order import ROWS, assert_blame, check_order, columns, naive, part_of, times_of
from tests.truths.straced import op

pytestmark = pytest.mark.parallel


@given(ROWS)
def test_a_sweep_finds_what_looking_at_every_pair_finds(rows):
    start, duration, again, lasted, group, _, _, before, after, _ = columns(rows)
    times = times_of(start, duration, again, lasted)
    found = sweep(times, group, before.astype(bool), after.astype(bool))
    checked, early = naive(times, lambda a, b: group[a] == group[b] and before[a] and after[b])
    assert found.checked.tolist() == checked
    assert (found.blamed >= 0).tolist() == early
    assert_blame(found.blamed, times)


@given(ROWS)
def test_ranges_are_found_as_by_looking_at_every_pair(rows):
    start, duration, again, lasted, group, low, length, wrote, _, _ = columns(rows)
    times = times_of(start, duration, again, lasted)
    high, wrote = low + length, wrote.astype(bool)

    def conflict(a, b):
        return group[a] == group[b] and low[a] < high[b] and low[b] < high[a] and (wrote[a] or wrote[b])

    found = sweep_ranges(times, group, low, high, wrote)
    checked, early = naive(times, conflict)
    assert found.checked.tolist() == checked
    assert (found.blamed >= 0).tolist() == early
    assert_blame(found.blamed, times)


@settings(max_examples=40)
@example(2577)
@given(st.integers(0, 2**32 - 1))
def test_rules_of_random_replays_agree_with_looking_at_every_pair(seed):
    """A random trace and a random replay of it, against ROOT's rules said in one sentence each."""
    random = np.random.default_rng(seed)
    trace = random_trace(random)
    recording = replayed_at_random(trace, random)
    rows, times = operations_and_times(trace, recording)
    causes = dict(trace.arrays[RecordKind.WAKE][["id", "cause"]].tolist())
    expectations = {
        "program_order": lambda a, b: rows[a]["thread"] == rows[b]["thread"],
        "file_ranges": lambda a, b: conflict_of(rows[a], rows[b]),
        "names": lambda a, b: rows[a]["file"] == rows[b]["file"] and changes_name(rows[a], rows[b]),
        "descriptors": lambda a, b: lifetime(rows[a], rows[b]),
        "wake_ups": lambda a, b: rows[a]["id"] == causes.get(rows[b]["id"]),
        "interval_order": lambda a, b: True,
    }
    found = {name: naive(times, must_wait) for name, must_wait in expectations.items()}
    for step in (10**6, 5):
        check = check_order(trace, part_of(recording, step), step)
        assert (check.compared, check.far) == (len(rows), 0)
        for name, (checked, early) in found.items():
            assert check.rules[name].checked == sum(checked), name
            assert check.rules[name].violations == sum(early), name
    # With few operations in memory nobody is blamed wrongly, and who waited for too little is found or known as far.
    check = check_order(trace, part_of(recording, 3), 3, near_operations=3)
    assert check.compared == len(rows)
    for name, (_, early) in found.items():
        assert check.rules[name].violations <= sum(early) <= check.rules[name].violations + check.far, name
    assert check.far <= sum(found["interval_order"][1])


def operations_and_times(trace: Trace, recording: Trace):
    """Every operation as a dict, and its times in both runs; the k-th of a thread repeats the k-th."""
    frames = []
    for one in (trace, recording):
        frame = operations_of(one.arrays[RecordKind.IO], one.arrays[RecordKind.FILEOP])
        frames.append(frame.sort_values(["thread", "start_ns"], kind="stable"))
    return frames[0].to_dict("records"), Times(*(f[name].to_numpy() for f in frames for name in ("start_ns", "end_ns")))


def random_trace(random: np.random.Generator) -> Trace:
    """Threads that open, read, write, truncate and unlink three files; every operation can be told from the others.

    Half of them were woken after any other call, which may have ended before or not, or is not in the trace.
    """
    io, fileops, wakes = [], [], []
    count = int(random.integers(1, 24))
    for at in range(count):
        start, thread, file = int(random.integers(0, 100)), int(random.integers(1, 4)), int(random.integers(1, 4))
        common = {"thread": thread, "process": thread // 2, "file": file, "id": 1 + at}
        if random.random() < 0.5:
            cause = int(random.integers(0, count + 3))
            wakes.append({"id": 1 + at, "cause": cause, "start_ns": start, "thread": thread})
        if random.random() < 0.6:
            make = read if random.random() < 0.5 else write
            io.append(make(int(random.integers(0, 50)), 10 + at, start, int(random.integers(0, 9)), **common))
        else:
            kind = random.choice([Fileop.OPEN, Fileop.CLOSE, Fileop.TRUNCATE, Fileop.UNLINK])
            flags = int(random.choice([0, IoFlag.CREATED, IoFlag.TRUNCATED])) if kind == Fileop.OPEN else 0
            argument = at + 20 if kind == Fileop.TRUNCATE else 0
            fileops.append(op(kind, start, flags=flags, argument=argument, **common))
    paths = {1: "a", 2: "b", 3: "c"}
    return made_trace(io, fileops=fileops, files=[{"file": file} for file in paths], wakes=wakes, paths=paths)


def replayed_at_random(trace: Trace, random: np.random.Generator) -> Trace:
    """A replay whose operations run at random times, those of each thread in the order of the trace."""
    recording = replayed(trace)
    arrays = [recording.arrays[kind] for kind in (RecordKind.IO, RecordKind.FILEOP)]
    thread, original = (np.concatenate([array[name] for array in arrays]) for name in ("thread", "start_ns"))
    start = SHIFT_NS + random.permutation(60)[: len(thread)]
    for one in np.unique(thread):
        rows = np.flatnonzero(thread == one)
        start[rows[np.argsort(original[rows], kind="stable")]] = np.sort(start[rows])
    arrays[0]["start_ns"], arrays[1]["start_ns"] = np.split(start, [len(arrays[0])])
    return recording


def conflict_of(one, other) -> bool:
    """Whether two accesses touch the same bytes and one changes them."""
    low = [extent(row) for row in (one, other)]
    if one["file"] != other["file"] or None in low:
        return False
    (a, b, first), (c, d, second) = low
    return a < d and c < b and (first or second)


def extent(row):
    if row["data"]:
        return row["argument"], row["argument"] + row["result"], row["op"] == IoOp.WRITE
    if row["op"] == Fileop.TRUNCATE:
        return row["argument"], 2**63, True
    if row["op"] == Fileop.OPEN and row["flags"] & IoFlag.TRUNCATED:
        return 0, 2**63, True
    return None


def changes_name(one, other) -> bool:
    uses = [not row["data"] and row["op"] in (Fileop.OPEN, Fileop.UNLINK) for row in (one, other)]
    changes = [row["op"] == Fileop.UNLINK or row["flags"] & IoFlag.CREATED for row in (one, other)]
    return all(uses) and any(changes)


def lifetime(one, other) -> bool:
    if (one["process"], one["file"]) != (other["process"], other["file"]):
        return False
    kinds = [
        "use" if row["data"] or row["op"] == Fileop.TRUNCATE else Fileop(row["op"]).name.lower() for row in (one, other)
    ]
    return (kinds[0], kinds[1]) in {("open", "use"), ("open", "close"), ("use", "close")}
