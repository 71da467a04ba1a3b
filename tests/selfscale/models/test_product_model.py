# SPDX-License-Identifier: Apache-2.0
"""Chen's product of single parameter functions: by hand, on a machine whose form it is, and on the thesis's numbers."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from characterize.errors import FlextraceError
from characterize.workload import FIELD_OF, PARAMETERS, Workload
from selfscale.measure import Point
from selfscale.models import MODELS, make_model
from selfscale.models.product import ProductModel
from selfscale.predict import Predictor
from selfscale.predicting.cross_validation import REGION_TESTED_MIN
from selfscale.predicting.prediction_errors import REPEATABILITY, errors_of
from selfscale.profile import Profile, Region

pytestmark = pytest.mark.parallel

MB = 1e6
FOCAL = Workload(0, 0.5, 0.5, 16384.0, 2.0)


def predict_by_product(profile, workload):
    return Predictor(profile, "product").predict(workload)


def make_profile(throughput, focal_bytes, curves, boundaries, relative_error=0.0):
    """A profile whose every point is `throughput(workload)`.

    `curves` has the values of every parameter; those of uniqueBytes are shared by the regions.
    """
    regions = []
    edges = [min(curves["uniqueBytes"]), *boundaries, max(curves["uniqueBytes"])]
    for index, size in enumerate(focal_bytes):
        regions.append(Region(edges[index], edges[index + 1], FOCAL.replace(unique_bytes=size)))
    workloads = []
    for index, region in enumerate(regions):
        workloads.append((region.focal, "reference", index, None))
        for parameter, values in curves.items():
            if parameter == "uniqueBytes" and index:
                continue
            for value in values:
                changed = region.focal.replace(**{FIELD_OF[parameter]: value})
                workloads.append((changed, "curve", None if parameter == "uniqueBytes" else index, parameter))
    points = [
        Point(
            workload,
            throughput(workload),
            relative_error * throughput(workload),
            role=role,
            region=region,
            parameter=parameter,
        )
        for workload, role, region, parameter in workloads
    ]
    return Profile(measured=points, boundaries_bytes=list(boundaries), regions=regions, complete=True)


CURVES = {
    "uniqueBytes": [10 * MB, 20 * MB, 40 * MB, 80 * MB, 160 * MB],
    "seqFrac": [0.0, 0.25, 1.0],
    "readFrac": [0.0, 0.75, 1.0],
    "sizeMean": [4096.0, 65536.0, 262144.0],
    "processNum": [1.0, 4.0, 8.0],
}


def by_hand_profile():
    """Two regions: 100 MB/s up to 40 MB, 10 MB/s from 80 MB; sizeMean multiplies by its square root over 128."""

    def throughput(workload):
        base = 100 * MB if workload.unique_bytes <= 50 * MB else 10 * MB
        return base * math.sqrt(workload.size_mean) / 128 * (1 + workload.read_frac) / 1.5

    return make_profile(throughput, [20 * MB, 120 * MB], CURVES, [50 * MB])


def test_by_hand():
    profile = by_hand_profile()
    # Region 1, focal throughput 100 MB/s at 20 MB; sizeMean 65536: curve 200/100; readFrac 1: curve (2/1.5)/1.
    prediction = predict_by_product(profile, FOCAL.replace(unique_bytes=20 * MB, size_mean=65536.0, read_frac=1.0))
    assert prediction.throughput_bytes_per_s == pytest.approx(100 * MB * 2 * 4 / 3)
    assert prediction.region == 0
    assert prediction.inside_range
    assert prediction.model == "product"
    used = {
        (profile.measured[index].parameter, profile.measured[index].workload.size_mean)
        for index in prediction.points_used
    }
    assert ("sizeMean", 65536.0) in used
    assert ("sizeMean", 262144.0) not in used


def test_between_two_points_linear_in_throughput_on_a_log_axis_for_sizes():
    profile = by_hand_profile()
    # sizeMean 8192 is halfway in ln between 4096 (50 MB/s) and 16384 (100 MB/s): 75 MB/s.
    prediction = predict_by_product(profile, FOCAL.replace(unique_bytes=20 * MB, size_mean=8192.0))
    assert prediction.throughput_bytes_per_s == pytest.approx(75 * MB)
    # readFrac 0.25 is halfway between 0 (66.7 MB/s) and 0.5 (100 MB/s) on a linear axis.
    prediction = predict_by_product(profile, FOCAL.replace(unique_bytes=20 * MB, read_frac=0.25))
    assert prediction.throughput_bytes_per_s == pytest.approx(100 * MB * (2 / 3 + 1) / 2)


def test_focal_point_is_that_of_nearest_performance_not_of_nearest_size():
    profile = by_hand_profile()
    model = ProductModel().fit(profile.measured, profile.regions)
    # 40 MB: the curve says 100 MB/s, as at 20 MB. 60 MB: halfway by ln(60/40)/ln(80/40) = 0.585 from 100 to 10, so
    # 47.4 MB/s: closer to 10 (37.4 away) than to 100 (52.6 away). 55 MB: 58.7 MB/s, closer to 100.
    assert model.choose_region(40 * MB) == 0
    assert model.choose_region(55 * MB) == 0
    assert model.choose_region(60 * MB) == 1
    assert model.choose_region(80 * MB) == 1
    # Outside of all focal points: the nearest.
    assert model.choose_region(1 * MB) == 0
    assert model.choose_region(1e12) == 1


def test_ratio_along_unique_bytes_is_taken_at_the_border():
    profile = by_hand_profile()
    share = math.log(60 / 40) / math.log(2)
    prediction = predict_by_product(profile, FOCAL.replace(unique_bytes=60 * MB))
    assert prediction.throughput_bytes_per_s == pytest.approx((100 + share * (10 - 100)) * MB)


def test_outside_the_measured_range_is_flagged_and_clamped():
    profile = by_hand_profile()
    prediction = predict_by_product(profile, FOCAL.replace(unique_bytes=20 * MB, size_mean=1 << 20, process_num=16.0))
    assert not prediction.inside_range
    assert prediction.outside == ["sizeMean", "processNum"]
    assert prediction.throughput_bytes_per_s == pytest.approx(100 * MB * 4)


def product_form(generator):
    """A machine of the form f(U) g(S) h(R) k(Q) m(P), each tabulated at the values of CURVES and the focal ones."""
    tables = {}
    for parameter, values in CURVES.items():
        focal = {"uniqueBytes": [20 * MB, 120 * MB]}.get(parameter, [getattr(FOCAL, FIELD_OF[parameter])])
        tables[parameter] = {value: generator.uniform(0.2, 5) for value in [*values, *focal]}
    return tables


@given(seed=st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_exact_on_a_machine_of_the_product_form(seed):
    generator = random.Random(seed)
    tables = product_form(generator)

    def throughput(workload):
        return 1e7 * math.prod(tables[parameter][getattr(workload, FIELD_OF[parameter])] for parameter in PARAMETERS)

    profile = make_profile(throughput, [20 * MB, 120 * MB], CURVES, [50 * MB])
    for _ in range(5):
        target = Workload(**{FIELD_OF[name]: generator.choice(list(tables[name])) for name in PARAMETERS})
        row = ProductModel().fit(profile.measured, profile.regions).predict([target]).iloc[0]
        assert row["throughput_bytes_per_s"] == pytest.approx(throughput(target))
        assert row["interval_low"] == pytest.approx(row["interval_high"])


def test_interval_of_curves_adds_relative_errors_by_squares():
    profile = make_profile(lambda workload: 1e8, [20 * MB, 120 * MB], CURVES, [50 * MB], relative_error=0.03)
    # The focal value is of two points (curve and reference), 3 % / sqrt(2); others 3 %. It is a factor once, and
    # divides once for every parameter that is changed: with one it cancels.
    model = ProductModel().fit(profile.measured, profile.regions)
    focal_error = 0.03 / math.sqrt(2)
    for changed, errors in (
        ({}, [focal_error]),
        ({"size_mean": 65536.0}, [0.03]),
        ({"size_mean": 65536.0, "process_num": 4.0}, [0.03, 0.03, focal_error]),
        ({"size_mean": 65536.0, "process_num": 4.0, "read_frac": 1.0}, [0.03] * 3 + [2 * focal_error]),
    ):
        row = model.predict([FOCAL.replace(unique_bytes=20 * MB, **changed)]).iloc[0]
        expected = math.exp(math.hypot(*errors) * 1.644854 / 1.959964)
        assert row["interval_high"] / row["throughput_bytes_per_s"] == pytest.approx(expected, rel=1e-4), changed


def with_random(profile, factors):
    generator = random.Random(5)
    for factor in factors:
        target = Workload(
            generator.choice(CURVES["uniqueBytes"]),
            generator.random(),
            generator.random(),
            generator.choice(CURVES["sizeMean"]),
            generator.choice(CURVES["processNum"]),
        )
        throughput = predict_by_product(profile, target).throughput_bytes_per_s * factor
        for repeat, noise in ((0, 1.0), (1, 1.02)):
            profile.measured.append(Point(target, throughput * noise, 0.0, role="random", repeat=repeat))
    return profile


def test_interval_covers_the_error_on_random_workloads():
    plain = by_hand_profile()
    profile = with_random(by_hand_profile(), [1 + 0.01 * step for step in range(1, 50)])
    before = predict_by_product(plain, FOCAL.replace(unique_bytes=20 * MB))
    after = predict_by_product(profile, FOCAL.replace(unique_bytes=20 * MB))
    assert after.throughput_bytes_per_s == before.throughput_bytes_per_s
    # The errors ln(1.01 x 1.01) ... ln(1.49 x 1.01), of the mean of two measurements of each workload; those of region
    # 1, which has n of them: rank ceil((n + 1) x 0.9) from below.
    random_points = [point for point in profile.measured if point.role == "random"][::2]
    pairs = [(1 + 0.01 * step) * 1.01 for step in range(1, 50)]
    errors = sorted(
        math.log(factor)
        for factor, point in zip(pairs, random_points, strict=True)
        if point.workload.unique_bytes <= 50 * MB
    )
    rank = math.ceil((len(errors) + 1) * 0.9)
    assert len(errors) >= REGION_TESTED_MIN
    assert math.log(after.interval_high / after.throughput_bytes_per_s) == pytest.approx(errors[rank - 1])
    assert "49 measured workloads" in after.extended_note


def test_errors_on_random_by_hand():
    profile = with_random(by_hand_profile(), [1.0, 1.25, 0.8, 2.0])
    errors = errors_of(profile)
    # Predicted / measured - 1: 0, -0.2, +0.25, -0.5.
    assert errors.of("product")["error"].tolist() == pytest.approx([0.0, 0.2, 0.25, 0.5])
    assert errors.of(REPEATABILITY)["error"].median() == pytest.approx(0.02)
    assert errors.fitted_to["product"] == len(by_hand_profile().measured)
    assert list(errors_of(profile, used_only=True).fitted_to) == [errors.used]


def test_example_of_section_5_2():
    # Throughput(processNum, sizeMean_1) = 3/6 of Throughput(processNum, sizeMean_f).
    values = {(2.0, 16384.0): 6.0, (2.0, 4096.0): 3.0, (4.0, 16384.0): 8.0}

    def throughput(workload):
        return 1e6 * values.get((workload.process_num, workload.size_mean), 6.0)

    curves = {**CURVES, "sizeMean": [4096.0], "processNum": [4.0]}
    profile = make_profile(throughput, [20 * MB, 120 * MB], curves, [50 * MB])
    prediction = predict_by_product(profile, FOCAL.replace(unique_bytes=20 * MB, process_num=4.0, size_mean=4096.0))
    assert prediction.throughput_bytes_per_s == pytest.approx(3 / 6 * 8e6)


def test_nothing_to_predict_from():
    with pytest.raises(FlextraceError, match="no region's focal vector"):
        predict_by_product(Profile(), FOCAL)
    with pytest.raises(FlextraceError, match="no model 'x'"):
        make_model("x")
    with pytest.raises(FlextraceError, match="without sizeMean"):
        predict_by_product(by_hand_profile(), FOCAL.replace(size_mean=math.nan))


def test_a_curve_that_was_not_reached_is_outside():
    profile = by_hand_profile()
    profile.measured = [point for point in profile.measured if point.parameter != "processNum"]
    prediction = predict_by_product(profile, FOCAL.replace(unique_bytes=20 * MB, process_num=4.0))
    assert prediction.outside == ["processNum"]
    assert prediction.throughput_bytes_per_s == pytest.approx(100 * MB)


def test_every_model_can_be_made():
    for name in MODELS:
        assert make_model(name).name == name
