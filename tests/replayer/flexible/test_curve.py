# SPDX-License-Identifier: Apache-2.0
"""Alterations hold the miss-ratio curve over cache / uniqueBytes, by stacks that are followed block by block."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import types
from numba.typed import Dict

import characterize
from characterize.counting.dense_blocks import dense_blocks
from characterize.workload import Workload
from replayer.alter import Relative, alter
from replayer.flexible.by_depth import place_by_depths
from replayer.flexible.curve import CURVE_HELD, apart, curve_of_requests
from replayer.flexible.depths import AHEAD_BLOCKS, NEW, Requests, Room, Streams, depths_of, place_at_depth
from replayer.flexible.draft import Draft
from replayer.flexible.fold import fold_files
from replayer.flexible.place_stack import empty_stack, touch
from replayer.flexible.size_mean import change_size_mean
from replayer.flexible.unavoidable import least_error
from replayer.flexible.wishes import Wishes, moved
from replayer.run import replay
from replayer.willy import make_trace
from tests.traces.flexible_traces import (
    Recording,
    database_like,
    laid_out_then_used,
    recordings,
    replay_size_violations,
    willy,
)
from tests.traces.real_traces import real_trace
from tests.truths.straced import needs_engine

pytestmark = pytest.mark.parallel

BLOCK = 4096


def naive_depths(references):
    """Of every reference the number of other blocks since its last one, -1 for none, by the definition."""
    last, depths = {}, []
    for time, block in enumerate(references):
        depths.append(len(set(references[last[block] + 1 : time])) if block in last else -1)
        last[block] = time
    return np.array(depths)


def references_of(trace):
    io = trace.io[trace.io["result"] > 0].sort_values("start_ns", kind="stable")
    return [
        (file, block)
        for file, offset, size in zip(io["file"], io["offset"], io["result"], strict=True)
        for block in range(offset // BLOCK, (offset + size - 1) // BLOCK + 1)
    ]


def naive_curve(trace):
    depths = naive_depths(references_of(trace))
    footprint = (depths < 0).sum()
    return np.array([((depths < 0) | (depths >= share * footprint // 64)).mean() for share in range(1, 64)])


def assert_held(parent, altered, manifest):
    error = np.abs(naive_curve(parent) - naive_curve(altered)).mean()
    assert manifest.curve.mean_error == pytest.approx(error, abs=1e-9)
    assert manifest.curve.held
    assert error <= CURVE_HELD + manifest.curve.least_error
    assert not manifest.off
    assert replay_size_violations(altered) == 0


def used_once(requests=400, size=2 * BLOCK, inside=1024):
    """Like a database that was traced below its cache: every place once, in random order, not at a block's border."""
    recording, random = Recording(), np.random.default_rng(2)
    file = recording.file("/disk", inside + requests * (size + BLOCK))
    for place in random.permutation(requests).tolist():
        recording.read(1, file, inside + place * (size + BLOCK), size)
    return recording.trace()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=30), st.data()
)
def test_depths_are_those_of_the_definition(requests, data):
    chosen = np.array([data.draw(st.integers(0, blocks - 1)) for _, _, blocks in requests])
    table = pd.DataFrame(requests, columns=["file", "offset", "bytes"])
    first, blocks, distinct = dense_blocks(table.assign(offset=table["offset"] * BLOCK, bytes=table["bytes"] * BLOCK))
    wanted, references = [], []
    for (file, low, count), step in zip(requests, chosen.tolist(), strict=True):
        references += [(file, low + index) for index in range(step + 1)]
        wanted.append(naive_depths(references)[-1])
        references += [(file, low + index) for index in range(step + 1, count)]
    assert NEW == -1
    assert depths_of(first, blocks, distinct, chosen).tolist() == wanted


def test_requests_of_more_than_a_mib_are_not_looked_for_behind_the_end_of_all_files():
    # As Python, which says so where compiled code reads on: alter crashed with requests of 10 MiB.
    places, blocks = AHEAD_BLOCKS + 44, AHEAD_BLOCKS + 24
    stack = empty_stack(places)
    for place in range(places):
        touch(stack, place)
    one = np.zeros(1, np.int64)
    fields = {"blocks": one + blocks, "size": one + blocks * BLOCK, "rest": one + blocks, "sequential": one > 0}
    requests = Requests(**{name: fields.get(name, one) for name in Requests._fields})
    room = Room(one, one + places, one, one + 1, 0)
    streams = Streams(Dict.empty(types.int64, types.int64), one, one)
    for depth in range(places):
        file_of = np.zeros(places, np.int32)
        place = place_at_depth.py_func(requests, room, stack, streams, 0, file_of, depth, False)
        assert place + blocks <= places


@pytest.mark.parametrize("factor", [0.25, 0.5, 0.8])
def test_what_was_new_comes_to_the_place_that_was_used_the_longest_ago(factor):
    parent = used_once(size=BLOCK, inside=0)
    draft = Draft.of(parent)
    reached = place_by_depths(draft, factor * draft.unique_bytes(), np.random.default_rng(0))
    assert reached == pytest.approx(factor * 400 * BLOCK, rel=0.005)
    places = (draft.io["offset"] // BLOCK).tolist()
    depths = naive_depths(places)
    again = depths[depths >= 0]
    assert len(again) == 400 - len(set(places))
    # All of them but those few that would by chance be sequential behind the request before.
    assert np.mean(again >= 0.98 * len(set(places))) > 0.95
    altered, manifest = alter(parent, {"uniqueBytes": Relative(factor)})
    assert_held(parent, altered, manifest)


def test_requests_of_any_size_come_to_what_was_used_the_longest_ago():
    recording, random = Recording(), np.random.default_rng(3)
    blocks = random.integers(1, 9, 800)
    end = np.cumsum(blocks + 1)
    file = recording.file("/disk", int(end[-1]) * BLOCK)
    for number in random.permutation(800).tolist():
        recording.read(1, file, int(end[number] - blocks[number]) * BLOCK, int(blocks[number]) * BLOCK)
    parent = recording.trace()
    # Where new places were those that the requests had, it was 0.052 apart.
    assert_held(parent, *alter(parent, {"uniqueBytes": Relative(0.25)}))


@pytest.mark.parametrize("change", [{"uniqueBytes": Relative(factor)} for factor in (0.25, 0.5, 0.8)], ids=str)
def test_data_that_is_used_twice_is_reused_as_deep_as_it_was(change):
    parent = laid_out_then_used()
    altered, manifest = alter(parent, change)
    assert_held(parent, altered, manifest)
    assert manifest.notes["uniqueBytes"]["requests_on_other_files"] > 0
    # Which operations there are, by whom and how large, is not touched by that.
    before, after = (trace.io.sort_values("id").reset_index(drop=True) for trace in (parent, altered))
    for name in ("id", "thread", "op", "result", "start_ns"):
        assert (after[name] == before[name]).all()


@needs_engine
def test_the_engine_repeats_requests_that_went_to_other_files(tmp_path):
    altered, manifest = alter(laid_out_then_used(), {"uniqueBytes": Relative(0.5)})
    assert manifest.notes["uniqueBytes"]["requests_on_other_files"] > 0
    result = replay(characterize.write(altered, tmp_path / "altered.iotrace"), tmp_path / "image")
    assert result["trustworthy"], result["reasons"]
    assert result["operations"]["done"] == len(altered.io) + len(altered.fileops)


@pytest.mark.parametrize("size", ["binomial", "bernoulli"])
def test_random_places_are_used_four_times_less_often(size):
    parent = make_trace(Workload(2 << 20, 0.5, 0.5, 16384, 2), requests=1000, size=size, seed=5)
    altered, manifest = alter(parent, {"uniqueBytes": Relative(4)})
    assert_held(parent, altered, manifest)


def test_no_requests_leave_their_files_for_a_curve_that_is_further_off_in_all():
    # Half of every page is a page of its own by depth: twice as many blocks, and so more that cannot be avoided.
    _, manifest = alter(database_like(100, pages=150), {"sizeMean": Relative(0.5)})
    assert "by_depth" not in manifest.notes["uniqueBytes"]


def test_files_have_room_for_what_is_new_however_unequally_they_are_reused():
    draft = Draft.of(database_like(100, pages=30))
    target = 2.0 * draft.unique_bytes()
    assert place_by_depths(draft, target, np.random.default_rng(0)) == pytest.approx(target, rel=0.01)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.95])
def test_neighbours_meet_at_borders_of_blocks(share):
    parent = used_once()
    altered, manifest = alter(parent, {"seqFrac": share})
    assert_held(parent, altered, manifest)
    assert manifest.notes["seqFrac"]["continued_runs"] == 0
    assert manifest.achieved.unique_bytes == manifest.before.unique_bytes


@pytest.mark.parametrize("share", [0.75, 0.9])
def test_moved_runs_go_where_data_was_used_as_long_ago(share):
    parent = make_trace(Workload(2 << 20, 0.5, 0.5, 8192, 1), requests=1500, size="fixed", seed=5)
    altered, manifest = alter(parent, {"seqFrac": share})
    assert_held(parent, altered, manifest)
    assert manifest.notes["seqFrac"]["continued_runs"] > 0


@pytest.mark.parametrize(("processes", "size", "off"), [(2, "binomial", CURVE_HELD), (1, "fixed", 0.025)])
def test_parts_of_few_runs_go_to_depths_of_which_there_is_too_little(processes, size, off):
    # By the depths that runs begin with it was 0.106; with one depth for each run 0.021 and 0.032.
    _, manifest = alter(willy(processes, size), {"seqFrac": 1.0})
    assert not manifest.off
    assert manifest.curve.mean_error <= off


@pytest.mark.parametrize("cut", [False, True])
def test_a_moved_part_of_a_run_begins_where_that_is_cut(cut):
    generator, run = np.random.default_rng(3), np.repeat([9, 19, 29], 10)
    wishes = Wishes(np.full(30, 5), np.zeros(30), np.zeros(30, bool), of_runs=True)
    for _ in range(20):
        new = moved(wishes, run, 64.0, np.array([0.0, 1.0, 0.0, 0.0]), generator, cut=cut)
        changed = np.flatnonzero(new.depth != wishes.depth)
        assert len(np.unique(run[changed])) == 1
        assert ((new.depth[changed] >= 16) & (new.depth[changed] < 32)).all()
        begins = np.flatnonzero(new.cut)
        if cut:
            assert changed.tolist() == list(range(begins[0], run[begins[0]] + 1))
        else:
            assert len(changed) == 10
            assert not len(begins)
    # New ones are at the last depth.
    assert NEW in moved(wishes, run, 64.0, np.array([0.0, 0.0, 0.0, 1.0]), generator, cut=cut).depth


@pytest.mark.parametrize("factor", [0.25, 0.5, 0.8, 2, 4])
def test_requests_of_another_size_find_their_data_as_deep_as_those_of_the_parent(factor):
    parent = make_trace(Workload(2 << 20, 0.4, 0.5, 8192, 2), requests=1500, size="binomial", seed=5)
    altered, manifest = alter(parent, {"sizeMean": Relative(factor)})
    assert not manifest.off
    if factor == 0.25:
        # Requests of 2 KiB use blocks in part, more than their bytes need: not unavoidable, and not held.
        assert not manifest.curve.held
        assert np.abs(naive_curve(parent) - naive_curve(altered)).mean() < 0.075
    else:
        assert_held(parent, altered, manifest)


def test_smaller_requests_share_blocks_which_no_order_of_places_avoids():
    recording = Recording()
    file = recording.file("/data", 4000 * BLOCK)
    for passes in range(2):
        for block in range(500 + 500 * passes):
            recording.read(1, file, block * BLOCK, BLOCK)
    parent = recording.trace()
    altered, manifest = alter(parent, {"sizeMean": Relative(0.5), "uniqueBytes": Relative(0.5)})
    # Of two requests of 2 KiB in sequence one is a hit at once in any cache.
    within = ((altered.io["offset"] % BLOCK != 0) & (altered.io["offset"] > 0)).mean()
    assert within == pytest.approx(0.5, abs=0.01)
    # Runs of 500 and 1000 of them touch 250 and 500 blocks, and one more where they begin in the middle of one. One
    # request in a hundred may begin a run without seqFrac being off.
    least = np.maximum(naive_curve(parent) - (251 + 501 + 2 * 15) / 1500, 0).mean()
    assert manifest.curve.least_error == pytest.approx(least, abs=1e-9)
    assert manifest.curve.least_error > 0.2
    # In blocks of 2 KiB nothing changed.
    assert manifest.curve.scaled_error == 0


def test_what_makes_first_references_a_smaller_share_makes_more_hits_anywhere():
    parent = Draft.of(willy())
    curve, smaller = curve_of_requests(*parent.intervals()), parent.copy()
    change_size_mean(smaller, 4096)
    start, end, _ = smaller.intervals()
    order, run = smaller.runs()
    runs = [(end - start)[order[run == number]] for number in range(run.max() + 1)]

    def most_blocks(size):
        return (size + 2 * BLOCK - 1 - 512) // BLOCK

    blocks = np.array([most_blocks(sizes.sum()) for sizes in runs])
    fewest = sum(max(most, len(sizes)) for most, sizes in zip(blocks, runs, strict=True))
    most = sum(min(most_blocks(sizes).sum(), most + len(sizes) - 1) for most, sizes in zip(blocks, runs, strict=True))
    cuts = len(start) / 100
    first, missed = 0.99 * (8 << 20) / BLOCK, blocks.sum() + 2 * cuts

    def off(low, high):
        return np.maximum(np.maximum(low - curve, curve - high), 0).mean()

    least = least_error(curve, smaller, 8 << 20)
    assert least == pytest.approx(
        min(off(first / count, missed / count) for count in np.linspace(fewest, most + cuts, 2000)), abs=1e-4
    )
    # Each limit by itself, with as many references as suit it, is less.
    assert least > 2 * off(first / (most + cuts), missed / fewest)


def test_both_parts_of_a_run_may_begin_in_the_middle_of_a_block():
    recording = Recording()
    file, runs, missed = recording.file("/data", 150 << 16), 150, np.ones(63)
    for run in range(runs):
        for step in range(100):
            recording.read(1, file, (run << 16) + step * 20, 20)
    draft = Draft.of(recording.trace())
    cut = draft.copy()
    # The first 50 requests of every run are a kilobyte around a border of blocks, and so are the others, elsewhere.
    cut.shift(np.tile(np.repeat([BLOCK - 500, (1 << 15) + BLOCK - 1500], 50), runs))
    off = apart(missed, curve_of_requests(*cut.intervals()))
    assert off == pytest.approx(1 - 4 / 100)
    assert least_error(missed, draft, cut.unique_bytes()) <= off + 1e-9


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recordings(), recordings(), st.data())
def test_wherever_runs_are_put_the_curve_is_as_far_off_as_is_unavoidable(parent, other, data):
    draft = Draft.of(parent)
    start, _, file = draft.intervals()
    order, run = draft.runs()
    grid = draft.alignment(file, start)
    steps = data.draw(st.lists(st.integers(-64, 64), min_size=int(run.max()) + 1, max_size=int(run.max()) + 1))
    step = np.empty(len(order), np.int64)
    step[order] = np.array(steps)[run]
    moved = draft.copy()
    moved.shift(np.maximum(step, -int(start.min() // grid.max())) * grid)
    for like in (parent, other):
        curve = naive_curve(like)
        least = least_error(curve, draft, moved.unique_bytes())
        assert least <= apart(curve, curve_of_requests(*moved.intervals())) + 1e-9
        assert least_error(curve, draft, moved.unique_bytes(), runs_stay=False) <= least + 1e-9
    assert least_error(naive_curve(parent), draft, draft.unique_bytes()) == 0


@pytest.mark.parametrize("factor", [2, 4])
def test_journals_of_larger_pages_miss_as_often(factor):
    # What stands between the pages of a journal stays one block, while pages become several.
    altered, manifest = alter(database_like(), {"sizeMean": Relative(factor)})
    assert manifest.curve.held
    assert not manifest.off
    journals = altered.io[altered.io["file"] != 1]
    # So a part of them follows in the place of the one before it, which makes no change of files.
    places = 1 + journals["file"].diff().ne(0).iloc[1:].sum()
    share = manifest.notes["uniqueBytes"]["latest_share"]
    assert share > 0
    assert 1 - places / 2000 == pytest.approx(share, abs=0.01)
    assert replay_size_violations(altered) == 0


def test_folded_pages_lie_in_one_block_each_also_beside_small_records():
    # As SQLite asks for a counter in front of every transaction.
    recording, random = Recording(), np.random.default_rng(5)
    file = recording.file("/data/bank.db", 400 * BLOCK)
    for page in random.permutation(400).tolist():
        recording.read(1, file, 24, 16)
        recording.read(1, file, page * BLOCK, BLOCK)
    draft = Draft.of(recording.trace())
    for unrolled in (False, True):
        folded = draft.copy()
        assert fold_files(folded, 0.3 * draft.unique_bytes(), 1, unrolled=unrolled) == pytest.approx(
            120 * BLOCK, rel=0.01
        )
        assert (folded.io["offset"] % BLOCK == draft.io["offset"] % BLOCK).all()


def test_blocks_that_an_alteration_uses_in_part_excuse_nothing():
    recording, random = Recording(), np.random.default_rng(4)
    file = recording.file("/data", 200 * BLOCK)
    for place in [*random.permutation(200), *random.permutation(200)]:
        recording.read(1, file, int(place) * BLOCK, BLOCK // 2)
    _, manifest = alter(recording.trace(), {"uniqueBytes": Relative(2)})
    # Each request has a place of its own. In whole blocks they would need half as many, as the parent's do.
    assert manifest.curve.mean_error > 0.1
    assert manifest.curve.least_error == 0
    assert not manifest.curve.held


@pytest.mark.parametrize(
    "change",
    [{"uniqueBytes": Relative(0.5)}, {"uniqueBytes": Relative(0.8)}, {"sizeMean": Relative(1.25)}, {"seqFrac": 0.75}],
    ids=str,
)
def test_a_foreign_trace_keeps_its_curve(change):
    path = real_trace("mqsim-tpcc-small.trace")
    from tests.bench.bench_alter import foreign_trace  # noqa: PLC0415

    _, manifest = alter(foreign_trace(path), change)
    assert manifest.curve.held
    assert not manifest.off
