# SPDX-License-Identifier: Apache-2.0
"""Turns measured numbers and their targets into the tables at the end of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from tests.bench.spread import Spread


@dataclass(frozen=True)
class Finding:
    """A line of the last table: a target and what was measured."""

    row: str
    what: str
    target: float
    measured: Spread
    unit: str
    at_least: bool = False  # the target is a lower limit
    digits: int = 1
    either_way: bool = False  # the target is a distance from 0

    @property
    def limit(self) -> str:
        """The target for the reader of a table."""
        sign = ">=" if self.at_least else "+-" if self.either_way else "<="
        return f"{sign} {self.target:g} {self.unit}".rstrip()

    @property
    def met(self) -> bool:
        """Whether the median, as it is printed, is within the target."""
        median = round(abs(self.measured.median) if self.either_way else self.measured.median, self.digits)
        return median >= self.target if self.at_least else median <= self.target

    def told(self, low: float, high: float) -> str:
        """Two ends of the spread, if there is one."""
        return f"{low:.{self.digits}f} to {high:.{self.digits}f}" if self.measured.known else "-"


def exactly(value: float) -> Spread:
    """A number without spread."""
    return Spread(value, value, value, value, value)


def print_table(title: str, table: pd.DataFrame) -> None:
    """A table with as many digits as are worth reading."""
    print(f"\n{title}")
    print(
        table.to_string(float_format=lambda value: f"{value:,.3f}" if abs(value) < 10 else f"{value:,.0f}"), flush=True
    )


def print_findings(findings: Sequence[Finding], skipped: Mapping[str, str]) -> None:
    """The last table: targets and what was measured, side by side; and what was not measured, and why."""
    table = pd.DataFrame(
        {
            "row": finding.row,
            "what": finding.what,
            "target": finding.limit,
            "measured": f"{finding.measured.median:.{finding.digits}f} {finding.unit}".rstrip(),
            "quartiles": finding.told(finding.measured.q1, finding.measured.q3),
            "95 % interval": finding.told(finding.measured.low, finding.measured.high),
            "met": "yes" if finding.met else "NO",
        }
        for finding in findings
    )
    print_table("Targets", table.set_index("row") if len(table) else table)
    for what, why in skipped.items():
        print(f"not measured: {what}: {why}")
