# SPDX-License-Identifier: Apache-2.0
"""Which calls wait for which in traces that are made from traces, and how long their threads slept there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import characterize
from characterize.layout import Fileop, RecordKind, Source
from replayer.alter import alter
from replayer.cut import Selection, cut
from replayer.flexible.planned import unchanged
from replayer.merge import clone, merge
from replayer.repeat import repeat
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

PAGE = 4096
FIRST = 2**60  # of numbers that need more digits than a float has


def calls_of(trace):
    """Every operation by its id, where no other one has that."""
    rows = [*trace.io.to_dict("records"), *trace.fileops.to_dict("records")]
    ids = [row["id"] for row in rows]
    return {row["id"]: row for row in rows if row["id"] and ids.count(row["id"]) == 1}


def end(row):
    return row["start_ns"] + row["duration_ns"]


def holds(wake, calls):
    """Whether a call of another thread is over when the call starts that waited for it."""
    call, cause = (calls.get(wake[name]) for name in ("id", "cause"))
    return bool(call and cause and call["thread"] != cause["thread"] and end(cause) <= call["start_ns"])


def assert_sound(trace):
    calls = calls_of(trace)
    for wake in trace.wakes.to_dict("records"):
        assert holds(wake, calls)
        fields = ("start_ns", "duration_ns", "thread", "process")
        assert [wake[name] for name in fields] == [calls[wake["id"]][name] for name in fields]
        assert wake["slept_ns"] <= pause(wake, calls)
    ids = trace.wakes["id"].tolist()
    assert len(set(ids)) == len(ids)


def pause(wake, calls):
    """Time since the call of the thread before; of its first one since the first call of the trace."""
    of_calls = [row for row in calls.values() if row["source"] != Source.MMAP]
    before = [end(row) for row in of_calls if row["thread"] == wake["thread"] and row["start_ns"] < wake["start_ns"]]
    return wake["start_ns"] - max(before, default=min(row["start_ns"] for row in of_calls))


def pairs(trace):
    """What waited for what: places of data and directions, and which operation, say what a call is, whatever its id."""
    calls = calls_of(trace)
    names = ("file", "offset", "argument")
    about = {id_: tuple(int(row.get(name, -1)) for name in names) for id_, row in calls.items()}
    return [(about[wake["id"]], about[wake["cause"]]) for wake in trace.wakes.to_dict("records")]


def rounds(threads=3, count=40, pause_ns=1000):
    """Threads in turn, each of which sleeps until the one before it is done; of thread 3 every call is a sync.

    Thread 1 has a page fault between its calls, too, which is no call.
    """
    io, fileops, wakes = [], [], []
    for number in range(threads * count):
        thread, start = 1 + number % threads, 5000 + number * pause_ns
        row = {"start_ns": start, "duration_ns": 300, "thread": thread, "process": thread, "id": FIRST + number}
        if thread == 3:
            fileops.append({"op": Fileop.FSYNC, "argument": number, **row})
        else:
            maker = (read, write)[thread - 1]
            io.append({**maker(number * PAGE, PAGE), **row})
        if thread == 1:
            fault = {"source": Source.MMAP, "id": 2 * FIRST + number, "start_ns": start + 500}
            io.append({**read(number * PAGE, PAGE), **row, **fault})
        if number:
            waits = {"cause": FIRST + number - 1, "waker": 1 + (number - 1) % threads, "woken_ns": start - 50}
            wakes.append({**row, **waits, "slept_ns": min(400, pause_ns * (thread - 1)), "wakes": 2})
    return made_trace(
        io,
        fileops=fileops,
        wakes=wakes,
        files=[{"file": 1, "size_bytes": threads * count * PAGE}],
        tasks=[{"thread": thread, "process": thread} for thread in range(1, threads + 1)],
        paths={1: "/data"},
    )


@st.composite
def recordings(draw):
    """Threads with calls and faults one after the other; wakes of any call by any other, also such as cannot be."""
    io, fileops, wakes, number = [], [], [], 0
    for thread in range(1, draw(st.integers(2, 4))):
        now = draw(st.integers(0, 50))
        for place in range(draw(st.integers(1, 6))):
            number += 1
            thinks, now = now, now + draw(st.integers(0, 60))
            row = {
                "start_ns": now,
                "duration_ns": draw(st.integers(1, 30)),
                "thread": thread,
                "process": 9,
                "id": number,
            }
            kind = draw(st.sampled_from(["read", "write", "sync", "fault"]))
            if kind == "sync":
                fileops.append({"op": Fileop.FSYNC, **row})
            else:
                maker = write if kind == "write" else read
                source = {"source": Source.MMAP} if kind == "fault" else {}
                io.append({**maker(number * PAGE, PAGE), **row, **source})
            if kind != "fault" and draw(st.booleans()):
                # The first call of a thread is that of a new one, which has not slept (trace_format.h).
                slept = draw(st.integers(0, now - thinks)) if place else 0
                waits = {
                    "cause": draw(st.integers(0, 12)),
                    "slept_ns": slept,
                    "woken_ns": now - draw(st.integers(0, now)),
                }
                wakes.append({**row, **waits, "waker": draw(st.integers(1, 3))})
            now += row["duration_ns"]
    io.append(read(0, PAGE, 100, 10, thread=77, id=99))
    return made_trace(io, fileops=fileops, wakes=wakes, files=[{"file": 1, "size_bytes": 40 * PAGE}], paths={1: "/a"})


# ---- alterations ----


@settings(max_examples=60, deadline=None)
@given(recordings(), st.sampled_from([2, 3]))
def test_a_scale_of_time_scales_sleeps_and_when_they_ended(trace, factor):
    altered, _ = alter(trace, {"timeScale": factor})
    base = min(row["start_ns"] for row in calls_of(trace).values())
    calls = calls_of(trace)
    expected = [wake for wake in trace.wakes.to_dict("records") if holds(wake, calls)]
    found = {wake["id"]: wake for wake in altered.wakes.to_dict("records")}
    assert sorted(found) == sorted(wake["id"] for wake in expected)
    for wake in expected:
        mine = found[wake["id"]]
        kept = ("cause", "waker", "wakes", "thread", "process")
        assert [mine[name] for name in kept] == [wake[name] for name in kept]
        assert mine["start_ns"] == base + factor * (wake["start_ns"] - base)
        assert mine["duration_ns"] == factor * wake["duration_ns"]
        if pause(wake, calls) > 0:
            assert mine["slept_ns"] == factor * wake["slept_ns"]
            assert mine["woken_ns"] == max(base + factor * (wake["woken_ns"] - base), 0)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_scale_of_think_times_keeps_the_share_of_them_that_was_slept(factor):
    parent = rounds()
    altered, _ = alter(parent, {"thinkScale": factor})
    assert_sound(altered)
    assert altered.wakes["id"].tolist() == parent.wakes["id"].tolist()
    was, now = calls_of(parent), calls_of(altered)
    for old, new in zip(parent.wakes.to_dict("records"), altered.wakes.to_dict("records"), strict=True):
        ratio = pause(new, now) / pause(old, was)
        assert new["slept_ns"] == pytest.approx(ratio * old["slept_ns"], abs=0.51)
        assert new["start_ns"] - new["woken_ns"] == pytest.approx(ratio * 50, abs=0.51)
    total = [sum(trace.wakes["slept_ns"]) for trace in (parent, altered)]
    assert total[1] == pytest.approx(factor * total[0], rel=0.05)


@pytest.mark.parametrize("changes", [{"readFrac": 0.3}, {"sizeMean": 2.0 * PAGE}, {"seqFrac": 0.5}], ids=str)
def test_what_leaves_the_times_leaves_who_waited(changes):
    parent = rounds()
    altered, _ = alter(parent, changes, nearest=True)
    assert altered.io.to_dict() != parent.io.to_dict()
    assert altered.arrays[RecordKind.WAKE].tobytes() == parent.arrays[RecordKind.WAKE].tobytes()


def overlapping(threads):
    """Each thread's requests overlap those of all others; each waits for the one before it of the next thread."""
    io, wakes = [], []
    for at in range(60):
        for thread in range(1, threads + 1):
            id_ = at * threads + thread
            row = {
                "start_ns": 1000 * at + 10 * thread,
                "duration_ns": 700,
                "thread": thread,
                "process": thread,
                "id": id_,
            }
            io.append({**read(PAGE * (7 * at % 60), PAGE), **row, "file": thread})
            if at:
                cause = (at - 1) * threads + thread % threads + 1
                times = {"woken_ns": row["start_ns"] - 5, "slept_ns": 100}
                wakes.append({**row, **times, "cause": cause, "waker": thread % threads + 1})
    numbers = range(1, threads + 1)
    return made_trace(
        io,
        wakes=wakes,
        files=[{"file": thread, "size_bytes": 60 * PAGE} for thread in numbers],
        tasks=[{"thread": thread, "process": thread} for thread in numbers],
        paths={thread: f"/{thread}" for thread in numbers},
    )


@pytest.mark.parametrize(("threads", "target"), [(4, 3), (4, 1), (2, 4), (2, 3)])
def test_of_threads_that_were_dealt_or_merged_nothing_is_known(threads, target):
    parent = overlapping(threads)
    altered, _ = alter(parent, {"processNum": float(target)}, nearest=True)
    assert_sound(altered)
    was = {row["id"]: row["thread"] for row in parent.io.to_dict("records")}
    now = {row["id"]: row["thread"] for row in altered.io.to_dict("records")}
    same = [
        thread
        for thread in set(was.values())
        if {id_ for id_, it in was.items() if it == thread} == {id_ for id_, it in now.items() if it == thread}
    ]
    assert len(same) == {(4, 3): 2, (4, 1): 0, (2, 4): 0, (2, 3): 1}[threads, target]
    ends = calls_of(altered)
    expected = [
        wake["id"]
        for wake in parent.wakes.to_dict("records")
        if was[wake["id"]] in same and was[wake["cause"]] in same and holds(wake, ends)
    ]
    assert sorted(altered.wakes["id"].tolist()) == sorted(expected)
    assert bool(expected) == (len(same) == 2)


def test_no_call_waits_for_what_comes_later_nor_for_one_of_several_with_its_number():
    parent = rounds()
    wakes, io = parent.arrays[RecordKind.WAKE], parent.arrays[RecordKind.IO]
    wakes["cause"][0] = wakes["id"][5]
    twice = int(wakes["id"][20])
    io["id"][io["source"] == Source.MMAP] = twice
    altered, _ = alter(parent, {"timeScale": 2.0})
    assert altered.wakes["id"].tolist() == [it for it in wakes["id"][1:].tolist() if it not in {twice, twice + 1}]


@pytest.mark.parametrize(
    "made",
    [
        unchanged,
        lambda trace: alter(trace, {"timeScale": 1.0})[0],
        lambda trace: alter(trace, {"processNum": 1.0})[0],
        lambda trace: merge([trace]),
        lambda trace: clone(trace, 1),
        lambda trace: repeat(trace, 1),
        lambda trace: cut(trace, Selection(begin_s=0)),
    ],
)
def test_where_nothing_changes_all_records_stay(made, tmp_path):
    """Also those that do not hold: they are the recorder's to tell."""
    parent = rounds()
    parent.arrays[RecordKind.WAKE]["cause"][::3] = 10_000
    one = characterize.write(parent, tmp_path / "a.iotrace").read_bytes()
    other = characterize.write(made(parent), tmp_path / "b.iotrace").read_bytes()
    count = 2 * 3 * 40 - 1 + 40 + 1 + 3
    assert one[4096 : 4096 + 64 * count] == other[4096 : 4096 + 64 * count]
    assert len(characterize.open(tmp_path / "b.iotrace").wakes) == 119


# ---- parts and sums ----


@settings(max_examples=60, deadline=None)
@given(recordings(), recordings(), st.booleans())
def test_merged_traces_wait_each_for_its_own(one, other, alone):
    """A cause that is in no trace must not become one of the other trace by its new id."""
    if alone:
        merged, parents = clone(one, 3), [one] * 3
    else:
        merged, parents = merge([one, other]), [one, other]
    assert_sound(merged)
    calls = calls_of(merged)
    kept = [[wake for wake in it.wakes.to_dict("records") if holds(wake, calls_of(it))] for it in parents]
    assert len(merged.wakes) == sum(map(len, kept))
    files = sorted(merged.files["file"].tolist())
    for number, (file, parent) in enumerate(zip(files, parents, strict=True)):
        mine = [pair for pair in pairs(merged) if pair[0][0] == file]
        ids = [wake["id"] for wake in kept[number]]
        about = dict(zip(parent.wakes["id"].tolist(), parent.wakes.to_dict("records"), strict=True))
        by_id = calls_of(parent)
        expected = sorted(
            tuple((file, int(by_id[about[id_][name]].get("offset", -1))) for name in ("id", "cause")) for id_ in ids
        )
        assert sorted(tuple(call[:2] for call in pair) for pair in mine) == expected
    threads = {calls[wake["id"]]["thread"] for wake in merged.wakes.to_dict("records")}
    assert threads <= set(merged.io["thread"]) | set(merged.fileops["thread"])


def test_merged_traces_have_wakers_of_their_own_and_sleep_as_long():
    parent = rounds()
    copies = clone(parent, 2)
    assert copies.wakes["slept_ns"].sum() == 2 * parent.wakes["slept_ns"].sum()
    thread_of = {id_: row["thread"] for id_, row in calls_of(copies).items()}
    assert [thread_of[id_] for id_ in copies.wakes["cause"]] == copies.wakes["waker"].tolist()
    later = rounds()
    for records in (later.arrays[kind] for kind in (RecordKind.IO, RecordKind.FILEOP, RecordKind.WAKE)):
        records["start_ns"] += 10**6
    later.arrays[RecordKind.WAKE]["woken_ns"] += 10**6
    both = merge([parent, later])
    assert np.unique((both.wakes["start_ns"] - both.wakes["woken_ns"]).to_numpy()).tolist() == [50]
    assert_sound(both)


@settings(max_examples=40, deadline=None)
@given(recordings(), st.integers(2, 4))
def test_every_pass_waits_for_its_own_calls(trace, times):
    repeated = repeat(trace, times)
    wakes, calls = trace.wakes.to_dict("records"), calls_of(trace)
    kept = sorted((wake for wake in wakes if holds(wake, calls)), key=lambda wake: wake["start_ns"])
    found = repeated.wakes.to_dict("records")
    assert len(found) == times * len(kept)
    again = calls_of(repeated)
    for wake in found:
        call, cause = again[wake["id"]], again[wake["cause"]]
        assert end(cause) <= call["start_ns"] == wake["start_ns"]
        assert call["thread"] == wake["thread"] != cause["thread"]
    for number in range(times if kept else 0):
        mine = found[number * len(kept) : (number + 1) * len(kept)]
        shift = mine[0]["start_ns"] - kept[0]["start_ns"]
        assert sorted((it["slept_ns"], it["woken_ns"] - shift) for it in mine) == sorted(
            (it["slept_ns"], it["woken_ns"]) for it in kept
        )
        spans = [again[it["cause"]]["start_ns"] - it["start_ns"] for it in mine]
        assert sorted(spans) == sorted(calls[it["cause"]]["start_ns"] - it["start_ns"] for it in kept)


@pytest.mark.parametrize(
    ("selection", "both"),
    [
        (
            Selection(begin_s=10e-6, end_s=50e-6),
            lambda call, cause: cause["start_ns"] >= 15_000 and call["start_ns"] < 55_000,
        ),
        (Selection(threads=[1, 2]), lambda call, cause: call["thread"] == 2),
        (Selection(threads=[1, 3]), lambda call, cause: call["thread"] == 1),
        (Selection(threads=[3]), lambda call, cause: False),
    ],
)
def test_a_part_has_those_of_which_it_has_both_calls(selection, both):
    parent = rounds()
    part = cut(parent, selection)
    calls = calls_of(parent)
    wakes = parent.wakes
    kept = [both(calls[row.id], calls[row.cause]) for row in wakes.itertuples()]
    assert part.arrays[RecordKind.WAKE].tobytes() == parent.arrays[RecordKind.WAKE][kept].tobytes()
    assert_sound(part)
