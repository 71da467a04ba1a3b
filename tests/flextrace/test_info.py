# SPDX-License-Identifier: Apache-2.0
"""``flextrace info``: how complete a trace is, by what its recorder and the kernel counted."""

import json

import pytest

import characterize as package
from characterize.completeness import closure_of, gaps_of, sources_of
from characterize.layout import TRACE_VERSION_MINOR, HeaderFlag, RecordKind, Source
from flextrace.main import main
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

METADATA = {
    "programs": ["sys_enter", "sys_exit", "block_rq_issue"],
    "totals": {
        "read": {"syscall": {"count": 3, "bytes": 300, "failed": 1}, "aio": {"count": 9, "bytes": 900, "failed": 0}},
        "write": {"mmap": {"count": 1, "bytes": 4096, "failed": 0}},
    },
    "in_flight_max": 7,
    "in_flight_end": 2,
    "skips": {"not_a_file": 12, "pseudo_file": 0, "compat_call": 0, "own_block_request": 3, "filtered": 5},
    "closure": {
        "tasks": {
            "rchar": {"seen": 999, "kernel": 1000, "ratio": 0.999},
            "wchar": {"seen": 0, "kernel": 0, "ratio": None},
        },
        "devices": {"8:0": {"read_bytes": {"seen": 4096, "kernel": 4096, "ratio": 1}}},
    },
    "lost": {"IO": 5},
    "devices": [{"device": "8:0", "name": "sda", "sectors": 1 << 30, "rotational": True, "backing": "254:0"}],
}


@pytest.fixture
def path(tmp_path):
    trace = made_trace(
        [
            read(0, 100, 1),
            read(0, -5, 2),
            read(0, 200, 3, source=Source.IO_URING),
            write(0, 4096, 4, source=Source.MMAP),
            write(0, 10, 5, source=Source.SPLICE),
        ],
        fileops=[{"op": 3}, {"op": 3, "source": Source.AIO}],
        gaps=[
            {"lost_kind": 1, "cpu": 0, "lost_count": 2, "start_ns": 3_000_000_000, "duration_ns": 1_000_000_000},
            {"lost_kind": 1, "cpu": 0, "lost_count": 1, "start_ns": 1_500_000_000, "duration_ns": 0},
            {"lost_kind": 8, "cpu": 1, "lost_count": 2, "start_ns": 5_000_000_000, "duration_ns": 250_000_000},
        ],
        metadata=METADATA,
        flags=HeaderFlag.LOST,
        lost={RecordKind.IO: 3, RecordKind.BLOCK_DATA: 2},
        start_monotonic_ns=1_000_000_000,
    )
    return package.write(trace, tmp_path / "a.iotrace")


def test_sources_by_hand(path):
    table = sources_of(package.open(path)).set_index("source").fillna(-1)
    names = ["reads", "read_bytes", "writes", "written_bytes", "failed", "fileops"]
    counted = ["counted_reads", "counted_read_bytes", "counted_writes", "counted_written_bytes"]
    assert table[names].T.to_dict("list") == {
        "syscall": [1, 100, 0, 0, 1, 1],
        "aio": [0, 0, 0, 0, 0, 1],
        "io_uring": [1, 200, 0, 0, 0, 0],
        "mmap": [0, 0, 1, 4096, 0, 0],
        "splice": [0, 0, 1, 10, 0, 0],
    }
    assert table.loc["syscall", counted].tolist() == [3, 300, 0, 0]
    assert table.loc["aio", counted].tolist() == [9, 900, 0, 0]
    assert table.loc["mmap", counted].tolist() == [0, 0, 1, 4096]
    assert table.loc["splice", counted].tolist() == [0, 0, 0, 0]


def test_sources_without_totals_are_not_counted():
    table = sources_of(made_trace([read(0, 100)]))
    assert table["counted_reads"].isna().all()
    assert not len(sources_of(made_trace()))


def test_closure_by_hand(path):
    table = closure_of(package.open(path))
    assert table[["of", "account", "seen", "kernel"]].to_numpy().tolist() == [
        ["tasks", "rchar", 999, 1000],
        ["tasks", "wchar", 0, 0],
        ["8:0", "read_bytes", 4096, 4096],
    ]
    assert table["ratio"].fillna(-1).tolist() == [0.999, -1, 1]


@pytest.mark.parametrize(
    "closure",
    [
        *(None, [], "x", {"tasks": 3}, {"tasks": {"rchar": 1}}, {"devices": {"8:0": None}}),
        {"tasks": {"rchar": {"seen": "1", "kernel": 2}}},
    ],
)
def test_damaged_closure_is_none(closure):
    assert not len(closure_of(made_trace(metadata={"closure": closure})))


def test_gaps_by_hand(path):
    assert gaps_of(package.open(path)) == {"count": 3, "lost": 5, "start_s": 0.5, "end_s": 4.25}
    assert gaps_of(made_trace()) == {"count": 0, "lost": 0, "start_s": None, "end_s": None}


def test_text(path, capsys):
    assert main(["info", str(path)]) == 3
    text = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for expected in (
        "programs sys_enter, sys_exit, block_rq_issue",
        "in 3 gaps, from 0.500000 s to 4.250000 s",
        "IO on CPU 0: 3 in 2 gaps, from 0.500000 s to 3.000000 s",
        "BLOCK_DATA on CPU 1: 2 in 1 gaps, from 4.000000 s to 4.250000 s",
        "syscall 1 100 B 0 0 B 1 1",
        "counted 9 900 B 0 0 B",
        "io_uring 1 200 B 0 0 B 0 0",
        "most in flight at once, as counted: 7",
        "in flight when recording ended, and not in the trace: 2",
        "tasks rchar 999 1000 0.999000",
        "tasks wchar 0 0 -",
        "8:0 read_bytes 4096 4096 1.000000",
        "not a file 12",
        "filtered 5",
    ):
        assert expected in lines, expected
    assert "pseudo file" not in text
    assert all(len(line) <= 90 for line in text.splitlines() if not line.startswith(("trace", "sha256")))


def test_json(path, capsys):
    assert main(["info", str(path), "--format", "json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["command"][0] == "flextrace"
    assert document["version"] == f"1.{TRACE_VERSION_MINOR}"
    assert document["programs"] == METADATA["programs"]
    assert document["skips"] == METADATA["skips"]
    assert (document["in_flight_max"], document["in_flight_end"]) == (7, 2)
    assert document["closure"][1] == {"of": "tasks", "account": "wchar", "seen": 0, "kernel": 0, "ratio": None}
    assert document["gaps"]["count"] == 3
    assert document["sources"][0]["counted_reads"] == 3
    assert document["links"]["by_class"] == []


def test_what_format_1_0_called_otherwise(tmp_path, capsys):
    trace = made_trace([read(0, 10)], metadata={"probes": "tp_btf/sys_enter", "skipped": {"compat_call": 2}})
    path = package.write(trace, tmp_path / "a.iotrace")
    assert main(["info", str(path)]) == 0
    text = capsys.readouterr().out
    assert "programs   tp_btf/sys_enter" in text
    assert "compat call" in text


def test_left_out_runs_of_programs(tmp_path, capsys):
    """Of programs that make records: what is missing nobody counted, and every verb says why."""
    trace = made_trace([read(0, 100, 1)], metadata={"missed_runs": {"io_uring_complete": 17}}, flags=HeaderFlag.LOST)
    path = package.write(trace, tmp_path / "a.iotrace")
    (warning,) = package.open(path).warnings
    assert "left out runs of the recorder's programs (17 of io_uring_complete)" in warning
    assert main(["info", str(path)]) == 3
    assert "17" in capsys.readouterr().out
    assert main(["characterize", str(path)]) == 3


def test_commands_are_told_as_a_shell_takes_them(tmp_path, capsys):
    """As lists of words; in older traces those of makers are one text."""
    metadata = {
        "command": ["sort", "x y"],
        "alter_command": "flextrace alter 'a b'",
        "cut_command": ["flextrace", "c d"],
    }
    package.write(made_trace([read(0, 100, 1)], metadata=metadata), tmp_path / "a.iotrace")
    assert main(["info", str(tmp_path / "a.iotrace")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "command    sort 'x y'" in lines
    assert "alter_command flextrace alter 'a b'" in lines
    assert "cut_command flextrace 'c d'" in lines


def test_holes_are_told(tmp_path, capsys):
    trace = made_trace(
        [read(0, 100, 1, file=file) for file in (1, 2, 3)],
        files=[{"file": file, "size_bytes": 1 << 40} for file in (1, 2, 3)],
        holes=[{"file": file, "offset": 7 << 20, "bytes": at << 20} for at, file in enumerate((1, 1, 3), 1)],
        metadata={"holes": {"files": 2, "bytes": 6 << 20, "files_cut": 4, "files_not_looked_at": 7}},
    )
    package.write(trace, tmp_path / "a.iotrace")
    assert main(["info", str(tmp_path / "a.iotrace"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["holes"] == {"files": 2, "bytes": 6 << 20, "files_cut": 11}
    assert main(["info", str(tmp_path / "a.iotrace")]) == 0
    line = "holes      6 MiB in 2 files, which a replay leaves; not all of 11 files are recorded"
    assert line in capsys.readouterr().out.splitlines()
