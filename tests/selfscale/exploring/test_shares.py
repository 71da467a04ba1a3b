# SPDX-License-Identifier: Apache-2.0
"""How long the points of a self-scaling benchmark may take, by what was spent before them; on formulas."""

from dataclasses import replace

import pytest

from selfscale.explore import Exploration
from selfscale.exploring.knee import KneeExploration
from selfscale.exploring.plan import NOMINAL_POINT_S, RANDOM_SHARE_MAX, Settings
from selfscale.exploring.self_scaling import RUN_S_MIN
from selfscale.measuring.storage import ROLE, probes
from tests.formulas.synthetic_machine import MIB, Machine

pytest_plugins = ["tests.formulas.only_curves"]
pytestmark = [pytest.mark.parallel, pytest.mark.usefixtures("only_curves")]


def test_closing_references_run_as_long_as_before_also_where_the_curves_have_spent_their_time():
    """On a machine on which no run becomes steady, and what the curves of the regions measure is prepared for long."""
    machine = Machine([(256 * MIB, 500e-6)])

    def measure(step):
        run_s = step.max_seconds
        overhead_s = 5.0 if step.role == "curve" and step.region is not None else 0.2
        return replace(machine.measure(step), steady=False, elapsed_s=run_s, cost_s=run_s + overhead_s)

    exploration = Exploration(Settings(256 * MIB, 250.0, 2), measure)
    exploration.run()
    assert exploration.spent_s <= 250.0
    curves = [point for point in exploration.points if point.role == "curve" and point.region is not None]
    assert min(point.elapsed_s for point in curves) == RUN_S_MIN, "they took more than their time"
    for region in exploration.regions:
        *before, last = [point for point in exploration.points if point.workload == region.focal]
        assert last.role == "reference"
        assert last.elapsed_s == pytest.approx(max(point.elapsed_s for point in before), rel=0.01)


@pytest.mark.parametrize("prepared_s", [0.0, 60.0])
def test_what_was_before_the_first_point_is_not_taken_from_the_first_points(prepared_s):
    """Laying out files takes a minute on a slow disk."""
    machine = Machine([(256 * MIB, 500e-6)])
    exploration = Exploration(Settings(256 * MIB, 180.0 + prepared_s, 2, spent_s=prepared_s), machine.measure)
    exploration.run()
    assert exploration.complete
    assert exploration.spent_s <= 180.0 + prepared_s
    assert min(step.max_seconds for step in machine.measured[:8]) > 2 * RUN_S_MIN


def test_what_was_before_the_first_point_does_not_change_what_is_measured():
    """It pays for no point: so many are planned as the rest of the budget pays for."""

    def workloads(prepared_s):
        machine = Machine([(256 * MIB, 500e-6)])
        Exploration(Settings(256 * MIB, 230.0 + prepared_s, 2, spent_s=prepared_s), machine.measure).run()
        return [step.workload for step in machine.measured]

    assert workloads(0.0) == workloads(60.0)


def test_random_workloads_leave_the_others_the_points_that_their_share_pays_for():
    """More of them than the budget pays for; sizes and processes are tried all the same."""
    settings = Settings(256 * MIB, 300.0, 2, random_points=100)
    assert settings.points_affordable == (1 - RANDOM_SHARE_MAX) * 300.0 / NOMINAL_POINT_S
    machine = Machine([(256 * MIB, 500e-6)])
    Exploration(settings, machine.measure).run()
    assert {"sizeMean", "processNum"} <= {step.parameter for step in machine.measured if step.role == "explore"}


@pytest.mark.parametrize("benchmark", [Exploration, KneeExploration])
def test_probes_of_storage_that_take_longer_than_points_end_with_the_budget(benchmark):
    """They lay out files of their own, and sync."""
    machine = Machine([(64 * MIB, 5e-4)])

    def measure(step):
        point = machine.measure(step)
        return replace(point, cost_s=10.0) if step.role == ROLE else point

    run = benchmark(Settings(64 * MIB, 240.0, 2), measure)
    run.run()
    assert run.storage_missed
    assert 0 < len(run.profile().storage) < len(probes(1.0))
    assert run.spent_s <= 250


@pytest.mark.parametrize("prepared_s", [0.0, 300.0])
def test_no_probe_is_begun_where_laying_out_their_files_would_take_what_is_left(prepared_s):
    """Theirs are a share of the files of the points, which took five minutes on a slow disk."""
    machine = Machine([(64 * MIB, 5e-4)])
    run = Exploration(Settings(64 * MIB, 100.0 + prepared_s, 2, spent_s=prepared_s), machine.measure)
    run.run()
    assert run.complete
    assert run.storage_missed == (prepared_s > 0)
    assert bool(run.storage) == (prepared_s == 0)
