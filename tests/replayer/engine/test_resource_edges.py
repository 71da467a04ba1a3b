# SPDX-License-Identifier: Apache-2.0
"""Each kind of edge of the order by resource: broken by a replay that keeps only each thread's order, kept by default.

With think times thread 1 comes to its operation after a long one. Thread 2 was in an operation for so long when it was
recorded, which takes no time when it is replayed: so what follows is far too early unless it waits.
"""

import sys

import pytest

from characterize.layout import FileFlag, Fileop, FileType, IoFlag
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import needs_engine, needs_strace, op

pytestmark = [needs_engine, needs_strace, pytest.mark.parallel]

PAGE = 4096
FIRST_NS = 300_000_000  # start of the operation of thread 1
SECOND_NS = FIRST_NS + 1000  # that of thread 2
PRIVATE, SHARED, OTHER, DIRECTORY, MADE, NEW_NAME = 9, 1, 2, 3, 4, 1 << 31
FILES = [
    {"file": PRIVATE, "size_bytes": PAGE},
    {"file": SHARED, "size_bytes": PAGE},
    {"file": OTHER, "size_bytes": PAGE},
    {"file": DIRECTORY, "type": FileType.DIRECTORY},
    {"file": MADE, "flags": FileFlag.CREATED},
    {"file": NEW_NAME, "flags": FileFlag.NEW_NAME},
]
PATHS = {
    PRIVATE: "/p",
    SHARED: "/d/a",
    OTHER: "/b",
    DIRECTORY: "/d",
    MADE: "/d/a",
    NEW_NAME: "/b",
}
CALLS = "pread64,pwrite64,openat,close,fsync,syncfs,ftruncate,unlink,unlinkat,renameat,renameat2,mkdirat"


def io(make, file=SHARED):
    return lambda start: {**make(0, PAGE, start, 5), "file": file}


def fileop(kind, file=SHARED, **fields):
    return lambda start: op(kind, start, file=file, **fields)


CREATED, TRUNCATED = {"flags": IoFlag.CREATED}, {"flags": IoFlag.TRUNCATED}
OPEN_MADE = fileop(Fileop.OPEN, MADE, **CREATED)
ONTO_OTHER = fileop(Fileop.RENAME, SHARED, argument=NEW_NAME)

EDGES = {
    "a read after a write": (io(write), "pwrite64", io(read), "pread64"),
    "a write after a read": (io(read), "pread64", io(write), "pwrite64"),
    "a read after a truncation": (fileop(Fileop.TRUNCATE, argument=PAGE), "ftruncate", io(read), "pread64"),
    "a truncating open after a read": (io(read), "pread64", fileop(Fileop.OPEN, **TRUNCATED), "openat"),
    "a sync after a write": (io(write), "pwrite64", fileop(Fileop.FSYNC), "fsync"),
    "a write after a sync": (fileop(Fileop.FSYNC), "fsync", io(write), "pwrite64"),
    "a sync of everything after a write": (io(write), "pwrite64", fileop(Fileop.SYNCFS, OTHER), "syncfs"),
    "an open after a creation": (OPEN_MADE, "openat", fileop(Fileop.OPEN, MADE), "openat"),
    "an unlink after a read": (io(read), "pread64", fileop(Fileop.UNLINK), "unlinkat"),
    "a rename after a write": (io(write), "pwrite64", ONTO_OTHER, "renameat"),
    "a rename after a read of the file that it replaces": (io(read, OTHER), "pread64", ONTO_OTHER, "renameat"),
    "an open after a rename": (ONTO_OTHER, "renameat", fileop(Fileop.OPEN), "openat"),
    "a creation after a removal at its name": (
        fileop(Fileop.UNLINK),
        "unlinkat",
        fileop(Fileop.OPEN, MADE, **CREATED),
        "openat",
    ),
    "a creation after the making of its directory": (fileop(Fileop.MKDIR, DIRECTORY), "mkdirat", OPEN_MADE, "openat"),
    "a sync of a directory after the making of an entry": (
        OPEN_MADE,
        "openat",
        fileop(Fileop.FSYNC, DIRECTORY),
        "fsync",
    ),
    "a use after an open": (fileop(Fileop.OPEN), "openat", io(read), "pread64"),
    "a close after a use": (io(read), "pread64", fileop(Fileop.CLOSE), "close"),
}
NO_EDGES = {
    "two reads": (io(read), "pread64", io(read), "pread64"),
    "writes of two files": (io(write), "pwrite64", io(write, OTHER), "pwrite64"),
    "an open after a write": (io(write), "pwrite64", fileop(Fileop.OPEN), "openat"),
    "a sync of another file": (io(write), "pwrite64", fileop(Fileop.FSYNC, OTHER), "fsync"),
}


def replayed(run_phase, edge, order):
    """The result, when the call of thread 1 ended, and when that of thread 2 began, as places in the log.

    A call that could not be made, because the other came first, ends after everything.
    """
    first, first_name, second, second_name = edge
    rows = [read(0, PAGE, 10, SECOND_NS - 100, file=PRIVATE, thread=2)]
    made = [{**first(FIRST_NS), "thread": 1}, {**second(SECOND_NS), "thread": 2}]
    rows += [row for row in made if "result" in row]
    fileops = [row for row in made if "result" not in row]
    if made[1]["op"] == Fileop.CLOSE and "result" not in made[1]:
        fileops.insert(0, op(Fileop.OPEN, 1, file=SHARED, thread=2))
    trace = made_trace(rows, fileops=fileops, files=FILES, paths=PATHS)
    options = ["--timing=think", *([f"--order={order}"] if order else [])]
    document, calls = run_phase(trace, CALLS, options, (0, 3) if order == "thread" else (0,))
    second_thread = next(call.thread for call in calls if call.name == "pread64" and call.file == f"f{PRIVATE:08}")
    others = (calls[0].thread, second_thread)
    ended = [call.ended for call in calls if call.thread not in others and call.name.startswith(first_name)]
    began = [call.began for call in calls if call.thread == second_thread and call.name.startswith(second_name)]
    return document, ended[-1] if ended else sys.maxsize, began[-1]


@pytest.mark.parametrize("name", EDGES)
def test_an_edge_is_kept_by_resource_and_broken_without(run_phase, name):
    _, ended, began = replayed(run_phase, EDGES[name], "thread")
    assert began < ended
    document, ended, began = replayed(run_phase, EDGES[name], None)
    assert document["order"] == "resource"
    assert document["operations"]["failed"] == 0
    assert document["skipped_reasons"] == document["mismatches"] == {}
    assert ended < began


@pytest.mark.parametrize("name", NO_EDGES)
def test_what_has_nothing_to_do_with_each_other_does_not_wait(run_phase, name):
    _, ended, began = replayed(run_phase, NO_EDGES[name], None)
    assert began < ended
    _, ended, began = replayed(run_phase, NO_EDGES[name], "recorded")
    assert ended < began
