# SPDX-License-Identifier: Apache-2.0
"""What storage does for a workload as simulated, where it can be told by other means."""

import math

import pytest

from characterize.workload import Workload
from selfscale.simulation.traffic import COMMAND_PAGES, PAGE_BYTES, traffic_of

MIB = 1 << 20
CACHE = 64 * MIB
LIMITS = {"cache_bytes": CACHE, "window_bytes": 128 * 1024, "dirty_bytes": 0.1 * CACHE}
READS = Workload(256 * MIB, 0.0, 1.0, 4096.0, 1.0)


def test_nothing_is_read_of_what_is_cached_and_nothing_written_of_what_may_stay_dirty():
    traffic = traffic_of(Workload(0.09 * CACHE, 0.3, 0.5, 16384.0, 2.0), **LIMITS)
    assert traffic == (0,) * len(traffic)


def test_nothing_is_written_back_up_to_the_background_limit():
    workload = Workload(0.12 * CACHE, 0.3, 0.5, 16384.0, 2.0)
    assert traffic_of(workload, **LIMITS).written_frac > 0.05
    assert traffic_of(workload, **LIMITS, background_bytes=0.13 * CACHE).written_frac == 0


@pytest.mark.parametrize("times", [1.5, 3.0])
def test_pages_that_are_read_one_by_one_miss_where_they_do_not_fit(times):
    """Without a window nothing is read ahead: any policy of replacement keeps the share that fits."""
    workload = READS.replace(unique_bytes=times * CACHE)
    traffic = traffic_of(workload, **LIMITS | {"window_bytes": PAGE_BYTES})
    assert traffic.read_frac == pytest.approx(1 - 1 / times, rel=0.06)
    assert traffic.waiting == traffic.reads == pytest.approx(traffic.read_frac)
    assert traffic.ahead_frac < 0.02


@pytest.mark.parametrize("request_pages", [4, 16])
@pytest.mark.parametrize("times", [1.33, 2.0, 4.0])
def test_a_request_meets_more_gaps_than_a_page(times, request_pages):
    """Of least recently used pages a run of R pages was used at one time: of those behind a missing one 1 - m^(1/R) are
    not, too."""
    miss = 1 - 1 / times
    workload = READS.replace(unique_bytes=times * CACHE, size_mean=4096.0 * request_pages)
    # A window of one page: random reads are read as they are.
    traffic = traffic_of(workload, **LIMITS | {"window_bytes": PAGE_BYTES})
    gaps = miss + (request_pages - 1) * miss * (1 - miss ** (1 / request_pages))
    assert traffic.reads + traffic.reads_ahead == pytest.approx(gaps, rel=0.12)


def test_a_scan_is_read_in_windows_once():
    """128 KiB each, all but the first without waiting."""
    traffic = traffic_of(READS.replace(seq_frac=1.0), **LIMITS)
    assert traffic.read_frac + traffic.ahead_frac == pytest.approx(1, rel=0.01)
    assert traffic.reads_ahead == pytest.approx(1 / 32, rel=0.05)
    assert traffic.waiting < 0.002


def test_random_reads_behind_cached_pages_are_read_ahead_in_vain():
    """page_cache_sync_ra: the more the larger the window, and for single pages, too."""
    vain = [
        traffic_of(READS.replace(unique_bytes=1.33 * CACHE), **LIMITS | {"window_bytes": window})
        for window in (PAGE_BYTES, 128 * 1024, 1 << 20)
    ]
    moved = [traffic.read_frac + traffic.ahead_frac for traffic in vain]
    assert moved[0] * 1.5 < moved[1] < moved[2]


@pytest.mark.parametrize("read_frac", [0.0, 0.5])
def test_a_write_that_meets_a_dirty_page_costs_nothing(read_frac):
    workload = Workload(0.5 * CACHE, 0.0, read_frac, 4096.0, 1.0)
    traffic = traffic_of(workload, **LIMITS)
    assert traffic.written_frac == pytest.approx(1 - 0.1 / 0.5, rel=0.03)
    assert traffic.read_frac == 0


def test_what_is_dirty_is_written_before_it_leaves_the_cache():
    """Where more may be dirty than is cached, as in a memory group of version 1."""
    workload = Workload(3 * CACHE, 0.0, 0.0, 4096.0, 1.0)
    traffic = traffic_of(workload, **LIMITS | {"dirty_bytes": 2 * CACHE})
    assert traffic.written_frac == traffic.writes == pytest.approx(2 / 3, rel=0.05)


def test_the_flusher_merges_what_became_dirty_since_it_came_by():
    """Just behind what may stay dirty nearly all of the file is when it comes; far behind it, single pages."""
    near, far = (traffic_of(Workload(times * CACHE, 0.0, 0.0, 4096.0, 1.0), **LIMITS) for times in (0.12, 3.0))
    assert near.written_frac / near.writes > 4
    assert 1 <= far.written_frac / far.writes < 1.1


def test_long_writes_go_in_commands_of_their_own():
    size = 4096.0 * 4 * COMMAND_PAGES
    traffic = traffic_of(Workload(16 * CACHE, 0.0, 0.0, size, 1.0), **LIMITS)
    assert 4 <= traffic.writes < 6
    assert traffic.written_frac == pytest.approx(1, rel=0.05)


def test_a_small_cache_stands_for_a_large_one():
    workload = Workload(4 * CACHE, 0.4, 0.6, 8192.0, 2.0)
    small = traffic_of(workload, **LIMITS)
    larger = {name: 16 * size if name != "window_bytes" else size for name, size in LIMITS.items()}
    large = traffic_of(workload.replace(unique_bytes=64.0 * CACHE), **larger)
    for one, other in zip(small, large, strict=True):
        assert math.isclose(one, other, rel_tol=0.1, abs_tol=0.01)


def test_equal_seeds_give_equal_traffic():
    assert traffic_of(READS, **LIMITS, seed=3) == traffic_of(READS, **LIMITS, seed=3)
    assert traffic_of(READS, **LIMITS, seed=3) != traffic_of(READS, **LIMITS, seed=4)
