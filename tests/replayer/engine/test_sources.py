# SPDX-License-Identifier: Apache-2.0
"""What the engine does with records of every source and with every file operation, told by strace."""

import errno
from itertools import pairwise

import pytest

import characterize
from characterize.layout import FileFlag, Fileop, IoFlag, Source
from characterize.requests import left_out
from tests.runs.running_replay import looped
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, needs_engine, needs_strace, op
from tests.truths.system_paths import PATHS

pytestmark = [needs_engine, needs_strace, pytest.mark.parallel]

CALLS = "%file,%desc"
PAGE = 4096
NAMES_FROM = 1 << 31
PROGRAM = int(IoFlag.ESTIMATED | IoFlag.PROGRAM)


@pytest.mark.parametrize("source", Source)
def test_data_of_every_source_is_read_and_written_by_calls(run_phase, source):
    io = [read(0, PAGE, 1, source=source), write(PAGE, PAGE, 3, source=source, flags=int(IoFlag.FIXED_BUFFER))]
    document, calls = run_phase(made_trace(io, files=[{"file": 1, "size_bytes": 2 * PAGE}]), options=["--engine=sync"])
    assert [(call.name, *call.numbers, call.result) for call in calls] == [
        ("pread64", PAGE, 0, PAGE),
        ("pwrite64", PAGE, PAGE, PAGE),
    ]
    assert document["operations"]["done"] == 2


@pytest.mark.parametrize(("engine", "calls_of_data"), [("sync", "pwrite64"), ("io_uring", "io_uring_enter")])
def test_the_times_of_a_file_are_asked_for_before_the_writes_that_found_them_asked_for(
    run_phase, engine, calls_of_data
):
    """Of reads the flag means nothing, and is not heeded."""
    flagged = {"flags": int(IoFlag.CTIME_QUERIED)}
    io = [write(at * PAGE, PAGE, 3 * at, file=1 + at % 2, **(flagged if at % 3 == 0 else {})) for at in range(17)]
    io += [read(at * PAGE, PAGE, 60 + 3 * at, **flagged) for at in range(5)]
    trace = made_trace(io, files=[{"file": 1, "size_bytes": 17 * PAGE}, {"file": 2, "size_bytes": 17 * PAGE}])
    stat = ["fstat", "newfstatat"]  # what libraries make of fstat
    _, calls = run_phase(trace, ",".join([*stat, calls_of_data]), options=[f"--engine={engine}"])
    first = next(at for at, call in enumerate(calls) if call.name == calls_of_data) - 1
    asked = [call.file for call in calls[first:] if call.name in stat and call.file.startswith("f0")]
    assert asked == [f"f{1 + at % 2:08}" for at in range(0, 17, 3)]
    if engine == "sync":
        before = [call.name in stat for call, following in pairwise(calls[first:]) if following.name == "pwrite64"]
        assert before == [at % 3 == 0 for at in range(17)]


def test_pages_of_programs_are_skipped_and_their_files_not_laid_out(run_phase, tmp_path):
    """The loader reads the header of a library by a call, which stays; nothing else needs the program's own file."""
    mapped = {"source": Source.MMAP, "flags": PROGRAM}
    io = [
        read(0, 16 * PAGE, 1, file=1, **mapped),
        read(0, 832, 2, file=2),
        read(0, 16 * PAGE, 3, file=2, **mapped),
        write(0, PAGE, 4, file=3, **mapped),
    ]
    files = [{"file": 1, "size_bytes": 1 << 20}, {"file": 2, "size_bytes": 2 << 20}, {"file": 3, "size_bytes": PAGE}]
    document, calls = run_phase(made_trace(io, files=files), options=["--keep-image"])
    assert [(call.name, call.file, call.numbers[0]) for call in calls] == [
        ("pread64", "f00000002", 832),
        ("pwrite64", "f00000003", PAGE),
    ]
    assert document["skipped_reasons"] == {"program_page": 2}
    assert document["operations"]["records"] == 4
    assert document["trustworthy"] is True
    assert not (tmp_path / "image" / "f00000001").exists()


def test_the_engine_leaves_out_what_characterize_leaves_out(run_phase):
    """One file for each path, mapped and read: the rule by path is the same on both sides."""
    files = [{"file": number, "size_bytes": PAGE} for number, _ in enumerate(PATHS, start=1)]
    io = [read(0, PAGE, number, file=number, source=Source.MMAP) for number, _ in enumerate(PATHS, start=1)]
    trace = made_trace(io, files=files, paths=dict(enumerate(PATHS, start=1)))
    document, calls = run_phase(trace)
    kept = [f"f{number:08}" for number, out in enumerate(left_out(trace).tolist(), start=1) if not out]
    assert [call.file for call in calls] == kept
    assert document["skipped_reasons"] == {"program_page": len(PATHS) - len(kept)}


def test_a_splice_moves_what_it_moved_and_not_what_it_asked_for(run_phase):
    """sendfile of a whole file to a pipe: 2 GiB asked for, 64 KiB moved. A read that moved nothing moves nothing.

    One side that failed by the other one (a closed pipe, another file system) would not fail by itself.
    """
    huge = 0x7FFFF000
    io = [
        read(0, 65536, 1, source=Source.SPLICE, asked_bytes=huge),
        write(0, 1000, 3, source=Source.SPLICE, asked_bytes=huge),
        read(1 << 20, 0, 5, source=Source.SPLICE, asked_bytes=huge),
        write(0, -errno.EPIPE, 7, source=Source.SPLICE, asked_bytes=huge),
        read(0, -errno.EXDEV, 9, source=Source.SPLICE, asked_bytes=huge),
    ]
    document, calls = run_phase(made_trace(io, files=[{"file": 1, "size_bytes": 1 << 20}]))
    assert [(call.name, call.numbers[0], call.result) for call in calls] == [
        ("pread64", 65536, 65536),
        ("pwrite64", 1000, 1000),
        ("pread64", 0, 0),
    ]
    assert not document["mismatches"]
    assert document["skipped_reasons"] == {"recorded_failure": 2}
    assert document["operations"]["failed"] == 0


def test_syncs_of_every_kind(run_phase):
    """sync has no file, syncfs any of its file system; msync without MS_SYNC (4) does nothing in Linux either."""
    fileops = [
        op(Fileop.SYNCFS, 10, file=0),
        op(Fileop.SYNCFS, 20),
        op(Fileop.MSYNC, 30, argument=0, length=PAGE, flags=4 << 16),
        op(Fileop.MSYNC, 40, argument=0, length=PAGE, flags=1 << 16),
    ]
    trace = made_trace([write(0, PAGE, 1)], fileops=fileops, files=[{"file": 1, "size_bytes": PAGE}])
    document, calls = run_phase(trace, CALLS)
    names = [call.name for call in calls if call.name in ("syncfs", "fdatasync", "fsync", "msync")]
    last_write = [call.name for call in calls].index("pwrite64")
    assert [call.name for call in calls[last_write + 1 :] if call.name in names] == ["syncfs", "syncfs", "fdatasync"]
    assert [call.file for call in calls[last_write:] if call.name == "syncfs"] == ["image", "image"]
    assert document["operations"]["done"] == 5
    assert document["response_time"]["sync"]["count"] == 3
    assert document["trustworthy"] is True


def test_directories_are_made_and_removed(run_phase, tmp_path):
    """One that the trace makes, and one that was there before and is known by its name only."""
    fileops = [
        op(Fileop.MKDIR, 10, file=NAMES_FROM),
        op(Fileop.RMDIR, 20, file=NAMES_FROM),
        op(Fileop.RMDIR, 30, file=NAMES_FROM + 1),
        op(Fileop.RMDIR, 40, file=0, result=-2),
    ]
    files = [
        {"file": 1, "size_bytes": PAGE},
        {"file": NAMES_FROM, "type": 3, "flags": FileFlag.CREATED},
        {"file": NAMES_FROM + 1, "type": 3},
    ]
    trace = made_trace([read(0, PAGE, 1)], fileops=fileops, files=files)
    document, calls = run_phase(trace, CALLS, ["--keep-image"])
    made = [call for call in calls if call.name in ("mkdirat", "unlinkat")][-3:]
    assert [call.name for call in made] == ["mkdirat", "unlinkat", "unlinkat"]
    assert all("AT_REMOVEDIR" in call.arguments for call in made[1:])
    assert document["operations"]["fileop"]["done"] == 3
    assert document["skipped_reasons"] == {"recorded_failure": 1}
    assert not [path for path in (tmp_path / "image").iterdir() if path.is_dir()]


def linked(*fileops, io=()):
    """A file that is there before, and the ids of two new names."""
    files = [
        {"file": 1, "size_bytes": 2 * PAGE},
        {"file": NAMES_FROM, "flags": FileFlag.NEW_NAME},
        {"file": NAMES_FROM + 1, "flags": FileFlag.NEW_NAME},
    ]
    paths = {1: "/tmp_object", NAMES_FROM: "/object", NAMES_FROM + 1: "/object2"}
    return made_trace([read(0, PAGE, 1), *io], fileops=list(fileops), files=files, paths=paths)


def test_a_file_that_is_linked_survives_the_unlink_of_its_first_name(run_phase, tmp_path):
    """What git does with every object: link, unlink of the first name, later open by the second one."""
    trace = linked(
        op(Fileop.LINK, 10, argument=NAMES_FROM),
        op(Fileop.UNLINK, 20),
        op(Fileop.OPEN, 30),
        op(Fileop.CLOSE, 50),
        io=[read(PAGE, PAGE, 40)],
    )
    document, calls = run_phase(trace, CALLS, ["--keep-image"])
    assert [call.name for call in calls if call.name in ("linkat", "unlinkat")] == ["linkat", "unlinkat"]
    assert document["operations"]["done"] == document["operations"]["records"] == 6
    assert [path.stat().st_size for path in (tmp_path / "image").iterdir() if path.name[0] == "f"] == [2 * PAGE]


def test_the_last_unlink_removes_a_file_with_several_names(run_phase, tmp_path):
    trace = linked(
        op(Fileop.LINK, 10, argument=NAMES_FROM),
        op(Fileop.LINK, 12, argument=NAMES_FROM + 1),
        *(op(Fileop.UNLINK, at) for at in (20, 22, 24)),
        op(Fileop.OPEN, 30),
    )
    document, _ = run_phase(trace, CALLS, ["--keep-image"], statuses=(0, 3))
    assert document["operations"]["done"] == 6
    assert document["skipped_reasons"] == {"no_such_file": 1}
    assert not [path for path in (tmp_path / "image").iterdir() if path.name[0] == "f"]


def test_a_rename_over_a_link_takes_only_that_name(run_phase, tmp_path):
    files = [
        {"file": 1, "size_bytes": PAGE},
        {"file": 2, "size_bytes": 2 * PAGE},
        *({"file": NAMES_FROM + at, "flags": FileFlag.NEW_NAME} for at in range(2)),
    ]
    paths = {1: "/a", 2: "/b", NAMES_FROM: "/link", NAMES_FROM + 1: "/link"}
    fileops = [
        op(Fileop.LINK, 10, file=1, argument=NAMES_FROM),
        op(Fileop.RENAME, 20, file=2, argument=NAMES_FROM + 1),
        op(Fileop.UNLINK, 30, file=1),
    ]
    io = [read(0, PAGE, 1, file=1), read(0, PAGE, 2, file=2), read(PAGE, PAGE, 40, file=2)]
    document, _ = run_phase(made_trace(io, fileops=fileops, files=files, paths=paths), options=["--keep-image"])
    assert document["operations"]["done"] == 6
    assert [path.stat().st_size for path in (tmp_path / "image").iterdir() if path.name[0] == "f"] == [2 * PAGE]


def test_two_files_exchange_their_names(run_phase, tmp_path):
    """RENAME_EXCHANGE (2): both files are there afterwards, and an unlink of one takes that one."""
    files = [
        {"file": 1, "size_bytes": PAGE},
        {"file": 2, "size_bytes": 2 * PAGE},
        {"file": NAMES_FROM, "flags": FileFlag.NEW_NAME},
    ]
    fileops = [op(Fileop.RENAME, 10, file=1, argument=NAMES_FROM, length=2), op(Fileop.UNLINK, 20, file=1)]
    io = [read(0, PAGE, 1, file=1), read(0, PAGE, 2, file=2), read(PAGE, PAGE, 30, file=2)]
    trace = made_trace(io, fileops=fileops, files=files, paths={1: "/a", 2: "/b", NAMES_FROM: "/b"})
    document, _ = run_phase(trace, options=["--keep-image"])
    assert document["operations"]["done"] == 5
    assert [path.stat().st_size for path in (tmp_path / "image").iterdir() if path.name[0] == "f"] == [2 * PAGE]


def test_symbolic_links_are_made_and_removed(run_phase, tmp_path):
    """The trace knows the new name only; the target is none of the image's files."""
    fileops = [op(Fileop.SYMLINK, 10, file=0, argument=NAMES_FROM), op(Fileop.SYMLINK, 20, file=0, argument=0)]
    trace = linked(*fileops)
    document, calls = run_phase(trace, CALLS, ["--keep-image"], statuses=(0, 3))
    assert [call.name for call in calls if call.name == "symlinkat"] == ["symlinkat"]
    assert [path.is_symlink() for path in (tmp_path / "image").iterdir() if path.name != "f00000001"].count(True) == 1
    assert document["skipped_reasons"] == {"unknown_file": 1}
    removed = linked(fileops[0], op(Fileop.UNLINK, 30, file=NAMES_FROM))
    document, _ = run_phase(removed, CALLS, ["--keep-image"])
    assert document["operations"]["done"] == 3
    assert not [path for path in (tmp_path / "image").iterdir() if path.is_symlink()]


def test_passes_of_a_loop_begin_with_the_same_names(tmp_path):
    made = linked(op(Fileop.LINK, 10, argument=NAMES_FROM), op(Fileop.SYMLINK, 20, file=0, argument=NAMES_FROM + 1))
    trace = characterize.write(made, tmp_path / "t.iotrace")
    document = looped([ENGINE, trace, f"--directory={tmp_path / 'image'}"], requests=4)  # one in each pass
    assert document["passes"] > 2
    assert not document["mismatches"]
    assert not (tmp_path / "image").exists()


def test_pieces_and_resident_ranges_are_no_operations(run_phase):
    trace = made_trace(
        [read(0, PAGE, 1, id=1)],
        files=[{"file": 1, "size_bytes": PAGE}],
        blocks=[{"op": 1, "start_ns": 1, "bytes": PAGE}],
        block_data=[{"block": 0, "class": 2, "file": 1, "bytes": PAGE, "cause": 1}],
        resident=[{"file": 1, "bytes": PAGE}],
    )
    document, calls = run_phase(trace)
    assert document["operations"]["records"] == document["operations"]["done"] == len(calls) == 1
