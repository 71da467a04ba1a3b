# SPDX-License-Identifier: Apache-2.0
"""The self-scaling benchmark on machines that are formulas: borders, focal points, budget, resuming."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from characterize.errors import FlextraceError
from characterize.workload import PARAMETERS, Workload
from selfscale.explore import Exploration
from selfscale.exploring.journal import Journal
from selfscale.exploring.plan import Settings
from selfscale.exploring.sampling import random_workload
from selfscale.models.product import ProductModel
from selfscale.predicting.prediction_errors import REPEATABILITY, errors_of
from selfscale.profiles.conclusions import file_cache_bytes
from tests.formulas.killed_exploration import run_with_journal
from tests.formulas.synthetic_machine import MIB, Machine

pytestmark = pytest.mark.parallel


@pytest.fixture(scope="module", autouse=True)
def any_workload_is_informative():
    """There are hundreds of explorations: no fit chooses workloads here, as in test_informative.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "selfscale.exploring.informative.most_informative",
            lambda profile, generator, count: [random_workload(profile, generator) for _ in range(count)],
        )
        yield


def explore(machine, **changes):
    settings = Settings(**{"cache_bytes": 256 * MIB, "budget_s": 180.0, "cpus": 2, **changes})
    exploration = Exploration(settings, machine.measure)
    exploration.run()
    return exploration


@given(
    cache=st.floats(60, 500),
    miss_us=st.floats(60, 3000),
    seed=st.integers(0, 10_000),
    noise=st.sampled_from([0.0, 0.03, 0.08]),
)
@hypothesis_settings(max_examples=60, deadline=None)
def test_boundary_within_15_per_cent_of_a_cache_of_any_size(cache, miss_us, seed, noise):
    machine = Machine([(cache * MIB, miss_us * 1e-6)], noise=noise, seed=seed)
    exploration = explore(machine, seed=seed)
    assert exploration.complete
    assert len(exploration.boundaries) == 1
    # What misses cost against hits shifts the middle of the fall: decisions/0004.
    focal = exploration.regions[0].focal
    hit = 1 / machine.throughput(focal.replace(unique_bytes=MIB))
    miss = 1 / machine.throughput(focal.replace(unique_bytes=1e15))
    shift = 1 / (1 - min(0.5, hit / (miss - hit)))
    assert 0.9 * cache * MIB <= exploration.boundaries[0] <= 1.1 * cache * MIB * shift


@pytest.mark.parametrize("miss_us", [60, 200, 1000])
@pytest.mark.parametrize("processor_cache", [20, 45, 90])
def test_processor_cache_is_not_taken_for_the_page_cache(miss_us, processor_cache):
    # Beyond it a working set in the page cache moves at a third to a fifth of the speed, as on large shared machines.
    machine = Machine([(128 * MIB, miss_us * 1e-6)], hit_s=1e-6, processor_cache=(processor_cache * MIB, 2e9))
    boundaries = explore(machine, cache_bytes=128 * MIB).boundaries
    assert boundaries[-1:] == [pytest.approx(128 * MIB, rel=0.15)]
    assert len(boundaries) == 1


def test_where_traffic_is_not_counted_throughput_alone_makes_the_border():
    machine = Machine([(128 * MIB, 500e-6)], counts_traffic=False)
    assert explore(machine, cache_bytes=128 * MIB).boundaries == [pytest.approx(128 * MIB, rel=0.15)]


def test_disturbances_of_single_points_make_no_border():
    # Every tenth measurement is slowed down to 0.2 to 0.6 by something else.
    right = 0
    for seed in range(100):
        machine = Machine([(256 * MIB, 500e-6)], noise=0.03, disturbed=0.1, seed=seed)
        boundaries = explore(machine, seed=seed).boundaries
        right += boundaries == [pytest.approx(256 * MIB, rel=0.15)]
    assert right >= 90


@pytest.mark.parametrize("budget", range(20, 60, 4))
def test_a_cache_of_one_direction_that_there_was_no_time_to_find_is_no_border(budget):
    # Its last point inside may lie at a third of it.
    for seed in (1, 2, 3):
        machine = Machine(
            [(124 * MIB, 200e-6)], hit_s=1e-6, cost_s=1.0, noise=0.05, seed=seed, processor_cache=(20 * MIB, 4e9)
        )
        exploration = explore(machine, cache_bytes=128 * MIB, budget_s=float(budget), seed=seed)
        assert all(border == pytest.approx(124 * MIB, rel=0.2) for border in exploration.boundaries)


@pytest.mark.parametrize("budget", [20, 25, 30, 35, 45])
def test_a_wide_bracket_of_one_direction_is_narrowed_by_the_filled_fall(budget):
    # Nothing is steady in a short time, so every point near the border is measured twice and the time is up early.
    for seed in range(12):
        cache_bytes = (100 + 5 * seed) * MIB
        machine = Machine(
            [(cache_bytes, 200e-6)], hit_s=1e-6, noise=0.05, seed=seed, processor_cache=(20 * MIB, 4e9), cost_s=0.45
        )
        settings = Settings(cache_bytes=128 * MIB, budget_s=float(budget), cpus=2, seed=seed)
        exploration = Exploration(settings, lambda step, machine=machine: replace(machine.measure(step), steady=False))
        exploration.run()
        assert file_cache_bytes(exploration.profile()) == pytest.approx(cache_bytes, rel=0.15)


def test_two_caches_make_three_regions():
    machine = Machine([(30 * MIB, 400e-6), (300 * MIB, 20_000e-6)])
    exploration = explore(machine, budget_s=900.0)
    assert len(exploration.regions) == 3
    assert exploration.boundaries[0] == pytest.approx(30 * MIB, rel=0.15)
    assert exploration.boundaries[1] == pytest.approx(300 * MIB, rel=0.15)


def test_flat_machine_has_one_region_and_is_complete():
    exploration = explore(Machine([]))
    assert exploration.complete
    assert exploration.boundaries == []
    assert len(exploration.regions) == 1


@pytest.mark.parametrize("borders", [[], [256], [24, 256], [30, 300], [40, 600]])
def test_focal_points_are_well_inside_their_region_and_near_its_middle_where_something_is_measured(borders):
    levels = [(border * MIB, 400e-6 * 50**level) for level, border in enumerate(borders)]
    exploration = explore(Machine(levels), budget_s=600.0)
    assert len(exploration.regions) == len(borders) + 1
    for region in exploration.regions:
        low, focal, high = region.low_bytes, region.focal.unique_bytes, region.high_bytes
        tried = focal in exploration.settings.probe_bytes and 1.5 * low <= focal <= high / 1.5
        assert tried or abs(focal - (low + high) / 2) <= (high - low) / 4 + 4096
        assert region.focal.read_frac == region.focal.seq_frac == 0.5


def test_focal_points_share_all_but_unique_bytes():
    exploration = explore(Machine([(256 * MIB, 500e-6)]), budget_s=600.0)
    # Halfway in performance, so neither end of what was tried; two processes are as fast as any on this machine.
    sizes = [point.workload.size_mean for point in exploration.points]
    assert min(sizes) < exploration.regions[0].focal.size_mean < max(sizes)
    assert 1 <= exploration.regions[0].focal.process_num <= 2
    # Appendix B: all regions share the focal point of everything but uniqueBytes.
    assert len({region.focal.replace(unique_bytes=0.0) for region in exploration.regions}) == 1


def test_every_region_has_every_curve_around_its_focal_point():
    exploration = explore(Machine([(256 * MIB, 500e-6)]), budget_s=600.0)
    profile = exploration.profile()
    for index, region in enumerate(profile.regions):
        for parameter in PARAMETERS:
            curve = profile.curve(parameter, index)
            assert len(curve.x) >= 3, parameter
        for parameter in ("readFrac", "seqFrac"):
            curve = profile.curve(parameter, index)
            assert (curve.x[0], curve.x[-1]) == (0, 1)
            assert 0.5 in curve.x
        assert sum(point.workload == region.focal for point in profile.measured) == 3


@pytest.mark.parametrize(("budget", "points_max", "values"), [(280.0, 90, 1), (900.0, None, 3)])
def test_a_narrow_region_does_not_take_the_points_of_others(budget, points_max, values):
    # A border at 24 MiB where uniqueBytes begins at 21 and ends at 1024: few workloads lie before it.
    machine = Machine([(24 * MIB, 400e-6), (256 * MIB, 20_000e-6)])
    profile = explore(machine, budget_s=budget, points_max=points_max).profile()
    assert len(profile.regions) == 3
    curves = [
        {name: profile.curve(name, index) for name in ("sizeMean", "processNum", "seqFrac")} for index in range(3)
    ]
    assert {len(curve.x) for curve in curves[0].values()} == {values}
    assert all(len(curve.x) >= max(3, values) for curve in (*curves[1].values(), *curves[2].values()))
    # Of what was not varied there, the product form takes what the next region says.
    focal = profile.regions[0].focal
    told = ProductModel().fit(profile.measured, profile.regions).predict([focal.replace(size_mean=1024.0)])
    assert not told["notes"][0]
    assert told["throughput_bytes_per_s"][0] < 0.5 * machine.throughput(focal)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("levels", [[(256, 500e-6)], [(24, 400e-6), (256, 20_000e-6)]])
def test_of_few_points_a_third_is_off_the_curves_since_none_for_a_curve_was_measured_before(levels, seed):
    machine = Machine([(border * MIB, miss_s) for border, miss_s in levels], noise=0.05, disturbed=0.02, seed=seed)
    points = explore(machine, budget_s=280.0, points_max=90, seed=seed).points
    assert len(points) == 90
    assert sum(point.role == "inform" for point in points) >= 30
    for index, point in enumerate(points):
        if point.role == "curve" and point.parameter != "uniqueBytes":
            assert point.workload not in {other.workload for other in points[:index]}


@pytest.mark.parametrize("points_max", [60, 90, None])
@pytest.mark.parametrize("seed", range(5))
def test_of_every_region_is_seen_whether_the_machine_changed(points_max, seed):
    machine = Machine([(60 * MIB, 100e-6), (256 * MIB, 500e-6)], noise=0.03, seed=seed)
    exploration = explore(machine, budget_s=280.0, points_max=points_max, seed=seed)
    told = exploration.profile().drift["reference_points"]
    assert [entry["region"] for entry in told] == list(range(len(exploration.regions)))


def test_unique_bytes_curve_is_dense_where_it_falls():
    machine = Machine([(256 * MIB, 500e-6)])
    profile = explore(machine).profile()
    focal = profile.regions[1].focal
    targets = [focal.replace(unique_bytes=size) for size in np.geomspace(1.1 * 256 * MIB, 3.9 * 256 * MIB, 40)]
    # The product form takes these from the curve alone.
    table = ProductModel().fit(profile.measured, profile.regions).predict(targets)
    true = [machine.throughput(target) for target in targets]
    assert table["throughput_bytes_per_s"].to_numpy() == pytest.approx(np.array(true), rel=0.25)


def test_order_of_points_depends_on_the_seed_only():
    def order(seed):
        machine = Machine([(256 * MIB, 500e-6)])
        explore(machine, seed=seed)
        return [step.workload for step in machine.measured]

    assert order(1) == order(1)
    assert order(1) != order(2)


@pytest.mark.parametrize("budget", [10, 20, 45, 90, 180, 600, 3600])
@pytest.mark.parametrize("cost", [0.5, 2.0, 60.0])
def test_budget_is_honoured_on_any_machine(budget, cost):
    machine = Machine([(256 * MIB, 500e-6)], cost_s=cost)
    exploration = explore(machine, budget_s=float(budget))
    assert exploration.spent_s <= budget + 1.0
    assert exploration.spent_s == pytest.approx(sum(point.cost_s for point in exploration.points + exploration.storage))


def explore_unsteady(overhead_s):
    """On a machine on which no run becomes steady and every point takes so long beside its run."""
    machine = Machine([(256 * MIB, 500e-6)])

    def measure(step):
        run_s = step.max_seconds
        return replace(machine.measure(step), steady=False, elapsed_s=run_s, cost_s=run_s + overhead_s)

    exploration = Exploration(Settings(256 * MIB, 250.0, 2), measure)
    exploration.run()
    return exploration


@pytest.mark.parametrize("overhead_s", [0.2, 1.2, 4.0, 6.0])
def test_storage_is_measured_only_where_the_budget_pays_for_what_points_cost_by_then(overhead_s):
    exploration = explore_unsteady(overhead_s)
    assert exploration.complete
    assert exploration.spent_s <= 250.0
    assert bool(exploration.storage) == (overhead_s < 5)


def test_more_budget_means_more_points():
    counts = [len(explore(Machine([(256 * MIB, 500e-6)]), budget_s=budget).points) for budget in (40.0, 180.0, 900.0)]
    assert counts == sorted(set(counts))


def test_a_budget_that_ends_early_leaves_an_incomplete_usable_profile():
    def expensive(step):
        point = Machine([(256 * MIB, 500e-6)]).measure(step)
        return type(point)(**{**vars(point), "cost_s": 12.0})

    exploration = Exploration(Settings(256 * MIB, 180.0, 2), expensive)
    exploration.run()
    assert not exploration.complete
    assert len(exploration.points) == 15


@pytest.mark.parametrize("seed", range(40))
def test_a_small_budget_on_a_disturbed_machine_leaves_a_focal_point_in_every_region(seed):
    """A profile without them cannot predict; the border is bisected less closely for it."""
    machine = Machine([(28 * MIB, 800e-6)], disturbed=0.5, seed=seed, cost_s=0.45)
    exploration = explore(machine, budget_s=12.0, cache_bytes=32 * MIB, seed=seed)
    assert {region.focal for region in exploration.regions} <= {point.workload for point in exploration.points}


@pytest.mark.parametrize("seed", range(10))
def test_where_the_budget_pays_for_little_more_than_a_curve_focal_points_go_before_a_border_measured_again(seed):
    machine = Machine([(28 * MIB, 800e-6)], disturbed=0.3, seed=seed, cost_s=0.45)
    settings = Settings(cache_bytes=32 * MIB, budget_s=6.0, cpus=2, seed=seed)
    exploration = Exploration(settings, lambda step: replace(machine.measure(step), steady=False))
    exploration.run()
    assert exploration.regions
    assert {region.focal for region in exploration.regions} <= {point.workload for point in exploration.points}


def test_random_workloads_are_measured_twice_in_different_order_within_the_measured_ranges():
    machine = Machine([(256 * MIB, 500e-6)], noise=0.03)
    exploration = explore(machine, budget_s=600.0, random_points=12)
    profile = exploration.profile()
    random = [point for point in profile.measured if point.role == "random"]
    first = [point.workload for point in random if point.repeat == 0]
    second = [point.workload for point in random if point.repeat == 1]
    assert len(first) == 12
    assert sorted(map(str, first)) == sorted(map(str, second))
    assert first != second
    for parameter in PARAMETERS:
        low, high = profile.range_of(parameter)
        assert all(low <= point.workload.as_document()[parameter] <= high for point in random)
    errors = errors_of(profile, used_only=True)
    assert len(errors.of(errors.used)) == 12
    # Two runs with 3 % noise each differ by 0.67 * sqrt(2) * 3 % = 2.9 % in the median.
    assert 0.005 < errors.of(REPEATABILITY)["error"].median() < 0.08


def test_resumed_after_an_interruption_at_every_point_it_measures_the_same(tmp_path):
    settings = Settings(64 * MIB, 60.0, 2, seed=3, random_points=2)

    def run(path, machine, **how):
        return run_with_journal(partial(Exploration, settings), path, machine.measure, **how)

    def machine():
        return Machine([(64 * MIB, 500e-6)], noise=0.05)

    whole = run(tmp_path / "whole", machine())
    assert whole.complete
    for stop_after in range(len(whole.points)):
        path = tmp_path / f"{stop_after}"
        killed = run(path, machine(), stop_after=stop_after)
        assert len(killed.points) == stop_after
        # The last four are the random workloads, which no prediction needs.
        assert killed.complete == (stop_after >= len(whole.points) - 4)
        second = machine()
        resumed = run(path, second, resume=True)
        assert len(second.measured) == len(whole.points) - stop_after
        assert resumed.profile().as_document() == whole.profile().as_document()


def make_journal(path, points=3):
    journal = Journal(path, {"seed": 1, "memory_bytes": None}, {"cache_bytes": 5}, resume=False)
    step = journal.wrap(Machine([]).measure)
    exploration = Exploration(Settings(64 * MIB, 60.0, 2), step)
    for _ in range(points):
        exploration._take(Workload(MIB, 0.5, 0.5, 4096.0, 1.0), "curve", 50.0, 5)
    return exploration.points


def test_journal_refuses_other_settings(tmp_path):
    make_journal(tmp_path / "j")
    with pytest.raises(FlextraceError, match="seed was 1, is 2") as caught:
        Journal(tmp_path / "j", {"seed": 2, "memory_bytes": None}, {}, resume=True)
    assert caught.value.exit_code == 2


def test_journal_names_only_the_part_of_a_setting_that_differs(tmp_path):
    access = {"mode": "buffered", "sync_frac": 0.0, "dsync": False}
    Journal(tmp_path / "j", {"seed": 1, "access": access}, {}, resume=False)
    with pytest.raises(FlextraceError) as caught:
        Journal(tmp_path / "j", {"seed": 1, "access": {**access, "sync_frac": 0.1}}, {}, resume=True)
    assert "(sync_frac was 0.0, is 0.1)" in str(caught.value)


def test_journal_drops_a_last_line_that_was_cut_off(tmp_path):
    points = make_journal(tmp_path / "j")
    whole = (tmp_path / "j").read_bytes()
    for cut in (1, 30):
        (tmp_path / "j").write_bytes(whole[:-cut])
        journal = Journal(tmp_path / "j", {"seed": 1}, {}, resume=True)
        # A line that lacks only its end is complete, but what comes behind it would not be.
        assert journal.points == points[:2]
        assert journal.machine == {"cache_bytes": 5}
        with (tmp_path / "j").open() as stream:
            assert all(json.loads(line) for line in stream)


def test_journal_names_what_is_not_one(tmp_path):
    with pytest.raises(FlextraceError, match="nothing to resume"):
        Journal(tmp_path / "none", {}, {}, resume=True)
    for content in ('{"schema": "x/1"}\n', "[1]\n", "5\n", ""):
        (tmp_path / "other").write_text(content)
        with pytest.raises(FlextraceError, match="not a journal"):
            Journal(tmp_path / "other", {}, {}, resume=True)


def test_journal_of_another_order_is_refused(tmp_path):
    make_journal(tmp_path / "j")
    journal = Journal(tmp_path / "j", {"seed": 1}, {}, resume=True)
    step = journal.wrap(Machine([]).measure)
    exploration = Exploration(Settings(64 * MIB, 60.0, 2), step)
    with pytest.raises(FlextraceError, match="another version"):
        exploration._take(Workload(2 * MIB, 0.5, 0.5, 4096.0, 1.0), "curve", 50.0, 5)
