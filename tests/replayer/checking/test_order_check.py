# SPDX-License-Identifier: Apache-2.0
"""The order checker against replays that were made to be wrong: what it finds of each, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from characterize.layout import FILEOP_NAME_SHIFT, FileFlag, Fileop, HeaderFlag, IoFlag, RecordKind, Source
from characterize.stream import Chunk
from characterize.trace import Trace
from replayer.checking import order_check
from replayer.checking.order_check import RULES
from tests.traces.made_trace import made_trace, read, write
from tests.traces.replayed import SHIFT_NS, replayed
from tests.truths.checked_order import check_order, part_of
from tests.truths.straced import op

pytestmark = pytest.mark.parallel


def bank() -> Trace:
    """Two threads on two files, with everything that a file goes through; nothing overlaps."""
    fileops = [
        op(Fileop.OPEN, 10, flags=IoFlag.CREATED, thread=1),
        op(Fileop.FSYNC, 50, thread=1),
        op(Fileop.RENAME, 70, argument=3, thread=1),
        op(Fileop.OPEN, 90, thread=2),
        op(Fileop.FSYNC, 95, file=4, flags=IoFlag.DIRECTORY, thread=2),
        op(Fileop.CLOSE, 130, thread=2),
        op(Fileop.CLOSE, 140, thread=1),
        op(Fileop.UNLINK, 150, thread=2),
        op(Fileop.OPEN, 160, file=0, result=-2, thread=2),
    ]
    io = [
        write(0, 100, 20, thread=1),
        write(50, 100, 30, thread=2),
        read(0, 150, 40, thread=1, id=1),
        read(10, 10, 41, thread=2, file=2, id=2),
        read(0, 50, 100, 5, thread=2),
        {**read(0, -14, 110), "thread": 2},
    ]
    files = [
        {"file": 1, "flags": FileFlag.CREATED},
        {"file": 2, "size_bytes": 4096},
        {"file": 3, "flags": FileFlag.NEW_NAME},
        {"file": 4, "type": 3},
    ]
    wakes = [{"id": 2, "cause": 1, "start_ns": 41, "duration_ns": 1, "thread": 2}]
    return made_trace(io, fileops=fileops, files=files, wakes=wakes, paths={1: "/a", 2: "/b", 3: "/c", 4: "/"})


def test_a_perfect_replay_breaks_nothing_and_everything_is_compared():
    trace = bank()
    check = check_order(trace, part_of(replayed(trace)))
    assert (check.operations, check.expected, check.compared) == (15, 13, 13)
    assert (check.violations, check.added, check.shuffled_threads) == (0, 0, 0)
    assert list(check.rules) == list(RULES)
    assert check.rules["interval_order"].checked == 12
    assert check.rules["program_order"].checked == 11
    assert all(rule.checked for rule in check.rules.values())


def moved(trace: Trace, kind: RecordKind, row: int, start: int) -> Trace:
    """A replay of which one operation runs at another time."""
    recording = replayed(trace)
    recording.arrays[kind]["start_ns"][row] = SHIFT_NS + start
    return part_of(recording)


@pytest.mark.parametrize(
    ("kind", "row", "start", "broken"),
    [
        # the write of thread 2 comes before the one of thread 1 that it overlaps
        (RecordKind.IO, 1, 15, {"file_ranges": 1, "interval_order": 1}),
        # thread 2 reads the other file before the read that it was woken after: no resource tells
        (RecordKind.IO, 3, 35, {"wake_ups": 1, "interval_order": 1}),
        # opened under its new name before it was renamed; its own first write is behind it now, as it was
        (RecordKind.FILEOP, 3, 60, {"names": 1, "interval_order": 1}),
        # removed before the close of thread 1
        (RecordKind.FILEOP, 7, 135, {"interval_order": 1}),
        # written by thread 2 before thread 1 had opened it
        (RecordKind.IO, 1, 5, {"file_ranges": 1, "descriptors": 1, "interval_order": 1}),
        # synced by thread 1 before it had written and read
        (RecordKind.FILEOP, 1, 15, {"program_order": 1, "syncs": 1, "interval_order": 1}),
    ],
)
def test_what_comes_too_early_breaks_its_rules(kind, row, start, broken):
    """`violations` of later operations that only waited for the moved one cannot occur: it is over earlier."""
    trace = bank()
    check = check_order(trace, moved(trace, kind, row, start))
    assert {name: rule.violations for name, rule in check.rules.items() if rule.violations} == broken
    for name in broken:
        assert len(check.rules[name].examples) == 1
        assert 0 < check.rules[name].early_ns_max < 100


def test_a_sync_of_the_file_system_needs_no_descriptor_of_its_file():
    """The engine makes it on the directory of its files: a close by another thread need not wait for it."""
    fileops = [
        op(Fileop.OPEN, 10, thread=1),
        op(Fileop.SYNCFS, 50, thread=2),
        op(Fileop.CLOSE, 90, thread=1),
    ]
    trace = made_trace([read(0, 100, 20, thread=1)], fileops=fileops, files=[{"file": 1}], paths={1: "/a"})
    check = check_order(trace, moved(trace, RecordKind.FILEOP, 1, 120))
    assert check.rules["descriptors"].violations == 0
    assert check.rules["interval_order"].violations == 1


def test_an_example_names_both_operations():
    trace = bank()
    (example,) = check_order(trace, moved(trace, RecordKind.IO, 1, 15)).rules["file_ranges"].examples
    assert example["operation"] == {
        "thread": 2,
        "op": "write",
        "file": "/a",
        "offset": 50,
        "bytes": 100,
        "recorded_start_ns": 30,
    }
    assert example["waits_for"]["thread"] == 1
    assert example["waits_for"]["recorded_start_ns"] == 20
    assert example["early_ns"] == 21 - 15


def test_operations_of_a_thread_in_another_order_are_found():
    io = [read(100 * at, 100, 10 * at, 5) for at in range(20)]
    trace = made_trace(io, files=[{"file": 1, "size_bytes": 4096}])
    recording = replayed(trace)
    recording.arrays[RecordKind.IO]["offset"] = np.random.default_rng(1).permutation(
        recording.arrays[RecordKind.IO]["offset"]
    )
    check = check_order(trace, part_of(recording))
    assert check.shuffled_threads == 1
    assert check.compared == 20
    assert check.rules["program_order"].violations > 0


def test_what_overlapped_may_come_in_any_order():
    io = [write(0, 100, 0, 50, thread=1), write(0, 100, 10, 50, thread=2), write(0, 100, 20, 50, thread=3)]
    trace = made_trace(io, files=[{"file": 1}])
    recording = replayed(trace)
    recording.arrays[RecordKind.IO]["start_ns"] = np.array([90, 50, 0]) + SHIFT_NS
    assert check_order(trace, part_of(recording)).violations == 0


def test_a_synthetic_trace_has_only_the_order_of_its_threads():
    io = [read(100 * at, 100, at, 0, thread=1 + at % 2) for at in range(10)]
    trace = made_trace(io, files=[{"file": 1, "size_bytes": 4096}], flags=HeaderFlag.UNTIMED)
    recording = replayed(trace)
    recording.arrays[RecordKind.IO]["start_ns"] += 1000 * (recording.arrays[RecordKind.IO]["thread"] % 2)
    check = check_order(trace, part_of(recording))
    assert list(check.rules) == ["program_order"]
    assert (check.rules["program_order"].checked, check.violations) == (8, 0)


def test_what_the_engine_does_for_itself_disturbs_nothing():
    """It opens a file that it has no descriptor for, and closes what it no longer needs; others of it are skipped."""
    trace = bank()
    recording = replayed(trace)
    fileops = recording.arrays[RecordKind.FILEOP]
    own = fileops[:2].copy()
    own["op"], own["file"] = [Fileop.OPEN, Fileop.CLOSE], 502
    own["start_ns"] = SHIFT_NS + np.array([39, 99])
    recording.arrays[RecordKind.FILEOP] = np.concatenate([np.delete(fileops, 6), own])  # a close was skipped
    check = check_order(trace, part_of(recording))
    assert (check.compared, check.expected, check.added, check.shuffled_threads) == (12, 13, 0, 0)
    assert check.violations == 0


def test_a_close_between_other_operations_than_recorded_is_taken_for_the_engines_own():
    trace = bank()
    check = check_order(trace, moved(trace, RecordKind.FILEOP, 5, 98))
    assert (check.expected, check.compared, check.violations) == (13, 12, 0)


def test_missing_and_added_operations_are_counted():
    trace = bank()
    recording = replayed(trace)
    io = recording.arrays[RecordKind.IO]
    added = io[-1:].copy()
    added["offset"] = 12345
    recording.arrays[RecordKind.IO] = np.concatenate([io[1:], added])
    check = check_order(trace, part_of(recording))
    assert check.added == 1
    assert check.compared >= 8
    assert check.shuffled_threads == 1
    recording = replayed(trace)
    recording.arrays[RecordKind.IO] = recording.arrays[RecordKind.IO][1:]
    check = check_order(trace, part_of(recording))
    assert (check.expected, check.compared, check.added, check.shuffled_threads) == (13, 12, 0, 0)


def test_only_threads_that_repeat_recorded_ones_count():
    trace = bank()
    recording = replayed(
        trace,
        main_io=[read(0, 4096, 0, source=Source.MMAP)],
        main_fileops=[op(Fileop.OPEN, 0), op(Fileop.FADVISE, 1), op(Fileop.UNLINK, SHIFT_NS + 9999)],
    )
    part = part_of(recording)
    arrays = [chunk.arrays for chunk in part.chunks() if isinstance(chunk, Chunk)]
    assert sum(len(one[RecordKind.IO]) for one in arrays) == 5
    assert sum(len(one[RecordKind.FILEOP]) for one in arrays) == 8
    assert check_order(trace, part).compared == 13


def test_names_beyond_those_of_files_and_splices_are_numbered_as_the_engine_does():
    """New names stand behind all files in the engine's table; of a splice only what it moved is asked for."""
    new_name = (1 << 31) + 4
    fileops = [op(Fileop.SYMLINK, 10, file=0, argument=new_name), op(Fileop.LINK, 20, argument=new_name)]
    io = [read(0, 100, 5, source=Source.SPLICE, asked_bytes=9999)]
    files = [{"file": 1, "size_bytes": 100}, {"file": new_name, "flags": FileFlag.NEW_NAME}]
    trace = made_trace(io, fileops=fileops, files=files, paths={1: "/a", new_name: "/link"})
    recording = replayed(trace)
    recording.arrays[RecordKind.IO]["asked_bytes"] = 100
    recording.arrays[RecordKind.FILEOP]["file"][0] = 0
    recording.paths[new_name] = "/scratch/image/f00000006"
    assert check_order(trace, part_of(recording)).compared == 3


def test_a_trace_without_operations():
    check = check_order(made_trace(), part_of(replayed(made_trace())))
    assert (check.compared, check.violations) == (0, 0)


@pytest.mark.parametrize("directory", ["", "/\udcff\udcfe"], ids=["plain", "not UTF-8"])
def test_a_name_that_a_file_got_long_before_is_its_name(directory):
    """The first thread renames /a to /c; when that is no longer at hand, the second one uses the name /c."""
    fileops = [op(Fileop.RENAME, 0, argument=3, thread=1)]
    io = [read(at, 1, 10 + 2 * at, thread=1) for at in range(40)]
    fileops += [op(Fileop.UNLINK, 100, thread=1), op(Fileop.OPEN, 110, file=3, flags=IoFlag.CREATED, thread=2)]
    files = [{"file": 1, "size_bytes": 40}, {"file": 3, "flags": FileFlag.NEW_NAME}]
    trace = made_trace(io, fileops=fileops, files=files, paths={1: f"{directory}/a", 3: f"{directory}/c"})
    recording = replayed(trace)
    recording.arrays[RecordKind.FILEOP]["start_ns"][2] = SHIFT_NS + 99
    for limits in ({}, {"near_operations": 5}):
        check = check_order(trace, part_of(recording, 4), 4, **limits)
        assert check.rules["names"].violations == 1
        assert check.far == 0


def test_of_several_names_it_is_the_removed_one_that_is_free():
    """The first thread removes /b, another name of /a; the second one makes a file at /b, the third looks for /a."""
    fileops = [
        op(Fileop.UNLINK, 100, length=3 << FILEOP_NAME_SHIFT, thread=1),
        op(Fileop.OPEN, 110, file=2, flags=IoFlag.CREATED, thread=2),
        op(Fileop.LINK, 110, file=5, argument=4, thread=3),
    ]
    names = [{"file": file, "flags": FileFlag.NEW_NAME} for file in (3, 4)]
    files = [{"file": 1, "size_bytes": 40}, {"file": 2, "flags": FileFlag.CREATED}, *names, {"file": 5}]
    trace = made_trace(fileops=fileops, files=files, paths={1: "/a", 2: "/b", 3: "/b", 4: "/a", 5: "/c"})
    recording = replayed(trace)
    recording.arrays[RecordKind.FILEOP]["start_ns"][1:] = SHIFT_NS + 99
    check = check_order(trace, part_of(recording, 4), 4)
    assert [example["operation"]["file"] for example in check.rules["names"].examples] == ["/b"]


@pytest.mark.parametrize(("step", "limits"), [(10**6, {}), (5, {"waiting_operations": 12})])
def test_what_was_not_repeated_is_given_up_and_what_was_added_is_counted(step, limits):
    """Of one thread nothing is repeated, of the other one every third operation is missing; another file is read."""
    io = [read(at, 1, 10 * at, 5, thread=1 + at % 2) for at in range(60)]
    trace = made_trace(io, files=[{"file": 1, "size_bytes": 60}])
    recording = replayed(trace)
    array = recording.arrays[RecordKind.IO]
    first = array[array["offset"] % 2 == 0]
    added = first[-1:].copy()
    added["file"] = 502
    recording.arrays[RecordKind.IO] = np.concatenate([first[np.arange(30) % 3 > 0], added])
    check = check_order(trace, part_of(recording, step), step, **limits)
    assert (check.operations, check.expected, check.compared, check.added) == (60, 60, 20, 1)
    assert check.violations == 0


def test_while_an_operation_is_missing_not_every_piece_has_all_looked_at(monkeypatch):
    """A close that was skipped may yet be found, so that nothing behind it is settled; another thread reads on."""
    io = [read(at, 1, 10 * at, 5, thread=2) for at in range(1, 401)]
    trace = made_trace(io, fileops=[op(Fileop.CLOSE, 5, thread=1)], files=[{"file": 1, "size_bytes": 500}])
    recording = replayed(trace)
    recording.arrays[RecordKind.FILEOP] = recording.arrays[RecordKind.FILEOP][:0]
    sweeps, found = [], order_check._found
    monkeypatch.setattr(order_check, "_found", lambda *operations: sweeps.append(1) or found(*operations))
    check = check_order(trace, part_of(recording, 4), 4, near_operations=20)
    assert (check.compared, check.violations, check.far) == (400, 0, 0)
    assert check.rules["program_order"].checked == 399
    assert len(sweeps) <= 400 / 20
