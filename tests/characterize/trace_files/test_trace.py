# SPDX-License-Identifier: Apache-2.0
"""Trace files: what is written is read back, and damage is named instead of believed."""

import json
import struct

import numpy as np
import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.layout import TRACE_VERSION_MINOR, HeaderFlag, RecordKind
from tests.traces.archived import patch
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

HEADER, RECORD = 4096, 64
# Offsets in struct trace_header, computed by hand from the C header.
VERSION_MAJOR_AT, FLAGS_AT, RECORD_COUNT_AT, JSON_OFFSET_AT, JSON_BYTES_AT, JSON_AT = 8, 20, 24, 320, 328, 1024


def full_trace(**header):
    return made_trace(
        [read(0, 100, 10, 5, id=1), write(4096, 200, 20, 7, thread=2, id=2), read(100, -5, 30, id=3)],
        fileops=[{"op": 3, "start_ns": 15, "duration_ns": 3, "result": 0}],
        files=[{"file": 1, "size_bytes": 5000, "inode": 77, "device": 8 << 20 | 1, "resident_bytes": 4096}],
        tasks=[{"thread": 1, "process": 1, "comm": b"sort"}, {"thread": 2, "process": 1, "comm": b"sort"}],
        blocks=[{"op": 1, "start_ns": 12, "duration_ns": 2, "bytes": 4096, "sector": 64, "cause": 1}],
        gaps=[{"lost_kind": 1, "cpu": 3, "lost_count": 9, "start_ns": 1}],
        paths={1: "/data/" + "x" * 100},
        **header,
    )


@pytest.fixture
def written(tmp_path):
    return characterize.write(full_trace(), tmp_path / "a.iotrace")


def test_round_trip(tmp_path):
    original = full_trace(
        flags=HeaderFlag.PLANNED,
        start_monotonic_ns=1,
        start_realtime_ns=2,
        end_monotonic_ns=3,
        end_realtime_ns=4,
        lost={RecordKind.IO: 9},
        metadata={"command": ["sort", "x"]},
    )
    back = characterize.open(characterize.write(original, tmp_path / "a.iotrace"))
    for kind, array in original.arrays.items():
        if kind is RecordKind.FILE:
            array["path_bytes"] = 106
        assert np.array_equal(back.arrays[kind], array), kind
        assert back.header.count[kind] == len(array)
    assert back.header.count[RecordKind.TEXT] == 3  # 106 bytes of path in pieces of 48
    assert back.paths == original.paths
    assert back.files["path"].tolist() == ["/data/" + "x" * 100]
    for name in ("flags", "start_monotonic_ns", "start_realtime_ns", "end_monotonic_ns", "end_realtime_ns"):
        assert getattr(back.header, name) == getattr(original.header, name)
    assert back.header.lost == {RecordKind.IO: 9}
    assert back.header.metadata == {"command": ["sort", "x"]}
    assert any("lost" in warning for warning in back.warnings)


def test_frames(written):
    trace = characterize.open(written)
    assert trace.warnings == []
    assert trace.requests["bytes"].tolist() == [100, 200]
    assert trace.io["result"].tolist() == [100, 200, -5]
    assert trace.tasks["comm"].tolist() == ["sort", "sort"]
    assert trace.files["resident_bytes"].tolist() == [4096.0]
    assert trace.blocks["sector"].tolist() == [64]
    assert trace.gaps["lost_count"].tolist() == [9]


def test_resident_bytes_not_measured_is_nan():
    assert made_trace(files=[{"file": 1}]).files["resident_bytes"].isna().all()


def test_records_are_merged_by_their_start(written):
    body = np.frombuffer(written.read_bytes()[HEADER:], np.uint8).reshape(-1, RECORD)
    kinds = body[:, 0].tolist()
    assert kinds == [3, 7, 7, 7, 4, 4, 1, 5, 2, 1, 1, 6]


def test_empty_trace(tmp_path):
    trace = characterize.open(characterize.write(made_trace(), tmp_path / "empty.iotrace"))
    assert len(trace.requests) == len(trace.files) == len(trace.blocks) == 0
    assert trace.warnings == []


def test_incomplete_file_is_read_up_to_its_last_whole_record(written):
    patch(written, FLAGS_AT, struct.pack("<I", HeaderFlag.INCOMPLETE))
    patch(written, RECORD_COUNT_AT, struct.pack("<Q", 0))
    written.write_bytes(written.read_bytes() + b"\x01" * 20)
    trace = characterize.open(written)
    assert len(trace.io) == 3
    assert len(trace.gaps) == 1
    assert "not closed cleanly" in trace.warnings[0]


def test_what_a_killed_recorder_lost_stays_lost_when_its_trace_is_written_anew(written, tmp_path):
    patch(written, FLAGS_AT, struct.pack("<I", HeaderFlag.INCOMPLETE))
    again = characterize.open(characterize.write(characterize.open(written), tmp_path / "again.iotrace"))
    assert again.header.flags == HeaderFlag.LOST


def test_incomplete_file_ends_at_a_hole(written):
    patch(written, FLAGS_AT, struct.pack("<I", HeaderFlag.INCOMPLETE))
    patch(written, HEADER + 9 * RECORD, b"\0" * RECORD)
    trace = characterize.open(written)
    assert len(trace.io) == 1
    assert len(trace.gaps) == 0


def test_truncated_in_the_middle_of_a_record(written):
    written.write_bytes(written.read_bytes()[: HEADER + 7 * RECORD + 30])
    trace = characterize.open(written)
    assert len(trace.io) == 1
    assert "truncated: 7 of 12 records" in trace.warnings[0]
    assert trace.header.flags & HeaderFlag.LOST


@pytest.mark.parametrize("size", [8, 100, HEADER - 1])
def test_cut_in_its_header(written, size):
    written.write_bytes(written.read_bytes()[:size])
    with pytest.raises(FlextraceError, match="cut off within its header"):
        characterize.open(written)


@pytest.mark.parametrize("content", [b"version,time,op\n1,2,3\n", b"FLEX", b"\0" * 8192, b"\n"])
def test_foreign_file(tmp_path, content):
    path = tmp_path / "foreign.csv"
    path.write_bytes(content)
    with pytest.raises(FlextraceError, match=r"(?s)not a flextrace trace.*flextrace import"):
        characterize.open(path)


def test_missing_file(tmp_path):
    with pytest.raises(FlextraceError, match=r"cannot read trace .*No such file"):
        characterize.open(tmp_path / "none.iotrace")


def test_newer_major_version_is_refused(written):
    patch(written, VERSION_MAJOR_AT, struct.pack("<H", 2))
    with pytest.raises(FlextraceError, match=f"version 2.{TRACE_VERSION_MINOR}, this flextrace reads version 1"):
        characterize.open(written)


def test_newer_minor_version_is_read(written):
    patch(written, VERSION_MAJOR_AT + 2, struct.pack("<H", TRACE_VERSION_MINOR + 1))
    assert characterize.open(written).header.version == (1, TRACE_VERSION_MINOR + 1)


def test_unknown_record_kinds_are_ignored(written):
    patch(written, HEADER + 6 * RECORD, b"\x0f")
    trace = characterize.open(written)
    assert len(trace.io) == 2
    assert len(trace.blocks) == 1


@pytest.mark.parametrize("extra", [0, 1, 5000])
def test_json_block_of_any_size(tmp_path, extra):
    """3072 bytes fit into the header; a larger block stands behind the records."""
    metadata = {"command": "x" * (3072 - len('{"command":""}') + extra)}
    path = characterize.write(full_trace(metadata=metadata), tmp_path / "a.iotrace")
    content = path.read_bytes()
    offset, size = struct.unpack_from("<QQ", content, JSON_OFFSET_AT)
    assert (offset, size) == (1024 if extra == 0 else HEADER + 12 * RECORD, 3072 + extra)
    assert json.loads(content[offset : offset + size]) == metadata
    trace = characterize.open(path)
    assert trace.header.metadata == metadata
    assert trace.warnings == []
    assert len(trace.io) == 3


def test_json_block_cut_off(tmp_path):
    path = characterize.write(full_trace(metadata={"command": "x" * 5000}), tmp_path / "a.iotrace")
    path.write_bytes(path.read_bytes()[:-10])
    trace = characterize.open(path)
    assert trace.header.metadata == {}
    assert "JSON block is cut off" in trace.warnings[0]
    assert len(trace.io) == 3


@pytest.mark.parametrize("text", [b"{broken", b"[1, 2]", b"\xff\xfe\xfd", b"[" * 3000])
def test_damaged_json(written, text):
    patch(written, JSON_AT, text)
    patch(written, JSON_BYTES_AT, struct.pack("<Q", len(text)))
    trace = characterize.open(written)
    assert trace.header.metadata == {}
    assert "JSON block is damaged" in trace.warnings[0]


def test_paths_that_are_not_utf8(tmp_path):
    name = b"/data/\xff\xfe-" + "ü".encode() * 30
    text = name.decode("utf-8", "surrogateescape")
    trace = made_trace(files=[{"file": 1}, {"file": 2}], paths={1: text, 2: ""})
    back = characterize.open(characterize.write(trace, tmp_path / "a.iotrace"))
    assert back.paths[1].encode("utf-8", "surrogateescape") == name
    assert back.files["path"].tolist() == [text, ""]


def test_an_existing_file_is_kept_unless_forced(written):
    before = written.read_bytes()
    with pytest.raises(FlextraceError, match="--force") as caught:
        characterize.write(made_trace(), written)
    assert caught.value.exit_code == 2
    assert written.read_bytes() == before
    characterize.write(made_trace(), written, force=True)
    assert len(characterize.open(written).io) == 0


def test_writing_where_there_is_no_directory(tmp_path):
    with pytest.raises(FlextraceError, match=r"cannot write .*a\.iotrace"):
        characterize.write(made_trace(), tmp_path / "none" / "a.iotrace")


def test_measured_and_declared():
    assert made_trace().measured
    assert not made_trace(flags=HeaderFlag.UNTIMED).measured
    assert not made_trace(flags=HeaderFlag.PLANNED).measured
    assert made_trace(metadata={"declared": {"processNum": 4}}).declared == {"processNum": 4}
    assert made_trace().declared == {}
