# SPDX-License-Identifier: Apache-2.0
"""Traces whose files have recorded places, and where the files of an image lie, told by FIEMAP."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest

import characterize
from characterize.layout import BlockDataClass, BlockOp, FileFlag, HeaderFlag
from tests.machines.block_device import SECTOR_BYTES, device_place, extents, run
from tests.machines.loop_file_system import loop_file_system
from tests.traces.made_trace import made_trace, read, write
from tests.truths.page_cache import cache_only
from tests.truths.straced import ENGINE

BLOCK_BYTES = 4096
PIECE_BYTES = 64 << 10
GAP_SECTORS = 24  # between recorded pieces: what others have there
DISK = 8 << 20
SIZES = {1: 1 << 20, 2: (1 << 20) + 1001}
LAYOUT = ("--layout=recorded", "--phase=prepare")
PLACED = {BlockDataClass.DIRECT, BlockDataClass.FILL, BlockDataClass.WRITEBACK}


def replay(directory, trace, image, *options, engine=ENGINE):
    """Run the engine on a trace, which is written into the directory; returns the process."""
    path = trace if isinstance(trace, Path) else characterize.write(trace, directory / "t.iotrace", force=True)
    command = [engine, path, f"--directory={image}", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def piece(file, offset, size, sector, kind=BlockDataClass.FILL, *, device=DISK):
    return {"file": file, "offset": offset, "bytes": size, "sector": sector, "class": kind, "device": device}


def trace_of(pieces, sizes=None, operations=()):
    """A recording in which pieces moved in this order, each in a request of its own, and which makes a third file."""
    sizes = sizes or SIZES
    places = [{name: row[name] for name in ("device", "sector", "bytes")} for row in pieces]
    files = [{"file": file, "size_bytes": size} for file, size in sizes.items()]
    requests = [row for row in operations if "offset" in row]
    return made_trace(
        [*(read(0, 1, file, file=file) for file in sizes), write(0, PIECE_BYTES, 9, file=3), *requests],
        fileops=[row for row in operations if "offset" not in row],
        files=[*files, {"file": 3, "flags": FileFlag.CREATED}],
        blocks=[{"op": BlockOp.READ, "start_ns": 10 + at, **place} for at, place in enumerate(places)],
        block_data=[{**row, "block": at} for at, row in enumerate(pieces)],
        flags=HeaderFlag.UNTIMED,
    )


def alternating(seed=None):
    """Pieces of both files in turn (A0 B0 A1 B1 ...), or in an order of chance; seen in another order than they lie."""
    order = [(file, at) for at in range(SIZES[1] // PIECE_BYTES) for file in SIZES]
    chance = random.Random(seed or 0)
    if seed is not None:
        chance.shuffle(order)
    step = PIECE_BYTES // SECTOR_BYTES + GAP_SECTORS
    pieces = [piece(file, at * PIECE_BYTES, PIECE_BYTES, 2048 + step * row) for row, (file, at) in enumerate(order)]
    return chance.sample(pieces, len(pieces))


def recorded_places(pieces):
    """Device and sector of each whole block of the files, by (file, block), in the order in which they lie."""
    places = {}
    for row in pieces:
        if row["class"] not in PLACED or row["file"] not in SIZES:
            continue
        first = -(-row["offset"] // BLOCK_BYTES)
        for block in range(first, min(row["offset"] + row["bytes"], SIZES[row["file"]]) // BLOCK_BYTES):
            sector = row["sector"] + (block * BLOCK_BYTES - row["offset"]) // SECTOR_BYTES
            places.setdefault((row["file"], block), (row["device"], sector))
    return dict(sorted(places.items(), key=lambda item: item[1]))


def extents_of(path):
    """What FIEMAP says when all of a file is on the device."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
    return extents(path)


def physical_places(files):
    """Where each whole block of files lies, by (name, block), in the order in which they lie."""
    places = {}
    for name, path in files.items():
        parts = extents_of(path)
        for block in range(path.stat().st_size // BLOCK_BYTES):
            found = device_place(block * BLOCK_BYTES, parts)
            assert found, f"hole in {path} at block {block}"
            places[name, block] = found[0]
    return dict(sorted(places.items(), key=lambda item: item[1]))


def image_files(image):
    return {file: image / f"f{file:08}" for file in SIZES}


def in_order(image, placed):
    """Whether what was recorded lies in this order."""
    return [key for key in physical_places(image_files(image)) if key in placed] == list(placed)


def lies_as(image, placed):
    """The same, and nearly each piece ends where the next one begins."""
    places = physical_places(image_files(image))
    edges = [(a, b) for a, b in itertools.pairwise(placed) if b != (a[0], a[1] + 1)]
    near = sum(places[b] == places[a] + BLOCK_BYTES for a, b in edges)
    return in_order(image, placed) and near >= 0.95 * len(edges)


def holds_random_data(image):
    """Files of their sizes and no others than a replay makes, no holes, and on the device no block that compresses."""
    files = image_files(image)
    names = {path.name for path in image.iterdir() if not path.name.startswith(".flextrace-image")}
    assert names - {"f00000003"} == {path.name for path in files.values()}
    for file, path in files.items():
        cache_only(path, [])
        with path.open("rb") as stream:
            assert os.lseek(stream.fileno(), 0, os.SEEK_HOLE) == path.stat().st_size == SIZES[file]
        data = path.read_bytes()
        for at in range(0, len(data), BLOCK_BYTES):
            assert len(zlib.compress(data[at : at + BLOCK_BYTES])) > 0.95 * len(data[at : at + BLOCK_BYTES])


def kind_of(place):
    return run("stat", "-f", "-c", "%T", place).strip()


def document_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextlib.contextmanager
def loop_place(kind, directory, *make_options):
    """A directory on a file system of its own."""
    if not shutil.which(f"mkfs.{kind}") or not Path("/dev/loop-control").exists():
        pytest.skip(f"there is no mkfs.{kind}, or no loop device")
    with loop_file_system(kind, directory, *make_options) as made:
        yield made.place
