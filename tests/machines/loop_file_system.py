# SPDX-License-Identifier: Apache-2.0
"""A file system of its own on a loop device of its own, for tests that compare a trace with what a device did."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.machines.block_device import BlockDevice, loop_device, mounted

IMAGE_BYTES = 512 << 20  # the smallest that all of them accept; the image is sparse


@dataclass(frozen=True)
class LoopFileSystem:
    """A mounted file system."""

    kind: str
    place: Path
    disk: BlockDevice


@contextlib.contextmanager
def loop_file_system(kind: str, directory: Path, *make_options: str) -> Iterator[LoopFileSystem]:
    """Make, mount, and take away again."""
    if os.geteuid() != 0:
        pytest.skip("a loop device needs root")
    with (
        loop_device(directory / f"{kind}.image", IMAGE_BYTES) as disk,
        mounted(kind, disk, directory / kind, make_options=make_options) as place,
    ):
        yield LoopFileSystem(kind, place, disk)
