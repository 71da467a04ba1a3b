# SPDX-License-Identifier: Apache-2.0
"""Turns chunks of requests into the same measures for each process, file, device or window of time.

The keys with most requests have a summary each, all others one together, so that the number of keys does not set the
memory. A window is reduced to its numbers as soon as it is over, so that there is one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from characterize.errors import FlextraceError
from characterize.grouped_sums import GroupedSums
from characterize.layer_characterization import LayerCharacterization, layer_of
from characterize.layer_summary import Conditions, LayerChunk, LayerSummary
from characterize.layout import RecordKind, device_name
from characterize.requests import Layer
from characterize.trace import Trace
from characterize.workload import FIELD_OF

Key = Literal["process", "file", "device"]
KEYS: tuple[Key, ...] = ("process", "file", "device")
GROUPS_MAX = 64
WINDOWS_MAX = 1000
OTHERS = "others"

_OTHERS = -1


@dataclass(frozen=True)
class Group:
    """One process, file, device or window, in one layer.

    Attributes
    ----------
    by : str
        ``process``, ``file``, ``device`` or ``window``.
    key : int or None
        Process, file, device number, number of the window; None: all that are not listed.
    name : str
        Program of a process, path of a file, ``major:minor`` of a device, begin and end of a window.
    layer : {"vfs", "block"}
    characterization : LayerCharacterization
        uniqueBytes, stack depths and streams are those within the group; what is fresh or appended is so in the trace.
    """

    by: str
    key: int | None
    name: str
    layer: Layer
    characterization: LayerCharacterization

    def as_document(self) -> dict[str, Any]:
        """For JSON."""
        about = {"by": self.by, "key": self.key, "name": self.name, "layer": self.layer}
        return about | self.characterization.as_document()


def table_of(groups: list[Group]) -> pd.DataFrame:
    """One row per group: ``by, key, name, layer, requests, bytes``, the five parameters, ``time_in_io_s``."""
    rows = []
    for group in groups:
        numbers = group.characterization
        five = {name: getattr(numbers.parameters, field) for name, field in FIELD_OF.items()}
        moved = numbers.counts["read_bytes"] + numbers.counts["written_bytes"]
        about = {"by": group.by, "key": group.key, "name": group.name, "layer": group.layer}
        rows.append(
            {
                **about,
                "requests": numbers.requests,
                "bytes": moved,
                **five,
                "time_in_io_s": numbers.time["time_in_io_s"],
            }
        )
    return pd.DataFrame(rows).astype({"key": "Int64"}) if rows else pd.DataFrame()


def key_column(by: Key, layer: Layer, facts: Trace) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """What turns columns of requests, syncs or others into their keys.

    Raises
    ------
    FlextraceError
        Blocks have no file.
    """
    if layer == "block" and by == "file":
        raise FlextraceError("requests of the block layer have no file: use --by file with --layer vfs", 2)
    if by != "device" or layer == "block":
        name = "file" if by == "device" else by
        return lambda columns: columns[name]
    files = facts.arrays[RecordKind.FILE]
    known, first = np.unique(files["file"].astype(np.int64), return_index=True)
    device = files["device"].astype(np.int64)[first]

    def device_of(columns: Mapping[str, np.ndarray]) -> np.ndarray:
        file = columns["file"]
        if not len(known):
            return np.full(len(file), _OTHERS)
        place = np.minimum(np.searchsorted(known, file), len(known) - 1)
        return np.where(known[place] == file, device[place], _OTHERS)

    return device_of


class RequestsByKey:
    """How many requests each key has: which ones to list; mergeable in any order."""

    def __init__(self, by: Key, layer: Layer, facts: Trace) -> None:
        self._key = key_column(by, layer, facts)
        self._sums = GroupedSums("requests")

    def add(self, chunk: LayerChunk) -> None:
        """Count a chunk."""
        keys = self._key(chunk.requests)
        self._sums.add(np.ascontiguousarray(keys), np.ones(len(keys), np.int64))

    def heaviest(self, limit: int = GROUPS_MAX) -> list[int]:
        """The keys with most requests, most first."""
        key, (requests,) = self._sums.result()
        order = np.lexsort((key, -requests))
        return [int(it) for it in key[order] if it != _OTHERS][:limit]


class GroupsByKey:
    """A summary for each of some keys, and one for all others.

    Parameters
    ----------
    conditions : Conditions
    facts : Trace
    by : {"process", "file", "device"}
    keys : list of int
        As from `RequestsByKey.heaviest`.
    """

    def __init__(self, conditions: Conditions, facts: Trace, by: Key, keys: list[int]) -> None:
        self._conditions, self._facts, self._by = conditions, facts, by
        self._key = key_column(by, conditions.layer, facts)
        self._keys = keys
        self._summaries = {key: LayerSummary(conditions, whole=False) for key in (*keys, _OTHERS)}

    def add(self, chunk: LayerChunk) -> None:
        """Count a chunk that the summary of the whole trace has counted."""
        parts = [self._numbers(columns) for columns in (chunk.requests, chunk.syncs, chunk.rest)]
        for number in np.unique(np.concatenate(parts)).tolist():
            chosen = [part == number for part in parts]
            own = LayerChunk(*(_rows(columns, mask) for columns, mask in zip(_columns_of(chunk), chosen, strict=True)))
            self._summaries[self._keys[number] if number >= 0 else _OTHERS].add(own)

    def _numbers(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        keys = self._key(columns)
        if not self._keys:
            return np.full(len(keys), _OTHERS)
        order = np.argsort(self._keys)
        ordered = np.array(self._keys)[order]
        place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
        return np.where(ordered[place] == keys, order[place], _OTHERS)

    def result(self, elapsed_s: float) -> list[Group]:
        """The groups that have requests, most first, the others last."""
        names = _names(self._by, self._facts)
        return [
            Group(
                by=self._by,
                key=None if key == _OTHERS else key,
                name=OTHERS if key == _OTHERS else names(key),
                layer=self._conditions.layer,
                characterization=layer_of(summary, self._facts, elapsed_s),
            )
            for key, summary in self._summaries.items()
            if summary.requests
        ]


class GroupsByWindow:
    """The same measures for each window of time; a request belongs to the one in which it starts.

    Raises
    ------
    FlextraceError
        The windows are too narrow or too many, or the trace has no times.
    """

    def __init__(self, conditions: Conditions, facts: Trace, window_s: float) -> None:
        if not conditions.arrivals:
            raise FlextraceError("this trace has not run yet, it has no times to be divided into windows", 2)
        span_ns = conditions.last_ns - conditions.first_ns
        if not window_s >= 1e-9 or span_ns / (window_s * 1e9) > WINDOWS_MAX:
            least = span_ns / 1e9 / WINDOWS_MAX
            raise FlextraceError(
                f"windows of {window_s:g} s are too many for {span_ns / 1e9:g} s: give at least {least:.3g} s", 2
            )
        self._conditions, self._facts = conditions, facts
        self._width = round(window_s * 1e9)
        self._number = -1
        self._summary: LayerSummary | None = None
        self._groups: list[Group] = []

    def add(self, chunk: LayerChunk) -> None:
        """Count a chunk that the summary of the whole trace has counted."""
        parts = _columns_of(chunk)
        windows = [(columns["start_ns"] - self._conditions.first_ns) // self._width for columns in parts]
        for number in np.unique(np.concatenate(windows)).tolist():
            if number != self._number:
                self._close()
                self._number = number
                first = self._conditions.first_ns + number * self._width
                within = replace(self._conditions, first_ns=first, last_ns=first + self._width - 1)
                self._summary = LayerSummary(within, whole=False)
            masks = [window == number for window in windows]
            own = LayerChunk(*(_rows(columns, mask) for columns, mask in zip(parts, masks, strict=True)))
            assert self._summary is not None
            self._summary.add(own)

    def _close(self) -> None:
        if self._summary is None or not self._summary.requests:
            return
        begin_s = self._number * self._width / 1e9
        width_s = (
            min(self._width, self._conditions.last_ns - self._conditions.first_ns - self._number * self._width) / 1e9
        )
        self._groups.append(
            Group(
                by="window",
                key=self._number,
                name=f"{begin_s:g} to {begin_s + width_s:g} s",
                layer=self._conditions.layer,
                characterization=layer_of(self._summary, self._facts, width_s if width_s > 0 else math.nan),
            )
        )
        self._summary = None

    def result(self) -> list[Group]:
        """The windows that have requests, in their order."""
        self._close()
        return self._groups


def _columns_of(chunk: LayerChunk) -> tuple[Mapping[str, np.ndarray], ...]:
    return chunk.requests, chunk.syncs, chunk.rest


def _rows(columns: Mapping[str, np.ndarray], mask: np.ndarray) -> dict[str, np.ndarray]:
    return {name: column[mask] for name, column in columns.items()}


def _names(by: Key, facts: Trace) -> Callable[[int], str]:
    if by == "file":
        return lambda key: facts.paths.get(key, "")
    if by == "device":
        return device_name
    tasks = facts.tasks
    comm = dict(zip(tasks["process"].tolist(), tasks["comm"].tolist(), strict=True))
    # A process has the name of its first thread.
    comm |= {
        process: name
        for process, thread, name in zip(
            tasks["process"].tolist(), tasks["thread"].tolist(), tasks["comm"].tolist(), strict=True
        )
        if process == thread
    }
    return lambda key: comm.get(key, "")
