# SPDX-License-Identifier: Apache-2.0
"""How a replay kept the order of calls that waited to be woken: by hand, and by looking at every pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from characterize.layout import Fileop, RecordKind
from characterize.stream import Chunk, stream_of
from characterize.trace import Trace
from replayer.checking.operation_form import rows_of_ids
from replayer.checking.order_sweep import compare
from replayer.checking.replay_recording import replay_part, run_part
from tests.traces.made_trace import made_trace, read, records
from tests.traces.replayed import SHIFT_NS, replayed
from tests.truths.checked_order import ROWS, assert_blame, check_order, columns, naive, part_of, times_of
from tests.truths.straced import op

pytestmark = pytest.mark.parallel


def wake(call: int, after: int, start: int) -> dict:
    """Row of the record that a call was woken after another one, for `made_trace`."""
    return {"id": call, "cause": after, "start_ns": start, "duration_ns": 5}


def woken(causes: dict[int, int], **arguments) -> Trace:
    """Reads of a file each by two threads in turn, for 5 ns every 10 ns, numbered from 1; causes by woken call."""
    io = [read(at, 1, 10 * at, 5, thread=1 + at % 2, file=1 + at % 2, id=1 + at) for at in range(40)]
    wakes = [wake(call, cause, 10 * max(call - 1, 0)) for call, cause in causes.items()]
    files = [{"file": file, "size_bytes": 40} for file in (1, 2)]
    return made_trace(io, files=files, wakes=wakes, **arguments)


@pytest.mark.parametrize(("order", "violations"), [("resource", 1), ("recorded", 2), ("thread", 0)])
def test_what_comes_before_its_cause_breaks_what_orders_across_threads_promise(order, violations):
    """The 20th read begins before the end of the 19th: no resource tells that it must not, only intervals do."""
    trace = woken({20: 19, 30: 1})
    recording = replayed(trace)
    recording.arrays[RecordKind.IO]["start_ns"][19] -= 7
    for step, limits in ((10**6, {}), (3, {}), (3, {"near_operations": 4})):
        check = check_order(trace, part_of(recording, step), step, order=order, **limits)
        broken = {name: rule.violations for name, rule in check.rules.items() if rule.violations}
        assert broken == {"wake_ups": 1, "interval_order": 1}
        assert (check.violations, check.far) == (violations, 0)
        assert check.rules["wake_ups"].checked == (1 if limits else 2)
        (example,) = check.rules["wake_ups"].examples
        assert (example["operation"]["offset"], example["waits_for"]["offset"], example["early_ns"]) == (19, 18, 2)


def test_only_causes_that_the_replay_repeats_and_that_had_ended_count():
    causes = {
        4: 99,  # not in the trace
        6: 41,  # failed, so that the engine leaves it out
        8: 0,  # none
        10: 11,  # began later
        12: 3,  # skipped by the engine
        99: 5,  # of a call that is not in the trace
        41: 5,  # of a call that the engine leaves out
        0: 5,  # of a call without a number
        14: 13,
    }
    trace = woken(causes, fileops=[op(Fileop.OPEN, 41, result=-2, id=41, thread=2)])
    recording = replayed(trace)
    recording.arrays[RecordKind.IO] = np.delete(recording.arrays[RecordKind.IO], 2)
    for step in (10**6, 3):
        check = check_order(trace, part_of(recording, step), step)
        assert (check.compared, check.rules["wake_ups"].checked, check.violations) == (39, 1, 0)


def test_a_cause_of_long_before_is_compared_by_the_latest_end_only():
    """The 39th read was woken after the second one, which the replay did last of all but what follows in its thread."""
    trace = woken({39: 2})
    recording = replayed(trace)
    recording.arrays[RecordKind.IO]["start_ns"][1::2] += 1000
    for step, limits, found, far in ((10**6, {}, 1, False), (3, {"near_operations": 4}, 0, True)):
        check = check_order(trace, part_of(recording, step), step, **limits)
        assert (check.rules["wake_ups"].checked, check.rules["wake_ups"].violations) == (found, found)
        assert (check.far > 0) is far


def test_a_part_has_the_wake_ups_of_its_calls():
    """Neither that of a call which failed, nor that of the engine's main thread."""
    trace = woken({20: 19, 41: 3}, fileops=[op(Fileop.OPEN, 400, result=-2, id=41, thread=2)])
    recording = replayed(trace, main_io=[read(0, 1, SHIFT_NS, id=50)])
    recording.arrays[RecordKind.WAKE] = records(RecordKind.WAKE, [wake(20, 19, SHIFT_NS + 190), wake(50, 19, SHIFT_NS)])
    for part in (run_part(stream_of(trace, 3)), replay_part(stream_of(recording, 3))):
        arrays = [chunk.arrays[RecordKind.WAKE] for chunk in part.chunks() if isinstance(chunk, Chunk)]
        assert np.concatenate(arrays)["id"].tolist() == [20]


@given(ROWS)
def test_a_comparison_finds_what_looking_at_every_pair_finds(rows):
    start, duration, again, lasted, _, place, *_ = columns(rows)
    times = times_of(start, duration, again, lasted)
    first = np.where(place < len(rows), place, -1)
    found = compare(times, first)
    checked, early = naive(times, lambda a, b: first[b] == a)
    assert found.checked.tolist() == checked
    assert (found.blamed >= 0).tolist() == early
    assert_blame(found.blamed, times)


def test_operations_are_found_by_their_ids():
    ids = np.array([7, 0, 3, 9])
    assert rows_of_ids(np.array([3, 0, 8, 9, 7, 10, 1]), ids).tolist() == [2, -1, -1, 3, 0, -1, -1]
    assert rows_of_ids(np.array([3, 0]), ids[:0]).tolist() == [-1, -1]
    assert rows_of_ids(ids[:0], ids).tolist() == []
