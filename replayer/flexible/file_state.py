# SPDX-License-Identifier: Apache-2.0
"""Turns operations into what they leave of every file: its size, whether it has a name, which one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd

from characterize.file_sizes import FileSizes
from characterize.layout import FILEOP_NAME_SHIFT, FileFlag, Fileop, FileType, IoFlag, IoOp
from replayer.flexible.draft import Draft

RENAME_EXCHANGE = 2
NEVER_NS = 2**63 - 1
NAMING = (Fileop.RENAME, Fileop.LINK, Fileop.SYMLINK)
TAKING = (Fileop.RENAME, Fileop.UNLINK)


def states_after(draft: Draft) -> pd.DataFrame:
    """State of every file behind its last operation.

    Returns
    -------
    DataFrame
        By file id, of files with a FILE record: ``size_bytes`` int64, of the data that a descriptor still reaches where
        the name is gone; ``named`` bool.
    """
    files, first = np.unique(draft.files["file"].astype(np.int64), return_index=True)
    io, (offset, end, file) = draft.io[draft.requests], draft.intervals()
    requests = {"start_ns": io["start_ns"].astype(np.int64), "file": file, "offset": offset, "bytes": end - offset}
    sizes = FileSizes(draft.files)
    sizes.appended(requests | {"read": io["op"] == IoOp.READ}, draft.fileops)
    # A block device is as large as it was.
    device, recorded = (draft.files[name][first] for name in ("type", "size_bytes"))
    size_bytes = np.where(device == FileType.BLOCK_DEVICE, recorded.astype(np.int64), sizes.of(files))
    removed, done = draft.removals(), draft.fileops["result"] >= 0
    # A descriptor is used, and closed, also when the name is gone.
    of_names = done & (removed | np.isin(draft.fileops["op"], (*NAMING, Fileop.OPEN, Fileop.MKDIR)))
    changes = pd.DataFrame({"file": draft.fileops["file"][of_names].astype(np.int64), "named": ~removed[of_names]})
    named = changes.groupby("file")["named"].last().reindex(files, fill_value=True).astype(bool)
    return pd.DataFrame({"size_bytes": size_bytes, "named": named}, index=files)


def makers(draft: Draft) -> np.ndarray:
    """Which file operations give a file its first name, bool, and by which its FILE record may say CREATED."""
    operations = draft.fileops
    opened = (operations["op"] == Fileop.OPEN) & ((operations["flags"] & IoFlag.CREATED) != 0)
    return (operations["result"] >= 0) & (opened | (operations["op"] == Fileop.MKDIR))


def relabel_names(fileops: np.ndarray, relabelled: Callable[[np.ndarray], np.ndarray]) -> None:
    """Give the names that file operations make and take other ids, in place."""
    naming, taking = np.isin(fileops["op"], NAMING), np.isin(fileops["op"], TAKING)
    fileops["argument"][naming] = relabelled(fileops["argument"][naming])
    length, shift = fileops["length"][taking], np.uint64(FILEOP_NAME_SHIFT)
    names = relabelled(length >> shift).astype(np.uint64)
    fileops["length"][taking] = names << shift | length & np.uint64((1 << FILEOP_NAME_SHIFT) - 1)


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
