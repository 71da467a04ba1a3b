# SPDX-License-Identifier: Apache-2.0
"""Traces exported for fio: fio runs them as they are, and strace and the recorder see the exported operations."""

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter

import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.formats import fio_iolog
from characterize.layout import FileFlag, Fileop, FileType, HeaderFlag, IoFlag, IoOp, Source
from flextrace import export as export_verb
from flextrace.main import main
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ROOT, needs_engine, needs_strace, op, strace

pytest_plugins = ["tests.traces.archive_fixtures"]
pytestmark = [
    pytest.mark.parallel,
    needs_engine,
    pytest.mark.skipif(not shutil.which("fio"), reason="fio is not installed"),
]

CALLS = "openat,pread64,pwrite64,fsync,fdatasync"
MILLISECOND = 1_000_000


def three_threads(**header):
    """29 reads, 17 writes, 5 syncs and 3 data syncs on 3 files, of which one is made by thread 12."""
    io = [read(7919 * at % 61 * 512, 100 + at, 1000 * at, 90, thread=11) for at in range(29)]
    io += [write(13 * at, 13, 500 + 1000 * at, 90, thread=12, file=1 + at % 2) for at in range(11)]
    io += [write(4096 * at, 4096, 20 * MILLISECOND + at, 1, thread=13, file=3) for at in range(6)]
    fileops = [op(Fileop.FSYNC, 2000 + 1000 * at, thread=12, file=2, result=0) for at in range(5)]
    fileops += [op(Fileop.FDATASYNC, 21 * MILLISECOND + at, thread=13, file=3, result=0) for at in range(3)]
    files = [
        {"file": 1, "size_bytes": 1 << 20},
        {"file": 2, "flags": FileFlag.CREATED},
        {"file": 3, "size_bytes": 1 << 16},
    ]
    return made_trace(io, fileops=fileops, files=files, **header)


def wanted(trace):
    """Operations of each thread in order, as (call, file, bytes, offset)."""
    rows = [
        (row.start_ns, row.thread, "pread64" if row.op == IoOp.READ else "pwrite64", row.file, row.result, row.offset)
        for row in trace.io.itertuples()
    ]
    rows += [
        (row.start_ns, row.thread, Fileop(row.op).name.lower(), row.file, 0, 0) for row in trace.fileops.itertuples()
    ]
    threads = {}
    for _, thread, call, file, size, offset in sorted(rows):
        threads.setdefault(thread, []).append((call, f"f{file:08d}", size, offset))
    return threads


def export(trace, place, name="t"):
    """Export by the command line; the job file."""
    path = characterize.write(trace, place / f"{name}.iotrace")
    job = place / f"{name}.fio"
    assert main(["export", str(path), "-o", str(job), "--directory", str(place / "image")]) == 0
    return job


def straced_fio(job, place):
    """Calls of fio on files of the image, by thread of fio."""
    done, calls = strace(["fio", "--output-format=json", str(job)], place / "log", CALLS)
    assert done.returncode == 0, done.stdout + done.stderr
    threads = {}
    for call in calls:
        if f"{place}/image/f" in call.arguments and call.name != "openat":
            numbers = call.numbers if call.name.startswith("p") else [0, 0]
            assert call.result == numbers[0]
            threads.setdefault(call.thread, []).append((call.name, call.file, *numbers))
    return threads, [call.arguments for call in calls if call.name == "openat"]


@needs_strace
def test_fio_does_exactly_the_exported_operations(tmp_path, capsys):
    trace = three_threads()
    job = export(trace, tmp_path)
    said = capsys.readouterr().err
    assert "54 data operations and syncs of 3 threads" in said
    assert "1 files are not there at the start" in said
    assert f"next: fio {job}" in said
    threads, _ = straced_fio(job, tmp_path)
    assert sorted(threads.values()) == sorted(wanted(trace).values())


@pytest.mark.records
def test_a_recording_of_fio_has_the_requests_of_the_trace(tmp_path):
    """In another instrument than strace, with asynchronous requests, whose order strace cannot tell."""
    aio = [
        read(4096 * at, 4096, 1000 * at, 5500, source=Source.AIO, flags=IoFlag.DIRECT, thread=21) for at in range(23)
    ]
    ring = [read(512 * at, 700, 1000 * at, 3500, source=Source.IO_URING, thread=22) for at in range(31)]
    trace = made_trace(aio + ring, files=[{"file": 1, "size_bytes": 1 << 20}])
    job = export(trace, tmp_path)
    text = job.read_text()
    assert "ioengine=libaio\niodepth=6\ndirect=1\n" in text
    assert "ioengine=io_uring\niodepth=4\n" in text
    again = tmp_path / "again.iotrace"
    record = [sys.executable, "-m", "flextrace", "record", "-o", str(again), "--", "fio", str(job)]
    done = subprocess.run(record, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    recorded = characterize.open(again)
    image = {file for file, path in recorded.paths.items() if path == f"{tmp_path}/image/f00000001"}
    requests = recorded.requests[recorded.requests["file"].isin(image)]
    columns = ["source", "offset", "asked_bytes", "result"]
    assert requests["flags"][requests["source"] == Source.AIO].map(lambda flags: bool(flags & IoFlag.DIRECT)).all()
    found = Counter(map(tuple, requests[columns].to_numpy().tolist()))
    assert found == Counter((row["source"], row["offset"], row["result"], row["result"]) for row in aio + ring)


def test_times_are_microseconds(tmp_path):
    """A lower bound: in another smaller unit fio would be done sooner; in a larger one it would take minutes."""
    io = [read(0, 512, 0), read(512, 512, 300 * MILLISECOND), read(0, 512, 450 * MILLISECOND)]
    job = export(made_trace(io, files=[{"file": 1, "size_bytes": 4096}]), tmp_path)
    log = (tmp_path / "t.iolog" / "1.iolog").read_text().splitlines()
    name = f"{tmp_path}/image/f00000001"
    assert log == [
        "fio version 3 iolog",
        f"1 {name} add",
        f"1 {name} open",
        f"1 {name} read 0 512",
        f"300001 {name} read 512 512",
        f"450001 {name} read 0 512",
    ]
    command = ["fio", "--output-format=json", str(job)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    (result,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    assert result["read"]["total_ios"] == 3
    assert result["job_runtime"] >= 450


def test_an_untimed_trace_runs_without_waiting(tmp_path):
    io = [read(512 * at, 512, at * 3600 * 10**9, 0) for at in range(7)]
    job = export(made_trace(io, files=[{"file": 1, "size_bytes": 4096}], flags=HeaderFlag.UNTIMED), tmp_path)
    assert "\nreplay_no_stall=1" in job.read_text()
    subprocess.run(["fio", str(job)], check=True, capture_output=True, timeout=60)


@needs_strace
def test_flags_are_those_of_a_whole_thread_or_are_told(tmp_path, capsys):
    io = [write(4096 * at, 4096, at, flags=IoFlag.DIRECT | IoFlag.DSYNC, thread=1) for at in range(3)]
    io += [write(4096 * at, 4096, at, flags=IoFlag.SYNC, thread=2, file=2) for at in range(5)]
    io += [read(4096 * at, 4096, at, flags=IoFlag.DIRECT if at < 2 else 0, thread=3, file=3) for at in range(7)]
    job = export(made_trace(io, files=[{"file": at, "size_bytes": 1 << 16} for at in (1, 2, 3)]), tmp_path)
    assert "warning: 2 direct operations of threads" in capsys.readouterr().err
    _, opens = straced_fio(job, tmp_path)

    def flags(name):
        return {flag for arguments in opens if name in arguments for flag in arguments.split(", ")[2].split("|")}

    assert {"O_DIRECT", "O_DSYNC"} <= flags("f00000001")
    assert "O_SYNC" in flags("f00000002")
    assert "O_DIRECT" not in flags("f00000002")
    assert flags("f00000003") == {"O_RDONLY"}


def test_what_no_log_can_say_is_counted(tmp_path):
    io = [read(0, 512, 10), read(512, -5, 20), read(8192, 0, 30), read(0, 512, 40, file=0), read(0, 512, 50, file=9)]
    io += [read(0, 4096, 60, source=Source.MMAP, flags=IoFlag.PROGRAM)]
    fileops = [op(kind, 70, result=0) for kind in (Fileop.OPEN, Fileop.TRUNCATE, Fileop.TRUNCATE, Fileop.RENAME)]
    fileops += [op(Fileop.FSYNC, 80, result=-5), op(Fileop.FSYNC, 90, thread=2, result=0)]
    files = [{"file": 1, "size_bytes": 8192}, {"file": 9, "type": FileType.DIRECTORY}]
    trace = made_trace(io, fileops=fileops, files=files)
    with fio_iolog.written(trace, tmp_path / "t.fio", tmp_path / "image") as written:
        exported = written
    assert exported.operations == 1
    assert sorted(exported.left_out.values()) == [1, 1, 1, 1, 2, 2, 3]
    assert exported.left_out["truncate"] == 2
    assert exported.left_out["data operations that moved nothing, or of mapped programs"] == 3
    assert exported.left_out["syncs of threads that do nothing else, which fio refuses"] == 1
    assert sum(exported.left_out.values()) + exported.operations == len(io) + len(fileops)


@pytest.mark.parametrize("name", ["a b", "a:b", "a;b", "a#b", "a$b", "n" * 120 + "/" + "n" * 130])
def test_names_that_fio_cannot_read_are_refused(tmp_path, name):
    with (
        pytest.raises(FlextraceError, match="fio cannot read") as caught,
        fio_iolog.written(three_threads(), tmp_path / "t.fio", tmp_path / name),
    ):
        pass
    assert caught.value.exit_code == 2
    if "/" not in name:
        with (
            pytest.raises(FlextraceError, match="fio cannot read"),
            fio_iolog.written(three_threads(), tmp_path / f"{name}.fio", tmp_path / "image"),
        ):
            pass
    assert not list(tmp_path.iterdir())


def test_nothing_to_export_is_refused(tmp_path):
    for trace in (made_trace([]), made_trace([read(0, -5)]), made_trace(fileops=[op(Fileop.FSYNC, 1, result=0)])):
        with (
            pytest.raises(FlextraceError, match="nothing for fio"),
            fio_iolog.written(trace, tmp_path / "t.fio", tmp_path / "image"),
        ):
            pass
    assert not list(tmp_path.iterdir())


def test_earlier_exports_are_kept_unless_forced(tmp_path, cli):
    job = export(three_threads(), tmp_path)
    logs = {log.name for log in (tmp_path / "t.iolog").iterdir()}
    assert logs == {"11.iolog", "12.iolog", "13.iolog"}
    one = made_trace([read(0, 512, thread=5)], files=[{"file": 1, "size_bytes": 4096}])
    path = characterize.write(one, tmp_path / "one.iotrace")
    words = ("export", path, "-o", job, "--directory", tmp_path / "other")
    status, error = cli(*words)
    assert (status, "--force" in error) == (2, True)
    job.unlink()
    status, error = cli(*words)
    assert (status, "t.iolog exists already" in error) == (2, True)
    assert {log.name for log in (tmp_path / "t.iolog").iterdir()} == logs
    assert cli(*words, "--force")[0] == 0
    assert [log.name for log in (tmp_path / "t.iolog").iterdir()] == ["5.iolog"]
    subprocess.run(["fio", str(job)], check=True, capture_output=True, timeout=60)


def test_an_archive_can_be_exported(archive, tmp_path, cli):
    status, error = cli("export", archive, "-o", tmp_path / "b.fio", "--directory", tmp_path / "image")
    assert status == 3, error
    assert error.count("records were lost") == 1
    assert (tmp_path / "b.fio").exists()


def test_a_directory_is_for_fio_and_fio_needs_one(trace, tmp_path, cli):
    for words, message in (
        (("export", trace, "-o", tmp_path / "b.fio"), "--directory"),
        (("export", trace, "-o", tmp_path / "b.parquet", "--directory", tmp_path / "image"), "omit it"),
    ):
        status, error = cli(*words)
        assert (status, message in error) == (2, True)
        assert not (tmp_path / "image").exists()


def test_files_that_cannot_be_laid_out_leave_no_job(trace, tmp_path, cli):
    place = tmp_path / "place"
    place.mkdir()
    (place / "precious").touch()
    status, error = cli("export", trace, "-o", tmp_path / "a.fio", "--directory", place)
    assert status == 1
    assert "holds files that are not a replay's" in error
    assert sorted(tmp_path.iterdir()) == sorted([trace, place])
    assert [path.name for path in place.iterdir()] == ["precious"]


def test_a_forced_export_that_fails_leaves_the_earlier_one(trace, tmp_path, cli):
    place = tmp_path / "place"
    place.mkdir()
    (place / "precious").touch()
    words = ("export", trace, "-o", tmp_path / "a.fio", "--force", "--directory")
    assert cli(*words, tmp_path / "image")[0] == 3
    earlier = {path: path.read_bytes() for path in (tmp_path / "a.fio", *(tmp_path / "a.iolog").iterdir())}
    names = sorted(path.name for path in tmp_path.iterdir())
    assert cli(*words, place)[0] == 1
    assert {path: path.read_bytes() for path in (tmp_path / "a.fio", *(tmp_path / "a.iolog").iterdir())} == earlier
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("moment", ["logs", "files"])
def test_an_interrupted_export_leaves_nothing(trace, tmp_path, monkeypatch, moment):
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # main replaces it
    place = tmp_path / "place"
    place.mkdir()
    if moment == "logs":
        monkeypatch.setattr(fio_iolog, "job_options", lambda *_: signal.raise_signal(signal.SIGINT))
    else:
        prepare = export_verb.prepare
        monkeypatch.setattr(export_verb, "prepare", lambda *of: (prepare(*of), signal.raise_signal(signal.SIGINT)))
    assert main(["export", str(trace), "-o", str(tmp_path / "a.fio"), "--directory", str(place)]) == 130
    assert sorted(tmp_path.iterdir()) == sorted([trace, place])
