# SPDX-License-Identifier: Apache-2.0
"""Turns the rows of a trace into who has to precede whom by resource, by looking at every pair (docs/decisions/0002).

Rows are dicts of record fields with ``data`` (an IO record), in the order of their starts; paths by file id.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from characterize.layout import FILEOP_NAME_SHIFT, Fileop, IoFlag, IoOp

Row = dict[str, Any]
RENAME_EXCHANGE = 2

USES = (Fileop.FSYNC, Fileop.FDATASYNC, Fileop.SYNC_FILE_RANGE, Fileop.MSYNC, Fileop.FADVISE)
CHANGES_NAME = (Fileop.UNLINK, Fileop.RMDIR, Fileop.MKDIR, Fileop.RENAME)


class Touched(NamedTuple):
    """What an operation has to do with: (file, how), (name, how), and directories that get or lose an entry."""

    files: set[tuple[int, str]]
    names: set[tuple[str, str]]
    entries: set[int]
    flushes_all: bool
    process: int


def ended(row: Row, start: int) -> bool:
    """Whether it had ended before a time; just then only if it took any time."""
    end = row["start_ns"] + row["duration_ns"]
    return end < start or (end == start and row["duration_ns"] > 0)


def touched_by(rows: list[Row], paths: dict[int, str], created: set[int], new_names: set[int]) -> list[Touched]:
    """Of each row, with the names that files had as it started."""
    named = [row for row in rows if not row["data"] and row["result"] >= 0]
    changes = [row for row in named if row["op"] == Fileop.RENAME or row["flags"] & IoFlag.CREATED]
    changes.sort(key=lambda row: row["start_ns"] + row["duration_ns"])
    return [
        touched(row, *names_at([one for one in changes if ended(one, row["start_ns"])], paths, created, new_names))
        for row in rows
    ]


def names_at(
    changes: list[Row], paths: dict[int, str], created: set[int], new_names: set[int]
) -> tuple[dict[int, str], dict[str, int], dict[int, str]]:
    """The path of each file, and the file at each path, after some changes; and the first paths."""
    now = dict(paths)
    there: dict[str, int] = {}
    for file in sorted(paths):
        if file not in created | new_names:
            there.setdefault(paths[file], file)
    for change in changes:
        file = change["file"]
        if change["op"] == Fileop.OPEN:
            there[now[file]] = file
            continue
        old, new = taken(change, now, paths), paths[change["argument"]]
        other = there.get(new)
        exchanged = change["length"] & RENAME_EXCHANGE and other not in (None, file)
        there.pop(old, None)
        if exchanged:
            there[old], now[other] = other, old
        there[new], now[file] = file, new
    return now, there, paths


def taken(row: Row, now: dict[int, str], paths: dict[int, str]) -> str:
    """The path of the file of an operation; of several the one by which it is renamed or removed."""
    said = row["length"] >> FILEOP_NAME_SHIFT if row["op"] in (Fileop.RENAME, Fileop.UNLINK) else 0
    return paths[said] if said else now[row["file"]]


def touched(row: Row, now: dict[int, str], there: dict[str, int], paths: dict[int, str]) -> Touched:
    """Of one row."""
    file, op, process = row["file"], row["op"], row["process"]
    if row["data"]:
        return Touched({(file, "write" if op == IoOp.WRITE else "use")}, set(), set(), False, process)
    made = op == Fileop.OPEN and row["flags"] & IoFlag.CREATED
    files, used, changed = set(), set(), set()
    if op in USES:
        files.add((file, "use"))
    elif op in (Fileop.TRUNCATE, Fileop.FALLOCATE):
        files.add((file, "write"))
    elif op == Fileop.CLOSE:
        files.add((file, "close"))
    elif op in CHANGES_NAME or made:
        files.add((file, "change"))
        changed.add(taken(row, now, paths))
    elif op == Fileop.OPEN:
        files.add((file, "write" if row["flags"] & IoFlag.TRUNCATED else "open"))
        used.add(now[file])
    elif op == Fileop.LINK:
        files.add((file, "open"))
        used.add(now[file])
    if op in (Fileop.RENAME, Fileop.LINK, Fileop.SYMLINK):
        changed.add(paths[row["argument"]])
    if op == Fileop.RENAME and there.get(paths[row["argument"]]) not in (None, file):
        files.add((there[paths[row["argument"]]], "change"))
    inside = {name.rpartition("/")[0] for name in used | changed}
    names = {(name, "use") for name in used | inside if name} | {(name, "change") for name in changed}
    directories = {name.rpartition("/")[0] for name in changed}
    entries = {min(found) for one in directories if (found := [file for file in paths if paths[file] == one])}
    return Touched(files, names, entries, op == Fileop.SYNCFS, process)


def conflicts(one: Touched, other: Touched) -> bool:
    """Whether the order of two operations of different threads matters, where the first one came first."""
    own = one.process == other.process
    for file, how in one.files:
        for file_too, how_too in other.files:
            pair = {how, how_too}
            if file == file_too and ("change" in pair or ("write" in pair and pair <= {"use", "write"})):
                return True
            if (
                file == file_too
                and own
                and (how, how_too)
                in {
                    ("open", "use"),
                    ("open", "write"),
                    ("open", "close"),
                    ("use", "close"),
                    ("write", "close"),
                }
            ):
                return True
    if any((name, "change") in other.names for name, _ in one.names):
        return True
    if any((name, "change") in one.names for name, _ in other.names):
        return True
    for first, second in ((one, other), (other, one)):
        if any((directory, "use") in second.files for directory in first.entries):
            return True
        if first.flushes_all and any(how in ("write", "change") for _, how in second.files):
            return True
    return any((directory, "change") in other.files for directory in one.entries)


def must_precede(
    rows: list[Row], paths: dict[int, str], created: set[int] = frozenset(), new_names: set[int] = frozenset()
) -> np.ndarray:
    """Matrix of (a, b): a, of another thread, ended before b started, and the order of both matters."""
    touches = touched_by(rows, paths, set(created), set(new_names))
    matrix = np.zeros((len(rows), len(rows)), bool)
    for b, later in enumerate(rows):
        for a, earlier in enumerate(rows):
            if earlier["thread"] != later["thread"] and ended(earlier, later["start_ns"]):
                matrix[a, b] = conflicts(touches[a], touches[b])
    return matrix
