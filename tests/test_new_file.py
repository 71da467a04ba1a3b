# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all: what was there before stays where writing fails, and devices stay devices."""

import errno
import os
import stat

import pytest

from characterize.errors import FlextraceError
from characterize.new_file import check_new_file, write_text


def test_a_text_takes_the_place_of_a_file_only_by_force(tmp_path):
    path = tmp_path / "result.json"
    write_text(path, "one")
    with pytest.raises(FlextraceError, match="exists already"):
        write_text(path, "two")
    assert path.read_text() == "one\n"
    write_text(path, "two", force=True)
    assert path.read_text() == "two\n"
    assert os.listdir(tmp_path) == ["result.json"]


def test_what_was_there_stays_where_the_disk_is_full(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    path.write_text("before\n")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FlextraceError, match="No space left"):
        write_text(path, "after", force=True)
    assert path.read_text() == "before\n"
    assert os.listdir(tmp_path) == ["result.json"]


def test_refused_before_the_work(tmp_path):
    check_new_file(tmp_path / "new", force=False)
    with pytest.raises(FlextraceError, match="its directory does not exist"):
        check_new_file(tmp_path / "none" / "new", force=True)
    there = tmp_path / "there"
    there.touch()
    with pytest.raises(FlextraceError, match="exists already"):
        check_new_file(there, force=False)
    check_new_file(there, force=True)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for write in (lambda: check_new_file(pipe, force=True), lambda: write_text(pipe, "text", force=True)):
        with pytest.raises(FlextraceError, match="not a regular file"):
            write()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
