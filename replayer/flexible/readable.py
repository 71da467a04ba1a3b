# SPDX-License-Identifier: Apache-2.0
"""Turns sizes to lay out, truncations and opens into such that every read of an altered trace finds data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from characterize.layout import NOT_MEASURED_U64, FileFlag, Fileop, IoFlag, IoOp
from replayer.flexible.draft import Draft, RowsOfFiles

ROUNDS = 6
# linux/falloc.h; fileop_record.flags carries the mode in its high half.
KEEP_SIZE, COLLAPSE_RANGE, INSERT_RANGE = 0x01, 0x08, 0x20


@dataclass(frozen=True)
class Deficits:
    """Reads beyond the end of their file: per (file, epoch) the size that is missing and what began the epoch."""

    file: np.ndarray
    size_bytes: np.ndarray
    cause: np.ndarray  # index of the FILEOP record that began the epoch, -1: the beginning of the trace


def make_readable(draft: Draft, changed: np.ndarray) -> None:
    """Raise what a replay lays out, and truncations, until reads of the changed files stay inside their files.

    A file that the trace created and that now is read before it is written exists before the trace, with all of its
    data in the page cache (what had just been written was there). One that is removed, made again and read before it is
    written is resized instead of removed, since nothing can be laid out in between. Its other lives stay as they are.
    Reads that met the end of a changed file ask for no more than they got, and those that got nothing stand behind its
    end.

    Parameters
    ----------
    draft : Draft
    changed : ndarray of int64
        Ids of files whose requests were altered.
    """
    raised, pre_laid = set(), set()
    described, used = RowsOfFiles(draft.files), RowsOfFiles(draft.fileops)
    for _ in range(ROUNDS):
        deficits = find_deficits(draft, changed)
        if not len(deficits.file):
            break
        removals = RowsOfFiles(draft.fileops, draft.removals())
        for file, size, cause in zip(
            deficits.file.tolist(), deficits.size_bytes.tolist(), deficits.cause.tolist(), strict=True
        ):
            if cause < 0:
                opens = _opens(draft, used.of(file), removals.of(file), cause)
                if _lay_out(draft, described.of(file), opens, size):
                    pre_laid.add(file)
            elif draft.fileops["op"][cause] == Fileop.TRUNCATE:
                draft.fileops["argument"][cause] = size
            elif draft.fileops["op"][cause] == Fileop.UNLINK:
                opens = _opens(draft, used.of(file), removals.of(file), cause)
                draft.fileops["flags"][opens] &= ~np.uint32(IoFlag.CREATED)
                draft.fileops["op"][cause] = Fileop.TRUNCATE
                draft.fileops["argument"][cause] = size
            else:
                draft.fileops["flags"][cause] &= ~np.uint32(IoFlag.TRUNCATED)
            raised.add(file)
    if raised:
        draft.note("files", raised=len(raised), laid_out_instead_of_created=len(pre_laid))
    _settle_ends(draft, changed)


def _opens(draft: Draft, operations: np.ndarray, removals: np.ndarray, begin: int) -> np.ndarray:
    """Rows of the opens, of those of all operations on one file, that stand behind `begin` up to the next removal."""
    removal = np.searchsorted(removals, begin, side="right")
    end = removals[removal] if removal < len(removals) else len(draft.fileops)
    life = operations[np.searchsorted(operations, begin, side="right") : np.searchsorted(operations, end)]
    return life[draft.fileops["op"][life] == Fileop.OPEN]


def _lay_out(draft: Draft, index: np.ndarray, opens: np.ndarray, size: int) -> bool:
    """Let a file have at least `size` bytes before the trace; whether the trace created it before."""
    if not len(index):
        return False
    record = draft.files[index[0]].copy()
    was_created = bool(record["flags"] & FileFlag.CREATED)
    before, resident = int(record["size_bytes"]), int(record["resident_bytes"])
    if was_created:
        record["flags"] &= ~np.uint32(FileFlag.CREATED)
        record["resident_bytes"] = size
        draft.fileops["flags"][opens] &= ~np.uint32(IoFlag.CREATED | IoFlag.TRUNCATED)
    elif resident != NOT_MEASURED_U64:
        record["resident_bytes"] = min(round(size * resident / before), size) if before else size
    record["size_bytes"] = max(size, before)
    draft.files[index[0]] = record
    return was_created


def find_deficits(draft: Draft, changed: np.ndarray) -> Deficits:
    """Follow the size of every file through the trace and find the reads that end behind it."""
    events = _events(draft, changed)
    reset = events["base"].to_numpy() >= 0
    file = events["file"].to_numpy()
    new_file = np.diff(file, prepend=-1) != 0
    epoch = np.cumsum(new_file | reset) - 1
    # Within an epoch the size is its base, raised by every write.
    base = np.where(reset, events["base"], 0)
    initial = {
        int(row["file"]): 0 if row["flags"] & (FileFlag.CREATED | FileFlag.NEW_NAME) else int(row["size_bytes"])
        for row in draft.files
    }
    first = np.flatnonzero(new_file | reset)
    bases = np.where(reset[first], base[first], [initial.get(int(name), 0) for name in file[first]])
    # Ends as they would be without what was taken out of the file, or put in, since the epoch began.
    shift = events["shifts_by"].groupby(epoch).cumsum()
    size = np.maximum((events["grows_to"] - shift).groupby(epoch).cummax().to_numpy(), bases[epoch])
    reads_to = events["reads_to"] - shift
    short = np.flatnonzero(reads_to.to_numpy() > size)
    if not len(short):
        none = np.zeros(0, np.int64)
        return Deficits(none, none, none)
    needed = reads_to.iloc[short].groupby(epoch[short]).max()
    at = first[needed.index.to_numpy()]
    cause = np.where(reset[at], events["index"].to_numpy()[at], -1)
    gone = np.zeros(len(cause), bool)
    # A removed file that is never opened again is read through an earlier open: its data is still there.
    gone[cause >= 0] = draft.fileops["op"][cause[cause >= 0]] == Fileop.UNLINK
    gone &= ~np.isin(file[at], draft.reborn())
    return Deficits(file[at][~gone], needed.to_numpy()[~gone], cause[~gone])


def _events(draft: Draft, changed: np.ndarray) -> pd.DataFrame:
    """What changes or needs the size of a file, by (file, start): base -1 unless the size is set."""
    io = draft.io[(draft.io["result"] > 0) & np.isin(draft.io["file"], changed)]
    end = io["offset"].astype(np.int64) + io["result"]
    reads = io["op"] == IoOp.READ
    data = pd.DataFrame(
        {
            "file": io["file"].astype(np.int64),
            "start": io["start_ns"].astype(np.int64),
            "grows_to": np.where(reads, 0, end),
            "reads_to": np.where(reads, end, 0),
            "shifts_by": 0,
            "base": -1,
            "index": -1,
        }
    )
    index = np.flatnonzero((draft.fileops["result"] >= 0) & np.isin(draft.fileops["file"], changed))
    operations = draft.fileops[index]
    operation, argument = operations["op"], operations["argument"].astype(np.int64)
    length = operations["length"].astype(np.int64)
    emptied = (operation == Fileop.OPEN) & ((operations["flags"] & IoFlag.TRUNCATED) != 0)
    emptied |= draft.removals()[index]
    mode = np.where(operation == Fileop.FALLOCATE, operations["flags"] >> 16, KEEP_SIZE)  # as the others do
    taken_out, put_in = (mode & COLLAPSE_RANGE) != 0, (mode & INSERT_RANGE) != 0
    grown = (mode & (KEEP_SIZE | COLLAPSE_RANGE | INSERT_RANGE)) == 0
    sizes = pd.DataFrame(
        {
            "file": operations["file"].astype(np.int64),
            "start": operations["start_ns"].astype(np.int64),
            "grows_to": np.where(grown, argument + length, 0),
            "reads_to": 0,
            "shifts_by": length * put_in - length * taken_out,
            "base": np.where(operation == Fileop.TRUNCATE, argument, np.where(emptied, 0, -1)),
            "index": index,
        }
    )
    sizes = sizes[(sizes["base"] >= 0) | (sizes["grows_to"] > 0) | (sizes["shifts_by"] != 0)]
    return pd.concat([sizes, data]).sort_values(["file", "start"], kind="stable").reset_index(drop=True)


def _settle_ends(draft: Draft, changed: np.ndarray) -> None:
    io = draft.io
    here = np.isin(io["file"], changed) & (io["op"] == IoOp.READ)
    short = here & (io["result"] > 0) & (io["asked_bytes"] > np.maximum(io["result"], 0))
    io["asked_bytes"][short] = io["result"][short]
    at_end = np.flatnonzero(here & (io["result"] == 0))
    if not len(at_end):
        return
    # By the rank of the id: ids of names begin at 2^31.
    known = np.unique(np.concatenate([draft.files["file"], io["file"]]))
    size = np.zeros(len(known), np.int64)
    moved = io[io["result"] > 0]
    np.maximum.at(size, np.searchsorted(known, moved["file"]), moved["offset"].astype(np.int64) + moved["result"])
    np.maximum.at(size, np.searchsorted(known, draft.files["file"]), draft.files["size_bytes"].astype(np.int64))
    ends = size[np.searchsorted(known, io["file"][at_end])]
    io["offset"][at_end] = np.maximum(io["offset"][at_end].astype(np.int64), ends)
