# SPDX-License-Identifier: Apache-2.0
"""What every verb has in common: what becomes of output that nobody takes."""

import subprocess
import sys

import pytest

from flextrace.main import main

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


def test_names_keep_their_capitals_in_the_help(capsys):
    for verb, name in (("report", "HTML"), ("export", "(CSV)"), ("record", "VFS"), ("compare", "Willy")):
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        assert name in capsys.readouterr().out.split("options:")[0]


def test_the_usage_of_rank_has_both_its_forms(capsys):
    with pytest.raises(SystemExit):
        main(["rank", "--help"])
    usage = capsys.readouterr().out.split("positional")[0]
    assert "rank [OPTION ...] TRACE PROFILE.json ...\n" in usage
    assert "--workloads table5.2 PROFILE.json ...\n" in usage
