# SPDX-License-Identifier: Apache-2.0
"""Turns chunks of requests into the same measures for each process, file or device.

The keys with most requests have a summary each, all others one together, so that the number of keys does not set the
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd

from characterize.border import Border
from characterize.counting.grouped_sums import GroupedSums
from characterize.errors import FlextraceError
from characterize.layer_characterization import LayerCharacterization, layer_of
from characterize.layer_summary import Conditions, LayerChunk, LayerSummary
from characterize.layout import RecordKind
from characterize.requests import Layer
from characterize.trace import PATH_DTYPE, Trace
from characterize.workload import FIELD_OF

Key = Literal["process", "file", "device"]
GROUPS_MAX = 64
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
        Program of a process, path of a file, ``major:minor`` or foreign name of a device, begin and end of a
        window.
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
    if not groups:
        return pd.DataFrame()
    rows = []
    for group in groups:
        numbers = group.characterization
        five = {name: getattr(numbers.parameters, field) for name, field in FIELD_OF.items()}
        moved = numbers.counts["read_bytes"] + numbers.counts["written_bytes"]
        rows.append(
            {
                "by": group.by,
                "key": group.key,
                "layer": group.layer,
                "requests": numbers.requests,
                "bytes": moved,
                **five,
                "time_in_io_s": numbers.time["time_in_io_s"],
            }
        )
    table = pd.DataFrame(rows).astype({"key": "Int64"})
    table.insert(2, "name", pd.Series([group.name for group in groups], dtype=PATH_DTYPE))
    return table


@dataclass(frozen=True)
class KeyColumn:
    """What turns columns of requests, syncs or others into their keys.

    Attributes
    ----------
    by : {"process", "file", "device"}
    name : str
        Of the column; of the block layer, ``file`` is the device.
    files, devices : ndarray of int64 or None
        Where the column is not the key yet: files, ascending, and their devices, which are.
    """

    by: Key
    name: str
    files: np.ndarray | None = None
    devices: np.ndarray | None = None

    def of(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """The keys."""
        named = columns[self.name]
        if self.files is None or self.devices is None:
            return named
        if not len(self.files):
            return np.full(len(named), _OTHERS)
        place = np.minimum(np.searchsorted(self.files, named), len(self.files) - 1)
        return np.where(self.files[place] == named, self.devices[place], _OTHERS)


def key_column(by: Key, layer: Layer, facts: Trace) -> KeyColumn:
    """Where the keys of a layer of a trace are.

    Raises
    ------
    FlextraceError
        Blocks have no file.
    """
    if layer == "block" and by == "file":
        raise FlextraceError("requests of the block layer have no file: use --by file with --layer vfs", 2)
    if by != "device":
        return KeyColumn(by, by)
    if layer == "block":
        return KeyColumn(by, "file")
    files = facts.arrays[RecordKind.FILE]
    known, first = np.unique(files["file"].astype(np.int64), return_index=True)
    return KeyColumn(by, "file", known, files["device"].astype(np.int64)[first])


class RequestsByKey:
    """How many requests each key has: which ones to list; mergeable in any order."""

    def __init__(self, by: Key, layer: Layer, facts: Trace) -> None:
        self._key = key_column(by, layer, facts)
        self._sums = GroupedSums("requests")

    def add(self, chunk: LayerChunk) -> None:
        """Count a chunk."""
        keys = self._key.of(chunk.requests)
        self._sums.add(np.ascontiguousarray(keys), np.ones(len(keys), np.int64))

    def merge(self, other: RequestsByKey) -> None:
        """Count what `other` counted, too."""
        self._sums.merge(other._sums)

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
    key : KeyColumn
    keys : list of int
        As from `RequestsByKey.heaviest`.
    in_flight : LayerChunk or None
        Of a part of a trace that follows another, to be merged into it: what is in flight where it begins.
    """

    def __init__(
        self, conditions: Conditions, key: KeyColumn, keys: list[int], in_flight: LayerChunk | None = None
    ) -> None:
        self._conditions, self._key, self._keys = conditions, key, keys
        follows = in_flight is not None
        self._summaries = {it: LayerSummary(conditions, whole=False, follows=follows) for it in (*keys, _OTHERS)}
        for its, own in self._divided(in_flight) if in_flight else ():
            self._summaries[its].carry(own)

    def add(self, chunk: LayerChunk) -> None:
        """Count a chunk that the summary of the whole trace has counted."""
        for key, own in self._divided(chunk):
            self._summaries[key].add(own)

    def merge(self, following: GroupsByKey, border: Border | None) -> None:
        """Count what `following` counted of the same keys; the summary of the whole trace has completed `border`."""
        for key, summary in self._summaries.items():
            summary.merge(following._summaries[key], border)

    def _divided(self, chunk: LayerChunk) -> Iterator[tuple[int, LayerChunk]]:
        """What each key has of a chunk."""
        numbers = [self._numbers(columns) for columns in (chunk.requests, chunk.syncs, chunk.rest, chunk.waits)]
        for number, own in divided(chunk, numbers):
            yield self._keys[number] if number >= 0 else _OTHERS, own

    def _numbers(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        keys = self._key.of(columns)
        if not self._keys:
            return np.full(len(keys), _OTHERS)
        order = np.argsort(self._keys)
        ordered = np.array(self._keys)[order]
        place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
        return np.where(ordered[place] == keys, order[place], _OTHERS)

    def result(self, facts: Trace, elapsed_s: float) -> list[Group]:
        """The groups that have requests, most first, the others last."""
        names = _names(self._key.by, facts)
        return [
            Group(
                by=self._key.by,
                key=None if key == _OTHERS else key,
                name=OTHERS if key == _OTHERS else names(key),
                layer=self._conditions.layer,
                characterization=layer_of(summary, facts, elapsed_s),
            )
            for key, summary in self._summaries.items()
            if summary.requests
        ]


def divided(chunk: LayerChunk, numbers: Sequence[np.ndarray]) -> Iterator[tuple[int, LayerChunk]]:
    """What each group has of a chunk, ascending; `numbers`: the group of every row of each of its columns."""
    columns = (chunk.requests, chunk.syncs, chunk.rest, chunk.waits)
    groups = np.unique(np.concatenate(numbers))
    parts = (_rows_of_each(its, of, groups) for its, of in zip(columns, numbers, strict=True))
    for number, *own in zip(groups.tolist(), *parts, strict=True):
        yield number, LayerChunk(*own)


def _rows_of_each(
    columns: Mapping[str, np.ndarray], of: np.ndarray, groups: np.ndarray
) -> Iterator[dict[str, np.ndarray]]:
    """The rows of each group, which stand together first, so that many groups take no longer than few."""
    order = np.argsort(of, kind="stable")
    begins = np.searchsorted(of[order], groups).tolist()
    ordered = {name: column[order] for name, column in columns.items()}
    for begin, end in pairwise([*begins, len(order)]):
        yield {name: column[begin:end] for name, column in ordered.items()}


def _names(by: Key, facts: Trace) -> Callable[[int], str]:
    if by == "file":
        return lambda key: facts.paths.get(key, "")
    if by == "device":
        return facts.device_name
    names = process_names(facts) | facts.process_names
    return lambda key: names.get(key, "")


def process_names(facts: Trace) -> dict[int, str]:
    """Program of every process: the name of its first thread, where that is known."""
    tasks = facts.tasks
    comm = dict(zip(tasks["process"].tolist(), tasks["comm"].tolist(), strict=True))
    first = tasks[tasks["process"] == tasks["thread"]]
    return comm | dict(zip(first["process"].tolist(), first["comm"].tolist(), strict=True))
