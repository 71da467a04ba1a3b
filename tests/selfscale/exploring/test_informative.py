# SPDX-License-Identifier: Apache-2.0
"""Which workloads are measured next, and that their points lower the error."""

import math
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from selfscale.explore import Exploration
from selfscale.exploring.informative import most_informative
from selfscale.exploring.plan import Settings, Step
from selfscale.exploring.sampling import random_workload
from selfscale.exploring.self_scaling import INFORMATIVE_AT_ONCE
from selfscale.measure import Point
from selfscale.models.learned import LearnedModel
from selfscale.models.measured import NOISE_UNKNOWN, Z95
from selfscale.predicting.cross_validation import on_a_curve
from selfscale.profiles.learned_points import learnable
from tests.formulas.explored import explored, unseen
from tests.formulas.killed_exploration import run_with_journal
from tests.formulas.synthetic_storage import SSD, StorageMachine

pytestmark = pytest.mark.parallel


@pytest.fixture(scope="module")
def machine():
    return StorageMachine(**SSD, seed=2)


@pytest.fixture(scope="module")
def profile(machine):
    return explored(machine, 150.0)


def test_what_is_chosen_depends_on_the_seed_only_and_no_workload_comes_twice(profile):
    first = most_informative(profile, random.Random(1), 8)
    assert first == most_informative(profile, random.Random(1), 8)
    assert len(set(first)) == 8


def test_a_run_too_short_for_an_interval_is_as_noisy_as_models_take_it(profile):
    def chosen(half_width):
        measured = [
            replace(point, ci95_half_width_bytes_per_s=half_width * point.throughput_bytes_per_s)
            for point in profile.measured
        ]
        return most_informative(replace(profile, measured=measured), random.Random(1), 8)

    assert chosen(math.inf) == chosen(NOISE_UNKNOWN * Z95)


def test_an_equally_telling_workload_that_costs_less_is_measured_first(profile):
    """With a second region at a thousand times the price nothing is measured there."""

    def priced(point: Point, beyond_s: float) -> Point:
        inside = point.workload.unique_bytes <= profile.regions[0].high_bytes
        return Point(**{**point.__dict__, "cost_s": 1.0 if inside else beyond_s})

    def beyond(seconds: float) -> int:
        measured = [priced(point, seconds) for point in profile.measured]
        changed = type(profile)(measured=measured, regions=profile.regions)
        chosen = most_informative(changed, random.Random(1), 8)
        return sum(workload.unique_bytes > profile.regions[0].high_bytes for workload in chosen)

    assert beyond(1000.0) == 0
    assert beyond(0.001) == 8


def test_measuring_what_was_chosen_tells_more_than_measuring_at_random(machine, profile):
    curves = [point for point in learnable(profile.measured) if point.role != "inform"]
    bare = type(profile)(measured=curves, regions=profile.regions)
    targets = unseen(profile, 200, seed=5)

    def left_open(workloads):
        more = [machine.measure(Step(workload, "inform", 2.0)) for workload in workloads]
        model = LearnedModel().fit([*curves, *more], profile.regions)
        return float(np.mean(np.diag(model.covariance(targets))))

    before = float(np.mean(np.diag(LearnedModel().fit(curves, profile.regions).covariance(targets))))
    chosen = left_open(most_informative(bare, random.Random(3), 16))
    by_chance = np.mean([left_open(unseen(profile, 16, seed=seed)) for seed in (6, 7, 8)])
    assert chosen < before
    assert chosen < by_chance


def test_an_exploration_measures_them_off_the_curves_and_resumes_the_same(tmp_path, machine, monkeypatch):
    fits = []

    def counted(profile, generator, count):
        fits.append(count)
        return most_informative(profile, generator, count)

    monkeypatch.setattr("selfscale.exploring.informative.most_informative", counted)
    # 150 s of points and the 10 s that the probes of storage take of a budget.
    settings = Settings(machine.cache_bytes, 168.0, 2, seed=1)

    def run(path, **how):
        return run_with_journal(partial(Exploration, settings), path, machine.measure, **how)

    whole = run(tmp_path / "whole")
    chosen = [point for point in whole.points if point.role == "inform"]
    assert len(chosen) >= 10
    assert sum(on_a_curve(point.workload, whole.regions) for point in chosen) <= 1
    in_all = len(fits)
    run(tmp_path / "part", stop_after=len(whole.points + whole.storage) - 2)
    fits.clear()
    assert run(tmp_path / "part", resume=True).profile().as_document() == whole.profile().as_document()
    # Only those that were chosen with some that were not measured any more are chosen again.
    assert len(fits) == in_all - (len(chosen) - 2) // INFORMATIVE_AT_ONCE < in_all


def test_those_that_are_measured_stand_where_others_would_be_chosen(tmp_path, machine, monkeypatch):
    """As with another version of a library, by whose fits others tell more."""

    def run(path, seed, **how):
        def drawn(profile, generator, count):
            other = random.Random(f"{seed} {len(profile.measured)}")
            return [random_workload(profile, other) for _ in range(count)]

        monkeypatch.setattr("selfscale.exploring.informative.most_informative", drawn)
        exploring = partial(Exploration, Settings(machine.cache_bytes, 168.0, 2, seed=1))
        return run_with_journal(exploring, path, machine.measure, **how)

    whole = run(tmp_path / "whole", 0)
    third = 3 + next(index for index, point in enumerate(whole.points) if point.role == "inform")
    killed = run(tmp_path / "part", 1, stop_after=len(whole.storage) + third)
    resumed = run(tmp_path / "part", 2, resume=True)
    assert resumed.complete
    assert resumed.points[:third] == killed.points
    assert len(resumed.points) == len(whole.points)


def test_a_budget_for_more_of_them_than_are_chosen_makes_their_runs_longer(machine, monkeypatch):
    monkeypatch.setattr("selfscale.exploring.self_scaling.INFORMATIVE_MAX", 16)

    def longest_s(budget_s):
        exploration = Exploration(Settings(machine.cache_bytes, budget_s, 2, seed=1), machine.measure)
        before = len(machine.measured)
        exploration.run()
        chosen = [step for step in machine.measured[before:] if step.role == "inform"]
        assert len(chosen) == 16
        return max(step.max_seconds for step in chosen)

    assert longest_s(800.0) > 1.5 * longest_s(300.0)
