# SPDX-License-Identifier: Apache-2.0
"""Turns chunks of requests into the same measures for each window of time.

A window is reduced to its numbers as soon as it is over, so that there is one at a time. Of a part of a trace what each
window has in it is kept, to be merged, as the first and last one may go on in other parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from characterize.border import Border
from characterize.errors import FlextraceError
from characterize.groups import Group, divided
from characterize.layer_characterization import layer_of
from characterize.layer_summary import Conditions, LayerChunk, LayerSummary
from characterize.trace import Trace

WINDOWS_MAX = 1000


class Windows:
    """Windows of time of one width, from the first start on; a request belongs to the one in which it starts.

    Raises
    ------
    FlextraceError
        The windows are too narrow or too many, or the trace has no times.
    """

    def __init__(self, conditions: Conditions, window_s: float) -> None:
        if not conditions.arrivals:
            raise FlextraceError("this trace has not run yet, it has no times to be divided into windows", 2)
        span_ns = conditions.last_ns - conditions.first_ns
        if not window_s >= 1e-9 or span_ns / (window_s * 1e9) > WINDOWS_MAX:
            # What three digits make of it will do, too.
            least = max(1e-9, 1.01 * span_ns / 1e9 / WINDOWS_MAX)
            raise FlextraceError(
                f"windows of {window_s:g} s are too many for {span_ns / 1e9:g} s: give at least {least:.3g} s", 2
            )
        self.conditions = conditions
        self._width = round(window_s * 1e9)

    def divided(self, chunk: LayerChunk) -> Iterator[tuple[int, LayerChunk]]:
        """What each window has of a chunk, by its number, ascending."""
        first = self.conditions.first_ns
        starts = (columns["start_ns"] for columns in (chunk.requests, chunk.syncs, chunk.rest, chunk.waits))
        return divided(chunk, [(start - first) // self._width for start in starts])

    def summary(self, number: int, *, follows: bool = False) -> LayerSummary:
        """An empty summary of a window."""
        first = self.conditions.first_ns + number * self._width
        within = replace(self.conditions, first_ns=first, last_ns=first + self._width - 1)
        return LayerSummary(within, whole=False, follows=follows)

    def group(self, number: int, summary: LayerSummary, facts: Trace) -> Group:
        """The numbers of a window."""
        begin_s = number * self._width / 1e9
        rest_ns = self.conditions.last_ns - self.conditions.first_ns - number * self._width
        width_s = min(self._width, rest_ns) / 1e9
        return Group(
            by="window",
            key=number,
            name=f"{begin_s:g} to {begin_s + width_s:g} s",
            layer=self.conditions.layer,
            characterization=layer_of(summary, facts, width_s if width_s > 0 else math.nan),
        )


class WindowsOfPart:
    """What a part of a trace has of each window.

    Parameters
    ----------
    windows : Windows
    in_flight : LayerChunk
        What is in flight where the part begins.

    Attributes
    ----------
    summaries : dict of int to LayerSummary
        By the number of the window, ascending.
    """

    def __init__(self, windows: Windows, in_flight: LayerChunk) -> None:
        self._windows = windows
        self._in_flight = dict(windows.divided(in_flight))
        self.summaries: dict[int, LayerSummary] = {}

    def add(self, chunk: LayerChunk) -> None:
        """Count a chunk that the summary of the whole part has counted."""
        for number, own in self._windows.divided(chunk):
            if number not in self.summaries:
                self.summaries[number] = self._windows.summary(number, follows=True)
                if number in self._in_flight:
                    self.summaries[number].carry(self._in_flight[number])
            self.summaries[number].add(own)


class GroupsByWindow:
    """The same measures for each window of a trace."""

    def __init__(self, windows: Windows, facts: Trace) -> None:
        self._windows, self._facts = windows, facts
        self._number = -1
        self._summary: LayerSummary | None = None
        self._groups: list[Group] = []

    def add(self, chunk: LayerChunk) -> None:
        """Count a chunk that the summary of the whole trace has counted."""
        for number, own in self._windows.divided(chunk):
            self._summary_of(number).add(own)

    def merge(self, following: WindowsOfPart, border: Border | None) -> None:
        """Count what a part has, once the summary of the whole trace has completed `border`."""
        for number, summary in following.summaries.items():
            self._summary_of(number).merge(summary, border)

    def _summary_of(self, number: int) -> LayerSummary:
        if self._summary is None or number != self._number:
            self._close()
            self._number, self._summary = number, self._windows.summary(number)
        return self._summary

    def _close(self) -> None:
        if self._summary is not None and self._summary.requests:
            self._groups.append(self._windows.group(self._number, self._summary, self._facts))
        self._summary = None

    def result(self) -> list[Group]:
        """The windows that have requests, in their order."""
        self._close()
        return self._groups
