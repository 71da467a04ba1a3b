# SPDX-License-Identifier: Apache-2.0
"""What every verb has in common: what becomes of output that nobody takes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from characterize.provenance import tool_version
from flextrace.main import VERBS, main

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


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"flextrace {tool_version()}\n"


def test_the_readme_lists_every_verb():
    text = (Path(__file__).parents[1] / "README.md").read_text().split("## Start")[0]
    lists = re.findall(r"^    ([a-z]+(?:, [a-z]+)*) +\S", text, re.MULTILINE)
    listed = {word.strip() for words in lists for word in words.split(",")}
    assert set(VERBS) <= listed


def test_the_help_of_record_says_units_and_exit_codes_of_its_own(capsys):
    with pytest.raises(SystemExit):
        main(["record", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "TIME ns, us, ms, s, m or h" in text
    assert "The exit code is that of the command; otherwise 0 ok, 1 failed, 2 usage, 3 records were lost" in text


def test_what_a_message_names_is_an_option_of_the_verb(tmp_path, capsys):
    """--format of characterize is that of its output."""
    (tmp_path / "unknown").write_text("nothing that anybody writes\n" * 9)
    for words in (["characterize", "unknown"], ["import", "unknown", "-o", "made.iotrace"]):
        assert main([words[0], *(str(tmp_path / word) if word[0] != "-" else word for word in words[1:])]) == 1
        assert "force it by --from, and" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            main([words[0], "--help"])
        assert "--from FORMAT" in capsys.readouterr().out


def test_a_directory_that_cannot_be_made_is_told_with_what_to_do(tmp_path, capsys):
    options = ["--directory", str(tmp_path / "missing" / "place"), "-o", str(tmp_path / "p.json")]
    assert main(["scale", *options]) == 2
    assert "name one in a directory that is there" in capsys.readouterr().err
