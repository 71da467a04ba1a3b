# SPDX-License-Identifier: Apache-2.0
"""A point, and a round of a comparison, begins with files that lie in order, whatever those before have written."""

from __future__ import annotations

import math
import os
import random

import pytest

import characterize
from characterize.layout import IoFlag
from characterize.workload import Workload
from replayer.run import replay
from selfscale.comparing.comparison_runs import Setting, measured_rows
from selfscale.measure import evict, measure
from selfscale.measuring.access import Access
from selfscale.measuring.defragment import defragment
from tests.machines.block_device import extents, loop_device, mounted
from tests.machines.loop_file_system import IMAGE_BYTES, loop_file_system
from tests.traces.made_trace import made_trace, write
from tests.truths.page_cache import resident_pages
from tests.truths.straced import needs_engine

pytestmark = [pytest.mark.parallel, pytest.mark.root]

MIB = 1 << 20
PAGE_BYTES = 4096


def scattered(path, pages):
    """Overwrite every other page, each on its own way to storage."""
    descriptor = os.open(path, os.O_RDWR | os.O_DSYNC)
    for page in random.Random(7).sample(range(0, pages, 2), pages // 2):
        os.pwrite(descriptor, random.Random(page).randbytes(PAGE_BYTES), page * PAGE_BYTES)
    os.close(descriptor)


def written(path, pages):
    with path.open("wb") as file:
        file.write(random.Random(1).randbytes(pages * PAGE_BYTES))
        file.flush()
        os.fsync(file.fileno())


def number_of_extents(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return len(extents(path))


def test_files_of_btrfs_lie_in_order_again_with_what_they_had(tmp_path):
    pages = 257
    with loop_file_system("btrfs", tmp_path) as system:
        for name in ("f00000001", "other"):
            written(system.place / name, pages)
            scattered(system.place / name, pages)
        file, other = system.place / "f00000001", system.place / "other"
        had, before = file.read_bytes(), number_of_extents(file)
        assert before > pages // 2
        defragment(system.place, math.inf)
        assert number_of_extents(file) < before / 10
        assert file.read_bytes() == had
        # It is none of the image's.
        assert number_of_extents(other) > pages // 2


def test_what_is_not_used_stays_scattered_and_what_is_in_order_stays_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("selfscale.measuring.defragment.STEP_BYTES", MIB)
    with loop_file_system("btrfs", tmp_path) as system:
        file = system.place / "f00000001"
        written(file, 513)
        scattered(file, 513)
        defragment(system.place, 50.5 * PAGE_BYTES)
        assert 250 < number_of_extents(file) < 265, "256 of 513 pages are in order"
        defragment(system.place, math.inf)
        assert number_of_extents(file) < 10
        places = extents(file)
        defragment(system.place, math.inf)
        assert number_of_extents(file) == len(places)
        assert extents(file) == places


def test_what_forced_compression_has_written_in_one_go_is_in_order(tmp_path):
    with (
        loop_device(tmp_path / "device", IMAGE_BYTES) as disk,
        mounted("btrfs", disk, tmp_path / "place", "-o", "compress-force=zstd") as place,
    ):
        file = place / "f00000001"
        written(file, 2049)
        places = extents(file)
        defragment(place, math.inf)
        assert number_of_extents(file) == len(places)
        assert extents(file) == places


def test_nothing_is_begun_behind_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr("selfscale.measuring.defragment.SECONDS_MAX", -1.0)
    with loop_file_system("btrfs", tmp_path) as system:
        file = system.place / "f00000001"
        written(file, 65)
        scattered(file, 65)
        places = extents(file)
        defragment(system.place, math.inf)
        assert extents(file) == places


def test_elsewhere_files_are_not_touched(tmp_path):
    with loop_file_system("ext4", tmp_path) as system:
        file = system.place / "f00000001"
        written(file, 65)
        scattered(file, 65)
        evict(system.place)
        before = extents(file)
        defragment(system.place, math.inf)
        assert not any(resident_pages(file))
        assert extents(file) == before


def test_a_directory_that_is_gone_and_a_file_that_may_not_be_written_are_left_to_others(tmp_path):
    defragment(tmp_path / "gone", math.inf)
    with loop_file_system("btrfs", tmp_path) as system:
        (system.place / "f00000001").symlink_to("/etc/hostname")
        written(system.place / "f00000002", 65)
        scattered(system.place / "f00000002", 65)
        defragment(system.place, math.inf)
        assert number_of_extents(system.place / "f00000002") < 10


@needs_engine
def test_a_point_begins_in_order(tmp_path):
    workload = Workload(MIB, 0.0, 0.5, float(PAGE_BYTES), 1.0)
    with loop_file_system("btrfs", tmp_path) as system:
        image = system.place / "image"
        measure(workload, image, access=Access("direct"), max_seconds=0.3, min_seconds=0.1)
        (file,) = image.glob("f*")
        assert number_of_extents(file) > 50
        measure(workload.replace(read_frac=1.0), image, access=Access("direct"), max_seconds=0.3, min_seconds=0.1)
        assert number_of_extents(file) < 10


@needs_engine
def test_a_round_of_a_comparison_begins_in_order(tmp_path, monkeypatch):
    pages, seen, happened = 257, [], []
    scattering = [write(PAGE_BYTES * page, PAGE_BYTES, 10 * page, flags=IoFlag.DSYNC) for page in range(0, pages, 2)]
    files = [{"file": 1, "size_bytes": pages * PAGE_BYTES}]
    path = characterize.write(made_trace(scattering, files=files), tmp_path / "t.iotrace")
    refused = Workload(PAGE_BYTES, 0.0, 0.0, float(PAGE_BYTES), 2.0)  # by Willy, whose rows come from `measure`

    def looked_at(trace, image, **options):
        happened.append(options["phase"])
        before = number_of_extents(image / "f00000001") if options["phase"] == "run" else None
        result = replay(trace, image, **options)
        if before is not None:
            seen.append((before, number_of_extents(image / "f00000001")))
        return result

    def put_in_order(*arguments):
        happened.append("in order")
        defragment(*arguments)

    monkeypatch.setattr("selfscale.comparing.comparison_runs.replay", looked_at)
    monkeypatch.setattr("selfscale.comparing.comparison_runs.defragment", put_in_order)
    monkeypatch.setattr(os, "sync", lambda: happened.append("written"))
    with loop_file_system("btrfs", tmp_path) as system:
        rest = {"profile": None, "memory_bytes": None, "repeat": 2, "seed": 1, "timing": "asap", "max_seconds": 1.0}
        setting = Setting(characterize.open(path), {}, refused, directory=system.place, **rest)
        measured_rows(setting, lambda _text: None)
    assert happened == 2 * ["written", "prepare", "in order", "written", "run"]
    assert len(seen) == 2
    for before, after in seen:
        assert before < 10
        assert after > pages // 2
