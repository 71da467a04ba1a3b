# SPDX-License-Identifier: Apache-2.0
"""Pairs of a trace and its replay that skips opens and closes, against every way to find the one in the other."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from characterize.layout import Fileop, RecordKind
from characterize.stream import stream_of
from characterize.trace import Trace
from replayer.checking.operation_pairs import HELD_OPERATIONS, Pairing
from tests.traces.made_trace import made_trace, read
from tests.traces.replayed import SHIFT_NS, replayed
from tests.truths.checked_order import check_order, part_of
from tests.truths.straced import op

pytestmark = pytest.mark.parallel

WHOLE = 10**6
OWN = {"open": Fileop.OPEN, "close": Fileop.CLOSE}
FILES = [{"file": file, "size_bytes": 4096} for file in (1, 2, 3)]
PATHS = {1: "/a", 2: "/b", 3: "/c"}
ROWS = st.lists(
    st.tuples(
        *(st.integers(1, 2), st.sampled_from(["open", "close", "close", "read"]), st.integers(1, 2), st.booleans()),
        st.sampled_from([None, None, "open", "close"]),
    ),
    max_size=12,
)
"""Thread, kind and file of what is 10 ns behind the one before; whether the replay did it, if it is no read; and what
it did for itself then."""

STEPS = st.tuples(*[st.sampled_from([WHOLE, 1, 2, 3, 5])] * 2)
"""Records of the trace, and of the replay, that are looked at at once."""


def trace_of(rows) -> Trace:
    """What begins 10 ns behind each other, for 1 ns; numbered from 1."""
    io, fileops = [], []
    for number, (thread, kind, file, start) in enumerate(rows, start=1):
        fields = {"thread": thread, "file": file, "id": number}
        if kind == "read":
            io.append(read(0, 10, start, **fields))
        else:
            fileops.append(op(OWN[kind], start, **fields))
    return made_trace(io, fileops=fileops, files=FILES, paths=PATHS)


def run_of(rows, delay: int, *, extras: bool) -> tuple[Trace, Trace]:
    """A trace, and a replay of it in which the second thread is later; starts there tell which operation it is."""
    late = {1: 0, 2: delay}
    done = []
    for at, (thread, kind, file, kept, extra) in enumerate(rows):
        start = 10 * at + late[thread]
        if kept or kind == "read":
            done.append((thread, kind, file, start))
        if extra and extras:
            done.append((thread, extra, file, start + 5))
    wanted = [(thread, kind, file, 10 * at) for at, (thread, kind, file, *_) in enumerate(rows)]
    return trace_of(wanted), replayed(trace_of(done))


def pairs_of(trace: Trace, recording: Trace, steps: tuple[int, int], held: int = HELD_OPERATIONS):
    """Number of each operation of the trace that was paired and when it was done; how many were not told apart."""
    pairing = Pairing(stream_of(trace, steps[0]), part_of(recording, steps[1]), held_operations=held)
    pairs = [
        pair
        for found in pairing
        for pair in zip(
            found.operations["id"].tolist(), (found.operations["replay_start_ns"] - SHIFT_NS).tolist(), strict=True
        )
    ]
    assert (pairing.compared, pairing.added, pairing.shuffled_threads) == (len(pairs), 0, 0)
    return sorted(pairs), pairing.ambiguous


def every_way(wanted: list, done: list) -> list[tuple[int, ...]]:
    """All places at which one list stands in the other in its order."""
    ways = combinations(range(len(wanted)), len(done))
    return [places for places in ways if [wanted[place] for place in places] == done]


@settings(max_examples=150)
@given(ROWS, st.integers(0, 100), STEPS)
def test_only_what_every_way_to_find_it_pairs_alike_is_paired(rows, delay, steps):
    """So no pair is wrong, and none that can be known is missing."""
    pairs, unknown = [], 0
    for thread in (1, 2):
        mine = [(at, kind, file, kept) for at, (of, kind, file, kept, _) in enumerate(rows) if of == thread]
        done = [(at, kind, file) for at, kind, file, kept in mine if kept or kind == "read"]
        ways = every_way([it[1:3] for it in mine], [it[1:3] for it in done])
        for number, (at, *_) in enumerate(done):
            places = {places[number] for places in ways}
            if len(places) > 1:
                unknown += 1
                continue
            assert mine[places.pop()][0] == at
            pairs.append((1 + at, 10 * at + (delay if thread == 2 else 0)))
    trace, recording = run_of(rows, delay, extras=False)
    assert pairs_of(trace, recording, steps) == (sorted(pairs), unknown)


@settings(max_examples=150)
@given(ROWS, st.integers(0, 100), STEPS, st.integers(0, 12))
def test_pairs_do_not_depend_on_how_a_trace_is_cut_into_chunks(rows, delay, steps, held):
    """Neither where the engine opens and closes for itself, nor where a thread waits no longer."""
    trace, recording = run_of(rows, delay, extras=True)
    assert pairs_of(trace, recording, steps, held) == pairs_of(trace, recording, (WHOLE, WHOLE), held)


def closing(fileops: list[dict], io: list[dict], cause: int) -> tuple[Trace, Trace]:
    """A trace in which another thread was woken to read after an operation, and a replay that skips operation 8."""
    wakes = [{"id": 4, "cause": cause, "start_ns": 40, "duration_ns": 1, "thread": 2}]
    io = [read(0, 10, 40, thread=2, file=2, id=4), *io]
    trace = made_trace(io, fileops=fileops, files=FILES, wakes=wakes, paths=PATHS)
    recording = replayed(trace)
    done = recording.arrays[RecordKind.FILEOP]
    recording.arrays[RecordKind.FILEOP] = done[done["id"] != 8]
    return trace, recording


@pytest.mark.parametrize("step", [WHOLE, 1])
def test_who_was_woken_after_a_skipped_close_did_not_come_before_one_that_is_like_it(step):
    """The first of two closes is skipped, so that the read begins; the second one is done after it, as recorded."""
    fileops = [op(Fileop.OPEN, 10, id=1), op(Fileop.CLOSE, 20, id=8), op(Fileop.CLOSE, 60, id=5)]
    trace, recording = closing(fileops, [], cause=8)
    check = check_order(trace, part_of(recording, step), step)
    assert (check.expected, check.compared, check.ambiguous, check.violations) == (4, 2, 1, 0)


@pytest.mark.parametrize("step", [WHOLE, 1])
def test_a_violation_by_a_close_that_can_be_told_is_found_beside_those_that_cannot(step):
    """The close that the read was woken after is done 5 ns after its begin; a read parts it from what is ambiguous."""
    fileops = [
        *(op(Fileop.OPEN, 10, id=1), op(Fileop.CLOSE, 20, id=2)),
        *(op(Fileop.CLOSE, 60, id=8), op(Fileop.CLOSE, 70, id=9)),
    ]
    trace, recording = closing(fileops, [read(0, 10, 50, file=3, id=7)], cause=2)
    done = recording.arrays[RecordKind.FILEOP]
    done["start_ns"][done["id"] == 2] = SHIFT_NS + 45
    check = check_order(trace, part_of(recording, step), step)
    broken = {name: rule.violations for name, rule in check.rules.items() if rule.violations}
    assert broken == {"wake_ups": 1, "interval_order": 1}
    assert check.rules["wake_ups"].early_ns_max == 46 - 40
    assert (check.expected, check.compared, check.ambiguous) == (6, 4, 1)


@pytest.mark.parametrize("step", [WHOLE, 1])
def test_a_thread_that_only_opens_and_closes_is_paired_piece_by_piece(step):
    rows = [(1, ("open", "close")[at % 2], 1, True, None) for at in range(80)]
    trace, recording = run_of(rows, 0, extras=False)
    pairs = [(1 + at, 10 * at) for at in range(80)]
    assert pairs_of(trace, recording, (step, step), held=8) == (pairs, 0)
    if step == 1:
        pieces = [len(found.operations) for found in Pairing(stream_of(trace, 1), part_of(recording, 1), 40, 8)]
        assert sum(pieces[: len(pieces) // 2]) >= 80 // 2 - 2 * 8


def test_what_a_thread_ends_with_holds_nothing_up_for_long():
    """It opens and closes a file; the other one goes on to read."""
    rows = [(1, "open", 1, True, None), (1, "close", 1, True, None)]
    rows += [(2, "read", 2, True, None)] * 100
    trace, recording = run_of(rows, 0, extras=False)
    found = list(Pairing(stream_of(trace, 1), part_of(recording, 1), held_operations=8))
    first = next(at for at, pairs in enumerate(found) if 1 in pairs.operations["id"].to_numpy())
    assert first <= 2 * (2 + 8 + 2)
    assert found[first].settled_ns >= 10 * 8
