# SPDX-License-Identifier: Apache-2.0
"""Syncs on a simulated machine: how long one takes, and how many pass."""

import math

import numpy as np
import pytest

from selfscale.simulation.operations import Kind
from selfscale.simulation.run import run
from tests.formulas.simulated_machine import ACCESS_NS, JOURNAL_NS, MACHINE, STORAGE, SYNC_NS, operations, stored_on

pytestmark = pytest.mark.parallel


@pytest.mark.parametrize("kind", [Kind.DISCARD, Kind.SYNC])
def test_synced_and_deleted_pages_are_dirty_no_more(kind):
    rows = [(Kind.WRITE, page, 1) for page in range(140)] + [(kind, 0, 0)]
    rows += [(Kind.WRITE, 5000 + page, 1) for page in range(140)] + [(Kind.READ, 0, 1)]
    _, _, waited = run(operations(rows, stored=0, gap_ns=0.0), MACHINE)
    assert not np.delete(waited, 140).any()
    # Without it: 280 pages, of which 200 may be dirty, and little time to write back.
    del rows[140]
    _, _, waited = run(operations(rows, stored=0, gap_ns=0.0), MACHINE)
    assert waited.any()


def test_a_sync_takes_its_time_where_something_is_dirty():
    rows = [(Kind.WRITE, 0, 1), (Kind.SYNC, 0, 0), (Kind.SYNC, 0, 0), (Kind.WRITE, 1, 100), (Kind.SYNC, 0, 0)]
    start, end, waited = run(operations(rows, processor_ns=5000.0), MACHINE)
    assert waited.tolist() == [0, SYNC_NS, 0, 0, SYNC_NS]
    assert end[2] - start[2] == 5000, "as recorded"
    # Of blocks that storage does not have yet the journal is written as well, after them.
    _, _, waited = run(operations(rows, stored=0, processor_ns=5000.0), MACHINE)
    assert waited[1] == waited[4] == SYNC_NS + JOURNAL_NS
    slow = MACHINE._replace(write_page_busy_ns=20_000.0)
    _, _, waited = run(operations(rows, stored=0), slow)
    assert waited[4] == pytest.approx(100 * 20_000 + JOURNAL_NS), "the data take longer than a sync of one page"
    # A journal takes no less than nothing, whatever the two probes measured.
    _, _, waited = run(operations(rows, stored=0), stored_on(slow, append_sync_ns=SYNC_NS / 2))
    assert waited[4] == pytest.approx(100 * 20_000)


@pytest.mark.parametrize(("stored", "journal_ns"), [(0, JOURNAL_NS), (10_000, 0)])
@pytest.mark.parametrize("direct", [True, False])
def test_a_write_with_o_sync_ends_when_it_is_durable(stored, journal_ns, direct):
    """And what lies beside it stays dirty."""
    rows = [(Kind.WRITE, 90, 1), (Kind.WRITE, 50, 1), (Kind.WRITE, 50, 1), (Kind.SYNC, 0, 0), (Kind.SYNC, 0, 0)]
    todo = operations(rows, stored=stored)
    todo.synced[1:3], todo.direct[1:3] = True, direct
    _, _, waited = run(todo, stored_on(sync_held_up_ns=1e9))
    assert waited.tolist() == [0, SYNC_NS + journal_ns, SYNC_NS, SYNC_NS + journal_ns, 0]


def test_a_sync_takes_longer_for_each_place_that_was_written():
    rows = [*((Kind.WRITE, page, 2) for page in (5, 7, 20, 40)), (Kind.SYNC, 0, 0)]
    _, _, waited = run(operations(rows), stored_on(sync_more_ns=60_000.0))
    assert waited[-1] == SYNC_NS + 2 * 60_000


@pytest.mark.parametrize(("stored", "journal_ns"), [(0, JOURNAL_NS), (10_000, 0)])
def test_a_sync_waits_for_what_storage_was_given_before(stored, journal_ns):
    """Told to write 100 pages, which takes it 2 ms: that, and then a sync; once it has, the sync alone, and once."""
    slow = MACHINE._replace(write_page_busy_ns=20_000.0)
    rows = [(Kind.WRITE, 0, 100), (Kind.FLUSH, 0, 100), (Kind.SYNC, 0, 0), (Kind.SYNC, 0, 0)]
    todo = operations(rows, stored=stored, processor_ns=5000.0)
    start, end, waited = run(todo, slow)
    assert waited[:2].tolist() == [0, 0]
    assert end[2] == start[1] + 100 * 20_000 + SYNC_NS + journal_ns
    assert end[3] - start[3] == 5000, "as recorded"
    _, _, waited = run(todo, stored_on(slow, sync_held_up_ns=3e6))
    assert waited[2] == SYNC_NS + journal_ns, "storage lets it pass for a while"
    todo.gap_ns[2] = 3e6
    _, _, waited = run(todo, slow)
    assert waited.tolist() == [0, 0, SYNC_NS + journal_ns, 0]


def test_a_sync_makes_durable_what_the_flusher_wrote_or_had_no_room_in_the_cache():
    rows = [(Kind.WRITE, 50, 1), *((Kind.READ, 100 + 7 * page, 1) for page in range(20)), (Kind.SYNC, 0, 0)]
    todo = operations(rows)
    for machine in (MACHINE._replace(background_pages=0.0), MACHINE._replace(cache_pages=10)):
        _, _, waited = run(todo, machine)
        assert waited[-1] == SYNC_NS
    _, _, waited = run(operations([*rows[1:-1], rows[-1]]), MACHINE)
    assert waited[-1] == 0, "nothing was written"


def test_a_sync_beside_another_one_ends_with_it():
    rows = [(Kind.WRITE, 0, 1, 0), (Kind.SYNC, 0, 0, 0), (Kind.SYNC, 0, 0, 1), (Kind.SYNC, 0, 0, 1)]
    todo = operations(rows, after=(-1, 0), processor_ns=5000.0)
    todo.gap_ns[2] = 50_000.0
    start, end, _ = run(todo, MACHINE)
    assert start[1] < start[2] < end[1] == end[2]
    assert end[3] - start[3] == 5000, "as recorded"


def test_a_limit_on_syncs_holds_up_many_and_not_one():
    """Of 1 ms each: let through for 20 ms, then held up, with as many in a second; with a pause in between never."""
    limits = {"sync_ns": 50_000.0, "paused_sync_ns": 50_000.0, "sync_busy_ns": 1e6, "sync_held_up_ns": 20e6}
    rows = [(kind, 0, pages) for _ in range(200) for kind, pages in ((Kind.WRITE, 1), (Kind.SYNC, 0))]
    _, end, waited = run(operations(rows, gap_ns=0.0), stored_on(**limits))
    assert np.median(waited[1::2]) == 50_000
    assert 20e6 < waited.max() < 22e6
    assert end[-1] == pytest.approx(200e6, rel=0.15)
    _, _, waited = run(operations(rows, gap_ns=1e6), stored_on(**limits))
    assert set(waited[1::2]) == {50_000.0}
    # Each at two places, of which the second counts half a millisecond; or with a journal of as much.
    both = [(Kind.WRITE, 1, 1), (Kind.WRITE, 5, 1), (Kind.SYNC, 0, 0)] * 200
    _, end, _ = run(operations(both, gap_ns=0.0), stored_on(**limits, sync_more_busy_ns=0.5e6))
    assert end[-1] == pytest.approx(300e6, rel=0.15)
    new = [(kind, page, pages) for page in range(200) for kind, pages in ((Kind.WRITE, 1), (Kind.SYNC, 0))]
    journaled = stored_on(**limits, append_sync_ns=50_000.0, append_sync_busy_ns=1.5e6)
    _, end, _ = run(operations(new, stored=0, gap_ns=0.0), journaled)
    assert end[-1] == pytest.approx(300e6, rel=0.15)


def test_a_sync_after_a_pause_takes_longer():
    """As measured after pauses of 20 us and 200 us; between them by the pause's order of magnitude."""
    rows = [(kind, 0, pages) for _ in range(2) for kind, pages in ((Kind.WRITE, 1), (Kind.SYNC, 0))]
    machine = stored_on(paused_sync_ns=SYNC_NS + 90_000)
    for pause_ns, more_ns in ((1e3, 0), (20e3, 0), (math.sqrt(20e3 * 200e3), 45_000), (200e3, 90_000), (10e6, 90_000)):
        todo = operations(rows, gap_ns=0.0, processor_ns=0.0)
        todo.gap_ns[2] = pause_ns
        _, _, waited = run(todo, machine)
        assert waited[3] == pytest.approx(SYNC_NS + more_ns)


def test_a_read_after_a_sync_is_not_rested():
    rows = [(Kind.READ, 100, 1), (Kind.WRITE, 0, 1), (Kind.SYNC, 0, 0), (Kind.READ, 200, 1)]
    machine = stored_on(sync_ns=5e6, paused_sync_ns=5e6, rested_read_ns=250_000.0)
    _, _, waited = run(operations(rows), machine)
    assert waited[-1] == ACCESS_NS
    del rows[2]
    _, _, waited = run(operations(rows, gap_ns=5e6), machine)
    assert waited[-1] == 250_000


def test_a_read_after_a_sync_of_a_directory_is_not_rested():
    machine = stored_on(directory_sync_ns=5e6, rested_read_ns=250_000.0, paused_read_ns=200_000.0)
    _, _, waited = run(operations([(Kind.DIRECTORY_SYNC, 0, 0), (Kind.READ, 200, 1)]), machine)
    assert waited[-1] == ACCESS_NS


def test_a_sync_of_a_directory_takes_its_time():
    start, end, waited = run(operations([(Kind.DIRECTORY_SYNC, 0, 0), (Kind.NONE, 0, 0)]), MACHINE)
    assert waited.tolist() == [STORAGE.directory_sync_ns, 0]
    assert end[0] - start[0] == STORAGE.directory_sync_ns
