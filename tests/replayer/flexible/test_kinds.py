# SPDX-License-Identifier: Apache-2.0
"""What a flexible trace does with the record kinds and file operations of format 1.1."""

import os
import resource
import subprocess
import sys

import numpy as np
import pytest

import characterize
from characterize.layout import FileFlag, Fileop, IoFlag, RecordKind
from replayer.alter import Relative, alter
from replayer.cut import Selection, cut
from replayer.flexible.draft import Draft
from replayer.merge import clone
from replayer.repeat import repeat
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ROOT

pytestmark = pytest.mark.parallel

PAGE = 4096
NAME = 1 << 31


def op(kind, start, **fields):
    return {"op": kind, "start_ns": start, "duration_ns": 1, "id": 1000 + start, **fields}


def parent_trace(fileops=()):
    io = [read(PAGE * at, PAGE, 10 * at, 5, id=at + 1) for at in range(50)]
    io += [write(PAGE * at, PAGE, 10 * (50 + at), 5, id=51 + at) for at in range(50)]
    return made_trace(
        io,
        fileops=list(fileops),
        files=[{"file": 1, "size_bytes": 50 * PAGE}, {"file": NAME, "flags": FileFlag.NEW_NAME}],
        tasks=[{"thread": 1, "process": 1, "comm": b"sh"}, {"thread": 1, "process": 1, "comm": b"cat"}],
        blocks=[{"op": 1, "start_ns": 1, "bytes": PAGE}, {"op": 1, "start_ns": 2, "bytes": PAGE}],
        block_data=[{"block": 1, "class": 2, "file": 1, "bytes": PAGE, "cause": 1}],
        resident=[{"file": 1, "offset": 0, "bytes": PAGE}],
        holes=[{"file": 1, "offset": 49 * PAGE, "bytes": PAGE}],
        paths={1: "/data", NAME: "/other"},
    )


def test_what_the_parent_did_to_its_device_and_cache_is_not_carried_over(tmp_path):
    altered, _ = alter(parent_trace(), {"readFrac": 0.8})
    gone = (RecordKind.BLOCK, RecordKind.BLOCK_DATA, RecordKind.RESIDENT, RecordKind.HOLE)
    assert not any(len(altered.arrays[kind]) for kind in gone)
    back = characterize.open(characterize.write(altered, tmp_path / "a.iotrace"))
    assert back.warnings == []


def test_where_nothing_changes_everything_stays(tmp_path):
    parent = parent_trace()
    altered, _ = alter(parent, {"readFrac": 0.5})
    back = characterize.open(characterize.write(altered, tmp_path / "a.iotrace"))
    of_parent = (RecordKind.BLOCK, RecordKind.BLOCK_DATA, RecordKind.RESIDENT, RecordKind.HOLE)
    for kind in (RecordKind.IO, *of_parent, RecordKind.TASK):
        assert np.array_equal(back.arrays[kind], parent.arrays[kind]), kind
    assert back.block_data["block"].tolist() == [1]


def test_holes_stay_where_no_request_changes():
    parent = parent_trace()
    altered, _ = alter(parent, {"timeScale": 2.0})
    assert altered.holes[["file", "offset", "bytes"]].to_numpy().tolist() == [[1, 49 * PAGE, PAGE]]
    assert altered.holes["time_ns"].tolist() == altered.files["time_ns"].tolist()[:1]


def test_a_split_makes_names_once_and_in_their_order():
    kinds = (Fileop.MKDIR, Fileop.RMDIR, Fileop.LINK, Fileop.SYMLINK)
    fileops = [op(kind, 10 * at, file=NAME, argument=NAME) for at, kind in enumerate(kinds)]
    altered, _ = alter(parent_trace([*fileops, op(Fileop.SYNCFS, 100, file=1)]), {"processNum": 2.0})
    counts = dict(zip(*np.unique(altered.arrays[RecordKind.FILEOP]["op"], return_counts=True), strict=True))
    assert all(counts[kind] == 1 for kind in (*kinds, Fileop.SYNCFS))
    named = altered.fileops[altered.fileops["op"].isin(kinds)].sort_values("start_ns")
    assert named["op"].tolist() == list(kinds)


SPLIT = """
import sys
import characterize
from replayer.alter import alter
alter(characterize.open(sys.argv[1]), {"processNum": 2.0})
"""


def test_a_split_of_a_trace_with_a_rename_stays_inside_its_tables(tmp_path):
    """The name that a rename gives is no file of any operation, and its id is behind those of all files."""
    renamed = parent_trace([op(Fileop.RENAME, 700, file=1, argument=NAME)])
    command = [sys.executable, "-c", SPLIT, characterize.write(renamed, tmp_path / "t.iotrace")]
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_split_by_the_clock_of_the_day_keeps_think_times():
    """Nanoseconds since 1970, as strace tells them, times the number of a thread do not fit 63 bits."""
    begin, threads = 1_760_000_000_000_000_000, 12
    io = [
        read(
            PAGE * at, PAGE, begin + 1000 * at + 10 * thread, 5, thread=thread, process=thread, id=at * threads + thread
        )
        for at in range(40)
        for thread in range(1, threads + 1)
    ]
    parent = made_trace(
        io,
        files=[{"file": 1, "size_bytes": 40 * PAGE}],
        tasks=[{"thread": thread, "process": thread} for thread in range(1, threads + 1)],
        paths={1: "/data"},
    )
    altered, _ = alter(parent, {"processNum": 2.0}, nearest=True)
    starts = altered.io["start_ns"]
    assert starts.min() == begin + 10
    assert starts.max() - starts.min() < 2 * 1000 * 40


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"processNum": 2.0}, False),
        ({"processNum": 1.0}, False),
        ({"thinkScale": 2.0}, True),
        ({"readFrac": 0.5}, True),
    ],
    ids=str,
)
def test_shares_of_a_processor_go_where_think_times_are_of_others(changes, kept):
    """Two threads whose times between calls become those between other calls, if they are dealt to others."""
    threads = (1,) if changes.get("processNum") == 2.0 else (1, 2)
    rows = [(thread, at) for thread in threads for at in range(40)]
    io = [
        read(
            PAGE * (7 * at % 40),
            PAGE,
            1000 * at + 300 * thread,
            500,
            thread=thread,
            process=thread,
            processor_share=100,
        )
        for thread, at in rows
    ]
    tasks = [{"thread": thread, "process": thread} for thread in threads]
    parent = made_trace(io, files=[{"file": 1, "size_bytes": 40 * PAGE}], tasks=tasks, paths={1: "/data"})
    altered, _ = alter(parent, changes)
    assert set(altered.io["processor_share"]) == {100 if kept else 0}


def test_a_part_forgets_shares_of_a_processor_since_calls_that_it_lacks():
    io = [read(0, PAGE, 100 * at, 10, file=1 + (at in (2, 5)), processor_share=50 + at) for at in range(8)]
    io.append(read(0, PAGE, 205, 10, thread=2, file=1, processor_share=9))
    files = [{"file": file, "size_bytes": PAGE} for file in (1, 2)]
    parent = made_trace(io, files=files, tasks=[{"thread": 1}, {"thread": 2}], paths={1: "/a", 2: "/b"})
    part = cut(parent, Selection(files=["/a"]))
    assert part.io["start_ns"].tolist() == [0, 100, 205, 300, 400, 600, 700]
    assert part.io["processor_share"].tolist() == [50, 51, 9, 0, 54, 0, 57]


@pytest.mark.parametrize(
    "changes", [{"uniqueBytes": Relative(0.5)}, {"uniqueBytes": Relative(1.2)}, {"seqFrac": 0.4}], ids=str
)
def test_ids_of_names_cost_no_memory(changes):
    """They begin at 2^31: a table by id would take 16 GiB, for which there is no address space here."""
    journals = [{"file": 2 + at, "flags": FileFlag.CREATED} for at in range(10)]
    fileops, io = [], [read(PAGE * (at % 50), PAGE, 10 * at, 5, id=at + 1) for at in range(100)]
    for at in range(10):
        begin = 1000 + 100 * at
        fileops.append(op(Fileop.OPEN, begin, file=2 + at, flags=IoFlag.CREATED))
        io += [write(PAGE * step, PAGE, begin + 10 + step, 1, id=begin + 10 + step, file=2 + at) for step in range(4)]
        fileops.append(op(Fileop.RENAME, begin + 50, file=2 + at, argument=NAME + at))
        fileops.append(op(Fileop.UNLINK, begin + 60, file=2 + at))
    parent = made_trace(
        io,
        fileops=fileops,
        files=[{"file": 1, "size_bytes": 50 * PAGE}, *journals]
        + [{"file": NAME + at, "flags": FileFlag.NEW_NAME} for at in range(10)],
        tasks=[{"thread": 1, "process": 1}],
        paths={1: "/data"} | {2 + at: f"/j{at}" for at in range(10)} | {NAME + at: "/old" for at in range(10)},
    )
    limit = resource.getrlimit(resource.RLIMIT_AS)
    alter(parent, {"readFrac": 0.4, **changes}, nearest=True)  # everything is imported and compiled
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, limit[1]))
    try:
        alter(parent, {"readFrac": 0.4, **changes}, nearest=True)
        assert len(clone(parent, 2).io) == len(repeat(parent, 2).io) == 2 * len(io)
        assert len(cut(parent, Selection(begin_s=1e-6)).io) == 40
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)


@pytest.mark.parametrize("kind", [Fileop.FADVISE, Fileop.SYNC_FILE_RANGE])
def test_lengths_to_the_end_of_anything_still_are_when_requests_are_longer(kind):
    ends = [op(kind, 600 + at, file=1, argument=at * 9 * PAGE, length=2**63 - 1 - at * 9 * PAGE) for at in range(3)]
    altered, _ = alter(parent_trace(ends), {"sizeMean": Relative(4), "uniqueBytes": Relative(4)})
    operations = altered.arrays[RecordKind.FILEOP]
    assert operations["argument"].tolist() == [at * 36 * PAGE for at in range(3)]
    ends = operations["argument"] + operations["length"]
    assert (ends < 2**63).all()
    assert (ends > 2**62).all()


@pytest.mark.parametrize(
    ("kinds", "removed"),
    [
        ([Fileop.UNLINK], [0]),
        ([Fileop.LINK, Fileop.UNLINK], []),
        ([Fileop.LINK, Fileop.UNLINK, Fileop.UNLINK], [2]),
        ([Fileop.UNLINK, Fileop.OPEN, Fileop.UNLINK], [0, 2]),
        ([Fileop.LINK, Fileop.LINK, Fileop.UNLINK, Fileop.UNLINK, Fileop.UNLINK], [4]),
    ],
)
def test_only_the_unlink_of_the_last_name_removes_a_file(kinds, removed):
    fileops = [op(kind, at, file=1) for at, kind in enumerate(kinds)]
    other = [op(Fileop.LINK, at, file=2) for at in range(3)]
    draft = Draft.of(parent_trace(fileops + other))
    mine = draft.fileops["file"] == 1
    assert np.flatnonzero(draft.removals()[mine]).tolist() == removed
    assert not draft.removals()[~mine].any()


def test_a_file_that_is_linked_and_read_by_its_other_name_keeps_its_size():
    """git: link, unlink of the first name; readFrac up, so that writes become reads of what was written before."""
    fileops = [
        op(Fileop.LINK, 600, file=1, argument=NAME),
        op(Fileop.UNLINK, 610, file=1),
        op(Fileop.OPEN, 620, file=1),
    ]
    altered, _ = alter(parent_trace(fileops), {"readFrac": 0.9})
    assert altered.fileops["op"].tolist() == [Fileop.LINK, Fileop.UNLINK, Fileop.OPEN]
