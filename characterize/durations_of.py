# SPDX-License-Identifier: Apache-2.0
"""Turns the header of a flexible trace into what the durations of its records are of: its parent's requests.

An altered trace has its parent's response times, which are of requests of other sizes where sizeMean changed, and are
longer or shorter where all times were scaled. Both factors add up over generations and stand in the header's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from characterize.errors import FlextraceError
from characterize.shape import positive
from characterize.trace import Trace

KEY = "durations_of"
DIFFERENT = "different"
"""In the place of the factors: those of a merged trace's parts differ."""


@dataclass(frozen=True)
class DurationsOf:
    """What was measured when the durations were.

    Attributes
    ----------
    size_factor : float
        Requests are so many times as large now.
    time_factor : float
        Durations are so many times as long now.
    """

    size_factor: float = 1.0
    time_factor: float = 1.0

    def scaled(self, size_factor: float, time_factor: float) -> DurationsOf:
        """After one more alteration."""
        return DurationsOf(self.size_factor * size_factor, self.time_factor * time_factor)

    def as_metadata(self) -> dict[str, Any]:
        """For the header; nothing where durations are the requests' own."""
        return {} if self == DurationsOf() else {KEY: dict(vars(self))}


def durations_of(trace: Trace) -> DurationsOf:
    """What the durations of a trace are of.

    Raises
    ------
    FlextraceError
        They are of different requests in one trace, or the header is damaged.
    """
    known = known_durations(trace)
    if known is None:
        raise FlextraceError(
            "the trace was merged of traces whose sizes or times had been altered by different factors, so that it is "
            "not known what its response times are of; merge first and alter the merged trace"
        )
    return known


def known_durations(trace: Trace) -> DurationsOf | None:
    """As `durations_of`; None where they are of different requests.

    Raises
    ------
    FlextraceError
        The header is damaged.
    """
    told = trace.header.metadata.get(KEY)
    if told is None or trace.measured:
        return DurationsOf()
    if told == DIFFERENT:
        return None
    names = ("size_factor", "time_factor")
    factors = [told.get(name) for name in names] if isinstance(told, Mapping) else []
    known = [float(it) for it in factors if positive(it)]
    if len(known) < len(names):
        name = trace.path or "the trace"
        raise FlextraceError(f"the header of {name} is damaged: {KEY} is {told!r}; make it again from its parent")
    return DurationsOf(*known)
