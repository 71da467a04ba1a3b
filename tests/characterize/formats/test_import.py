# SPDX-License-Identifier: Apache-2.0
"""Traces of other tools: real ones against published numbers, hand-made ones field by field, damaged ones refused."""

import hashlib
import json

import pyarrow as pa
import pytest
from pyarrow import parquet

import characterize
from characterize.characterization import characterize as characterization_of
from characterize.errors import FlextraceError
from characterize.formats.foreign import read_foreign
from characterize.formats.reading import ReadOptions
from characterize.formats.registry import FORMATS
from characterize.layout import BlockOp
from characterize.requests import requests_of
from characterize.workload import workload_of
from flextrace.main import main
from tests.traces.real_traces import real_trace

pytestmark = pytest.mark.parallel


def test_cloudphysics_has_its_published_numbers():
    trace = characterize.open(real_trace("cloudPhysicsIO.csv"))
    assert trace.header.metadata["imported"]["format"] == "cloudphysics"
    five = workload_of(trace, "block")
    assert len(trace.blocks) == 113_872
    assert five.read_frac == pytest.approx(0.4125, abs=5e-5)
    assert five.size_mean == pytest.approx(36_936, abs=0.5)
    assert trace.blocks["sector"].nunique() == 48_974
    document = characterization_of(trace).as_document()
    assert document["elapsed_s"] == 7200  # two hours
    assert document["layers"]["block"]["parameters"]["processNum"] is None
    assert document["layers"]["block"]["time_in_io_s"] is None
    assert document["layers"]["block"]["throughput_bytes_per_s"] == pytest.approx(113_872 * 36_936 / 7200, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "requests", "reads"),
    [("mqsim-tpcc-small.trace", 6_999, None), ("mqsim-wsrch-small.trace", 24_783, 24_779)],
)
def test_mqsim_has_as_many_requests_as_lines(name, requests, reads):
    path = real_trace(name)
    trace = characterize.open(path)
    assert trace.header.metadata["imported"]["format"] == "mqsim"
    lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    assert len(trace.blocks) == len(lines) == requests
    table = requests_of(trace, "block")
    assert table["bytes"].sum() == 512 * sum(int(line[3]) for line in lines)
    assert table["read"].sum() == sum(line[4] == "1" for line in lines)
    if reads is not None:
        assert table["read"].sum() == reads


def test_cloudphysics_by_hand(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("version,time,op,size,lbn\n1,10,28,4096,7\n1,10,2a,512,8\n\n1,12,35,0,0\n1,11,8A,1024,99\n")
    trace = read_foreign(path, ReadOptions("cloudphysics"))
    assert trace.blocks["start_ns"].tolist() == [10_000_000_000, 10_000_000_000, 11_000_000_000, 12_000_000_000]
    assert trace.blocks["op"].tolist() == [BlockOp.READ, BlockOp.WRITE, BlockOp.WRITE, BlockOp.FLUSH]
    assert trace.blocks["sector"].tolist() == [7, 8, 99, 0]
    assert trace.blocks["bytes"].tolist() == [4096, 512, 1024, 0]
    assert trace.header.metadata["durations"] == "unknown"
    assert trace.header.metadata["imported"]["format"] == "cloudphysics"
    assert workload_of(trace, "block").unique_bytes == 4096 + 1024  # blocks 7 to 14; 8 is within; 99 and 100


def test_mqsim_by_hand(tmp_path):
    path = tmp_path / "a.trace"
    path.write_text("1000 3 8 16 1\n  2000\t0 24 1 0  \n")
    trace = read_foreign(path, ReadOptions("mqsim"))
    assert trace.blocks[["start_ns", "device", "sector", "bytes", "op"]].to_numpy().tolist() == [
        [1000, 3, 8, 8192, BlockOp.READ],
        [2000, 0, 24, 512, BlockOp.WRITE],
    ]


CLOUDPHYSICS_LINE = r"expected version,time,op \(hexadecimal\),size,lbn, found"
MQSIM_LINE = r"expected arrival, device, sector, sectors, 1\|0, found"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("cloudphysics", "h\n1,10,28,4096,7\n1,10,28,4096\n", rf"line 3: {CLOUDPHYSICS_LINE} '1,10,28,4096' "),
        ("cloudphysics", "h\n1,ten,28,4096,7\n", rf"line 2: {CLOUDPHYSICS_LINE} '1,ten,28,4096,7'"),
        ("cloudphysics", "h\n1,nan,28,4096,7\n", rf"line 2: {CLOUDPHYSICS_LINE} '1,nan,"),
        ("cloudphysics", "h\n1,10,xx,4096,7\n", rf"line 2: {CLOUDPHYSICS_LINE} '1,10,xx,"),
        ("cloudphysics", "h\n1,10,28,-1,7\n", rf"line 2: {CLOUDPHYSICS_LINE} '1,10,28,-1,7'"),
        ("cloudphysics", "h\n1,99999999999,28,512,7\n", r"line 2: expected a time of 0 to 2\^63 ns, found '1,999"),
        ("cloudphysics", "h\n1,10,28,512,99999999999999999999\n", rf"line 2: {CLOUDPHYSICS_LINE}"),
        ("cloudphysics", "h\n1,10,28,512,999999999999999999\n", r"line 2: expected an offset below 2\^63 bytes, found"),
        ("cloudphysics", "h\n\xff\xfe\n", rf"line 2: {CLOUDPHYSICS_LINE}"),
        ("cloudphysics", "h\n", r"has no requests"),
        ("mqsim", "1000 0 8 16 1\n1000 0 8 16\n", rf"line 2: {MQSIM_LINE} '1000 0 8 16'"),
        ("mqsim", "1000 0 8 16 2\n", rf"line 1: {MQSIM_LINE} '1000 0 8 16 2'"),
        ("mqsim", "1000 0 8.5 16 1\n", rf"line 1: {MQSIM_LINE} '1000 0 8.5 16 1'"),
        ("mqsim", "-5 0 8 16 1\n", rf"line 1: {MQSIM_LINE} '-5 0"),
        ("mqsim", "5 0 8 8388608 1\n", r"line 1: expected a size of at most 4294967295 bytes, found '5 0 8 8388608 1'"),
        ("mqsim", "5 4294967296 8 8 1\n", r"line 1: expected a device number of 32 bits"),
        ("mqsim", "", r"has no requests"),
    ],
)
def test_malformed_lines_are_named(tmp_path, name, text, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(FlextraceError, match=message):
        read_foreign(path, ReadOptions(name))


def test_unknown_format_and_missing_file(tmp_path):
    with pytest.raises(FlextraceError, match="format 'x' is unknown"):
        read_foreign(tmp_path / "a", ReadOptions("x"))
    for name in FORMATS:
        with pytest.raises(FlextraceError, match=r"cannot read .*No such file"):
            read_foreign(tmp_path / "a", ReadOptions(name))


@pytest.fixture
def foreign(tmp_path):
    path = tmp_path / "a.trace"
    path.write_text("1000 3 8 16 1\n2000 3 24 8 0\n")
    return path


def test_verb(foreign, tmp_path, capsys):
    output = tmp_path / "out.iotrace"
    assert main(["import", str(foreign), "-o", str(output), "--input-format", "mqsim"]) == 0
    assert "wrote 2 block requests" in capsys.readouterr().err
    trace = characterize.open(output)
    assert trace.blocks["sector"].tolist() == [8, 24]
    assert workload_of(trace, "block").seq_frac == 0.5
    assert trace.header.metadata["imported"]["sha256"] == hashlib.sha256(foreign.read_bytes()).hexdigest()
    assert main(["characterize", str(output)]) == 0
    assert "BLOCK LAYER: 1 reads, 1 writes" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["characterize", "info"])
def test_what_is_read_as_it_is_is_hashed_once(tmp_path, verb, monkeypatch, capsys):
    hashed, sha256 = [], hashlib.sha256
    foreign = tmp_path / "table.csv"
    foreign.write_text("start,op,offset,bytes\n0,read,0,4096\n")
    monkeypatch.setattr(hashlib, "sha256", lambda *content: hashed.append(content) or sha256(*content))
    assert main([verb, str(foreign), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["input"]["sha256"] == sha256(foreign.read_bytes()).hexdigest()
    assert hashed.count(()) == 1  # others are of what numba compiles


def test_an_archive_of_an_imported_trace_is_not_read_as_another_tool_s(foreign, tmp_path, capsys):
    trace, archive = (str(tmp_path / f"t.{suffix}") for suffix in ("iotrace", "parquet"))
    assert main(["import", str(foreign), "-o", trace, "--input-format", "mqsim"]) == 0
    assert main(["export", trace, "-o", archive]) == 0
    capsys.readouterr()
    assert main(["characterize", archive]) == 0
    assert capsys.readouterr().err == ""


def test_a_table_of_another_tool_is_no_archive(tmp_path, capsys):
    path = tmp_path / "table.parquet"
    parquet.write_table(pa.table({"start": [0], "op": ["read"], "offset": [0], "bytes": [4096]}), path)
    assert main(["export", str(path), "-o", str(tmp_path / "archive.parquet")]) == 1
    assert "to read a trace of another tool use 'flextrace import'" in capsys.readouterr().err
    assert main(["import", str(path), "-o", str(tmp_path / "t.iotrace")]) == 0
    assert main(["export", str(tmp_path / "t.iotrace"), "-o", str(tmp_path / "archive.parquet")]) == 0


def test_verb_keeps_an_existing_file(foreign, tmp_path, capsys):
    output = tmp_path / "out.iotrace"
    output.write_text("precious")
    command = ["import", str(foreign), "-o", str(output), "--input-format", "mqsim"]
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err
    assert output.read_text() == "precious"
    assert main([*command, "--force"]) == 0
    assert len(characterize.open(output).blocks) == 2


def test_verb_writes_nothing_from_a_malformed_file(tmp_path, capsys):
    path = tmp_path / "bad.trace"
    path.write_text("1000 0 8\n")
    assert main(["import", str(path), "-o", str(tmp_path / "out.iotrace"), "--input-format", "mqsim"]) == 1
    assert "line 1" in capsys.readouterr().err
    assert not (tmp_path / "out.iotrace").exists()
