# SPDX-License-Identifier: Apache-2.0
"""A run that was disturbed is measured again, and the one with the narrower interval counts."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from characterize.workload import Workload
from flextrace.runs.measuring import measure_in
from selfscale.exploring.disturbed import DISTURBED_FRAC, POINTS_MIN, undisturbed
from selfscale.exploring.plan import Step
from selfscale.measure import Point
from selfscale.measuring import storage
from selfscale.measuring.access import BUFFERED

pytestmark = pytest.mark.parallel

WORKLOAD = Workload(1 << 20, 0.5, 0.5, 4096.0, 1.0)
STEP = Step(WORKLOAD, "random", 3.0)


def _point(width: float, throughput: float = 1e9, cost_s: float = 2.0) -> Point:
    return Point(WORKLOAD, throughput, width * throughput, cost_s=cost_s)


def _measured(widths: list[float]) -> tuple[list[Point], int]:
    """What counts of runs with these intervals, until there are no more; and how many were asked for."""
    left: Iterator[Point] = iter([_point(width, 1e9 + number) for number, width in enumerate(widths)])
    points = []
    runs = 0

    def measure(step: Step) -> Point:
        nonlocal runs
        runs += 1
        return next(left)

    step = undisturbed(measure)
    while runs < len(widths):
        points.append(step(STEP))
    return points, runs


def test_of_a_disturbed_run_and_a_second_one_the_narrower_counts():
    quiet = [0.03] * POINTS_MIN
    points, runs = _measured([*quiet, 0.4, 0.02, 0.03])
    assert runs == POINTS_MIN + 3
    assert len(points) == POINTS_MIN + 2
    twice = points[POINTS_MIN]
    assert twice.throughput_bytes_per_s == 1e9 + POINTS_MIN + 1
    assert twice.ci95_half_width_bytes_per_s == pytest.approx(0.02 * twice.throughput_bytes_per_s)
    assert twice.cost_s == 4.0
    assert twice.disturbed_bytes_per_s == 1e9 + POINTS_MIN
    assert (points[-1].cost_s, points[-1].disturbed_bytes_per_s) == (2.0, None)


def test_the_first_one_counts_where_the_second_was_disturbed_more():
    points, _ = _measured([*[0.03] * POINTS_MIN, 0.3, 0.6])
    assert points[-1].throughput_bytes_per_s == 1e9 + POINTS_MIN
    assert points[-1].disturbed_bytes_per_s == 1e9 + POINTS_MIN + 1
    assert points[-1].cost_s == 4.0


def test_a_machine_whose_intervals_are_wide_is_not_disturbed():
    noise = random.Random(3)
    widths = [noise.uniform(0.15, 0.4) for _ in range(97)]
    points, runs = _measured(widths)
    assert len(points) == runs == 97


def test_nothing_is_measured_again_before_it_is_known_what_is_usual():
    points, runs = _measured([*[0.03] * (POINTS_MIN - 1), 0.5])
    assert len(points) == runs == POINTS_MIN


def test_runs_without_an_interval_are_neither_disturbed_nor_usual():
    points, runs = _measured([*[math.inf] * 20, *[0.03] * POINTS_MIN, math.inf, 0.5, 0.02])
    assert len(points) == runs - 1
    assert points[-1].cost_s == 4.0


@pytest.mark.parametrize(("left_s", "runs"), [(4.0, 2), (3.9, 1)])
def test_a_second_run_is_made_where_the_budget_pays_for_it(left_s, runs):
    points = iter([*[_point(0.03)] * POINTS_MIN, _point(0.4), _point(0.02)])
    step = undisturbed(lambda _: next(points))
    for _ in range(POINTS_MIN):
        step(STEP)
    assert step(dataclasses.replace(STEP, left_s=left_s)).cost_s == 2.0 * runs


def test_what_is_usual_is_known_from_points_of_before():
    """Those of an interrupted run that is resumed."""
    widths = iter([0.4, 0.02])
    points = [undisturbed(lambda _: _point(next(widths)), [_point(0.03)] * POINTS_MIN)(STEP)]
    assert [point.cost_s for point in points] == [4.0]


def test_workloads_are_measured_again_and_probes_of_storage_are_not(monkeypatch):
    widths = {"random": iter([*[0.03] * POINTS_MIN, 0.4, 0.02]), storage.ROLE: iter([0.9, 0.9])}
    role = "random"
    monkeypatch.setattr("selfscale.measure.measure", lambda *_, **__: _point(next(widths[role])))
    measure = measure_in(None, None, BUFFERED)
    points = [measure(STEP) for _ in range(POINTS_MIN + 1)]
    assert [point.cost_s for point in points] == [2.0] * POINTS_MIN + [4.0]
    # What it took to choose a workload is a part of its cost.
    widths[role] = iter([0.03])
    assert measure(dataclasses.replace(STEP, choosing_s=0.5)).cost_s == 2.5
    role = storage.ROLE
    probes = [measure(Step(WORKLOAD, storage.ROLE, 0.6, parameter="scan")) for _ in range(2)]
    assert [point.cost_s for point in probes] == [2.0, 2.0]


@given(st.lists(st.floats(0.001, 2.0), min_size=1, max_size=60))
def test_every_run_is_paid_for_and_no_kept_interval_is_wider_than_the_one_that_was_left(widths):
    runs: list[float] = []

    def measure(step: Step) -> Point:
        runs.append(widths[len(runs) % len(widths)])
        return _point(runs[-1])

    step = undisturbed(measure)
    for _ in range(40):
        before = len(runs)
        point = step(STEP)
        of_this = runs[before:]
        assert len(of_this) in (1, 2)
        assert point.cost_s == 2.0 * len(of_this)
        assert point.ci95_half_width_bytes_per_s == pytest.approx(min(of_this) * point.throughput_bytes_per_s)
        assert len(of_this) == 1 or of_this[0] > DISTURBED_FRAC
