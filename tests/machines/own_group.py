# SPDX-License-Identifier: Apache-2.0
"""A control group of a test's own, for recordings of all that happens in it, and to hold back what does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.running_replay import wait_until

GROUPS = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def made_group(hierarchy: Path) -> Iterator[Path]:
    """In a hierarchy; gone, with what is below it, when its processes are."""
    place = hierarchy / f"flextrace-test-{os.getpid()}"
    place.mkdir()
    try:
        yield place
    finally:
        wait_until(lambda: _is_removed(place))


def _is_removed(place: Path) -> bool:
    with contextlib.suppress(OSError):  # a process is still there
        for group in (*(path for path in place.iterdir() if path.is_dir()), place):
            group.rmdir()
    return not place.exists()


@pytest.fixture
def group() -> Iterator[Path]:
    """Of whichever version is there."""
    hierarchies = [GROUPS / name for name in ("freezer", "unified", ".")]
    with made_group(next(each for each in hierarchies if (each / "cgroup.procs").exists())) as place:
        yield place
