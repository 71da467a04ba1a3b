# SPDX-License-Identifier: Apache-2.0
"""How far equal measurements lie apart, by hand and on points whose scatter is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from characterize.workload import Workload
from selfscale.measure import Point
from selfscale.profile import Profile, Region
from selfscale.profiles.repeatability import repeat_error, repeatability

pytestmark = pytest.mark.parallel

MIB = 1 << 20
FOCAL = Workload(64 * MIB, 0.5, 0.5, 32768.0, 1.0)


def test_repeatability_by_hand():
    def point(workload, rate, role="reference", steady=True):
        return Point(workload, rate, 0.0, role=role, steady=steady)

    other = FOCAL.replace(read_frac=1.0)
    points = [point(FOCAL, 90.0), point(FOCAL, 110.0), point(other, 95.0, "random"), point(other, 105.0, "random")]
    points += [point(other.replace(seq_frac=0.0), 5.0, steady=False), point(FOCAL, 300.0, "curve")]
    found = repeatability(points, [])
    assert (found.median, found.p90, found.largest) == tuple(map(pytest.approx, (0.15, 0.19, 0.2)))
    assert (found.repeated, found.points, found.unsteady) == (2, 6, 1)
    # A focal point that was a probe before.
    assert repeatability([point(FOCAL, 90.0, "explore"), point(FOCAL, 110.0)], []).median == pytest.approx(0.2)
    assert repeatability([], []).median is None


def test_repeatability_of_a_focal_point_that_was_on_a_curve_before():
    region = Region(1 * MIB, 100 * MIB, FOCAL)
    other = FOCAL.replace(read_frac=1.0)
    rates = [(FOCAL, 80.0, "curve"), (FOCAL, 120.0, "reference"), (other, 1.0, "curve"), (other, 9.0, "curve")]
    points = [Point(workload, rate, 0.0, role=role) for workload, rate, role in rates]
    found = repeatability(points, [region])
    assert (found.repeated, found.median) == (1, pytest.approx(0.4))


def repeated(generator: np.random.Generator, workloads: int, scatter: float) -> list[Point]:
    """Each measured twice, at speeds of its own."""
    return [
        Point(FOCAL.replace(size_mean=5000.0 * (1 + number)), 1e6 * (1 + number) * math.exp(error), 0.0, role="random")
        for number in range(workloads)
        for error in generator.normal(0, scatter, 2)
    ]


def test_the_error_of_one_measurement_covers_the_truth_19_times_of_20():
    generator = np.random.default_rng(1)
    covered = [abs(generator.normal(0, 0.1)) <= repeat_error(repeated(generator, 4, 0.1), []) for _ in range(2000)]
    assert 0.935 <= np.mean(covered) <= 0.965


def test_two_repeated_workloads_tell_no_error():
    generator = np.random.default_rng(1)
    assert repeat_error(repeated(generator, 2, 0.1), []) == 0
    assert repeat_error(repeated(generator, 3, 0.1), []) > 0
    assert repeat_error([], []) == 0


def test_no_point_of_a_curve_is_known_better_than_what_was_repeated():
    points = [Point(FOCAL, 1e6, 1e4, role="curve"), Point(FOCAL.replace(seq_frac=1.0), 2e6, 9e5, role="curve")]
    points += repeated(np.random.default_rng(1), 60, 0.1)
    regions = [Region(1 * MIB, 100 * MIB, FOCAL)]
    error = repeat_error(points, regions)
    assert 0.14 < error < 0.26  # twice 0.1, told by 60 degrees of freedom
    curve = Profile(measured=points, regions=regions).curve("seqFrac", 0)
    assert curve.half_width_95.tolist() == pytest.approx([1e6 * error, 9e5])
