# SPDX-License-Identifier: Apache-2.0
"""An overlay that lies on two directories of a file system, as the root of a container does."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def overlay(place: Path, lower_files: dict[str, bytes]) -> Iterator[Path]:
    """Mount one on directories that are made in ``place``, its lower one with these files; where it is mounted."""
    places = [place / name for name in ("lower", "upper", "work", "merged")]
    for directory in places:
        directory.mkdir()
    for name, content in lower_files.items():
        (places[0] / name).write_bytes(content)
    options = ",".join(f"{directory.name}dir={directory}" for directory in places[:3])
    mounted = subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", places[3]], check=False)
    if mounted.returncode:
        pytest.skip("this kernel does not mount overlays")
    try:
        yield places[3]
    finally:
        subprocess.run(["umount", places[3]], check=True)
