# SPDX-License-Identifier: Apache-2.0
"""What every verb has in common: what becomes of output that nobody takes."""

import subprocess
import sys

FLEXTRACE = [sys.executable, "-m", "flextrace"]


def test_full_output_is_told_in_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*FLEXTRACE, "doctor"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_enough_ends_it_quietly():
    command = " ".join([*FLEXTRACE, "doctor", "|", "head", "-c", "1"])
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
