# SPDX-License-Identifier: Apache-2.0
"""Logarithmic histograms against the sorted values: how far quantiles may be off, what is exact, merging."""

import math
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from characterize.counting.log_histogram import BUCKETS, GroupedHistogram, LogHistogram, bucket_of, rank_of
from characterize.counting.time_histogram import time_histogram

pytestmark = pytest.mark.parallel

VALUES = st.lists(st.one_of(st.integers(0, 600), st.integers(0, 10**6), st.integers(0, 2**50)), min_size=1)
SHARES = (0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0)


def histogram(values):
    result = LogHistogram()
    result.add(np.array(values, np.int64))
    return result


def test_buckets_follow_each_other_up_to_the_largest_number():
    edges = [bucket_of(np.int64(value)) for value in range(5000)]
    assert set(np.diff(edges)) == {0, 1}
    assert edges[:512] == list(range(512))
    assert bucket_of(np.int64(2**63 - 1)) == BUCKETS - 1
    for power in range(9, 63):
        assert bucket_of(np.int64(2**power)) == bucket_of(np.int64(2**power - 1)) + 1


@given(VALUES)
def test_a_quantile_is_a_value_that_occurred_and_hardly_too_large(values):
    found, ordered = histogram(values), sorted(values)
    for share in SHARES:
        exact = ordered[rank_of(share, len(values)) - 1]
        quantile = found.quantile(share)
        assert quantile in values
        assert exact <= quantile <= exact * (1 + 1 / 256)
    assert (found.count, found.total, found.largest) == (len(values), np.array(values).sum(), ordered[-1])


def test_a_distribution_by_hand():
    assert histogram(range(1, 501)).distribution() == {
        "count": 500, "mean_ns": 250.5, "p50_ns": 250, "p90_ns": 450, "p99_ns": 495, "p999_ns": 500, "max_ns": 500
    }  # fmt: skip


@given(st.lists(st.integers(0, 511), min_size=1))
def test_small_values_are_exact(values):
    quantiles = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p999_ns": 0.999}
    exact = np.quantile(values, list(quantiles.values()), method="inverted_cdf")
    assert histogram(values).distribution() == {
        "count": len(values),
        "mean_ns": np.mean(values),
        "max_ns": max(values),
        **dict(zip(quantiles, exact, strict=True)),
    }


@given(VALUES, VALUES, VALUES)
def test_merging_is_adding_in_any_order(first, second, third):
    left, right = histogram(first), histogram(second)
    left.merge(right)
    left.merge(histogram(third))
    right.merge(histogram(third))
    other = histogram(first)
    other.merge(right)
    assert left.distribution() == other.distribution() == histogram(first + second + third).distribution()


@given(VALUES, VALUES)
def test_what_is_sent_goes_on_as_what_stayed(values, more):
    stayed, sent = histogram(values), pickle.loads(pickle.dumps(histogram(values)))
    for one in (stayed, sent):
        one.add(np.array(more, np.int64))
    assert sent.distribution() == stayed.distribution()
    assert [it.tolist() for it in sent.buckets()] == [it.tolist() for it in stayed.buckets()]


def test_an_empty_one_is_sent_in_few_bytes():
    assert len(pickle.dumps(LogHistogram())) < 1000


def test_nothing():
    assert set(LogHistogram().distribution().values()) == {0, None}
    assert math.isnan(LogHistogram().mean)


@pytest.mark.parametrize(
    ("share", "count", "rank"), [(0.999, 1000, 999), (0.999, 10**8, 99_900_000), (0.5, 1, 1), (0, 9, 1)]
)
def test_ranks_are_whole_where_they_are(share, count, rank):
    assert rank_of(share, count) == rank


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 511))), st.integers(1, 7))
def test_medians_of_groups(pairs, step):
    grouped = GroupedHistogram()
    groups, values = np.array(pairs, np.int64).reshape(-1, 2).T
    for at in range(0, len(pairs), step):
        grouped.add(groups[at : at + step], values[at : at + step])
    for group, median in enumerate(grouped.medians(6)):
        mine = sorted(value for its, value in pairs if its == group)
        assert (math.isnan(median) and not mine) or median == mine[rank_of(0.5, len(mine)) - 1]


@given(st.lists(st.integers(0, 2**63 - 1)), st.lists(st.sampled_from([0, 1, 2, 3, 511, 512, 513, 2**40 - 1, 2**40])))
def test_times_by_power_of_two_against_counting(one, other):
    table = time_histogram({"one": histogram(one), "other": histogram(other)})
    rows = table.to_dict("records")
    for row in rows:
        for name, values in (("one", one), ("other", other)):
            assert row[name] == sum(row["low_ns"] <= value < row["high_ns"] for value in values)
    assert (table["one"].sum(), table["other"].sum()) == (len(one), len(other))
    assert all(before["high_ns"] == after["low_ns"] for before, after in pairwise(rows))
    assert not rows or (rows[0]["one"] + rows[0]["other"] and rows[-1]["one"] + rows[-1]["other"])
    assert list(table) == ["low_ns", "high_ns", "one", "other"]
