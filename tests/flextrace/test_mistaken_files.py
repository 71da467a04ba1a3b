# SPDX-License-Identifier: Apache-2.0
"""Files that a user names by mistake: each verb says which one it is, at once, and leaves nothing behind."""

from __future__ import annotations

import os

import pytest

import characterize
from characterize.trace_files import whole_file
from flextrace.main import main
from flextrace.output import replay_result
from selfscale.profile import Profile
from tests.traces.two_threads import two_threads
from tests.truths.straced import needs_engine

pytestmark = [pytest.mark.parallel, needs_engine]

FIVE = "--unique-bytes 1M --seq-frac 0 --read-frac 1 --size-mean 4K --process-num 1"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A trace, a profile, a directory, an empty file, a pipe, a disk's image, and what a server sends for a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(whole_file, "WRITER_S", 0.01)
    characterize.write(two_threads(), tmp_path / "t.iotrace")
    Profile().save(tmp_path / "p.json")
    (tmp_path / "directory").mkdir()
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "image", "wb") as image:
        image.truncate(1 << 40)  # more than any memory
    (tmp_path / "page").write_text("<!DOCTYPE html>\n<html><title>404 Not Found</title></html>\n")
    return tmp_path


@pytest.mark.parametrize("name", ["p.json", "directory", "empty", "pipe", "page"])
@pytest.mark.parametrize(
    "words",
    [
        "info {}",
        "characterize {}",
        "characterize t.iotrace {}",
        "alter {} -o o.iotrace --size-mean 2x",
        "cut {} -o o.iotrace --from 1ms",
        "merge t.iotrace {} -o o.iotrace",
        "repeat {} -o o.iotrace --times 2",
        "clone {} -o o.iotrace --copies 2",
        f"willy --like {{}} --depth-family empirical -o o.iotrace {FIVE}",
        "replay {} --directory d",
        "replay {} --engine null",
        "export {} -o o.csv",
        "export {} -o o.parquet",
        "import {} -o o.iotrace",
        "predict p.json --trace {}",
        "rank {} p.json",
        "compare {} --profile p.json --directory d",
        "report -o o.html --trace {}",
    ],
)
def test_what_is_no_trace(place, capsys, words, name):
    assert_refused(place, capsys, words.format(name), name)


@pytest.mark.parametrize("name", ["t.iotrace", "directory", "empty", "pipe", "page", "image"])
@pytest.mark.parametrize(
    "words",
    [
        f"predict {{}} {FIVE}",
        f"predict p.json {FIVE} --against {{}}",
        "predict p.json --trace t.iotrace --measured-on {}",
        "rank t.iotrace {}",
        "rank --workloads table5.2 {}",
        "validate {}",
        "compare t.iotrace --profile {} --directory d",
        "report {} -o o.html",
        "report -o o.html --profile {}",
        "report -o o.html --comparison {}",
        "report -o o.html --replay {}",
        "fit {} -o o.json",
    ],
)
def test_what_is_no_document(place, capsys, words, name):
    assert_refused(place, capsys, words.format(name), name)


def assert_refused(place, capsys, words, name):
    before = sorted(place.rglob("*"))
    assert main(words.split()) in {1, 2}
    said = capsys.readouterr()
    assert said.out == ""
    assert name in said.err.splitlines()[0]
    assert sorted(place.rglob("*")) == before


def test_a_replay_of_what_is_no_trace_does_not_read_it_whole(place, capsys, monkeypatch):
    monkeypatch.setattr(replay_result, "sha256_of", lambda path: pytest.fail(f"all of {path} is read"))
    assert main(["replay", "page", "--engine", "null"]) == 1
    assert "page" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["info empty", "characterize empty", "import empty -o o.iotrace"])
def test_an_empty_file_is_told_as_such_without_a_list_of_formats(place, capsys, words):
    assert main(words.split()) == 1
    assert capsys.readouterr().err == f"flextrace {words.split()[0]}: empty is empty: no trace was written into it\n"
