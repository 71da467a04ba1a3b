# SPDX-License-Identifier: Apache-2.0
"""Records of who woke a thread before a call: where they stand in files, and who gets them that reads these."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import characterize
from characterize.cluster.recording import open_recording
from characterize.cluster.survey import survey
from characterize.layout import TRACE_HEADER_BYTES, TRACE_RECORD_BYTES, WAKE_DTYPE, Fileop, RecordKind
from characterize.stream import Chunk, open_stream, stream_of
from characterize.trace_files.archive import pack, unpack
from characterize.trace_files.trace_writer import write_chunks
from replayer.checking.replay_recording import replay_part, run_part
from tests.traces.made_trace import made_trace, read, records

pytestmark = pytest.mark.parallel

FSYNC = int(Fileop.FSYNC)


def in_file(path):
    """Kind and id of each record of a file in its order; id 0 of those that are no calls and no wakes."""
    content = path.read_bytes()[TRACE_HEADER_BYTES:]
    rows = [content[at : at + TRACE_RECORD_BYTES] for at in range(0, len(content), TRACE_RECORD_BYTES)]
    with_id = (RecordKind.IO, RecordKind.FILEOP, RecordKind.WAKE)
    return [(row[0], int.from_bytes(row[56:], "little") if row[0] in with_id else 0) for row in rows]


def placed(calls, wakes):
    """The same by the rule: calls by their start, each behind the first wake of its id, if one has that."""
    expected = []
    for kind, row in sorted(calls, key=lambda call: (call[1]["start_ns"], call[0])):
        expected += [(RecordKind.WAKE, row["id"])] * (row["id"] in [wake["id"] for wake in wakes])
        expected.append((kind, row["id"]))
    return expected


@st.composite
def calls_and_wakes(draw):
    """Calls that start at few moments, and wakes in any order: of a call, of none, two of one."""
    ids = list(range(1, draw(st.integers(0, 12)) + 1))
    kinds = [(id_, draw(st.sampled_from([RecordKind.IO, RecordKind.FILEOP])), draw(st.integers(0, 3))) for id_ in ids]
    calls = [
        (kind, {"op": FSYNC if kind == RecordKind.FILEOP else 1, "start_ns": at, "id": id_}) for id_, kind, at in kinds
    ]
    woken = draw(st.lists(st.integers(0, 20), max_size=8))
    starts = {row["id"]: row["start_ns"] for _, row in calls}
    return calls, [{"id": id_, "start_ns": starts.get(id_, 1), "cause": 7} for id_ in woken]


@given(calls_and_wakes())
def test_a_wake_is_written_right_before_its_call(tmp_path_factory, drawn):
    calls, wakes = drawn
    directory = tmp_path_factory.mktemp("written")
    rows = {kind: [row for it, row in calls if it == kind] for kind in (RecordKind.IO, RecordKind.FILEOP)}
    trace = made_trace(rows[RecordKind.IO], fileops=rows[RecordKind.FILEOP], wakes=wakes, files=[{"file": 1}])
    path = characterize.write(trace, directory / "a.iotrace")
    assert in_file(path)[1:] == placed(calls, wakes)
    again = characterize.open(path)
    assert {kind: count for kind, count in again.header.count.items() if count} == {
        kind: int((np.array([it for it, _ in in_file(path)]) == kind).sum()) for kind in dict(in_file(path))
    }
    chunks = [({kind: trace.arrays[kind] for kind in (*rows, RecordKind.WAKE)}, {})]
    write_chunks(chunks, lambda: trace.header, directory / "b.iotrace")
    assert in_file(directory / "b.iotrace") == placed(calls, wakes)
    assert characterize.open(directory / "b.iotrace").header.count[RecordKind.WAKE] == len(again.wakes)


@pytest.fixture
def written(tmp_path):
    """Two calls of two threads that start together, of which the second one waited for an earlier one."""
    io = [read(0, 1, 5, 2, id=1), read(0, 1, 9, 2, id=2), read(0, 1, 9, 3, id=3, thread=2)]
    wakes = [
        {"id": 3, "start_ns": 9, "duration_ns": 3, "thread": 2, "cause": 1, "waker": 1, "woken_ns": 8, "slept_ns": 2}
    ]
    return characterize.write(made_trace(io, wakes=wakes), tmp_path / "a.iotrace")


def test_wakes_are_a_table(written):
    (row,) = characterize.open(written).wakes.to_dict("records")
    times = {"start_ns": 9, "duration_ns": 3, "woken_ns": 8, "slept_ns": 2}
    assert row == {**times, "wakes": 1, "waker": 1, "thread": 2, "process": 1, "cause": 1, "id": 3}


def test_a_trace_and_its_archive_keep_them_where_they_are(written, tmp_path):
    assert in_file(written) == [(1, 1), (1, 2), (10, 3), (1, 3)]
    again = characterize.write(characterize.open(written), tmp_path / "b.iotrace")
    assert again.read_bytes() == written.read_bytes()
    pack(written, tmp_path / "a.parquet")
    unpack(tmp_path / "a.parquet", tmp_path / "c.iotrace")
    assert (tmp_path / "c.iotrace").read_bytes() == written.read_bytes()
    assert characterize.open(tmp_path / "a.parquet").wakes.equals(characterize.open(written).wakes)


def test_a_call_without_a_number_is_no_ones(tmp_path):
    trace = made_trace([read(0, 1), read(1, 1, 5, id=1)], wakes=[{"id": 0}, {"id": 9}])
    assert in_file(characterize.write(trace, tmp_path / "a.iotrace")) == [(1, 0), (1, 1)]
    nothing = made_trace(wakes=[{"id": 1}])
    assert in_file(characterize.write(nothing, tmp_path / "b.iotrace")) == []
    assert (
        characterize.open(tmp_path / "b.iotrace").arrays[RecordKind.WAKE].tobytes()
        == records(RecordKind.WAKE, []).tobytes()
    )


def test_of_several_recordings_each_has_its_own_clock_and_threads(written):
    recording = open_recording(written)
    assert survey((recording, 0, 1)).task == 2
    records = replace(recording, shift_ns=100, tasks=7).read(0)
    (row,) = records[records[:, 0] == RecordKind.WAKE].view(WAKE_DTYPE).reshape(-1)
    assert [int(row[name]) for name in ("start_ns", "woken_ns", "thread", "waker", "process")] == [109, 108, 9, 8, 8]
    assert [int(row[name]) for name in ("duration_ns", "slept_ns", "wakes", "cause", "id")] == [3, 2, 1, 1, 3]


def test_a_wake_is_in_the_chunk_of_its_call(tmp_path):
    """Also where the call is the last but one record of a piece of the file, or was in flight for long."""
    io = [read(0, 1, at // 2, 900 if at % 5 else 1, id=1 + at, thread=1 + at % 3) for at in range(40)]
    wakes = [{"id": row["id"], "start_ns": row["start_ns"]} for row in io[::2]]
    path = characterize.write(made_trace(io, wakes=wakes), tmp_path / "a.iotrace")
    streams = [open_stream(path, pieces) for pieces in (1, 2, 3, 7)] + [stream_of(characterize.open(path), 5)]
    for stream in streams:
        chunks = [part.arrays for part in stream.chunks() if isinstance(part, Chunk)]
        assert sum(len(arrays[RecordKind.WAKE]) for arrays in chunks) == 20
        for arrays in chunks:
            assert set(arrays[RecordKind.WAKE]["id"]) <= set(arrays[RecordKind.IO]["id"])


@pytest.mark.parametrize(("part", "kept"), [(run_part, [2, 4]), (replay_part, [4, 5])])
def test_of_a_run_and_of_a_replay_only_its_calls_wait(part, kept):
    """A run is without calls that failed by their caller's fault, a replay without those of other threads."""
    io = [read(0, 1, at, 1, id=1 + at) for at in range(3)] + [
        read(0, 1, 3, 1, id=4, thread=9),
        read(0, -9, 4, 1, id=5, thread=9),
    ]
    wakes = [{"id": id_, "start_ns": id_ - 1} for id_ in (2, 4, 5, 6)]
    tasks = [{"thread": 1, "comm": b"flextrace"}, {"thread": 9, "comm": b"play 1"}]
    stream = part(stream_of(made_trace(io, wakes=wakes, tasks=tasks, files=[{"file": 1}], paths={1: "/a"})))
    found = [it.arrays[RecordKind.WAKE]["id"] for it in stream.chunks() if isinstance(it, Chunk)]
    assert np.concatenate(found).tolist() == kept
