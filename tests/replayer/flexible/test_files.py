# SPDX-License-Identifier: Apache-2.0
"""Which files the requests of altered traces go to, and that these are there: lives, turns, other files, many files."""

from __future__ import annotations

import resource

import numpy as np
import pytest

from characterize.layout import FileFlag, Fileop, HeaderFlag, IoFlag, IoOp, RecordKind, Source
from replayer.alter import Relative, alter
from replayer.flexible.by_depth import place_by_depths
from replayer.flexible.draft import Draft
from replayer.flexible.fold import fold_evenly
from replayer.flexible.readable import COLLAPSE_RANGE, INSERT_RANGE, make_readable
from replayer.repeat import repeat
from tests.traces.flexible_traces import Recording, laid_out_then_used
from tests.traces.made_trace import made_trace, read, write
from tests.traces.sound_traces import assert_replays
from tests.truths.straced import needs_engine

pytestmark = pytest.mark.parallel

PAGE = 4096


def three_lives():
    """A file is made, written, read and removed three times; its first write was altered to a read."""
    recording = Recording()
    file = recording.file("/t", created=True)
    for _ in range(3):
        recording.operate(Fileop.OPEN, 1, file, flags=int(IoFlag.CREATED))
        recording.write(1, file, 0, 2 * PAGE)
        recording.read(1, file, 0, PAGE)
        recording.operate(Fileop.CLOSE, 1, file)
        recording.operate(Fileop.UNLINK, 1, file)
    trace = recording.trace()
    draft = Draft.of(trace)
    draft.io["op"][0] = IoOp.READ
    make_readable(draft, np.array([1]))
    trace.arrays.update({RecordKind.IO: draft.io, RecordKind.FILEOP: draft.fileops, RecordKind.FILE: draft.files})
    trace.header.flags |= HeaderFlag.PLANNED
    return trace


def test_only_the_life_that_reads_first_is_laid_out():
    trace = three_lives()
    operations = trace.arrays[RecordKind.FILEOP]
    assert trace.arrays[RecordKind.FILE]["size_bytes"].tolist() == [2 * PAGE]
    opens = operations[operations["op"] == Fileop.OPEN]
    assert (opens["flags"] & IoFlag.CREATED).astype(bool).tolist() == [False, True, True]
    assert (operations["op"] == Fileop.UNLINK).sum() == 3


@needs_engine
def test_the_engine_repeats_the_lives_behind_one_that_is_laid_out(tmp_path):
    assert_replays(three_lives(), tmp_path)


def test_a_temporary_file_that_lives_long_does_not_keep_others_from_their_turns():
    recording = Recording()
    everything = recording.file("/long", created=True)
    recording.operate(Fileop.OPEN, 1, everything, flags=int(IoFlag.CREATED))
    for number in range(20):
        journal = recording.file(f"/journal{number}", created=True)
        recording.operate(Fileop.OPEN, 1, journal, flags=int(IoFlag.CREATED))
        recording.write(1, journal, 0, PAGE)
        recording.write(1, everything, number * PAGE, PAGE)
        recording.operate(Fileop.UNLINK, 1, journal)
    recording.operate(Fileop.UNLINK, 1, everything)
    draft = Draft.of(recording.trace())
    fold_evenly(draft, PAGE)
    assert draft.notes["uniqueBytes"]["files_that_took_turns"] == 19
    assert len(np.unique(draft.io["file"])) == 2


def test_pages_of_mapped_data_do_not_become_pages_of_the_system():
    random = np.random.default_rng(0)
    sources = {1: Source.MMAP, 2: Source.SYSCALL}
    file_of = random.integers(1, 3, 400).tolist()
    io = [
        read(PAGE * place, PAGE, 10 * at, 5, id=at + 1, file=file_of[at], source=sources[file_of[at]])
        for at, place in enumerate(random.permutation(400).tolist())
    ]
    parent = made_trace(
        io,
        files=[{"file": file, "size_bytes": 400 * PAGE} for file in (1, 2)],
        tasks=[{"thread": 1, "process": 1}],
        paths={1: "/data", 2: "/usr/share/words"},
    )
    draft = Draft.of(parent)
    place_by_depths(draft, 0.5 * draft.unique_bytes(), random)
    assert set(draft.io["file"][draft.io["source"] == Source.MMAP]) == {1}


@pytest.mark.parametrize("changes", [{"uniqueBytes": Relative(0.5), "seqFrac": share} for share in (0.9, 0.1)], ids=str)
def test_requests_on_other_files_are_counted_over_all_steps(changes):
    parent = laid_out_then_used()
    altered, manifest = alter(parent, changes, nearest=True)
    before, after = (trace.io.sort_values("id")["file"].to_numpy() for trace in (parent, altered))
    assert manifest.notes["uniqueBytes"]["by_depth"]
    assert manifest.notes["uniqueBytes"]["requests_on_other_files"] == (before != after).sum() > 0


def grown_files(count):
    """Each is read and then written behind its end."""
    io = [read(0, PAGE, 10 * at + 2, id=2 * at + 1, file=at + 1) for at in range(count)]
    io += [write(PAGE, PAGE, 10 * at + 4, id=2 * at + 2, file=at + 1) for at in range(count)]
    return of_files(count, io, [], PAGE)


def files_made_twice(count):
    """Each is made, written and removed, made again, and read before it is written."""
    kinds = (Fileop.OPEN, Fileop.UNLINK, Fileop.OPEN, Fileop.UNLINK)
    fileops = [
        {"op": kind, "start_ns": 20 * at + 4 * step, "file": at + 1, "flags": IoFlag.CREATED * (kind == Fileop.OPEN)}
        for at in range(count)
        for step, kind in enumerate(kinds)
    ]
    io = [write(0, PAGE, 20 * at + 2, id=2 * at + 1, file=at + 1) for at in range(count)]
    io += [read(0, PAGE, 20 * at + 10, id=2 * at + 2, file=at + 1) for at in range(count)]
    return of_files(count, io, fileops, 0)


def of_files(count, io, fileops, size):
    flags = 0 if size else FileFlag.CREATED
    return made_trace(
        io,
        fileops=fileops,
        files=[{"file": at + 1, "size_bytes": size, "flags": flags} for at in range(count)],
        tasks=[{"thread": 1, "process": 1}],
        paths={at + 1: f"/f{at}" for at in range(count)},
    )


def find_data(trace):
    draft = Draft.of(trace)
    make_readable(draft, draft.files["file"])
    assert draft.notes["files"]["raised"] == len(draft.files)


@pytest.mark.parametrize(("mode", "laid_out"), [(COLLAPSE_RANGE, 10), (INSERT_RANGE, 2)])
def test_a_range_that_is_taken_out_or_put_in_moves_the_end_of_a_file(mode, laid_out):
    """Of a file of one page; behind it are 6 to be read."""
    moved = {"op": Fileop.FALLOCATE, "start_ns": 1, "file": 1, "flags": mode << 16, "argument": 0, "length": 4 * PAGE}
    draft = Draft.of(of_files(1, [read(0, 6 * PAGE, 2)], [moved], PAGE))
    make_readable(draft, np.array([1]))
    assert draft.files["size_bytes"].tolist() == [laid_out * PAGE]


class Counted(np.ndarray):
    """Counts the elements that are computed with."""

    elements = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        Counted.elements += max(map(np.size, inputs))
        plain = [np.asarray(it) if isinstance(it, Counted) else it for it in (*inputs, *out)]
        if out:
            options["out"] = tuple(plain[len(inputs) :])
        return getattr(ufunc, method)(*plain[: len(inputs)], **options)


@pytest.mark.parametrize(
    ("work", "make"),
    [(lambda trace: repeat(trace, 2), grown_files), (find_data, files_made_twice)],
    ids=["repeat", "make_readable"],
)
def test_work_grows_with_the_files_and_not_with_their_square(work, make, monkeypatch):
    draft_of = Draft.of

    def counted(trace):
        draft = draft_of(trace)
        draft.io, draft.fileops, draft.files = (it.view(Counted) for it in (draft.io, draft.fileops, draft.files))
        return draft

    def elements(count):
        Counted.elements = 0
        work(make(count))
        return Counted.elements

    monkeypatch.setattr(Draft, "of", counted)
    # With a scan of all records for each file it was 80 times as many.
    assert 0 < elements(640) < 11 * elements(64)


def test_memory_grows_with_what_threads_use_and_not_with_threads_times_files():
    count = 25_000
    io = [
        read(PAGE * step, PAGE, 10 * (step * count + at), id=2 * at + step + 1, thread=at + 1, file=at + 1)
        for step in range(2)
        for at in range(count)
    ]
    parent = made_trace(
        io,
        files=[{"file": at + 1, "size_bytes": 2 * PAGE} for at in range(count)],
        tasks=[{"thread": at + 1, "process": 1} for at in range(count)],
        paths={at + 1: f"/f{at}" for at in range(count)},
    )
    draft = Draft.of(parent)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    place_by_depths(laid_out(), 40 * PAGE, np.random.default_rng(0))  # everything is imported and compiled
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, limit[1]))
    try:
        place_by_depths(draft, 1.5 * count * PAGE, np.random.default_rng(0))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)


def laid_out():
    return Draft.of(laid_out_then_used(32))
