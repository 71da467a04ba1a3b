# SPDX-License-Identifier: Apache-2.0
"""Turns writes and file operations into the bytes of every write that lie behind the end of its file at that time.

Every file's size is followed from its FILE record through writes, truncations, opens that make or empty it, and
fallocate, in the order of the starts. Block devices never grow, nor shrink: O_TRUNC does nothing to one.
"""

from __future__ import annotations

import numba
import numpy as np

from characterize.layout import Fileop, FileType, IoFlag
from characterize.references import Columns

# linux/falloc.h; fileop_record.flags carries the mode in its high half.
_KEEP_SIZE, _COLLAPSE_RANGE, _INSERT_RANGE = 0x01, 0x08, 0x20

_SET_SIZE, _GROW_TO, _SHIFT = 1, 2, 3
UNKNOWN = -1
_ENDLESS = np.iinfo(np.int64).max


class FileSizes:
    """The sizes of files now.

    Parameters
    ----------
    files : ndarray
        FILE records.
    follows : bool
        Whether a part before says how large the files are at the begin; until it does all are empty.
    """

    def __init__(self, files: np.ndarray, *, follows: bool = False) -> None:
        files = files[np.unique(files["file"], return_index=True)[1]]
        self._files = files["file"].astype(np.int64)
        self._sizes = np.zeros(len(files), np.int64) if follows else files["size_bytes"].astype(np.int64)
        self._sizes[files["type"] == FileType.BLOCK_DEVICE] = _ENDLESS
        self._follows = follows
        # By file: by how much its size was shifted; whether the size does not depend on that at the begin any more.
        self._begin = np.zeros((len(files), 2), np.int64)

    def appended(self, requests: Columns, fileops: np.ndarray) -> dict[str, np.ndarray]:
        """Follow a chunk of requests and of FILEOP records; of those that start together the file operation is first.

        Returns
        -------
        dict of str to ndarray of int64, shape (requests,)
            ``appended``, bytes behind the end of the file: 0 for a read, `UNKNOWN` where the size of the file is not
            known. Where a part before says that, also ``appended_to``, the end of these bytes in the file as it was at
            the begin (what was put in or taken out since then apart); `UNKNOWN` where that has no influence any more.
        """
        what, when, file, argument, length = _size_changes(fileops)
        start, offset, size, read = (requests[name] for name in ("start_ns", "offset", "bytes", "read"))
        place, changed = self._places(requests["file"]), self._places(file)
        ends = np.full(len(start) if self._follows else 0, UNKNOWN, np.int64)
        appended = _follow(
            start, offset, size, read, place, when, what, changed, argument, length, self._sizes, self._begin, ends
        )
        return {"appended": appended, "appended_to": ends} if self._follows else {"appended": appended}

    def of(self, file: np.ndarray) -> np.ndarray:
        """The sizes now of files with a FILE record."""
        return self._sizes[self._places(file)]

    def merge(self, following: FileSizes) -> None:
        """Go on to where `following` ends, which began where these end."""
        shift, known = following._begin[:, 0], following._begin[:, 1] > 0
        shifted = np.where(self._sizes == _ENDLESS, _ENDLESS, np.maximum(self._sizes + shift, following._sizes))
        self._sizes = np.where(known, following._sizes, shifted)

    def _places(self, file: np.ndarray) -> np.ndarray:
        """Rows of files, `UNKNOWN` for one without a FILE record."""
        if not len(self._files):
            return np.full(len(file), UNKNOWN, np.int64)
        places = np.minimum(np.searchsorted(self._files, file), len(self._files) - 1)
        return np.where(self._files[places] == file, places, UNKNOWN)


def _size_changes(array: np.ndarray) -> tuple[np.ndarray, ...]:
    """File operations that set, raise or shift a file's size: what, start, file, offset, length."""
    array = array[array["result"] >= 0]
    mode = array["flags"] >> 16
    fallocate = array["op"] == Fileop.FALLOCATE
    what = np.zeros(len(array), np.int64)
    opened = (array["op"] == Fileop.OPEN) & ((array["flags"] & (IoFlag.TRUNCATED | IoFlag.CREATED)) != 0)
    what[opened | (array["op"] == Fileop.TRUNCATE)] = _SET_SIZE
    what[fallocate & ((mode & (_KEEP_SIZE | _COLLAPSE_RANGE | _INSERT_RANGE)) == 0)] = _GROW_TO
    shifts = fallocate & ((mode & (_COLLAPSE_RANGE | _INSERT_RANGE)) != 0)
    what[shifts] = _SHIFT
    argument, length = array["argument"].astype(np.int64), array["length"].astype(np.int64)
    argument[opened] = 0
    length[shifts & ((mode & _COLLAPSE_RANGE) != 0)] *= -1
    columns = (what, array["start_ns"].astype(np.int64), array["file"].astype(np.int64), argument, length)
    return tuple(column[what > 0] for column in columns)


@numba.njit(cache=True, nogil=True)
def _follow(  # noqa: PLR0917 (a kernel has its state in arguments)
    start: np.ndarray,
    offset: np.ndarray,
    size: np.ndarray,
    read: np.ndarray,
    place: np.ndarray,
    change_start: np.ndarray,
    change: np.ndarray,
    change_place: np.ndarray,
    change_offset: np.ndarray,
    change_length: np.ndarray,
    sizes: np.ndarray,
    begin: np.ndarray,
    ends: np.ndarray,
) -> np.ndarray:
    """Appended bytes by request; sets their ends in the file as it was at the begin, if there is room."""
    appended = np.empty(len(start), np.int64)
    at = 0
    for request in range(len(start) + 1):
        while at < len(change) and (request == len(start) or change_start[at] <= start[request]):
            file = change_place[at]
            if file >= 0 and sizes[file] != _ENDLESS:
                if change[at] == _SET_SIZE:
                    sizes[file] = change_offset[at]
                    begin[file, 1] = 1
                elif change[at] == _GROW_TO:
                    sizes[file] = max(sizes[file], change_offset[at] + change_length[at])
                else:
                    sizes[file] += change_length[at]
                    begin[file, 0] += change_length[at]
            at += 1
        if request == len(start):
            break
        file = place[request]
        appended[request] = 0
        if file < 0:
            appended[request] = UNKNOWN
        elif not read[request]:
            end = offset[request] + size[request]
            appended[request] = max(0, end - max(sizes[file], offset[request]))
            if len(ends) > 0 and begin[file, 1] == 0:
                ends[request] = end - begin[file, 0]
            sizes[file] = max(sizes[file], end)
    return appended
