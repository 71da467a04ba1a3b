# SPDX-License-Identifier: Apache-2.0
"""The engine by its command line, and on a trace that a test makes."""

import subprocess

import pytest

import characterize
from tests.truths.straced import ENGINE


def run(*arguments):
    return subprocess.run([ENGINE, *arguments], capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def engine(tmp_path):
    """Runs the engine on a trace in tmp_path/image; returns the process."""

    def run_on(trace, *options, directory=tmp_path / "image"):
        path = characterize.write(trace, tmp_path / "t.iotrace", force=True)
        return run(path, f"--directory={directory}", *options)

    return run_on
