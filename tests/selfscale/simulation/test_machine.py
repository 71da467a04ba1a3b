# SPDX-License-Identifier: Apache-2.0
"""Operations on a simulated machine, beside sums made by hand and an LRU list in plain Python."""

import math
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfscale.simulation.operations import Kind
from selfscale.simulation.run import run
from tests.formulas.simulated_machine import ACCESS_NS, MACHINE, PAGE_NS, REQUESTS, operations, stored_on

pytestmark = pytest.mark.parallel


def test_what_is_cached_takes_the_recorded_time():
    rows = [(Kind.READ, page, 2) for page in (10, 500, 11, 12)]
    start, end, waited = run(operations(rows, cached=range(1000)), MACHINE)
    assert start.tolist() == [1000, 3000, 5000, 7000]
    assert end.tolist() == [2000, 4000, 6000, 8000]
    assert not waited.any()


@pytest.mark.parametrize("access_ns", [5_000.0, 300_000.0])
def test_who_waits_for_a_thread_goes_on_when_it_has_ended(access_ns):
    """Threads 0 and 1 wait for the two reads of thread 2; thread 1 is itself busy until after that, on fast storage."""
    rows = [(Kind.READ, 0, 1, 0), (Kind.READ, 1, 1, 1), (Kind.READ, 100, 1, 2), (Kind.READ, 300, 1, 2)]
    rows += [(Kind.READ, 0, 1, 0), (Kind.READ, 1, 1, 1), (Kind.READ, 2, 1, 1)]
    todo = operations(rows, cached=[0, 1, 2], after=(-1, -1, 0), waits_for={4: 3, 6: 3})
    todo.processor_ns[5] = 40_000.0
    times = dict.fromkeys(("read_ns", "paused_read_ns", "rested_read_ns"), access_ns)
    start, end, _ = run(todo, stored_on(**times, read_busy_ns=0.0))
    assert end[3] - end[0] == 2 * (access_ns + 2000)
    assert start[4] == end[3] + 1000
    assert start[6] == max(end[3], end[5]) + 1000
    assert (end[5] > end[3]) == (access_ns == 5_000.0)


def test_who_was_woken_goes_on_when_both_its_own_time_and_that_after_the_other_have_passed():
    """Thread 1 reads what is cached, and waits for thread 0, which waits for storage between two such reads."""
    rows = [(Kind.READ, 0, 1, 0), (Kind.READ, 1, 1, 1), (Kind.READ, 100, 1, 0), (Kind.READ, 1, 1, 1)]
    todo = operations(rows, cached=[0, 1], after=(-1, -1), waits_for={3: 2})
    todo.wait_gap_ns[3] = 7000.0
    times = dict.fromkeys(("read_ns", "paused_read_ns", "rested_read_ns"), 50_000.0)
    start, end, _ = run(todo, stored_on(**times, read_busy_ns=0.0))
    assert start[3] == end[2] + 7000
    todo.gap_ns[3] = 90_000.0
    start, end, _ = run(todo, stored_on(**times, read_busy_ns=0.0))
    assert end[2] + 7000 < start[3] == end[1] + 90_000


def test_no_request_is_faster_than_the_machine():
    slow = MACHINE._replace(requests=REQUESTS._replace(read_call_ns=5000.0, read_byte_ns=1.0))
    start, end, _ = run(operations([(Kind.READ, 0, 1)], cached=[0]), slow)
    assert end[0] - start[0] == 5000 + 4096


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=200), st.integers(1, 30))
def test_misses_are_those_of_an_lru_list(places, size):
    # Every hundredth page, so that nothing is read ahead.
    rows = [(Kind.READ, 1 + 100 * place, 1) for place in places]
    _, _, waited = run(operations(rows), MACHINE._replace(cache_pages=size))
    lru, missed = OrderedDict(), []
    for place in places:
        missed.append(place not in lru)
        lru[place] = True
        lru.move_to_end(place)
        if len(lru) > size:
            lru.popitem(last=False)
    assert (waited > 0).tolist() == missed
    assert waited[0] == ACCESS_NS


def test_a_scan_waits_for_storage_and_hides_behind_thinking():
    rows = [(Kind.READ, page, 1) for page in range(3200)]
    busy = 3200 * PAGE_NS
    _, end, _ = run(operations(rows, gap_ns=0.0, processor_ns=1.0), MACHINE)
    # An access per window of 32 pages, and next to nothing else.
    assert busy < end[-1] < busy + 3200 / 32 * ACCESS_NS + 20 * ACCESS_NS
    # With thinking longer than that, only what precedes the read-ahead is waited for.
    _, end, waited = run(operations(rows, gap_ns=20_000.0), MACHINE)
    assert waited.sum() < 5 * (ACCESS_NS + 32 * PAGE_NS)
    assert end[-1] == pytest.approx(3200 * 21_000.0 + waited.sum())


@pytest.mark.parametrize("request_pages", [8, 31, 32, 64])
def test_what_is_read_ahead_hides_behind_thinking(request_pages):
    """Also of requests as large as the largest window, which take all of the first one, and of twice that."""
    rows = [(Kind.READ, page, request_pages) for page in range(0, 6400 - request_pages, request_pages)]
    _, _, waited = run(operations(rows, gap_ns=20_000.0 * request_pages), MACHINE)
    assert waited[0] >= ACCESS_NS
    assert (waited[2:] > 0).mean() < 0.02


def test_random_reads_read_nothing_ahead():
    places = np.random.default_rng(3).permutation(2000)[:300] * 5 + 2
    _, end, waited = run(
        operations([(Kind.READ, page, 1) for page in places]),
        MACHINE._replace(read_ahead=MACHINE.read_ahead._replace(window_pages=512)),
    )
    assert (waited == ACCESS_NS).all()
    assert end[-1] == pytest.approx(300 * (ACCESS_NS + 2000))


def test_writers_wait_beyond_the_dirty_limit_only():
    rows = [(Kind.WRITE, page, 1) for page in range(1000)]
    _, end, waited = run(operations(rows, gap_ns=0.0, processor_ns=10.0), MACHINE)
    assert not waited[:200].any()
    # Storage begins at 150 pages and is never idle again.
    assert end[-1] == pytest.approx(1500 + 800 * PAGE_NS, rel=0.001)
    _, _, waited = run(operations(rows, gap_ns=PAGE_NS, processor_ns=10.0), MACHINE)
    assert not waited.any()


def test_what_was_written_back_and_dropped_is_read_again():
    others = [(Kind.READ, 100 + 7 * page, 1) for page in range(20)]
    rows = [(Kind.WRITE, 50, 1), *others, (Kind.READ, 50, 1)]
    _, _, waited = run(operations(rows, stored=0), MACHINE._replace(cache_pages=10))
    assert waited[-1] == ACCESS_NS
    assert not waited[:-1].any(), "holes are not on storage"
    _, _, waited = run(operations(rows, stored=0), MACHINE)
    assert not waited.any()


def test_a_thread_that_another_one_started_waits_for_it():
    rows = [(Kind.READ, 500, 1, 0), (Kind.READ, 0, 1, 1), (Kind.READ, 600, 1, 0)]
    start, end, _ = run(operations(rows, after=[-1, 0], cached=[0]), MACHINE)
    assert start[1] == end[0] + 1000
    start, end, _ = run(operations(rows, after=[-1, -1], cached=[0]), MACHINE)
    assert start[1] == 1000


def test_both_directions_share_storage():
    reads = [(Kind.READ, 1 + 7 * page, 1, 0) for page in range(300)]
    writes = [(Kind.WRITE, 5000 + page, 1, 1) for page in range(3000)]
    both = operations(reads + writes, after=[-1, -1], gap_ns=0.0)
    alone = stored_on(read_busy_ns=ACCESS_NS)
    reading, writing = 300 * ACCESS_NS, (3000 - MACHINE.dirty_pages) * PAGE_NS
    apart, shared = (run(both, alone._replace(shared_frac=share))[1] for share in (0.0, 1.0))
    assert apart.max() == pytest.approx(reading, rel=0.02)
    assert shared.max() == pytest.approx(reading + writing, rel=0.02)


def test_reads_wait_behind_what_is_written_back_at_once():
    """A read waits for a burst of 64 pages; one that comes later does not, and without a burst none does."""
    burst_ns = 500_000.0
    machine = MACHINE._replace(burst_pages=64, behind_page_ns=burst_ns / 64)
    for written, pause_ns, expected_ns in ((151, 0.0, burst_ns), (151, 600_000.0, 0.0), (150, 0.0, 0.0)):
        rows = [(Kind.WRITE, 5000 + page, 1) for page in range(written)] + [(Kind.READ, 7, 1)]
        todo = operations(rows, gap_ns=0.0)
        todo.gap_ns[-1] = pause_ns
        _, _, waited = run(todo, machine)
        assert waited[-1] == pytest.approx(ACCESS_NS + expected_ns, rel=0.01), written


@pytest.mark.parametrize(("written", "expected_ns"), [(150, 300.0), (151, 450.0)])
def test_to_bring_pages_in_takes_longer_beside_a_burst(written, expected_ns):
    """Three pages; the 151st dirty one has the flusher begin."""
    machine = MACHINE._replace(burst_pages=64, miss_page_ns=100.0, beside_burst=1.5)
    rows = [(Kind.WRITE, 5000 + page, 1) for page in range(written)] + [(Kind.READ, 7, 3)]
    start, end, waited = run(operations(rows, gap_ns=0.0, processor_ns=0.0), machine)
    assert waited[-1] == pytest.approx(ACCESS_NS + 2 * PAGE_NS)
    assert end[-1] - start[-1] - waited[-1] == pytest.approx(expected_ns)


def test_a_limit_on_accesses_holds_up_many_and_not_one():
    limited = stored_on(read_ns=30_000.0, paused_read_ns=30_000.0, rested_read_ns=30_000.0, read_busy_ns=250_000.0)
    rows = [(Kind.READ, 1 + 7 * page, 1) for page in range(100)]
    _, end, _ = run(operations(rows, gap_ns=0.0), limited)
    assert end[-1] == pytest.approx(99 * 250_000 + 30_000 + 1000)
    _, _, waited = run(operations(rows, gap_ns=300_000.0), limited)
    assert (waited == 30_000).all()
    # Let through for a while, then all held up: the rate is the same.
    _, end, waited = run(operations(rows, gap_ns=0.0), stored_on(limited, held_up_ns=5e6))
    assert np.median(waited) == 30_000
    assert waited.max() == pytest.approx(5e6, rel=0.1)
    assert end[-1] == pytest.approx(99 * 250_000, rel=0.25)


def test_a_read_after_a_pause_takes_longer():
    """As measured after pauses of 20 us, 200 us and 10 ms; between two of them by the pause's order of magnitude."""
    rows = [(Kind.READ, 1 + 7 * page, 1) for page in range(10)]
    machine = stored_on(paused_read_ns=200_000.0, rested_read_ns=250_000.0)
    middle_us, long_us = math.sqrt(20 * 200), math.sqrt(200 * 10_000)
    expected = ((0, ACCESS_NS), (18, ACCESS_NS), (middle_us, 150_000), (200, 200_000), (long_us, 225_000))
    for gap_us, wait_ns in (*expected, (10_000, 250_000), (50_000, 250_000)):
        _, _, waited = run(operations(rows, gap_ns=1e3 * gap_us), machine)
        assert waited[1:] == pytest.approx(wait_ns, rel=0.01), gap_us


def test_a_pause_begins_when_the_last_page_of_a_read_is_there():
    """Of 200 pages those beyond 33 take as long as in a scan; thread 1's read begins later, and ends before."""
    machine = stored_on(paused_read_ns=200_000.0, rested_read_ns=250_000.0, read_page_ns=1.0, held_up_ns=1e9)
    rows = [(Kind.READ, 0, 200, 0), (Kind.READ, 5000, 1, 1), (Kind.READ, 6000, 1, 0)]
    todo = operations(rows, after=(-1, -1), gap_ns=10_000.0)
    todo.gap_ns[1] = 50_000.0
    for one in (todo, operations([*rows[:1], rows[-1]], gap_ns=10_000.0)):
        _, _, waited = run(one, machine)
        assert waited[-1] == ACCESS_NS


@pytest.mark.parametrize(("request_pages", "pages"), [(320, 4), (3, 3), (2, 2), (1, 2)])
def test_the_pages_of_a_request_are_there_when_all_of_it_is(request_pages, pages):
    """Two pages are wanted, and four read: a first window is twice the request."""
    machine = MACHINE._replace(read_ahead=MACHINE.read_ahead._replace(request_pages=request_pages))
    _, _, waited = run(operations([(Kind.READ, 0, 2)]), machine)
    assert waited.tolist() == [ACCESS_NS + (pages - 1) * PAGE_NS]


def test_the_pages_of_a_read_after_a_pause_take_longer():
    """As in a scan up to 20 us after storage was used last, as after a pause from 200 us on."""
    rows = [(Kind.READ, 0, 1), (Kind.READ, 500, 5)]
    machine = stored_on(read_page_busy_ns=PAGE_NS / 4)
    for gap_us, page_ns in ((10, PAGE_NS / 4), (math.sqrt(20 * 200), PAGE_NS * 5 / 8), (300, PAGE_NS)):
        _, _, waited = run(operations(rows, gap_ns=1e3 * gap_us), machine)
        assert waited[1] == pytest.approx(ACCESS_NS + 4 * page_ns, rel=1e-3), gap_us


def test_new_pages_take_the_writer_no_less_than_the_benchmark():
    machine = MACHINE._replace(requests=REQUESTS._replace(append_call_ns=500.0, append_page_ns=1000.0))
    rows = [(Kind.WRITE, 0, 8), (Kind.WRITE, 0, 8), (Kind.WRITE, 6, 4), (Kind.WRITE, 100, 1)]
    start, end, _ = run(operations(rows, stored=0, processor_ns=2000.0), machine)
    assert (end - start).tolist() == [8500, 2000, 2500, 2000], (
        "eight pages, none, two, and one that is below as recorded"
    )
    start, end, _ = run(operations(rows, processor_ns=2000.0), machine)
    assert (end - start == 2000).all(), "storage has them"


def test_what_was_a_hole_when_it_was_read_is_new_when_it_is_written():
    machine = MACHINE._replace(requests=REQUESTS._replace(append_call_ns=500.0, append_page_ns=1000.0))
    rows = [(Kind.READ, 0, 4), (Kind.WRITE, 0, 2), (Kind.WRITE, 0, 2), (Kind.WRITE, 8, 2)]
    start, end, waited = run(operations(rows, stored=0, cached=[8, 9], processor_ns=1.0), machine)
    assert not waited.any(), "storage has nothing of it"
    assert (end - start)[1:].tolist() == [2500, 1, 2500]


def test_a_request_takes_as_much_beyond_the_benchmark_as_where_it_was_recorded():
    here = REQUESTS._replace(write_page_ns=3000.0, append_page_ns=6000.0, read_call_ns=400.0)
    there = REQUESTS._replace(write_page_ns=1000.0, append_page_ns=2000.0, read_call_ns=4000.0)
    rows = [(Kind.WRITE, 0, 2), (Kind.WRITE, 0, 1), (Kind.READ, 0, 1), (Kind.NONE, 0, 0)]
    took = operations(rows, stored=0, processor_ns=5000.0)
    start, end, _ = run(took, MACHINE._replace(requests=here), there)
    assert (end - start).tolist() == [12_000 + 1000, 3000 + 4000, 400 + 1000, 5000]
    start, end, _ = run(took, MACHINE._replace(requests=here))
    assert (end - start).tolist() == [12_000, 5000, 5000, 5000]


def test_what_is_read_ahead_takes_the_reader_its_time():
    rows = [(Kind.READ, 4 * page, 4) for page in range(200)]
    free, taken = (MACHINE._replace(miss_page_ns=ns) for ns in (0.0, 2000.0))
    one, other = (run(operations(rows, gap_ns=1e6), machine) for machine in (free, taken))
    spent = other[1] - other[0] - (one[1] - one[0])
    assert spent.sum() == pytest.approx(2000.0 * (800 + MACHINE.read_ahead.window_pages), rel=0.05), (
        "also of what comes next"
    )
