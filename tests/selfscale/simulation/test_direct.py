# SPDX-License-Identifier: Apache-2.0
"""Requests that pass the cache by, on a simulated machine."""

import numpy as np
import pytest

from selfscale.simulation.operations import Kind
from selfscale.simulation.run import run
from tests.formulas.simulated_machine import (
    ACCESS_NS,
    JOURNAL_NS,
    MACHINE,
    PAGE_NS,
    REQUESTS,
    SYNC_NS,
    operations,
    stored_on,
)

pytestmark = pytest.mark.parallel


def direct(rows, *places, **options):
    """Operations of which those at these places pass the cache by."""
    todo = operations(rows, **options)
    todo.direct[list(places)] = True
    return todo


def test_a_read_takes_its_first_page_and_each_of_the_next():
    rows = [(Kind.READ, 100, 1), (Kind.READ, 100, 9), (Kind.READ, 100, 41)]
    _, _, waited = run(direct(rows, 0, 1, 2, cached=range(200), gap_ns=1e6), stored_on(read_page_busy_ns=PAGE_NS / 4))
    assert waited.tolist() == [ACCESS_NS, ACCESS_NS + 8 * PAGE_NS, ACCESS_NS + (32 + 8 / 4) * PAGE_NS]
    _, _, waited = run(direct(rows, 0, 1, 2, stored=0), MACHINE)
    assert not waited.any(), "storage does not have them"


def test_what_was_written_is_on_storage_and_not_in_the_cache():
    rows = [(Kind.WRITE, 50, 2), (Kind.READ, 51, 1), (Kind.READ, 70, 1)]
    _, _, waited = run(direct(rows, 0, stored=0), MACHINE)
    assert (waited > 0).tolist() == [True, True, False]
    _, _, waited = run(direct(rows, 0, cached=range(40, 80)), MACHINE)
    assert (waited > 0).tolist() == [True, True, False]


def test_a_write_takes_no_longer_than_a_read_or_a_sync_and_each_more_page_what_writing_back_does():
    rows = [(Kind.WRITE, 50, 1), (Kind.WRITE, 50, 5)]
    for sync_ns, first_ns in ((SYNC_NS, ACCESS_NS), (ACCESS_NS / 2, ACCESS_NS / 2)):
        machine = stored_on(MACHINE._replace(write_page_busy_ns=7000.0), sync_ns=sync_ns)
        _, _, waited = run(direct(rows, 0, 1, gap_ns=1e6), machine)
        assert waited == pytest.approx([first_ns, first_ns + 4 * 7000])


def test_many_writes_are_as_many_as_storage_takes():
    """Of four threads, each access taking storage 80 us."""
    rows = [(Kind.WRITE, 9 * number, 1, number % 4) for number in range(400)]
    todo = direct(rows, *range(400), after=[-1] * 4, gap_ns=0.0, processor_ns=0.0)
    _, end, _ = run(todo, MACHINE._replace(write_busy_ns=80_000.0))
    assert end.max() == pytest.approx(400 * 80_000, rel=0.01)


def test_what_is_dirty_is_written_first():
    for kind in (Kind.READ, Kind.WRITE):
        rows = [(Kind.WRITE, 50, 10), (kind, 50, 1), (kind, 50, 1)]
        _, _, waited = run(direct(rows, 1, 2, gap_ns=0.0), MACHINE)
        assert waited.tolist() == pytest.approx([0, PAGE_NS + ACCESS_NS, ACCESS_NS])


@pytest.mark.parametrize(("stored", "journal_ns"), [(0, JOURNAL_NS), (10_000, 0)])
def test_a_sync_makes_it_durable(stored, journal_ns):
    _, _, waited = run(direct([(Kind.WRITE, 50, 1), *[(Kind.SYNC, 0, 0)] * 2], 0, stored=stored), MACHINE)
    assert waited.tolist() == [ACCESS_NS, SYNC_NS + journal_ns, 0]


@pytest.mark.parametrize("kind", [Kind.READ, Kind.WRITE])
def test_it_ends_storages_pause(kind):
    rows = [(kind, 50, 1000), (Kind.READ, 5000, 1)]
    machine = stored_on(paused_read_ns=200_000.0, rested_read_ns=250_000.0)
    _, _, waited = run(direct(rows, 0), machine)
    assert waited[0] > 2e6
    assert waited[1] == ACCESS_NS


def test_it_takes_of_a_processor_the_call_and_no_copy():
    costs = REQUESTS._replace(
        read_call_ns=500.0, read_byte_ns=1.0, write_call_ns=700.0, write_page_ns=9e3, append_page_ns=9e3
    )
    todo = direct([(Kind.READ, 50, 8), (Kind.WRITE, 50, 8)], 0, 1, processor_ns=0.0)
    start, end, waited = run(todo, MACHINE._replace(requests=costs))
    assert np.round(end - start - waited).tolist() == [500, 700]
