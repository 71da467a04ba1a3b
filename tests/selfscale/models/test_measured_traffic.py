# SPDX-License-Identifier: Apache-2.0
"""Short runs, in which storage did less than it does in the end, tell what its requests take all the same."""

import dataclasses

import numpy as np
import pytest

from selfscale.measure import Point
from selfscale.models.machine_time import bottleneck
from selfscale.models.measured import columns, measured
from selfscale.models.measured_traffic import traffic_of_runs
from selfscale.models.traffic import TrafficModel
from selfscale.models.traffic_time import SHARPNESS, seconds_of, simulated
from tests.formulas.traffic_machine import ENVIRONMENT, LIMITS, REGIONS, machine, workloads

pytestmark = pytest.mark.parallel


def runs(chosen, shares):
    """Points whose storage wrote a share of what it does in the steady state, and which took as long as that takes."""
    table = columns(chosen)
    steady = simulated(table, LIMITS)
    traffic = steady._replace(writes=steady.writes * shares, written_frac=steady.written_frac * shares)
    constants = machine().constants
    throughput = np.exp(bottleneck(seconds_of(constants, table, traffic), table, constants[SHARPNESS]))
    read, write = table.read_frac, 1 - table.read_frac
    whole = np.maximum(table.size_mean, 4096) / table.size_mean
    filled = write * traffic.filled
    reads = read * (traffic.reads + traffic.reads_ahead) + filled
    read_bytes = read * (traffic.read_frac + traffic.ahead_frac) * whole + filled * 4096 / table.size_mean
    written = write * traffic.written_frac * whole
    return [
        Point(
            workload,
            float(throughput[at]),
            0.04 * float(throughput[at]),
            role="inform",
            device_frac=float(read_bytes[at] + written[at]),
            device_write_frac=float(written[at]),
            device_reads=float(reads[at]),
            device_writes=float(write[at] * traffic.writes[at]),
        )
        for at, workload in enumerate(chosen)
    ]


def uncounted(points):
    return [
        dataclasses.replace(point, device_frac=None, device_write_frac=None, device_reads=None, device_writes=None)
        for point in points
    ]


@pytest.fixture(scope="module")
def short():
    """Two of five runs ended before the flusher had done half of its work."""
    return runs(workloads(80, 1), np.where(np.arange(80) % 5 < 2, 0.4, 1.0))


def test_the_steady_state_is_predicted_from_runs_that_were_not(short):
    targets = workloads(60, 2)
    truth = machine().at(columns(targets)).log_throughput

    def off(points):
        predicted = TrafficModel(ENVIRONMENT).fit(points, REGIONS).predict(targets)["throughput_bytes_per_s"]
        return np.log(predicted.to_numpy()) - truth

    counted, not_counted = off(short), off(uncounted(short))
    assert np.abs(counted).mean() < 0.6 * np.abs(not_counted).mean()
    assert abs(np.median(counted)) < 0.02


def test_what_was_counted_is_what_the_runs_had(short):
    data = measured(short)
    steady = simulated(data.columns, LIMITS)
    traffic = traffic_of_runs(steady, data)
    busy = steady.writes * (1 - data.columns.read_frac) > 0.5
    assert busy.sum() > 10
    shares = np.where(np.arange(80) % 5 < 2, 0.4, 1.0)
    assert traffic.writes[busy] == pytest.approx((steady.writes * shares)[busy], rel=0.1)
    assert traffic.written_frac[busy] == pytest.approx((steady.written_frac * shares)[busy], rel=0.1)
    assert traffic.reads == pytest.approx(steady.reads, rel=0.01, abs=1e-6)


@pytest.mark.parametrize("what", ["more requests than are simulated", "nothing counted", "few points"])
def test_where_counts_say_nothing_what_is_simulated_stands(what, short):
    points = runs(workloads(40, 1), np.ones(40))
    if what == "nothing counted":
        points = uncounted(short)
    elif what == "few points":
        points = short[:5]
    else:
        points = [dataclasses.replace(point, device_writes=1.7 * (point.device_writes or 0)) for point in points]
    data = measured(points)
    steady = simulated(data.columns, LIMITS)
    traffic = traffic_of_runs(steady, data)
    assert traffic.writes.tolist() == steady.writes.tolist()
    assert traffic.waiting.tolist() == steady.waiting.tolist()
