# SPDX-License-Identifier: Apache-2.0
"""Files that a trace still uses when they have no name any more, told by strace and by what lies in the image."""

import json
import os
import subprocess

import pytest

import characterize
from characterize.layout import FileFlag, Fileop, IoFlag, Source
from tests.machines.block_device import run
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import DATA, ENGINE, needs_engine, needs_strace, op

pytestmark = [needs_engine, needs_strace, pytest.mark.parallel]

CALLS = "%file,%desc"
PAGE = 4096
NAME = 1 << 31


def removed(call):
    """Whether the kernel says that the file of a call has no name."""
    return "(deleted)" in call.arguments


@pytest.mark.parametrize("engine", ["sync", "io_uring"])
def test_a_removed_file_stays_after_its_last_recorded_close(run_phase, engine):
    """Memory that processes share: a file is made, unlinked, closed; it is mapped, and another process has it open."""
    made = op(Fileop.OPEN, 10, flags=IoFlag.CREATED)
    fileops = [made, op(Fileop.UNLINK, 20), op(Fileop.CLOSE, 30), op(Fileop.FSYNC, 70)]
    io = [
        write(0, 2 * PAGE, 15),
        write(0, PAGE, 40, source=Source.MMAP),
        read(PAGE, PAGE, 50, thread=2, process=2),
        read(0, PAGE, 60, flags=IoFlag.DIRECT),
    ]
    trace = made_trace(io, fileops=fileops, files=[{"file": 1, "flags": FileFlag.CREATED}])
    document, calls = run_phase(trace, f"{DATA},fsync", [f"--engine={engine}", "--order=recorded"])
    assert document["operations"]["done"] == 7
    assert document["skipped_reasons"] == {"shared_descriptor": 1}
    expected = ["pwrite64", "pread64", "pread64", "fsync"] if engine == "sync" else ["fsync"]
    assert [call.name for call in calls if removed(call)] == expected


def test_a_removed_file_that_nobody_uses_any_more_is_closed(run_phase):
    """Else it would fill the disk."""
    fileops = [op(Fileop.OPEN, 10), op(Fileop.UNLINK, 20), op(Fileop.CLOSE, 40)]
    trace = made_trace([read(0, PAGE, 30)], fileops=fileops, files=[{"file": 1, "size_bytes": PAGE}])
    document, calls = run_phase(trace, f"{DATA},close")
    assert document["operations"]["done"] == 4
    assert [call.name for call in calls if removed(call)] == ["pread64", "close"]


def test_a_sync_of_a_removed_file_finds_it(run_phase):
    """Its only use, by a descriptor that was open before the trace began."""
    trace = made_trace(fileops=[op(Fileop.UNLINK, 20), op(Fileop.FSYNC, 30)], files=[{"file": 1, "size_bytes": PAGE}])
    document, calls = run_phase(trace, "fsync")
    assert document["operations"]["done"] == 2
    assert [removed(call) for call in calls][-1:] == [True]


@pytest.mark.parametrize("closed", [False, True])
def test_a_file_that_another_one_is_renamed_over_stays_for_who_uses_it(run_phase, tmp_path, closed):
    """As a log that is replaced under a program that goes on writing to it; it may have been closed and be mapped."""
    lives = [op(Fileop.OPEN, 1), op(Fileop.CLOSE, 5)] if closed else []
    fileops = [*lives, op(Fileop.RENAME, 20, file=2, argument=NAME)]
    io = [read(0, PAGE, 3), read(0, PAGE, 10, file=2), write(PAGE, PAGE, 30), read(PAGE, PAGE, 40, file=2)]
    files = [
        {"file": 1, "size_bytes": 2 * PAGE},
        {"file": 2, "size_bytes": 3 * PAGE},
        {"file": NAME, "flags": FileFlag.NEW_NAME},
    ]
    trace = made_trace(io, fileops=fileops, files=files, paths={1: "/log", 2: "/new", NAME: "/log"})
    document, calls = run_phase(trace, options=["--keep-image"])
    assert document["operations"]["done"] == len(fileops) + len(io)
    assert [(call.name, removed(call)) for call in calls] == [
        ("pread64", False),
        ("pread64", False),
        ("pwrite64", True),
        ("pread64", False),
    ]
    assert [path.stat().st_size for path in (tmp_path / "image").glob("f*")] == [3 * PAGE]


def test_a_file_that_is_made_again_is_a_new_one(run_phase, tmp_path):
    """Altered traces give several files one id in turn; the first of them is used after its removal."""
    fileops = [
        op(Fileop.OPEN, 10, flags=IoFlag.CREATED),
        op(Fileop.UNLINK, 30),
        op(Fileop.CLOSE, 40),
        op(Fileop.OPEN, 60, flags=IoFlag.CREATED),
        op(Fileop.CLOSE, 80),
    ]
    io = [write(0, 9000, 20), read(0, 9000, 50, source=Source.MMAP), write(0, 5000, 70)]
    trace = made_trace(io, fileops=fileops, files=[{"file": 1, "flags": FileFlag.CREATED}])
    document, calls = run_phase(trace, CALLS, ["--keep-image"])
    assert document["operations"]["done"] == 7
    assert document["skipped_reasons"] == {"shared_descriptor": 1}
    moved = [call for call in calls if call.name in DATA.split(",") and call.file == "f00000001"]
    assert [removed(call) for call in moved] == [False, True, False]
    assert (tmp_path / "image" / "f00000001").stat().st_size == 5000


def test_of_a_file_of_which_only_the_name_is_known_there_is_nothing_to_be_cached(run_phase):
    """Nobody has opened it before it is removed: no warning says that it was cached whole."""
    files = [{"file": 1, "size_bytes": PAGE, "resident_bytes": 0}, {"file": NAME}]
    document, _ = run_phase(made_trace([read(0, PAGE, 10)], fileops=[op(Fileop.UNLINK, 20, file=NAME)], files=files))
    assert document["operations"]["done"] == 2
    assert document["warnings"] == []


def temporary(number, *more):
    """A file that is made without a name (O_TMPFILE), written, closed and gone, whose path is the kernel's for that."""
    start, inode = 100 * number, 7000 + number
    made = op(Fileop.OPEN, start, file=number, flags=IoFlag.CREATED)
    fileops = [made, *more, op(Fileop.CLOSE, start + 30, file=number)]
    file = {"file": number, "flags": FileFlag.CREATED, "inode": inode}
    return [write(0, 2 * PAGE, start + 10, file=number)], fileops, file, f"/tmp/#{inode}"


def trace_of_temporary(*files):
    io = [row for file in files for row in file[0]]
    fileops = [row for file in files for row in file[1]]
    rows = [*(file[2] for file in files), {"file": NAME, "flags": FileFlag.NEW_NAME}]
    paths = {file[2]["file"]: file[3] for file in files}
    return made_trace(io, fileops=fileops, files=rows, paths={**paths, NAME: "/tmp/kept"})


@pytest.mark.parametrize("engine", ["sync", "io_uring"])
def test_a_file_that_is_made_without_a_name_is_gone_with_its_last_close(run_phase, tmp_path, engine):
    """It is read once more directly, by a descriptor of another kind, and by its mapping when it is closed."""
    first_io, *first = temporary(1)
    more = [read(0, PAGE, 115, flags=IoFlag.DIRECT), read(PAGE, PAGE, 140, source=Source.MMAP)]
    trace = trace_of_temporary((first_io + more, *first), temporary(2))
    document, calls = run_phase(trace, f"{DATA},close", [f"--engine={engine}", "--keep-image"])
    assert document["operations"]["done"] == 7
    assert document["skipped_reasons"] == {"shared_descriptor": 1}
    assert not document["mismatches"]
    assert "f00000002" in [call.file for call in calls if call.name == "close" and removed(call)]
    assert not list((tmp_path / "image").glob("f*"))


def test_one_that_is_linked_later_has_a_name(run_phase, tmp_path):
    trace = trace_of_temporary(temporary(1, op(Fileop.LINK, 120, argument=NAME)))
    document, _ = run_phase(trace, options=["--keep-image"])
    assert document["operations"]["done"] == 4
    assert len(list((tmp_path / "image").glob("f*"))) == 2


@pytest.mark.root
def test_direct_reads_of_a_removed_file_go_through_the_page_cache_where_they_are_refused(tmp_path):
    """A program that has asked for O_DIRECT only when the file, which it still has open, had no name any more."""
    fileops = [op(Fileop.OPEN, 10), op(Fileop.UNLINK, 20), op(Fileop.CLOSE, 50)]
    io = [read(0, PAGE, 30, flags=IoFlag.DIRECT), read(PAGE, PAGE, 40)]
    made = made_trace(io, fileops=fileops, files=[{"file": 1, "size_bytes": 2 * PAGE}])
    trace = characterize.write(made, tmp_path / "t.iotrace")
    place = tmp_path / "ramfs"
    place.mkdir()
    run("mount", "-t", "ramfs", "none", place)
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            os.open(place / "direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        command = [ENGINE, trace, f"--directory={place / 'image'}", "--force-space"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    finally:
        run("umount", place)
    assert done.returncode == 3, done.stderr
    document = json.loads(done.stdout)
    assert (document["errors"], document["operations"]["done"]) == ({}, 5)
    assert any("refused O_DIRECT" in reason for reason in document["reasons"])
