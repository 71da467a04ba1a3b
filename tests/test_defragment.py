# SPDX-License-Identifier: Apache-2.0
"""A point begins with files that lie in order, whatever those before have written."""

from __future__ import annotations

import os
import random

import pytest

from characterize.workload import Workload
from selfscale.measure import evict, measure
from selfscale.measuring.access import Access
from selfscale.measuring.defragment import defragment
from tests.block_device import extents
from tests.loop_file_system import loop_file_system
from tests.page_cache import resident_pages
from tests.straced import needs_engine

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
        defragment(system.place)
        assert number_of_extents(file) < before / 10
        assert file.read_bytes() == had
        # It is none of the image's.
        assert number_of_extents(other) > pages // 2


def test_elsewhere_files_are_not_touched(tmp_path):
    with loop_file_system("ext4", tmp_path) as system:
        file = system.place / "f00000001"
        written(file, 65)
        scattered(file, 65)
        evict(system.place)
        before = extents(file)
        defragment(system.place)
        assert not any(resident_pages(file))
        assert extents(file) == before


def test_a_directory_that_is_gone_and_a_file_that_may_not_be_written_are_left_to_others(tmp_path):
    defragment(tmp_path / "gone")
    with loop_file_system("btrfs", tmp_path) as system:
        (system.place / "f00000001").symlink_to("/etc/hostname")
        written(system.place / "f00000002", 65)
        scattered(system.place / "f00000002", 65)
        defragment(system.place)
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
