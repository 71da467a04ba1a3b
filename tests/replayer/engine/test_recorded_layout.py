# SPDX-License-Identifier: Apache-2.0
"""Files of an image lie on their device in the recorded order (`recorded_places`), told by FIEMAP."""

from __future__ import annotations

import itertools
import json
import os
import random
from functools import partial
from pathlib import Path

import pytest

import characterize
from characterize.layout import BlockDataClass
from flextrace.main import main
from tests.machines.block_device import SECTOR_BYTES
from tests.traces.laid_out import (
    BLOCK_BYTES,
    DISK,
    LAYOUT,
    PIECE_BYTES,
    PLACED,
    SIZES,
    alternating,
    document_of,
    holds_random_data,
    image_files,
    kind_of,
    lies_as,
    loop_place,
    physical_places,
    piece,
    recorded_places,
    replay,
    trace_of,
)
from tests.truths.page_cache import cache_only
from tests.truths.straced import needs_engine
from tests.truths.told import run_recorder

pytestmark = needs_engine


def count_pieces(places):
    """Of neighbours in the file that are neighbours on the device."""
    pairs = itertools.pairwise((*key, *place) for key, place in places.items())
    return 1 + sum(b != (a[0], a[1] + 1, a[2], a[3] + BLOCK_BYTES // SECTOR_BYTES) for a, b in pairs)


@pytest.fixture
def engine(tmp_path):
    """Runs the engine on a trace, in a directory; returns the process."""
    return partial(replay, tmp_path)


@pytest.fixture
def ext4(tmp_path):
    """A directory that is to be made on the file system of the tests."""
    if kind_of(tmp_path) != "ext2/ext3":  # which is how stat calls it
        pytest.skip(f"{tmp_path} is not on ext4")
    return tmp_path / "image"


@pytest.fixture(params=["here", *(pytest.param(kind, marks=pytest.mark.root) for kind in ("ext4", "xfs", "btrfs"))])
def image(request, tmp_path):
    """A directory that is to be made on the file system of the tests, if that is ext4, or on one of a loop device."""
    if request.param == "here":
        yield request.getfixturevalue("ext4")
    else:
        with loop_place(request.param, tmp_path) as place:
            yield place / "image"


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_pieces_lie_in_their_recorded_order_side_by_side(engine, image, seed):
    pieces = alternating(seed)
    document = document_of(engine(trace_of(pieces), image, *LAYOUT))
    told = {"layout": "recorded", "layout_bytes": 2 << 20, "layout_pieces": len(pieces), "files": 2}
    assert document["image"] | told == document["image"]
    assert document["warnings"] == []
    assert lies_as(image, recorded_places(pieces))
    holds_random_data(image)


def test_without_the_option_they_do_not(engine, ext4):
    pieces = alternating()
    document = document_of(engine(trace_of(pieces), ext4, "--phase=prepare"))
    assert [document["image"][f"layout{name}"] for name in ("", "_bytes", "_pieces")] == ["any", 0, 0]
    assert not lies_as(ext4, recorded_places(pieces))


def test_data_of_another_kind_is_placed_as_well(engine, ext4):
    pieces = alternating()
    for kind in ("random", "compressible"):
        document_of(engine(trace_of(pieces), ext4, *LAYOUT, f"--data={kind}"))
        assert lies_as(ext4, recorded_places(pieces))


ODD = [
    piece(1, 0, BLOCK_BYTES, 90_000),
    piece(1, 0, BLOCK_BYTES, 80_000),  # read again from elsewhere
    piece(1, 0, 3 * BLOCK_BYTES, 10_000),  # its first block is known already, the others are not
    piece(2, 0, BLOCK_BYTES, 9_998, BlockDataClass.DIRECT),
    piece(1, 512, 2 * BLOCK_BYTES, 5_000),  # nothing new
    piece(2, 5 * BLOCK_BYTES + 1536, 3 * BLOCK_BYTES, 5_000, BlockDataClass.DIRECT),  # two whole blocks
    piece(2, 3 * BLOCK_BYTES, 16 * BLOCK_BYTES, 40_000, BlockDataClass.WRITEBACK),  # around them
    piece(1, (1 << 20) - PIECE_BYTES, 2 * PIECE_BYTES, 20_000),  # across the end
    piece(2, (1 << 20) - BLOCK_BYTES, 2 * BLOCK_BYTES, 500, device=DISK + 16),  # and with a part of a block
    piece(1, 64 << 20, PIECE_BYTES, 30_000),  # beyond the end
    piece(1, 2**64 - BLOCK_BYTES, PIECE_BYTES, 31_000),
    piece(2, 512, 1024, 32_000),  # no whole block
    piece(3, 0, PIECE_BYTES, 50_000, BlockDataClass.WRITEBACK),  # of a file that the trace makes
    piece(77, 0, PIECE_BYTES, 51_000),  # of none that it knows
    piece(0, 0, PIECE_BYTES, 52_000),
    *(piece(1, PIECE_BYTES, PIECE_BYTES, 60_000, kind) for kind in BlockDataClass if kind not in PLACED),
]


def overlapping(seed):
    """Many records that say where the same data is, some with parts of blocks; no two of the same place."""
    chance = random.Random(seed)
    spans = [(chance.randrange(SIZES[1] // SECTOR_BYTES), chance.randrange(1, 300)) for _ in range(40)]
    places = chance.sample(range(2048, 2048 + 300 * len(spans), 300), len(spans))
    return [
        piece(chance.choice([*SIZES]), first * SECTOR_BYTES, count * SECTOR_BYTES, place)
        for (first, count), place in zip(spans, places, strict=True)
    ]


@pytest.mark.parametrize("pieces", [ODD, overlapping(1), overlapping(2)], ids=["odd", "overlapping", "others"])
def test_places_are_cut_to_blocks_and_of_the_same_data_the_earliest_counts(engine, ext4, pieces):
    """Wherever in the file its record begins; what is not of a file that is laid out is left out."""
    placed = recorded_places(pieces)
    document = document_of(engine(trace_of(pieces), ext4, *LAYOUT))
    told = {"layout_bytes": len(placed) * BLOCK_BYTES, "layout_pieces": count_pieces(placed)}
    assert document["image"] | told == document["image"]
    assert lies_as(ext4, placed)
    holds_random_data(ext4)


@pytest.mark.parametrize("pieces", [[], [piece(1, 0, BLOCK_BYTES, 0, BlockDataClass.METADATA)]], ids=["none", "other"])
def test_a_trace_without_places_is_replayed_with_a_warning(engine, ext4, pieces):
    document = document_of(engine(trace_of(pieces), ext4, "--layout=recorded", "--keep-image"))
    assert document["image"]["layout_bytes"] == document["image"]["layout_pieces"] == 0
    assert any("places" in warning for warning in document["warnings"])
    holds_random_data(ext4)


def test_an_image_is_placed_once_for_each_layout(ext4, tmp_path, capsys):
    """Through the verb: files that are there already, and then another recorded order of the same files."""

    def built(pieces, *options):
        trace = characterize.write(trace_of(pieces), tmp_path / "t.iotrace", force=True)
        assert main(["replay", str(trace), "--image", str(ext4), "--format", "json", *options]) == 0
        return json.loads(capsys.readouterr().out)["image"]["built_bytes"]

    assert built(alternating()) == sum(SIZES.values())
    for seed in (None, 3):
        pieces = alternating(seed)
        built(pieces, "--layout", "recorded")
        assert lies_as(ext4, recorded_places(pieces))
        places = physical_places(image_files(ext4))
        assert built(pieces, "--layout", "recorded") == 0
        assert physical_places(image_files(ext4)) == places
        holds_random_data(ext4)


@pytest.mark.root
def test_too_little_room_for_the_pieces_is_said_before_anything_is_written(engine, tmp_path):
    with loop_place("ext4", tmp_path) as place, (place / "filler").open("wb") as filler:
        space = os.statvfs(place)
        os.posix_fallocate(filler.fileno(), 0, space.f_bavail * space.f_frsize - (3 << 20))
        done = engine(trace_of(alternating()), place / "image", *LAYOUT)
        assert (done.returncode, "too little space" in done.stderr) == (1, True), done.stderr
        assert not (place / "image").exists()
        document_of(engine(trace_of(alternating()), place / "image", "--keep-image"))


def test_a_run_alone_refuses_an_image_without_the_layout(engine, ext4):
    document_of(engine(trace_of(alternating()), ext4, "--keep-image"))
    done = engine(trace_of(alternating()), ext4, "--layout=recorded", "--phase=run", "--keep-image")
    assert done.returncode == 1
    assert "--layout recorded" in done.stderr
    document_of(engine(trace_of(alternating()), ext4, "--layout=recorded", "--phase=prepare"))
    document_of(engine(trace_of(alternating()), ext4, "--layout=recorded", "--phase=run", "--keep-image"))


@pytest.mark.records
def test_a_recording_gives_an_image_the_order_of_its_original(engine, tmp_path):
    """Two equal files that grew in turn, with an fsync of each piece, and were recorded when they were compared."""
    with loop_place("ext4", tmp_path) as place:
        originals = {name: place / name for name in ("one", "two")}
        for at, path in itertools.product(range(0, 2 << 20, PIECE_BYTES), originals.values()):
            with path.open("ab") as stream:
                stream.write(random.Random(at).randbytes(PIECE_BYTES))
                os.fsync(stream.fileno())
        for path in originals.values():
            cache_only(path, [])
        order = list(physical_places(originals))
        assert sum(b != (a[0], a[1] + 1) for a, b in itertools.pairwise(order)) > 4
        trace = tmp_path / "t.iotrace"
        done = run_recorder(trace, "cmp", *originals.values(), options=("--quiet", f"--path={place}"))
        assert done.returncode == 0, done.stderr
        names = {file: Path(path).name for file, path in characterize.open(trace).paths.items()}
        image = document_of(engine(trace, place / "image", *LAYOUT))["image"]
        assert image["layout_bytes"] == len(order) * BLOCK_BYTES
        images = {names[file]: path for file in names if (path := place / "image" / f"f{file:08}").is_file()}
        assert list(physical_places(images)) == order
