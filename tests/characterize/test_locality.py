# SPDX-License-Identifier: Apache-2.0
"""LRU stack depths: against a list that is searched, and by hand."""

import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from characterize.locality import locality_of
from characterize.requests import requests_of
from tests.traces.made_trace import made_trace, read

pytestmark = pytest.mark.parallel

BLOCK = 4096


def locality(*rows):
    """Of ``(offset, bytes)`` or ``(offset, bytes, file)``."""
    requests = [read(row[0], row[1], start, file=row[2] if len(row) > 2 else 1) for start, row in enumerate(rows)]
    return locality_of(requests_of(made_trace(requests)))


def blocks(*numbers):
    return locality(*((number * BLOCK, BLOCK) for number in numbers))


def test_by_hand():
    """a b c a a b: a has depth 2, then 0; b has depth 2 (c and a between, a once)."""
    result = blocks(0, 1, 2, 0, 0, 1)
    assert result.counts.tolist() == [1, 0, 2]
    assert result.cold == 3
    assert result.references == 6
    assert result.cold_share == 0.5
    assert result.mean_depth_bytes == pytest.approx(4 / 3 * BLOCK)
    assert result.equivalent_unique_bytes == pytest.approx(8 / 3 * BLOCK)
    assert [result.quantile_bytes(q) for q in (0.0, 1 / 3, 0.34, 0.5, 1.0)] == [0, 0, 2 * BLOCK, 2 * BLOCK, 2 * BLOCK]
    # Caches of 0, 1, 2, 3, 100 blocks hold 0, 1, 1, 3, 3 of the 6 references.
    sizes = np.array([0, 1, 2, 3, 100]) * BLOCK
    assert result.miss_ratio(sizes).tolist() == pytest.approx([1, 5 / 6, 5 / 6, 3 / 6, 3 / 6])
    assert result.miss_ratio(3 * BLOCK - 1) == pytest.approx(5 / 6)


def test_a_request_touches_its_blocks_in_ascending_order():
    """Blocks 0 1 2, then 1 2: block 1 has 2 above it (depth 1), then block 2 has 1 above it (depth 1)."""
    result = locality((0, 3 * BLOCK), (BLOCK, 2 * BLOCK))
    assert result.counts.tolist() == [0, 2]
    assert result.cold == 3


def test_parts_of_blocks_are_references_to_the_whole():
    result = locality((100, 10), (4000, 200), (5000, 1))
    assert result.cold == 2
    assert result.counts.tolist() == [2]


def test_files_are_apart():
    assert locality((0, BLOCK, 1), (0, BLOCK, 2), (0, BLOCK, 1)).counts.tolist() == [0, 1]


def test_no_requests():
    result = locality()
    assert result.references == 0
    assert math.isnan(result.cold_share)
    assert math.isnan(result.mean_depth_bytes)
    assert math.isnan(result.quantile_bytes(0.5))
    assert math.isnan(result.miss_ratio(BLOCK))
    assert len(result.miss_ratio_curve()) == 0


def test_no_reuse():
    result = blocks(0, 1, 2)
    assert math.isnan(result.equivalent_unique_bytes)
    assert result.miss_ratio(2**40) == 1
    assert result.miss_ratio_curve().to_dict("records") == [{"cache_bytes": BLOCK, "miss_ratio": 1.0}]


def naive_depths(rows):
    stack, depths, cold = [], Counter(), 0
    for offset, size, file in rows:
        for number in range(offset // BLOCK, (offset + size - 1) // BLOCK + 1):
            block = file, number
            if block in stack:
                depths[len(stack) - 1 - stack.index(block)] += 1
                stack.remove(block)
            else:
                cold += 1
            stack.append(block)
    return depths, cold


@given(st.lists(st.tuples(st.integers(0, 80_000), st.integers(1, 20_000), st.integers(1, 3)), max_size=120))
def test_against_a_list(rows):
    result = locality(*rows)
    depths, cold = naive_depths(rows)
    assert {depth: count for depth, count in enumerate(result.counts.tolist()) if count} == depths
    assert result.cold == cold


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(1, 400))
def test_against_a_list_over_many_compactions(seed, distinct):
    numbers = np.random.default_rng(seed).integers(0, distinct, 3000)
    result = blocks(*numbers.tolist())
    depths, cold = naive_depths([(int(number) * BLOCK, BLOCK, 1) for number in numbers])
    assert {depth: count for depth, count in enumerate(result.counts.tolist()) if count} == depths
    assert result.cold == cold


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200))
def test_the_curve_is_exact_and_never_rises(numbers):
    result = blocks(*numbers)
    curve = result.miss_ratio_curve()
    assert curve["cache_bytes"].is_monotonic_increasing
    assert curve["miss_ratio"].is_monotonic_decreasing
    assert curve["miss_ratio"].iloc[-1] == pytest.approx(result.cold_share)
    for size, ratio in curve.itertuples(index=False):
        assert ratio == pytest.approx(misses_of_lru(numbers, size // BLOCK) / len(numbers))


def misses_of_lru(numbers, capacity):
    cache, misses = [], 0
    for number in numbers:
        if number in cache:
            cache.remove(number)
        else:
            misses += 1
            del cache[: max(0, len(cache) - capacity + 1)]
        cache.append(number)
    return misses


def test_random_access_has_half_of_unique_bytes_as_its_mean_depth():
    """What the thesis asks of Willy (3.4.1.1) holds for uniform random access once every block was touched."""
    rng = np.random.default_rng(1)
    numbers = np.concatenate([np.arange(500), rng.integers(0, 500, 50_000)])
    requests = pd.DataFrame({"file": 1, "offset": numbers * BLOCK, "bytes": BLOCK})
    assert locality_of(requests).equivalent_unique_bytes == pytest.approx(500 * BLOCK, rel=0.01)
