# SPDX-License-Identifier: Apache-2.0
"""By process, file, device and window: each group is what a trace of it alone would be; the verb's options."""

import json
import os
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import characterize as package
from characterize import groups as grouping_module
from characterize.characterization import characterize
from characterize.errors import FlextraceError
from characterize.grouping import Grouping
from characterize.groups import table_of
from characterize.layout import HeaderFlag, RecordKind
from characterize.side_by_side import render_groups
from characterize.stream import open_stream
from characterize.trace import Trace
from flextrace.main import main
from tests.traces.flexible_traces import recordings
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

# What depends on the whole trace and not on the group: what came first, and how long the trace is.
GLOBAL = ("coldFrac", "coldFracMeasuredShare", "appendFrac", "overwriteFrac")


def alone(trace, chosen):
    """The trace of the IO and FILEOP records that `chosen` names, with the same header and files."""
    arrays = dict(trace.arrays)
    for kind in (RecordKind.IO, RecordKind.FILEOP):
        arrays[kind] = arrays[kind][chosen(arrays[kind])]
    return characterize(Trace(trace.header, arrays, trace.paths)).layers["vfs"].as_document()


def compare(group, whole):
    found = group.characterization.as_document()
    for name in (
        "parameters",
        "counts",
        "locality",
        "sequentiality",
        "sequential_runs",
        "response_time",
        "size",
        "reuse",
    ):
        assert found[name] == whole[name], name
    for name in ("concurrency", "think_time", "inter_arrival_time", "inter_sync_time", "files"):
        assert found[name] == whole[name], name
    assert {name: value for name, value in found["extended"].items() if name not in GLOBAL} == {
        name: value for name, value in whole["extended"].items() if name not in GLOBAL
    }


@settings(max_examples=15)
@given(recordings(), st.sampled_from(["process", "file"]), st.sampled_from([3, 1000]))
def test_a_group_is_what_a_trace_of_it_alone_is(trace, by, step):
    result = characterize(trace, grouping=Grouping(by=by), chunk_records=step)
    assert sum(group.characterization.requests for group in result.groups) == result.layers["vfs"].requests
    for group in result.groups:
        compare(group, alone(trace, lambda array, group=group: array[by] == group.key))


@pytest.mark.parametrize("by", ["process", "file"])
def test_what_a_whole_trace_declares_is_not_of_its_groups(by):
    rows = [read(4096 * at, 4096, at, thread=at % 2, process=at % 2, file=1 + at % 2) for at in range(8)]
    trace = made_trace(rows, flags=HeaderFlag.UNTIMED, metadata={"declared": {"processNum": 2}})
    document = characterize(trace, grouping=Grouping(by=by)).as_document()
    assert document["layers"]["vfs"]["parameters"]["processNum"] == 2
    assert [group["parameters"]["processNum"] for group in document["groups"]] == [None, None]
    assert [group["declared"] for group in document["groups"]] == [[], []]


@settings(max_examples=15)
@given(recordings(), st.integers(1, 9), st.sampled_from([3, 1000]))
def test_a_window_is_what_a_trace_of_it_alone_is(trace, windows, step):
    starts = trace.arrays[RecordKind.IO]["start_ns"].astype(int)
    starts = [*starts, *trace.arrays[RecordKind.FILEOP]["start_ns"].astype(int)]
    width = max(1, -(-(max(starts) - min(starts) + 1) // windows))
    result = characterize(trace, grouping=Grouping(window_s=width / 1e9), chunk_records=step)
    assert sum(group.characterization.requests for group in result.groups) == result.layers["vfs"].requests
    for group in result.groups:
        compare(
            group,
            alone(trace, lambda array, key=group.key: (array["start_ns"].astype(int) - min(starts)) // width == key),
        )


def test_the_share_of_a_window_is_of_what_is_within_it():
    trace = made_trace([read(0, 10, 0, 4), read(0, 10, 8, 20), read(0, 10, 12, 1), read(0, 10, 35, 5)])
    groups = characterize(trace, grouping=Grouping(window_s=10e-9)).groups
    assert [group.key for group in groups] == [0, 1, 3]
    assert [group.characterization.time["time_in_io_s"] for group in groups] == pytest.approx([24e-9, 1e-9, 5e-9])
    assert [group.characterization.time["time_in_io_share"] for group in groups] == pytest.approx([0.6, 0.1, 0.5])


def two_devices():
    files = [{"file": 1, "device": 8 << 20}, {"file": 2, "device": 9 << 20 | 1}]
    io = [read(0, 10, 0), write(0, 20, 1, file=2), read(10, 10, 2), read(0, 5, 3, file=3, process=7)]
    blocks = [{"op": 1, "bytes": 512, "start_ns": 1}, {"op": 2, "bytes": 512, "device": 7 << 20, "start_ns": 2}]
    tasks = [{"thread": 7, "process": 7, "comm": b"sort"}, {"thread": 8, "process": 7, "comm": b"worker"}]
    return made_trace(io, files=files, blocks=blocks, tasks=tasks, paths={1: "/a", 2: "/b"})


def test_by_device_at_both_layers():
    table = table_of(characterize(two_devices(), grouping=Grouping("device", layers=("vfs", "block"))).groups)
    assert table[["name", "layer", "requests", "bytes"]].to_numpy().tolist() == [
        ["8:0", "vfs", 2, 20],
        ["9:1", "vfs", 1, 20],
        ["others", "vfs", 1, 5],
        ["7:0", "block", 1, 512],
        ["8:0", "block", 1, 512],
    ]


def test_the_names_of_groups():
    by_file = characterize(two_devices(), grouping=Grouping("file")).groups
    assert [(group.key, group.name) for group in by_file] == [(1, "/a"), (2, "/b"), (3, "")]
    by_process = characterize(two_devices(), grouping=Grouping("process")).groups
    assert [(group.key, group.name) for group in by_process] == [(1, ""), (7, "sort")]


def test_the_keys_with_fewest_requests_are_together(monkeypatch):
    monkeypatch.setattr(grouping_module.RequestsByKey.heaviest, "__defaults__", (2,))
    io = [read(0, 10, at, file=1 + at % 5 * (at % 5) // 4) for at in range(50)]
    result = characterize(made_trace(io), grouping=Grouping("file"))
    counts = {
        group.name if group.key is None else group.key: group.characterization.requests for group in result.groups
    }
    # Files 1, 2, 3 and 5 with 20, 10, 10 and 10 requests.
    assert counts == {1: 20, 2: 10, "others": 20}
    assert [line.split()[:2] for line in render_groups(result.groups)[3:]] == [
        ["1", "20"],
        ["2", "10"],
        ["others", "20"],
    ]


def test_impossible_windows():
    with pytest.raises(FlextraceError, match="give at least"):
        characterize(made_trace([read(0, 1, 0), read(0, 1, 10**9)]), grouping=Grouping(window_s=1e-6))
    with pytest.raises(FlextraceError, match="has no times"):
        characterize(made_trace([read(0, 1)], flags=HeaderFlag.UNTIMED), grouping=Grouping(window_s=1.0))
    with pytest.raises(FlextraceError, match="have no file"):
        characterize(two_devices(), grouping=Grouping("file", layers=("block",)))


@pytest.fixture
def written(tmp_path):
    return package.write(two_devices(), tmp_path / "a.iotrace")


def test_verb_by_and_window(written, capsys):
    assert main(["characterize", str(written), "--by", "file", "--window", "1us"]) == 0
    text = capsys.readouterr().out
    assert "FILE (vfs)" in text
    assert "WINDOW (vfs)" in text
    assert "/b" in text
    assert all(len(line) <= 90 for line in text.splitlines() if not line.startswith("trace"))
    assert main(["characterize", str(written), "--by", "device", "--format", "json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [(group["name"], group["layer"]) for group in groups][:2] == [("8:0", "vfs"), ("9:1", "vfs")]
    assert groups[0]["parameters"]["uniqueBytes"] == 20


def test_verb_side_by_side(written, tmp_path, capsys):
    other = package.write(made_trace([write(0, 4096, 0, 5)]), tmp_path / "b.iotrace")
    assert main(["characterize", str(written), str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith("readFrac")] == [
        ["readFrac", "0.7500", "0.0000"],
        ["readFrac", "0.5000", "-"],
    ]
    assert lines[0].endswith("a.iotrace")
    assert main(["characterize", str(written), str(other), "--format", "json", "--layer", "vfs"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "flextrace.characterizations/1"
    assert [trace["layers"]["vfs"]["counts"]["writes"] for trace in document["traces"]] == [1, 1]


@pytest.mark.parametrize("sample", ["50%", "0.5", "5e-1", "2MiB"])
def test_verb_sample(written, capsys, sample):
    assert main(["characterize", str(written), "--sample", sample, "--format", "json"]) == 0
    locality = json.loads(capsys.readouterr().out)["layers"]["vfs"]["locality"]
    # The trace has so few blocks that all are in the sample.
    assert locality["sampled"]["rate"] == 1
    assert main(["characterize", str(written), "--sample", sample]) == 0
    assert "estimated from" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sample", "0"], "above 0"),
        (["--sample", "1k"], "too small"),
        (["--sample", "x"], "not understood"),
        (["--window", "1parsec"], "not understood"),
        (["--window", "0"], "too many"),
        (["--by", "file", "--layer", "block"], "have no file"),
    ],
)
def test_verb_refuses(written, capsys, options, message):
    assert main(["characterize", str(written), *options]) == 2
    assert message in capsys.readouterr().err


def test_groups_of_a_file_are_those_of_the_trace(written):
    grouping = Grouping("process", 1e-9, ("vfs", "block"))
    streamed = characterize(open_stream(written, 1), grouping=grouping)
    assert [group.as_document() for group in streamed.groups] == [
        group.as_document() for group in characterize(two_devices(), grouping=grouping).groups
    ]


@pytest.mark.parametrize("last_ns", [0, 12_345_678_901])
def test_the_windows_that_are_advised_are_taken(tmp_path, capsys, last_ns):
    files = [{"file": 1, "size_bytes": 8192}]
    path = package.write(made_trace([read(0, 4096, 0), read(4096, 4096, last_ns)], files=files), tmp_path / "t.iotrace")
    assert main(["characterize", str(path), "--window", "0"]) == 2
    advised = re.search("give at least (.*) s", capsys.readouterr().err)[1]
    assert main(["characterize", str(path), "--window", advised]) == 0


def test_names_that_are_not_utf_8(tmp_path):
    """Bytes as the file system has them; a terminal is told them as escapes."""
    io = [read(4096 * at, 4096, 10 * at, 5, file=1 + at % 2) for at in range(10)]
    trace = made_trace(io, files=[{"file": 1}, {"file": 2}], paths={1: "/caf\udce9.db", 2: "/b"})
    names = table_of(characterize(trace, grouping=Grouping("file")).groups)["name"]
    assert names.tolist() == ["/caf\udce9.db", "/b"]
    path = package.write(trace, tmp_path / "caf.iotrace").rename(tmp_path / "caf\udce9.iotrace")
    for options in (["--by", "file"], ["--figures", str(tmp_path / "figures")]):
        done = subprocess.run(
            [sys.executable, "-m", "flextrace", "characterize", path, *options],
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        assert done.returncode == 0, done.stderr
        assert rb"caf\udce9" in done.stdout
