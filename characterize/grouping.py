# SPDX-License-Identifier: Apache-2.0
"""Turns the chunks of both layers into what was asked for by key and by window, of a trace or of a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from characterize.border import Border
from characterize.groups import Group, GroupsByKey, Key, RequestsByKey, key_column
from characterize.layer_chunks import layer_chunks
from characterize.layer_summary import Conditions, LayerChunk
from characterize.requests import Layer, Mmap
from characterize.stream import Stream
from characterize.trace import Trace
from characterize.windows import GroupsByWindow, Windows, WindowsOfPart


@dataclass(frozen=True)
class Grouping:
    """What to divide requests by, beside the whole.

    Attributes
    ----------
    by : {"process", "file", "device"} or None
    window_s : float or None
        Width of windows of time.
    layers : tuple of {"vfs", "block"}
    keys : mapping of str to list of int, or None
        Which processes, files or devices have a group, by layer; None: those with most requests, which one more pass
        finds.
    """

    by: Key | None = None
    window_s: float | None = None
    layers: tuple[Layer, ...] = ("vfs",)
    keys: Mapping[Layer, list[int]] | None = None


class TraceGroups:
    """The groups of a trace.

    Parameters
    ----------
    grouping : Grouping
    conditions : mapping of str to Conditions
        By layer.
    stream : Stream
    mmap : {"data", "all", "none"}
    in_flight : mapping of str to LayerChunk, or None
        Of a part of a trace, to be merged into the parts before: by layer what is in flight where it begins.
    """

    def __init__(
        self,
        grouping: Grouping,
        conditions: Mapping[Layer, Conditions],
        stream: Stream,
        mmap: Mmap,
        in_flight: Mapping[Layer, LayerChunk] | None = None,
    ) -> None:
        self._by_key: dict[Layer, GroupsByKey] = {}
        self._by_window: dict[Layer, GroupsByWindow] = {}
        self._windows_of_part: dict[Layer, WindowsOfPart] = {}
        for layer in grouping.layers if grouping.window_s is not None else ():
            windows = Windows(conditions[layer], grouping.window_s or 0)
            if in_flight:
                self._windows_of_part[layer] = WindowsOfPart(windows, in_flight[layer])
            else:
                self._by_window[layer] = GroupsByWindow(windows, stream.facts)
        if grouping.by is None:
            return
        keys = grouping.keys
        if keys is None:
            counts = requests_by_key(stream, mmap, grouping)
            keys = {layer: count.heaviest() for layer, count in counts.items()}
        for layer in grouping.layers:
            column = key_column(grouping.by, layer, stream.facts)
            flying = in_flight[layer] if in_flight else None
            self._by_key[layer] = GroupsByKey(conditions[layer], column, keys[layer], flying)

    def add(self, layer: Layer, chunk: LayerChunk) -> None:
        """Count a chunk that the summary of the whole has counted."""
        for groups in (self._by_key, self._by_window, self._windows_of_part):
            if layer in groups:
                groups[layer].add(chunk)

    def merge(self, following: TraceGroups, borders: Mapping[Layer, Border | None]) -> None:
        """Count what a part has, once the summaries of the whole have completed the borders."""
        for layer, groups in self._by_key.items():
            groups.merge(following._by_key[layer], borders[layer])
        for layer, windows in self._by_window.items():
            windows.merge(following._windows_of_part[layer], borders[layer])

    def result(self, facts: Trace, elapsed_s: float) -> list[Group]:
        """Everything about them: those by key, then the windows."""
        by_key = [group for groups in self._by_key.values() for group in groups.result(facts, elapsed_s)]
        return by_key + [group for windows in self._by_window.values() for group in windows.result()]


def requests_by_key(stream: Stream, mmap: Mmap, grouping: Grouping) -> dict[Layer, RequestsByKey]:
    """How many requests each key has, by layer: one pass over a trace, or over a part of it."""
    assert grouping.by is not None
    counts = {layer: RequestsByKey(grouping.by, layer, stream.facts) for layer in grouping.layers}
    for layer, chunk in layer_chunks(stream, mmap, grouping.layers):
        counts[layer].add(chunk)
    return counts
