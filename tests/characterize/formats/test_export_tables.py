# SPDX-License-Identifier: Apache-2.0
"""CSV tables come back as the same records; a timeline has the operations of its window, by a decoder of its own."""

import json
import os

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import characterize
from characterize import characterization
from characterize.errors import FlextraceError
from characterize.formats import csv_export, perfetto
from characterize.layout import BlockOp, Fileop, RecordKind, Source
from tests.traces.archived import full_trace
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import op

pytestmark = pytest.mark.parallel

pytest_plugins = ["tests.traces.archive_fixtures"]
U8, U32, U62 = st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**62)
# As a program gives it: also -1, but for the one number that stands for none in a table.
GIVEN = st.one_of(U62, st.integers(2**63 + 1, 2**64 - 1))
TEXT = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
MILLISECOND = 1_000_000


def record(**fields):
    return st.fixed_dictionaries(fields)


TIMES = {"start_ns": U62, "duration_ns": U62, "thread": U32, "process": U32, "flags": U32}
IO = record(
    op=st.integers(1, 2), source=st.integers(0, 6), file=st.integers(1, 3), asked_bytes=U32, offset=U62,
    result=st.integers(-(2**31), 2**31 - 1), missed_bytes=U32, id=U62, processor_share=U8, **TIMES,
)  # fmt: skip
FAILED = st.builds(lambda io, offset, error: {**io, "offset": offset, "result": -error}, IO, GIVEN, st.integers(1, 133))
FILEOP = record(
    op=st.sampled_from([it for it in Fileop if it not in (Fileop.RENAME, Fileop.LINK, Fileop.SYMLINK)]),
    source=st.integers(0, 6), file=st.integers(1, 3), result=st.integers(-(2**31), 2**31 - 1), argument=GIVEN,
    length=GIVEN, id=U62, processor_share=U8, **TIMES,
)  # fmt: skip
BLOCK = record(
    op=st.sampled_from(list(BlockOp)), form=st.integers(1, 2), status=st.integers(0, 255), device=U32, bytes=U32,
    sector=st.integers(0, 2**53), queued_ns=st.one_of(U62, st.just(2**64 - 1)), cause=U62, **TIMES,
)  # fmt: skip


def by_start(trace, kind):
    return trace.arrays[kind][trace.arrays[kind]["start_ns"].argsort(kind="stable")].tobytes()


@given(
    st.lists(st.one_of(IO, FAILED), max_size=9),
    st.lists(FILEOP, min_size=1, max_size=9),
    st.lists(TEXT, min_size=3, max_size=3, unique=True),
)
def test_operations_come_back_bit_by_bit(tmp_path_factory, io, fileops, names):
    place = tmp_path_factory.mktemp("csv")
    trace = made_trace(io, fileops=fileops, paths={at: f"/{name}" for at, name in enumerate(names, start=1)})
    csv_export.write(trace, place / "t.csv")
    again = characterize.open(place / "t.csv")
    for kind in (RecordKind.IO, RecordKind.FILEOP):
        assert again.arrays[kind].tobytes() == by_start(trace, kind)
    used = {row["file"] for row in [*io, *fileops]}
    assert again.paths == {file: trace.paths[file] for file in used}


@given(st.lists(BLOCK, min_size=1, max_size=20))
def test_block_requests_come_back_bit_by_bit(tmp_path_factory, blocks):
    place = tmp_path_factory.mktemp("csv")
    trace = made_trace(blocks=blocks)
    assert csv_export.write(trace, place / "t.csv").layer == "block"
    again = characterize.open(place / "t.csv")
    assert again.arrays[RecordKind.BLOCK].tobytes() == by_start(trace, RecordKind.BLOCK)


def test_a_call_that_moved_nothing_may_have_been_given_any_number(tmp_path):
    """Also where a table has numbers without a sign, as Parquet can."""
    fileops = [op(Fileop.FADVISE, 3, argument=2**64 - 1, length=2**64 - 4096, result=-22)]
    trace = made_trace([read(2**64 - 5, -22, 1)], fileops=fileops, paths={1: "/a"})
    csv_export.write(trace, tmp_path / "t.csv")
    frame = pd.read_csv(tmp_path / "t.csv")
    assert frame["offset"].tolist() == [-5, -1]
    unsigned = {name: frame[name].to_numpy().view("u8") for name in ("offset", "bytes")}
    frame.assign(**unsigned).to_parquet(tmp_path / "t.parquet")
    for table in ("t.csv", "t.parquet"):
        again = characterize.open(tmp_path / table)
        for kind in (RecordKind.IO, RecordKind.FILEOP):
            assert again.arrays[kind].tobytes() == trace.arrays[kind].tobytes(), table


def test_a_sync_needs_no_place_and_data_does(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("start,op,path,offset,bytes\n1,write,/a,0,512\n2,fsync,/a,,\n")
    assert characterize.open(path).fileops[["op", "argument", "length"]].to_numpy().tolist() == [[Fileop.FSYNC, 0, 0]]
    for line, expected in (
        ("3,write,/a,-512,512", r"an offset of 0 to 2\^63 bytes"),
        ("3,write,/a,,512", r"an offset of 0 to 2\^63 bytes"),
        ("3,write,/a,0,-512", r"a size below 2\^32 bytes"),
        ("3,write,/a,0,", r"a size below 2\^32 bytes"),
    ):
        path.write_text(f"start,op,path,offset,bytes\n1,write,/a,0,512\n{line}\n")
        with pytest.raises(FlextraceError, match=f"line 3: expected {expected}"):
            characterize.open(path)


def test_verb(trace, tmp_path, cli):
    output = tmp_path / "t.csv"
    assert cli("export", trace, "-o", output)[0] == 3, "the trace lacks records"
    assert output.read_text().splitlines()[1].split(",")[:4] == ["1152921504606846977", "5", '"READ"', "1"]
    assert cli("export", trace, "-o", output)[0] == 2
    assert cli("export", trace, "-o", output, "--force", "--layer", "block")[0] == 3
    assert [row.split(",")[4] for row in output.read_text().splitlines()[1:]] == ['"READ"', '"READ"']
    status, error = cli("export", trace, "-o", tmp_path / "t.json", "--layer", "block")
    assert (status, "--layer is for NAME.csv" in error) == (2, True)
    status, error = cli("export", trace, "-o", tmp_path / "t.json", "--from", "5s", "--to", "1s")
    assert (status, "--to 1s is not after --from 5s" in error) == (2, True)


def test_what_is_read_again_of_what_was_written_is_no_size_that_a_file_had_before(tmp_path):
    """A table has no sizes. Of ten writes the first three overwrite what was read first; all is read at the end."""
    io = [read(0, 3000, 1)] + [write(1000 * at, 1000, 10 + at) for at in range(10)] + [read(0, 10_000, 99)]
    trace = made_trace(io, files=[{"file": 1, "size_bytes": 3000}], paths={1: "/a"})
    csv_export.write(trace, tmp_path / "t.csv")
    again = characterize.open(tmp_path / "t.csv")
    assert again.arrays[RecordKind.FILE]["size_bytes"].tolist() == [3000]
    result = characterization.characterize(again)
    assert result.layers["vfs"].extended["appendFrac"] == pytest.approx(0.7)


def test_what_a_table_cannot_say(tmp_path):
    trace = made_trace([read(0, 1)], fileops=[op(Fileop.RENAME, 3, argument=2**31, result=0)], paths={1: "/a"})
    assert csv_export.write(trace, tmp_path / "a.csv").left_out == 1
    with pytest.raises(FlextraceError, match="line break"):
        csv_export.write(made_trace([read(0, 1)], paths={1: "/a\nb"}), tmp_path / "b.csv")
    with pytest.raises(FlextraceError, match=r"is not UTF-8: .* write NAME\.parquet"):
        csv_export.write(made_trace([read(0, 1)], paths={1: os.fsdecode(b"/a\xff")}), tmp_path / "b.csv")
    with pytest.raises(FlextraceError, match="nothing at the layer block"):
        csv_export.write(trace, tmp_path / "c.csv", "block")
    assert [it.name for it in tmp_path.iterdir()] == ["a.csv"]


def slices(path):
    """(name, begin, end, process, thread) in ns of every slice, of either kind; and the counters by time."""
    events = json.loads(path.read_text())["traceEvents"]
    found, open_ones, depth = [], {}, []
    for event in events:
        at = round(event.get("ts", 0) * 1000)
        key = (event.get("cat"), event.get("id"), event["name"])
        if event["ph"] == "X":
            found.append((event["name"], at, at + round(event["dur"] * 1000), event["pid"], event["tid"]))
        elif event["ph"] == "b":
            assert key not in open_ones
            open_ones[key] = at
        elif event["ph"] == "e":
            found.append((event["name"], open_ones.pop(key), at, event["pid"], event["tid"]))
        elif event["ph"] == "C":
            depth.append((at, event["args"]["requests"]))
    assert not open_ones
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    return sorted(found), depth, names


def test_a_timeline_has_the_operations_of_its_window(tmp_path):
    io = [read(at, 10, 10 * MILLISECOND * at + 7, 5 * MILLISECOND, thread=11, process=10) for at in range(29)]
    io += [
        write(at, 9, 3 * MILLISECOND * at, 20 * MILLISECOND, thread=12, process=10, source=Source.AIO)
        for at in range(23)
    ]
    fileops = [op(Fileop.FSYNC, 100 * MILLISECOND, thread=11, process=10, result=0)]
    blocks = [
        {"op": BlockOp.WRITE, "start_ns": 50 * MILLISECOND + at, "duration_ns": 40, "bytes": 512}
        for at in range(0, 130, 13)
    ]
    trace = made_trace(
        io, fileops=fileops, blocks=blocks, paths={1: b"/x\xff".decode(errors="surrogateescape")},
        tasks=[{"thread": 11, "process": 10, "comm": b"sort"}], start_monotonic_ns=0,
    )  # fmt: skip
    path = tmp_path / "t.json"
    count = perfetto.write(trace, path, from_s=0.050, to_s=0.061)
    begin, end = 50 * MILLISECOND, 61 * MILLISECOND
    wanted = [
        (
            "read" if row["op"] == 1 else "write",
            row["start_ns"],
            row["start_ns"] + row["duration_ns"],
            10,
            row["thread"],
        )
        for row in io
    ]
    wanted = [it for it in wanted if it[2] >= begin and it[1] <= end]
    found, depth, names = slices(path)
    programs = [(name, first + begin, last + begin, pid, tid) for name, first, last, pid, tid in found if pid == 10]
    assert programs == sorted(wanted)
    assert count == len(wanted) + 10
    device = [(first, last) for _, first, last, pid, _ in found if pid != 10]
    assert device == [(at, at + 40) for at in range(0, 130, 13)]
    assert max(number for _, number in depth) == 4  # requests of 40 ns, every 13 ns
    assert depth[-1] == (117 + 40, 0)
    assert names[10, 11] == "sort"
    with pytest.raises(FlextraceError, match="no operation and no block request is within the window"):
        perfetto.write(trace, tmp_path / "none.json", from_s=50)


def test_a_window_that_nobody_looks_at_is_refused(tmp_path, monkeypatch, trace, cli):
    monkeypatch.setattr(perfetto, "EVENTS_MAX", 3)
    status, error = cli("export", trace, "-o", tmp_path / "t.json")
    assert (status, "choose a smaller one by --from and --to" in error) == (2, True)
    assert not (tmp_path / "t.json").exists()


def test_any_trace_has_a_timeline(tmp_path):
    trace = full_trace(start_monotonic_ns=2**60)
    assert perfetto.write(trace, tmp_path / "t.json") == 5
    json.loads((tmp_path / "t.json").read_text())
