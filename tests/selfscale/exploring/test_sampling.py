# SPDX-License-Identifier: Apache-2.0
"""Random workloads and orthogonal samples over the measured ranges."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from characterize.workload import FIELD_OF, Workload
from selfscale.exploring.sampling import orthogonal_levels, orthogonal_sample, random_workload
from selfscale.measure import Point
from selfscale.measuring.measurable_sizes import feasible
from selfscale.profile import Profile
from tests.formulas.synthetic_machine import MIB

pytestmark = pytest.mark.parallel

LOW = Workload(8 * MIB, 0.0, 0.0, 4096.0, 1.0)
HIGH = Workload(512 * MIB, 1.0, 1.0, 1 << 20, 4.0)


def profile(low=LOW, high=HIGH):
    return Profile(measured=[Point(low, 1e8, 1e6), Point(high, 1e8, 1e6)])


def test_the_thesis_has_162_points_with_two_levels_of_process_num():
    levels = orthogonal_levels(profile(), 162)
    assert {name: len(values) for name, values in levels.items()} == {
        "uniqueBytes": 3,
        "seqFrac": 3,
        "readFrac": 3,
        "sizeMean": 3,
        "processNum": 2,
    }
    assert levels["readFrac"] == [0.0, 0.5, 1.0]
    assert levels["uniqueBytes"] == [8 * MIB, 64 * MIB, 512 * MIB]
    assert len(orthogonal_sample(profile(), 162)) == 162


@given(points=st.integers(32, 2000))
def test_a_sample_has_at_most_the_points_asked_for_and_more_than_half_when_it_can(points):
    count = len(orthogonal_sample(profile(), points))
    assert count <= points
    # One more level of the parameter with the fewest multiplies by 1.5 at most.
    assert count * 1.5 > points or count == 7**4 * 4


def test_a_parameter_that_was_not_varied_has_one_level():
    one_process = profile(high=HIGH.replace(process_num=1.0))
    assert orthogonal_levels(one_process, 162)["processNum"] == [1.0]


def test_a_request_size_that_does_not_fit_is_replaced_by_the_largest_that_does():
    node = Workload(8 * MIB, 0.5, 0.5, 1 << 20, 4.0)
    assert feasible(node).size_mean == 8 * MIB / 4 / 8
    assert feasible(node.replace(process_num=1.0)) == node.replace(process_num=1.0)


def test_random_workloads_lie_in_the_measured_ranges_and_fit():
    generator = random.Random(3)
    for _ in range(300):
        workload = random_workload(profile(), generator)
        for name, field in FIELD_OF.items():
            low, high = profile().range_of(name)
            assert low <= getattr(workload, field) <= high, name
        assert workload.size_mean <= workload.unique_bytes / workload.process_num / 8 + 4096


def test_random_workloads_are_spread_evenly_on_a_logarithmic_axis():
    generator = random.Random(4)
    below = sum(random_workload(profile(), generator).unique_bytes < 64 * MIB for _ in range(1000))
    assert below == pytest.approx(500, abs=60)
