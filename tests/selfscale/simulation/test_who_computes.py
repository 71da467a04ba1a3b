# SPDX-License-Identifier: Apache-2.0
"""Who keeps a processor awake for a read beside it: who computes, and who waits, begins or ends meanwhile."""

import math

import pytest

from selfscale.simulation.operations import Kind
from selfscale.simulation.run import run
from tests.formulas.simulated_machine import ACCESS_NS, operations, stored_on

pytestmark = pytest.mark.parallel

AWAKE_NS = 20_000.0
MACHINE = stored_on(awake_read_ns=AWAKE_NS, read_busy_ns=0.0)._replace(processors=2)
CACHED, READ = (Kind.READ, 0, 1, 1), (Kind.READ, 500, 1, 0)
TWO_READS = [CACHED, (Kind.READ, 50, 1, 0), READ, CACHED]


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


def test_where_others_compute_short_pauses_alone_are_those_of_a_processor_that_is_awake():
    """Thread 1 computes while thread 0 reads; after 200 us it takes what it does without that."""
    for gap_us, wait_ns in ((10, AWAKE_NS), (math.sqrt(20 * 200), 60_000.0), (300, ACCESS_NS)):
        todo = operations(TWO_READS, cached=[0], after=(0, -1))
        todo.gap_ns[2], todo.gap_ns[3] = 1e3 * gap_us, 2e6
        _, _, waited = run(todo, MACHINE)
        assert waited[2] == pytest.approx(wait_ns, rel=0.02), gap_us


@pytest.mark.parametrize(
    ("processors", "gap_ns", "waited_ns"),
    [(2, 1e6, AWAKE_NS), *((count, gap, ACCESS_NS) for count, gap in ((2, 20e6), (1, 1e6), (3, 1e6), (0, 1e6)))],
)
def test_a_read_is_awake_where_others_keep_the_other_processors_computing(processors, gap_ns, waited_ns):
    """Thread 1 pauses, for no longer than it takes to compute, when thread 0 reads what is not cached."""
    todo = operations(TWO_READS, cached=[0], after=(0, -1))
    todo.gap_ns[3] = gap_ns
    _, _, waited = run(todo, MACHINE._replace(processors=processors))
    assert waited.tolist() == [0, waited_ns, waited_ns, 0]


@pytest.mark.parametrize(
    ("computing_ns", "waited_ns"),
    # Of a pause of 100 us; the first read begins 1 us after it did, and if that is awake the second one 22 us later.
    [
        (0.0, [ACCESS_NS, ACCESS_NS]),
        (40_000.0, [AWAKE_NS, ACCESS_NS]),
        (60_000.0, [AWAKE_NS, AWAKE_NS]),
        (100_000.0, [AWAKE_NS, AWAKE_NS]),
    ],
)
def test_a_recorded_share_says_when_a_thread_computes(computing_ns, waited_ns):
    """Half of it at the begin of its pause, and half at the end."""
    todo = operations(TWO_READS, cached=[0], after=(0, -1))
    todo.gap_ns[3], todo.computing_ns[3] = 100_000.0, computing_ns
    _, _, waited = run(todo, MACHINE)
    assert waited[1:3].tolist() == waited_ns


def test_who_waits_for_storage_or_for_a_thread_does_not_compute():
    rows = [CACHED, (Kind.READ, 50, 1, 0), (Kind.READ, 500, 1, 1), (Kind.READ, 900, 1, 0), CACHED]
    machine = stored_on(MACHINE, read_page_busy_ns=0.0)
    reading = operations(rows, cached=[0], after=(0, -1))
    _, _, waited = run(reading, machine)
    assert waited[1:4].tolist() == [ACCESS_NS] * 3, "each thread waits for its own read"
    _, _, waited = run(reading, machine._replace(serving_threads=1))
    assert waited[1:3].tolist() == [ACCESS_NS, AWAKE_NS], "a thread of the kernel works for the first one"
    waiting = operations([*rows[:2], *rows[3:]], cached=[0], after=(0, -1), waits_for={3: 2})
    _, _, waited = run(waiting, machine)
    assert waited[1:3].tolist() == [ACCESS_NS] * 2


def test_who_is_in_a_call_and_waits_for_nothing_keeps_a_processor_awake():
    """Thread 1's read takes a processor for 30 us, and its pause none; thread 0 reads 14 and 45 us after it began."""
    todo = operations(TWO_READS, cached=[0], after=(-1, -1))
    todo.processor_ns[0], todo.computing_ns[:], todo.gap_ns[1:] = 30e3, 0.0, [15e3, 10e3, 1e6]
    start, _, waited = run(todo, MACHINE)
    assert start[:3].tolist() == [1e3, 15e3, 46e3]
    assert waited[1:3].tolist() == [AWAKE_NS, ACCESS_NS]


def test_of_threads_that_come_and_go_those_that_are_there_count():
    """Thread 1 is over at 2 us; thread 2, which it started, is in its only call from 3 to 33 us; thread 0 reads."""
    rows = [(Kind.READ, 0, 1, 1), (Kind.READ, 0, 1, 2), READ, (Kind.READ, 900, 1, 0)]
    todo = operations(rows, cached=[0], after=(-1, -1, 0))
    todo.gap_ns[:], todo.processor_ns[1], todo.computing_ns[:] = [1e3, 1e3, 15e3, 20e3], 30e3, 0.0
    start, end, waited = run(todo, MACHINE)
    assert start.tolist() == [1e3, 3e3, 15e3, 56e3]
    assert end[1] == 33e3
    assert waited[2:].tolist() == [AWAKE_NS, ACCESS_NS]
