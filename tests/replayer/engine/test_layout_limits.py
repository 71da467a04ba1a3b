# SPDX-License-Identifier: Apache-2.0
"""`--layout recorded` where it is hard: long or many pieces, free space in pieces, stops, no room, a second use."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from functools import partial

import pytest

import characterize
from characterize.layout import Fileop
from tests.machines.block_device import extents, run
from tests.machines.own_place import own_place
from tests.runs.running_replay import children, own_process, wait_for_calls
from tests.traces.laid_out import (
    BLOCK_BYTES,
    LAYOUT,
    PIECE_BYTES,
    SIZES,
    alternating,
    document_of,
    holds_random_data,
    image_files,
    in_order,
    kind_of,
    lies_as,
    loop_place,
    piece,
    recorded_places,
    replay,
    trace_of,
)
from tests.traces.made_trace import write
from tests.truths.page_cache import cached_ranges
from tests.truths.straced import ENGINE, needs_engine, needs_strace, op
from tests.truths.told import PROGRAMS

pytestmark = [needs_engine, pytest.mark.root, pytest.mark.parallel]

FILE_SYSTEMS = ("ext4", "xfs", "btrfs")
NO_RESERVE = {"ext4": ("-m", "0")}  # that root could use
HOLE_BYTES = 256 << 10
FILES_MAX = 1024
EXTENT_BYTES_MAX = 128 << 20  # of ext4: 32768 blocks
FEW = PROGRAMS / "replay_small_segments"  # has 1024 pieces at most


@pytest.fixture
def engine(tmp_path):
    """Runs the engine on a trace, in a directory; returns the process."""
    return partial(replay, tmp_path)


@pytest.fixture(params=FILE_SYSTEMS)
def image(request, tmp_path):
    """A directory that is to be made on a file system of a loop device."""
    with loop_place(request.param, tmp_path, *NO_RESERVE.get(request.param, ())) as place:
        yield place / "image"


def fill(place, free_bytes):
    """Leave only so much room."""
    space = os.statvfs(place)
    with (place / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, space.f_bavail * space.f_frsize - free_bytes)


def scatter_free_space(place):
    """Leave hardly any room but holes between files."""
    fill(place, 96 << 20)
    between = [place / f"between{at}" for at in range(FILES_MAX)]
    with contextlib.suppress(OSError):
        for path in between:
            with path.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, HOLE_BYTES)
    for path in between[::2]:
        path.unlink(missing_ok=True)
    run("sync", "--file-system", place)
    with (place / "plug").open("wb") as stream:  # in what the file system had kept for itself
        os.posix_fallocate(stream.fileno(), 0, 28 << 20)


def test_free_space_in_pieces_is_used_in_its_order_and_told(engine, image):
    scatter_free_space(image.parent)
    pieces = alternating(5)
    document = document_of(engine(trace_of(pieces), image, *LAYOUT))
    assert in_order(image, recorded_places(pieces))
    runs = document["image"]["layout_runs"]
    assert runs >= 4
    assert any(f"lies in {runs} places" in warning for warning in document["warnings"])
    holds_random_data(image)


def test_pieces_may_be_longer_than_an_extent(engine):
    first = 1 << 20
    size = first + EXTENT_BYTES_MAX + (1 << 20)
    pieces = [piece(1, first, size - first, 2048), piece(1, 0, first, 900_000)]
    with own_place() as directory, loop_place("ext4", directory) as place:
        document = document_of(engine(trace_of(pieces, {1: size}), place / "image", *LAYOUT))
        assert document["image"]["layout_pieces"] == 2
        path = place / "image" / "f00000001"
        parts = extents(path)
        assert max(part.size for part in parts) <= EXTENT_BYTES_MAX
        assert sum(part.size for part in parts) == size
        assert max(parts, key=lambda part: part.place).offset == 0
        assert cached_ranges(path) == []


@pytest.mark.skipif(not FEW.exists(), reason=f"{FEW} is not built (make build/test-programs)")
@pytest.mark.parametrize("count", [1024, 1025])
def test_more_pieces_than_are_kept_are_left_out_and_that_is_said(engine, tmp_path, count):
    order = random.Random(1).sample(range(2048), count)
    pieces = [piece(1, at * BLOCK_BYTES, BLOCK_BYTES, 2048 + 100 * row) for row, at in enumerate(order)]
    with loop_place("ext4", tmp_path) as place:
        trace = trace_of(pieces, {1: 8 << 20})
        document = document_of(engine(trace, place / "image", *LAYOUT, engine=FEW))
    assert document["image"]["layout_pieces"] <= 1024
    left_out = any("more places of its files than are kept" in warning for warning in document["warnings"])
    assert left_out == (count > 1024)


@needs_strace
@pytest.mark.parametrize("kept", [True, False])
def test_a_stop_in_the_middle_leaves_an_image_that_is_known_as_unfinished(engine, image, tmp_path, kept):
    """strace makes the changes of owners slow."""
    pieces = alternating(6)
    path = characterize.write(trace_of(pieces), tmp_path / "slow.iotrace")
    (image.parent / "beside").write_text("precious")
    image.mkdir()
    log = tmp_path / "log"
    slow = ["strace", "-o", log, "-e", "trace=ioctl", "-e", "inject=ioctl:delay_enter=50000"]
    options = ["--layout=recorded", *(["--keep-image"] if kept else [])]
    command = [*slow, ENGINE, path, f"--directory={image}", *options]
    with own_process(command) as process:
        wait_for_calls(log, "ioctl", 9)
        os.kill(int(children(process.pid)[0]), signal.SIGINT)
        output, complaint = process.communicate(timeout=60)
    assert (process.returncode, output) == (1, "")
    assert "interrupted while laying out" in complaint
    assert (image.parent / "beside").read_text() == "precious"
    if not kept:
        assert list(image.iterdir()) == []
        return
    assert (image / ".flextrace-image.random.unfinished").exists()
    holds_random_data(image)
    done = engine(path, image, "--layout=recorded", "--phase=run", "--keep-image")
    assert (done.returncode, "no finished image" in done.stderr) == (1, True)
    document_of(engine(path, image, *LAYOUT))
    assert lies_as(image, recorded_places(pieces))
    holds_random_data(image)


def test_room_that_ends_while_pieces_are_placed(engine, image):
    fill(image.parent, sum(SIZES.values()) + (1 << 20))
    image.mkdir()
    for options in ((), ("--keep-image",)):
        done = engine(trace_of(alternating()), image, "--layout=recorded", "--force-space", *options)
        assert (done.returncode, "too little space for --layout recorded" in done.stderr) == (1, True), done.stderr
        assert [*image.iterdir()] == [] or options
    assert (image / ".flextrace-image.random.unfinished").exists()
    document_of(engine(trace_of(alternating()), image, "--keep-image"))
    holds_random_data(image)


@pytest.mark.parametrize("kind", ["tmpfs", "ext2", "xfs"])
def test_a_file_system_that_cannot_is_refused_before_anything_is_written(engine, tmp_path, kind):
    if kind == "tmpfs":
        with own_place() as place:
            if kind_of(place) != "tmpfs":
                pytest.skip(f"{place} is not on a tmpfs")
            check_refusal(engine, place / "image")
        return
    with loop_place(kind, tmp_path, *(["-m", "reflink=0"] if kind == "xfs" else [])) as place:
        check_refusal(engine, place / "image")


def check_refusal(engine, image):
    """Of a new directory, and of one that is to stay."""
    for options in ((), ("--keep-image",)):
        if options:
            image.mkdir()
        done = engine(trace_of(alternating()), image, "--layout=recorded", *options)
        assert done.returncode == 1
        assert "nobody can choose blocks" in done.stderr
        assert "leave out --layout recorded" in done.stderr
        assert list(image.parent.glob("image/*")) == []
        assert image.exists() == bool(options)


REWRITE = [write(at, PIECE_BYTES, 20 + at // PIECE_BYTES) for at in range(0, SIZES[1], PIECE_BYTES)]
MADE_ANEW = [op(Fileop.TRUNCATE, 11, argument=0), *REWRITE]


@pytest.mark.parametrize("operations", [MADE_ANEW, REWRITE], ids=["made anew", "written again"])
def test_files_that_a_replay_moved_are_placed_again(engine, image, operations):
    """btrfs moves what is written again."""
    pieces = alternating(7)
    trace = trace_of(pieces, operations=operations)
    for _ in range(2):
        document_of(engine(trace, image, *LAYOUT))
        assert lies_as(image, recorded_places(pieces))
        holds_random_data(image)
        document_of(engine(trace, image, "--layout=recorded", "--phase=run", "--keep-image"))
    if kind_of(image) == "btrfs":
        document = document_of(engine(trace, image, "--layout=recorded", "--phase=run", "--keep-image"))
        assert any("did not keep the order" in warning for warning in document["warnings"])


def test_what_is_no_file_any_more_is_not_waited_for(engine, image):
    document_of(engine(trace_of(alternating()), image, *LAYOUT))
    path = image_files(image)[1]
    path.unlink()
    os.mkfifo(path)
    for phase in ("run", "prepare"):
        done = engine(trace_of(alternating()), image, "--layout=recorded", f"--phase={phase}", "--keep-image")
        assert (done.returncode, "is not what a replay made" in done.stderr) == (1, True), done.stderr
