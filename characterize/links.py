# SPDX-License-Identifier: Apache-2.0
"""Turns BLOCK and BLOCK_DATA records into why block bytes moved: by class, by file, how many are linked to a cause.

A block request is divided into pieces (BLOCK_DATA), each of which is contiguous in a file and has one class and one
cause; what its pieces leave over is of unknown class. Only requests that moved data count (`requests.data_moved`), and
of stacked devices only the lowest ones (`requests.stacked`), so that no byte is counted twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from characterize.document import plain
from characterize.layout import BlockDataClass, BlockOp, IoOp, RecordKind
from characterize.requests import block_records, data_moved, stacked
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


def pieces_of(trace: Trace) -> pd.DataFrame:
    """The pieces of all block requests that count, and for each request what its pieces leave over.

    Returns
    -------
    DataFrame
        ``block`` (row of the request), ``class, file, process, cause, bytes`` int64, ``read`` bool; a rest is of class
        UNKNOWN, file 0, and has the cause of its BLOCK record.
    """
    blocks, data = trace.arrays[RecordKind.BLOCK], trace.arrays[RecordKind.BLOCK_DATA]
    counted = data_moved(blocks) & ~stacked(blocks)
    owner = trace.block_of_data
    kept = (owner >= 0) & counted[owner] if len(blocks) else np.zeros(len(data), bool)
    data, owner = data[kept], owner[kept]
    rest = blocks["bytes"].astype(np.int64)
    np.subtract.at(rest, owner, data["bytes"].astype(np.int64))
    left = counted & (rest > 0)
    return pd.DataFrame(
        {
            "block": np.concatenate([owner, np.flatnonzero(left)]),
            "class": np.concatenate([data["class"], np.zeros(left.sum(), np.uint8)]).astype(np.int64),
            "file": np.concatenate([data["file"], np.zeros(left.sum(), np.uint32)]).astype(np.int64),
            "process": np.concatenate([data["process"], np.zeros(left.sum(), np.uint32)]).astype(np.int64),
            "cause": np.concatenate([data["cause"], blocks["cause"][left]]).astype(np.uint64),
            "bytes": np.concatenate([data["bytes"].astype(np.int64), rest[left]]),
            "read": np.concatenate([blocks["op"][owner], blocks["op"][left]]) == BlockOp.READ,
        }
    )


def linked_bytes(trace: Trace) -> int:
    """Block bytes that are assigned to the operation that caused them: by their piece, or else by their request."""
    pieces = pieces_of(trace)
    return int(pieces.loc[pieces["cause"] != 0, "bytes"].sum())


def links_of(trace: Trace) -> Links:
    """Everything about why block bytes moved."""
    pieces = pieces_of(trace)
    size, kind, read = pieces["bytes"], pieces["class"], pieces["read"]
    issued, back = np.isin(kind, _ISSUED), (kind == BlockDataClass.WRITEBACK).to_numpy()
    cause, process = pieces["cause"] != 0, pieces["process"] != 0
    blocks = trace.arrays[RecordKind.BLOCK]
    apart = stacked(blocks)
    ours = kind != BlockDataClass.UNTRACED
    return Links(
        read_bytes=int(size[read].sum()),
        written_bytes=int(size[~read].sum()),
        by_class=_by_class(pieces) if len(trace.arrays[RecordKind.BLOCK_DATA]) else _by_class(pieces.iloc[:0]),
        issued=_linked(size[issued], cause[issued]),
        written_back=_linked(size[back], process[back]),
        written_back_to_operation=_linked(size[back], cause[back]),
        by_file=_by_file(trace, pieces),
        others=_others(trace),
        stacked_requests=int(apart.sum()),
        stacked_bytes=int(blocks["bytes"][apart & data_moved(blocks)].astype(np.int64).sum()),
        orphans=int((trace.block_of_data < 0).sum()),
        read_amplification=_amplification(trace, IoOp.READ, int(size[read & ours].sum())),
        write_amplification=_amplification(trace, IoOp.WRITE, int(size[~read & ours].sum())),
    )


def _linked(size: pd.Series, linked: pd.Series) -> LinkedShare:
    return LinkedShare(int(size.sum()), int(size[linked].sum()))


def _sums(pieces: pd.DataFrame, key: str) -> pd.DataFrame:
    """Bytes read and written by the values of a column: ``key, read_bytes, written_bytes``."""
    moved = pd.DataFrame(
        {
            key: pieces[key],
            "read_bytes": pieces["bytes"].where(pieces["read"], 0),
            "written_bytes": pieces["bytes"].where(~pieces["read"], 0),
        }
    )
    return moved.groupby(key, sort=True).sum().reset_index()


def _by_class(pieces: pd.DataFrame) -> pd.DataFrame:
    frame = _sums(pieces, "class")
    total = int(pieces["bytes"].sum())
    names = {int(member): member.name for member in BlockDataClass}
    labels = [names.get(int(value), f"CLASS {value}") for value in frame["class"]]
    frame["class"] = pd.Series(labels, dtype="str")
    frame["share"] = (frame["read_bytes"] + frame["written_bytes"]) / max(total, 1)
    return frame


def _by_file(trace: Trace, pieces: pd.DataFrame) -> pd.DataFrame:
    frame = _sums(pieces, "file")
    frame.insert(1, "path", pd.Series([trace.paths.get(int(file), "") for file in frame["file"]], dtype=PATH_DTYPE))
    order = np.argsort(-(frame["read_bytes"] + frame["written_bytes"]).to_numpy(), kind="stable")
    return frame.iloc[order].reset_index(drop=True)


def _others(trace: Trace) -> pd.DataFrame:
    """Requests that are neither read nor write, by their operation."""
    blocks = block_records(trace)
    blocks = blocks[~np.isin(blocks["op"], _APART) & (blocks["status"] == 0)]
    names = {int(member): member.name for member in BlockOp}
    frame = pd.DataFrame({"op": blocks["op"], "bytes": blocks["bytes"].astype(np.int64)})
    frame = frame.groupby("op", sort=True)["bytes"].agg(requests="size", bytes="sum").reset_index()
    frame["op"] = pd.Series([names.get(int(op), f"OP {op}") for op in frame["op"]], dtype="str")
    return frame


def _amplification(trace: Trace, direction: IoOp, block_bytes: int) -> float:
    """Block bytes / bytes of the IO records of one direction, whatever interface they came through."""
    io = trace.arrays[RecordKind.IO]
    moved = int(io["result"][(io["op"] == direction) & (io["result"] > 0)].astype(np.int64).sum())
    if not moved or not len(trace.arrays[RecordKind.BLOCK]):
        return math.nan
    return block_bytes / moved
