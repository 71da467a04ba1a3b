# SPDX-License-Identifier: Apache-2.0
"""What storage does for a workload as simulated, where it can be told by other means."""

import math

import pytest

from characterize.workload import Workload
from selfscale.simulation import reading
from selfscale.simulation.flusher import write_back
from selfscale.simulation.page_cache import dirty
from selfscale.simulation.read_ahead_rules import ReadAheadRules
from selfscale.simulation.traffic import PAGE_BYTES, read, traffic_of
from selfscale.simulation.traffic_state import COMMAND_PAGES, LEAVING, QUEUED, Limits, Walk, state_of

pytestmark = pytest.mark.parallel

MIB = 1 << 20
CACHE = 64 * MIB
RULES = ReadAheadRules(32, 320, large_folios=True)
LIMITS = {"cache_bytes": CACHE, "dirty_limit_bytes": 0.2 * CACHE, "read_ahead": RULES}
READS = Workload(256 * MIB, 0.0, 1.0, 4096.0, 1.0)
TWO_FILES = Walk(files=2, file_pages=100, trials=0, more_frac=0.0, stay_frac=0.0, seq_frac=0.0, read_frac=0.0)
FLUSHING = Limits(cache=1000, background=10, held=1000, chunk=1000, queue=1000, read_ahead=RULES)


def dirtied(state, *pages):
    for page in pages:
        dirty(state, page)
    return state


def test_nothing_is_read_of_what_is_cached_and_nothing_written_of_what_may_stay_dirty():
    for times in (0.05, 0.099):
        traffic = traffic_of(Workload(times * CACHE, 0.3, 0.5, 16384.0, 2.0), **LIMITS)
        assert traffic == (0,) * len(traffic)


def test_behind_the_background_limit_is_written_back():
    assert traffic_of(Workload(0.12 * CACHE, 0.3, 0.5, 16384.0, 2.0), **LIMITS).written_frac > 0.05


@pytest.mark.parametrize("times", [1.5, 3.0])
def test_pages_that_are_read_one_by_one_miss_where_they_do_not_fit(times):
    """Without a window nothing is read ahead: any policy of replacement keeps the share that fits."""
    workload = READS.replace(unique_bytes=times * CACHE)
    traffic = traffic_of(workload, **LIMITS | {"read_ahead": RULES._replace(window_pages=1)})
    assert traffic.read_frac == pytest.approx(1 - 1 / times, rel=0.06)
    assert traffic.waiting == traffic.reads == pytest.approx(traffic.read_frac)
    assert traffic.ahead_frac < 0.02


@pytest.mark.parametrize("changes", [{"unique_bytes": 2.0**50}, {"process_num": 1e9}, {"process_num": 0.5}])
def test_workloads_of_any_size_are_simulated_by_smaller_ones(changes):
    traffic = traffic_of(READS.replace(**changes), **LIMITS)
    assert traffic.read_frac > 0.7
    assert traffic.read_frac > 0.98 or "unique_bytes" not in changes


@pytest.mark.parametrize("process_num", [1.0, 1e9])
def test_requests_of_any_size_are_simulated_by_smaller_ones(process_num):
    traffic = traffic_of(READS.replace(size_mean=2.0**50, process_num=process_num), **LIMITS)
    assert traffic.read_frac + traffic.ahead_frac > 0.7


@pytest.mark.parametrize("request_pages", [4, 16])
@pytest.mark.parametrize("times", [1.33, 2.0, 4.0])
def test_a_request_meets_more_gaps_than_a_page(times, request_pages):
    """Of least recently used pages a run of R pages was used at one time: of those behind a missing one 1 - m^(1/R) are
    not, too."""
    miss = 1 - 1 / times
    workload = READS.replace(unique_bytes=times * CACHE, size_mean=4096.0 * request_pages)
    # A window of one page: random reads are read as they are.
    traffic = traffic_of(workload, **LIMITS | {"read_ahead": RULES._replace(window_pages=1)})
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
    rules = [RULES._replace(window_pages=window) for window in (1, 32, 256)]
    vain = [traffic_of(READS.replace(unique_bytes=1.33 * CACHE), **LIMITS | {"read_ahead": each}) for each in rules]
    moved = [traffic.read_frac + traffic.ahead_frac for traffic in vain]
    assert moved[0] * 1.5 < moved[1] < moved[2]


@pytest.mark.parametrize("read_frac", [0.0, 0.5])
def test_a_write_that_meets_a_dirty_page_costs_nothing(read_frac):
    """One file: a chunk is written whenever more than the background limit is dirty, so that this is the most and that
    less the least. Of random writes n dirty U (1 - exp(-n / U)) pages."""
    traffic = traffic_of(Workload(0.5 * CACHE, 0.0, read_frac, 4096.0, 1.0), **LIMITS)
    pages, most, chunk = 0.5 * CACHE / PAGE_BYTES, 0.1 * CACHE / PAGE_BYTES, 1024
    writes = pages * math.log((pages - (most - chunk)) / (pages - most))
    assert traffic.written_frac == pytest.approx(chunk / writes, rel=0.04)
    assert traffic.read_frac == 0


def test_what_is_dirty_is_written_before_it_leaves_the_cache():
    """Where more may be dirty than is cached, as in a memory group of version 1."""
    workload = Workload(3 * CACHE, 0.0, 0.0, 4096.0, 1.0)
    traffic = traffic_of(workload, **LIMITS | {"dirty_limit_bytes": 4 * CACHE})
    assert traffic.written_frac == traffic.writes == pytest.approx(2 / 3, rel=0.05)


def test_the_flusher_merges_what_became_dirty_since_it_came_by():
    """Just behind what may stay dirty nearly all of the file is when it comes; far behind it, single pages."""
    near, far = (traffic_of(Workload(times * CACHE, 0.0, 0.0, 4096.0, 1.0), **LIMITS) for times in (0.12, 3.0))
    assert near.written_frac / near.writes > 4
    assert 1 <= far.written_frac / far.writes < 1.1


def test_of_several_files_the_flusher_finds_no_more_than_is_dirty_in_the_mean():
    """All of them are written at once: a page's neighbour is dirty as often as any page. Of one long file a part is
    written, the one that was left alone the longest."""
    one, two = (traffic_of(Workload(0.3 * CACHE, 0.0, 0.0, 4096.0, count), **LIMITS) for count in (1.0, 2.0))
    assert two.written_frac / two.writes == pytest.approx(1 / (1 - 0.1 / 0.3), rel=0.12)
    assert one.written_frac / one.writes > 1.15 * two.written_frac / two.writes


def test_the_flusher_goes_through_all_files_in_runs():
    state = dirtied(state_of(TWO_FILES, FLUSHING), *range(5, 12), 50, 51, 170, 199)
    assert write_back(state) == (4, 11)
    assert not state.pages.dirty.any()
    assert state.flusher[QUEUED] == 4
    assert state.flusher[LEAVING] == 11


def test_the_flusher_passes_over_pages_on_their_way_to_storage():
    state = dirtied(state_of(TWO_FILES, FLUSHING), *range(11))
    assert write_back(state) == (1, 11)
    dirtied(state, 3, *range(20, 30))
    assert write_back(state) == (1, 10)
    assert state.pages.dirty.nonzero()[0].tolist() == [3]


def test_the_flusher_goes_on_where_it_was_after_a_chunk_of_a_file():
    state = dirtied(state_of(TWO_FILES, FLUSHING._replace(chunk=4)), *range(0, 22, 2))
    assert write_back(state) == (4, 4)
    assert state.pages.dirty.nonzero()[0].tolist() == list(range(8, 22, 2))
    dirtied(state, *range(100, 108))
    # Of the second file it writes a chunk as well.
    assert write_back(state) == (5, 12)


def test_a_writer_waits_for_storage_where_too_much_is_dirty_or_on_its_way():
    state = dirtied(state_of(TWO_FILES, FLUSHING._replace(held=15)), *range(0, 22, 2))
    write_back(state)
    dirtied(state, *range(101, 111))
    write_back(state)
    assert state.flusher[LEAVING] == 5


def test_storage_that_takes_one_request_at_a_time_holds_the_flusher_up():
    state = dirtied(state_of(TWO_FILES, FLUSHING._replace(queue=1)), *range(0, 22, 2))
    assert write_back(state) == (1, 1)


@pytest.mark.parametrize("queue", [512, 128, 16])
@pytest.mark.parametrize("times", [0.11, 0.13, 0.145])
def test_storage_that_no_writer_waits_for_holds_nothing_up(times, queue):
    """Of random writes as many become dirty as find their page clean, and all of these have to be written."""
    workload = Workload(times * CACHE, 0.0, 0.4, 4096.0, 4.0)
    traffic = traffic_of(workload, queue=queue, **LIMITS)
    assert traffic == traffic_of(workload, **LIMITS)
    assert traffic.written_frac > 1 - 0.1 / times


def test_sequential_requests_of_less_than_a_page_share_it():
    workload = Workload(4 * CACHE, 1.0, 0.0, 1024.0, 1.0)
    assert traffic_of(workload, **LIMITS).written_frac == pytest.approx(0.25, rel=0.1)


def test_what_is_written_in_part_is_read_before_if_it_is_not_cached():
    whole, part = (traffic_of(Workload(4 * CACHE, 0.0, 0.0, size, 1.0), **LIMITS) for size in (4096.0, 512.0))
    assert whole.filled == 0
    assert part.filled == pytest.approx(3 / 4, rel=0.05)


def test_a_mark_is_on_the_folio_that_it_lies_in():
    """ra_alloc_folio: any page of it has the next window read. Where one of them is cached there are single pages."""
    limits = Limits(cache=1000, background=1000, held=1000, chunk=1, queue=1, read_ahead=RULES)
    for other, marked in ((99, [32, 33, 34, 35]), (34, [32])):
        state = state_of(TWO_FILES, limits)
        readers, cached = state.readers, state.pages.cached
        readers.start[0], readers.size[0], readers.ahead[0] = 16, 16, 8
        readers.marked[24] = True
        cached[other] = True
        assert reading.met_mark(readers, cached, 0, 24, 25) == (32, 64)
        assert readers.marked.nonzero()[0].tolist() == marked


def test_reads_within_a_marked_folio_are_followed_by_the_next_window():
    limits = Limits(cache=1000, background=1000, held=1000, chunk=1, queue=1, read_ahead=RULES)
    state = state_of(TWO_FILES._replace(file_pages=200), limits)
    for first in (0, 1, 2, 4):
        read(state, 0, first, first + 1)
    # 4 pages; 8 by the mark at 1, in folios of 4; by the one at 4 it would be 16, and ends where folios of 16 do.
    assert state.pages.cached[:16].all()
    assert not state.pages.cached[16:200].any()
    read(state, 0, 13, 14)
    # The mark is on the folio of 12 to 15.
    assert state.pages.cached[:24].all()


def test_long_writes_go_in_commands_of_their_own():
    size = 4096.0 * 4 * COMMAND_PAGES
    traffic = traffic_of(Workload(16 * CACHE, 0.0, 0.0, size, 1.0), **LIMITS)
    assert 4 <= traffic.writes < 6
    assert traffic.written_frac == pytest.approx(1, rel=0.05)


def test_a_small_cache_stands_for_a_large_one():
    workload = Workload(4 * CACHE, 0.4, 0.6, 8192.0, 2.0)
    small = traffic_of(workload, **LIMITS)
    larger = {
        name: 16 * size if name in ("cache_bytes", "dirty_limit_bytes") else size for name, size in LIMITS.items()
    }
    large = traffic_of(workload.replace(unique_bytes=64.0 * CACHE), **larger)
    for one, other in zip(small, large, strict=True):
        assert math.isclose(one, other, rel_tol=0.1, abs_tol=0.01)


def test_equal_seeds_give_equal_traffic():
    assert traffic_of(READS, **LIMITS, seed=3) == traffic_of(READS, **LIMITS, seed=3)
    assert traffic_of(READS, **LIMITS, seed=3) != traffic_of(READS, **LIMITS, seed=4)
