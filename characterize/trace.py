# SPDX-License-Identifier: Apache-2.0
"""Turns a trace file into DataFrames and a header; `characterize.trace_writer` is the reverse.

The file is mapped while its records are sorted by kind; they then take about as much memory as the file. The layout is
``bpf/trace_format.h``, repeated in `characterize.layout`.
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from characterize.errors import FlextraceError
from characterize.layout import (
    HEADER_DTYPE,
    NOT_MEASURED_U64,
    RECORD_DTYPE,
    TRACE_HEADER_BYTES,
    TRACE_MAGIC,
    TRACE_RECORD_BYTES,
    TRACE_VERSION_MAJOR,
    TRACE_VERSION_MINOR,
    HeaderFlag,
    RecordKind,
)
from characterize.trace_writer import write

__all__ = ["Header", "Trace", "open", "write"]


@dataclass
class Header:
    """What a trace says of itself.

    Attributes
    ----------
    flags : HeaderFlag
    start_monotonic_ns, start_realtime_ns, end_monotonic_ns, end_realtime_ns : int
        The same two moments on both clocks; 0 in a synthetic trace.
    count, lost : dict of RecordKind to int
        Records in the file, and records that the recorder had to drop.
    metadata : dict
        The JSON block: command line, kernel, devices, lineage (``made_by``, ``parent``), and for a trace that has not
        run yet the ``declared`` parameters, e.g. ``{"processNum": 4}``.
    """

    flags: HeaderFlag = field(default_factory=lambda: HeaderFlag(0))
    version: tuple[int, int] = (TRACE_VERSION_MAJOR, TRACE_VERSION_MINOR)
    start_monotonic_ns: int = 0
    start_realtime_ns: int = 0
    end_monotonic_ns: int = 0
    end_realtime_ns: int = 0
    count: dict[RecordKind, int] = field(default_factory=dict)
    lost: dict[RecordKind, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


class Trace:
    """A trace: structured numpy arrays by record kind, and the same as DataFrames.

    Attributes
    ----------
    path : Path or None
    header : Header
    warnings : list of str
        What a user must know before trusting numbers made from this trace (incomplete, lost records, ...).
    arrays : dict of RecordKind to numpy.ndarray
        Structured arrays, dtypes from `characterize.layout`, in file order; every kind but TEXT is present.
    paths : dict of int to str
        Path of every file id.
    block_of_data : ndarray of int64, shape (number of BLOCK_DATA records,)
        Row number of the BLOCK record that each BLOCK_DATA record is a piece of; -1 where that is not in the trace.
    """

    def __init__(
        self,
        header: Header,
        arrays: Mapping[RecordKind, np.ndarray],
        paths: Mapping[int, str] | None = None,
        path: Path | None = None,
        warnings: list[str] | None = None,
        *,
        block_of_data: np.ndarray | None = None,
    ):
        self.header = header
        self.path = path
        self.paths = dict(paths or {})
        self.warnings = list(warnings or [])
        self.arrays: dict[RecordKind, np.ndarray] = {
            kind: arrays.get(kind, np.zeros(0, dtype))
            for kind, dtype in RECORD_DTYPE.items()
            if kind is not RecordKind.TEXT
        }
        pieces = len(self.arrays[RecordKind.BLOCK_DATA])
        self.block_of_data = np.full(pieces, -1, np.int64) if block_of_data is None else block_of_data

    def _frame(self, kind: RecordKind) -> pd.DataFrame:
        array = self.arrays[kind]
        columns = {}
        for name in array.dtype.names or ():
            if name == "kind" or name.startswith("reserved"):
                continue
            column = np.ascontiguousarray(array[name])
            columns[name] = column.astype(np.int64) if name.endswith("_ns") and name != "queued_ns" else column
        return pd.DataFrame(columns)

    @cached_property
    def io(self) -> pd.DataFrame:
        """Every IO record, one row each, columns as in ``struct io_record``; times int64 ns."""
        return self._frame(RecordKind.IO)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """IO records that moved at least one byte, with their size in the column ``bytes`` (design.md section 4).

        All of them; which accesses to mapped files count is a rule of `characterize.requests.requests_of`.
        """
        moved = self.io[self.io["result"] > 0]
        return moved.assign(bytes=moved["result"].astype(np.int64)).reset_index(drop=True)

    @cached_property
    def fileops(self) -> pd.DataFrame:
        """Every FILEOP record (open, close, fsync, ...), columns as in ``struct fileop_record``."""
        return self._frame(RecordKind.FILEOP)

    @cached_property
    def files(self) -> pd.DataFrame:
        """Every FILE record, with its ``path``; ``resident_bytes`` is NaN where it was not measured."""
        frame = self._frame(RecordKind.FILE).drop(columns="path_bytes")
        resident = frame["resident_bytes"]
        frame["resident_bytes"] = resident.astype("float64").where(resident != NOT_MEASURED_U64)
        frame["path"] = pd.Series([self.paths.get(int(file), "") for file in frame["file"]], dtype="str")
        return frame

    @cached_property
    def tasks(self) -> pd.DataFrame:
        """One row per thread, from its last TASK record (another one follows an exec); ``comm`` as text."""
        frame = self._frame(RecordKind.TASK)
        frame["comm"] = pd.Series(
            [comm.decode(errors="replace") for comm in self.arrays[RecordKind.TASK]["comm"]], dtype="str"
        )
        return frame.drop_duplicates("thread", keep="last", ignore_index=True)

    @cached_property
    def blocks(self) -> pd.DataFrame:
        """Every BLOCK record, columns as in ``struct block_record``."""
        return self._frame(RecordKind.BLOCK)

    @cached_property
    def block_data(self) -> pd.DataFrame:
        """Every BLOCK_DATA record, a piece of a block request that is contiguous in a file.

        Columns as in ``struct block_data_record``, and ``block``: the row of `blocks` that it is a piece of, -1 = none.
        Paths: ``trace.block_data["file"].map(trace.paths)``.
        """
        return self._frame(RecordKind.BLOCK_DATA).assign(block=self.block_of_data)

    @cached_property
    def resident(self) -> pd.DataFrame:
        """Every RESIDENT record: ``file, time_ns, offset, bytes`` of what was in the page cache at first sight."""
        return self._frame(RecordKind.RESIDENT)

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """Every GAP record: what was lost, on which CPU, when."""
        return self._frame(RecordKind.GAP)

    @property
    def untimed(self) -> bool:
        """Whether the trace is synthetic and has not run yet: its times are only an order within each thread."""
        return bool(self.header.flags & HeaderFlag.UNTIMED)

    @property
    def measured(self) -> bool:
        """Whether the times are measurements, and not an order (UNTIMED) or a parent's schedule (PLANNED)."""
        return not self.header.flags & (HeaderFlag.UNTIMED | HeaderFlag.PLANNED)

    @property
    def declared(self) -> dict[str, float]:
        """Parameters that the maker of a trace that has not run yet declares, by the papers' names."""
        return self.header.metadata.get("declared", {})


def open(path: str | os.PathLike[str]) -> Trace:
    """Open a trace file.

    Parameters
    ----------
    path : path-like
        A file written by ``flextrace record``, ``willy``, ``alter`` or ``import``.

    Returns
    -------
    Trace
        An incomplete or truncated file is read up to its last whole record and says so in ``warnings``.

    Raises
    ------
    FlextraceError
        The file cannot be read, is not a trace, or has a newer major version.
    """
    path = Path(path)
    head, file_bytes = _read_head(path)
    raw = np.frombuffer(head, HEADER_DTYPE)[0]
    warnings: list[str] = []
    flags = HeaderFlag(int(raw["flags"]))
    record_count = _record_count(path, raw, file_bytes, warnings)
    metadata = _read_metadata(path, raw, head, file_bytes, warnings)

    records: np.ndarray
    if record_count:
        records = np.memmap(path, np.uint8, "r", TRACE_HEADER_BYTES, (record_count, TRACE_RECORD_BYTES))
    else:
        records = np.zeros((0, TRACE_RECORD_BYTES), np.uint8)
    kinds = np.asarray(records[:, 0])
    if flags & HeaderFlag.INCOMPLETE and (kinds == 0).any():
        # A crash of the machine can leave a file longer than what reached the disk: kind 0 is never written.
        records = records[: int(np.argmax(kinds == 0))]
        kinds = kinds[: len(records)]
    arrays = {
        kind: np.ascontiguousarray(records[kinds == kind]).view(dtype).reshape(-1)
        for kind, dtype in RECORD_DTYPE.items()
    }
    header = Header(
        flags=flags,
        version=(int(raw["version_major"]), int(raw["version_minor"])),
        start_monotonic_ns=int(raw["start_monotonic_ns"]),
        start_realtime_ns=int(raw["start_realtime_ns"]),
        end_monotonic_ns=int(raw["end_monotonic_ns"]),
        end_realtime_ns=int(raw["end_realtime_ns"]),
        count={kind: len(arrays[kind]) for kind in RecordKind},
        lost={kind: int(raw["lost"][kind]) for kind in RecordKind if raw["lost"][kind]},
        metadata=metadata,
    )
    if header.lost:
        lost = ", ".join(f"{count} {kind.name}" for kind, count in header.lost.items())
        warnings.append(f"{path}: records were lost while recording ({lost}); uniqueBytes is a lower bound")
    owner = _block_of_data(kinds, arrays)
    if (orphans := int((owner < 0).sum())) and not header.lost:
        warnings.append(f"{path} is damaged: {orphans} BLOCK_DATA records do not follow the BLOCK record they are of")
    return Trace(header, arrays, _paths(arrays[RecordKind.TEXT]), path, warnings, block_of_data=owner)


def _read_head(path: Path) -> tuple[bytes, int]:
    """The header of a trace that this program can read, and the size of the file."""
    try:
        file_bytes = path.stat().st_size
        with builtins.open(path, "rb") as stream:
            head = stream.read(TRACE_HEADER_BYTES)
    except OSError as error:
        raise FlextraceError(f"cannot read trace {path}: {error.strerror}") from error
    if not head.startswith(TRACE_MAGIC):
        raise FlextraceError(
            f"{path} is not a flextrace trace (it does not begin with {TRACE_MAGIC.decode()}); "
            "to read a trace of another tool use 'flextrace import'"
        )
    if len(head) < TRACE_HEADER_BYTES:
        raise FlextraceError(
            f"{path} is cut off within its header ({len(head)} of {TRACE_HEADER_BYTES} bytes): nothing to read"
        )
    raw = np.frombuffer(head, HEADER_DTYPE)[0]
    major, minor = int(raw["version_major"]), int(raw["version_minor"])
    if major != TRACE_VERSION_MAJOR:
        raise FlextraceError(
            f"{path} has trace format version {major}.{minor}, this flextrace reads version {TRACE_VERSION_MAJOR}.x: "
            "use the flextrace that wrote it, or a newer one"
        )
    if raw["header_bytes"] != TRACE_HEADER_BYTES or raw["record_bytes"] != TRACE_RECORD_BYTES:
        raise FlextraceError(
            f"{path} is damaged: header of {raw['header_bytes']} and records of {raw['record_bytes']} bytes, "
            f"expected {TRACE_HEADER_BYTES} and {TRACE_RECORD_BYTES}"
        )
    return head, file_bytes


def _record_count(path: Path, raw: np.void, file_bytes: int, warnings: list[str]) -> int:
    """How many records can be read: all of them, or the whole ones of a file that was not finished or is cut off."""
    whole_records = (file_bytes - TRACE_HEADER_BYTES) // TRACE_RECORD_BYTES
    if HeaderFlag(int(raw["flags"])) & HeaderFlag.INCOMPLETE:
        warnings.append(
            f"{path} was not closed cleanly (its recorder was killed or the disk was full): "
            "read up to its last whole record"
        )
        return whole_records
    record_count = int(raw["record_count"])
    if record_count > whole_records:
        warnings.append(f"{path} is truncated: {whole_records} of {record_count} records are there")
    return min(record_count, whole_records)


def _read_metadata(path: Path, raw: np.void, head: bytes, file_bytes: int, warnings: list[str]) -> dict[str, Any]:
    offset, size = int(raw["json_offset"]), int(raw["json_bytes"])
    if offset + size > file_bytes:
        warnings.append(f"{path}: its JSON block is cut off; command line, devices and lineage are unknown")
        return {}
    if offset + size <= TRACE_HEADER_BYTES:
        text = head[offset : offset + size]
    else:
        with builtins.open(path, "rb") as stream:
            stream.seek(offset)
            text = stream.read(size)
    try:
        metadata = json.loads(text) if size else {}
    except ValueError:
        metadata = None
    if not isinstance(metadata, dict):
        warnings.append(f"{path}: its JSON block is damaged; command line, devices and lineage are unknown")
        return {}
    return metadata


def _block_of_data(kinds: np.ndarray, arrays: Mapping[RecordKind, np.ndarray]) -> np.ndarray:
    """Row of the BLOCK record before each BLOCK_DATA record; -1 where that is of another request (its own was lost)."""
    blocks, pieces = arrays[RecordKind.BLOCK], arrays[RecordKind.BLOCK_DATA]
    owner = np.cumsum(kinds == RecordKind.BLOCK)[kinds == RecordKind.BLOCK_DATA] - 1
    if not len(blocks):
        return np.full(len(pieces), -1, np.int64)
    block = blocks[owner]
    same = (owner >= 0) & (block["device"] == pieces["device"]) & (block["start_ns"] == pieces["start_ns"])
    return np.where(same, owner, -1)


def _paths(texts: np.ndarray) -> dict[int, str]:
    """Join the TEXT records of every reference in the order of their index."""
    pieces: dict[int, list[bytes]] = {}
    for reference, size, text in zip(
        texts["reference"].tolist(), texts["bytes"].tolist(), texts["text"].tolist(), strict=True
    ):
        pieces.setdefault(reference, []).append(text[:size])
    return {reference: b"".join(parts).decode("utf-8", "surrogateescape") for reference, parts in pieces.items()}
