# SPDX-License-Identifier: Apache-2.0
"""cut, merge, repeat and clone of what was made by them, of traces from several clocks, and of synthetic ones."""

import numpy as np
import pytest

from characterize import trace as trace_file
from characterize.errors import FlextraceError
from characterize.layout import FILEOP_NAME_SHIFT, FileFlag, Fileop, FileType, IoFlag, RecordKind
from characterize.workload import workload_of
from replayer.cut import Selection, cut
from replayer.flexible.wakes import standing
from replayer.merge import clone, merge
from replayer.repeat import repeat
from tests.traces.flexible_traces import Recording, willy
from tests.traces.made_trace import made_trace, read, write
from tests.traces.sound_traces import assert_sound
from tests.truths.straced import op

pytestmark = pytest.mark.parallel

PAGE = 4096
NAME = 1 << 31
SECOND_NS = 10**9


def replaces_a_file(path="/d/x"):
    """One thread writes a temporary file and renames it over a path that it has read."""
    recording = Recording()
    old, new = recording.file(path, PAGE), recording.file(f"{path}.tmp", created=True)
    name = recording.file(path)
    recording.files[-1] = (*recording.files[-1][:3], int(FileFlag.NEW_NAME), *recording.files[-1][4:])
    recording.read(1, old, 0, PAGE)
    recording.write(1, new, 0, PAGE)
    recording.operate(Fileop.RENAME, 1, new, argument=name)
    return recording.trace()


def paths_by_source(trace, sources):
    """Sets of paths, of the files of each of the traces that a trace was made of; they lie one behind the other."""
    files = trace.arrays[RecordKind.FILE]["file"].tolist()
    parts, begin = [], 0
    for source in sources:
        count = len(source.arrays[RecordKind.FILE])
        parts.append({trace.paths[file] for file in sorted(files)[begin : begin + count]})
        begin += count
    return parts


def test_paths_stay_apart_when_what_was_merged_is_merged_again():
    one, two, three = (replaces_a_file() for _ in range(3))
    merged = merge([merge([one, two]), three])
    parts = paths_by_source(merged, [one, two, three])
    assert [len(part) for part in parts] == [2, 2, 2]
    assert len(set.union(*parts)) == 6


TWICE = pytest.mark.parametrize(
    "make", [lambda trace: clone(trace, 2), lambda trace: repeat(trace, 2)], ids=["clone", "repeat"]
)


@TWICE
def test_a_name_that_is_said_to_be_removed_is_the_one_that_was_made(make):
    fileops = [op(Fileop.LINK, 20, argument=NAME), op(Fileop.UNLINK, 30, length=NAME << FILEOP_NAME_SHIFT)]
    files = [{"file": 1, "size_bytes": PAGE}, {"file": NAME, "flags": FileFlag.NEW_NAME}]
    made = make(made_trace([read(0, PAGE, 10)], fileops=fileops, files=files, paths={1: "/a", NAME: "/b"})).fileops
    linked = made.loc[made["op"] == Fileop.LINK, "argument"].tolist()
    assert len(set(linked)) == 2
    removed = made.loc[made["op"] == Fileop.UNLINK, "length"]
    assert [length >> FILEOP_NAME_SHIFT for length in removed.tolist()] == linked


@TWICE
def test_paths_stay_apart_when_a_clone_is_multiplied(make):
    parent = replaces_a_file()
    made = make(clone(parent, 2))
    assert len(set(made.paths.values())) == 4 * len(set(parent.paths.values()))


def test_a_path_that_looks_like_a_second_one_is_not_given_twice():
    merged = merge([replaces_a_file("/x"), merge([replaces_a_file("/x (2)"), replaces_a_file("/x")])])
    assert len(set(merged.paths.values())) == 6


def test_what_was_cached_when_a_trace_began_is_cached_for_its_passes():
    """One file is read in all passes, another one removed, so that each pass has its own; so with holes."""
    parent = made_trace(
        [read(0, PAGE, 10 * at, 5, id=at, file=at) for at in (1, 2)],
        fileops=[{"op": Fileop.UNLINK, "start_ns": 30, "duration_ns": 1, "file": 2, "id": 3}],
        files=[{"file": file, "size_bytes": 9 * PAGE, "resident_bytes": 3 * PAGE} for file in (1, 2)],
        tasks=[{"thread": 1, "process": 1}],
        resident=[{"file": file, "offset": file * PAGE, "bytes": 3 * PAGE, "large_folios": 7} for file in (1, 2)],
        holes=[{"file": file, "offset": (4 + file) * PAGE, "bytes": 2 * PAGE} for file in (1, 2)],
        paths={1: "/kept", 2: "/removed"},
    )
    made = repeat(parent, 3)
    files, resident = made.arrays[RecordKind.FILE], made.arrays[RecordKind.RESIDENT]
    assert sorted(resident["file"].tolist()) == sorted(files["file"].tolist())
    own = resident[resident["file"] != 1]
    assert own["offset"].tolist() == [2 * PAGE] * 3
    assert set(resident["bytes"].tolist()) == {3 * PAGE}
    assert set(resident["large_folios"].tolist()) == {7}
    assert made.header.count[RecordKind.RESIDENT] == 4
    assert parent.arrays[RecordKind.RESIDENT]["file"].tolist() == [1, 2]
    holes = made.arrays[RecordKind.HOLE]
    assert holes["file"].tolist() == resident["file"].tolist()
    assert holes["offset"].tolist() == [5 * PAGE, *[6 * PAGE] * 3]


@pytest.mark.parametrize(
    "make",
    [lambda trace: clone(trace, 4), lambda trace: repeat(trace, 4), lambda trace: merge([trace] * 4)],
    ids=["clone", "repeat", "merge"],
)
def test_more_records_than_a_replay_takes_or_memory_holds_are_not_made(make, monkeypatch):
    trace = willy()
    count = 4 * (len(trace.arrays[RecordKind.IO]) + len(trace.arrays[RecordKind.FILEOP]))
    monkeypatch.setattr("replayer.flexible.planned.RECORDS_MAX", count)
    monkeypatch.setattr("replayer.flexible.planned.memory_bytes", lambda: 64 * count)
    make(trace)
    monkeypatch.setattr("replayer.flexible.planned.memory_bytes", lambda: 64 * count - 1)
    with pytest.raises(FlextraceError, match="of memory while they are made, this machine has"):
        make(trace)
    monkeypatch.setattr("replayer.flexible.planned.RECORDS_MAX", count - 1)
    with pytest.raises(FlextraceError, match=f"are {count} records, of which a replay takes up to {count - 1}"):
        make(trace)


@pytest.mark.parametrize("make", [clone, repeat])
def test_ids_stay_apart_where_there_is_no_room_for_their_ranges(make):
    """Each thread of a recording has a range of 2^40 of them: here those of a build by 2^22 short processes."""
    ids = [(thread << 40) + 1 for thread in (1, 2, 2**22)]
    parent = made_trace(
        [read(0, PAGE, 100 * at, 5, id=ids[at], thread=at + 1, process=at + 1) for at in range(3)],
        fileops=[{"op": Fileop.TRUNCATE, "start_ns": 300, "argument": PAGE // 2, "id": ids[2] + 1, "thread": 3}],
        files=[{"file": 1, "size_bytes": PAGE}],
        tasks=[{"thread": at + 1, "process": at + 1} for at in range(3)],
        wakes=[{"start_ns": 100, "duration_ns": 5, "thread": 2, "waker": 1, "cause": ids[0], "id": ids[1]}],
        paths={1: "/f"},
    )
    made = make(parent, 9)
    assert_sound(made)
    io, fileops, wakes = (made.arrays[kind] for kind in (RecordKind.IO, RecordKind.FILEOP, RecordKind.WAKE))
    assert len(io) == 27
    assert max(io["id"].max(), fileops["id"].max()) < 2**63
    assert len(standing(wakes, io, fileops)) == len(wakes) == 9
    assert io["id"][:3].tolist() == ids or make is clone


@pytest.mark.parametrize(
    ("mode", "left"), [(0x08, 6), (0x20, 10)], ids=["FALLOC_FL_COLLAPSE_RANGE", "FALLOC_FL_INSERT_RANGE"]
)
def test_a_file_that_a_piece_was_cut_out_of_or_put_into_has_the_size_that_is_left(mode, left):
    moved = {"op": Fileop.FALLOCATE, "flags": mode << 16, "argument": PAGE, "length": 2 * PAGE, "duration_ns": 1}
    parent = made_trace(
        [read(0, PAGE, 20, id=2), read(0, PAGE, 40, id=3)],
        fileops=[moved | {"start_ns": 10, "id": 1}],
        files=[{"file": 1, "size_bytes": 8 * PAGE}],
        tasks=[{"thread": 1, "process": 1}],
        paths={1: "/f"},
    )
    part = cut(parent, Selection(begin_s=15e-9))
    assert part.files["size_bytes"].tolist() == [left * PAGE]
    operations = repeat(parent, 2).fileops
    assert operations["argument"][operations["op"] == Fileop.TRUNCATE].tolist() == [8 * PAGE]


def test_a_block_device_is_as_large_as_it_was_whatever_was_written_to_it():
    emptied = {"op": Fileop.OPEN, "flags": int(IoFlag.TRUNCATED), "start_ns": 5, "duration_ns": 1, "id": 1}
    parent = made_trace(
        [write(0, PAGE, 10, id=2), read(0, PAGE, 40, id=3)],
        fileops=[emptied],
        files=[{"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": 8 * PAGE}],
        tasks=[{"thread": 1, "process": 1}],
        paths={1: "/dev/x"},
    )
    assert cut(parent, Selection(begin_s=15e-9)).files["size_bytes"].tolist() == [8 * PAGE]


def test_merged_traces_keep_their_holes():
    parts = [
        made_trace(
            [read(0, PAGE, 10, 5, id=1, file=file)],
            files=[{"file": file, "size_bytes": 9 * PAGE, "time_ns": 10}],
            holes=[{"file": file, "offset": file * PAGE, "bytes": 2 * PAGE, "time_ns": 10}],
            paths={file: "/sparse"},
        )
        for file in (3, 5)
    ]
    merged = merge([*parts, parts[0]])
    files = merged.files.set_index("file")
    assert merged.holes["file"].tolist() == files.index.tolist()
    assert merged.holes["offset"].tolist() == [3 * PAGE, 5 * PAGE, 3 * PAGE]
    assert merged.holes["time_ns"].tolist() == files["time_ns"].tolist()


def recorded_at(start_s, realtime_s, operation_s):
    """One read, `operation_s` after a recording began at these times of both clocks."""
    return made_trace(
        [read(0, PAGE, int((start_s + operation_s) * SECOND_NS), id=1)],
        files=[{"file": 1, "size_bytes": PAGE}],
        tasks=[{"thread": 1, "process": 1}],
        start_monotonic_ns=int(start_s * SECOND_NS),
        start_realtime_ns=int(realtime_s * SECOND_NS),
        end_monotonic_ns=int((start_s + 10) * SECOND_NS),
        end_realtime_ns=int((realtime_s + 10) * SECOND_NS),
    )


@pytest.mark.parametrize("booted_s", [100, 2], ids=["same boot", "booted since"])
def test_the_header_begins_with_the_earliest_trace(booted_s):
    """The second trace began 5 s before the first; its machine may have booted since, so that clocks begin anew."""
    late, early = recorded_at(booted_s, 1000, 1), recorded_at(50, 995, 1)
    merged = merge([late, early], "clocks")
    starts = sorted(merged.io["start_ns"].tolist())
    assert starts[1] - starts[0] == 5 * SECOND_NS
    header = merged.header
    assert starts[0] - header.start_monotonic_ns == SECOND_NS
    assert header.start_realtime_ns == 995 * SECOND_NS
    assert header.end_realtime_ns - header.start_realtime_ns == 15 * SECOND_NS
    assert header.end_monotonic_ns - header.start_monotonic_ns == 15 * SECOND_NS
    assert len(cut(merged, Selection(begin_s=0.5, end_s=3)).io) == 1
    assert header.start_monotonic_ns > 0


@pytest.mark.parametrize("window", [{"end_s": 300e-9}, {"begin_s": 150e-9}], ids=["begin", "end"])
def test_a_part_of_a_trace_without_a_time_of_day_has_none(window, tmp_path):
    parent = made_trace(
        [read(0, PAGE, start, id=start) for start in (1, 400)],
        files=[{"file": 1, "size_bytes": PAGE}],
        tasks=[{"thread": 1, "process": 1}],
        start_monotonic_ns=1,
        end_monotonic_ns=500,
    )
    part = cut(parent, Selection(**window))
    assert (part.header.start_realtime_ns, part.header.end_realtime_ns) == (0, 0)
    assert len(trace_file.open(trace_file.write(part, tmp_path / "part.iotrace")).io) == 1


def test_a_part_of_a_synthetic_trace_declares_the_processes_that_it_has():
    parent = willy(4)
    threads = np.unique(parent.io["thread"]).tolist()
    for count in (1, 3):
        part = cut(parent, Selection(threads=threads[:count]))
        assert part.declared == {"processNum": count}
        assert workload_of(part).process_num == count
