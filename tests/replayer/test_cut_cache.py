# SPDX-License-Identifier: Apache-2.0
"""cut: what of its files is cached, and a hole, when a part begins."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from characterize.layout import Fileop, IoFlag, RecordKind
from replayer.cut import Selection, cut
from tests.traces.made_trace import made_trace, read, write
from tests.traces.sound_traces import PAGE, SECOND_NS

pytestmark = pytest.mark.parallel


def cached_by(rows, pages=8, cached=()):
    """Pages of a file that a part says are cached after some operations (what, first page, pages) on it."""
    kinds = {"sync": Fileop.FSYNC, "drop": Fileop.FADVISE, "sync of all": Fileop.SYNCFS, "begin": Fileop.MSYNC}
    io, fileops = [], []
    for at, (what, first, count) in enumerate(rows):
        times = {"start_ns": 10 * at, "duration_ns": 5, "id": at + 1}
        if what in kinds:
            place = {"argument": PAGE * first, "length": PAGE * count, "flags": os.POSIX_FADV_DONTNEED << 16}
            of_all = {"file": 0} if what == "sync of all" else {"file": 1}
            fileops.append({"op": kinds[what], **times, **of_all, **(place if what == "drop" else {})})
        else:
            flags = int(IoFlag.DIRECT) if "direct" in what else 0
            io.append((write if "write" in what else read)(PAGE * first, PAGE * count, flags=flags) | times)
    io.append(read(0, PAGE, 10 * len(rows), id=len(rows) + 1))
    parent = made_trace(
        io,
        fileops=fileops,
        files=[{"file": 1, "size_bytes": pages * PAGE, "resident_bytes": len(cached) * PAGE}],
        tasks=[{"thread": 1, "process": 1}],
        resident=[{"file": 1, "offset": page * PAGE, "bytes": PAGE} for page in cached],
        paths={1: "/f"},
    )
    part = cut(parent, Selection(begin_s=10 * len(rows) / SECOND_NS))
    resident = part.arrays[RecordKind.RESIDENT]
    assert part.files["resident_bytes"].tolist() == [resident["bytes"].sum()]
    return {
        page
        for begin, size in zip(resident["offset"].tolist(), resident["bytes"].tolist(), strict=True)
        for page in range(begin // PAGE, (begin + size) // PAGE)
    }


@pytest.mark.parametrize(
    ("rows", "there"),
    [
        ([("read", 2, 3)], {2, 3, 4}),
        ([("direct read", 2, 3)], set()),
        ([("direct write", 2, 3)], set()),
        ([("read", 0, 8), ("direct write", 2, 3)], {0, 1, 5, 6, 7}),
        ([("read", 0, 8), ("drop", 2, 3)], {0, 1, 5, 6, 7}),
        ([("read", 0, 8), ("drop", 0, 0)], set()),
        ([("drop", 0, 0), ("read", 1, 1)], {1}),
        ([("write", 0, 4), ("drop", 0, 0)], {0, 1, 2, 3}),
        ([("write", 0, 4), ("sync", 0, 0), ("drop", 0, 2)], {2, 3}),
        ([("write", 0, 4), ("sync", 0, 0), ("write", 1, 1), ("drop", 0, 0)], {1}),
        ([("write", 0, 4), ("sync of all", 0, 0), ("drop", 0, 2)], {2, 3}),
        ([("write", 0, 4), ("begin", 0, 0), ("drop", 0, 2)], {0, 1, 2, 3}),
        ([("write", 0, 4), ("direct write", 1, 2), ("sync", 0, 0)], {0, 3}),
        ([("write", 0, 4), ("direct write", 1, 2)], {0, 3}),
        ([("direct write", 1, 2), ("write", 0, 4)], {0, 1, 2, 3}),
    ],
    ids=str,
)
def test_what_passed_the_cache_by_or_was_given_back_is_not_cached(rows, there):
    assert cached_by(rows) == there


ROWS = st.tuples(
    st.sampled_from(["read", "write", "direct read", "sync", "drop"]), st.integers(0, 7), st.integers(1, 4)
).map(lambda row: (row[0], row[1], min(row[2], 8 - row[1])))


@settings(max_examples=100, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12), st.sets(st.integers(0, 7)))
def test_what_is_cached_page_by_page(rows, cached):
    there, dirty = set(cached), set()
    for what, first, count in rows:
        pages = set(range(first, first + count))
        there |= pages if what in ("read", "write") else set()
        dirty |= pages if what == "write" else set()
        dirty -= dirty if what == "sync" else set()
        there -= pages - dirty if what == "drop" else set()
    assert cached_by(rows, cached=cached) == there


def test_what_is_cached_of_unknown_places_is_where_nothing_was_touched_or_dropped():
    def part_of(fileops):
        parent = made_trace(
            [read(0, PAGE, 1, id=1), read(0, PAGE, 30, id=3)],
            fileops=fileops,
            files=[{"file": 1, "size_bytes": 8 * PAGE, "resident_bytes": 3 * PAGE}],
            tasks=[{"thread": 1, "process": 1}],
            paths={1: "/f"},
        )
        return cut(parent, Selection(begin_s=29e-9)).files["resident_bytes"].tolist()

    drop = {"op": Fileop.FADVISE, "start_ns": 10, "duration_ns": 1, "id": 2, "flags": os.POSIX_FADV_DONTNEED << 16}
    assert part_of([]) == [4 * PAGE]
    assert part_of([drop]) == [0]
    assert part_of([drop | {"argument": 2 * PAGE}]) == [2 * PAGE]


PUNCH, COLLAPSE = 0x02, 0x08  # linux/falloc.h


def holes_left(rows, holes, *, pages=8, between=()):
    """Pages that a part says are holes after operations (what, first page, pages) of others, some `between` its own."""
    modes = {"allocate": 0, "punch": PUNCH, "collapse": COLLAPSE}
    io, fileops = [], []
    steps = [*rows, ("mine", 0, 1), *between, ("mine", 0, 1)]
    for at, (what, first, count) in enumerate(steps):
        times = {"start_ns": 10 * at, "duration_ns": 5, "id": at + 1, "thread": 1 if what == "mine" else 2}
        if what == "truncate":
            fileops.append({"op": Fileop.TRUNCATE, "file": 1, "argument": PAGE * first, **times})
        elif what in modes:
            place = {"argument": PAGE * first, "length": PAGE * count, "flags": modes[what] << 16}
            fileops.append({"op": Fileop.FALLOCATE, "file": 1, **place, **times})
        else:
            # A part of a block fills all of it.
            place = (PAGE * first + 100, PAGE * count - 200) if what == "write" else (PAGE * first, PAGE * count)
            io.append((write if what == "write" else read)(*place) | times)
    parent = made_trace(
        io,
        fileops=fileops,
        files=[{"file": 1, "size_bytes": pages * PAGE}],
        tasks=[{"thread": thread, "process": thread} for thread in (1, 2)],
        holes=[{"file": 1, "offset": page * PAGE, "bytes": PAGE} for page in sorted(holes)],
        paths={1: "/f"},
    )
    part = cut(parent, Selection(threads=[1]))
    found = part.arrays[RecordKind.HOLE]
    return {
        page
        for begin, size in zip(found["offset"].tolist(), found["bytes"].tolist(), strict=True)
        for page in range(begin // PAGE, (begin + size) // PAGE)
    }


@pytest.mark.parametrize(
    ("rows", "between", "left"),
    [
        ([], [], {2, 3, 6, 7}),
        ([("read", 0, 8)], [], {2, 3, 6, 7}),
        ([("write", 3, 2)], [], {2, 6, 7}),
        ([("write", 0, 8)], [], set()),
        ([("allocate", 6, 1)], [], {2, 3, 7}),
        ([("punch", 1, 6)], [], {2, 3, 6, 7}),
        ([("collapse", 0, 1)], [], set()),
        ([("truncate", 7, 0)], [], {2, 3, 6}),
        ([("write", 2, 1)], [("write", 7, 1)], {3, 6}),
    ],
    ids=str,
)
def test_what_others_have_filled_is_no_hole(rows, between, left):
    assert holes_left(rows, {2, 3, 6, 7}, between=between) == left


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["read", "write", "allocate", "punch"]), st.integers(0, 7), st.integers(1, 3))),
    st.sets(st.integers(0, 7), min_size=1),
)
def test_holes_page_by_page(rows, holes):
    filled = {
        page for what, first, count in rows if what in {"write", "allocate"} for page in range(first, first + count)
    }
    assert holes_left(rows, holes, pages=10) == holes - filled
