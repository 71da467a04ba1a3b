# SPDX-License-Identifier: Apache-2.0
"""Turns BLOCK and BLOCK_DATA records into why block bytes moved: by class, by file, how many are linked to a cause.

A block request is divided into pieces (BLOCK_DATA), each of which is contiguous in a file and has one class and one
cause; what its pieces leave over is of unknown class. Only requests that moved data count (`requests.data_moved`), and
of stacked devices only the lowest ones (`requests.stacked`), so that no byte is counted twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from characterize.counting.grouped_sums import GroupedSums
from characterize.document import plain
from characterize.layout import BlockDataClass, BlockFlag, BlockOp, IoOp, RecordKind
from characterize.requests import data_moved
from characterize.trace import PATH_DTYPE, Trace

FILES_LISTED = 20

_ISSUED = (BlockDataClass.DIRECT, BlockDataClass.FILL)
_APART = (BlockOp.READ, BlockOp.WRITE)


@dataclass(frozen=True)
class LinkedShare:
    """Bytes of some classes, and how many of them are linked to who caused them.

    Attributes
    ----------
    bytes, linked_bytes : int
    """

    bytes: int
    linked_bytes: int

    @property
    def share(self) -> float:
        """NaN without bytes."""
        return self.linked_bytes / self.bytes if self.bytes else math.nan

    def as_document(self) -> dict[str, Any]:
        """For JSON."""
        return {"bytes": self.bytes, "linked_bytes": self.linked_bytes, "linked_share": self.share}


@dataclass(frozen=True)
class Links:
    """Why the bytes of the block layer moved.

    Attributes
    ----------
    read_bytes, written_bytes : int
        Of the block layer, in requests that succeeded.
    by_class : DataFrame
        ``class`` (name of a `BlockDataClass`), ``read_bytes``, ``written_bytes``, ``share`` of all bytes; classes that
        occur, in the order of the enum. Empty where the trace has no BLOCK_DATA records (format 1.0, foreign traces).
    issued : LinkedShare
        Direct and fill bytes; linked: the operation that caused them is known.
    written_back : LinkedShare
        Write-back bytes; linked: the process that dirtied them is known.
    written_back_to_operation : LinkedShare
        Write-back bytes; linked: the operation that dirtied them is known (a store to a mapping is none).
    by_file : DataFrame
        ``file, path, read_bytes, written_bytes`` of the pieces, most bytes first; file 0 is none or not known.
    others : DataFrame
        What moves no data of a file: ``op`` (flush, discard, ...), ``requests``, ``bytes``.
    stacked_requests, stacked_bytes : int
        Of devices whose data is that of other devices in the trace, left out of everything here.
    orphans : int
        BLOCK_DATA records whose BLOCK record is not in the trace, left out of everything here.
    read_amplification, write_amplification : float
        Block bytes that a traced program caused / bytes that the programs read or wrote; NaN where a layer is missing.
    """

    read_bytes: int
    written_bytes: int
    by_class: pd.DataFrame
    issued: LinkedShare
    written_back: LinkedShare
    written_back_to_operation: LinkedShare
    by_file: pd.DataFrame
    others: pd.DataFrame
    stacked_requests: int
    stacked_bytes: int
    orphans: int
    read_amplification: float
    write_amplification: float

    @property
    def known_share(self) -> float:
        """Share of the bytes whose class is known; NaN without BLOCK_DATA records."""
        if not len(self.by_class):
            return math.nan
        return float(self.by_class.loc[self.by_class["class"] != BlockDataClass.UNKNOWN.name, "share"].sum())

    def as_document(self, files: int = FILES_LISTED) -> dict[str, Any]:
        """For JSON, with the `files` that moved most bytes."""
        return plain(
            {
                "read_bytes": self.read_bytes,
                "written_bytes": self.written_bytes,
                "by_class": self.by_class,
                "known_share": self.known_share,
                "direct_and_fill": self.issued.as_document(),
                "writeback": self.written_back.as_document(),
                "writeback_to_operation": self.written_back_to_operation.as_document(),
                "others": self.others,
                "stacked": {"requests": self.stacked_requests, "bytes": self.stacked_bytes},
                "orphans": self.orphans,
                "readAmplification": self.read_amplification,
                "writeAmplification": self.write_amplification,
                "file_count": len(self.by_file),
                "files": self.by_file.head(files),
            }
        )


def pieces_of(blocks: np.ndarray, data: np.ndarray, owner: np.ndarray, counted: np.ndarray) -> dict[str, np.ndarray]:
    """The pieces of block requests that count, and for each request what its pieces leave over.

    Parameters
    ----------
    blocks, data, owner : ndarray
        BLOCK records, all BLOCK_DATA records of them, and the row of its request for each of these, -1 = none.
    counted : ndarray of bool
        Which BLOCK records are not of a stacked device.

    Returns
    -------
    dict of str to ndarray
        ``block`` (row of the request), ``class, file, process, cause, bytes`` int64, ``read`` bool; a rest is of class
        UNKNOWN, file 0, and has the cause of its BLOCK record.
    """
    counted = data_moved(blocks) & counted
    kept = (owner >= 0) & counted[owner] if len(blocks) else np.zeros(len(data), bool)
    data, owner = data[kept], owner[kept]
    rest = blocks["bytes"].astype(np.int64)
    np.subtract.at(rest, owner, data["bytes"].astype(np.int64))
    left = counted & (rest > 0)
    return {
        "block": np.concatenate([owner, np.flatnonzero(left)]),
        "class": np.concatenate([data["class"], np.zeros(left.sum(), np.uint8)]).astype(np.int64),
        "file": np.concatenate([data["file"], np.zeros(left.sum(), np.uint32)]).astype(np.int64),
        "process": np.concatenate([data["process"], np.zeros(left.sum(), np.uint32)]).astype(np.int64),
        "cause": np.concatenate([data["cause"], blocks["cause"][left]]).astype(np.uint64),
        "bytes": np.concatenate([data["bytes"].astype(np.int64), rest[left]]),
        "read": np.concatenate([blocks["op"][owner], blocks["op"][left]]) == BlockOp.READ,
    }


class LinksSummary:
    """Why block bytes moved, of block requests that come with their pieces; mergeable in any order.

    Parameters
    ----------
    all_stacked : bool
        Whether every request of the trace is of a stacked device: then they count.
    """

    def __init__(self, all_stacked: bool) -> None:
        self._all_stacked = all_stacked
        self._classes = GroupedSums("read", "written")
        self._files = GroupedSums("read", "written")
        self._others = GroupedSums("requests", "bytes")
        self._shares = np.zeros((3, 2), np.int64)
        self._counts = dict.fromkeys(("stacked", "stacked_bytes", "orphans", "blocks", "data", "linked"), 0)

    @property
    def orphans(self) -> int:
        """BLOCK_DATA records without their BLOCK record."""
        return self._counts["orphans"]

    @property
    def linked_bytes(self) -> int:
        """Block bytes that are assigned to the operation that caused them: by their piece, or else by their request."""
        return self._counts["linked"]

    def add(self, blocks: np.ndarray, data: np.ndarray, owner: np.ndarray) -> None:
        """Count BLOCK records and all BLOCK_DATA records of them, with the row of its request for each."""
        apart = ((blocks["flags"] & BlockFlag.STACKED) != 0) & (not self._all_stacked)
        pieces = pieces_of(blocks, data, owner, ~apart)
        size, kind, read = pieces["bytes"], pieces["class"], pieces["read"]
        for sums, key in ((self._classes, kind), (self._files, pieces["file"])):
            sums.add(key, size * read, size * ~read)
        back, cause = kind == BlockDataClass.WRITEBACK, pieces["cause"] != 0
        of = ((np.isin(kind, _ISSUED), cause), (back, pieces["process"] != 0), (back, cause))
        for place, (chosen, linked) in enumerate(of):
            self._shares[place] += size[chosen].sum(), size[chosen & linked].sum()
        rest = blocks[~apart & ~np.isin(blocks["op"], _APART) & (blocks["status"] == 0)]
        self._others.add(rest["op"].astype(np.int64), np.ones(len(rest), np.int64), rest["bytes"].astype(np.int64))
        for name, count in (
            ("stacked", apart.sum()),
            ("stacked_bytes", blocks["bytes"][apart & data_moved(blocks)].astype(np.int64).sum()),
            ("orphans", (owner < 0).sum()),
            ("blocks", len(blocks)),
            ("data", len(data)),
            ("linked", size[cause].sum()),
        ):
            self._counts[name] += int(count)

    def merge(self, other: LinksSummary) -> None:
        """Count what `other` counted, too."""
        for mine, its in (
            (self._classes, other._classes),
            (self._files, other._files),
            (self._others, other._others),
        ):
            mine.merge(its)
        self._shares += other._shares
        for name, count in other._counts.items():
            self._counts[name] += count

    def result(self, paths: Mapping[int, str], moved: Mapping[IoOp, int]) -> Links:
        """What was counted so far.

        Parameters
        ----------
        paths : dict of int to str
            Path of every file.
        moved : dict of IoOp to int
            Bytes that programs read and wrote (`moved_by_programs`).
        """
        kind, (read, written) = self._classes.result()
        ours = kind != BlockDataClass.UNTRACED
        frame = _by_class(kind, read, written) if self._counts["data"] else _by_class(*np.zeros((3, 0), np.int64))
        issued, back, back_to_operation = (LinkedShare(*map(int, row)) for row in self._shares)
        amplification = {
            op: int(size[ours].sum()) / moved[op] if moved[op] and self._counts["blocks"] else math.nan
            for op, size in ((IoOp.READ, read), (IoOp.WRITE, written))
        }
        return Links(
            read_bytes=int(read.sum()),
            written_bytes=int(written.sum()),
            by_class=frame,
            issued=issued,
            written_back=back,
            written_back_to_operation=back_to_operation,
            by_file=self._by_file(paths),
            others=self._by_operation(),
            stacked_requests=self._counts["stacked"],
            stacked_bytes=self._counts["stacked_bytes"],
            orphans=self._counts["orphans"],
            read_amplification=amplification[IoOp.READ],
            write_amplification=amplification[IoOp.WRITE],
        )

    def _by_file(self, paths: Mapping[int, str]) -> pd.DataFrame:
        file, (read, written) = self._files.result()
        order = np.argsort(-(read + written), kind="stable")
        frame = pd.DataFrame({"file": file[order], "read_bytes": read[order], "written_bytes": written[order]})
        frame.insert(1, "path", pd.Series([paths.get(int(it), "") for it in frame["file"]], dtype=PATH_DTYPE))
        return frame

    def _by_operation(self) -> pd.DataFrame:
        """Requests that are neither read nor write, by their operation."""
        op, (requests, size) = self._others.result()
        names = {int(member): member.name for member in BlockOp}
        labels = pd.Series([names.get(int(it), f"OP {it}") for it in op], dtype="str")
        return pd.DataFrame({"op": labels, "requests": requests, "bytes": size})


def _by_class(kind: np.ndarray, read: np.ndarray, written: np.ndarray) -> pd.DataFrame:
    names = {int(member): member.name for member in BlockDataClass}
    labels = pd.Series([names.get(int(value), f"CLASS {value}") for value in kind], dtype="str")
    frame = pd.DataFrame({"class": labels, "read_bytes": read, "written_bytes": written})
    frame["share"] = (read + written) / max(int(read.sum() + written.sum()), 1)
    return frame


def moved_by_programs(io: np.ndarray) -> dict[IoOp, int]:
    """Bytes of IO records by direction, whatever interface they came through."""
    done = np.maximum(io["result"], 0).astype(np.int64)
    return {op: int(done[io["op"] == op].sum()) for op in IoOp}


def links_of(trace: Trace) -> Links:
    """Everything about why block bytes moved."""
    blocks = trace.arrays[RecordKind.BLOCK]
    summary = LinksSummary(bool(((blocks["flags"] & BlockFlag.STACKED) != 0).all()))
    summary.add(blocks, trace.arrays[RecordKind.BLOCK_DATA], trace.block_of_data)
    return summary.result(trace.paths, moved_by_programs(trace.arrays[RecordKind.IO]))
