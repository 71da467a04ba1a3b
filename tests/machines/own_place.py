# SPDX-License-Identifier: Apache-2.0
"""Places outside of pytest's directory, in memory and for other users; `left_behind` knows them by their name."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.left_behind import SHARED_MEMORY


@contextlib.contextmanager
def own_place(parent: Path = SHARED_MEMORY) -> Iterator[Path]:
    """A directory, one at a time; in memory what lies there moves no byte of a disk."""
    if not parent.is_dir():
        pytest.skip(f"there is no {parent}")
    place = parent / f"flextrace-test-{os.getpid()}"
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place)
