# SPDX-License-Identifier: Apache-2.0
"""Errors of predictions: against hand calculation, and the interval of the median against simulation."""

import numpy as np
import pandas as pd
import pytest

from characterize.errors import FlextraceError
from selfscale.measure import Point
from selfscale.models import make_model
from selfscale.predicting.prediction_errors import (
    REPEATABILITY,
    PredictionErrors,
    by_parameter,
    cumulative,
    errors_of,
    load,
    median_interval,
)
from selfscale.profiles.learned_points import learnable
from selfscale.validate import compare_models, plan
from tests.traces.made_report import make_profile

pytestmark = pytest.mark.parallel


def test_errors_of_a_validation_by_hand():
    profile = make_profile()
    validation = plan(profile, 5, seconds=2.0)
    predicted = make_model("product").fit(learnable(profile.measured), profile.regions).predict(validation.workloads)
    factors = np.array([1.0, 0.5, 2.0, 0.8, 1.25])
    measured = predicted["throughput_bytes_per_s"].to_numpy() / factors
    random = [
        Point(workload, value * again, 0.0, role="random", repeat=repeat)
        for workload, value in zip(validation.workloads, measured, strict=True)
        for repeat, again in ((0, 1.0), (1, 1.1))
    ]
    # An orthogonal sample of a machine that is equally fast everywhere predicts just that.
    grid = [Point(step.workload, 7e7, 0.0, role="orthogonal") for step in validation.steps if step.role == "orthogonal"]
    errors = errors_of(profile, random + grid)
    product = errors.of("product")
    assert product["error"].tolist() == pytest.approx([0.0, 0.5, 1.0, 0.2, 0.25])
    assert product["measured_bytes_per_s"].tolist() == pytest.approx(measured.tolist())
    assert product["uniqueBytes"].tolist() == [workload.unique_bytes for workload in validation.workloads]
    assert errors.of(REPEATABILITY)["error"].tolist() == pytest.approx([0.1] * 5)
    assert errors.models[-1] == REPEATABILITY
    for label in ("orthogonal, equal points", "orthogonal, double points"):
        assert errors.of(label)["error"].tolist() == pytest.approx((np.abs(7e7 - measured) / measured).tolist())
    assert "orthogonal" in errors_of(profile, random).unusable
    # They are those of the table that 'flextrace validate' prints.
    rows = {row.name: row for row in compare_models(profile, validation, random + grid)["rows"]}
    assert set(errors.models) <= set(rows)
    for model in errors.models:
        quantiles = errors.of(model)["error"].quantile([0.5, 0.75, 0.9, 1.0]).tolist()
        assert quantiles == pytest.approx(list(rows[model].errors.values()))
    assert [row.name for row in rows.values() if row.used] == [errors.used]


def test_without_random_workloads_they_are_asked_for():
    profile = make_profile()
    profile.measured = learnable(profile.measured)
    with pytest.raises(FlextraceError, match="flextrace validate"):
        errors_of(profile)
    profile.regions = []
    with pytest.raises(FlextraceError, match="--resume"):
        errors_of(profile)


def table(**errors_by_model):
    return PredictionErrors(
        pd.concat(
            [
                pd.DataFrame({"model": model, "uniqueBytes": range(len(errors), 0, -1), "error": errors})
                for model, errors in errors_by_model.items()
            ]
        ),
        "one",
        {},
    )


def test_cumulative_errors_by_hand():
    data = cumulative(table(one=[0.3, 0.1, 0.2, 0.1], repeatability=[0.5]))
    assert data["error"].tolist() == [0.1, 0.1, 0.2, 0.3, 0.5]
    assert data["share"].tolist() == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_errors_by_parameter_by_hand():
    # 23 workloads, uniqueBytes 23 down to 1 with an error of uniqueBytes / 100: four bins of 6, 6, 6, 5.
    data = by_parameter(table(one=[value / 100 for value in range(23, 0, -1)]), "uniqueBytes")
    assert data["workloads"].tolist() == [6, 6, 6, 5]
    assert data["low"].tolist() == [1, 7, 13, 19]
    assert data["high"].tolist() == [6, 12, 18, 23]
    assert data["value"].tolist() == [3.5, 9.5, 15.5, 21]
    assert data["median_error"].tolist() == pytest.approx([0.035, 0.095, 0.155, 0.21])
    few = by_parameter(table(one=[0.3, 0.1]), "uniqueBytes")
    assert few[["value", "median_error"]].to_numpy().tolist() == [[1, 0.1], [2, 0.3]]


def test_the_interval_of_the_median_covers_it_as_often_as_it_says():
    assert median_interval([0.1] * 4)["low"].isna().all()
    # Of five errors the true median lies outside the least and the largest with probability 2 / 32.
    five = median_interval([0.5, 0.1, 0.4, 0.2, 0.3]).iloc[-1]
    assert (five["low"], five["median"], five["high"]) == (0.1, 0.3, 0.5)
    # Of 100, ranks 42 and 59: a tabulated 90 % interval of the sign test.
    hundred = median_interval(np.arange(1, 101) / 100).iloc[-1]
    assert (hundred["low"], hundred["high"]) == (0.42, 0.59)
    generator = np.random.default_rng(4)
    covered = 0
    for _ in range(300):
        last = median_interval(generator.exponential(size=30)).iloc[-1]
        covered += last["low"] <= np.log(2) <= last["high"]
    assert covered / 300 > 0.86


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("{}", "not a validation"),
        ('{"schema": "flextrace.validation/1"}', "damaged"),
        ('{"schema": "flextrace.validation/1", "points": [5]}', "damaged"),
        ('{"schema": "flextrace.validation/1", "points": [{"workload": {}}]}', "damaged .*no uniqueBytes"),
    ],
)
def test_bad_documents_are_refused(tmp_path, text, message):
    (tmp_path / "v.json").write_text(text)
    with pytest.raises(FlextraceError, match=message):
        load(tmp_path / "v.json")
    with pytest.raises(FlextraceError, match="cannot read"):
        load(tmp_path / "missing.json")
