# SPDX-License-Identifier: Apache-2.0
"""The weighted mean of two models, and that it is taken in their place."""

import numpy as np
import pytest

from characterize.errors import FlextraceError
from selfscale.models import make_model
from selfscale.models.learned import LearnedModel
from selfscale.models.traffic import TrafficModel
from selfscale.predicting.cross_validation import Score, best_of
from tests.formulas.traffic_machine import ENVIRONMENT, REGIONS, machine, points, workloads

pytestmark = pytest.mark.parallel

MEAN_OF_TWO = [Score("learned", mean_log=0.14), Score("traffic", mean_log=0.19)]


@pytest.fixture(scope="module")
def learned_from():
    return points(machine(), workloads(60, 1))


@pytest.fixture(scope="module")
def fitted(learned_from):
    return [
        model.fit(learned_from, REGIONS)
        for model in (make_model("combined", ENVIRONMENT), LearnedModel(), TrafficModel(ENVIRONMENT))
    ]


def test_it_lies_between_its_parts_nearer_to_the_one_that_errs_less(fitted):
    combined, learned, traffic = (
        np.log(model.predict(workloads(40, 2))["throughput_bytes_per_s"].to_numpy()) for model in fitted
    )
    errors = fitted[1].left_out_error, fitted[2].left_out_error
    # The points are those of a machine that the one's formula is true of.
    assert errors[1] < errors[0]
    weight = errors[0] ** 2 / (errors[0] ** 2 + errors[1] ** 2)
    assert combined == pytest.approx((1 - weight) * learned + weight * traffic)


def test_its_interval_is_a_mean_of_theirs(fitted):
    widths = []
    for model in fitted:
        table = model.predict(workloads(40, 2))
        assert (table["interval_low"] < table["throughput_bytes_per_s"]).all()
        widths.append(np.log(table["interval_high"] / table["interval_low"]))
    assert (widths[0] >= np.minimum(widths[1], widths[2])).all()
    assert (widths[0] <= np.maximum(widths[1], widths[2])).all()


def test_again_it_starts_from_what_it_found(fitted, learned_from):
    before = fitted[0].predict(workloads(20, 3))["throughput_bytes_per_s"].to_numpy()
    after = fitted[0].again().fit(learned_from, REGIONS).predict(workloads(20, 3))["throughput_bytes_per_s"]
    assert np.median(np.abs(np.log(after.to_numpy() / before))) < 0.02


def test_what_one_part_lacks_it_lacks(learned_from):
    with pytest.raises(FlextraceError, match="dirty_limit_bytes"):
        make_model("combined", ENVIRONMENT | {"dirty_limit_bytes": None}).fit(learned_from, REGIONS)


def test_the_mean_of_two_models_is_taken_in_their_place():
    """Which of the two is better is chance with some tens of tested points: it was wrong on a lab machine."""
    assert best_of([*MEAN_OF_TWO, Score("combined", mean_log=0.15)]).model == "combined"


def test_a_model_that_is_no_part_of_the_mean_may_be_better():
    scores = [*MEAN_OF_TWO, Score("combined", mean_log=0.15), Score("product", mean_log=0.1)]
    assert best_of(scores).model == "product"


def test_where_there_is_no_mean_the_better_part_is_taken():
    assert best_of([*MEAN_OF_TWO, Score("combined", reason="nothing to simulate")]).model == "learned"
