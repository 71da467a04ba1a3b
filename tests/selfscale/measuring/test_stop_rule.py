# SPDX-License-Identifier: Apache-2.0
"""When a measurement may stop, on series whose mean, transient and drift are known."""

import math

import numpy as np
import pytest

from selfscale.measuring.stop_rule import RULES, ConfidenceRule, RaidPerfRule, drifts, half_width, mser5

pytestmark = pytest.mark.parallel

INTERVAL_S = 0.05
COUNT = 400


def feed(rates, rule, to_the_end=True):
    """Feed rates (bytes per s) as intervals; the number of intervals that were taken."""
    for taken, rate in enumerate(rates, 1):
        if rule.add(INTERVAL_S, rate * INTERVAL_S, rate * INTERVAL_S) and not to_the_end:
            return taken
    return len(rates)


def series(kind, generator):
    noise = 1 + generator.normal(0, 0.08, COUNT)
    time = np.arange(COUNT)
    shape = np.ones(COUNT)
    if kind == "correlated":
        for index in range(1, COUNT):
            noise[index] = 1 + 0.7 * (noise[index - 1] - 1) + generator.normal(0, 0.05)
    elif kind == "drift":
        shape = np.linspace(1, generator.choice([0.7, 0.8, 1.25, 1.4]), COUNT)
    elif kind == "late step":
        shape[int(COUNT * generator.uniform(0.55, 0.9)) :] = generator.choice([0.7, 1.4])
    elif kind == "early step":
        shape[: int(COUNT * generator.uniform(0.05, 0.4))] = generator.choice([0.5, 2.0])
    elif kind == "transient":
        shape += generator.choice([-0.6, 1.5]) * np.exp(-time / generator.uniform(3, 40))
    return 100 * noise * shape


@pytest.mark.parametrize(
    ("kind", "steady"),
    [
        ("flat", True),
        ("correlated", True),
        ("transient", True),
        ("early step", True),
        ("drift", False),
        ("late step", False),
    ],
)
def test_label_is_right_on_95_of_100_whole_series(kind, steady):
    generator = np.random.default_rng(7)
    right = covered = 0
    for _ in range(200):
        rule = ConfidenceRule(target=0.05)
        feed(series(kind, generator), rule)
        estimate = rule.estimate()
        right += estimate.steady is steady
        assert bool(estimate.reason) is not estimate.steady
        covered += abs(estimate.bytes_per_s - 100) <= estimate.half_width_95
    assert right >= 190
    if steady:
        assert covered >= 170  # nominal 190; correlation and the choice of the cut cost some


def test_stops_early_on_a_quiet_series_and_not_before_the_least_length():
    generator = np.random.default_rng(1)
    rule = ConfidenceRule(target=0.05, min_seconds=2.0)
    taken = feed(series("flat", generator), rule, to_the_end=False)
    assert 2.0 / INTERVAL_S <= taken <= 2.6 / INTERVAL_S
    assert rule.estimate().steady


def test_more_noise_runs_longer():
    generator = np.random.default_rng(1)
    lengths = []
    for deviation in (0.05, 0.4):
        rule = ConfidenceRule(target=0.05, min_seconds=0.5)
        lengths.append(feed(100 * (1 + generator.normal(0, deviation, 2000)), rule, to_the_end=False))
    assert lengths[0] < lengths[1] < 2000


def test_the_transient_is_not_part_of_the_throughput():
    rates = np.concatenate([np.full(100, 900.0), 100 + np.tile([1.0, -1.0], 150)])
    rule = ConfidenceRule()
    feed(rates, rule)
    estimate = rule.estimate()
    assert estimate.first == 100
    assert estimate.bytes_per_s == pytest.approx(100)
    assert estimate.seconds == pytest.approx(300 * INTERVAL_S)


def test_window_begins_behind_what_the_cache_absorbs():
    # 1000 bytes per s for 2 s, then 100 per s: as a page cache that has absorbed 2000 bytes.
    rates = np.concatenate([np.full(40, 1000.0), np.full(200, 100.0)]) * np.tile([1.01, 0.99], 120)
    hasty = ConfidenceRule(min_seconds=0.5)
    feed(rates, hasty, to_the_end=False)
    assert hasty.estimate().bytes_per_s == pytest.approx(1000, rel=0.01)
    patient = ConfidenceRule(min_seconds=0.5, settle_bytes=2000)
    feed(rates, patient, to_the_end=False)
    assert patient.estimate().bytes_per_s == pytest.approx(100, rel=0.01)


def test_not_settled_is_said():
    rule = ConfidenceRule(settle_bytes=1e9)
    feed(np.full(100, 100.0), rule)
    estimate = rule.estimate()
    assert not estimate.steady
    assert "absorbing" in estimate.reason
    assert estimate.bytes_per_s == pytest.approx(100)


def test_nothing_measured_and_nothing_moved_are_not_steady():
    assert ConfidenceRule().estimate().reason == "nothing was measured"
    rule = ConfidenceRule()
    feed(np.zeros(100), rule)
    assert not rule.estimate().steady
    assert not RaidPerfRule().estimate().steady


def test_mser5_cuts_where_the_standard_error_is_least():
    # By hand: batch means 10, 4, then 2 and 3 in turn; keeping n batches costs sum of squares / n^2.
    batches = [10.0, 4.0] + [2.0, 3.0] * 9
    rates = np.repeat(batches, 5)

    def statistic(cut):
        rest = np.array(batches[cut:])
        return ((rest - rest.mean()) ** 2).sum() / len(rest) ** 2

    expected = min(range(len(batches) - 5), key=statistic)
    assert mser5(rates) == 5 * expected == 10


def test_half_width_of_independent_values_is_students():
    values = np.array([9.0, 11.0, 10.0, 12.0, 8.0, 11.0, 9.0, 10.0])
    # Eight values: t(7; 0.975) = 2.364624, standard deviation 1.309307.
    assert half_width(values) == pytest.approx(2.364624 * 1.309307 / math.sqrt(8), rel=1e-5)
    assert half_width(values[:7]) == math.inf


@pytest.mark.parametrize("count", [32, 33, 45, 63, 64, 95, 500])
def test_half_width_and_drift_look_at_nearly_all_of_a_window(count):
    """Not at the last 32 of 63 values, say."""
    values = np.full(count, 10.0)
    values[: count // 3] += np.random.default_rng(count).normal(size=count // 3)
    assert half_width(values) > 0
    rising = np.minimum(np.arange(count), count // 2) * 0.2 + 10.0
    assert drifts(rising)


def test_half_width_does_not_believe_correlated_values():
    generator = np.random.default_rng(3)
    values = np.zeros(640)
    for index in range(1, 640):
        values[index] = 0.95 * values[index - 1] + generator.normal()
    naive = 1.96 * values.std(ddof=1) / math.sqrt(640)
    assert half_width(values + 100) > 2.5 * naive


def test_raidperf_rule_by_hand():
    # Intervals of 10, 12, 14.4 requests at one request a sample: ends behind samples 10, 22, 37.
    # The running throughput is 100 at each end: the changes at 22 and 37 are below 1 %, so it stops there.
    rule = RaidPerfRule(first_requests=10)
    stops = [rule.add(0.1, 10.0, 1.0) for _ in range(37)]
    assert stops.index(True) == 36
    assert rule.estimate().steady
    assert rule.estimate().bytes_per_s == pytest.approx(100)


def test_raidperf_rule_starts_again_after_a_change():
    rule = RaidPerfRule(first_requests=10)
    for _ in range(22):
        assert not rule.add(0.1, 10.0, 1.0)
    assert not any(rule.add(0.1, 30.0, 1.0) for _ in range(15))
    assert not rule.estimate().steady


def test_rules_by_name():
    assert set(RULES) == {"confidence", "raidperf"}
    for make in RULES.values():
        rule = make(0.05, 1.0, 0.0)
        feed(np.full(300, 1000.0) + np.tile([1, -1], 150), rule)
        assert rule.estimate().bytes_per_s == pytest.approx(1000)
