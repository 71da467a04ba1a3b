# SPDX-License-Identifier: Apache-2.0
"""fio's I/O logs: written by fio of a job that is known, exported and imported again, and made by hand."""

import json
import shutil
import subprocess
import time

import numpy as np
import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.formats import lines
from characterize.formats.foreign import read_foreign
from characterize.formats.reading import ReadOptions
from characterize.formats.registry import found_format
from characterize.layout import TRACE_HEADER_BYTES, TRACE_RECORD_BYTES, Fileop, FileType, HeaderFlag, IoOp
from flextrace.main import main
from tests.traces.foreign_traces import FIO_LOG
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import needs_engine, op

pytestmark = pytest.mark.parallel

needs_fio = pytest.mark.skipif(not shutil.which("fio"), reason="fio is not installed")


def moved(trace):
    return list(zip(*(trace.io[name].tolist() for name in ("op", "offset", "asked_bytes", "result")), strict=True))


@needs_fio
def test_what_fio_writes(tmp_path):
    """23 sequential writes of 3 KiB, 10 ms apart: version 3 of the installed fio counts microseconds."""
    log, file = tmp_path / "log", tmp_path / "file"
    options = ["--name=j", f"--filename={file}", "--size=69k", "--bs=3k", "--rw=write", "--ioengine=psync"]
    options += ["--thinktime=10000", f"--write_iolog={log}", "--output-format=json"]
    done = subprocess.run(["fio", *options], check=True, capture_output=True, text=True)
    assert found_format(log).name == "fio"
    trace = characterize.open(log)
    assert moved(trace) == [(IoOp.WRITE, 3072 * at, 3072, 3072) for at in range(23)]
    assert trace.paths == {1: str(file)}
    assert trace.files["size_bytes"].tolist() == [69 * 1024]
    assert trace.header.metadata["imported"]["version"] == 3
    assert trace.header.metadata["durations"] == "unknown"
    # fio says in milliseconds how long that took, however slow this machine is; another unit is off by a thousand.
    took_ns = 1e6 * json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["write"]["runtime"]
    assert 1 / 30 < (trace.io["start_ns"].max() - trace.io["start_ns"].min()) / took_ns < 30


@needs_fio
def test_waits_of_version_2_are_moments_in_milliseconds(tmp_path):
    """It is not over before the last of them, half a second after fio's begin; they add up to 13 s."""
    log, file = tmp_path / "log", tmp_path / "file"
    file.write_bytes(bytes(8192))
    waits = range(10, 510, 10)
    lines = ["fio version 2 iolog", f"{file} add", f"{file} open"]
    for wait in waits:
        lines += [f"{file} wait {wait} 0", f"{file} read 0 4096"]
    log.write_text("\n".join([*lines, f"{file} close"]) + "\n")
    begin = time.monotonic()
    done = subprocess.run(
        ["fio", "--name=j", f"--read_iolog={log}", "--output-format=terse", "--terse-version=3"],
        check=True, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert time.monotonic() - begin > 0.45
    assert int(done.stdout.splitlines()[-1].split(";")[8]) < sum(waits) / 2
    assert characterize.open(log).io["start_ns"].tolist() == [1_000_000 * wait for wait in waits]


def test_version_2_by_hand(tmp_path):
    path = tmp_path / "log"
    path.write_text(FIO_LOG)
    trace = characterize.open(path)
    assert moved(trace) == [(IoOp.READ, 4096, 512, 512), (IoOp.WRITE, 0, 1024, 1024)]
    assert trace.io["start_ns"].tolist() == [0, 25_000_000]
    assert trace.paths == {1: "/dev/sdb", 2: "/data/x"}
    assert trace.files["type"].tolist() == [FileType.BLOCK_DEVICE, FileType.REGULAR]
    assert trace.files["size_bytes"].tolist() == [4608, 1024]
    ops = [Fileop.OPEN, Fileop.OPEN, Fileop.FSYNC, Fileop.FDATASYNC, Fileop.FALLOCATE, Fileop.CLOSE]
    assert trace.fileops["op"].tolist() == ops
    hole = trace.fileops.iloc[4]
    assert (hole["start_ns"], hole["argument"], hole["length"], hole["flags"]) == (30_000_000, 512, 512, 3 << 16)
    assert not trace.untimed
    assert read_foreign(path, ReadOptions(time_unit="us")).io["start_ns"].tolist() == [0, 25_000]


def test_version_2_without_waits_is_an_order(tmp_path):
    path = tmp_path / "log"
    path.write_text("".join(line + "\n" for line in FIO_LOG.splitlines() if "wait" not in line))
    trace = characterize.open(path)
    assert trace.untimed
    assert moved(trace) == [(IoOp.READ, 4096, 512, 512), (IoOp.WRITE, 0, 1024, 1024)]
    output = tmp_path / "o.iotrace"
    assert main(["import", str(path), "-o", str(output)]) == 0
    assert HeaderFlag.UNTIMED in characterize.open(output).header.flags


@pytest.mark.parametrize("block_bytes", [8 << 20, 70])
@pytest.mark.parametrize("version", [2, 3])
def test_syncs_stay_between_the_writes_of_one_moment(tmp_path, monkeypatch, version, block_bytes):
    """Also where the log is read in pieces: in the file that the engine reads as it comes."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", block_bytes)
    log, output = tmp_path / "log", tmp_path / "o.iotrace"
    rows = ["add", "open", *(f"write {4096 * at} 4096" if at % 3 else "sync 0 0" for at in range(1, 25)), "close"]
    rows += ["open", "read 0 4096", "trim 0 4096", "read 4096 4096"]
    moments = [1, 1, *[7] * 10, *[9] * 14, 9, 9, 9, 9, 9]
    begins = [f"{time} /a" if version == 3 else "/a" for time in moments]
    content = "".join(f"{begin} {row}\n" for begin, row in zip(begins, rows, strict=True))
    log.write_text(f"fio version {version} iolog\n{content}")
    assert main(["import", str(log), "-o", str(output)]) == 0
    records = np.fromfile(output, np.uint8, offset=TRACE_HEADER_BYTES).reshape(-1, TRACE_RECORD_BYTES)
    kinds = {"write": (1, IoOp.WRITE), "read": (1, IoOp.READ), "sync": (2, Fileop.FSYNC)}
    kinds |= {"trim": (2, Fileop.FALLOCATE), "close": (2, Fileop.CLOSE)}
    found = [(int(kind), int(op)) for kind, op in records[:, :2] if kind in (1, 2) and (kind, op) != (2, Fileop.OPEN)]
    assert found == [kinds[row.split()[0]] for row in rows if row.split()[0] in kinds]
    trace = characterize.open(output)
    assert trace.untimed == (version == 2)
    if version == 3:
        assert sorted(set(trace.io["start_ns"] // 1000)) == [7, 9]


@pytest.mark.parametrize("time", [2**63 // 10**9 + 1, 2**64 // 10**9 + 1, 10**15 - 1])
def test_a_time_of_version_3_that_64_bits_do_not_hold_is_malformed(tmp_path, time):
    path = tmp_path / "log"
    path.write_text(f"fio version 3 iolog\n0 /a add\n1 /a open\n{time} /a read 0 4096\n")
    with pytest.raises(FlextraceError, match=r"line 4: expected a time of 0 to 2\^63 ns"):
        read_foreign(path, ReadOptions("fio", time_unit="s"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/data/x raed 0 512", "line 14: expected PATH ACTION"),
        ("/data/x read 0", "line 14: expected PATH ACTION"),
        ("/data/x read", "line 14: expected an offset and a size behind read, write and wait"),
        ("/data/x write 0 4294967296", "line 14: expected a size below 2"),
    ],
)
def test_malformed_lines(tmp_path, line, message):
    path = tmp_path / "log"
    path.write_text(FIO_LOG + line + "\n")
    with pytest.raises(FlextraceError, match=message):
        characterize.open(path)
    assert len(read_foreign(path, ReadOptions(skip_bad=True)).io) == 2


@needs_engine
def test_what_is_exported_comes_back(tmp_path):
    """All that a log can say, to the microsecond, which is what its times have."""
    io = [read(7919 * at % 61 * 512, 100 + at, 1_000_000 * at + 17_000, 90) for at in range(29)]
    io += [write(4096 * at, 13 + at, 1_000_000 * at + 500_000, 90, file=2) for at in range(11)]
    fileops = [op(Fileop.FSYNC, 2_000_000 * at + 600_000, file=2, result=0) for at in range(5)]
    trace = made_trace(
        io, fileops=fileops, files=[{"file": 1, "size_bytes": 1 << 20}, {"file": 2, "size_bytes": 1 << 20}]
    )
    path = characterize.write(trace, tmp_path / "t.iotrace")
    assert main(["export", str(path), "-o", str(tmp_path / "t.fio"), "--directory", str(tmp_path / "image")]) == 0
    again = characterize.open(tmp_path / "t.iolog" / "1.iolog")
    whole = sorted((row["start_ns"], row["op"], row["offset"], row["result"]) for row in io)
    first_ns = whole[0][0] - 1000  # a log begins at 1 us
    columns = zip(*(again.io[name].tolist() for name in ("start_ns", "op", "offset", "result")), strict=True)
    assert [(start + first_ns, *rest) for start, *rest in columns] == whole
    syncs = again.fileops[again.fileops["op"] == Fileop.FSYNC]
    assert (syncs["start_ns"] + first_ns).tolist() == [row["start_ns"] for row in fileops]
