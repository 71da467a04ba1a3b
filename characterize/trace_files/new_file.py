# SPDX-License-Identifier: Apache-2.0
"""Turns a file that is being written into one that appears under its name when it is whole, and not before."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from characterize.errors import FlextraceError, remedy_of


def check_replaceable(path: Path) -> None:
    """Refuse what a new file must not take the place of, such as /dev/null: root may rename a file over a device.

    And a directory that takes none.

    Raises
    ------
    FlextraceError
        There is something there that is no regular file, or the directory is not writable.
    """
    if path.exists() and not path.is_file():
        raise FlextraceError(f"cannot write {path}: it is not a regular file; choose another name", exit_code=2)
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK | os.X_OK):
        raise FlextraceError(f"cannot write {path}: its directory is not writable; choose another")


def check_directory_of(path: Path) -> None:
    """Refuse a name in a directory that is not there.

    Raises
    ------
    FlextraceError
    """
    try:
        there = path.resolve().parent.is_dir()
    except RuntimeError as error:  # as Python calls it before 3.13
        raise FlextraceError(f"cannot write {path}: its links lead in a circle; choose another name", 2) from error
    if not there:
        raise FlextraceError(f"cannot write {path}: its directory does not exist; create it", exit_code=2)


def check_new_file(path: Path, *, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Refuse before long work what `new_file` would refuse after it, and that a result takes the place of an input.

    Raises
    ------
    FlextraceError
        There is no such directory, the file exists and `force` is not given, it is one of `inputs`, or what is there is
        no regular file.
    """
    check_directory_of(path)
    if path.exists() and any(it.exists() and it.samefile(path) for it in inputs):
        raise FlextraceError(f"{path} is a file that is read: choose another name for the result", exit_code=2)
    _check_place(path, force=force)


def _check_place(path: Path, *, force: bool) -> None:
    """Refuse what is there; first what --force would not help with.

    Raises
    ------
    FlextraceError
    """
    check_replaceable(path)
    if path.exists() and not force:
        raise FlextraceError(f"{path} exists already: choose another name or give --force", exit_code=2)


@contextmanager
def taken_back(directory: Path | None) -> Iterator[None]:
    """At its end a directory that the block has made goes again, and those above it, unless something is in them."""
    way = (directory, *directory.parents) if directory else ()
    missing = [place for place in way if not os.path.lexists(place)]
    try:
        yield
    finally:
        for place in missing:
            with suppress(OSError):  # it was not made, or is not empty
                place.rmdir()


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """A `new_file` with one text, which ends its last line."""
    with new_file(path, force=force) as stream:
        stream.write(f"{text}\n".encode())


def _give_name(unfinished: Path, path: Path, *, force: bool) -> None:
    """Give a file its name; what another program has made there meanwhile is not overwritten.

    Raises
    ------
    FlextraceError
        It is there, and `force` is not given.
    """
    if not force:
        try:
            os.link(unfinished, path)  # which, unlike a rename, replaces nothing
            return
        except FileExistsError as error:
            if path.exists():  # no link to nowhere, whose place is taken
                raise FlextraceError(
                    f"{path} was made by another program meanwhile: choose another name or give --force", exit_code=2
                ) from error
        except OSError:
            pass  # a file system without links
    unfinished.replace(path)


@contextmanager
def blamed(path: Path) -> Iterator[None]:
    """What fails in the block is that `path` cannot be written."""
    try:
        yield
    except OSError as error:
        remedy = remedy_of(error) or "; choose another place"
        raise FlextraceError(f"cannot write {path}: {error.strerror or error}{remedy}") from error


class _Unfinished(io.FileIO):
    """A file that gets the name `path`, whose errors are told from those of what is read meanwhile."""

    def __init__(self, unfinished: Path, path: Path) -> None:
        super().__init__(unfinished, "x+")
        self._path = path

    def write(self, data: Any, /) -> int:
        with blamed(self._path):
            return super().write(data)


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """A stream to write a new file with, and to read it back.

    The content is under another name in the same directory, ``stream.name``, until the block ends; if it fails, nothing
    is left.

    Raises
    ------
    FlextraceError
        The file exists and `force` is not given, what is there is no regular file, or it cannot be written.
    """
    _check_place(path, force=force)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with blamed(path):
            raw = _Unfinished(unfinished, path)
        with io.BufferedRandom(raw) as stream:
            yield stream
            with blamed(path):
                stream.flush()
                os.fsync(stream.fileno())
                _give_name(unfinished, path, force=force)
    finally:
        unfinished.unlink(missing_ok=True)
