# SPDX-License-Identifier: Apache-2.0
"""Recorded holes in the image of a replay: where they are by lseek(2), what they leave free by stat(2)."""

import re

import pytest

from characterize.layout import BlockDataClass, FileFlag, HeaderFlag
from tests.machines.loop_file_system import loop_file_system
from tests.traces.laid_out import document_of
from tests.traces.made_trace import made_trace, read, write
from tests.truths.sparse_file import between, data_ranges
from tests.truths.straced import needs_engine, needs_strace, strace_run_phase

pytestmark = [needs_engine, pytest.mark.parallel]
pytest_plugins = ["tests.runs.image_engine", "tests.machines.small_file_system"]

MIB = 1 << 20
PAGE = 4096
SIZE = 9 * MIB + 17
HOLES = [(0, MIB), (3 * MIB, 5 * MIB), (7 * MIB, SIZE)]
DATA_BYTES = 4 * MIB


def rows(holes, file=1):
    return [{"file": file, "offset": offset, "bytes": end - offset} for offset, end in holes]


def sparse(size=SIZE, holes=HOLES, io=None, **kinds):
    return made_trace(
        io or [read(0, 1)],
        files=[{"file": 1, "size_bytes": size, "resident_bytes": 0}],
        holes=rows(holes),
        flags=HeaderFlag.UNTIMED,
        **kinds,
    )


def test_recorded_holes_are_left_and_all_else_is_data(engine, tmp_path):
    document = document_of(engine(sparse(), "--phase=prepare"))
    path = tmp_path / "image" / "f00000001"
    assert path.stat().st_size == SIZE
    assert data_ranges(path) == between(HOLES, SIZE)
    assert path.stat().st_blocks * 512 == DATA_BYTES
    content = path.read_bytes()
    for offset, end in HOLES:
        assert content[offset:end] == bytes(end - offset)
    for offset, end in between(HOLES, SIZE):
        # Real data: zeros would be 1 different byte, pseudo-random bytes are nearly all 256.
        assert all(len(set(content[at : at + PAGE])) > 200 for at in range(offset, end, PAGE))
    image = document["image"]
    assert (image["bytes"], image["hole_bytes"], image["built_bytes"]) == (SIZE, SIZE - DATA_BYTES, DATA_BYTES)


def test_without_records_of_holes_there_are_none(engine, tmp_path):
    document_of(engine(sparse(holes=[]), "--phase=prepare"))
    assert data_ranges(tmp_path / "image" / "f00000001") == [(0, SIZE)]


@pytest.mark.parametrize("phase", ["prepare", "run"])
def test_holes_that_a_replay_has_filled_are_made_again(engine, tmp_path, phase):
    trace = sparse(io=[write(2 * MIB, 2 * MIB, 1), write(SIZE - 100, 100, 2)])
    document_of(engine(trace, "--keep-image"))
    path = tmp_path / "image" / "f00000001"
    filled = data_ranges(path)
    assert filled != between(HOLES, SIZE)
    assert filled[-1][1] == SIZE
    document = document_of(engine(sparse(), f"--phase={phase}", "--keep-image"))
    assert data_ranges(path) == between(HOLES, SIZE)
    assert path.stat().st_blocks * 512 == DATA_BYTES
    assert path.stat().st_size == SIZE
    assert document["image"]["built_bytes"] == 0


@needs_strace
def test_every_pass_begins_with_its_holes(tmp_path):
    trace = sparse(io=[write(2 * MIB, 2 * MIB, 1)])
    document, calls = strace_run_phase(tmp_path, trace, "fallocate", ["--loop", "--max-seconds=0.5"], statuses=(0, 3))
    assert document["passes"] > 2
    punched = [call for call in calls if "FALLOC_FL_PUNCH_HOLE" in call.arguments]
    assert document["passes"] - 1 <= len(punched) <= document["passes"]


def test_an_image_with_holes_serves_a_trace_without_only_when_they_are_filled(engine, tmp_path):
    document_of(engine(sparse(), "--phase=prepare"))
    done = engine(sparse(holes=[]), "--phase=run", "--keep-image")
    assert done.returncode == 1
    assert "f00000001 of the image has a hole where the trace's file has data" in done.stderr
    assert "lay it out again" in done.stderr
    document_of(engine(sparse(holes=[]), "--phase=prepare"))
    assert data_ranges(tmp_path / "image" / "f00000001") == [(0, SIZE)]
    document = document_of(engine(sparse(), "--phase=run", "--keep-image"))
    assert data_ranges(tmp_path / "image" / "f00000001") == between(HOLES, SIZE)
    assert any("made for another trace" in warning for warning in document["warnings"])


def test_holes_of_another_place_are_another_image(engine):
    document_of(engine(sparse(), "--phase=prepare"))
    assert document_of(engine(sparse(), "--phase=run", "--keep-image"))["warnings"] == []
    done = engine(sparse(holes=HOLES[:2]), "--phase=run", "--keep-image")
    assert done.returncode == 1
    assert "has a hole where" in done.stderr


def test_damaged_and_foreign_holes_end_where_the_file_does(engine, tmp_path):
    holes = [
        *rows([(MIB, 3 * MIB), (2 * MIB, 4 * MIB), (4 * MIB, 5 * MIB), (8 * MIB, 2**64 - 1), (2**63, 2**64 - 1)]),
        *rows([(0, MIB)], file=2),
        *rows([(0, MIB)], file=99),
        *rows([(0, MIB)], file=2**31 + 7),
        {"file": 1, "offset": 2**64 - 1, "bytes": 2**64 - 1},
    ]
    files = [{"file": 1, "size_bytes": SIZE, "resident_bytes": 0}, {"file": 2, "flags": FileFlag.CREATED}]
    io = [read(0, 1, 1), write(0, MIB, 2, file=2)]
    document_of(engine(made_trace(io, files=files, holes=holes), "--keep-image"))
    expected = between([(MIB, 5 * MIB), (8 * MIB, SIZE)], SIZE)
    assert data_ranges(tmp_path / "image" / "f00000001") == expected
    assert data_ranges(tmp_path / "image" / "f00000002") == [(0, MIB)]


def test_a_terabyte_with_a_mebibyte_of_data_fits_into_four(engine, small_file_system):
    size = 1 << 40
    data = [(prime * 10**9 // PAGE * PAGE, prime * 10**9 // PAGE * PAGE + MIB // 4) for prime in (2, 3, 101, 997)]
    io = [read(offset, PAGE, at) for at, (offset, _) in enumerate(data)]
    trace = sparse(size, between(data, size), [*io, write(size - MIB, MIB, 9)])
    document = document_of(engine(trace, "--keep-image", directory=small_file_system))
    path = small_file_system / "f00000001"
    assert data_ranges(path) == [*data, (size - MIB, size)]
    assert path.stat().st_size == size
    assert path.stat().st_blocks * 512 == 2 * MIB
    assert document["image"]["hole_bytes"] == size - MIB


@pytest.mark.parametrize("data_mib", [3, 5])
@pytest.mark.parametrize("written_mib", [0, 2])
def test_data_and_what_is_written_into_holes_count_as_room(engine, small_file_system, data_mib, written_mib):
    size = 1 << 40
    io = [read(0, 1, 1)] + [write(100 * MIB, written_mib * MIB, 2)] * (written_mib > 0)
    done = engine(sparse(size, [(data_mib * MIB, size)], io), directory=small_file_system)
    needed = data_mib + written_mib
    if needed <= 3:
        document_of(done)
        return
    assert done.returncode == 1
    assert int(re.search(r"need (\d+) bytes more", done.stderr)[1]) == needed * MIB + needed * MIB // 100
    assert list(small_file_system.iterdir()) == []


@pytest.mark.root
def test_what_was_cached_in_large_folios_is_not_written_into_holes(engine, tmp_path):
    """The data of such ranges is written once more, where there are no holes."""
    with loop_file_system("ext4", tmp_path) as system:
        image = system.place / "image"
        cached = {"file": 1, "offset": 0, "bytes": 4 * MIB, "large_folios": 255, "large_folio_order": 4}
        document = document_of(engine(sparse(resident=[cached]), "--keep-image", directory=image))
        assert document["image"]["cache_achieved_bytes"] == 4 * MIB
        assert data_ranges(image / "f00000001") == between(HOLES, SIZE)


@pytest.mark.root
def test_places_of_what_was_written_into_holes_are_not_given(engine, tmp_path):
    """One piece of data, and behind it on the device one of a hole that the trace has filled."""
    place = {"class": BlockDataClass.WRITEBACK, "file": 1, "bytes": MIB}
    trace = sparse(
        io=[read(MIB, PAGE, 1), write(3 * MIB, MIB, 2)],
        blocks=[{"op": 2, "start_ns": at, "bytes": MIB} for at in (3, 4)],
        block_data=[
            place | {"block": 0, "offset": MIB, "sector": 2048},
            place | {"block": 1, "offset": 3 * MIB, "sector": 4096},
        ],
    )
    with loop_file_system("ext4", tmp_path) as system:
        image = system.place / "image"
        document = document_of(engine(trace, "--layout=recorded", "--phase=prepare", directory=image))
        assert document["image"]["layout_bytes"] == MIB
        assert data_ranges(image / "f00000001") == between(HOLES, SIZE)
