# SPDX-License-Identifier: Apache-2.0
"""Schedules in segments: each operation once, in its thread's order, held back exactly as long as it has to be."""

import tempfile
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import characterize
from characterize.layout import RecordKind
from tests.traces.appended_records import append_records
from tests.traces.made_trace import made_trace, read, records
from tests.truths.schedule_walk import KEPT, check_pass, check_takes, ended_before, needs_walk, walk

LATEST = 2**64 - 1

pytestmark = [needs_walk, pytest.mark.parallel]


class Case(NamedTuple):
    """What a trace is made of, and how it is walked."""

    seed: int
    operations: int
    threads: int
    spread: int  # of the starts
    longest: int  # duration
    disorder: float  # places by which records stand away from the order of the starts
    order: str
    passes: int
    depth: int  # operations that a thread holds at once


CASES = st.builds(
    Case,
    seed=st.integers(0, 2**31 - 1),
    operations=st.one_of(st.integers(1, KEPT + 2), st.integers(KEPT, 600)),
    threads=st.integers(1, 12),
    spread=st.sampled_from([1, 40, 2000, 10**12]),
    longest=st.sampled_from([0, 3, 30, 1000]),
    disorder=st.sampled_from([0.0, 3.0, 40.0, 1e6]),
    order=st.sampled_from(["recorded", "thread"]),
    passes=st.integers(1, 3),
    depth=st.integers(1, 8),
)


def random_rows(case):
    """Records with many equal times, a few lasting for most of the trace, some without duration; disordered."""
    random = np.random.default_rng(case.seed)
    starts = np.sort(random.integers(0, case.spread, case.operations))
    durations = random.integers(0, case.longest + 1, case.operations) * random.integers(0, 2, case.operations)
    durations[random.random(case.operations) < 0.02] = case.spread
    threads = random.integers(1, case.threads + 1, case.operations)
    made = zip(starts, durations, threads, strict=True)
    rows = [read(0, 1, start, duration, thread=thread) for start, duration, thread in made]
    places = np.arange(case.operations) + random.uniform(0, case.disorder, case.operations)
    return records(RecordKind.IO, rows)[np.argsort(places, kind="stable")]


def walk_rows(rows, case):
    """What the test program told of a trace of these rows: (what, row, pass)."""
    with tempfile.TemporaryDirectory() as directory:
        trace = characterize.write(made_trace(), Path(directory) / "t.iotrace")
        rows["id"] = np.arange(len(rows))
        append_records(trace, [rows])
        return walk(trace, case.order, case.passes, case.depth, case.seed)


@settings(max_examples=40)
@given(CASES)
def test_any_trace_gives_the_constraints_of_the_definition(case):
    rows = random_rows(case)
    before = ended_before(rows) if case.order == "recorded" else np.zeros((len(rows), len(rows)), bool)
    events = walk_rows(rows, case)
    seen = {number: list(group) for number, group in groupby(events, key=lambda event: event[2])}
    assert sorted(seen) == list(range(case.passes))
    for one_pass in seen.values():
        check_pass(rows, one_pass, before)


def test_damaged_times_at_the_end_of_the_scale():
    """Starts and ends that do not fit into 64 bits: nothing waits for what never ends."""
    rows = records(RecordKind.IO, [read(0, 1, at, 1, thread=1 + at % 3) for at in range(3 * KEPT)])
    rows["start_ns"][::7] = LATEST
    rows["duration_ns"][1::5] = LATEST
    events = walk_rows(rows, Case(1, len(rows), 3, 0, 0, 0, "recorded", passes=2, depth=2))
    assert [what for what, _, _ in events].count("complete") == 2 * len(rows)
    check_takes(rows, [row for what, row, number in events if what == "take" and number == 1])
