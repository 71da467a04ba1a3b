# SPDX-License-Identifier: Apache-2.0
"""Logs of strace: of a program whose calls are known, beside flextrace's own recording of it, and made by hand."""

import errno
import shutil
import subprocess
import sys

import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.formats.foreign import read_foreign
from characterize.formats.reading import ReadOptions
from characterize.formats.registry import found_format
from characterize.formats.strace_arguments import unescaped
from characterize.layout import FileFlag, Fileop, FileType, IoFlag, IoOp, RecordKind, Source
from characterize.workload import workload_of
from flextrace.main import main
from tests.traces.foreign_traces import STRACE_LOG
from tests.truths.straced import ROOT, needs_engine, needs_strace

pytestmark = pytest.mark.parallel

# Reads, writes and what else is done with files, by descriptors that are copied, inherited and closed.
PROGRAM = """
import os, sys, threading
d = sys.argv[1]
a = os.open(d + "/in", os.O_RDONLY)
for i in range(7): os.read(a, 1000)
os.lseek(a, 100, 0); os.read(a, 500)
b = os.dup(a); os.read(b, 300); os.read(a, 300)
os.pread(a, 700, 5000); os.close(b)
c = os.open(d + "/out", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
os.write(c, b"x" * 4096); os.writev(c, [b"a" * 10, b"b" * 20]); os.fsync(c); os.fdatasync(c)
os.pwrite(c, b"y" * 100, 50); os.ftruncate(c, 2000)
e = os.open(d + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
pid = os.fork()
if pid == 0:
    os.read(a, 111); os.write(e, b"child\\n"); os._exit(0)
os.waitpid(pid, 0)
os.read(a, 222); os.write(e, b"parent\\n")
t = threading.Thread(target=lambda: (os.read(a, 333), os.write(c, b"t" * 44)))
t.start(); t.join()
os.chdir(d)
f = os.open("rel \\u00fc", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600); os.write(f, b"z" * 33); os.close(f)
os.rename("rel \\u00fc", "rel2"); os.unlink("rel2"); os.mkdir("dd"); os.rmdir("dd")
g = os.open(d + "/in", os.O_RDONLY); h = os.open(d + "/copy", os.O_WRONLY | os.O_CREAT, 0o600)
os.sendfile(h, g, 10, 999); os.copy_file_range(g, h, 555, 7)
p = os.pipe(); os.write(p[1], b"pipe"); os.read(p[0], 4)
"""
# (operation, file, offset, bytes), in the order of the program.
READS = [("r", "in", at * 1000, 1000) for at in range(7)]
READS += [("r", "in", 100, 500), ("r", "in", 600, 300), ("r", "in", 900, 300), ("r", "in", 5000, 700)]
WANTED = [
    *READS,
    *(("w", "out", 0, 4096), ("w", "out", 4096, 30), ("w", "out", 50, 100)),
    *(("r", "in", 1200, 111), ("w", "log", 0, 6), ("r", "in", 1311, 222), ("w", "log", 6, 7)),
    *(("r", "in", 1533, 333), ("w", "out", 4126, 44), ("w", "rel ü", 0, 33)),
    *(("r", "in", 10, 999), ("w", "copy", 0, 999), ("r", "in", 7, 555), ("w", "copy", 999, 555)),
]


@pytest.fixture
def place(tmp_path):
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "in").write_bytes(bytes(20_011))
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def command_in(place):
    return [sys.executable, "-S", str(place / "program.py"), str(place / "d")]


def straced(place, *options):
    log = place / "log.strace"
    subprocess.run(["strace", "-f", *options, "-o", str(log), *command_in(place)], check=True, timeout=120)
    return log


def moved(trace, directory):
    """Data operations on files of a directory, in the order of their starts."""
    start = f"{directory}/"
    inside = {file: path.removeprefix(start) for file, path in trace.paths.items() if path.startswith(start)}
    rows = trace.io[trace.io["file"].isin(inside) & (trace.io["result"] > 0)].sort_values("start_ns", kind="stable")
    return [
        ("r" if row.op == IoOp.READ else "w", inside[row.file], row.offset, row.result) for row in rows.itertuples()
    ]


@needs_strace
@pytest.mark.parametrize("options", [("-ttt", "-T"), ("-ttt", "-T", "-y"), ("-ttt",)])
def test_the_calls_of_a_known_program(place, options):
    log = straced(place, *options)
    assert found_format(log).name == "strace"
    trace = characterize.open(log)
    assert moved(trace, place / "d") == WANTED
    assert (trace.header.metadata.get("durations") == "unknown") == ("-T" not in options)
    assert set(trace.io["source"]) == {Source.SYSCALL}
    files = trace.files.set_index("path")
    directory = place / "d"
    assert files.loc[f"{directory}/in", "size_bytes"] == 7000  # what was read: the program asks for no size
    assert files.loc[f"{directory}/out", "size_bytes"] == 0
    assert files.loc[f"{directory}/rel ü", "flags"] == FileFlag.CREATED
    assert files.loc[f"{directory}/rel2", "flags"] == FileFlag.NEW_NAME
    assert files.loc[f"{directory}/dd", "type"] == FileType.DIRECTORY
    mine = trace.fileops[trace.fileops["file"].map(trace.paths).fillna("").str.startswith(str(directory))]
    counts = mine["op"].value_counts().to_dict()
    wanted = {Fileop.FSYNC: 1, Fileop.FDATASYNC: 1, Fileop.TRUNCATE: 1, Fileop.RENAME: 1, Fileop.UNLINK: 1}
    wanted |= {Fileop.MKDIR: 1, Fileop.RMDIR: 1, Fileop.OPEN: 6, Fileop.CLOSE: 2}
    assert {op: counts.get(op, 0) for op in wanted} == wanted
    assert mine["argument"][mine["op"] == Fileop.TRUNCATE].tolist() == [2000]
    processes = trace.tasks.groupby("process")["thread"].nunique()
    assert sorted(processes) == [1, 2]  # the child, and the program with its thread


@needs_strace
def test_a_log_on_the_terminal_names_the_first_thread_only_beside_others(place):
    log = place / "log.strace"
    with log.open("wb") as terminal:
        subprocess.run(["strace", "-f", "-ttt", "-T", *command_in(place)], stderr=terminal, check=True, timeout=120)
    assert "[pid " in log.read_text()
    trace = characterize.open(log)
    assert moved(trace, place / "d") == WANTED
    assert sorted(trace.tasks.groupby("process")["thread"].nunique()) == [1, 2]
    assert "left_out_calls_without_a_begin" not in trace.header.metadata["imported"]


@needs_strace
@pytest.mark.records
def test_the_five_are_those_of_a_recording(place):
    """Two runs of one program, seen by two instruments."""
    log = straced(place, "-ttt", "-T", "-y")
    shutil.rmtree(place / "d")
    (place / "d").mkdir()
    (place / "d" / "in").write_bytes(bytes(20_011))
    output = place / "own.iotrace"
    done = subprocess.run(
        [sys.executable, "-m", "flextrace", "record", "-o", output, "--path", place / "d", "--", *command_in(place)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    own = characterize.open(output)
    assert moved(own, place / "d") == WANTED
    from_strace = place / "strace.iotrace"
    assert main(["import", str(log), "-o", str(from_strace)]) == 0
    cut = place / "cut.iotrace"
    assert main(["cut", str(from_strace), "-o", str(cut), "--path", f"{place}/d/*"]) == 0
    five, other = workload_of(own), workload_of(characterize.open(cut))
    for name in ("unique_bytes", "seq_frac", "read_frac", "size_mean", "process_num"):
        assert getattr(five, name) == getattr(other, name), name


@needs_strace
@needs_engine
def test_an_imported_log_can_be_replayed(place, tmp_path):
    log = straced(place, "-ttt", "-T", "-e", "trace=all")
    output = tmp_path / "s.iotrace"
    assert main(["import", str(log), "-o", str(output)]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "flextrace", "replay", output, "--directory", tmp_path / "scratch", "--format", "json"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"failed": 0' in done.stdout


def test_by_hand(tmp_path):
    path = tmp_path / "log"
    path.write_text(STRACE_LOG)
    trace = characterize.open(path)
    named = trace.io.assign(path=trace.io["file"].map(trace.paths))
    columns = ["thread", "path", "offset", "asked_bytes", "result"]
    assert [tuple(row) for row in named[columns].itertuples(index=False)] == [
        (10, '/data/a"bü', 0, 100, 50),
        (10, '/data/a"bü', 50, 70, 70),
        (11, "/data/known", 0, 7, 7),
        (10, '/data/a"bü', 120, 100, -5),
        (10, '/data/a"bü', 1000, 321, 321),
        (10, '/data/a"bü', 120, 11, 11),  # the copy was closed by the exec
    ]
    assert trace.io["start_ns"].tolist()[:3] == [1700000000 * 10**9 + at for at in (20_000, 30_000, 31_000)]
    assert trace.io["duration_ns"].tolist()[:3] == [5000, 10_000, 1000]
    direct = int(IoFlag.DIRECT | IoFlag.DSYNC)
    assert [flags & direct for flags in trace.io["flags"]] == [direct, direct, 0, direct, direct, direct]
    assert bool(trace.io["flags"][2] & IoFlag.OFFSET_INFERRED)
    hole = trace.fileops[trace.fileops["op"] == Fileop.FALLOCATE].iloc[0]
    assert (hole["argument"], hole["length"], hole["flags"]) == (512, 1024, 3 << 16)
    assert trace.files.set_index("path").loc['/data/a"bü', "size_bytes"] == 4321
    assert trace.header.start_realtime_ns == 1700000000 * 10**9 + 1000


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("end", ["+++ exited with 0 +++", "+++ killed by SIGKILL +++"])
def test_a_number_that_is_used_again_is_that_of_another_process(tmp_path, end, early):
    """The child has its parent's descriptors, also where it calls something before the clone that made it ends."""
    path = tmp_path / "log"
    call = '11 1700000000.000011 read(3, "", 40) = 40 <0.000001>\n'
    lines = (
        '10 1700000000.000001 open("/a", O_RDONLY) = 3 <0.000001>',
        "10 1700000000.000002 clone(flags=CLONE_THREAD|CLONE_FILES) = 11 <0.000001>",
        '11 1700000000.000003 read(3, "", 10) = 10 <0.000001>',
        "11 1700000000.000004 read(3,  <unfinished ...>",
        f"11 1700000000.000005 {end}",
        "10 1700000000.000006 close(3) = 0 <0.000001>",
        '10 1700000000.000007 open("/b", O_RDONLY) = 3 <0.000001>',
        "10 1700000000.000008 clone(flags=SIGCHLD <unfinished ...>",
        *([call.strip()] if early else []),
        "10 1700000000.000012 <... clone resumed>) = 11 <0.000001>",
        *([] if early else [call.strip()]),
        "10 1700000000.000014 close(3) = 0 <0.000001>",
        '11 1700000000.000015 read(3, "", 50) = 50 <0.000001>',
    )
    path.write_text("\n".join((*lines, "")))
    trace = characterize.open(path)
    named = trace.io.assign(path=trace.io["file"].map(trace.paths))
    assert named[["process", "path", "offset", "result"]].to_numpy().tolist() == [
        [10, "/a", 0, 10],
        [11, "/b", 0, 40],
        [11, "/b", 40, 50],
    ]


def test_malformed_lines(tmp_path):
    path = tmp_path / "log"
    path.write_text(STRACE_LOG + "10 1700000000.000170 read(3, broken\n")
    with pytest.raises(FlextraceError, match=r"line 18: expected \[PID\] SECONDS CALL\(ARGUMENTS\) = RESULT"):
        characterize.open(path)
    assert len(read_foreign(path, ReadOptions(skip_bad=True)).io) == 6


def test_a_call_with_other_arguments_is_counted(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        STRACE_LOG + "11 1700000000.000170 fallocate(5</data/known>, 0, 0xff, ?) = 0 <0.1>\n"
        '11 1700000000.000180 mkdir("/d", 0777777777777777777777777) = 0 <0.1>\n'
    )
    trace = characterize.open(path)
    assert len(trace.io) == 6
    assert trace.header.metadata["imported"]["left_out_calls_not_understood"] == 2


def test_a_call_may_ask_for_more_than_a_record_can_say(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 open("/a", O_RDONLY) = 3\n'
        "1700000000.000002 read(3, 0x1, 18446744073709551615) = -1 EFAULT (Bad address)\n"
        '1700000000.000003 readv(3, [{iov_base="", iov_len=18446744073709551615}], 1) = 40\n'
        "1700000000.000004 fadvise64(3, 0, 18446744073709551615, POSIX_FADV_DONTNEED) = 0\n"
        '1700000000.000005 read(3, "", 60) = 60\n'
        "1700000000.000006 fallocate(3, 0, -99999999999999999999, -1) = -1 EINVAL (Invalid argument)\n"
    )
    trace = characterize.open(path)
    most = 2**32 - 1  # as the recorder has it
    assert trace.io[["offset", "asked_bytes", "result"]].to_numpy().tolist() == [
        [0, most, -errno.EFAULT],
        [0, most, 40],
        [40, 60, 60],
    ]
    assert trace.fileops["op"].tolist() == [Fileop.OPEN, Fileop.FADVISE, Fileop.FALLOCATE]
    assert trace.arrays[RecordKind.FILEOP]["length"].tolist()[1:] == [2**63 - 1, 2**64 - 1]


def test_without_f_there_is_one_thread(tmp_path):
    path = tmp_path / "log"
    path.write_text('1700000000.000001 open("/a", O_RDONLY) = 3\n1700000000.000002 read(3, "", 5) = 5\n')
    trace = characterize.open(path)
    assert trace.io[["thread", "result"]].to_numpy().tolist() == [[1, 5]]
    assert trace.header.metadata["durations"] == "unknown"


def test_a_call_whose_begin_is_not_in_the_log_is_counted(tmp_path):
    path = tmp_path / "log"
    path.write_text('7 1700000000.1 <... read resumed>"y"..., 70) = 70 <0.1>\n' + STRACE_LOG)
    trace = characterize.open(path)
    assert len(trace.io) == 6
    assert trace.header.metadata["imported"]["left_out_calls_without_a_begin"] == 1


@pytest.mark.parametrize(
    ("printed", "path"),
    [
        (r"a\303\244\tb\"\\", 'a\u00e4\tb"\\'),
        (r"\x41\0z", "A\0z"),
        ("\u00e4\\n", "\u00e4\n"),  # by another tool than strace, which escapes what is not ASCII
        (r"\377", "\udcff"),
        (r"not \q an escape", "not q an escape"),
    ],
)
def test_escapes_of_paths(printed, path):
    assert unescaped(printed) == path
