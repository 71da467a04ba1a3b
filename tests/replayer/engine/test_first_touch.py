# SPDX-License-Identifier: Apache-2.0
"""Page faults of the caller's memory during a read or write: as recorded, and as often in a replay."""

from __future__ import annotations

import sys

import pytest

import characterize
from characterize.layout import IO_FAULTS_MAX, IO_FAULTS_SHIFT, IoFlag, IoOp, Source
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, needs_engine
from tests.truths.told import run_recorder

PAGE = 4096
PAGES, REQUESTS, MANY = 7, 13, 300
# Reads twice into memory that is new and once into as much at once, then twice into new memory that is shared, and
# writes, in another process, from memory that is not new: of a page in 128 KiB each, as a fault of a read maps its
# neighbours as well. Then it writes from memory of its own and from the shared one in turns, each MANY times.
PROGRAM = f"""
import mmap, os, sys
path, pages, requests = sys.argv[1], {PAGES}, {REQUESTS}
descriptor = os.open(path, os.O_RDWR)
def memory(count, kind):
    made = mmap.mmap(-1, count * {PAGE}, flags=kind | mmap.MAP_ANONYMOUS)
    made.madvise(mmap.MADV_NOHUGEPAGE)
    return memoryview(made)
new = memory(pages * requests, mmap.MAP_PRIVATE)
for _ in range(2):
    for at in range(0, len(new), pages * {PAGE}):
        os.preadv(descriptor, [new[at : at + pages * {PAGE}]], at)
os.preadv(descriptor, [memory({MANY}, mmap.MAP_PRIVATE)], 0)
shared = memory(pages * requests, mmap.MAP_SHARED)
with open(path, "rb", buffering=0) as plain:
    for _ in range(2):
        plain.seek(0)
        for at in range(0, len(shared), pages * {PAGE}):
            plain.readinto(shared[at : at + pages * {PAGE}])
shared = memory(32 * requests, mmap.MAP_SHARED)
shared[:] = bytes([7]) * len(shared)
if os.fork() == 0:
    for _ in range(2):
        for at in range(0, len(shared), 32 * {PAGE}):
            os.pwritev(descriptor, [shared[at : at + {PAGE}]], at)
    own = memory(1, mmap.MAP_PRIVATE)
    own[:] = bytes([7]) * len(own)
    for _ in range({MANY}):
        os.pwrite(descriptor, own, 0)
        os.pwrite(descriptor, shared[: {PAGE}], 0)
    os._exit(0)
os.wait()
"""

pytestmark = pytest.mark.records


def faults_of(trace, path, op):
    """Of the requests of one direction to a file, in the order of their starts; and whether of shared memory."""
    files = trace.files.loc[trace.files["path"] == str(path), "file"]
    io = trace.io[trace.io["file"].isin(files) & (trace.io["op"] == op)].sort_values("start_ns")
    flags = io["flags"].to_numpy()
    return (flags >> IO_FAULTS_SHIFT).tolist(), ((flags & IoFlag.SHARED_MEMORY) != 0).tolist()


def test_recorded_as_often_as_memory_is_new(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(MANY * PAGE))
    done = run_recorder(tmp_path / "t.iotrace", sys.executable, "-c", PROGRAM, path)
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t.iotrace")
    faults, shared = faults_of(trace, path, IoOp.READ)
    pages = [PAGES] * REQUESTS + [0] * REQUESTS
    assert faults == [*pages, IO_FAULTS_MAX, *pages]
    assert shared == [False] * (2 * REQUESTS + 1) + [True] * REQUESTS + [False] * REQUESTS
    assert faults_of(trace, path, IoOp.WRITE) == (
        [1] * REQUESTS + [0] * (REQUESTS + 2 * MANY),
        [True] * 2 * REQUESTS + [False, True] * MANY,
    )


@needs_engine
@pytest.mark.parametrize("by_ring", [False, True], ids=["calls", "calls beside a ring"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("timing", "expected"), [("think", True), ("recorded", True), ("asap", False)])
def test_a_replay_has_as_many(tmp_path, timing, expected, shared, by_ring):
    """Of the same kind of memory, where it has a time for it; and no more than 8 pages may lie in, which are 9."""
    wanted = [3, 0, 8, 0, IO_FAULTS_MAX, 1, 9, 11, 0]
    having = [3, 0, 8, 0, 9, 1, 9, 9, 0]
    kind = IoFlag.SHARED_MEMORY if shared else 0
    io = [
        make(number * 8 * PAGE, 8 * PAGE, 1 + number * 1_000_000, flags=faults << IO_FAULTS_SHIFT | (faults and kind))
        for number, (make, faults) in enumerate([(read, faults) for faults in wanted] + [(write, 1), (write, 0)])
    ]
    if by_ring:
        # One request of io_uring, and the ring is the engine of all, in which calls stay calls.
        io.append(read(0, PAGE, 1 + len(io) * 1_000_000, thread=2, source=Source.IO_URING))
    trace = made_trace(io, files=[{"file": 1, "size_bytes": 100 * 8 * PAGE, "resident_bytes": 100 * 8 * PAGE}])
    path = characterize.write(trace, tmp_path / "t.iotrace")
    image = tmp_path / "image"
    engine = [ENGINE, path, f"--directory={image}", f"--timing={timing}", "--engine=auto"]
    done = run_recorder(tmp_path / "again.iotrace", *engine)
    # 3: it was late; or of its own program, where that is not cached, Linux 6.1 read more ahead than is in a record.
    assert done.returncode in {0, 3}, done.stderr
    again = characterize.open(tmp_path / "again.iotrace")
    # Not what its own program was read with, by a page fault, nor what its main thread read to have the image ready.
    files = again.files.loc[again.files["path"].str.startswith(str(image)), "file"]
    main_thread = again.io["thread"] == again.io["process"]
    ours = again.io["file"].isin(files) & ~main_thread & (again.io["asked_bytes"] == 8 * PAGE)
    replayed = again.io[ours].sort_values("start_ns")
    flags = replayed["flags"].to_numpy()
    faults, of_shared = flags >> IO_FAULTS_SHIFT, (flags & IoFlag.SHARED_MEMORY) != 0
    assert of_shared[replayed["op"] == IoOp.READ].tolist() == [expected and shared and pages > 0 for pages in having]
    reads, writes = (faults[replayed["op"] == op].tolist() for op in (IoOp.READ, IoOp.WRITE))
    assert reads == (having if expected else [0] * len(having))
    # Its 32 KiB may lie in two of the parts that are mapped at once.
    assert (writes[0] in {1, 2}) == expected
    assert writes[1:] == [0]
