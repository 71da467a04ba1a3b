# SPDX-License-Identifier: Apache-2.0
"""A control group of a test's own, for recordings of all that happens in it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def group() -> Iterator[Path]:
    """Of whichever version is there; gone when its processes are."""
    roots = [Path("/sys/fs/cgroup") / name for name in ("freezer", "unified", ".")]
    place = next(root for root in roots if (root / "cgroup.procs").exists()) / f"flextrace-test-{os.getpid()}"
    place.mkdir()
    yield place
    for _ in range(50):
        try:
            place.rmdir()
            return
        except OSError:
            time.sleep(0.1)
