# SPDX-License-Identifier: Apache-2.0
"""Turns operations into what they leave of every file: its size, whether it has a name, which one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from characterize.layout import FileFlag, Fileop, IoFlag, IoOp
from replayer.flexible.draft import Draft

# FALLOC_FL_KEEP_SIZE, _COLLAPSE_RANGE and _INSERT_RANGE: a file does not end where that range does.
NOT_TO_THE_END_OF_ITS_RANGE = 0x01 | 0x08 | 0x20
RENAME_EXCHANGE = 2
NEVER_NS = 2**63 - 1
NAMING = (Fileop.RENAME, Fileop.LINK, Fileop.SYMLINK)


def states_after(draft: Draft) -> pd.DataFrame:
    """State of every file behind its last operation.

    Returns
    -------
    DataFrame
        By file id: ``size_bytes`` int64, of the data that a descriptor still reaches where the name is gone;
        ``named`` bool.
    """
    events = _size_events(draft)
    files = np.unique(np.concatenate([draft.files["file"], events["file"]])).astype(np.int64)
    initial = pd.Series(draft.files["size_bytes"].astype(np.int64), draft.files["file"].astype(np.int64))
    size = initial.reindex(files, fill_value=0)
    resets = events[events["base"] >= 0].groupby("file")["base"].last()
    size.update(resets)
    last_reset = events["file"].map(events[events["base"] >= 0].groupby("file")["position"].last()).fillna(-1)
    grown = events[events["position"] > last_reset].groupby("file")["grows_to"].max().reindex(files, fill_value=0)
    removed, done = draft.removals(), draft.fileops["result"] >= 0
    # A descriptor is used, and closed, also when the name is gone.
    of_names = done & (removed | np.isin(draft.fileops["op"], (*NAMING, Fileop.OPEN, Fileop.MKDIR)))
    changes = pd.DataFrame({"file": draft.fileops["file"][of_names].astype(np.int64), "named": ~removed[of_names]})
    named = changes.groupby("file")["named"].last().reindex(files, fill_value=True).astype(bool)
    return pd.DataFrame({"size_bytes": np.maximum(size.astype(np.int64), grown), "named": named}, index=files)


def makers(draft: Draft) -> np.ndarray:
    """Which file operations give a file its first name, bool, and by which its FILE record may say CREATED."""
    operations = draft.fileops
    opened = (operations["op"] == Fileop.OPEN) & ((operations["flags"] & IoFlag.CREATED) != 0)
    return (operations["result"] >= 0) & (opened | (operations["op"] == Fileop.MKDIR))


def follow_renames(draft: Draft, first_use: Mapping[int, int]) -> dict[int, str]:
    """Path of every file behind the last rename before its first use (ns, by id; none: behind all renames).

    What lies in a directory goes with it, and two names that are exchanged are two files that move.
    """
    paths = dict(draft.paths)
    # What carries the new path of a rename says it of that one alone.
    labels = set(draft.files["file"][(draft.files["flags"] & FileFlag.NEW_NAME) != 0].tolist())
    directories = {above for path in paths.values() for above in _above(path)}
    renames = draft.fileops[(draft.fileops["op"] == Fileop.RENAME) & (draft.fileops["result"] >= 0)]
    names = ("file", "argument", "length", "start_ns")
    for file, target, flags, start_ns in zip(*(renames[name].tolist() for name in names), strict=True):
        old, new = paths.get(file, ""), paths.get(target, "")
        exchange = bool(flags & RENAME_EXCHANGE)
        if old and new and (exchange or old in directories):
            others = [it for it in paths if it != file and it not in labels and start_ns < first_use.get(it, NEVER_NS)]
            moved = {it: _moved(paths[it], old, new, exchange=exchange) for it in others}
            directories.update(above for path in moved.values() for above in _above(path))
            paths |= moved
        paths[file] = new
    return paths


def _above(path: str) -> Iterator[str]:
    """The directories that a path lies in."""
    while path := path.rpartition("/")[0]:
        yield path


def _moved(path: str, old: str, new: str, *, exchange: bool) -> str:
    """Where another file's path is when `old` has become `new`."""
    if path.startswith(f"{old}/"):
        return new + path[len(old) :]
    if exchange and (path == new or path.startswith(f"{new}/")):
        return old + path[len(new) :]
    return path


def grows(operations: np.ndarray) -> np.ndarray:
    """Which file operations let a file reach to the end of their range at least."""
    mode = operations["flags"] >> 16
    return (operations["op"] == Fileop.FALLOCATE) & (mode & NOT_TO_THE_END_OF_ITS_RANGE == 0)


def _size_events(draft: Draft) -> pd.DataFrame:
    """What changes the size of a file, in the order of the starts: a new size (`base`, else -1), or growth."""
    io = draft.io[(draft.io["result"] > 0) & (draft.io["op"] == IoOp.WRITE)]
    operations = draft.fileops[draft.fileops["result"] >= 0]
    argument = operations["argument"].astype(np.int64)
    emptied = (operations["op"] == Fileop.OPEN) & (
        (operations["flags"] & np.uint32(IoFlag.TRUNCATED | IoFlag.CREATED)) != 0
    )
    grown = grows(operations)
    sized = operations["op"] == Fileop.TRUNCATE
    writes = pd.DataFrame(
        {
            "file": io["file"].astype(np.int64),
            "start": io["start_ns"].astype(np.int64),
            "grows_to": io["offset"].astype(np.int64) + io["result"],
            "base": -1,
        }
    )
    others = pd.DataFrame(
        {
            "file": operations["file"].astype(np.int64),
            "start": operations["start_ns"].astype(np.int64),
            "grows_to": np.where(grown, argument + operations["length"].astype(np.int64), 0),
            "base": np.where(sized, argument, np.where(emptied, 0, -1)),
        }
    )
    others = others[emptied | grown | sized]
    events = pd.concat([others, writes]).sort_values("start", kind="stable").reset_index(drop=True)
    return events.assign(position=np.arange(len(events)))
