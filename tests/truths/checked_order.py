# SPDX-License-Identifier: Apache-2.0
"""Turns a trace and a made replay into how the order was kept, and times into that by looking at every pair."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from characterize.stream import Stream, stream_of
from characterize.trace import Trace
from replayer.checking import order_check
from replayer.checking.order_sweep import Times
from replayer.checking.replay_recording import replay_part

ROWS = st.lists(
    st.tuples(
        *(st.integers(0, 30), st.integers(0, 6), st.integers(0, 30), st.integers(0, 6)),
        *(st.integers(0, 2), st.integers(0, 20), st.integers(1, 9), st.booleans(), st.booleans(), st.booleans()),
    ),
    max_size=24,
)
"""Times of a few operations in both runs, as for `times_of`, and what each has to do with others."""


def part_of(recording: Trace, step: int = 10**6) -> Stream:
    return replay_part(stream_of(recording, step))


def check_order(trace: Trace, part: Stream, step: int = 10**6, **limits):
    return order_check.check_order(stream_of(trace, step), part, **limits)


def naive(times: Times, must_wait) -> tuple[list[bool], list[bool]]:
    """For every operation whether any has to precede it, and whether it began before the end of such a one."""
    start, end, again, over = (list(map(int, one)) for one in vars(times).values())
    checked, early = [], []
    for b in range(len(start)):
        first = [
            a
            for a in range(len(start))
            if (end[a] < start[b] or (end[a] == start[b] and end[a] > start[a])) and must_wait(a, b)
        ]
        checked.append(bool(first))
        early.append(any(over[a] > again[b] for a in first))
    return checked, early


def columns(rows):
    return [np.array(column, np.int64) for column in zip(*rows, strict=True)] or [np.zeros(0, np.int64)] * 10


def times_of(start, duration, again, lasted) -> Times:
    return Times(start, start + duration, again, again + lasted)


def assert_blame(blamed, times):
    """Who is blamed had to precede, and had not ended."""
    for row in np.flatnonzero(blamed >= 0):
        assert times.recorded_end[blamed[row]] <= times.recorded_start[row]
        assert times.replay_end[blamed[row]] > times.replay_start[row]
