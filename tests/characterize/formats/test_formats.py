# SPDX-License-Identifier: Apache-2.0
"""Formats of lines and records: hand-made files against values computed by hand, and what a format must not accept."""

import bz2
import gzip
import hashlib
import importlib
import lzma
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import characterize
from characterize.errors import FlextraceError
from characterize.formats import lines
from characterize.formats.foreign import ForeignTrace, read_foreign
from characterize.formats.reading import Chunk, ReadOptions
from characterize.formats.registry import FORMATS, found_format
from characterize.formats.reordering import Reordering
from characterize.layout import BLOCK_DTYPE, BlockOp, HeaderFlag, RecordKind
from characterize.requests import requests_of
from flextrace.main import main
from tests.traces.foreign_traces import (
    ALIBABA,
    EXPECTED,
    FILETIME,
    MSR,
    READ,
    SPC,
    TENCENT,
    WRITE,
    made,
    rows_of,
    vscsi,
)

pytestmark = pytest.mark.parallel


@pytest.mark.parametrize("name", EXPECTED)
def test_values_by_hand_and_format_found(tmp_path, name):
    text, rows = EXPECTED[name]
    path = made(tmp_path, text)
    assert found_format(path).name == name
    trace = characterize.open(path)
    assert rows_of(trace) == rows
    assert trace.header.metadata["imported"]["format"] == name
    assert (trace.header.metadata.get("durations") == "unknown") == (name != "msr")


@pytest.mark.parametrize("name", EXPECTED)
def test_a_bad_line_far_behind_is_named_and_can_be_skipped(tmp_path, name, monkeypatch):
    """The number counts blank lines and earlier blocks; the fast and the exact parser give the same records."""
    text, rows = EXPECTED[name]
    monkeypatch.setattr(lines, "BLOCK_BYTES", 256)
    whole = text.splitlines(keepends=True)
    head, body = (whole[:1], whole[1:]) if name == "cloudphysics" else ([], whole)
    many = body * 31
    bad = [*head, *many, "\n", "not, a line 5\n", *many]
    path = made(tmp_path, "".join(bad))
    number = len(head) + len(many) + 2
    with pytest.raises(FlextraceError, match=rf"x.txt line {number}: expected .*, found 'not, a line 5' "):
        read_foreign(path, ReadOptions(name))
    trace = read_foreign(path, ReadOptions(name, skip_bad=True))
    assert len(trace.blocks) == 62 * len(rows)
    assert sorted(rows_of(trace)) == sorted(rows * 62)
    assert trace.header.metadata["imported"]["bad_lines"] == 1
    assert trace.header.lost == {RecordKind.BLOCK: 1}
    assert HeaderFlag.LOST in trace.header.flags
    assert trace.gaps["lost_count"].tolist() == [1]
    assert f"line {number}" in trace.warnings[0]


@pytest.mark.parametrize("name", EXPECTED)
def test_both_parsers_agree(tmp_path, name, monkeypatch):
    text, rows = EXPECTED[name]
    path = made(tmp_path, text.replace("\n", "\r\n"))
    assert rows_of(read_foreign(path)) == rows
    monkeypatch.setattr(lines, "_columns_by_delimiter", lambda *_: None)
    assert rows_of(read_foreign(path)) == rows


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("with_names", [False, True])
def test_a_byte_order_mark_is_none_of_the_first_field(tmp_path, name, with_names, monkeypatch):
    """As programs on Windows write; before the names of the columns, too, where a format has them."""
    text, rows = EXPECTED[name]
    module = importlib.import_module(f"characterize.formats.{FORMATS[name].module}")
    names = f"{module.SHAPE.header}\n" if with_names and module.SHAPE.header else ""
    path = made(tmp_path, b"\xef\xbb\xbf" + names.encode() + text.encode())
    assert found_format(path).name == name
    assert rows_of(read_foreign(path)) == rows
    monkeypatch.setattr(lines, "_columns_by_delimiter", lambda *_: None)
    assert rows_of(read_foreign(path)) == rows


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress), ("zst", None)],
)
def test_compressed(tmp_path, suffix, compress):
    plain = made(tmp_path, MSR * 100)
    if compress is None:
        content = subprocess.run(["zstd", "-c", str(plain)], check=True, capture_output=True).stdout
        content += subprocess.run(["zstd", "-c", str(plain)], check=True, capture_output=True).stdout
    else:
        content = compress(plain.read_bytes()) * 2  # two members, one behind the other
    packed = made(tmp_path, content, f"named.otherwise.{suffix}")
    assert rows_of(characterize.open(packed)) == sorted(rows_of(characterize.open(plain)) * 2, key=lambda row: row[0])
    cut = made(tmp_path, content[: len(content) // 2 - 9], "cut")
    with pytest.raises(FlextraceError, match=r"cannot read .*cut: its compressed content is damaged or cut off"):
        read_foreign(cut, ReadOptions("msr"))


def test_devices_keep_their_names(tmp_path):
    trace = characterize.open(made(tmp_path, MSR))
    assert trace.header.metadata["devices"] == [
        {"device": "0:1", "name": "usr_0"},
        {"device": "0:2", "name": "usr_1"},
        {"device": "0:3", "name": "src1_0"},
    ]
    assert trace.header.start_realtime_ns == trace.header.start_monotonic_ns == 1172163600 * 10**9 + 100
    assert trace.header.end_monotonic_ns == 1172163600 * 10**9 + 100 + 4128600


def test_units_can_be_given(tmp_path):
    path = made(tmp_path, SPC)
    trace = read_foreign(path, ReadOptions(sector_bytes=4096, time_unit="ms"))
    assert trace.blocks["sector"].tolist() == [20941264 * 8, 20939840 * 8, 56]
    assert trace.blocks["start_ns"].tolist() == [551706, 554041, 554100]
    assert trace.header.metadata["imported"]["time_unit"] == "ms"
    assert trace.header.metadata["imported"]["sector_bytes"] == 4096
    converted = read_foreign(made(tmp_path, "1172163600000001,usr,0,Read,0,512,7\n"), ReadOptions(time_unit="us"))
    assert rows_of(converted) == [(1172163600 * 10**9 + 1000, 7000, 1, 0, 512, READ)]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (ALIBABA, ReadOptions(sector_bytes=512), "leaves no choice of this: omit --sector-bytes"),
        (SPC, ReadOptions(sector_bytes=256), "needs a multiple of 512"),
        (SPC, ReadOptions(sector_bytes=0), "needs a multiple of 512"),
        (SPC, ReadOptions(time_unit="h"), "unit of time 'h' is unknown"),
        (ALIBABA, ReadOptions(time_unit="ns"), "taken as ns since 1970, its first time is not within the years"),
        (TENCENT, ReadOptions(time_unit="ms"), "taken as ms since 1970"),
        ("0,R,513,512,1577808000000046\n", None, "line 1: expected an offset that is a multiple of 512 bytes, found"),
        ("0,R,512,4294967296,1577808000000046\n", None, "line 1: expected a size of at most 4294967295 bytes"),
        ("4294967296,R,512,512,1577808000000046\n", None, "line 1: expected a device number of 32 bits"),
        (f"{MSR}{FILETIME},usr,,Read,0,512,0\n", None, "line 4: expected Timestamp,Hostname,DiskNumber"),
        (f"{MSR}{FILETIME},usr,4294967296,Read,0,512,0\n", None, "line 4: expected a number of a disk of 32 bits"),
        ("1000,usr,0,Read,0,512,0\n", None, r"line 1: expected a time of 0 to 2\^63 ns"),
        ("x" * (lines.LINE_BYTES_MAX + lines.BLOCK_BYTES), ReadOptions("spc"), "line 1 is longer than"),
    ],
)
def test_units_and_ranges_are_checked(tmp_path, text, options, message):
    with pytest.raises(FlextraceError, match=message):
        read_foreign(made(tmp_path, text), options)


def test_unknown_content_lists_what_was_looked_for(tmp_path):
    with pytest.raises(FlextraceError) as caught:
        characterize.open(made(tmp_path, "some\nother 1\nthing\n"))
    assert caught.value.exit_code == 1
    for name in FORMATS:
        assert f"\n  {name} " in str(caught.value)


def test_blanks_are_of_no_format(tmp_path):
    """However many: a pattern that tries every way to divide them among its parts does not end."""
    for line in (f"{' ' * 30_000}x\n", f"1,{' ' * 30_000}x\n", f"a{' ' * 30_000}1 x\n"):
        with pytest.raises(FlextraceError, match="no trace of another tool that is known"):
            found_format(made(tmp_path, line * 2))


@given(st.integers(0, 2**62 // 10**9), st.text("0123456789", max_size=9))
def test_decimal_seconds_are_exact(whole, fraction):
    """A float of 8 bytes loses 238 ns in the times of our days; exact against Python's integers."""
    import pyarrow as pa  # noqa: PLC0415

    texts = pa.array([f"{whole}.{fraction}".encode()])
    found = lines._column(texts, "time", "s", False)
    assert found.tolist() == [whole * 10**9 + int(fraction.ljust(9, "0"))]


@pytest.mark.parametrize("version", [1, 2])
def test_vscsi(tmp_path, version):
    rows = [(0x28, 4096, 77, 1000, 31), (0x2A, 512, 78, 1007, 11), (0x35, 0, 0, 1011, 5), (0x88, 1024, 2**40, 1013, 3)]
    path = made(tmp_path, vscsi(version, rows))
    assert found_format(path).name == "vscsi"
    trace = characterize.open(path)
    assert [row[2:] for row in rows_of(trace)] == [
        (0, 77, 4096, READ),
        (0, 78, 512, WRITE),
        (0, 0, 0, int(BlockOp.FLUSH)),
        (0, 2**40, 1024, READ),
    ]
    assert trace.blocks["start_ns"].tolist() == [1000_000, 1007_000, 1011_000, 1013_000]
    assert trace.blocks["duration_ns"].tolist() == ([31_000, 11_000, 5_000, 3_000] if version == 2 else [0] * 4)
    assert (trace.header.metadata.get("durations") == "unknown") == (version == 1)
    alone = made(tmp_path, vscsi(version, rows[:1]))
    assert found_format(alone).name == "vscsi"
    assert rows_of(characterize.open(alone)) == rows_of(trace)[:1]
    torn = made(tmp_path, vscsi(version, rows * 40)[:-3])
    with pytest.raises(FlextraceError, match=rf"line 160: expected a record of {24 + 8 * version} bytes, found"):
        characterize.open(torn)


@given(st.lists(st.lists(st.integers(0, 60), max_size=9), max_size=9), st.integers(1, 12))
def test_reordering_is_a_stable_sort_within_its_window(chunks, window):
    arrays, number = [], 0
    for starts in chunks:
        array = np.zeros(len(starts), BLOCK_DTYPE)
        array["kind"], array["start_ns"], array["cause"] = RecordKind.BLOCK, starts, range(number, number + len(starts))
        number += len(starts)
        arrays.append(array)
    order = Reordering(window)
    found = [it.arrays[RecordKind.BLOCK] for it in order.chunks(Chunk({RecordKind.BLOCK: it}) for it in arrays)]
    got = [(int(row["start_ns"]), int(row["cause"])) for array in found for row in array]
    whole = sorted((start, at) for at, start in enumerate(start for starts in chunks for start in starts))
    assert sorted(got) == whole
    if number <= window:
        assert got == whole
    if not order.late:
        assert [start for start, _ in got] == sorted(start for start, _ in got)


def test_import_streams_what_open_reads(tmp_path, capsys, monkeypatch):
    """The written trace is the one that is opened directly, and is written in many pieces."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", 512)
    monkeypatch.setattr("characterize.formats.reordering.Reordering.__init__.__defaults__", (16,), raising=False)
    path = made(tmp_path, "".join(f"{at % 7},R,{4096 * at},4096,{1577808000000000 + 13 * at}\n" for at in range(997)))
    assert main(["import", str(path), "-o", str(tmp_path / "o.iotrace")]) == 0
    said = capsys.readouterr().err
    assert "time_unit us" in said
    assert "wrote 997 block requests over 12.9 ms" in said
    written, direct = characterize.open(tmp_path / "o.iotrace"), characterize.open(path)
    assert written.arrays[RecordKind.BLOCK].tobytes() == direct.arrays[RecordKind.BLOCK].tobytes()
    assert written.header.metadata["imported"].pop("sha256") == hashlib.sha256(path.read_bytes()).hexdigest()
    assert written.header == direct.header
    assert requests_of(written, "block")["bytes"].sum() == 997 * 4096


def test_verbs_end_with_3_where_lines_were_left_out(tmp_path, capsys):
    path = made(tmp_path, ALIBABA + "1,R,oops\n" + ALIBABA)
    output = tmp_path / "o.iotrace"
    assert main(["import", str(path), "-o", str(output)]) == 1
    assert not output.exists()
    assert main(["import", str(path), "-o", str(output), "--skip-bad"]) == 3
    assert "1 malformed lines were left out, the first:" in capsys.readouterr().err
    assert len(characterize.open(output).blocks) == 4
    for told in ([str(output)], [str(path), "--skip-bad"]):
        assert main(["characterize", *told]) == 3
        said = capsys.readouterr()
        assert "1 malformed lines were left out; these numbers are not trustworthy" in said.err
        assert " ".join(said.out.split()).count("1 malformed lines were left out") == 1
        assert "while recording" not in said.out + said.err
    assert main(["characterize", str(path)]) == 1
    assert main(["characterize", str(made(tmp_path, SPC)), "--input-format", "spc", "--sector-bytes", "4KiB"]) == 0
    said = capsys.readouterr()
    assert "uniqueBytes" in said.out
    assert "read as spc, time_unit s, sector_bytes 4096" in said.err


def test_chunks_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "BLOCK_BYTES", 4096)
    foreign = ForeignTrace(made(tmp_path, SPC * 997))
    foreign._order.window_records = 50
    sizes = [len(chunk.arrays[RecordKind.BLOCK]) for chunk in foreign.chunks()]
    assert sum(sizes) == foreign.records == 2991
    assert max(sizes) < 400
