# SPDX-License-Identifier: Apache-2.0
"""Turns measured numbers and the bars that are set for them into the tables at the end of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from tests.bench.spread import Spread


@dataclass(frozen=True)
class Bar:
    """What a number has to lie within, as far as there are limits."""

    high: float | None = None
    low: float | None = None

    def met(self, value: float) -> bool:
        """Whether a number does; one that is not a number does not."""
        return (self.high is None or value <= self.high) and (self.low is None or value >= self.low)

    def told(self, unit: str) -> str:
        """For the reader of a table."""
        if self.low is None:
            limits = f"<= {self.high:g}"
        elif self.high is None:
            limits = f">= {self.low:g}"
        else:
            limits = f"+- {self.high:g}" if self.low == -self.high else f"{self.low:g} to {self.high:g}"
        return f"{limits} {unit}".rstrip()


@dataclass(frozen=True)
class Finding:
    """A line of a table: what was measured, and the bar that is set for it, if there is one."""

    row: str
    what: str
    bar: Bar | None
    measured: Spread
    unit: str
    digits: int = 1

    @property
    def met(self) -> str:
        """``yes`` or ``NO``, of the number as it is printed; ``-`` without a bar."""
        if self.bar is None:
            return "-"
        return "yes" if self.bar.met(round(self.measured.value, self.digits)) else "NO"

    def told(self, low: float, high: float) -> str:
        """Two ends of the spread, if there is one."""
        return f"{low:.{self.digits}f} to {high:.{self.digits}f}" if self.measured.known else "-"


def print_table(title: str, table: pd.DataFrame) -> None:
    """A table with as many digits as are worth reading."""
    print(f"\n{title}")
    print(
        table.to_string(float_format=lambda value: f"{value:,.3f}" if abs(value) < 10 else f"{value:,.0f}"), flush=True
    )


def frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """Bars and what was measured, side by side."""
    return pd.DataFrame(
        {
            "row": finding.row,
            "what": finding.what,
            "n": finding.measured.count,
            "bar": finding.bar.told(finding.unit) if finding.bar else "none",
            "measured": f"{finding.measured.value:.{finding.digits}f} {finding.unit}".rstrip(),
            "quartiles": finding.told(finding.measured.q1, finding.measured.q3),
            "95 % interval": finding.told(finding.measured.low, finding.measured.high),
            "met": finding.met,
        }
        for finding in findings
    )


def print_findings(findings: Sequence[Finding], skipped: Mapping[str, str]) -> None:
    """The last table; and what was not measured, and why."""
    table = frame(findings)
    print_table("Targets", table.set_index("row") if len(table) else table)
    for what, why in skipped.items():
        print(f"not measured: {what}: {why}")
