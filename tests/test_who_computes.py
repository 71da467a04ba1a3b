# SPDX-License-Identifier: Apache-2.0
"""Who keeps a processor awake for a read beside it, where threads wait for each other, begin and end."""

import pytest

from selfscale.simulation.operations import Kind
from selfscale.simulation.run import run
from tests.test_page_cache import ACCESS_NS, operations, stored_on

pytestmark = pytest.mark.parallel

AWAKE_NS = 20_000.0
MACHINE = stored_on(awake_read_ns=AWAKE_NS, read_busy_ns=0.0)._replace(processors=2)
CACHED, READ = (Kind.READ, 0, 1, 1), (Kind.READ, 500, 1, 0)


@pytest.mark.parametrize(
    ("computing_us", "waited_ns"), [(0.0, ACCESS_NS), (15.0, ACCESS_NS), (17.0, AWAKE_NS), (100.0, AWAKE_NS)]
)
def test_who_sleeps_until_another_thread_has_read_computes_no_more_than_in_its_pause(computing_us, waited_ns):
    """Thread 1 pauses from 2 us on until thread 2 has read, which begins at 5 us; thread 0 reads at 10 us."""
    todo = operations([CACHED, (Kind.READ, 800, 1, 2), READ, CACHED], cached=[0], after=(-1, -1, -1), waits_for={3: 1})
    todo.gap_ns[:], todo.computing_ns[:] = [1e3, 5e3, 10e3, 100e3], 1e3 * computing_us
    start, end, waited = run(todo, MACHINE)
    assert start[:3].tolist() == [1e3, 5e3, 10e3]
    assert end[0] == 2e3
    assert start[3] == end[1] + 1e3
    assert waited[2] == waited_ns


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(("at_us", "waited_ns"), [(15.0, AWAKE_NS), (35.0, ACCESS_NS)])
def test_a_call_keeps_a_processor_awake_whatever_comes_next(at_us, waited_ns, last):
    """Thread 1's call takes a processor until 31 us; it is its last one, or the next one waits for a read to come."""
    rows = [CACHED, READ, (Kind.READ, 900, 1, 0), *([] if last else [CACHED])]
    todo = operations(rows, cached=[0], after=(-1, -1), waits_for={3: 2}, gap_ns=1e6)
    todo.gap_ns[:2], todo.processor_ns[0], todo.computing_ns[:] = [1e3, 1e3 * at_us], 30e3, 0.0
    start, _, waited = run(todo, MACHINE)
    assert start[:2].tolist() == [1e3, 1e3 * at_us]
    assert waited[1] == waited_ns


def test_a_thread_computes_from_when_it_was_started():
    """By thread 2, which reads from 1 us on until 101 us; thread 0 reads at 10 us, and at 111."""
    rows = [(Kind.READ, 800, 1, 2), READ, (Kind.READ, 900, 1, 0), CACHED]
    todo = operations(rows, cached=[0], after=(-1, 0, -1))
    todo.gap_ns[:], todo.processor_ns[:] = [1e3, 10e3, 1e3, 30e3], 0.0
    todo.computing_ns[:] = [0.0, 0.0, 0.0, 30e3]
    start, _, waited = run(todo, MACHINE)
    assert start.tolist() == [1e3, 10e3, 111e3, 131e3]
    assert waited[1:3].tolist() == [ACCESS_NS, AWAKE_NS]
    # Nor does it where its own first call comes as soon as the other one has ended.
    todo.gap_ns[3] = 0.0
    _, _, waited = run(todo, MACHINE._replace(serving_threads=1, processors=3))
    assert waited[1] == ACCESS_NS
