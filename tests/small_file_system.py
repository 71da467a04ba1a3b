# SPDX-License-Identifier: Apache-2.0
"""A file system of 4 MiB for tests of what happens when space ends."""

import os
import subprocess

import pytest


@pytest.fixture
def small_file_system(tmp_path):
    """Directory of a tmpfs of 4 MiB, unmounted afterwards."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "none", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)
