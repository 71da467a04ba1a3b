# SPDX-License-Identifier: Apache-2.0
"""Turns a file of another tool into chunks of records in order, and into the header that a trace of them has."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import numpy as np

from characterize.errors import FlextraceError
from characterize.formats.reading import BEGAN, Chunk, Reading, ReadOptions
from characterize.formats.registry import FORMATS, found_format, table_format
from characterize.formats.reordering import TIMED_KINDS, Reordering
from characterize.layout import GAP_DTYPE, RECORD_DTYPE, HeaderFlag, RecordKind
from characterize.requests import concatenated
from characterize.trace import Header, Trace
from characterize.trace_files.missing_records import LOWER_BOUND
from characterize.trace_files.provenance import tool_version

WALL_CLOCK_YEARS = (1980, 2100)
LOST_KIND = {"block": RecordKind.BLOCK, "file": RecordKind.IO}


class ForeignTrace:
    """A trace of another tool, read once, in pieces.

    Parameters
    ----------
    path : Path
    options : ReadOptions, optional

    Attributes
    ----------
    reading : Reading
        What was assumed, and what was bad so far.
    records : int
        Operations and requests read so far.

    Raises
    ------
    FlextraceError
        The format is unknown or not found, or an option does not fit it.
    """

    def __init__(self, path: Path, options: ReadOptions | None = None):
        options = options or ReadOptions()
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would wait for who writes into it
            raise FlextraceError(
                f"cannot read {path}: it is no file, and is read more than once; write it to one first"
            )
        name = options.format or (table_format if options.columns else found_format)(path).name
        if name not in FORMATS:
            raise FlextraceError(f"format {name!r} is unknown: choose one of {', '.join(FORMATS)}", 2)
        self.reading = Reading(path, FORMATS[name], options)
        self.records = 0
        self._order = Reordering()
        self._start_ns: int | None = None
        self._end_ns = 0

    def chunks(self) -> Iterator[Chunk]:
        """All records, in the order of their starts; at the end one GAP record if lines were left out.

        Raises
        ------
        FlextraceError
            The file cannot be read, has a malformed line (named by its number) or no operation at all.
        """
        for chunk in self._order.chunks(_module(self.reading).chunks(self.reading)):
            for kind in TIMED_KINDS:
                array = chunk.arrays.get(kind)
                if array is None or not len(array):
                    continue
                self.records += len(array)
                if self._start_ns is None:
                    self._start_ns = int(array["start_ns"][0])
                    self._check_clock(self._start_ns)
                self._start_ns = min(self._start_ns, int(array["start_ns"].min()))
                self._end_ns = max(self._end_ns, int((array["start_ns"] + array["duration_ns"]).max()))
            yield chunk
        if not self.records:
            raise FlextraceError(f"{self.reading.path} has no requests: nothing to read")
        if self.reading.bad_count:
            yield Chunk({RecordKind.GAP: self._gap()})

    def header(self) -> Header:
        """The header of the trace, once all chunks have been read."""
        reading, start_ns = self.reading, self._start_ns or 0
        imported = {
            "format": reading.format.name,
            "path": str(reading.path),
            **reading.assumed,
            **reading.facts,
        }
        if reading.bad_count:
            imported |= {"bad_lines": reading.bad_count, "bad_examples": reading.bad_examples}
        if self._order.late:
            imported["out_of_order"] = self._order.late
        return Header(
            flags=(HeaderFlag.LOST if reading.bad_count else HeaderFlag(0))
            | (HeaderFlag.UNTIMED if reading.untimed else HeaderFlag(0)),
            start_monotonic_ns=start_ns,
            start_realtime_ns=self._time_of_day(start_ns),
            end_monotonic_ns=self._end_ns,
            end_realtime_ns=self._time_of_day(self._end_ns),
            lost={self._lost_kind: reading.bad_count} if reading.bad_count else {},
            metadata={
                "made_by": f"flextrace import {tool_version()}",
                "imported": imported,
                **({} if reading.durations_known else {"durations": "unknown"}),
                **({"flags": "known"} if reading.flags_known else {}),
                **({"devices": reading.devices} if reading.devices else {}),
            },
        )

    def _time_of_day(self, moment_ns: int) -> int:
        """By the clock of the day; 0 where it is not known."""
        began_ns = 0 if self.reading.format.wall_clock else self.reading.facts.get(BEGAN)
        return 0 if began_ns is None else min(max(began_ns + moment_ns, 0), 2**63 - 1)

    def read(self) -> Trace:
        """All of it, in memory."""
        parts: dict[RecordKind, list[np.ndarray]] = {}
        paths: dict[int, str] = {}
        for chunk in self.chunks():
            paths |= chunk.paths
            for kind, array in chunk.arrays.items():
                parts.setdefault(kind, []).append(array)
        return self.trace({kind: concatenated(arrays) for kind, arrays in parts.items()}, paths)

    def trace(self, arrays: dict[RecordKind, np.ndarray], paths: dict[int, str]) -> Trace:
        """The trace of records, or of some kinds of them, once all chunks have been read."""
        header = self.header()
        for row in arrays.get(RecordKind.FILE, ()):
            row["size_bytes"] = self.reading.file_sizes[int(row["file"])]
        header.count = {kind: len(arrays.get(kind, ())) for kind in RECORD_DTYPE}
        return Trace(header, arrays, paths, self.reading.path, self.warnings())

    def warnings(self) -> list[str]:
        """What a user has to know before trusting numbers made from this trace."""
        reading = self.reading
        warnings = []
        if reading.bad_count:
            warnings.append(
                f"{reading.path}: {reading.bad_count} malformed lines were left out, the first: "
                f"{reading.bad_examples[0]}; {LOWER_BOUND}"
            )
        if self._order.late:
            warnings.append(
                f"{reading.path}: {self._order.late} records stand more than {self._order.window_records} behind "
                "their place in the order of the starts; characterize keeps them in memory"
            )
        return warnings

    @property
    def _lost_kind(self) -> RecordKind:
        return LOST_KIND[self.reading.records]

    def _gap(self) -> np.ndarray:
        gap = np.zeros(1, GAP_DTYPE)
        gap["kind"], gap["lost_kind"], gap["lost_count"] = RecordKind.GAP, self._lost_kind, self.reading.bad_count
        gap["start_ns"], gap["duration_ns"] = self._start_ns, self._end_ns - (self._start_ns or 0)
        return gap

    def _check_clock(self, start_ns: int) -> None:
        """The time of day says whether the unit of the times is right."""
        reading = self.reading
        if not reading.format.wall_clock:
            return
        first, last = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in WALL_CLOCK_YEARS)
        if not first <= start_ns // 10**9 < last:
            raise FlextraceError(
                f"{reading.path}: taken as {reading.time_unit} since 1970, its first time is not within the years "
                f"{WALL_CLOCK_YEARS[0]} to {WALL_CLOCK_YEARS[1]}: give another --time-unit, or --input-format"
            )


def read_foreign(path: Path, options: ReadOptions | None = None) -> Trace:
    """Read a trace of another tool into memory.

    Raises
    ------
    FlextraceError
        Unknown format, a file that cannot be read, a line that is not in the format (named by its number).
    """
    return ForeignTrace(path, options).read()


def _module(reading: Reading) -> ModuleType:
    return importlib.import_module(f"characterize.formats.{reading.format.module}")
