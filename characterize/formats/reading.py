# SPDX-License-Identifier: Apache-2.0
"""What a reader of a foreign format is given, and what it gives: options, assumptions, bad lines; chunks of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from characterize.device_name import device_name
from characterize.errors import FlextraceError
from characterize.layout import RecordKind

# Digits of a decimal number in this unit before it is nanoseconds.
TIME_DIGITS = {"s": 9, "ms": 6, "us": 3, "ns": 0}
FILETIME, TICKS = "filetime", "100ns"
TIME_UNITS = (*TIME_DIGITS, TICKS, FILETIME)
"""``100ns``: ticks from any origin; ``filetime``: the same since 1601-01-01, as Windows counts."""

FILETIME_OF_1970 = 116_444_736_000_000_000
NS_PER_TICK = 100
BEGAN = "began_realtime_ns"
"""A fact of a reader that knows at which time of day its times were 0."""
EXAMPLES_MAX = 3
FOUND_CHARACTERS = 100


@dataclass(frozen=True)
class Format:
    """A format of another tool.

    Attributes
    ----------
    name : str
    about : str
        What stands in it, with its units.
    module : str
        In this package: has ``looks_like(head) -> bool`` and ``chunks(reading) -> Iterator[Chunk]``.
    records : str
        What its records become: ``block`` or ``file`` (operations of an application).
    sector_bytes : int or None
        Size of the sectors that it counts in unless told otherwise; None = it does not count in sectors.
    time_unit : str or None
        Unit of its times unless told otherwise, of `TIME_UNITS`; None = it leaves no choice.
    wall_clock : bool
        Whether its times are the time of day.
    named_columns : bool
        Whether it has columns with names, which say what they are.
    """

    name: str
    about: str
    module: str
    records: str = "block"
    sector_bytes: int | None = None
    time_unit: str | None = None
    wall_clock: bool = False
    named_columns: bool = False


@dataclass(frozen=True)
class ReadOptions:
    """How to read a foreign trace, where its content does not say.

    Attributes
    ----------
    format : str or None
        Name of the format; None = found from the content.
    sector_bytes : int or None
    time_unit : str or None
    skip_bad : bool
        Leave malformed lines out and count them, instead of failing at the first.
    columns : dict of str to str
        For formats with named columns: flextrace's name of a column -> its name in the file.
    """

    format: str | None = None
    sector_bytes: int | None = None
    time_unit: str | None = None
    skip_bad: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Chunk:
    """Some records of a trace, in the order of the file.

    Attributes
    ----------
    arrays : dict of RecordKind to ndarray
        Structured arrays with the dtypes of `characterize.layout`.
    paths : dict of int to str
        Paths of the files whose FILE records are in this chunk.
    """

    arrays: dict[RecordKind, np.ndarray]
    paths: dict[int, str] = field(default_factory=dict)


class Reading:
    """One foreign trace while it is read: where its bytes are, what was assumed, what was bad.

    Attributes
    ----------
    path : Path
    format : Format
    options : ReadOptions
    sector_bytes : int
    time_unit : str
        Of times that say no other.
    time_units : dict of str to str
        Of a table: the unit of each kind of time that is in it.
    facts : dict
        What the reader found that belongs into the header's ``imported``.
    records : str
        What the records become, as in `Format`; readers that see it from the content set it.
    file_sizes : dict of int to int
        Bytes that the files of the trace had before it began; known at its end.
    durations_known : bool
        Whether the format has response times; readers of those that have set it.
    flags_known : bool
        Whether the format has the flags of requests (O_DIRECT, read-ahead, ...); readers of those that have set it.
    untimed : bool
        Whether the format has an order and no times.
    bad_count : int
        Malformed lines left out.
    bad_examples : list of str
    named_devices : set of int
        Numbers that were given to names of devices.
    """

    def __init__(self, path: Path, form: Format, options: ReadOptions):
        self.path, self.format, self.options = path, form, options
        for given, known, what in (
            (options.sector_bytes, form.sector_bytes, "--sector-bytes"),
            (options.time_unit, form.time_unit, "--time-unit"),
            (options.columns or None, form.named_columns or None, "--columns"),
        ):
            if given is not None and known is None:
                raise FlextraceError(f"the format {form.name} leaves no choice of this: omit {what}", 2)
        given_bytes = options.sector_bytes
        self.sector_bytes = (form.sector_bytes or 1) if given_bytes is None else given_bytes
        if form.sector_bytes and (self.sector_bytes < 512 or self.sector_bytes % 512):
            raise FlextraceError(f"--sector-bytes {self.sector_bytes}: a trace needs a multiple of 512 bytes", 2)
        self.time_unit = options.time_unit or form.time_unit or "ns"
        if self.time_unit not in TIME_UNITS:
            raise FlextraceError(
                f"unit of time {self.time_unit!r} is unknown: choose one of {', '.join(TIME_UNITS)}", 2
            )
        self.time_units: dict[str, str] = {}
        self.records = form.records
        self.file_sizes: dict[int, int] = {}
        self.facts: dict[str, Any] = {}
        self.durations_known = self.flags_known = False
        self.untimed = False
        self.bad_count = 0
        self.bad_examples: list[str] = []
        self.named_devices: set[int] = set()
        self._device_of: dict[str, int] = {}

    def bad(self, found: Iterable[tuple[int, str, str]]) -> None:
        """Take note of malformed lines: (number, what was expected, the line).

        Raises
        ------
        FlextraceError
            For the first of them, unless they are to be left out.
        """
        for number, expected, text in sorted(found):
            message = f"{self.path} line {number}: expected {expected}, found {text.strip()[:FOUND_CHARACTERS]!r}"
            if not self.options.skip_bad:
                raise FlextraceError(
                    f"{message} (--skip-bad of 'flextrace import' and 'characterize' leaves such lines out)"
                )
            self.bad_count += 1
            if len(self.bad_examples) < EXAMPLES_MAX:
                self.bad_examples.append(message)

    def device_of(self, name: str, taken: Set[int] = frozenset()) -> int:
        """Number of a device that has a name and no number: 1, 2, 3 ... by first sight, but those that are taken."""
        if name not in self._device_of:
            free = (number for number in count(len(self._device_of) + 1) if number not in taken)
            self._device_of[name] = next(number for number in free if number not in self.named_devices)
            self.named_devices.add(self._device_of[name])
        return self._device_of[name]

    @property
    def assumed(self) -> dict[str, Any]:
        """What the numbers of the file were taken for."""
        told = next(iter(self.time_units.values()), self.time_unit)
        if len(set(self.time_units.values())) > 1:
            told = ", ".join(f"{unit} ({name})" for name, unit in self.time_units.items())
        unit = {"time_unit": told} if self.format.time_unit else {}
        return unit | ({"sector_bytes": self.sector_bytes} if self.format.sector_bytes else {})

    @property
    def devices(self) -> list[dict[str, Any]]:
        """Device table of the header: numbers that were given to names."""
        return [{"device": device_name(number), "name": name} for name, number in self._device_of.items()]
