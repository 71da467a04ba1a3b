# SPDX-License-Identifier: Apache-2.0
"""The whole document and its text: complete, and honest about what was not measured; the verbs that print them."""

import hashlib
import json
import os
import sys

import pytest

import characterize as package
from characterize.characterization import TraceSummary, characterize
from characterize.definitions import DEFINITIONS
from characterize.layout import TRACE_VERSION_MINOR, HeaderFlag, RecordKind
from characterize.text import render
from flextrace.main import main
from tests.traces.made_trace import made_trace
from tests.traces.partial_traces import TRACES, full_trace

pytestmark = pytest.mark.parallel

LINK_COUNTS = ("read_bytes", "written_bytes", "others", "stacked", "orphans", "file_count", "files")


@pytest.fixture(params=TRACES)
def trace(request):
    return TRACES[request.param]()


def test_every_trace_has_a_document_and_a_text(trace):
    result = characterize(trace)
    document = json.loads(json.dumps(result.as_document(), allow_nan=False))
    assert document["schema"] == "flextrace.characterization/1"
    for layer in ("vfs", "block"):
        part = document["layers"][layer]
        assert list(part["parameters"]) == ["uniqueBytes", "seqFrac", "readFrac", "sizeMean", "processNum"]
        assert part["counts"]["reads"] + part["counts"]["writes"] == result.layers[layer].requests
    assert all(len(line) <= 90 for line in render(result).splitlines())


def test_every_number_has_its_definition():
    document = characterize(full_trace()).as_document()
    vfs, block = document["layers"]["vfs"], document["layers"]["block"]
    names = [*vfs["parameters"], *vfs["extended"], *block["extended"], *vfs["sequentiality"]]
    names += [f"mmap ({rule})" for rule in ("data", "all", "none")]
    names += [
        *(name for name in document["links"] if name not in LINK_COUNTS),
        "lower_bounds",
        "from_totals",
        "estimated_from_totals",
    ]
    names += [*(name for name in vfs["concurrency"] if name not in ("in_flight_max", "per_thread"))]
    names += ["reuse", "sequential_runs", "inter_arrival_time", "time_histogram", "files", "over_time"]
    names += ["response_time", "think_time", "queue_time", "littles_law", "elapsed_s", "time_in_io_s"]
    names += ["inter_sync_time", "time_in_io_share"]
    names += ["time_in_sync_s", "throughput_bytes_per_s", "throughput_in_io_bytes_per_s"]
    assert set(names) <= set(document["definitions"])
    assert document["definitions"] == DEFINITIONS


def test_numbers_of_the_full_trace():
    """By hand: [0, 10), [20, 30), [40, 60) in flight within 60 ns, 8292 bytes."""
    document = characterize(full_trace()).as_document()
    vfs = document["layers"]["vfs"]
    assert document["elapsed_s"] == pytest.approx(60e-9)
    assert document["trace"]["elapsed_from"] == "records"
    assert vfs["parameters"] == {
        "uniqueBytes": 8292,
        "seqFrac": pytest.approx(1 / 3),
        "readFrac": pytest.approx(2 / 3),
        "sizeMean": 8292 / 3,
        "processNum": 1,
    }
    assert vfs["time_in_io_s"] == pytest.approx(40e-9)
    assert vfs["time_in_io_share"] == pytest.approx(2 / 3)
    # Reads of 10 and 20 ns, a write of 10, a sync of 5; 20 ns from each start to the next, 10 ns of thinking.
    assert [list(row.values()) for row in vfs["time_histogram"]] == [
        [4, 8, 0, 0, 1, 0, 0, 0],
        [8, 16, 1, 1, 0, 0, 0, 1],
        [16, 32, 1, 0, 0, 2, 0, 0],
    ]
    columns = ["low_ns", "high_ns", "read", "write", "sync", "inter_arrival", "inter_sync", "think"]
    assert list(vfs["time_histogram"][0]) == columns
    assert vfs["time_in_sync_s"] == pytest.approx(5e-9)
    assert vfs["throughput_bytes_per_s"] == pytest.approx(8292 / 60e-9)
    assert vfs["throughput_in_io_bytes_per_s"] == pytest.approx(8292 / 40e-9)
    assert vfs["response_time"]["read"]["mean_ns"] == 15
    assert vfs["response_time"]["sync"]["max_ns"] == 5
    assert vfs["think_time"]["mean_ns"] == 10
    assert vfs["extended"]["syncFrac"] == 1
    assert vfs["extended"]["coldFrac"] == 1
    block = document["layers"]["block"]
    assert block["queue_time"]["mean_ns"] == 3
    assert block["think_time"] is None
    assert block["extended"]["attributedFrac"] == 1


def test_elapsed_time_is_that_of_the_recording():
    trace = full_trace(start_monotonic_ns=1000, end_monotonic_ns=2_000_001_000)
    assert (characterize(trace).elapsed_s, characterize(trace).trace["elapsed_from"]) == (2.0, "header")
    assert characterize(trace).as_document()["layers"]["vfs"]["throughput_bytes_per_s"] == 4146


@pytest.mark.parametrize("flag", [HeaderFlag.UNTIMED, HeaderFlag.PLANNED])
def test_times_of_a_trace_that_has_not_run_are_null(flag):
    document = characterize(full_trace(flags=flag, start_monotonic_ns=1, end_monotonic_ns=9)).as_document()
    assert document["elapsed_s"] is None
    for layer in document["layers"].values():
        assert layer["parameters"]["processNum"] is None
        assert layer["response_time"] == {"read": None, "write": None, "sync": None}
        assert layer["think_time"] is None
        assert layer["concurrency"]["in_flight_mean"] is None
        assert layer["littles_law"] == {"throughput_bytes_per_s": None, "ratio": None}
        for name in ("time_in_io_s", "time_in_io_share", "time_in_sync_s", "throughput_bytes_per_s"):
            assert layer[name] is None
    assert document["layers"]["vfs"]["parameters"]["uniqueBytes"] == 8292
    assert any("has not run yet" in warning for warning in document["warnings"])


def test_declared_parameters_are_shown_as_declared():
    result = characterize(full_trace(flags=HeaderFlag.UNTIMED, metadata={"declared": {"processNum": 4}}))
    document = result.as_document()
    assert document["layers"]["vfs"]["parameters"]["processNum"] == 4
    assert document["layers"]["vfs"]["declared"] == ["processNum"]
    assert document["layers"]["block"]["parameters"]["processNum"] is None
    assert "declared by its maker" in render(result)


def test_loss_is_carried():
    document = characterize(full_trace(lost={RecordKind.IO: 3})).as_document()
    assert document["lost"] == {"IO": 3}
    assert document["trustworthy"] is False
    text = render(characterize(full_trace(lost={RecordKind.IO: 3})))
    assert text.startswith("WARNING: records were lost while recording (3 IO)")
    assert "NOT TRUSTWORTHY" in text


@pytest.fixture
def written(tmp_path):
    return package.write(full_trace(metadata={"command": ["sort", "x y"], "made_by": "test"}), tmp_path / "a.iotrace")


@pytest.fixture
def written_with_loss(tmp_path):
    trace = full_trace(lost={RecordKind.IO: 3, RecordKind.BLOCK: 2})
    trace.arrays[RecordKind.GAP] = made_trace(
        gaps=[
            {"lost_kind": 1, "cpu": 0, "lost_count": 1},
            {"lost_kind": 1, "cpu": 0, "lost_count": 2},
            {"lost_kind": 5, "cpu": 1, "lost_count": 2},
        ]
    ).arrays[RecordKind.GAP]
    return package.write(trace, tmp_path / "lost.iotrace")


def test_verb_characterize_json(written, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/opt/bin/flextrace", "characterize", "a b"])
    assert main(["characterize", str(written), "--format", "json", "--layer", "vfs"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["layers"]) == ["vfs"]
    assert document["input"]["sha256"] == hashlib.sha256(written.read_bytes()).hexdigest()
    assert document["tool_version"]
    assert document["command"] == ["flextrace", "characterize", "a b"]


@pytest.mark.parametrize(("layer", "shown", "hidden"), [("vfs", "VFS", "BLOCK"), ("block", "BLOCK", "VFS")])
def test_verb_characterize_text(written, capsys, layer, shown, hidden):
    assert main(["characterize", str(written), "--layer", layer]) == 0
    text = capsys.readouterr().out
    assert f"{shown}" in text
    assert f"{hidden} LAYER" not in text.replace("(VFS)", "VFS")
    assert "uniqueBytes" in text


@pytest.mark.parametrize("output", ["text", "json"])
def test_verb_characterize_with_loss_prints_and_exits_3(written_with_loss, capsys, output):
    assert main(["characterize", str(written_with_loss), "--format", output]) == 3
    captured = capsys.readouterr()
    assert "uniqueBytes" in captured.out
    assert "5 records were LOST" in captured.err


def test_verb_characterize_of_something_else(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("1,2,3\n")
    assert main(["characterize", str(path)]) == 1
    assert "not a flextrace trace" in capsys.readouterr().err


def test_verb_info_json(written, capsys):
    assert main(["info", str(written), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "flextrace.info/1"
    assert document["version"] == f"1.{TRACE_VERSION_MINOR}"
    assert {kind: count for kind, count in document["records"].items() if count} == {
        "IO": 3,
        "FILEOP": 1,
        "FILE": 1,
        "TASK": 1,
        "BLOCK": 1,
        "TEXT": 2,
    }
    assert document["metadata"]["command"] == ["sort", "x y"]
    assert document["threads"] == [{"comm": "sort", "processes": 1, "threads": 1}]
    (file,) = document["files"]
    assert (file["reads"], file["writes"], file["bytes"], file["resident_bytes"]) == (2, 1, 8292, 0)


def test_verb_info_text(written, capsys):
    assert main(["info", str(written)]) == 0
    text = capsys.readouterr().out
    assert "command    sort 'x y'" in text
    assert "..." + "y" * 39 in text
    assert all(len(line) <= 90 for line in text.splitlines() if not line.startswith(("trace", "sha256")))


def test_verb_info_of_losses(written_with_loss, capsys):
    assert main(["info", str(written_with_loss), "--format", "json"]) == 3
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["lost"] == {"IO": 3, "BLOCK": 2}
    assert document["lost_by_cpu"] == [
        {"kind": "IO", "cpu": 0, "gaps": 2, "lost": 3, "start_s": 0, "end_s": 0},
        {"kind": "BLOCK", "cpu": 1, "gaps": 1, "lost": 2, "start_s": 0, "end_s": 0},
    ]
    assert "records were lost" in captured.err
    assert main(["info", str(written_with_loss)]) == 3
    assert "LOST RECORDS" in capsys.readouterr().out


def test_verbs_of_an_incomplete_file(written, capsys):
    content = bytearray(written.read_bytes())
    content[20] = HeaderFlag.INCOMPLETE
    written.write_bytes(bytes(content[:-30]))
    assert main(["info", str(written)]) == 3
    captured = capsys.readouterr()
    assert "INCOMPLETE" in captured.out
    assert "not closed cleanly" in captured.err
    assert main(["characterize", str(written), "--format", "json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["trustworthy"] is False
    assert "what its recorder still held is missing" in captured.err
    assert "ring-bytes" not in captured.err


def test_verbs_of_a_truncated_file(written, capsys):
    written.write_bytes(written.read_bytes()[: -64 * 4])
    assert main(["characterize", str(written), "--format", "json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["trustworthy"] is False
    assert "is truncated" in captured.err
    assert "its end is missing" in captured.err
    assert "ring-bytes" not in captured.err
    assert main(["info", str(written)]) == 3


def test_verb_info_of_every_trace(trace, tmp_path, capsys):
    path = package.write(trace, tmp_path / "any.iotrace")
    for output in ("text", "json"):
        assert main(["info", str(path), "--format", output]) == (3 if trace.header.lost else 0)
    assert "records" in capsys.readouterr().out


def test_verb_info_of_paths_that_are_not_utf8(tmp_path, capsys):
    trace = made_trace(files=[{"file": 1}], paths={1: b"/data/\xff".decode("utf-8", "surrogateescape")})
    path = package.write(trace, tmp_path / "a.iotrace")
    assert main(["info", str(path)]) == 0
    assert "/data/\\udcff" in capsys.readouterr().out


def test_verb_info_keeps_lines_whole_and_the_terminal_its_own(tmp_path, capsys):
    """Names may have line breaks and commands to a terminal in them; a backslash or an umlaut is nothing of that."""
    paths = {1: "/data/a\nsha256     0000\x1b[2J", 2: "/data/ä\\b\x7f\u202e"}
    tasks = [{"thread": 1, "process": 1, "comm": b"x\nflags  "}]
    trace = made_trace(files=[{"file": 1}, {"file": 2}], tasks=tasks, paths=paths)
    trace.header.metadata["command"] = ["cp", "a\r\x9bb"]
    path = package.write(trace, tmp_path / "a\tb.iotrace")
    assert main(["info", str(path)]) == 0
    out = capsys.readouterr().out
    together = "".join(out.split())  # long lines are broken between words
    for shown in (r"/data/a\nsha2560000\x1b[2J", r"/data/ä\b\x7f\u202e", r"x\nflags", r"a\r\x9bb", r"a\tb.iotrace"):
        assert shown in together, shown
    assert all(line.isprintable() for line in out.split("\n"))
    assert sum(line.startswith(("sha256", "flags")) for line in out.split("\n")) == 2
    assert main(["info", str(path), "--format", "json"]) == 0
    assert {row["path"] for row in json.loads(capsys.readouterr().out)["files"]} == set(paths.values())


def test_who_is_interrupted_does_not_wait_for_the_hash(tmp_path, monkeypatch):
    """Of a file of which it would take many minutes."""

    def interrupted(*_):
        raise KeyboardInterrupt

    path = package.write(full_trace(), tmp_path / "t.iotrace")
    os.truncate(path, 1 << 40)
    monkeypatch.setattr(TraceSummary, "add", interrupted)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # main replaces it
    assert main(["characterize", str(path)]) == 130
