# SPDX-License-Identifier: Apache-2.0
"""How long before a due time the engine wakes up to spin: what one in a thousand of its wake-ups exceeds."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path("build/tests/margins").resolve()
LEAST_NS, MOST_NS = 20_000, 300_000

pytestmark = [
    pytest.mark.parallel,
    pytest.mark.skipif(not PROGRAM.exists(), reason="build/tests/margins is missing: make build/test-programs"),
]


def margins_ns(first_ns: int, late_ns: np.ndarray) -> np.ndarray:
    """The margin after each wake-up, shape (n,)."""
    text = "\n".join(str(int(late)) for late in late_ns)
    done = subprocess.run([PROGRAM, str(first_ns)], input=text, capture_output=True, text=True, check=True, timeout=60)
    return np.array([int(line) for line in done.stdout.split()])


@pytest.mark.parametrize("mean_ns", [11_000, 20_000, 30_000])
@pytest.mark.parametrize("first_ns", [LEAST_NS, 150_000, MOST_NS])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_wake_up_in_a_thousand_comes_later(mean_ns, first_ns, seed):
    late_ns = np.random.default_rng(seed).exponential(mean_ns, 200_003)
    margin_ns = margins_ns(first_ns, late_ns)
    settled = slice(50_001, None)
    later = late_ns[1:][settled] > margin_ns[:-1][settled]
    assert later.mean() == pytest.approx(0.001, rel=0.25)
    assert np.median(margin_ns[settled]) == pytest.approx(np.quantile(late_ns, 0.999), rel=0.15)


def test_it_follows_a_machine_that_changes():
    generator = np.random.default_rng(5)
    late_ns = np.concatenate([generator.exponential(mean_ns, 50_021) for mean_ns in (5_000, 25_000, 5_000)])
    margin_ns = margins_ns(LEAST_NS, late_ns)
    first, second, third = (np.median(margin_ns[end - 10_007 : end]) for end in (50_021, 100_042, 150_063))
    assert second > 3 * first
    assert third < 1.5 * first


def test_neither_a_disturbance_nor_a_perfect_machine_leads_out_of_its_range():
    assert set(margins_ns(LEAST_NS, np.full(30_011, 4e9))[20:]) == {MOST_NS}
    assert set(margins_ns(MOST_NS, np.zeros(30_011))[-1000:]) == {LEAST_NS}
    assert margins_ns(100_000, np.array([5e9])) == [120_000]
