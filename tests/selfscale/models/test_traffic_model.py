# SPDX-License-Identifier: Apache-2.0
"""The model that simulates the page cache, on machines whose throughput is known."""

import dataclasses

import numpy as np
import pytest

from characterize.errors import FlextraceError
from characterize.workload import Workload
from selfscale.models import make_model
from selfscale.models.measured import columns
from selfscale.models.traffic import TrafficModel
from selfscale.models.traffic_time import CONSTANTS, seconds_of, simulated
from selfscale.profile import Profile
from tests.formulas.traffic_machine import CACHE, ENVIRONMENT, LIMITS, REGIONS, machine, points, workloads

pytestmark = pytest.mark.parallel


@pytest.fixture(scope="module")
def learned_from():
    return points(machine(), workloads(80, 1))


def test_a_machine_of_the_same_kind_is_found_from_its_points(learned_from):
    targets = workloads(60, 2)
    truth = np.exp(machine().at(columns(targets)).log_throughput)
    predicted = TrafficModel(ENVIRONMENT).fit(learned_from, REGIONS).predict(targets)["throughput_bytes_per_s"]
    errors = np.abs(predicted.to_numpy() / truth - 1)
    assert np.median(errors) < 0.05
    assert np.quantile(errors, 0.9) < 0.2


def test_its_interval_has_nine_tenths_of_what_was_not_measured(learned_from):
    targets = points(machine(), workloads(60, 3))
    table = TrafficModel(ENVIRONMENT).fit(learned_from, REGIONS).predict([point.workload for point in targets])
    throughput = np.array([point.throughput_bytes_per_s for point in targets])
    inside = (table["interval_low"] <= throughput) & (throughput <= table["interval_high"])
    assert inside.mean() > 0.8


def test_the_simulation_is_of_the_machine_and_not_of_the_points(learned_from):
    """Of another limit on dirty pages or another window the same points say something else."""
    model = TrafficModel(ENVIRONMENT | {"dirty_limit_bytes": CACHE}).fit(learned_from, REGIONS)
    assert model.formula.limits.dirty_limit_bytes == CACHE
    residual = model.formula.at(columns([point.workload for point in learned_from])).log_throughput - np.log(
        [point.throughput_bytes_per_s for point in learned_from]
    )
    right = TrafficModel(ENVIRONMENT).fit(learned_from, REGIONS)
    fitting = right.formula.at(columns([point.workload for point in learned_from])).log_throughput - np.log(
        [point.throughput_bytes_per_s for point in learned_from]
    )
    assert np.abs(residual).mean() > 2 * np.abs(fitting).mean()


@pytest.mark.parametrize("queue", [128, None])
def test_what_storage_wrote_tells_how_many_requests_it_takes_at_once(queue, learned_from):
    table = columns([point.workload for point in learned_from])
    traffic = simulated(table, dataclasses.replace(LIMITS, queue=queue))
    counted = [
        dataclasses.replace(point, device_write_frac=float(wrote), device_writes=float(requests))
        for point, wrote, requests in zip(
            learned_from,
            (1 - table.read_frac) * traffic.written_frac,
            (1 - table.read_frac) * traffic.writes,
            strict=True,
        )
    ]
    assert TrafficModel(ENVIRONMENT).fit(counted, REGIONS).formula.limits.queue == queue


@pytest.mark.parametrize(("seq_frac", "ahead"), [(1.0, 1.0), (0.0, 0.0)])
def test_pages_that_are_read_ahead_take_less_of_a_processor(seq_frac, ahead):
    """As large folios do: all of a scan, and next to nothing of long requests at random."""
    table = columns([Workload(64 * CACHE, seq_frac, 1.0, 131072.0, 1.0)])
    traffic = simulated(table, LIMITS)

    def processors_s(frac):
        values = {name: constant.value for name, constant in CONSTANTS.items()} | {"ahead_page_frac": frac}
        return float(seconds_of(np.log(list(values.values())), table, traffic)["processors"][0])

    page_s = CONSTANTS["miss_page_s"].value / CONSTANTS["cpu_servers"].value
    assert processors_s(1.0) - processors_s(0.25) == pytest.approx(
        0.75 * ahead * 32 * page_s, rel=0.02, abs=0.1 * page_s
    )


def test_without_counts_storage_takes_any_number_of_requests(learned_from):
    assert TrafficModel(ENVIRONMENT).fit(learned_from, REGIONS).formula.limits.queue is None


def test_a_model_made_again_keeps_the_machine_that_it_simulates(learned_from):
    model = TrafficModel(ENVIRONMENT).fit(learned_from, REGIONS)
    again = model.again().fit(learned_from[:-10], REGIONS)
    assert again.formula.limits == model.formula.limits
    targets = workloads(10, 5)
    assert again.predict(targets)["throughput_bytes_per_s"].to_numpy() == pytest.approx(
        model.predict(targets)["throughput_bytes_per_s"].to_numpy(), rel=0.3
    )


def test_a_profile_that_does_not_know_its_machine_says_what_is_missing(learned_from):
    with pytest.raises(FlextraceError, match="with dirty_limit_bytes, which the profile does not tell"):
        make_model("traffic", ENVIRONMENT | {"dirty_limit_bytes": None}).fit(learned_from, REGIONS)
    with pytest.raises(FlextraceError, match="cache_limit_bytes, dirty_limit_bytes"):
        make_model("traffic").fit(learned_from, REGIONS)


def test_where_the_kernel_tells_no_window_it_is_the_usual_one(learned_from):
    """As of an overlay, on which a container's files lie."""
    overlay = ENVIRONMENT | {"filesystem": "overlay", "read_ahead_bytes": None}
    assert TrafficModel(overlay).fit(learned_from, REGIONS).formula.limits.read_ahead == LIMITS.read_ahead


def test_only_what_went_through_the_page_cache_is_simulated():
    assert Profile(environment=ENVIRONMENT).cache_environment == ENVIRONMENT
    assert Profile(environment=ENVIRONMENT, settings={"access": {"mode": "direct"}}).cache_environment == {}
    assert Profile(environment=ENVIRONMENT, table={"parameters": ["x"]}).cache_environment == {}
