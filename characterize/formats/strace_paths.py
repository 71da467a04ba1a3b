# SPDX-License-Identifier: Apache-2.0
"""Turns names that are given, taken and changed into which file is at which path now."""

from __future__ import annotations

import posixpath


class Paths:
    """The paths of a log; what lies in a directory goes with it when it is renamed."""

    def __init__(self) -> None:
        self._file_at: dict[str, int] = {}
        self._directories: set[str] = set()
        self._absent: set[str] = set()

    def file(self, path: str) -> int | None:
        """Number of the file at a path; None where none is known."""
        return self._file_at.get(path)

    def is_absent(self, path: str) -> bool:
        """Whether it is known that nothing is there."""
        return path in self._absent and path not in self._file_at

    def put(self, path: str, file: int) -> None:
        """A file has this path."""
        self._file_at[path] = file
        while (path := posixpath.dirname(path)) not in self._directories:
            self._directories.add(path)

    def note_absent(self, path: str) -> None:
        """A call was told so."""
        self._absent.add(path)

    def remove(self, path: str) -> None:
        """Nothing is at a path, of a known file, any more."""
        del self._file_at[path]
        self._absent.add(path)

    def rename(self, old: str, new: str, *, exchange: bool) -> None:
        """What is at the old path, and in it, is at the new one, and the other way round if they are exchanged."""
        moved: dict[str, int] = {}
        for source, target in ((old, new), (new, old)) if exchange else ((old, new),):
            inside = [it for it in self._file_at if it.startswith(f"{source}/")] if source in self._directories else []
            for path in (source, *inside):
                self._absent.add(path)
                if (file := self._file_at.pop(path, None)) is not None:
                    moved[target + path.removeprefix(source)] = file
        for path, file in moved.items():
            self.put(path, file)
