# SPDX-License-Identifier: Apache-2.0
"""How many threads of linear algebra a fit has, by what the libraries themselves say."""

import os

import pytest
from threadpoolctl import threadpool_info

from selfscale.models import make_model
from selfscale.models.one_thread import one_thread

pytestmark = pytest.mark.parallel


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: there is one thread anyway")
def test_a_fit_has_one_thread_and_the_caller_all_of_them_again():
    seen = one_thread(lambda number: (number, threads()))(7)
    assert seen == (7, {1})
    assert max(threads()) > 1


class FittingError(Exception):
    """Ends a fit as soon as it has begun."""


@pytest.mark.parametrize(
    ("model", "begins_with"), [("learned", "residual.measured"), ("smooth", "smooth.AdditiveModel")]
)
def test_models_with_a_gaussian_process_are_fitted_so(model, begins_with, monkeypatch):
    seen = []

    def begin(*_args, **_options):
        seen.append(threads())
        raise FittingError

    monkeypatch.setattr(f"selfscale.models.{begins_with}", begin)
    with pytest.raises(FittingError):
        make_model(model, {}).fit([], [])
    assert seen == [{1}]
