# SPDX-License-Identifier: Apache-2.0
"""Turns a table of measurements into a profile, and a workload into one of the table's parameters.

The profile's ``table`` says which of the five parameters the table has and which others (``extra``, with their
medians). A table with single parameter curves through one of its rows gets that row as focal vector, so that the
product form can be fitted to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from characterize.errors import FlextraceError
from characterize.workload import FIELD_OF, PARAMETERS, Workload
from selfscale.measure import Point
from selfscale.profile import Profile, Region
from selfscale.profiles.table_workload import TableWorkload

if TYPE_CHECKING:
    from selfscale.profiles.table import Table

POINTS_MIN = 8
FOCAL_ROWS_MAX = 4000
"""Looking for the focal vector takes the square of it."""


def profile_of(table: Table) -> Profile:
    """The profile of a table, without the scores of its models.

    Raises
    ------
    FlextraceError
        The table has too few workloads.
    """
    if len(table.values) < POINTS_MIN:
        raise FlextraceError(
            f"the table has {len(table.values)} different workloads: a model needs {POINTS_MIN} or more"
        )
    five = [name for name in PARAMETERS if name in table.names]
    extra = [name for name in table.names if name not in PARAMETERS]
    points = []
    for row, throughput, half_width in zip(table.values, table.throughput, table.half_width_95, strict=True):
        of = dict(zip(table.names, row.tolist(), strict=True))
        workload = TableWorkload(
            **{field: of.get(name, math.nan) for name, field in FIELD_OF.items()},
            extra=tuple((name, of[name]) for name in extra),
        )
        points.append(Point(workload, float(throughput), float(half_width), role="table"))
    return Profile(
        measured=points,
        regions=_regions(points) if len(five) == len(PARAMETERS) and not extra else [],
        complete=True,
        table={
            "parameters": five,
            "extra": {name: float(np.median(table.values[:, table.names.index(name)])) for name in extra},
            "rows": table.rows,
            "bad": len(table.bad),
        },
    )


def _regions(points: list[Point]) -> list[Region]:
    """One region around the row with the most others on a curve through it, if every parameter that varies has one."""
    values = np.array([[getattr(point.workload, field) for field in FIELD_OF.values()] for point in points])
    if len(values) > FOCAL_ROWS_MAX:
        return []
    varied = np.ptp(values, axis=0) > 0
    best, most = -1, 0
    for index, row in enumerate(values):
        differs = ~np.isclose(values, row, rtol=1e-6, atol=0)
        on_curve = differs[differs.sum(axis=1) == 1]
        if (on_curve.any(axis=0) | ~varied).all() and len(on_curve) > most:
            best, most = index, len(on_curve)
    if best < 0:
        return []
    return [Region(float(values[:, 0].min()), float(values[:, 0].max()), points[best].workload)]


def known_settings(profile: Profile, settings: Mapping[str, float]) -> dict[str, float]:
    """Those of parameters beyond the five that a profile has."""
    return {name: value for name, value in settings.items() if name in profile.table.get("extra", {})}


@dataclass(frozen=True)
class Placement:
    """How workloads become those of a table.

    Attributes
    ----------
    table : dict
        As in the profile.
    settings : mapping
        Other parameters to values; the rest are at their medians.
    """

    table: dict[str, Any]
    settings: Mapping[str, float]

    def __post_init__(self) -> None:
        extra = self.table.get("extra", {})
        unknown = [name for name in self.settings if name not in extra]
        if unknown:
            known = ", ".join(extra) or "none"
            raise FlextraceError(
                f"--set {unknown[0]}: the profile has no such parameter (others than the five: {known})", 2
            )

    def place(self, workload: Workload) -> TableWorkload:
        """The workload with the table's other parameters, and without those of the five that the table lacks.

        Raises
        ------
        FlextraceError
            It lacks a parameter that the table has.
        """
        values = {}
        for name, field in FIELD_OF.items():
            values[field] = getattr(workload, field) if name in self.table["parameters"] else math.nan
            if name in self.table["parameters"] and not math.isfinite(values[field]):
                raise FlextraceError(f"cannot predict a workload without {name}: give it, or a trace with requests")
        own = dict(getattr(workload, "extra", ()))
        extra = {**self.table["extra"], **own, **self.settings}
        return TableWorkload(**values, extra=tuple((name, extra[name]) for name in self.table["extra"]))

    def notes(self, workload: Workload) -> list[str]:
        """What was taken for granted, and what had no use."""
        medians = [f"{name} {value:.4g}" for name, value in self.table["extra"].items() if name not in self.settings]
        unused = [
            name
            for name, field in FIELD_OF.items()
            if name not in self.table["parameters"] and math.isfinite(getattr(workload, field))
        ]
        notes = [f"at the median of the table: {', '.join(medians)} (--set NAME=VALUE)"] if medians else []
        return notes + ([f"not in the table, so without influence: {', '.join(unused)}"] if unused else [])
