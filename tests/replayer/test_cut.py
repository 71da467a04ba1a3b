# SPDX-License-Identifier: Apache-2.0
"""cut: a part begins as it finds its files, and is a recording of its own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from characterize import trace as trace_file
from characterize.errors import FlextraceError
from characterize.layout import BlockOp, FileFlag, Fileop, FileType, IoFlag, RecordKind
from characterize.links import links_of
from characterize.workload import unique_bytes, workload_of, workload_of_records
from replayer.cut import Selection, cut
from tests.traces.flexible_traces import Recording, database_like, sort_like, willy
from tests.traces.made_trace import made_trace, read, write
from tests.traces.sound_traces import PAGE, SECOND_NS, assert_replays, assert_sound, log_and_temporary, opens

pytestmark = pytest.mark.parallel


def test_files_begin_as_the_part_finds_them():
    parent = log_and_temporary()
    io = parent.io
    base = min(io["start_ns"].min(), parent.fileops["start_ns"].min())
    # From the first read of the temporary file on: the log has grown, the temporary file is there.
    begin = io["start_ns"][io["offset"] == 4 * PAGE].iloc[-1]
    part = cut(parent, Selection(begin_s=(begin - base) / SECOND_NS))
    assert part.measured
    assert part.io["start_ns"].min() == begin
    files = part.files.set_index("path")
    assert "/log" not in files.index
    assert files.loc["/t", "size_bytes"] == 5 * PAGE
    assert files.loc["/t", "flags"] == 0
    # Of what was written just before, all is in the page cache.
    assert files.loc["/t", "resident_bytes"] == 5 * PAGE
    rest = cut(parent, Selection(end_s=(begin - base) / SECOND_NS))
    assert len(rest.io) + len(part.io) == len(io)
    assert (rest.files.set_index("path").loc["/t", "flags"]) == FileFlag.CREATED
    assert rest.files.set_index("path").loc["/log", "size_bytes"] == 3 * PAGE


def paths_of_part(argument_path, fields, *, renamed=5):
    """Where a part finds its files, when others have renamed a directory, or exchanged it: by what they were before."""
    paths = {1: "/d", 2: "/d/sub/x", 3: "/e/y", 4: "/d.x", 2**31: argument_path}
    rename = {"op": Fileop.RENAME, "argument": 2**31, "start_ns": renamed, "file": 1, "thread": 2, "id": 9, **fields}
    files = [{"file": file, "size_bytes": PAGE} for file in (2, 3, 4)]
    parent = made_trace(
        [read(0, PAGE, 10 * file, file=file, id=file) for file in (2, 3, 4)],
        fileops=[rename],
        files=[{"file": 1, "type": FileType.DIRECTORY}, *files, {"file": 2**31, "flags": FileFlag.NEW_NAME}],
        tasks=[{"thread": thread, "process": thread} for thread in (1, 2)],
        paths=paths,
    )
    return cut(parent, Selection(threads=[1])).paths


def test_what_lies_in_a_directory_goes_with_it():
    assert paths_of_part("/f", {}) == {2: "/f/sub/x", 3: "/e/y", 4: "/d.x"}
    assert paths_of_part("/e", {"length": 2}) == {2: "/e/sub/x", 3: "/d/y", 4: "/d.x"}
    # What the part has used before is where it was then.
    assert paths_of_part("/f", {}, renamed=25) == {2: "/d/sub/x", 3: "/e/y", 4: "/d.x"}
    assert paths_of_part("/e", {"length": 2}, renamed=25) == {2: "/d/sub/x", 3: "/d/y", 4: "/d.x"}
    assert paths_of_part("/f", {"result": -2}) == {2: "/d/sub/x", 3: "/e/y", 4: "/d.x"}


@pytest.mark.parametrize("last", [Fileop.UNLINK, Fileop.CLOSE, Fileop.FSYNC])
def test_a_file_that_is_gone_when_the_part_makes_it_again_is_empty(last):
    """Also where it was used by a descriptor when its name was gone, as temporary files are."""
    recording = Recording()
    file = recording.file("/t", created=True)
    opens(recording, 1, file, flags=int(IoFlag.CREATED))
    recording.write(1, file, 0, 8 * PAGE)
    recording.operate(Fileop.UNLINK, 1, file)
    if last != Fileop.UNLINK:
        recording.operate(last, 1, file)
    begin = recording.clock[1] - 1000 - 7
    opens(recording, 1, file, flags=int(IoFlag.CREATED))
    recording.write(1, file, 0, PAGE)
    part = cut(recording.trace(), Selection(begin_s=begin / SECOND_NS))
    assert len(part.io) == 1
    assert part.files[["size_bytes", "flags"]].to_numpy().tolist() == [[0, FileFlag.CREATED]]


def test_windows_add_up_and_each_is_a_recording_of_its_own():
    parent = database_like(60)
    end = (parent.io["start_ns"].max() + 1) / SECOND_NS
    edges = np.linspace(0, end, 5)
    parts = [cut(parent, Selection(begin_s=a, end_s=b)) for a, b in itertools.pairwise(edges)]
    assert sum(len(part.io) for part in parts) == len(parent.io)
    for part in parts:
        assert_sound(part)
        assert workload_of(part).process_num == 1


def test_header_has_the_times_of_the_window():
    parent = made_trace(
        [read(PAGE * at, PAGE, SECOND_NS * (at + 1), id=at + 1) for at in range(10)],
        files=[{"file": 1, "size_bytes": 10 * PAGE}],
        tasks=[{"thread": 1, "process": 1}],
        start_monotonic_ns=SECOND_NS,
        end_monotonic_ns=11 * SECOND_NS,
        start_realtime_ns=101 * SECOND_NS,
        end_realtime_ns=111 * SECOND_NS,
    )
    part = cut(parent, Selection(begin_s=2, end_s=5))
    assert part.io["offset"].tolist() == [2 * PAGE, 3 * PAGE, 4 * PAGE]
    header = part.header
    assert (header.start_monotonic_ns, header.end_monotonic_ns) == (3 * SECOND_NS, 6 * SECOND_NS)
    assert (header.start_realtime_ns, header.end_realtime_ns) == (103 * SECOND_NS, 106 * SECOND_NS)


def test_parts_by_thread_process_path_and_device():
    io = [read(0, PAGE, 10 * at, 5, thread=1 + at % 2, process=7, file=1 + at % 4, id=at + 1) for at in range(8)]
    device = (8 << 20) | 1
    parent = made_trace(
        io,
        files=[{"file": at, "size_bytes": PAGE, "device": device * (at == 1)} for at in range(1, 5)],
        tasks=[{"thread": at, "process": 7, "comm": name} for at, name in ((1, b"main"), (2, b"main"), (2, b"play 2"))],
        paths={at: f"/d/f{at}" for at in range(1, 5)},
    )
    assert cut(parent, Selection(threads=[2])).io["file"].tolist() == [2, 4, 2, 4]
    assert cut(parent, Selection(names=["play *"])).io["file"].tolist() == [2, 4, 2, 4]
    assert cut(parent, Selection(names=["play *", "main"])).io["file"].tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
    assert cut(parent, Selection(files=["/d/f[13]"])).io["file"].tolist() == [1, 3, 1, 3]
    assert cut(parent, Selection(devices=["8:1"])).io["file"].unique().tolist() == [1]
    assert cut(parent, Selection(threads=[1], files=["*3"])).io["file"].tolist() == [3, 3]
    part = cut(parent, Selection(threads=[2]))
    assert set(part.tasks["thread"]) == {2}
    assert part.files["file"].tolist() == [2, 4]
    with pytest.raises(FlextraceError, match="2 threads and the devices 0:0, 8:1"):
        cut(parent, Selection(threads=[3]))
    with pytest.raises(FlextraceError, match="only an order"):
        cut(willy(), Selection(begin_s=1))


def test_a_thread_finds_what_another_one_wrote(tmp_path):
    recording = Recording()
    shared = recording.file("/shared", created=True)
    opens(recording, 1, shared, flags=int(IoFlag.CREATED))
    recording.write(1, shared, 0, 4 * PAGE)
    recording.wait_for(2, [1])
    recording.read(2, shared, 0, 4 * PAGE)
    recording.wait_for(1, [2])
    recording.write(1, shared, 4 * PAGE, 4 * PAGE)
    recording.wait_for(2, [1])
    recording.read(2, shared, 4 * PAGE, 4 * PAGE)
    part = cut(recording.trace(), Selection(threads=[2]))
    assert part.files["size_bytes"].tolist() == [8 * PAGE]
    assert part.files["flags"].tolist() == [0]
    assert_replays(part, tmp_path)


def test_requests_of_the_device_stay_with_their_window():
    parent = made_trace(
        [write(PAGE * at, PAGE, 100 * at, 5, id=at + 1) for at in range(4)],
        files=[{"file": 1, "size_bytes": 4 * PAGE}],
        tasks=[{"thread": 1, "process": 1}],
        blocks=[{"op": 2, "start_ns": 100 * at + 10, "bytes": PAGE, "cause": at + 1} for at in range(4)],
        block_data=[{"block": at, "class": 3, "file": 1, "bytes": PAGE, "cause": at + 1} for at in range(4)],
        paths={1: "/f"},
    )
    part = cut(parent, Selection(begin_s=150e-9))
    assert part.blocks["cause"].tolist() == [3, 4]
    assert part.block_data["block"].tolist() == [0, 1]


def test_what_a_part_only_writes_back_keeps_its_names(tmp_path):
    """Of two files that were written before, and of the thread that wrote one of them; the other was never seen."""
    parent = made_trace(
        [write(0, PAGE, 10, 5, id=1, file=1, thread=1), read(0, PAGE, 100, 5, id=2, file=3, thread=3, process=3)],
        files=[{"file": file, "size_bytes": PAGE} for file in (1, 2, 3, 4)],
        tasks=[{"thread": thread, "process": thread, "comm": b"writer"} for thread in (1, 2, 3, 4)],
        blocks=[{"op": BlockOp.WRITE, "start_ns": 110 + at, "bytes": PAGE, "thread": 9} for at in range(2)],
        block_data=[
            {"block": at, "class": 3, "file": at + 1, "bytes": PAGE, "thread": at + 1, "process": at + 1}
            for at in range(2)
        ],
        paths={1: "/a", 2: "/b", 3: "/c", 4: "/d"},
    )
    part = cut(parent, Selection(begin_s=80e-9))
    assert part.io["file"].tolist() == [3]
    assert part.paths == {1: "/a", 2: "/b", 3: "/c"}
    assert sorted(part.tasks["thread"]) == [1, 2, 3]
    again = trace_file.open(trace_file.write(part, tmp_path / "part.iotrace"))
    assert links_of(again).by_file["path"].tolist() == ["/a", "/b"]


def test_block_requests_of_other_files_go_also_where_all_operations_stay():
    """As those of a file that was written before the recording began; of the journal, and of nobody knows what."""
    parent = made_trace(
        [write(0, PAGE, 10, 5, id=1), read(0, PAGE, 20, 5, id=2)],
        files=[{"file": file, "size_bytes": PAGE} for file in (1, 2)],
        tasks=[{"thread": 1, "process": 1}],
        blocks=[{"op": BlockOp.WRITE, "start_ns": 30 + at, "bytes": PAGE} for at in range(4)],
        block_data=[{"block": at, "file": file, "bytes": PAGE} for at, file in ((0, 2), (1, 1), (2, 0))],
        paths={1: "/d/a", 2: "/e/b"},
    )
    part = cut(parent, Selection(files=["/d/*"]))
    assert part.blocks["start_ns"].tolist() == [31]
    assert part.block_data[["block", "file"]].to_numpy().tolist() == [[0, 1]]
    assert part.arrays[RecordKind.IO].tobytes() == parent.arrays[RecordKind.IO].tobytes()
    assert part.paths == {1: "/d/a"}
    whole = cut(parent, Selection(threads=[0, 1]))
    assert all(whole.arrays[kind].tobytes() == parent.arrays[kind].tobytes() for kind in parent.arrays)


def test_footprints_of_windows_are_those_of_their_requests():
    parent = sort_like(2, 2 << 20)
    part = cut(parent, Selection(begin_s=1e-4, end_s=1e-3))
    chosen = parent.requests[parent.requests["id"].isin(part.io["id"])]
    assert workload_of(part).unique_bytes == unique_bytes(chosen.assign(read=True))


def block_requests():
    """Ten of each of two devices, alternating, a millisecond apart; every third moves data of file 7."""
    rows = [
        {
            "op": BlockOp.READ if at % 2 else BlockOp.WRITE,
            "device": 8 << 20 | 16 * (at % 2),
            "start_ns": SECOND_NS + at * 1_000_000,
            "duration_ns": 1000,
            "sector": 8 * at,
            "bytes": PAGE,
            "thread": 40 + at % 5,
        }
        for at in range(20)
    ]
    pieces = [{"block": at, "file": 7, "bytes": PAGE} for at in range(0, 20, 3)]
    return made_trace(
        blocks=rows,
        block_data=pieces,
        files=[{"file": 7}, {"file": 8}],
        tasks=[{"thread": 40}, {"thread": 44}],
        paths={7: "/data", 8: "/other"},
        start_monotonic_ns=SECOND_NS,
        end_monotonic_ns=2 * SECOND_NS,
    )


@pytest.mark.parametrize(
    ("selection", "stay"),
    [
        (Selection(begin_s=0.005, end_s=0.012), range(5, 12)),
        (Selection(devices=["8:16"]), range(1, 20, 2)),
        (Selection(files=["/d*"]), range(0, 20, 3)),
        (Selection(threads=[44], end_s=0.01), [4, 9]),
    ],
)
def test_of_block_requests_alone_a_part_is_taken_as_well(selection, stay, tmp_path):
    parent = block_requests()
    part = trace_file.open(trace_file.write(cut(parent, selection), tmp_path / "part.iotrace"))
    assert (part.blocks["sector"] // 8).tolist() == list(stay)
    pieces = part.arrays[RecordKind.BLOCK_DATA]
    assert len(pieces) == sum(at % 3 == 0 for at in stay)
    # Each piece still is one of the request that it was of.
    owners = part.arrays[RecordKind.BLOCK]["sector"][part.block_of_data] // 8
    assert owners.tolist() == [at for at in stay if at % 3 == 0]
    assert set(part.paths) == {7}
    assert set(part.arrays[RecordKind.TASK]["thread"].tolist()) == {40, 44} & {40 + at % 5 for at in stay}
    assert part.header.metadata["lineage"]["parameters"] == workload_of_records(part, "block").as_document()
    assert part.header.metadata["lineage"]["parameters"]["sizeMean"] == PAGE


def test_what_a_trace_of_block_requests_has_is_told_where_nothing_is_selected():
    told = "its block requests start up to 0.019 s, it has 5 threads and the devices 8:0, 8:16"
    with pytest.raises(FlextraceError, match=told):
        cut(block_requests(), Selection(devices=["9:9"]))
    parent = block_requests()
    assert (cut(parent, Selection(end_s=9.0)).arrays[RecordKind.BLOCK] == parent.arrays[RecordKind.BLOCK]).all()
    with pytest.raises(FlextraceError, match="neither operations nor block requests"):
        cut(made_trace(), Selection(end_s=9.0))
