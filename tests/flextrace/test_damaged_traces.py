# SPDX-License-Identifier: Apache-2.0
"""Traces with impossible numbers, and what is no trace: told in one line, at once, by an exit code of the design."""

from __future__ import annotations

import json
import os
import random

import pytest

import characterize
from characterize.layout import TRACE_HEADER_BYTES, TRACE_RECORD_BYTES, BlockOp, HeaderFlag, RecordKind
from flextrace.main import main
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import needs_engine

pytestmark = pytest.mark.parallel

EXIT_CODES = {0, 1, 2, 3}
INTEGERS = (0, 1, 255, 4096, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 2)
MAX = 2**63 - 1


def parent():
    io = [read(4096 * at, 4096, 100 * at, 50, thread=1 + at % 3, file=1 + at % 2) for at in range(40)]
    io += [write(4096 * at, 4096, 100 * at + 30, 50, file=2) for at in range(20)]
    return made_trace(
        io,
        files=[{"file": file, "size_bytes": 1 << 20, "resident_bytes": 4096} for file in (1, 2)],
        blocks=[{"op": BlockOp.READ, "start_ns": at, "sector": 8 * at, "bytes": 4096} for at in range(9)],
        gaps=[{"start_ns": 5, "lost_kind": RecordKind.IO, "lost_count": 1}],
        paths={1: "/../../etc/passwd", 2: "../x"},
    )


def verb(*words):
    """Exit code; errors that are no message escape."""
    try:
        return main([str(word) for word in words])
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (RecordKind.IO, {"offset": MAX}),
        (RecordKind.IO, {"offset": 2**63}),
        (RecordKind.IO, {"start_ns": 2**63}),
        (RecordKind.IO, {"duration_ns": 2**64 - 1}),
        (RecordKind.IO, {"start_ns": MAX, "duration_ns": 1}),
        (RecordKind.BLOCK, {"queued_ns": 2**63}),
    ],
)
def test_impossible_numbers_are_told(tmp_path, capsys, kind, fields):
    trace = parent()
    for name, value in fields.items():
        trace.arrays[kind][name][7] = value
    path = characterize.write(trace, tmp_path / "t.iotrace")
    assert verb("characterize", path) == 1
    assert "records have impossible" in capsys.readouterr().err


def test_a_clock_of_the_header_beyond_all_times_is_told(tmp_path, capsys):
    path = characterize.write(parent(), tmp_path / "t.iotrace")
    data = bytearray(path.read_bytes())
    data[32:40] = b"\xff" * 8
    path.write_bytes(data)
    for name in ("info", "characterize"):
        assert verb(name, path) == 1
        assert "its header has impossible times" in capsys.readouterr().err


def test_what_its_durations_are_of_is_told_as_damaged_when_a_trace_is_merged(tmp_path, capsys):
    trace, output = parent(), tmp_path / "o.iotrace"
    trace.header.flags |= HeaderFlag.PLANNED
    whole = characterize.write(trace, tmp_path / "whole.iotrace")
    trace.header.metadata["durations_of"] = {"size_factor": 0, "time_factor": 1}
    damaged = characterize.write(trace, tmp_path / "damaged.iotrace")
    for words in (["merge", whole, damaged], ["merge", damaged, damaged], ["clone", damaged, "--copies=2"]):
        assert verb(*words, "-o", output) == 1
        assert f"the header of {damaged} is damaged: durations_of is" in capsys.readouterr().err
        assert not output.exists()
    assert verb("merge", whole, whole, "-o", output) in {0, 3}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("devices", ["sda", [3], [{"device": ["8:0"]}], [{"device": "8:0", "sectors": "many"}]]),
        ("declared", [4, {"processNum": None}]),
        ("imported", ["msr", {"format": "msr", "bad_lines": "two"}]),
        ("skips", [["clone"], {"clone": None}]),
        ("holes", [{"files_cut": "x"}]),
        ("totals", [{"read": {"syscall": {"count": [1]}}}]),
        ("in_flight_max", ["x"]),
        ("memory_limit_bytes", ["128M"]),
        ("lineage", [7, {"achieved": 3}, {"achieved": {}, "times": {"timeScale": 2}}]),
        ("processors", [{"recording_ns": "x"}]),
        ("missed_runs", [17]),
    ],
)
def test_a_header_whose_values_are_not_what_they_should_be_is_told_by_their_names(tmp_path, capsys, name, values):
    """And what depends on them is not known."""
    path = tmp_path / "t.iotrace"
    for value in values:
        trace = parent()
        trace.header.flags |= HeaderFlag.LOST
        trace.header.metadata = {"made_by": "hand", name: value}
        characterize.write(trace, path, force=True)
        assert name not in characterize.open(path).header.metadata
        for words in (
            ["info", path],
            ["characterize", path],
            ["alter", path, "--time-scale=2", "--force", "-o", tmp_path / "o.iotrace"],
            ["merge", path, path, "--force", "-o", tmp_path / "o.iotrace"],
            ["export", path, "--force", "-o", tmp_path / "o.json"],
            ["report", "--trace", path, "--force", "-o", tmp_path / "o.html"],
        ):
            assert verb(*words) == 3
            said = " ".join("".join(capsys.readouterr()).split())  # lines are wrapped
            assert f"its JSON block is damaged in {name}, which" in said


def test_numbers_that_json_does_not_know_are_no_numbers(tmp_path, capsys):
    trace = parent()
    trace.header.metadata = {"made_by": "hand", "mean": float("nan"), "most": [1.5, float("inf")]}
    path = characterize.write(trace, tmp_path / "t.iotrace")
    assert verb("info", path, "--format=json") in {0, 3}
    assert json.loads(capsys.readouterr().out)["metadata"] == {"made_by": "hand", "mean": None, "most": [1.5, None]}


def test_what_looks_like_a_table_with_a_broken_line_is_no_trace(tmp_path, capsys):
    path = tmp_path / "t.iotrace"
    path.write_bytes(b"GLEXTRC1,\rop,start,size\n" + bytes(8192))
    assert verb("characterize", path) == 1
    assert "is not a flextrace trace" in capsys.readouterr().err


def test_a_thread_of_any_number_costs_no_memory(tmp_path):
    trace = parent()
    trace.arrays[RecordKind.IO]["thread"][3] = 2**32 - 1
    path = characterize.write(trace, tmp_path / "t.iotrace")
    assert verb("alter", path, "--process-num=1", "--nearest", "-o", tmp_path / "o.iotrace") in {0, 3}


@pytest.mark.parametrize("option", ["--time-scale=2", "--think-scale=2"])
def test_impossible_times_of_what_is_no_request_are_not_scaled(tmp_path, capsys, option):
    trace = parent()
    trace.arrays[RecordKind.IO]["result"][3] = -5
    trace.arrays[RecordKind.IO]["duration_ns"][3] = MAX
    path = characterize.write(trace, tmp_path / "t.iotrace")
    assert verb("alter", path, option, "-o", tmp_path / "o.iotrace") == 1
    assert "impossible times" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["-1", "1.5", "x", ""])
def test_seeds_are_whole_numbers_from_0_on(tmp_path, capsys, seed):
    path = characterize.write(parent(), tmp_path / "t.iotrace")
    assert verb("alter", path, "--read-frac=0.5", f"--seed={seed}", "-o", tmp_path / "o.iotrace") == 2
    assert "seed" in capsys.readouterr().err


@needs_engine
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, capsys):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    alter = ["alter", path, "--read-frac=0.5", "-o", tmp_path / "o.iotrace"]
    for words in (["info", path], ["characterize", path], alter, ["replay", path, "--directory", tmp_path / "image"]):
        assert verb(*words) == 1
        assert "cannot read trace" in capsys.readouterr().err
    for words in ([], ["--input-format=csv"], ["--input-format=blktrace"], ["--columns=start=a,offset=b,bytes=c,op=d"]):
        assert verb("import", path, "-o", tmp_path / "o.iotrace", *words) == 1
        assert "it is no file, and is read more than once" in capsys.readouterr().err
    assert verb("characterize", path, "--input-format=csv") == 1
    assert not (tmp_path / "o.iotrace").exists()
    assert not (tmp_path / "image").exists()


def damage(data, chance):
    """Change some numbers of the records, exchange two records, or cut the end off."""
    data = bytearray(data)
    for _ in range(chance.choice((1, 2, 8))):
        size = chance.choice((1, 2, 4, 8))
        at = chance.randrange(TRACE_HEADER_BYTES, len(data) - 8) // size * size
        data[at : at + size] = (chance.choice(INTEGERS) % 256**size).to_bytes(size, "little")
    if chance.random() < 0.1:
        del data[-chance.randrange(1, 3 * TRACE_RECORD_BYTES) :]
    return data


def test_damaged_records_are_read_or_told(tmp_path, capsys):
    chance = random.Random(11)
    whole = characterize.write(parent(), tmp_path / "whole.iotrace").read_bytes()
    path = tmp_path / "t.iotrace"
    for _ in range(60):
        path.write_bytes(damage(whole, chance))
        code = verb("characterize", path)
        assert code in EXIT_CODES
        assert code != 1 or capsys.readouterr().err
