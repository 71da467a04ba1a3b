# SPDX-License-Identifier: Apache-2.0
"""Stack depths in batches: block numbers against a dictionary, depths against another published method, samples."""

from bisect import bisect_right, insort
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from characterize.counting import numbering
from characterize.counting.distinct_count import MAP_BITS, distinct_of, empty_map
from characterize.counting.lru_stack import COLD, LruStack
from characterize.counting.numbering import Numbering
from characterize.counting.shards import SAMPLED_LEAST, SampledLocality
from characterize.errors import FlextraceError
from characterize.formats.foreign import read_foreign
from characterize.locality import LocalitySummary, locality_of
from characterize.references import BATCH_REFERENCES, BlockNumbers
from characterize.requests import columns_of, requests_of
from tests.traces.real_traces import real_trace

pytestmark = pytest.mark.parallel

BLOCK = 4096
REQUESTS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 90_000), st.integers(1, 20_000), st.booleans()), min_size=1, max_size=80
)


def columns(rows):
    file, offset, size, read = (np.array(column) for column in zip(*rows, strict=True))
    return {"file": file, "offset": offset, "bytes": size, "read": read}


def summarized(requests, step):
    blocks, summary = BlockNumbers(), LocalitySummary()
    for at in range(0, len(requests["file"]), step):
        part = {name: column[at : at + step] for name, column in requests.items()}
        for references in blocks.references(part):
            summary.add(part, references)
    return summary.result()


def olken(keys):
    """Depths by a tree of the last times of all keys (Olken 1981): how many are later than the key's own."""
    last, times, depths = {}, [], []
    for time, key in enumerate(keys):
        if key in last:
            depths.append(len(times) - bisect_right(times, last[key]))
            times.remove(last[key])
        else:
            depths.append(COLD)
        last[key] = time
        insort(times, time)
    return depths


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-40, 40)), st.integers(1, 9))
def test_numbers_against_a_dictionary(keys, step):
    found, known = Numbering(), {}
    numbers = [found.number(np.array(keys[at : at + step], np.int64)) for at in range(0, len(keys), step)]
    assert np.concatenate([[], *numbers]).tolist() == [known.setdefault(key, len(known)) for key in keys]
    assert found.keys.tolist() == list(known)


def test_numbers_of_keys_that_come_again_while_the_table_grows():
    """More keys than are looked up together, half of them new, many twice among the same ones."""
    keys = np.random.default_rng(4).integers(0, np.arange(1, 30_001))
    known: dict[int, int] = {}
    wanted = [known.setdefault(key, len(known)) for key in keys.tolist()]
    for step in (511, 513, 30_000):
        found = Numbering()
        numbers = [found.number(keys[at : at + step]) for at in range(0, len(keys), step)]
        assert np.concatenate(numbers).tolist() == wanted


@pytest.mark.parametrize("stride", [1, 16, 17, 4096, 1 << 32, 610])
def test_numbers_of_regular_keys(stride):
    """Whatever bits the keys differ in, the table fills up and every key is found again."""
    keys = np.arange(20_000) * stride
    found = Numbering()
    assert found.number(keys).tolist() == found.number(keys).tolist() == list(range(20_000))
    assert found.nbytes <= 22 * len(keys)


def test_too_many_keys(monkeypatch):
    monkeypatch.setattr(numbering, "_NUMBERS_MAX", 150)
    with pytest.raises(FlextraceError, match="more than 150 distinct"):
        Numbering().number(np.arange(1000))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.integers(1, 900))
def test_depths_against_a_tree_of_times(seed, distinct, step):
    keys = np.random.default_rng(seed).integers(0, distinct, 2000)
    stack, found = LruStack(), Numbering()
    depths = []
    for at in range(0, len(keys), step):
        numbers = found.number(keys[at : at + step])
        depths += stack.depths(numbers, len(found)).tolist()
    assert depths == olken(keys.tolist())
    assert found.keys[stack.oldest_first()].tolist() == list(dict.fromkeys(keys[::-1].tolist()))[::-1]


def naive_curves(requests):
    """By unit and direction how much there is of each depth, from a list that is searched; None: cold."""
    stack, tallies = [], Counter()
    for file, offset, size, read in zip(
        *(requests[name].tolist() for name in ("file", "offset", "bytes", "read")), strict=True
    ):
        deepest = 0
        for block in range(offset // BLOCK, (offset + size - 1) // BLOCK + 1):
            depth = None
            if (file, block) in stack:
                depth = len(stack) - 1 - stack.index((file, block))
                stack.remove((file, block))
            stack.append((file, block))
            moved = min(offset + size, (block + 1) * BLOCK) - max(offset, block * BLOCK)
            tallies["references", read, depth] += 1
            tallies["bytes", read, depth] += moved
            deepest = None if depth is None or deepest is None else max(depth, deepest)
        tallies["requests", read, deepest] += 1
    return tallies


@given(REQUESTS)
def test_curves_by_unit_and_direction(rows):
    requests = columns(rows)
    tallies, curves = naive_curves(requests), summarized(requests, 5).curves
    for unit in ("references", "requests", "bytes"):
        for suffix, directions in (("", (True, False)), ("_read", (True,)), ("_written", (False,))):
            mine = {key: count for key, count in tallies.items() if key[0] == unit and key[1] in directions}
            total = sum(mine.values())
            for row in curves.to_dict("records"):
                held = sum(
                    n for (_, _, depth), n in mine.items() if depth is not None and depth < row["cache_bytes"] // BLOCK
                )
                if total:
                    assert row[unit + suffix] == pytest.approx(1 - held / total)
                else:
                    assert np.isnan(row[unit + suffix])
    assert curves["references"].tolist() == pytest.approx(
        summarized(requests, 5).miss_ratio(curves["cache_bytes"].to_numpy()).tolist()
    )


@given(REQUESTS)
def test_any_step_gives_the_same(rows):
    results = [summarized(columns(rows), step) for step in (1, 7, 1000)]
    for result in results[1:]:
        assert result.counts.tolist() == results[0].counts.tolist()
        assert result.cold == results[0].cold
        pd.testing.assert_frame_equal(result.curves, results[0].curves)


def test_a_request_larger_than_a_batch_and_across_a_segment():
    size = (BATCH_REFERENCES + 5) * BLOCK
    across = (1 << 32) * BLOCK - 2 * BLOCK
    requests = pd.DataFrame(
        {
            "file": [1, 1, 2, 1, 2],
            "offset": [0, 0, across, across, across + BLOCK],
            "bytes": [size, size, 4 * BLOCK, 4 * BLOCK, 2 * BLOCK],
        }
    )
    result = locality_of(requests)
    assert result.cold == BATCH_REFERENCES + 5 + 8
    assert np.flatnonzero(result.counts).tolist() == [6, BATCH_REFERENCES + 4]


def mixed(count, blocks, seed=3):
    """A scan in a loop, and random references to the rest of the blocks."""
    random = np.random.default_rng(seed)
    number = np.where(
        random.random(count) < 0.3, np.arange(count) % (blocks // 3), random.integers(blocks // 3, blocks, count)
    )
    return {"file": np.full(count, 5), "offset": number * BLOCK, "bytes": np.full(count, BLOCK)}


def distance(sample, exact):
    sizes = np.linspace(1, exact.cold, 200) * BLOCK
    return float(np.abs(sample.miss_ratio(sizes) - exact.miss_ratio(sizes)).mean())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"rate": 0.01}, 0.006),
        ({"rate": 0.01, "blocks_least": SAMPLED_LEAST}, 0.002),
        ({"size_bytes": 2 << 20}, 0.002),
        ({"rate": 1.0}, 0.0005),
    ],
)
def test_a_sample_is_near_the_whole(options, error):
    requests = mixed(1_000_000, 300_000)
    sample = SampledLocality(**options)
    for at in range(0, 1_000_000, 77_777):
        sample.add({name: column[at : at + 77_777] for name, column in requests.items()})
    result = sample.result()
    assert result.references == pytest.approx(1_000_000)
    assert distance(result, locality_of(pd.DataFrame(requests))) <= error
    if "size_bytes" in options:
        assert sample.nbytes <= options["size_bytes"]
        assert result.sampled["rate"] < 1


def test_what_is_known_of_sampled_blocks_is_copied_a_few_times_only():
    """Not for every batch: each array is another one only where it doubles, 7 times in 64 batches of new blocks."""
    sample, seen = SampledLocality(follows=True), []
    for batch in range(64):
        blocks = np.arange(4096 * batch, 4096 * (batch + 1))
        sample.add({"file": np.ones(4096, np.int64), "offset": blocks * BLOCK, "bytes": np.full(4096, BLOCK)})
        arrays = (sample._hashes, sample._reuses, sample._first)
        seen += [array for array in arrays if not any(array is other for other in seen)]
    assert len(seen) == 3 * 7
    assert sample.result().cold == 64 * 4096


def test_few_blocks_are_sampled_at_a_higher_rate():
    requests = mixed(200_000, 100_000)
    for rate, wanted in ((0.01, None), (0.3, 0.3)):
        sample = SampledLocality(rate, blocks_least=SAMPLED_LEAST)
        sample.add(requests)
        found = sample.result().sampled
        assert found["blocks"] > 0.98 * SAMPLED_LEAST
        assert found["rate"] == (pytest.approx(wanted) if wanted else pytest.approx(SAMPLED_LEAST / 90_000, rel=0.2))
    few = mixed(1000, SAMPLED_LEAST)
    sample = SampledLocality(0.01, blocks_least=SAMPLED_LEAST)
    sample.add(few)
    assert sample.result().sampled["rate"] == 1


def test_the_sample_is_set_right_by_the_number_of_blocks():
    """Blocks that lie anywhere, hardly any of them touched twice: 1 % of them are off by several percent."""
    random = np.random.default_rng(9)
    blocks = random.integers(0, 10**10, 100_000)
    blocks[::300] = blocks[1::300]
    for file in range(6):
        requests = {"file": np.full(100_000, file), "offset": blocks * BLOCK, "bytes": np.full(100_000, BLOCK)}
        sample = SampledLocality(0.01)
        sample.add(requests)
        exact = locality_of(pd.DataFrame(requests))
        assert sample.result().cold == pytest.approx(exact.cold, rel=0.003)
        assert distance(sample.result(), exact) < 0.003


@pytest.mark.parametrize("count", [0, 1, 5000, 1_000_000, 4_000_000])
def test_different_hashes_are_counted(count):
    bitmap = empty_map()
    bits = np.random.default_rng(1).integers(0, 1 << MAP_BITS, count).astype(np.uint64)
    np.bitwise_or.at(bitmap, (bits >> np.uint64(6)).astype(np.intp), np.uint64(1) << (bits & np.uint64(63)))
    found, variance = distinct_of(bitmap)
    assert abs(found - count) <= 3 * variance**0.5
    assert variance**0.5 <= 0.002 * count


def test_a_full_map_counts_nothing():
    assert distinct_of(~empty_map()) == (np.inf, np.inf)


@pytest.mark.parametrize("options", [{"size_bytes": 600_000}, {"rate": 0.01, "blocks_least": 3000}])
def test_a_sample_does_not_depend_on_the_steps(options):
    requests = mixed(50_000, 30_000)
    results = []
    for step in (1000, 7777, 50_000):
        sample = SampledLocality(**options)
        for at in range(0, 50_000, step):
            sample.add({name: column[at : at + step] for name, column in requests.items()})
        results.append(sample.result())
    assert results[0].sampled["rate"] < 1
    for result in results[1:]:
        assert result.sampled == results[0].sampled
        assert (result.cold, result.counts.tolist()) == (results[0].cold, results[0].counts.tolist())


@pytest.mark.parametrize("options", [{"rate": 0}, {"rate": 1.5}, {"size_bytes": 300_000}])
def test_impossible_samples(options):
    with pytest.raises(FlextraceError, match="sample"):
        SampledLocality(**options)


def test_the_known_values_of_a_real_trace():
    """As its publishers give them, and the sample beside the whole."""
    requests = columns_of(requests_of(read_foreign(real_trace("cloudPhysicsIO.csv")), "block"))
    assert len(requests["read"]) == 113_872
    assert round(requests["read"].mean(), 4) == 0.4125
    assert round(requests["bytes"].mean()) == 36_936
    assert len(np.unique(requests["offset"])) == 48_974
    starts = np.unique(requests["offset"], return_inverse=True)[1]
    depths = LruStack().depths(starts.astype(np.int32), 48_974)
    # research/characterise_predict.md, A3: of the starts, 43 % cold, mean depth 0.324 and median 0.201 of their number.
    assert round((depths == COLD).mean(), 2) == 0.43
    assert round(depths[depths >= 0].mean() / 48_974, 3) == 0.324
    assert round(float(np.median(depths[depths >= 0])) / 48_974, 3) == 0.201
    sample = SampledLocality(size_bytes=2 << 20)
    sample.add(requests)
    assert distance(sample.result(), locality_of(pd.DataFrame(requests))) <= 0.01
