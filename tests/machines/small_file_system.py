# SPDX-License-Identifier: Apache-2.0
"""File systems in memory, and one of 4 MiB for tests of what happens when space ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def tmpfs(place: Path, options: str) -> Iterator[Path]:
    """One that is mounted at a directory that is made."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.fixture
def small_file_system(tmp_path):
    """Directory of a tmpfs of 4 MiB, unmounted afterwards."""
    with tmpfs(tmp_path / "small", "size=4M") as place:
        yield place
