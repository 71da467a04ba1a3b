# SPDX-License-Identifier: Apache-2.0
"""Archives: byte for byte the trace they were made from, readable by others, and never believed when damaged."""

import hashlib
import json
import os
import random
import struct

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import characterize
from characterize.errors import FlextraceError
from characterize.layout import RECORD_DTYPE, TRACE_VERSION_MINOR, HeaderFlag, RecordKind
from characterize.trace_files import archive_columns
from characterize.trace_files.archive import pack, unpack
from characterize.trace_files.archive_columns import table_of
from tests.traces.archived import (
    FLAGS_AT,
    HEADER,
    RECORD,
    RECORDED_NS,
    VERSION_MAJOR_AT,
    assert_equal_traces,
    full_trace,
    patch,
    trace_file,
)

pytestmark = pytest.mark.parallel

pytest_plugins = ["tests.traces.archive_fixtures"]


# ---- nothing is lost ----


def test_an_archive_opens_as_its_trace(trace, archive):
    assert_equal_traces(characterize.open(archive), characterize.open(trace))
    assert characterize.open(archive).path == archive


@pytest.mark.parametrize("archived", [True, False], ids=["archive", "table"])
def test_files_of_names_that_are_not_utf8_are_written_and_read(trace, tmp_path, archived):
    path = tmp_path / os.fsdecode(b"\xff.parquet")
    if archived:
        pack(trace, path)
        assert_equal_traces(characterize.open(path), characterize.open(trace))
    else:
        pq.write_table(pa.table({"start": [1.0], "op": ["R"], "offset": [0], "bytes": [4096]}), tmp_path / "t")
        (tmp_path / "t").rename(path)
        assert len(characterize.open(path).blocks) == 1


def test_and_gives_it_back(trace, archive, tmp_path):
    assert unpack(archive, tmp_path / "b.iotrace") == 19
    assert (tmp_path / "b.iotrace").read_bytes() == trace.read_bytes()


# Kinds of this format, of no format and of a newer one; most bytes zero, as in real records.
any_record = st.builds(
    lambda kind, sparse, rest: bytes([kind]) + (bytes(at if at > 200 else 0 for at in rest) if sparse else rest),
    st.one_of(st.integers(1, 9), st.integers(0, 255)),
    st.booleans(),
    st.binary(min_size=63, max_size=63),
)


@settings(max_examples=150)
@given(
    records=st.lists(any_record, max_size=40),
    batch_records=st.integers(1, 50),
    flags=st.sampled_from([0, HeaderFlag.INCOMPLETE, HeaderFlag.LOST]),
    tail=st.one_of(st.just(b""), st.just(b'{"command": "x"}'), st.binary(max_size=63)),
)
def test_any_records_in_batches_of_any_size(tmp_path_factory, records, batch_records, flags, tail):
    directory = tmp_path_factory.mktemp("any")
    trace = trace_file(directory / "a.iotrace", records, flags=flags, tail=tail)
    packed = pack(trace, directory / "a.parquet", batch_records=batch_records)
    assert packed.left_out_bytes == 0
    unpack(directory / "a.parquet", directory / "b.iotrace")
    assert (directory / "b.iotrace").read_bytes() == trace.read_bytes()
    assert_equal_traces(characterize.open(directory / "a.parquet"), characterize.open(trace))


@pytest.mark.parametrize("cut", [1, 30, 64, 65, 64 * 9, 64 * 19 - 1])
@pytest.mark.parametrize("flags", [0, HeaderFlag.INCOMPLETE])
def test_torn_ends_are_kept_as_they_are(trace, tmp_path, cut, flags):
    patch(trace, FLAGS_AT, struct.pack("<I", flags))
    trace.write_bytes(trace.read_bytes()[:-cut])
    pack(trace, tmp_path / "a.parquet")
    unpack(tmp_path / "a.parquet", tmp_path / "b.iotrace")
    assert (tmp_path / "b.iotrace").read_bytes() == trace.read_bytes()
    assert_equal_traces(characterize.open(tmp_path / "a.parquet"), characterize.open(trace))


@pytest.mark.parametrize("hole_at", [0, 1, 7, 8, 9, 18])
@pytest.mark.parametrize("batch_records", [1, 8, 1000])
def test_an_incomplete_trace_ends_at_its_hole(trace, tmp_path, hole_at, batch_records):
    patch(trace, FLAGS_AT, struct.pack("<I", HeaderFlag.INCOMPLETE))
    patch(trace, HEADER + hole_at * RECORD, b"\0" * RECORD)
    assert pack(trace, tmp_path / "a.parquet", batch_records=batch_records).records == hole_at
    assert_equal_traces(characterize.open(tmp_path / "a.parquet"), characterize.open(trace))


def test_a_long_hole_is_left_out_and_told(trace, tmp_path, cli):
    patch(trace, FLAGS_AT, struct.pack("<I", HeaderFlag.INCOMPLETE))
    os.truncate(trace, 40 << 20)
    status, error = cli("export", trace, "-o", tmp_path / "a.parquet")
    assert status == 3, "its recorder was killed"
    assert "MiB, behind its last whole record, are not in the archive" in error
    whole = HEADER + 19 * RECORD
    unpack(tmp_path / "a.parquet", tmp_path / "b.iotrace")
    assert (tmp_path / "b.iotrace").read_bytes() == trace.read_bytes()[:whole]
    assert_equal_traces(characterize.open(tmp_path / "a.parquet"), characterize.open(trace))


def test_a_complete_trace_with_too_much_behind_it_is_refused(trace, tmp_path):
    os.truncate(trace, 40 << 20)
    with pytest.raises(FlextraceError, match="stand behind its records"):
        pack(trace, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == [trace]


# ---- others can read it ----


def test_pandas_reads_plain_values_exactly(archive):
    frame = pd.read_parquet(archive).sort_values("record")
    io = frame[frame["kind"] == RecordKind.IO]
    assert frame["record"].tolist() == list(range(19))
    assert io["start_ns"].tolist() == [RECORDED_NS, RECORDED_NS + 10]
    assert io["id"].tolist() == [1, 2**63 + 1]
    assert io["missed_bytes"].isna().all()
    assert io["sector"].isna().all()
    assert frame["resident_bytes"].dropna().tolist() == [4096]
    files = frame[frame["kind"] == RecordKind.FILE]
    assert files["path"].tolist() == ["/data/" + "x" * 100, "/data/\\xff-" + "ü" * 60]
    assert frame[frame["kind"] == RecordKind.TASK]["comm"].tolist()[0] == "sort"
    assert frame[frame["kind"] == RecordKind.RESIDENT]["bytes"].tolist() == [2**40]


def test_the_file_says_what_it_is(archive):
    metadata = pq.read_metadata(archive).metadata
    document = json.loads(metadata[b"flextrace"])
    assert document["schema"] == "flextrace.archive/6"
    assert document["numbers"]["kind"]["1"] == "IO"
    assert json.loads(metadata[b"flextrace.trace"]) == {"command": ["sort", "x"]}


def test_the_checksum_is_that_of_the_trace(trace, archive):
    document = json.loads(pq.read_metadata(archive).metadata[b"flextrace"])
    assert document["sha256"] == hashlib.sha256(trace.read_bytes()).hexdigest()


# ---- damage ----


def test_truncated_anywhere(archive):
    content = archive.read_bytes()
    for size in [4, 5, 11, 12, *range(100, len(content), 997), len(content) - 1]:
        archive.write_bytes(content[:size])
        with pytest.raises(FlextraceError, match=r"cut off or damaged|not an archive"):
            characterize.open(archive)


def test_a_flipped_bit_is_found_or_means_nothing(trace, archive):
    """Of each file, one bit anywhere; statistics of pages, for one, are read by nobody."""
    content, original = archive.read_bytes(), characterize.open(trace)
    chance, told = random.Random(1), []
    for _ in range(400):
        damaged = bytearray(content)
        damaged[chance.randrange(4, len(content))] ^= 1 << chance.randrange(8)
        archive.write_bytes(damaged)
        try:
            opened = characterize.open(archive)
        except FlextraceError as error:
            told.append(str(error))
        else:
            assert_equal_traces(opened, original)
    assert len(told) > 200
    assert all(str(archive) in text and "\n" not in text for text in told)


def test_a_flipped_bit_of_a_value_is_found(trace, tmp_path):
    """With records enough that most of the file is values; expanding leaves nothing behind."""
    rng = np.random.default_rng(1)
    records = rng.integers(0, 256, (20_000, RECORD), np.uint8)
    records[:, 0] = RecordKind.IO
    records[:, 3] = 0
    trace_file(trace, [records.tobytes()[at * RECORD : (at + 1) * RECORD] for at in range(len(records))])
    archive = tmp_path / "b.parquet"
    pack(trace, archive)
    content, chance = archive.read_bytes(), random.Random(2)
    for _ in range(20):
        damaged = bytearray(content)
        damaged[chance.randrange(200_000, 600_000)] ^= 1 << chance.randrange(8)
        archive.write_bytes(damaged)
        with pytest.raises(FlextraceError, match="cut off or damaged"):
            characterize.open(archive)
        with pytest.raises(FlextraceError, match="cut off or damaged"):
            unpack(archive, tmp_path / "c.iotrace")
    assert sorted(tmp_path.iterdir()) == [trace, archive]


def test_another_parquet_file(tmp_path):
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)
    with pytest.raises(FlextraceError, match=r"other.parquet has no column for start among a"):
        characterize.open(path)


def test_an_archive_that_was_written_anew_by_others(archive, tmp_path):
    pd.read_parquet(archive).head(3).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(FlextraceError, match="unchanged"):
        characterize.open(tmp_path / "b.parquet")


OF_WAKES = {"wakes", "waker", "woken_ns", "slept_ns"}
OF_FOLIOS = {"large_folios", "large_folio_order"}


@pytest.mark.parametrize(
    ("version", "lacks"),
    [
        (1, {"processor_share", *OF_FOLIOS, *OF_WAKES}),
        (2, {*OF_FOLIOS, *OF_WAKES}),
        (3, OF_FOLIOS),
        (4, {"large_folio_order"}),
        (5, set()),
    ],
)
def test_archives_of_before_columns_were_added_are_read(tmp_path, monkeypatch, version, lacks):
    """Also where a trace of now was packed by a flextrace of then, which knew no WAKE or HOLE records."""
    wake = {"wakes": 3, "waker": 2, "start_ns": RECORDED_NS, "woken_ns": RECORDED_NS - 1, "cause": 9, "id": 1}
    hole = {"file": 1, "offset": 8192, "bytes": 2**40}
    trace = characterize.write(full_trace(wakes=[wake], holes=[hole]), tmp_path / "a.iotrace")
    older = dict(RECORD_DTYPE)
    del older[RecordKind.HOLE]
    if lacks > OF_WAKES:
        del older[RecordKind.WAKE]
    for kind, dtype in older.items():
        fields = [(f"reserved of {name}" if name in lacks - OF_WAKES else name, kept) for name, kept in dtype.descr]
        older[kind] = np.dtype(fields)
    schema = pa.schema([column for column in archive_columns.SCHEMA if column.name not in lacks])
    for module in ("archive", "archive_columns"):
        monkeypatch.setattr(f"characterize.trace_files.{module}.RECORD_DTYPE", older)
        monkeypatch.setattr(f"characterize.trace_files.{module}.SCHEMA", schema)
    monkeypatch.setattr("characterize.trace_files.archive.SCHEMA_NAME", f"flextrace.archive/{version}")
    pack(trace, tmp_path / "a.parquet")
    monkeypatch.undo()
    assert not lacks & set(pq.read_schema(tmp_path / "a.parquet").names)
    assert len(characterize.open(tmp_path / "a.parquet").wakes) == 1
    assert characterize.open(tmp_path / "a.parquet").holes["bytes"].tolist() == [2**40]
    assert_equal_traces(characterize.open(tmp_path / "a.parquet"), characterize.open(trace))
    unpack(tmp_path / "a.parquet", tmp_path / "b.iotrace")
    assert (tmp_path / "b.iotrace").read_bytes() == trace.read_bytes()


def test_newer_versions_are_refused(trace, tmp_path, monkeypatch):
    monkeypatch.setattr("characterize.trace_files.archive.SCHEMA_NAME", "flextrace.archive/7")
    pack(trace, tmp_path / "a.parquet")
    monkeypatch.undo()
    with pytest.raises(FlextraceError, match=r"schema flextrace.archive/7, this flextrace reads flextrace.archive/6"):
        characterize.open(tmp_path / "a.parquet")


def test_a_trace_of_a_newer_major_version_is_refused(trace, tmp_path):
    patch(trace, VERSION_MAJOR_AT, struct.pack("<H", 2))
    with pytest.raises(FlextraceError, match=f"trace format version 2.{TRACE_VERSION_MINOR}"):
        pack(trace, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == [trace]


def test_an_archive_that_reads_back_differently_gets_no_name(trace, tmp_path, monkeypatch):
    def wrong_table_of(kind, records, *rest):
        return table_of(kind, records ^ np.uint8(kind == RecordKind.IO) * np.eye(1, RECORD, 40, dtype=np.uint8), *rest)

    monkeypatch.setattr("characterize.trace_files.archive.table_of", wrong_table_of)
    with pytest.raises(FlextraceError, match=r"a.parquet was written but reads back differently"):
        pack(trace, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == [trace]
