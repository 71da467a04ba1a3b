# SPDX-License-Identifier: Apache-2.0
"""The elapsed time of an application with other I/O, against hand calculation and a simulation of its threads."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfscale.predicting.elapsed import recorded_times
from tests.truths.simulated_threads import Device, elapsed_s, simulated

pytestmark = pytest.mark.parallel

MS = 1_000_000


def requests(*rows):
    """Rows of (thread, start ms, end ms), 1000 bytes each."""
    frame = pd.DataFrame(rows, columns=["thread", "start_ns", "end_ns"])
    frame[["start_ns", "end_ns"]] *= MS
    return frame.assign(bytes=1000).sort_values("start_ns", ignore_index=True)


def test_one_thread_is_time_outside_plus_bytes_by_throughput():
    # Starts at 40 ms of 100, computes 10 ms between two requests of 5 and 15 ms.
    times = recorded_times(requests((1, 40, 45), (1, 55, 70)), 0.1, 0.0)
    assert times.io_s == pytest.approx(0.020)
    assert times.waiting_s == pytest.approx(0.020)
    assert times.outside_s == pytest.approx(0.080)
    assert times.in_flight == 1
    assert times.throughput_bytes_per_s == pytest.approx(2000 / 0.020)
    assert times.elapsed_with(1e6) == pytest.approx(0.080 + 2000 / 1e6)


def taking_turns(io_ms, compute_ms, rounds=50):
    """Two threads, each of which computes while the other one is in I/O; the threads are independent of each other."""
    rows = []
    for thread, begin in ((1, 0), (2, compute_ms)):
        for number in range(rounds):
            start = begin + number * (io_ms + compute_ms)
            rows.append((thread, start, start + io_ms))
    return requests(*rows)


def test_threads_that_take_turns_wait_for_half_of_the_time():
    table = taking_turns(10, 10)
    elapsed_s = table["end_ns"].max() / 1e9
    times = recorded_times(table, elapsed_s, 0.0)
    assert times.io_s == pytest.approx(elapsed_s)
    assert times.waiting_s == pytest.approx(elapsed_s / 2, rel=0.02)
    # Requests of 5 ms instead of 10: what the same two threads take then.
    faster = taking_turns(5, 10)
    expected_s = faster["end_ns"].max() / 1e9
    assert times.elapsed_with(2 * times.throughput_bytes_per_s) == pytest.approx(expected_s, rel=0.03)


def test_it_takes_no_less_than_all_bytes_at_the_full_throughput():
    # A device that serves one at a time, ten times slower: both threads always wait, 100 requests x 100 ms.
    times = recorded_times(taking_turns(10, 10), 1.01, 0.0)
    slower = times.throughput_bytes_per_s / 10
    assert times.elapsed_with(slower) == pytest.approx(100_000 / slower)
    # One that serves both at once has twice the throughput with both: each of them takes 50 x (10 + 100 ms).
    assert times.elapsed_with(slower, saturation=2.0) == pytest.approx(5.5, rel=0.02)


def test_threads_one_after_the_other():
    rows = [(number, 10 * number, 10 * number + 5) for number in range(1, 11)]
    rows += [(number, 10 * number + 8, 10 * number + 10) for number in range(1, 11)]
    times = recorded_times(requests(*rows), 0.2, 0.0)
    # Each lives 10 ms, 7 of them in I/O; 100 ms before and behind them nobody does.
    assert times.waiting_s == pytest.approx(0.070)
    assert times.outside_s == pytest.approx(0.130)


def test_a_short_busy_thread_does_not_stand_for_a_long_idle_one():
    times = recorded_times(requests((1, 0, 100), (2, 0, 1), (2, 999, 1000)), 1.0, 0.0)
    assert times.waiting_s == times.io_s == pytest.approx(0.101)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 1000), st.integers(1, 50)), min_size=1, max_size=40),
    st.integers(0, 500),
)
def test_the_recorded_throughput_gives_the_recorded_time(rows, idle_ms):
    table = requests(*((thread, start, start + length) for thread, start, length in rows))
    elapsed_s = (table["end_ns"].max() - table["start_ns"].min()) / 1e9 + idle_ms / 1e3
    times = recorded_times(table, elapsed_s, 0.0)
    assert times.elapsed_with(times.throughput_bytes_per_s) == pytest.approx(elapsed_s)
    assert 0 <= times.waiting_s <= times.io_s <= elapsed_s + 1e-9
    assert times.elapsed_with(1e30) == pytest.approx(times.outside_s, abs=1e-9)
    # Naively, millisecond by millisecond.
    begin = np.arange(0, 1100)[:, None] * MS
    flying = ((table["start_ns"].to_numpy() <= begin) & (begin < table["end_ns"].to_numpy())).sum(axis=1)
    assert times.io_s == pytest.approx((flying > 0).sum() / 1e3)
    assert times.in_flight == pytest.approx(flying[flying > 0].mean())


def test_simulated_threads_on_another_device():
    """Recorded on one device and predicted for another: the error against a simulation there."""
    recorded_on = [Device(5e-3, 1), Device(5e-3, 4), Device(1e-3, 1)]
    devices = [Device(s, n) for s, n in ((5e-3, 1), (5e-3, 8), (5e-4, 1), (5e-4, 8), (2e-2, 1), (2e-2, 4))]
    errors, of_one_thread = [], []
    for threads, compute_s, here, there in itertools.product((1, 2, 4, 8), (1e-3, 1e-2), recorded_on, devices):
        recording = simulated(here, threads, 300, compute_s, 1)
        times = recorded_times(recording, elapsed_s(recording), 0.0)
        true_s = elapsed_s(simulated(there, threads, 300, compute_s, 2))
        throughput = there.throughput(times.in_flight)
        saturation = max(1.0, there.throughput(threads) / throughput)
        errors.append(abs(times.elapsed_with(throughput, saturation) / true_s - 1))
        # What the formula would be if all threads were taken as one.
        one_s = times.elapsed_s - times.io_s + times.moved_bytes / throughput
        of_one_thread.append(abs(one_s / true_s - 1))
    assert np.median(errors) < 0.06
    assert np.quantile(errors, 0.9) < 0.15
    assert np.quantile(errors, 0.9) < np.quantile(of_one_thread, 0.9) / 2
