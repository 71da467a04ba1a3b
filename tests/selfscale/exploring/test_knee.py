# SPDX-License-Identifier: Apache-2.0
"""The global-knee benchmark on machines that are formulas: knees by root finding, naive scans, machines without one."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from scipy.optimize import brentq

from characterize.workload import FIELD_OF, PARAMETERS
from selfscale.exploring.good_ranges import good_range, good_ranges, knee_sentences
from selfscale.exploring.knee import ROUNDS_MAX, KneeExploration
from selfscale.exploring.plan import Settings
from selfscale.exploring.self_scaling import RUN_S_MIN
from selfscale.models.product import ProductModel
from selfscale.profile import Curve, Profile
from selfscale.profiles.repeatability import spreads_of
from tests.formulas.killed_exploration import run_with_journal
from tests.formulas.synthetic_machine import MIB, Machine

pytest_plugins = ["tests.formulas.only_curves"]
pytestmark = [pytest.mark.parallel, pytest.mark.usefixtures("only_curves")]

CACHE = 256 * MIB


@dataclass
class Factors(Machine):
    """Throughput is a product of a function of every parameter, so that every knee can be told from its own."""

    read_factor: float = 4.0

    def throughput(self, workload):
        size = workload.size_mean / (workload.size_mean + 60_000)
        processes = workload.process_num / (workload.process_num + 2)
        reads = 1 + (self.read_factor - 1) * workload.read_frac
        unique = 1 / (1 + (workload.unique_bytes / CACHE) ** 4)
        return 1e9 * size * processes * reads * unique * (1 + 2 * workload.seq_frac)

    def device_frac(self, workload):
        return None


def search(machine, **changes):
    settings = Settings(**{"cache_bytes": CACHE, "budget_s": 900.0, "cpus": 4, **changes})
    exploration = KneeExploration(settings, machine.measure)
    exploration.run()
    return exploration


def test_every_knee_is_where_the_formula_reaches_75_per_cent():
    exploration = search(Factors([]))
    assert exploration.converged
    assert exploration.complete
    focal = exploration.regions[0].focal
    low, high = exploration.settings.low_bytes, exploration.settings.high_bytes
    unique = brentq(lambda x: (1 + (low / CACHE) ** 4) / (1 + (x / CACHE) ** 4) - 0.75, low, high)
    size = brentq(lambda x: x / (x + 60_000) - 0.75 * (4 << 20) / ((4 << 20) + 60_000), 1024, 4 << 20)
    # 8 of 8 processes: 0.75 * 8 / 10 = x / (x + 2)
    assert focal.process_num == 3
    assert unique / 1.05 <= focal.unique_bytes <= unique
    assert size <= focal.size_mean <= 1.2 * size
    assert 1 + 3 * focal.read_frac >= 3 > 1 + 3 * (focal.read_frac - 1 / 16)
    assert 1 + 2 * focal.seq_frac >= 2.25 > 1 + 2 * (focal.seq_frac - 1 / 16)


def test_slower_reads_are_the_cheap_direction_of_read_frac():
    focal = search(Factors([], read_factor=0.25)).regions[0].focal
    assert 1 - 0.75 * focal.read_frac >= 0.75
    assert 0.25 <= focal.read_frac <= 1 / 3


@pytest.mark.parametrize("cache_mib", [60, 150, 400])
def test_global_knee_against_a_naive_scan_of_every_parameter(cache_mib):
    machine = Machine([(cache_mib * MIB, 500e-6)])
    exploration = search(machine)
    assert exploration.converged
    focal = exploration.regions[0].focal
    assert focal.unique_bytes == pytest.approx(cache_mib * MIB, rel=0.05)
    assert exploration.boundaries == [pytest.approx(cache_mib * MIB, rel=0.05)]
    scans = {
        "uniqueBytes": np.geomspace(exploration.settings.high_bytes, exploration.settings.low_bytes, 500),
        "sizeMean": np.geomspace(1024, 4 << 20, 500),
        "processNum": np.arange(1, 9),
        "readFrac": np.linspace(0, 1, 101),
        "seqFrac": np.linspace(0, 1, 101),
    }
    for parameter, values in scans.items():
        field = FIELD_OF[parameter]
        throughput = np.array([machine.throughput(focal.replace(**{field: float(value)})) for value in values])
        best = throughput.max()
        assert machine.throughput(focal) >= 0.74 * best, parameter
        least = float(values[np.argmax(throughput >= 0.75 * best)])
        if parameter in {"readFrac", "seqFrac"}:
            assert getattr(focal, field) == pytest.approx(least, abs=0.07), parameter
        else:
            assert getattr(focal, field) == pytest.approx(least, rel=0.25), parameter


def test_noise_does_not_keep_it_from_converging():
    found = [search(Machine([(CACHE, 500e-6)], noise=0.03, seed=seed), seed=seed) for seed in range(20)]
    assert sum(exploration.converged for exploration in found) >= 18
    sizes = [exploration.regions[0].focal.unique_bytes for exploration in found]
    assert np.median(sizes) == pytest.approx(CACHE, rel=0.06)


class Chasing(Machine):
    """Sequential requests move the knee of processNum from 1 to 2, where that of seqFrac is 0; from 1 it is 0.5."""

    def throughput(self, workload):
        sequential = workload.seq_frac >= 0.5
        return {1: (46e6, 70e6), 2: (60e6, 75e6)}.get(int(workload.process_num), (60e6, 100e6))[sequential]


def test_a_machine_without_a_global_knee_ends_and_says_so():
    exploration = search(Chasing([]), budget_s=3600.0)
    assert exploration.rounds == ROUNDS_MAX
    assert not exploration.converged
    assert set(exploration.moving) == {"processNum", "seqFrac"}
    assert not exploration.out_of_time
    assert exploration.complete  # the curves are there
    assert "did NOT converge in 8 rounds (processNum, seqFrac may not" in knee_sentences(exploration.profile())[0]


def test_a_search_that_takes_all_of_its_time_leaves_the_curves_theirs():
    exploration = search(Machine([(CACHE, 500e-6)], disturbed=0.3, cost_s=8.0, seed=2), budget_s=300.0)
    assert exploration.out_of_time
    runs_s = [point.elapsed_s for point in exploration.points if point.role == "curve" and point.region is not None]
    assert len(runs_s) >= len(PARAMETERS)
    assert min(runs_s) > 2 * RUN_S_MIN


def test_ranges_hold_the_knee_and_nothing_else_that_performs_well():
    machine = Machine([(CACHE, 500e-6)])
    profile = search(machine).profile()
    focal = profile.regions[0].focal
    assert set(profile.knee["ranges"]) == set(PARAMETERS)
    for parameter, (low, high) in profile.knee["ranges"].items():
        curve = profile.curve(parameter, 0)
        truth = np.array([machine.throughput(focal.replace(**{FIELD_OF[parameter]: float(x)})) for x in curve.x])
        good = truth >= 0.75 * truth.max()
        assert curve.x[good].tolist() == [x for x in curve.x if low <= x <= high]
        assert low <= getattr(focal, FIELD_OF[parameter]) <= high
    assert knee_sentences(profile)[0].startswith("The global knee, found in 2 rounds: uniqueBytes 2")


def test_a_range_ends_at_the_first_bad_value_on_both_sides():
    throughput = np.array([80.0, 10.0, 75.0, 100.0, 90.0, 74.9, 99.0])
    curve = Curve("sizeMean", np.arange(7.0), throughput, np.zeros(7), [(i,) for i in range(7)])
    assert good_range(curve) == (2.0, 4.0)
    assert good_range(Curve("sizeMean", np.array([]), np.array([]), np.array([]), [])) is None


def test_the_profile_predicts(tmp_path):
    machine = Machine([(CACHE, 500e-6)])
    profile = search(machine).profile()
    loaded = Profile.load(profile.save(tmp_path / "p.json"))
    assert loaded.knee == profile.knee
    assert len(loaded.regions) == 1
    focal = loaded.regions[0].focal
    targets = [focal.replace(read_frac=0.6), focal.replace(size_mean=20480.0), focal.replace(unique_bytes=100.0 * MIB)]
    table = ProductModel().fit(loaded.measured, loaded.regions).predict(targets)
    true = [machine.throughput(target) for target in targets]
    assert table["throughput_bytes_per_s"].to_numpy() == pytest.approx(np.array(true), rel=0.1)
    assert good_ranges(loaded).keys() == set(PARAMETERS)


def test_read_only_never_writes():
    machine = Machine([(CACHE, 500e-6)])
    exploration = search(machine, read_only=True)
    assert exploration.converged
    assert {step.workload.read_frac for step in machine.measured} == {1.0}
    assert "readFrac" not in exploration.profile().knee["ranges"]


@pytest.mark.parametrize("budget", [10, 30, 90, 240])
def test_a_budget_that_ends_the_search_leaves_a_profile_that_says_so(budget):
    machine = Machine([(CACHE, 500e-6)])
    exploration = search(machine, budget_s=float(budget))
    assert exploration.spent_s <= budget + 1.0
    profile = exploration.profile()
    assert len(profile.regions) == 1
    if budget < 90:
        assert not exploration.converged
        assert profile.knee["moving"]
        assert exploration.out_of_time
        assert "give a larger --budget" in knee_sentences(profile)[0]
    ProductModel().fit(profile.measured, profile.regions)


@pytest.mark.parametrize("stop_after", [0, 1, 9, 40, 80])
def test_resumed_it_measures_the_same(tmp_path, stop_after):
    settings = Settings(64 * MIB, 400.0, 2, seed=3)

    def run(path, machine, **how):
        return run_with_journal(partial(KneeExploration, settings), path, machine.measure, **how)

    def machine():
        return Machine([(64 * MIB, 500e-6)], noise=0.05)

    whole = run(tmp_path / "whole", machine())
    killed = run(tmp_path / "part", machine(), stop_after=stop_after)
    assert len(killed.points + killed.storage) == stop_after
    assert len(killed.profile().regions) == 1
    again = machine()
    resumed = run(tmp_path / "part", again, resume=True)
    assert len(again.measured) == len(whole.points + whole.storage) - stop_after
    assert resumed.profile().as_document() == whole.profile().as_document()


def test_what_is_measured_again_since_it_was_disturbed_does_not_tell_the_repeatability():
    exploration = search(Factors([], disturbed=0.3))
    workloads = [point.workload for point in exploration.points if point.region is None]
    twice = {workload for workload in workloads if workloads.count(workload) > 1}
    (region,) = exploration.regions
    assert twice - {region.focal}
    assert set(spreads_of(exploration.points, exploration.regions)) <= {region.focal}
