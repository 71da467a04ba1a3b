# SPDX-License-Identifier: Apache-2.0
"""Turns a trace file into DataFrames and a header; `characterize.trace_files.trace_writer` is the reverse.

An archive (`characterize.trace_files.archive`) is opened as the trace it was made from, and a trace of another tool
(`characterize.formats`) as the one that ``flextrace import`` would make of it.

The file is mapped while its records are sorted by kind; they then take about as much memory as the file. The layout is
``bpf/trace_format.h``, repeated in `characterize.layout`.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from characterize.device_name import device_name
from characterize.document import plain
from characterize.layout import (
    HEADER_DTYPE,
    NOT_MEASURED_U64,
    RECORD_DTYPE,
    TRACE_HEADER_BYTES,
    TRACE_RECORD_BYTES,
    TRACE_VERSION_MAJOR,
    TRACE_VERSION_MINOR,
    HeaderFlag,
    RecordKind,
)
from characterize.trace_files.expansion import is_trace_archive
from characterize.trace_files.metadata_shape import misshapen
from characterize.trace_files.missing_records import damaged, what_is_missing
from characterize.trace_files.trace_head import count_records, is_foreign, json_text, read_head
from characterize.trace_files.trace_writer import write

if TYPE_CHECKING:
    from characterize.formats.reading import ReadOptions

__all__ = ["Header", "Trace", "open", "write"]

# Names of columns are strings, too: with pyarrow's, finding one takes longer than what is done with a small table.
pd.options.mode.string_storage = "python"

PATH_DTYPE = pd.StringDtype("python", na_value=np.nan)
"""For paths, whose bytes that are not UTF-8 stand as surrogates, which pandas' other strings refuse."""


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

    @property
    def complete(self) -> bool:
        """Whether no record is missing: lost, not written by a recorder that was killed, or a malformed line."""
        return not self.lost and not self.flags & (HeaderFlag.LOST | HeaderFlag.INCOMPLETE)

    @property
    def lacks_uncounted(self) -> bool:
        """Whether records are missing that nobody counted: its recorder was killed, or the file was cut off."""
        return HeaderFlag.INCOMPLETE in self.flags or (HeaderFlag.LOST in self.flags and not self.lost)


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
    device_names, process_names : dict of int to str
        Of devices and processes that have another number here than where they were recorded.
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
        self.device_names: dict[int, str] = {}
        self.process_names: dict[int, str] = {}
        pieces = len(self.arrays[RecordKind.BLOCK_DATA])
        self.block_of_data = np.full(pieces, -1, np.int64) if block_of_data is None else block_of_data

    def device_name(self, device: int) -> str:
        """``major:minor`` of a device; of a trace of another tool the name that it had there."""
        return self.device_names.get(device) or self._foreign_names.get(device_name(device)) or device_name(device)

    @cached_property
    def _foreign_names(self) -> dict[str, str]:
        """Names of devices that were numbered when the trace was imported."""
        metadata = self.header.metadata
        devices = metadata.get("devices", []) if "imported" in metadata else []
        return {it.get("device"): it.get("name") or "" for it in devices}

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
        frame["path"] = pd.Series([self.paths.get(int(file), "") for file in frame["file"]], dtype=PATH_DTYPE)
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
        """Every RESIDENT record: ``file, time_ns, offset, bytes`` of what was in the page cache at first sight.

        ``large_folios`` is the share of the file's cached bytes in folios of several pages, from 1 (none) to 255 (all);
        0 where it is not known. ``large_folio_order`` is their size, 2 to that many pages: the median of those bytes; 0
        where it is not known or no folio is large.
        """
        return self._frame(RecordKind.RESIDENT)

    @cached_property
    def holes(self) -> pd.DataFrame:
        """Every HOLE record: ``file, time_ns, offset, bytes`` of what had no data at first sight.

        Not of all holes: of many in a file the largest, and none of files that could not be looked at. Traces of before
        format 1.10 and of other tools have none.
        """
        return self._frame(RecordKind.HOLE)

    @cached_property
    def wakes(self) -> pd.DataFrame:
        """Every WAKE record: which call (``id``) waited for which one of another thread (``cause``), and for how long.

        Columns as in ``struct wake_record``; traces of before format 1.3 and of other tools have none.
        """
        return self._frame(RecordKind.WAKE)

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
        """Whether the starts are measurements, and not an order (UNTIMED) or a parent's schedule (PLANNED).

        Durations need not be known, see `characterize.requests.times_measured`.
        """
        return not self.header.flags & (HeaderFlag.UNTIMED | HeaderFlag.PLANNED)

    @property
    def declared(self) -> dict[str, float]:
        """Parameters that the maker of a trace that has not run yet declares, by the papers' names."""
        return self.header.metadata.get("declared", {})


@dataclass
class Content:
    """What a trace is made of, from whatever kind of file.

    Attributes
    ----------
    head : bytes
        The header of the trace file.
    file_bytes : int
        Size of the trace file, cut off or not.
    arrays : dict of RecordKind to numpy.ndarray
    block_before : ndarray of int64
        For each BLOCK_DATA record, the row of the last BLOCK record before it; -1 = there is none.
    json_text : bytes or None
        The JSON block; None where it is cut off.
    """

    head: bytes
    file_bytes: int
    arrays: dict[RecordKind, np.ndarray]
    block_before: np.ndarray
    json_text: bytes | None


def open(path: str | os.PathLike[str], foreign: ReadOptions | None = None) -> Trace:
    """Open a trace file, an archive of one, or a trace of another tool.

    Parameters
    ----------
    path : path-like
        A file written by ``flextrace record``, ``willy``, ``alter``, ``import`` or ``export``, or in one of the formats
        of `characterize.formats`.
    foreign : ReadOptions, optional
        How to read a trace of another tool; given, the file is one, whatever it begins with.

    Returns
    -------
    Trace
        An incomplete or truncated file is read up to its last whole record and says so in ``warnings``; what a
        truncated one lacks is lost (`HeaderFlag.LOST`), and not counted (`INCOMPLETE`, too, where other losses are).

    Raises
    ------
    FlextraceError
        The file cannot be read, is not a trace, or has a newer major version.
    """
    path = Path(path)
    # pyarrow is slow to import, and most traces do not need it.
    if foreign is None and is_trace_archive(path):
        return trace_of(path, importlib.import_module("characterize.trace_files.archive").read(path))
    if foreign is not None or is_foreign(path):
        return importlib.import_module("characterize.formats.foreign").read_foreign(path, foreign)
    return trace_of(path, _read(path))


def _read(path: Path) -> Content:
    head, file_bytes = read_head(path)
    raw = np.frombuffer(head, HEADER_DTYPE)[0]
    record_count = count_records(path, raw, file_bytes, [])
    if record_count:
        records: np.ndarray = np.memmap(path, np.uint8, "r", TRACE_HEADER_BYTES, (record_count, TRACE_RECORD_BYTES))
    else:
        records = np.zeros((0, TRACE_RECORD_BYTES), np.uint8)
    kinds = np.asarray(records[:, 0])
    if int(raw["flags"]) & HeaderFlag.INCOMPLETE and (kinds == 0).any():
        # A crash of the machine can leave a file longer than what reached the disk: kind 0 is never written.
        records = records[: int(np.argmax(kinds == 0))]
        kinds = kinds[: len(records)]
    arrays = {
        kind: np.ascontiguousarray(records[kinds == kind]).view(dtype).reshape(-1)
        for kind, dtype in RECORD_DTYPE.items()
    }
    return Content(
        head=head,
        file_bytes=file_bytes,
        arrays=arrays,
        block_before=np.cumsum(kinds == RecordKind.BLOCK)[kinds == RecordKind.BLOCK_DATA] - 1,
        json_text=json_text(path, raw, head, file_bytes),
    )


def trace_of(path: Path, content: Content) -> Trace:
    """The trace of a content that was read from a file."""
    raw = np.frombuffer(content.head, HEADER_DTYPE)[0]
    warnings: list[str] = []
    records = count_records(path, raw, content.file_bytes, warnings)
    flags = HeaderFlag(int(raw["flags"]))
    if HeaderFlag.INCOMPLETE not in flags and records < int(raw["record_count"]):
        flags |= HeaderFlag.LOST | (HeaderFlag.INCOMPLETE if raw["lost"].any() else HeaderFlag(0))
    arrays = content.arrays
    header = Header(
        flags=flags,
        version=(int(raw["version_major"]), int(raw["version_minor"])),
        start_monotonic_ns=int(raw["start_monotonic_ns"]),
        start_realtime_ns=int(raw["start_realtime_ns"]),
        end_monotonic_ns=int(raw["end_monotonic_ns"]),
        end_realtime_ns=int(raw["end_realtime_ns"]),
        count={kind: len(arrays[kind]) for kind in RecordKind},
        lost={kind: int(raw["lost"][kind]) for kind in RecordKind if raw["lost"][kind]},
        metadata=_metadata_of(path, content.json_text, warnings),
    )
    if header.lost or int(raw["flags"]) & HeaderFlag.LOST:
        warnings.append(f"{path}: {what_is_missing(header)}")
    owner = owners_of(arrays[RecordKind.BLOCK], arrays[RecordKind.BLOCK_DATA], content.block_before)
    if (orphans := int((owner < 0).sum())) and not header.lost:
        warnings.append(damaged(path, orphans))
    return Trace(header, arrays, paths_of(arrays[RecordKind.TEXT]), path, warnings, block_of_data=owner)


def _metadata_of(path: Path, text: bytes | None, warnings: list[str]) -> dict[str, Any]:
    if text is None:
        warnings.append(f"{path}: its JSON block is cut off; command line, devices and lineage are unknown")
        return {}
    try:
        metadata = plain(json.loads(text)) if text else {}
    except (ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        warnings.append(f"{path}: its JSON block is damaged; command line, devices and lineage are unknown")
        return {}
    if wrong := misshapen(metadata):
        warnings.append(f"{path}: its JSON block is damaged in {', '.join(wrong)}, which are left out, as if unknown")
    return {name: value for name, value in metadata.items() if name not in wrong}


def owners_of(blocks: np.ndarray, pieces: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Row of the BLOCK record before each BLOCK_DATA record; -1 where that is of another request (its own was lost)."""
    if not len(blocks):
        return np.full(len(pieces), -1, np.int64)
    block = blocks[before]
    same = (before >= 0) & (block["device"] == pieces["device"]) & (block["start_ns"] == pieces["start_ns"])
    return np.where(same, before, -1)


def paths_of(texts: np.ndarray) -> dict[int, str]:
    """Join the TEXT records of every reference in the order of their index."""
    pieces: dict[int, list[bytes]] = {}
    for reference, size, text in zip(
        texts["reference"].tolist(), texts["bytes"].tolist(), texts["text"].tolist(), strict=True
    ):
        pieces.setdefault(reference, []).append(text[:size])
    return {reference: b"".join(parts).decode("utf-8", "surrogateescape") for reference, parts in pieces.items()}
