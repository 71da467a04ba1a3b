# SPDX-License-Identifier: Apache-2.0
"""Why block bytes moved, computed by hand; no byte of a stacked device is counted twice, anywhere."""

import json
import math

import numpy as np
import pytest

import characterize as package
from characterize.characterization import characterize
from characterize.layout import BlockDataClass, BlockFlag, BlockOp
from characterize.links import links_of
from characterize.response_time import syncs_of
from characterize.stream import stream_of
from characterize.text import render
from characterize.workload import workload_of
from flextrace.main import main
from selfscale.reporting.trace_report import trace_section
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

DISK, DM = 8 << 20, 254 << 20


def piece(block, kind, size, **fields):
    return {"block": block, "class": BlockDataClass[kind], "bytes": size, **fields}


def linked_trace(**rows):
    """100 KiB read and 72 KiB written by programs, 96 KiB and 136 KiB by the disk."""
    kib = 1024
    blocks = [
        {"op": BlockOp.READ, "start_ns": 10, "bytes": 64 * kib, "sector": 0, "cause": 1},  # 0
        {"op": BlockOp.READ, "start_ns": 20, "bytes": 32 * kib, "sector": 800},  # 1
        {"op": BlockOp.WRITE, "start_ns": 30, "bytes": 64 * kib, "sector": 1600},  # 2
        {"op": BlockOp.WRITE, "start_ns": 40, "bytes": 40 * kib, "sector": 2400},  # 3
        {"op": BlockOp.WRITE, "start_ns": 50, "bytes": 32 * kib, "sector": 3200},  # 4
        {"op": BlockOp.WRITE, "start_ns": 60, "bytes": 512 * kib, "status": 10},  # 5: failed
        {"op": BlockOp.FLUSH, "start_ns": 70},  # 6
        {"op": BlockOp.DISCARD, "start_ns": 80, "bytes": 1 << 30},  # 7
    ]
    pieces = [
        piece(0, "FILL", 40 * kib, file=1, cause=1, process=5, thread=6),
        piece(0, "FILL", 8 * kib, file=2, process=5),  # read ahead by nobody known; 16 KiB of the request are left over
        piece(1, "DIRECT", 24 * kib, file=1, cause=2, process=5),
        piece(1, "METADATA", 8 * kib),
        piece(2, "WRITEBACK", 48 * kib, file=3, cause=3, process=5),
        piece(2, "WRITEBACK", 12 * kib, file=3, process=5),  # a store to a mapping
        piece(2, "WRITEBACK", 4 * kib, file=3),
        piece(3, "JOURNAL", 40 * kib),
        piece(4, "UNTRACED", 32 * kib, file=9, process=99),
        piece(5, "WRITEBACK", 512 * kib, file=3, cause=3, process=5),
        piece(7, "UNKNOWN", 1 << 29),
    ]
    io = [read(0, 100 * kib, 5, id=1), write(0, 72 * kib, 25, id=3, file=3)]
    files = [{"file": 1}, {"file": 2}, {"file": 3}]
    return made_trace(io, blocks=blocks, block_data=pieces, files=files, paths={1: "/in", 2: "/in2", 3: "/out"}, **rows)


def test_classes_by_hand():
    links = links_of(linked_trace())
    assert (links.read_bytes, links.written_bytes) == (96 * 1024, 136 * 1024)
    table = links.by_class.set_index("class")
    assert (table[["read_bytes", "written_bytes"]] / 1024).astype(int).T.to_dict("list") == {
        "UNKNOWN": [16, 0],
        "DIRECT": [24, 0],
        "FILL": [48, 0],
        "WRITEBACK": [0, 64],
        "METADATA": [8, 0],
        "JOURNAL": [0, 40],
        "UNTRACED": [0, 32],
    }
    assert table["share"].sum() == pytest.approx(1)
    assert links.known_share == pytest.approx(1 - 16 / 232)


def test_linked_shares_by_hand():
    links = links_of(linked_trace())
    assert links.issued.share == pytest.approx(64 / 72)
    assert links.written_back.share == pytest.approx(60 / 64)
    assert links.written_back_to_operation.share == pytest.approx(48 / 64)
    assert links.others.to_numpy().tolist() == [["FLUSH", 1, 0], ["DISCARD", 1, 1 << 30]]


def test_attributed_bytes_are_those_of_the_pieces_and_of_what_they_leave_over():
    """40 and 24 KiB read, 16 KiB left over of a request that has a cause, 48 KiB written, of 232 KiB."""
    trace = linked_trace()
    share = characterize(trace).layers["block"].extended["attributedFrac"]
    assert share == pytest.approx((40 + 24 + 16 + 48) / 232)


def test_amplification_is_of_what_traced_programs_caused():
    links = links_of(linked_trace())
    assert links.read_amplification == pytest.approx(96 / 100)
    assert links.write_amplification == pytest.approx(104 / 72)


def test_files_by_their_block_bytes():
    table = links_of(linked_trace()).by_file
    assert (table[["read_bytes", "written_bytes"]] // 1024).to_numpy().tolist() == [
        [24, 40],  # no file: left over, metadata, journal
        [64, 0],
        [0, 64],
        [0, 32],
        [8, 0],
    ]
    assert table["file"].tolist() == [0, 1, 3, 9, 2]
    assert table["path"].tolist() == ["", "/in", "/out", "", "/in2"]


@pytest.mark.parametrize(
    "trace",
    [
        made_trace(),
        made_trace([read(0, 10)]),
        made_trace(blocks=[{"op": 6}]),
        made_trace(block_data=[{"bytes": 512, "class": 1}]),
        made_trace(blocks=[{"op": 1, "bytes": 512}], block_data=[{"block": 0, "bytes": 512, "class": 77}]),
    ],
)
def test_links_of_little(trace):
    document = json.loads(json.dumps(links_of(trace).as_document(), allow_nan=False))
    assert document["direct_and_fill"]["linked_share"] is None
    assert document["readAmplification"] in (None, 0)


def test_a_trace_without_pieces_says_nothing_of_classes():
    links = links_of(made_trace([read(0, 100)], blocks=[{"op": 1, "bytes": 4096}]))
    assert not len(links.by_class)
    assert math.isnan(links.known_share)
    assert links.read_amplification == 40.96


def test_orphans_are_left_out():
    trace = linked_trace()
    trace.block_of_data[0] = -1
    links = links_of(trace)
    assert links.orphans == 1
    assert links.read_bytes == 96 * 1024
    assert links.by_class.set_index("class").loc["UNKNOWN", "read_bytes"] == 56 * 1024


def stacked_rows(upper: int):
    """The same three requests on a disk, and again on the dm device above it (flag `upper`)."""
    rows = [
        {"op": BlockOp.WRITE, "start_ns": 10, "duration_ns": 100, "bytes": 8192, "sector": 0, "cause": 1},
        {"op": BlockOp.WRITE, "start_ns": 20, "duration_ns": 10, "bytes": 4096, "sector": 16, "status": 10},
        {"op": BlockOp.FLUSH, "start_ns": 30, "duration_ns": 10},
    ]
    below = [{**row, "device": DISK} for row in rows]
    return below, below + [{**row, "device": DM, "flags": upper} for row in rows]


def test_no_total_counts_a_stacked_device():
    """Every number of the block layer is the same with the device above as without it."""
    below, both = stacked_rows(int(BlockFlag.STACKED))
    io = [write(0, 8192, 5, id=1)]
    pieces = [piece(0, "DIRECT", 8192, cause=1)]
    alone = made_trace(io, blocks=below, block_data=pieces)
    twice = made_trace(io, blocks=both, block_data=[*pieces, piece(3, "DIRECT", 8192, cause=1)])
    ours, theirs = characterize(twice).as_document(), characterize(alone).as_document()
    assert json.dumps(ours["layers"]) == json.dumps(theirs["layers"])
    assert ours["links"].pop("stacked") == {"requests": 3, "bytes": 8192}
    assert theirs["links"].pop("stacked") == {"requests": 0, "bytes": 0}
    assert ours["links"] == theirs["links"]
    assert ours["links"]["writeAmplification"] == 1
    assert workload_of(twice, "block") == workload_of(alone, "block")
    assert len(syncs_of(twice, "block")) == 1
    assert [table.rows for table in trace_section(1, stream_of(twice), characterize(twice)).tables] == [
        table.rows for table in trace_section(1, stream_of(alone), characterize(alone)).tables
    ]


def test_without_the_flag_two_devices_are_two_devices():
    _, both = stacked_rows(0)
    assert characterize(made_trace(blocks=both)).layers["block"].counts["written_bytes"] == 16384


def test_a_trace_of_stacked_devices_alone_counts_them():
    _, both = stacked_rows(int(BlockFlag.STACKED))
    trace = made_trace(blocks=both[3:], block_data=[piece(0, "DIRECT", 8192, cause=1)])
    assert characterize(trace).layers["block"].counts["written_bytes"] == 8192
    links = links_of(trace)
    assert (links.written_bytes, links.stacked_requests) == (8192, 0)


def test_a_report_has_no_shares_among_the_bytes_that_moved():
    trace = linked_trace(metadata={"command": ["cat", "a b"]})
    section = trace_section(1, stream_of(trace), characterize(trace))
    assert section.sentences[0] == "Command: cat 'a b'"
    tables = {table.title: [[cell.text for cell in row] for row in table.rows] for table in section.tables}
    moved = tables["Why block bytes moved"]
    assert len(moved) == 7
    assert ["fill", "48 KiB", "0 B"] in moved
    assert tables["Block bytes whose cause is known"] == [
        ["direct, fill", "72 KiB", "their operation", "88.89%"],
        ["write-back", "64 KiB", "the process that dirtied them", "93.75%"],
        ["write-back", "64 KiB", "the operation that dirtied them", "75.00%"],
    ]


def test_text_and_document(tmp_path, capsys):
    path = package.write(linked_trace(), tmp_path / "a.iotrace")
    text = render(characterize(package.open(path)))
    assert all(len(line) <= 90 for line in text.splitlines())
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("    ") and line.split()}
    assert "0.2759" in rows["writeback"]
    assert "linked to the operation that dirtied them" in rows["write-back"]
    assert main(["info", str(path)]) == 0
    out = capsys.readouterr().out
    assert "block bytes  unknown 6.9%, direct 10.3%, fill 20.7%, writeback 27.6%" in out
    assert "93.7500% of the write-back bytes linked to the process that dirtied them" in out
    assert main(["info", str(path), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["links"]["direct_and_fill"] == {
        "bytes": 73728,
        "linked_bytes": 65536,
        "linked_share": pytest.approx(8 / 9),
    }
    assert document["links"]["files"][1]["path"] == "/in"


def test_a_million_pieces_are_vectorised():
    """Only that it is no loop over rows: a second is far more than it takes."""
    count = 1_000_000
    trace = made_trace(blocks=[{"op": 1, "bytes": 4096}])
    blocks = np.repeat(next(iter([trace.arrays[5]])), count)
    pieces = np.zeros(count, dtype=trace.arrays[8].dtype)
    pieces["kind"], pieces["class"], pieces["bytes"], pieces["cause"] = 8, 1, 4096, 1
    big = package.Trace(trace.header, {5: blocks, 8: pieces}, block_of_data=np.arange(count))
    assert links_of(big).issued.share == 1
