# SPDX-License-Identifier: Apache-2.0
"""How threads of a replay compute and sleep in turns, on a clock that is theirs alone: by hand."""

import subprocess
from pathlib import Path

import pytest

PROGRAM = Path("build/tests/computing").resolve()

pytestmark = [
    pytest.mark.parallel,
    pytest.mark.skipif(not PROGRAM.exists(), reason="build/tests/computing is missing: make build/test-programs"),
]


def computed(what, lost_us, burst_us, *numbers):
    """Processor time (ms), sleeps, and time that passed (ms)."""
    words = [what, lost_us * 1000, burst_us * 1000, *numbers]
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=True, timeout=60)
    had_ns, sleeps, passed_ns = map(int, done.stdout.split())
    return had_ns / 1e6, sleeps, passed_ns / 1e6


def think_time(lost_us, burst_us, compute_us):
    """Of 20 ms."""
    return computed("think", lost_us, burst_us, compute_us * 1000, 20_000_000)


@pytest.mark.parametrize(
    ("lost_us", "burst_us", "compute_us", "expected"),
    [
        (0, 1000, 10_000, 9),
        (200, 1000, 10_000, 9),  # after each 1 ms: there is time for that
        (500, 1000, 10_000, 8),  # of 20 - 10 - 9 x 0.5 ms nothing is left for the last one
        (0, 3000, 10_000, 2),
        (0, 9000, 10_000, 1),
        (0, 0, 10_000, 1),  # for how long at a time is not known
        (0, 1, 19_975, 3),  # 25 us in sleeps of at least 10, and one more
    ],
)
def test_who_computes_in_bursts_sleeps_in_between(lost_us, burst_us, compute_us, expected):
    had_ms, sleeps, passed_ms = think_time(lost_us, burst_us, compute_us)
    assert had_ms == pytest.approx(compute_us / 1000, rel=0.01)
    assert sleeps == expected
    assert 20 <= passed_ms < 20.01 + 2 * lost_us / 1000


def test_who_waits_for_a_processor_computes_as_much():
    """3 ms after each of its own: after the third of ten the rest takes more than is left, and nothing is slept."""
    had_ms, sleeps, passed_ms = think_time(3000, 1000, 10_000)
    assert had_ms == pytest.approx(10, rel=0.01)
    assert sleeps == 2
    assert passed_ms > 37


def test_who_computes_all_the_time_does_so_until_it_is_over():
    had_ms, sleeps, passed_ms = think_time(500, 1000, 20_000)
    assert had_ms == pytest.approx(20 / 1.5, rel=0.05)
    assert sleeps == 0
    assert 20 <= passed_ms < 20.51


@pytest.mark.parametrize(
    ("processors", "lost_us", "expected"),
    # Who gets a processor for 1 ms after each 2 ms without may have a third of it, after each 4 ms a fifth.
    [(0.3, 0, 0.3), (0.7, 0, 0.7), (0.3, 2000, 0.3), (0.3, 4000, 0.2)],
)
def test_others_keep_processors_busy(processors, lost_us, expected):
    """Processor time that they do not get at once they get later, as far as there is any."""
    had_ms, sleeps, passed_ms = computed("others", lost_us, 300, processors)
    assert had_ms / passed_ms == pytest.approx(expected, rel=0.02)
    if not lost_us:
        assert had_ms / sleeps == pytest.approx(0.3, rel=0.05)
