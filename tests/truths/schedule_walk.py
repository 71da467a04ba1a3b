# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into the steps in which its operations may start, by tests/programs/segments.c, and checks them."""

import subprocess

import numpy as np
import pytest

from tests.truths.told import PROGRAMS

SEGMENTS = PROGRAMS / "segments"
KEPT = 64  # records of the largest trace of one segment, and operations of several: SMALL_SEGMENTS of the Makefile

needs_walk = pytest.mark.skipif(not SEGMENTS.exists(), reason=f"{SEGMENTS} is not built (make build/test-programs)")


def walk(trace, order, passes, depth, seed):
    """What the test program told: (what, row by its id, pass)."""
    command = [SEGMENTS, trace, order, str(passes), str(depth), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr
    told = [line.split() for line in done.stdout.splitlines()]
    return [(what, int(row), int(number)) for what, row, number in told]


def ended_before(rows):
    """Matrix of (a, b): a ended before b started, or just then after a positive duration (docs/decisions/0002)."""
    start, end = rows["start_ns"], rows["start_ns"] + rows["duration_ns"]
    before = end[:, None] < start[None, :]
    return before | ((end[:, None] == start[None, :]) & (rows["duration_ns"] > 0)[:, None])


def add_own(order, times, interval):
    """A thread takes its operations by their starts: what one has waited for, the next need not."""
    for thread in np.unique(times["thread"]):
        own = np.flatnonzero(times["thread"] == thread)
        own = own[np.argsort(times["start_ns"][own], kind="stable")]
        order[:, own] = np.logical_or.accumulate(order[:, own], axis=1)
    order |= interval & (times["thread"][:, None] == times["thread"])


def check_takes(rows, takes):
    """Each thread takes its operations in the order of their starts, which for equal ones is that of the trace."""
    assert sorted(takes) == list(range(len(rows)))
    for thread in np.unique(rows["thread"]):
        own = np.flatnonzero(rows["thread"] == thread)
        expected = own[np.argsort(rows["start_ns"][own], kind="stable")]
        assert [take for take in takes if rows["thread"][take] == thread] == expected.tolist()


def check_pass(rows, events, before, at_latest=None):
    """Operations may start when all that have to precede them have completed, and no later than all of `at_latest`.

    Parameters
    ----------
    rows : ndarray
        With ``thread, start_ns``; the events name them by their number.
    events : list
        Of one pass, as from `walk`.
    before, at_latest : ndarray of bool, shape (n, n)
        ``[a, b]``: a has to precede b. The second one is the first one unless given.
    """
    at_latest = before if at_latest is None else at_latest
    check_takes(rows, [row for what, row, _ in events if what == "take"])
    completed = np.zeros(len(rows), bool)
    held = set()
    for at, (what, row, _) in enumerate(events):
        if what == "take":
            held.add(row)
        elif what == "may":
            assert row in held
            assert not (before[:, row] & ~completed).any()
            held.remove(row)
        else:
            assert row not in held
            completed[row] = True
        if at + 1 == len(events) or events[at + 1][0] != "may":
            waiting = sorted(held)
            assert (at_latest[:, waiting] & ~completed[:, None]).any(axis=0).all()
    assert completed.all()
