# SPDX-License-Identifier: Apache-2.0
"""The formula of service times: which resource takes what of a request."""

import numpy as np
import pytest

from characterize.workload import Workload
from selfscale.models.measured import columns
from selfscale.models.service_time import CONSTANTS, demand_at, log_throughput

pytestmark = pytest.mark.parallel

MIB = float(1 << 20)
BORDER_BYTES = 128 * MIB
COLD = Workload(1024 * MIB, 0.0, 0.5, 4096.0, 1.0)
SCAN = Workload(1024 * MIB, 1.0, 1.0, 131072.0, 1.0)
CACHED_READS = Workload(16 * MIB, 0.0, 1.0, 4096.0, 4.0)


def constants(**values):
    return np.log(list({**{name: guess.value for name, guess in CONSTANTS.items()}, **values}.values()))


def demand(workload, **values):
    return demand_at(constants(**values), columns([workload]), BORDER_BYTES)


def throughput(workload, **values):
    at = constants(**values)
    table = columns([workload])
    return float(np.exp(log_throughput(at, table, demand_at(at, table, BORDER_BYTES)))[0])


@pytest.mark.parametrize("processes", [1.0, 4.0])
def test_processes_stand_still_while_their_reads_wait_behind_the_flusher(processes):
    """However many they are: each waits at its next miss. A queue of its own for reads lets them pass."""
    workload, own = COLD.replace(process_num=processes), {"device_servers": 2.0, "direction_servers": 2.0}
    one_queue, two_queues = (demand(workload, behind_frac=frac, **own) for frac in (1.0, 1e-6))
    flushing_s = float(one_queue.seconds["writes"][0])
    stood_s = float(one_queue.seconds["process"][0] - two_queues.seconds["process"][0])
    assert stood_s == pytest.approx(flushing_s, rel=0.05)


def test_the_flusher_holds_up_nobody_whose_reads_are_cached():
    written = COLD.replace(unique_bytes=64 * MIB)
    one_queue, two_queues = (demand(written, behind_frac=frac, read_cache=1.5) for frac in (1.0, 1e-6))
    assert float(one_queue.write_frac[0]) > 0.2
    assert one_queue.seconds["process"] == pytest.approx(two_queues.seconds["process"], rel=0.05)


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("worker_read_s", ["read_frac"]),
        ("worker_write_s", ["write_frac"]),
        ("worker_page_s", ["read_frac", "write_frac"]),
    ],
)
def test_kernel_threads_take_processors_and_not_the_process_that_they_serve(name, ways):
    idle, busy = demand(COLD, **{name: 1e-9}), demand(COLD, **{name: 1e-5})
    assert busy.seconds["process"] == pytest.approx(idle.seconds["process"])
    # Most reads miss and most writes are written back: one access and one page each.
    moved = sum(float(getattr(busy, way)[0]) for way in ways)
    more_s = float(busy.seconds["processors"][0] - idle.seconds["processors"][0])
    assert more_s == pytest.approx(1e-5 * moved / CONSTANTS["cpu_servers"].value, rel=0.35)


def test_kernel_threads_slow_many_processes_and_not_one():
    fast = {"access_read_s": 2e-5, "access_write_s": 2e-6, "sharpness": 20.0, "device_servers": 100.0}
    fast["direction_servers"] = 100.0
    alone, many = (
        throughput(workload, **fast, worker_read_s=2e-5, worker_write_s=2e-5)
        / throughput(workload, **fast, worker_read_s=1e-9, worker_write_s=1e-9)
        for workload in (COLD, COLD.replace(process_num=16.0))
    )
    assert alone > 0.95
    assert many < 0.5


def test_kernel_threads_do_nothing_for_what_is_cached():
    slow = throughput(CACHED_READS, worker_read_s=1e-5, worker_write_s=1e-5, worker_page_s=1e-5)
    assert slow == pytest.approx(throughput(CACHED_READS), rel=0.02)


def test_pages_that_are_read_ahead_take_less_of_a_processor():
    """As large folios do. All of a scan is read ahead, and nothing of single pages at random."""
    for workload, ahead in ((SCAN, 1.0), (COLD.replace(read_frac=1.0), 0.0)):
        dear, cheap = (demand(workload, ahead_page_frac=frac) for frac in (1.0, 0.25))
        read_pages = float(dear.read_frac[0]) * workload.size_mean / 4096
        less_s = float(dear.seconds["processors"][0] - cheap.seconds["processors"][0])
        page_s = CONSTANTS["miss_page_s"].value / CONSTANTS["cpu_servers"].value
        assert less_s == pytest.approx(0.75 * ahead * read_pages * page_s, rel=0.02, abs=1e-9)
