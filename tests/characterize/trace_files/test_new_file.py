# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all: what was there before stays where writing fails, and devices stay devices."""

import errno
import os
import stat
import subprocess
from contextlib import nullcontext

import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.trace_files.new_file import check_new_file, new_file, without_empty, write_text
from flextrace.main import main
from replayer.run import make_directory
from selfscale.profile import Profile
from tests.traces.two_threads import two_threads

pytest_plugins = ["tests.machines.small_file_system"]
pytestmark = pytest.mark.parallel


def test_a_text_takes_the_place_of_a_file_only_by_force(tmp_path):
    path = tmp_path / "result.json"
    write_text(path, "one")
    with pytest.raises(FlextraceError, match="exists already"):
        write_text(path, "two")
    assert path.read_text() == "one\n"
    write_text(path, "two", force=True)
    assert path.read_text() == "two\n"
    assert os.listdir(tmp_path) == ["result.json"]


def test_what_another_program_made_meanwhile_stays(tmp_path):
    path, link = tmp_path / "result.json", tmp_path / "link"
    writing = new_file(path)
    writing.__enter__().write(b"second")
    path.write_text("first")
    with pytest.raises(FlextraceError, match="made by another program meanwhile"):
        writing.__exit__(None, None, None)
    assert path.read_text() == "first"
    with new_file(path, force=True) as stream:
        stream.write(b"second")
    assert path.read_text() == "second"
    link.symlink_to("nowhere")
    with new_file(link) as stream:
        stream.write(b"third")
    assert link.read_text() == "third"
    assert sorted(os.listdir(tmp_path)) == ["link", "result.json"]


def test_what_was_there_stays_where_the_disk_is_full(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    path.write_text("before\n")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FlextraceError, match="No space left on device; make room there"):
        write_text(path, "after", force=True)
    assert path.read_text() == "before\n"
    assert os.listdir(tmp_path) == ["result.json"]


def test_only_what_cannot_be_written_is_blamed_on_the_result(small_file_system):
    path = small_file_system / "result"
    full = r"cannot write .*result: No space left on device; make room there"
    for piece_bytes in (1 << 10, 32 << 20):
        with pytest.raises(FlextraceError, match=full), new_file(path) as stream:
            stream.writelines(bytes(piece_bytes) for _ in range(0, 32 << 20, piece_bytes))
    with pytest.raises(OSError, match="Input/output error"), new_file(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))  # of a file that is read
    assert os.listdir(small_file_system) == []


def test_refused_before_the_work(tmp_path):
    check_new_file(tmp_path / "new", force=False)
    with pytest.raises(FlextraceError, match="its directory does not exist"):
        check_new_file(tmp_path / "none" / "new", force=True)
    there = tmp_path / "there"
    there.touch()
    with pytest.raises(FlextraceError, match="exists already"):
        check_new_file(there, force=False)
    check_new_file(there, force=True)
    (tmp_path / "link").symlink_to(there)
    for force in (False, True):
        with pytest.raises(FlextraceError, match="is a file that is read"):
            check_new_file(there, force=force, inputs=[tmp_path / "none", tmp_path / "link"])
    check_new_file(there, force=True, inputs=[tmp_path / "other"])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for force in (False, True):  # which would not help
        for write in (check_new_file, lambda path, **how: write_text(path, "text", **how)):
            with pytest.raises(FlextraceError, match="not a regular file"):
                write(pipe, force=force)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize(
    "words",
    [
        "compare t.iotrace --profile p.json --directory d -o t.iotrace",
        "compare t.iotrace --profile p.json --directory d -o p.json",
        "fit t.csv -o t.csv",
        "report p.json -o p.json",
        "report --profile p.json -o p.json",
        "report p.json --validation v.json -o v.json",
        "report --trace t.iotrace -o t.iotrace",
        "report --comparison c.json -o c.json",
        "report --replay r.json -o r.json",
        "validate p.json -o p.json",
        "validate p.json -o p.json --resume",
    ],
)
def test_a_result_does_not_take_the_place_of_an_input(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = tmp_path / words.split(" -o ")[1].split()[0]
    for path in (output, tmp_path / "p.json"):
        Profile().save(path)
    before = output.read_bytes()
    assert main([*words.split(), "--force"]) == 2
    assert f"{output.name} is a file that is read" in capsys.readouterr().err
    assert output.read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        "willy --unique-bytes 1M --seq-frac 0 --read-frac 0 --size-mean 4K -o loop",
        "scale --directory d -o loop --resume",
        "report p.json -o loop",
        "replay t.iotrace --directory d --output r.json --record loop",
    ],
)
def test_links_in_a_circle_are_no_place_for_a_result(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    assert main(words.split()) == 2
    assert "cannot write loop: its links lead in a circle" in capsys.readouterr().err


def test_a_directory_that_takes_no_file_is_refused_before_the_work(small_file_system, tmp_path, capsys):
    subprocess.run(["mount", "-o", "remount,ro", small_file_system], check=True)
    output = small_file_system / "p.json"
    with pytest.raises(FlextraceError, match="its directory is not writable; choose another"):
        check_new_file(output, force=True)
    with pytest.raises(FlextraceError, match="it is not writable; choose another directory"):
        make_directory(small_file_system)
    (tmp_path / "d").mkdir()
    assert main(["scale", "--directory", str(tmp_path / "d"), "-o", str(output), "--budget", "5s"]) == 1
    assert f"cannot write {output}: its directory is not writable" in capsys.readouterr().err
    assert os.listdir(tmp_path / "d") == []
    for figures in (small_file_system, small_file_system / "new" / "one"):
        assert main(["characterize", "not-opened.iotrace", "--figures", str(figures)]) == 1
        told = f"cannot write figures to {figures}: {small_file_system} is not writable; choose another place"
        assert told in capsys.readouterr().err


@pytest.mark.parametrize("fails", [True, False])
def test_a_directory_that_was_made_and_is_empty_goes_again(tmp_path, fails):
    """But not one that was there, or has something in it."""

    def use(made, file):
        with without_empty(tmp_path / made):
            (tmp_path / made).mkdir(parents=True, exist_ok=True)
            if file:
                (tmp_path / file).touch()
            if fails:
                raise KeyboardInterrupt

    (tmp_path / "there").mkdir()
    for made, file in (("new/one", ""), ("there", ""), ("there/new", ""), ("kept/one", "kept/file")):
        with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
            use(made, file)
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert left == ["kept", "kept/file", "there"]


def test_a_directory_in_which_nothing_could_be_compared_goes_again(tmp_path, monkeypatch, capsys):
    def refuse(*arguments, **options):
        raise FlextraceError("cannot make a memory group")

    monkeypatch.setattr("selfscale.compare.compare", refuse)
    monkeypatch.chdir(tmp_path)
    characterize.write(two_threads(), tmp_path / "t.iotrace")
    Profile().save("p.json")
    assert main(["compare", "t.iotrace", "--profile", "p.json", "--directory", "new"]) == 1
    assert "cannot make a memory group" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["p.json", "t.iotrace"]
