# SPDX-License-Identifier: Apache-2.0
"""Turns the name of a table's column into what is in it: a parameter or a throughput, and its unit.

``unique_bytes_mib``, ``sizeMean (KB)``, ``throughput_mb_per_s``: a name of the papers or its snake case, then the unit
of `characterize.units`. A unit that is not known is an error, never a guess. So is Mb, which many write for megabits.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from characterize.errors import FlextraceError
from characterize.units import SIZE_UNITS, parse_fraction, parse_size
from characterize.workload import FIELD_OF, PARAMETERS

THROUGHPUT, REQUESTS = "throughput", "requests per second"
SIZES = {"": 1.0, "bytes": 1.0, "byte": 1.0} | {name.lower(): float(factor) for name, factor in SIZE_UNITS.items()}
FRACTIONS = {"": 1.0, "percent": 0.01, "pct": 0.01, "%": 0.01}
KINDS = {
    "uniqueBytes": "size",
    "sizeMean": "size",
    "seqFrac": "fraction",
    "readFrac": "fraction",
    "processNum": "positive",
    THROUGHPUT: "positive",
    REQUESTS: "positive",
}
LARGEST = 1e100
"""Of any number: models take its square."""
EXPECTED = {
    "size": f"a size above 0, up to {LARGEST:g}",
    "fraction": "a share from 0 to 1, or 0 to 100 where the column's unit is percent",
    "positive": f"a number above 0, up to {LARGEST:g}",
    "number": f"a number up to {LARGEST:g}",
}
BITS = re.compile("[KMGT]b")
RATE = re.compile(r"(\w+) (?:per )?(?:s|sec|second)")
PER_SECOND = re.compile(r"iops|(?:ops|ios?|requests?) (?:per )?(?:s|sec|second)")


@dataclass(frozen=True)
class Column:
    """What a column holds.

    Attributes
    ----------
    name : str
        A parameter of the papers, `THROUGHPUT`, `REQUESTS`, or the column's own name for another parameter.
    factor : float
        What a plain number in it is multiplied with to be bytes, bytes per s, a share.
    """

    name: str
    factor: float = 1.0

    @property
    def kind(self) -> str:
        """Key of `EXPECTED`."""
        return KINDS.get(self.name, "number")

    def value(self, text: str) -> float:
        """A cell as a number; NaN if it is not what `EXPECTED` says."""
        text = text.strip()
        try:
            value = float(text) * self.factor
        except ValueError:
            value = self._with_unit(text)
        return value if math.isfinite(value) and self._allowed(value) else math.nan

    def _with_unit(self, text: str) -> float:
        try:
            return {"size": parse_size, "fraction": parse_fraction}[self.kind](text)
        except (KeyError, FlextraceError):
            return math.nan

    def _allowed(self, value: float) -> bool:
        if abs(value) > LARGEST:
            return False
        if self.kind == "fraction":
            return 0 <= value <= 1
        return self.kind == "number" or value > 0


def column_of(name: str) -> Column:
    """What a column's name says.

    Raises
    ------
    FlextraceError
        It begins with a known name and goes on with an unknown unit.
    """
    words = _words(name)
    text = " ".join(words)
    if PER_SECOND.fullmatch(text):
        return Column(REQUESTS)
    if words and words[0] in {"throughput", "bandwidth"}:
        match = RATE.fullmatch(" ".join(words[1:]))
        if match and match[1] in SIZES:
            return Column(THROUGHPUT, SIZES[match[1]])
        raise _unknown(name, "throughput_bytes_per_s, throughput_mb_per_s, throughput_mib_per_s")
    for parameter in PARAMETERS:
        begin = FIELD_OF[parameter].split("_")
        if words[: len(begin)] != begin:
            continue
        units = {"size": SIZES, "fraction": FRACTIONS, "positive": {"": 1.0}}[KINDS[parameter]]
        unit = " ".join(words[len(begin) :])
        if unit in units:
            return Column(parameter, units[unit])
        raise _unknown(name, ", ".join(f"{FIELD_OF[parameter]}_{unit}".rstrip("_") for unit in units))
    return Column(name.strip())


def _unknown(name: str, allowed: str) -> FlextraceError:
    return FlextraceError(
        f"the unit of column {name!r} is not understood: rename it (one of {allowed}), say what it is with --columns, "
        "or leave it out with --leave-out",
        2,
    )


def _words(name: str) -> list[str]:
    """Words in lower case; capitals begin words but within a unit (MiB)."""
    words: list[str] = []
    for token in re.findall(r"[A-Za-z0-9]+|%", name):
        if BITS.fullmatch(token):
            words.append(token)  # which is no unit of `SIZES`
            continue
        known = token.lower() in SIZES
        words += [token.lower()] if known else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", token).lower().split()
    return words
