# SPDX-License-Identifier: Apache-2.0
"""Regions and borders on curves whose border is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfscale.profiles.regions import find_borders, halfway, log_slopes

pytestmark = pytest.mark.parallel

MIB = 1 << 20


def staircase(x, steps):
    """Throughput 100, divided by the factor of every step whose size is exceeded."""
    throughput = np.full(len(x), 100.0)
    for size, factor in steps:
        throughput = np.where(x > size, throughput / factor, throughput)
    return throughput


def test_slope_on_log_axes_of_a_power_law_is_its_exponent():
    x = np.geomspace(1, 1000, 9)
    assert log_slopes(x, 7 * x**-1.5) == pytest.approx(np.full(8, -1.5))


def test_one_border_between_the_points_around_the_fall():
    x = np.geomspace(8, 512, 7) * MIB
    (border,) = find_borders(x, staircase(x, [(100 * MIB, 20)]))
    assert border.good_bytes <= 100 * MIB < border.bad_bytes
    assert 5 < border.threshold < 100


def test_three_plateaus_of_figure_4_8_give_two_borders():
    # Sprite on the DECstation 5000: plateaus up to 5 MB, 5 to 20 MB, above 20 MB; about 4.5, 2 and 0.6 MB/s.
    x = np.geomspace(1, 50, 9) * 1e6
    borders = find_borders(x, staircase(x, [(5e6, 4.5 / 2), (20e6, 2 / 0.6)]))
    assert len(borders) == 2
    for border, size in zip(borders, (5e6, 20e6), strict=True):
        assert border.good_bytes <= size < border.bad_bytes


def test_a_fall_over_several_points_is_one_border_at_its_beginning():
    x = np.array([10, 20, 40, 80, 160, 320.0])
    throughput = np.array([100, 100, 30, 8, 4, 3.5])
    (border,) = find_borders(x, throughput)
    assert (border.good_bytes, border.bad_bytes) == (20, 40)


@pytest.mark.parametrize("throughput", [[5.0] * 7, [5, 5.1, 4.9, 5, 5.2, 5, 4.8], [1, 2, 3, 4, 5, 6, 7.0]])
def test_flat_and_rising_curves_have_no_border(throughput):
    assert find_borders(np.geomspace(1, 64, 7), np.array(throughput)) == []


@given(
    size=st.floats(16, 200),
    factor=st.floats(3, 100),
    noise=st.lists(st.floats(-0.1, 0.1), min_size=9, max_size=9),
)
@settings(max_examples=200, deadline=None)
def test_noise_of_ten_per_cent_neither_hides_nor_adds_a_border(size, factor, noise):
    x = np.geomspace(8, 384, 9)
    borders = find_borders(x, staircase(x, [(size, factor)]) * (1 + np.array(noise)))
    assert len(borders) == 1
    assert borders[0].good_bytes <= size <= borders[0].bad_bytes


def test_halfway_is_interpolated_on_a_log_axis():
    # Halfway between 10 and 30 is 20, half of the way in throughput from 4 to 64, whose geometric middle is 16.
    assert halfway(np.array([4.0, 64.0]), np.array([10.0, 30.0])) == pytest.approx(16)
    # Takes the first crossing: 20 is reached a third of the way (in ln) from 1 to 8.
    assert halfway(np.array([1.0, 8.0, 64.0]), np.array([10.0, 40.0, 25.0])) == pytest.approx(1 * 8 ** ((25 - 10) / 30))


def test_halfway_of_a_flat_curve_is_its_middle():
    for throughput in (7.0, 0.0):
        assert halfway(np.array([1.0, 4.0]), np.array([throughput, throughput])) == pytest.approx(2)


@given(low=st.floats(1, 1e12), ratio=st.floats(1.01, 100), top=st.floats(1, 1e11), fall=st.floats(1.7, 1000))
def test_a_fall_between_two_points_is_a_border(low, ratio, top, fall):
    # One slope only, which is the average slope but for rounding.
    (border,) = find_borders(np.array([low, low * ratio]), np.array([top, top / fall]))
    assert (border.good_bytes, border.bad_bytes) == (low, low * ratio)
