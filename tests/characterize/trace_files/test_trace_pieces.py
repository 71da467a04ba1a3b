# SPDX-License-Identifier: Apache-2.0
"""Pieces of block requests, resident ranges and threads that change their program; traces of format 1.0."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import characterize
from characterize.layout import BlockDataClass, RecordKind
from flextrace.main import main
from tests.traces.made_trace import made_trace, read

pytestmark = pytest.mark.parallel

HEADER, RECORD = 4096, 64
FLAGS_AT, VERSION_MINOR_AT, LOST_AT = 20, 10, 72 + 16 * 8
BLOCKS = [
    {"op": 2, "start_ns": 10, "duration_ns": 5, "bytes": 8192, "sector": 0},
    {"op": 1, "start_ns": 20, "duration_ns": 5, "bytes": 4096, "sector": 64},
    {"op": 1, "start_ns": 20, "duration_ns": 5, "bytes": 8192, "sector": 640, "device": 9 << 20},
]
PIECES = [
    {"block": 0, "class": BlockDataClass.WRITEBACK, "file": 1, "bytes": 4096, "sector": 0, "cause": 7, "process": 3},
    {"block": 0, "class": BlockDataClass.JOURNAL, "bytes": 4096, "sector": 8},
    {"block": 2, "class": BlockDataClass.FILL, "file": 2, "bytes": 8192, "sector": 640, "offset": 4096},
]


def pieces_trace(**rows):
    return made_trace(
        [read(0, 4096, 20)],
        blocks=BLOCKS,
        block_data=PIECES,
        files=[{"file": 1}, {"file": 2}],
        resident=[{"file": 2, "time_ns": 1, "offset": 0, "bytes": 4096}],
        paths={1: "/log", 2: "/data"},
        **rows,
    )


@pytest.fixture
def written(tmp_path):
    return characterize.write(pieces_trace(), tmp_path / "a.iotrace")


def kinds_of(path):
    return np.frombuffer(path.read_bytes()[HEADER:], np.uint8).reshape(-1, RECORD)[:, 0].tolist()


def test_pieces_and_resident_ranges_are_read_back(written):
    trace = characterize.open(written)
    assert trace.warnings == []
    data = trace.block_data
    assert data["block"].tolist() == [0, 0, 2]
    assert data["class"].tolist() == [BlockDataClass.WRITEBACK, BlockDataClass.JOURNAL, BlockDataClass.FILL]
    assert data["file"].map(trace.paths).tolist()[::2] == ["/log", "/data"]
    assert data["offset"].tolist() == [0, 0, 4096]
    assert data["start_ns"].tolist() == [10, 10, 20]
    assert data["device"].tolist() == [8 << 20, 8 << 20, 9 << 20]
    assert (data["cause"].tolist(), data["process"].tolist()) == ([7, 0, 0], [3, 0, 0])
    assert trace.resident[["file", "offset", "bytes"]].to_numpy().tolist() == [[2, 0, 4096]]
    assert trace.header.count[RecordKind.BLOCK_DATA] == 3


def test_pieces_stand_behind_their_request(written):
    """FILE TEXT FILE TEXT RESIDENT, then by start: two of the requests begin at the same time as the read."""
    assert kinds_of(written) == [3, 7, 3, 7, 9, 5, 8, 8, 1, 5, 5, 8]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_owners_survive_any_order(tmp_path_factory, rows, random):
    """Equal starts, equal devices, requests without pieces; the pieces in any order in memory."""
    blocks = [{"op": 1, "start_ns": start, "device": 8 << 20 | device} for start, device, _ in rows]
    pieces = [
        {"block": number, "bytes": 512 * (at + 1), "sector": number, "offset": at}
        for number, (_, _, count) in enumerate(rows)
        for at in range(count)
    ]
    random.shuffle(pieces)
    trace = made_trace(blocks=[{**block, "sector": at} for at, block in enumerate(blocks)], block_data=pieces)
    path = tmp_path_factory.mktemp("owners") / "a.iotrace"
    back = characterize.open(characterize.write(trace, path))
    assert len(back.block_data) == len(pieces)
    owner = back.blocks["sector"].to_numpy()[back.block_data["block"].to_numpy()]
    assert owner.tolist() == back.block_data["sector"].tolist()


def test_a_piece_whose_request_was_lost_belongs_to_none(tmp_path):
    """The BLOCK record of the second request is gone: its piece then follows the first one's pieces."""
    trace = pieces_trace()
    trace.arrays[RecordKind.BLOCK] = trace.arrays[RecordKind.BLOCK][:2]
    trace.block_of_data[2] = -1
    trace.header.lost = {RecordKind.BLOCK: 1}
    back = characterize.open(characterize.write(trace, tmp_path / "a.iotrace"))
    assert back.block_data["block"].tolist() == [0, 0, -1]
    assert not any("damaged" in warning for warning in back.warnings)


def test_pieces_without_their_request_are_named_where_nothing_was_lost(written):
    content = bytearray(written.read_bytes())
    at = HEADER + kinds_of(written).index(5) * RECORD
    content[at] = 15
    written.write_bytes(bytes(content))
    trace = characterize.open(written)
    assert trace.block_data["block"].tolist() == [-1, -1, 1]
    assert "2 BLOCK_DATA records do not follow" in trace.warnings[0]


def test_pieces_before_any_request():
    trace = made_trace(block_data=[{"bytes": 512}])
    assert trace.block_data["block"].tolist() == [-1]


def test_a_thread_is_what_its_last_record_says(tmp_path):
    """A shell forks and the child becomes sort: one thread, one row."""
    tasks = [
        {"thread": 1, "process": 1, "comm": b"sh", "time_ns": 1},
        {"thread": 2, "process": 2, "comm": b"sh", "time_ns": 2},
        {"thread": 2, "process": 2, "comm": b"sort", "time_ns": 5},
    ]
    trace = characterize.open(characterize.write(made_trace(tasks=tasks), tmp_path / "a.iotrace"))
    assert trace.tasks[["thread", "comm", "time_ns"]].to_numpy().tolist() == [[1, "sh", 1], [2, "sort", 5]]
    assert len(trace.arrays[RecordKind.TASK]) == 3


@pytest.fixture
def version_1_0(tmp_path):
    """What the first format had: kinds up to TEXT, no totals, no flag of the second."""
    trace = made_trace(
        [read(0, 4096, 20, id=1)],
        blocks=[{**BLOCKS[1], "cause": 1}],
        files=[{"file": 1, "size_bytes": 4096, "resident_bytes": 0}],
        tasks=[{"thread": 1, "process": 1, "comm": b"cat"}],
        paths={1: "/data"},
        metadata={"made_by": "flextrace record 0.1.0", "probes": "tp_btf", "skipped": {"not_a_file": 3}},
    )
    path = characterize.write(trace, tmp_path / "old.iotrace")
    content = bytearray(path.read_bytes())
    struct.pack_into("<H", content, VERSION_MINOR_AT, 0)
    path.write_bytes(bytes(content))
    return path


def test_a_trace_of_format_1_0_is_read(version_1_0):
    trace = characterize.open(version_1_0)
    assert trace.header.version == (1, 0)
    assert trace.warnings == []
    assert (len(trace.io), len(trace.blocks), len(trace.block_data), len(trace.resident)) == (1, 1, 0, 0)


@pytest.mark.parametrize("verb", ["info", "characterize"])
@pytest.mark.parametrize("output", ["text", "json"])
def test_verbs_take_a_trace_of_format_1_0(version_1_0, capsys, verb, output):
    assert main([verb, str(version_1_0), "--format", output]) == 0
    text = capsys.readouterr().out
    assert "/data" in text or verb == "characterize"
    assert "attributedFrac" in text or verb == "info"
