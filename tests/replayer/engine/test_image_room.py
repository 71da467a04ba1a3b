# SPDX-License-Identifier: Apache-2.0
"""What the files of an image take of their file system, by its own count."""

from __future__ import annotations

import os

import pytest

import characterize
from characterize.layout import HeaderFlag
from replayer.run import prepare
from tests.traces.laid_out import loop_place
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import needs_engine

pytestmark = [needs_engine, pytest.mark.root, pytest.mark.parallel]

MIB = 1 << 20


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_file_that_grows_in_steps_takes_no_more_than_its_size(kind, tmp_path):
    """xfs reserves as much again behind it from the second time on, and reports that as used."""
    with loop_place(kind, tmp_path) as place:
        image = place / "image"
        for size in (16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB):
            files = [{"file": 1, "size_bytes": size}]
            trace = made_trace([read(0, 1)], files=files, flags=HeaderFlag.UNTIMED)
            prepare(characterize.write(trace, tmp_path / f"{size}.iotrace"), image)
            status = os.stat(image / "f00000001")
            assert size == status.st_size
            assert size <= status.st_blocks * 512 <= size + MIB
