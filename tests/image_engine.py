# SPDX-License-Identifier: Apache-2.0
"""The engine on a trace that a test makes, for tests of its image."""

import subprocess

import pytest

import characterize
from tests.straced import ENGINE


@pytest.fixture
def engine(tmp_path):
    """Runs the engine on a trace in tmp_path/image; returns the process."""

    def run(trace, *options, directory=tmp_path / "image"):
        path = characterize.write(trace, tmp_path / "t.iotrace", force=True)
        command = [ENGINE, path, f"--directory={directory}", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    return run
