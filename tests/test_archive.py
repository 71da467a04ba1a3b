# SPDX-License-Identifier: Apache-2.0
"""Archives: byte for byte the trace they were made from, readable by others, and never believed when damaged."""

import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_trace import made_trace, read, write
from straced import ROOT, needs_engine

import characterize
from characterize.archive import pack, unpack
from characterize.archive_columns import table_of
from characterize.errors import FlextraceError
from characterize.layout import HeaderFlag, RecordKind
from flextrace.main import main
from selfscale.explore import Exploration
from selfscale.plan import Settings
from tests.synthetic_machine import MIB, Machine

HEADER, RECORD = 4096, 64
# Offsets in struct trace_header, computed by hand from the C header.
VERSION_MAJOR_AT, FLAGS_AT, RECORD_COUNT_AT, JSON_OFFSET_AT = 8, 20, 24, 320
RECORDED_NS = 2**60 + 1  # needs more digits than a float has

pytest_plugins = ["small_file_system"]

needs_recorder = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists(),
    reason="recording needs root and a kernel with BTF",
)


def full_trace(**header):
    return made_trace(
        [read(0, 100, RECORDED_NS, 5, id=1), write(4096, 200, RECORDED_NS + 10, 7, thread=2, id=2**63 + 1)],
        fileops=[{"op": 3, "start_ns": RECORDED_NS + 5, "duration_ns": 3, "result": -5}],
        files=[{"file": 1, "size_bytes": 5000, "inode": 77}, {"file": 2, "resident_bytes": 4096}],
        tasks=[{"thread": 1, "process": 1, "comm": b"sort"}, {"thread": 2, "process": 1, "comm": b"\xff\xfe"}],
        blocks=[{"op": 1, "start_ns": RECORDED_NS + at, "duration_ns": 2, "bytes": 4096} for at in (7, 9)],
        block_data=[{"block": 0, "class": 2, "file": 1, "bytes": 512, "offset": 8}, {"block": 1, "bytes": 512}],
        resident=[{"file": 2, "offset": 0, "bytes": 2**40}],
        gaps=[{"lost_kind": 1, "cpu": 3, "lost_count": 9, "start_ns": 1}],
        paths={1: "/data/" + "x" * 100, 2: b"/data/\xff-".decode(errors="surrogateescape") + "ü" * 60},
        **header,
    )


def trace_file(path, records, *, flags=0, tail=b"", record_count=None):
    """A trace file of any records, of which no part is checked by anything."""
    header = bytearray(HEADER)
    struct.pack_into("<8sHHIIIQ", header, 0, b"FLEXTRC1", 1, 1, HEADER, RECORD, flags, 0)
    struct.pack_into("<Q", header, RECORD_COUNT_AT, len(records) if record_count is None else record_count)
    struct.pack_into("<QQ", header, JSON_OFFSET_AT, HEADER + RECORD * len(records), len(tail))
    path.write_bytes(bytes(header) + b"".join(records) + tail)
    return path


def patch(path, offset, data):
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(bytes(content))


def assert_equal_traces(one, other):
    assert one.header == other.header
    assert one.paths == other.paths
    assert [text.replace(str(one.path), "") for text in one.warnings] == [
        text.replace(str(other.path), "") for text in other.warnings
    ]
    assert np.array_equal(one.block_of_data, other.block_of_data)
    for kind, array in one.arrays.items():
        assert array.tobytes() == other.arrays[kind].tobytes(), kind


def run_flextrace(*words):
    command = [sys.executable, "-m", "flextrace", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def cli(capsys):
    """Runs the command line; exit status and standard error."""
    return lambda *words: (main([str(word) for word in words]), capsys.readouterr().err)


@pytest.fixture
def trace(tmp_path):
    made = full_trace(metadata={"command": ["sort", "x"]}, end_monotonic_ns=7, lost={RecordKind.IO: 9})
    return characterize.write(made, tmp_path / "a.iotrace")


@pytest.fixture
def archive(trace, tmp_path):
    pack(trace, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


# ---- nothing is lost ----


def test_an_archive_opens_as_its_trace(trace, archive):
    assert_equal_traces(characterize.open(archive), characterize.open(trace))
    assert characterize.open(archive).path == archive


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
    assert status == 0
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
    assert document["schema"] == "flextrace.archive/1"
    assert document["numbers"]["kind"]["1"] == "IO"
    assert json.loads(metadata[b"flextrace.trace"]) == {"command": ["sort", "x"]}


def test_the_checksum_is_that_of_the_trace(trace, archive):
    document = json.loads(pq.read_metadata(archive).metadata[b"flextrace"])
    assert document["sha256"] == hashlib.sha256(trace.read_bytes()).hexdigest()


# ---- damage ----


def test_truncated_anywhere(archive, tmp_path):
    content = archive.read_bytes()
    for size in [4, 5, 11, 12, *range(100, len(content), 997), len(content) - 1]:
        archive.write_bytes(content[:size])
        with pytest.raises(FlextraceError, match=r"cut off or damaged|not an archive"):
            characterize.open(archive)


def test_a_flipped_bit_is_found_or_means_nothing(trace, archive, tmp_path):
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
    with pytest.raises(FlextraceError, match=r"is a Parquet file, but not an archive of a trace"):
        characterize.open(path)


def test_an_archive_that_was_written_anew_by_others(archive, tmp_path):
    pd.read_parquet(archive).head(3).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(FlextraceError, match="unchanged"):
        characterize.open(tmp_path / "b.parquet")


def test_newer_versions_are_refused(trace, tmp_path, monkeypatch):
    monkeypatch.setattr("characterize.archive.SCHEMA_NAME", "flextrace.archive/2")
    pack(trace, tmp_path / "a.parquet")
    monkeypatch.undo()
    with pytest.raises(FlextraceError, match=r"schema flextrace.archive/2, this flextrace reads flextrace.archive/1"):
        characterize.open(tmp_path / "a.parquet")


def test_a_trace_of_a_newer_major_version_is_refused(trace, tmp_path):
    patch(trace, VERSION_MAJOR_AT, struct.pack("<H", 2))
    with pytest.raises(FlextraceError, match=r"trace format version 2.1"):
        pack(trace, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == [trace]


def test_an_archive_that_reads_back_differently_gets_no_name(trace, tmp_path, monkeypatch):
    def wrong_table_of(kind, records, *rest):
        return table_of(kind, records ^ np.uint8(kind == RecordKind.IO) * np.eye(1, RECORD, 40, dtype=np.uint8), *rest)

    monkeypatch.setattr("characterize.archive.table_of", wrong_table_of)
    with pytest.raises(FlextraceError, match=r"a.parquet was written but reads back differently"):
        pack(trace, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == [trace]


# ---- the command line ----


def test_export_and_import(trace, tmp_path, cli):
    archive, back = tmp_path / "b.parquet", tmp_path / "b.iotrace"
    status, error = cli("export", trace, "-o", archive)
    assert status == 0
    assert "19 records in" in error
    assert f"next: flextrace characterize {archive}" in error
    assert cli("import", archive, "-o", back)[0] == 0
    assert back.read_bytes() == trace.read_bytes()
    assert sorted(tmp_path.iterdir()) == [trace, back, archive]


@pytest.mark.parametrize("verb", ["export", "import"])
def test_existing_files_are_kept_unless_forced(trace, archive, tmp_path, cli, verb):
    source = {"export": trace, "import": archive}[verb]
    output = tmp_path / {"export": "b.parquet", "import": "b.iotrace"}[verb]
    output.write_text("precious")
    status, error = cli(verb, source, "-o", output)
    assert (status, output.read_text()) == (2, "precious")
    assert "--force" in error
    assert cli(verb, source, "-o", output, "--force")[0] == 0
    assert_equal_traces(characterize.open(output), characterize.open(trace))


def test_nonsense_is_refused(trace, archive, tmp_path, cli):
    for words, message in (
        (("export", trace, "-o", tmp_path / "b.csv"), "use NAME.parquet"),
        (("export", archive, "-o", tmp_path / "b.parquet"), "is an archive already"),
        (("export", tmp_path / "none", "-o", tmp_path / "b.parquet"), "cannot read trace"),
        (("export", tmp_path, "-o", tmp_path / "b.parquet"), "cannot read trace"),
        (("export", __file__, "-o", tmp_path / "b.parquet"), "is not a flextrace trace"),
        (("export", trace, "-o", tmp_path / "none" / "b.parquet"), "No such file or directory"),
        (("import", archive, "-o", archive, "--force"), "is the file that is read"),
        (("import", trace, "-o", tmp_path / "b.iotrace"), "--from"),
        (("import", archive, "--from", "mqsim", "-o", tmp_path / "b.iotrace"), "omit --from"),
    ):
        status, error = cli(*words)
        assert status in (1, 2), words
        assert message in error
        assert sorted(tmp_path.iterdir()) == [trace, archive]


def test_a_trace_is_not_exported_over_itself(trace, cli):
    parquet = trace.rename(trace.with_suffix(".parquet"))
    before = parquet.read_bytes()
    status, error = cli("export", parquet, "-o", parquet, "--force")
    assert (status, parquet.read_bytes()) == (2, before)
    assert "is the trace that is read" in error


def test_a_full_disk_leaves_nothing(trace, small_file_system, cli):
    rng = np.random.default_rng(1)
    records = rng.integers(0, 256, (150_000, RECORD), np.uint8)
    trace_file(trace, [records.tobytes()])
    patch(trace, RECORD_COUNT_AT, struct.pack("<Q", len(records)))
    status, error = cli("export", trace, "-o", small_file_system / "a.parquet")
    assert status == 1
    assert f"cannot write {small_file_system / 'a.parquet'}: No space left on device" in error
    assert list(small_file_system.iterdir()) == []
    pack(trace, archive := trace.with_suffix(".parquet"))
    status, error = cli("import", archive, "-o", small_file_system / "a.iotrace")
    assert status == 1
    assert f"cannot write {small_file_system / 'a.iotrace'}: No space left on device" in error
    assert list(small_file_system.iterdir()) == []


# ---- every verb ----


def workload(tmp_path):
    io = [read(4096 * at, 4096, 1 + 10 * at, 5) for at in range(64)]
    io += [write(4096 * (63 - at), 4096, 1001 + 10 * at, 5) for at in range(32)]
    trace = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 65536}]), tmp_path / "w.iotrace")
    pack(trace, tmp_path / "w.parquet")
    return trace, tmp_path / "w.parquet"


@pytest.mark.parametrize(
    "words", [("info", "--format", "json"), ("characterize", "--format", "json"), ("alter", "--size-mean", "2x")]
)
def test_verbs_say_of_an_archive_what_they_say_of_its_trace(tmp_path, capsys, words):
    """But for its name, size and hash."""
    verb, *options = words
    said = []
    for source in workload(tmp_path):
        if verb == "alter":
            options[2:] = ["-o", str(tmp_path / f"altered-{source.suffix}"), "--format", "json"]
        assert main([verb, str(source), *options]) in (0, 3)
        document = json.loads(capsys.readouterr().out)
        for key in ("input", "output", "parent", "parent_sha256", "command", "created"):
            document.pop(key, None)
        said.append(document)
    assert said[0] == said[1]
    if verb == "alter":
        altered = [characterize.open(tmp_path / f"altered-{suffix}") for suffix in (".iotrace", ".parquet")]
        assert altered[0].io.equals(altered[1].io)


@needs_engine
def test_replay_expands_an_archive_for_the_while(tmp_path, capsys, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    _, archive = workload(tmp_path)
    assert main(["replay", str(archive), "--directory", str(tmp_path / "image"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["trace"] == str(archive)
    assert document["trace_sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert document["operations"]["done"] == 96
    assert list(temporary.iterdir()) == []


def test_expanding_without_room_says_what_to_do(tmp_path, small_file_system, monkeypatch, cli):
    trace = trace_file(tmp_path / "a.iotrace", [bytes([1]) + bytes(63)] * 100_000)
    pack(trace, tmp_path / "a.parquet")
    monkeypatch.setattr("tempfile.tempdir", str(small_file_system))
    status, error = cli("replay", tmp_path / "a.parquet", "--directory", tmp_path / "image")
    assert status == 1
    assert "TMPDIR" in error
    assert list(small_file_system.iterdir()) == []


@needs_engine
def test_predict_compare_and_report_take_an_archive(tmp_path, capsys, monkeypatch):
    """The replay of the comparison is of a trace that is expanded for the while."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    _, archive = workload(tmp_path)
    exploration = Exploration(Settings(256 * MIB, 300.0, 2), Machine([(256 * MIB, 500e-6)]).measure)
    exploration.run()
    profile, comparison, report = (tmp_path / name for name in ("p.json", "c.json", "r.html"))
    exploration.profile().save(profile)
    assert main(["predict", str(profile), "--trace", str(archive), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"][0]["workload"]["uniqueBytes"] == 262144
    words = ["compare", archive, "--profile", profile, "--directory", tmp_path / "scratch", "--repeat", 1]
    assert main([*map(str, words), "--max-seconds", "1s", "-o", str(comparison)]) in (0, 3)
    document = json.loads(comparison.read_text())
    assert document["trace"] == str(archive)
    (replayed,) = (row for row in document["rows"] if row["row"] == "replay")
    assert replayed["operations"]["done"] == 96
    words = ["report", "-o", report, "--profile", profile, "--trace", archive, "--comparison", comparison]
    assert main([str(word) for word in words]) in (0, 3)
    assert "w.parquet" in report.read_text()
    assert list(temporary.iterdir()) == []


# ---- recording into an archive ----


@needs_recorder
@pytest.mark.parametrize("confined", [[], ["--memory", "64M"]])
def test_record_into_an_archive(tmp_path, confined):
    """The command's status is passed on; nothing but the archive is left."""
    (tmp_path / "in").write_bytes(b"x" * 10_000)
    command = ["sh", "-c", f"dd if={tmp_path}/in of={tmp_path}/out bs=1000 status=none; exit 7"]
    done = run_flextrace("record", *confined, "-o", tmp_path / "a.parquet", "--", *command)
    assert done.returncode == 7, done.stderr
    trace = characterize.open(tmp_path / "a.parquet")
    names = {path: file for file, path in trace.paths.items()}
    reads = trace.requests[trace.requests["file"] == names[f"{tmp_path}/in"]]
    assert reads["offset"].tolist() == list(range(0, 10_000, 1000))
    assert trace.warnings == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "in", "out"]


@needs_recorder
def test_record_keeps_the_trace_if_there_is_no_room_for_the_archive(small_file_system):
    """Room for the trace and not for both: the file that the command leaves takes the rest."""
    fill = f"head -c 4130000 /dev/zero >{small_file_system}/rest"
    done = run_flextrace("record", "-o", small_file_system / "a.parquet", "--", "sh", "-c", fill)
    assert done.returncode == 1
    (kept,) = small_file_system.glob("a.*.iotrace")
    assert f"The recording is kept as {kept}" in done.stderr
    assert sorted(small_file_system.iterdir()) == [kept, small_file_system / "rest"]
    assert len(characterize.open(kept).io) > 0


@needs_recorder
def test_record_does_not_begin_over_an_existing_archive(tmp_path):
    (tmp_path / "a.parquet").write_text("precious")
    done = run_flextrace("record", "-o", tmp_path / "a.parquet", "--", "touch", tmp_path / "ran")
    assert done.returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    done = run_flextrace("record", "--force", "--dry-run", "-o", tmp_path / "a.parquet", "--", "true")
    assert done.returncode == 0
    assert (tmp_path / "a.parquet").read_text() == "precious"


@needs_recorder
def test_sigterm_ends_the_recording_and_not_the_archiving(tmp_path):
    command = [sys.executable, "-m", "flextrace", "record", "-o", str(tmp_path / "a.parquet"), "--", "sleep", "60"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as recording:
        assert recording.stderr is not None
        while "Ctrl-C ends it" not in recording.stderr.readline():
            pass
        recording.send_signal(signal.SIGTERM)
        rest = recording.stderr.read()
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"], rest
    assert characterize.open(tmp_path / "a.parquet").header.metadata["command"] == ["sleep", "60"]
