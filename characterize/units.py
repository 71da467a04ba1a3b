# SPDX-License-Identifier: Apache-2.0
"""Turns text such as ``64MiB``, ``10m`` or ``0.8`` into numbers, and numbers into such text.

MB is 10^6 bytes, MiB is 2^20 (design.md section 4). A bare ``K``, ``M``, ``G``, ``T`` is the binary unit, as in fio, dd
and memory control groups. An unknown unit is an error, never a guess.
"""

from __future__ import annotations

import math
import re

from characterize.errors import FlextraceError

_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?\s*([A-Za-z]*)\s*")

SIZE_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    SIZE_UNITS[_letter] = SIZE_UNITS[_letter + "iB"] = 1024**_power
    SIZE_UNITS[_letter + "B"] = 1000**_power
SIZE_UNITS["k"], SIZE_UNITS["kB"] = 1024, 1000

DURATION_UNITS = {"": 1.0, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

SIZE_MAX, DURATION_MAX_S = 2**63 - 1, 1e9
"""The largest offset in a file; and thirty years, of which the nanoseconds are a 64-bit number and which is what the
replay engine takes."""


def _parse(text: str, units: dict[str, float], most: float, what: str, example: str) -> float:
    match = _NUMBER.fullmatch(text)
    if not match or match[3] not in units:
        allowed = ", ".join(unit for unit in units if unit)
        raise FlextraceError(
            f"{what} {text!r} is not understood: give a number and a unit, such as {example} (units: {allowed})", 2
        )
    value = float(match[1] + (match[2] or "")) * units[match[3]]
    if value > most:
        raise FlextraceError(f"{what} {text!r} is too large: give one such as {example}", 2)
    return value


def parse_size(text: str) -> int:
    """Bytes from text such as ``4096``, ``64MiB``, ``1.5G``.

    Raises
    ------
    FlextraceError
        Not a number with a known unit, or more than `SIZE_MAX`.
    """
    return round(_parse(text, dict(SIZE_UNITS), SIZE_MAX, "size", "64MiB"))


def parse_duration(text: str) -> float:
    """Seconds from text such as ``90``, ``10m``, ``250ms``.

    Raises
    ------
    FlextraceError
        Not a number with a known unit, or more than `DURATION_MAX_S`.
    """
    return _parse(text, DURATION_UNITS, DURATION_MAX_S, "duration", "10m")


def parse_seed(text: str) -> int:
    """A seed for numpy's generators, which take none below 0.

    Raises
    ------
    FlextraceError
        Not a whole number from 0 on.
    """
    if not text.isdecimal():
        raise FlextraceError(f"seed {text!r} is not understood: give a whole number from 0 on", 2)
    return int(text)


def parse_positive(text: str) -> float:
    """A number above 0 from text such as ``2`` or ``0.5``.

    Raises
    ------
    FlextraceError
        Not a finite number above 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise FlextraceError(f"number {text!r} is not understood: give one above 0, such as 2", 2)
    return value


def parse_fraction(text: str) -> float:
    """A fraction from 0 to 1 from text such as ``0.8`` or ``80%``.

    Raises
    ------
    FlextraceError
        Not a number, or outside 0 to 1.
    """
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise FlextraceError(f"fraction {text!r} is not understood: give a number from 0 to 1, such as 0.8", 2)
    return value


def format_bytes(size: float) -> str:
    """Bytes in the largest binary unit with at most four digits before the point, such as ``64 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(float(f"{size:.4g}")) < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def format_megabytes(size: float) -> str:
    """10^6 bytes with four digits, and never with an exponent: ``454.4``, ``12250``."""
    megabytes = size / 1e6
    return f"{megabytes:.0f}" if abs(megabytes) >= 1000 else f"{megabytes:.4g}"


def format_duration(seconds: float) -> str:
    """Seconds in a readable unit, such as ``12.3 us`` or ``4 min 10 s``."""
    if seconds >= 100:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    rounded = float(f"{seconds:.3g}")
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if rounded >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
