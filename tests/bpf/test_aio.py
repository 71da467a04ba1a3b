# SPDX-License-Identifier: Apache-2.0
"""Requests of io_submit where little of them can be read: new contexts, pages that are not there, very large rings.

The truth is what tests/programs/aio.c told.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import characterize
from characterize.layout import Fileop, RecordKind, Source
from tests.machines.kernel import has_tracepoint
from tests.machines.own_place import own_place
from tests.truths.told import PROGRAMS, compare, record, run_recorder

REQUESTS_MAX = Path("/proc/sys/fs/aio-max-nr")
REQUESTS_OF_ALL = 1 << 16  # of the contexts of tests/programs/aio.c

pytestmark = pytest.mark.records


@contextlib.contextmanager
def room_for_requests(count: int) -> Iterator[None]:
    """As many more requests as are allowed now, so that those of other programs leave enough."""
    before = REQUESTS_MAX.read_text()
    REQUESTS_MAX.write_text(str(int(before) + count))
    try:
        yield
    finally:
        REQUESTS_MAX.write_text(before)


def compare_requests(run, count: int) -> None:
    told = [row[:9] for row in run.told_data() if row.source == Source.AIO]
    assert len(told) == count
    compare(told, [row[:9] for row in run.data({Source.AIO})])


def test_contexts_at_the_same_address(tmp_path):
    """What was seen of the ring of one says nothing of the next one's."""
    compare_requests(record(tmp_path / "aio", "aio", "renewed"), 15)


def test_contexts_that_processes_leave_behind_take_no_room(tmp_path):
    """The recorder keeps 2^12 of them; of 4,343 that were only asked for events it keeps none."""
    compare_requests(record(tmp_path / "aio", "aio", "idle"), 15)


def test_requests_on_a_page_that_is_not_there_yet(tmp_path):
    """The kernel reads it in, and takes them, their addresses and their vectors of buffers."""
    run = record(tmp_path / "aio", "aio", "unmapped")
    compare_requests(run, 27)
    if not has_tracepoint("iomap_dio_rw_begin"):
        return  # a named limit: before 6.6 nothing tells when another request begins
    # What is not known while it runs is not taken for the request that ran before it.
    blocks = run.trace.block_data.merge(run.trace.io, left_on="cause", right_on="id", suffixes=("", "_io"))
    blocks = blocks[blocks["source"] == Source.AIO]
    assert (blocks["offset"] >= blocks["offset_io"]).all()
    assert (blocks["offset"] < blocks["offset_io"] + blocks["result"]).all()


def test_requests_that_another_context_had_before(tmp_path):
    """Their ends stand in the ring of that one, and the program has read them there."""
    run = record(tmp_path / "aio", "aio", "moved")
    told = [row for row in run.told_file_operations() if row.source == Source.AIO]
    assert len(told) == 7 * 13
    compare(told, [row for row in run.file_operations() if row.source == Source.AIO])
    # Each ends before the next one of its struct iocb, of which there are 13, begins.
    syncs = run.trace.fileops[run.trace.fileops["source"] == Source.AIO].sort_values("start_ns")
    ends = (syncs["start_ns"] + syncs["duration_ns"]).to_numpy()
    assert (ends[:-13] <= syncs["start_ns"].to_numpy()[13:]).all()


def test_requests_of_a_process_that_becomes_another_program(tmp_path):
    """Their ends stand in a ring that the kernel takes away then."""
    run = record(tmp_path / "aio", "aio", "replaced")
    told = [row for row in run.told_file_operations() if row.source == Source.AIO]
    assert len(told) == 13
    compare(told, [row for row in run.file_operations() if row.source == Source.AIO])


@pytest.mark.skipif(os.cpu_count() == 1, reason="two threads are to look at the same time")
def test_a_request_does_not_end_by_an_event_from_before_it(tmp_path):
    """One thread is through with a ring, and uses a struct iocb again whose last event another has yet to look at."""
    with own_place() as place:
        (place / "file").touch()
        done = run_recorder(tmp_path / "t", PROGRAMS / "aio_reapers", place / "file", options=("--layer", "vfs"))
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    syncs = trace.fileops[trace.fileops["source"] == Source.AIO]
    assert len(syncs) == int(done.stdout)
    assert (syncs["duration_ns"] >= 0).all()


@pytest.mark.skipif(os.cpu_count() == 1, reason="two threads are to look at the same time")
def test_requests_do_not_end_by_events_that_another_thread_has_looked_at_meanwhile(tmp_path):
    """Then they would end with the results of others."""
    with own_place() as place:
        (place / "file").write_bytes(bytes(101))
        options = ("--layer", "vfs", "--ring-bytes", "128M")
        done = run_recorder(tmp_path / "t", PROGRAMS / "aio_shared_ring", place / "file", options=options)
    assert done.returncode == 0, done.stderr
    reads = characterize.open(tmp_path / "t").io
    reads = reads[reads["source"] == Source.AIO]
    told = dict(tuple(map(int, line.split())) for line in done.stdout.splitlines())
    assert reads["result"].value_counts().to_dict() == told


@pytest.mark.skipif(os.cpu_count() == 1, reason="two threads are to be at the same event")
def test_a_request_is_not_taken_for_the_next_one_with_its_struct_iocb(tmp_path):
    """Which one thread submits while the record of the first is made on the CPU of another, who looks at the ring."""
    with own_place() as place:
        (place / "file").touch()
        done = run_recorder(tmp_path / "t", PROGRAMS / "aio_handed_on", place / "file", options=("--layer", "vfs"))
    trace = characterize.open(tmp_path / "t")
    lost = trace.header.lost.get(RecordKind.FILEOP, 0)
    assert done.returncode == (3 if lost else 0), done.stderr
    thread, requests = map(int, done.stdout.split())
    syncs = trace.fileops[trace.fileops["op"] == Fileop.FSYNC]
    assert len(syncs) + lost == requests
    assert syncs["id"].is_unique
    assert set(zip(syncs["source"], syncs["thread"], strict=True)) == {(Source.AIO, thread)}
    assert (syncs["start_ns"] >= trace.header.start_monotonic_ns).all()
    assert (syncs["start_ns"] + syncs["duration_ns"] <= trace.header.end_monotonic_ns).all()


def test_what_no_ring_is_too_small_for_asks_for_no_larger_one(tmp_path):
    """Of two requests at once with the same struct iocb only one can be followed."""
    (tmp_path / "aio").mkdir()
    done = run_recorder(tmp_path / "t", PROGRAMS / "aio", tmp_path / "aio", "twice", options=("--layer", "vfs"))
    assert done.returncode == 3, done.stderr
    assert "1 RECORDS WERE LOST (1 IO)" in done.stderr
    assert "--ring-bytes" not in done.stderr
    assert "1 were operations that could not be followed" in done.stderr


def test_a_ring_for_all_requests(tmp_path):
    """It has 131,199 entries: two for each request, rounded up to whole pages."""
    with room_for_requests(REQUESTS_OF_ALL):
        compare_requests(record(tmp_path / "aio", "aio", "wide"), 13)
