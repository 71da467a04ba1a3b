# SPDX-License-Identifier: Apache-2.0
"""Turns the points that ``flextrace scale`` measured into the document ``flextrace.profile/1``, and back.

A profile is what is known of a machine: points, the borders of its performance regions, a focal vector per region.
Curves (the thesis's single parameter graphs, 4.2) are not stored: they are found among the points.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from characterize.errors import FlextraceError
from characterize.trace_files.new_file import write_text
from characterize.workload import FIELD_OF, PARAMETERS, Workload
from selfscale.measure import Point
from selfscale.measuring.access import Access
from selfscale.profiles.profile_shape import check_shape
from selfscale.profiles.repeatability import repeat_error
from selfscale.profiles.table_workload import TableWorkload
from selfscale.read_document import read_document

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "flextrace.profile/1"
TO_COMPLETE = (
    "continue it with 'flextrace scale --resume' if it was interrupted, else measure again with a larger --budget"
)
"""What to do about a profile in which something is missing."""


@dataclass(frozen=True)
class Region:
    """A range of uniqueBytes over which the storage hierarchy behaves alike (thesis 4.5).

    Attributes
    ----------
    low_bytes, high_bytes : float
        From the border below (or the smallest measured uniqueBytes) to the border above.
    focal : Workload
        The focal vector: where the region's curves cross.
    """

    low_bytes: float
    high_bytes: float
    focal: Workload


@dataclass(frozen=True)
class Curve:
    """A single parameter graph: throughput against one parameter, the others at the focal vector.

    Attributes
    ----------
    parameter : str
    x, throughput, half_width_95 : ndarray, shape (n,)
        Sorted by x, one value each; repeated measurements are averaged. Half-widths are infinite where unknown.
    indices : list of tuple of int
        Indices into the profile's points behind every value.
    """

    parameter: str
    x: np.ndarray
    throughput: np.ndarray
    half_width_95: np.ndarray
    indices: list[tuple[int, ...]]


@dataclass
class Profile:
    """What ``flextrace scale`` found out about a machine; see the contract of flextrace.profile/1.

    Attributes
    ----------
    measured : list of Point
        In the order of measuring.
    boundaries_bytes : list of float
        Borders between regions. Which of them is the page cache, and which a limit on what is dirty in it:
        `selfscale.profiles.conclusions.file_cache_bytes`.
    regions : list of Region
    drift : dict
        Of the reference points: how far their repeated measurements lie apart.
    complete : bool
        False if measuring was interrupted or the budget ended too early, random workloads apart.
    models : dict
        Cross-validated errors of every model (`selfscale.predict.record_scores`), and of how many points.
    knee : dict
        Of the global-knee benchmark (`selfscale.exploring.knee`): ``converged``, ``rounds``, ``moving``,
        ``out_of_time``, ``ranges``.
    table : dict
        Of a profile that was made of a table: `selfscale.profiles.table_profile`; empty for a machine.
    storage : list of Point
        Of storage behind the page cache (`selfscale.measuring.storage`); empty in older profiles and where no cache
        takes part.
    findings : dict
        What is concluded from the points (`selfscale.profiles.conclusions.record_findings`); empty in older profiles.
    ended_early : str
        Why not everything that was asked for was measured; empty if it was, and in older profiles.
    """

    measured: list[Point] = field(default_factory=list)
    boundaries_bytes: list[float] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    drift: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    command: list[str] = field(default_factory=list)
    created: str = ""
    tool_version: str = ""
    complete: bool = False
    models: dict[str, Any] = field(default_factory=dict)
    knee: dict[str, Any] = field(default_factory=dict)
    table: dict[str, Any] = field(default_factory=dict)
    storage: list[Point] = field(default_factory=list)
    findings: dict[str, Any] = field(default_factory=dict)
    ended_early: str = ""
    path: Path | None = None

    @cached_property
    def points(self) -> pd.DataFrame:
        """Every point, one row each: the five parameters by their names, and the point's fields."""
        import pandas as pd  # noqa: PLC0415

        rows = []
        for point in self.measured:
            row = point.as_document()
            row.update(row.pop("workload"))
            for direction, times in row.pop("response_time").items():
                row[f"{direction}_mean_ns"] = (times or {}).get("mean_ns")
            rows.append(row)
        return pd.DataFrame(rows)

    @property
    def access(self) -> Access:
        """How the requests of its points reached storage."""
        return Access.of(self.settings)

    @property
    def cache_environment(self) -> dict[str, Any]:
        """The environment, where requests went through the page cache; else, and of a table, empty."""
        return self.environment if self.access.cached and not self.table else {}

    @property
    def lacks(self) -> str:
        """That it is not complete, why, and what to do about it, to be put behind its name; empty if it is complete."""
        if self.complete:
            return ""
        return f"is not complete: {self.ended_early}{'; ' if self.ended_early else ''}{TO_COMPLETE}"

    def range_of(self, parameter: str) -> tuple[float, float]:
        """Least and largest measured value of a parameter."""
        values = [getattr(point.workload, FIELD_OF[parameter]) for point in self.measured]
        if not values:
            raise FlextraceError(f"the profile {self.path or ''} holds no point: {TO_COMPLETE}")
        return min(values), max(values)

    def curve(self, parameter: str, region: int | None) -> Curve:
        """The graph of a parameter in a region (`region` is ignored for uniqueBytes, whose graph spans all).

        A point belongs to it if it differs from the focal vector in this parameter only, unless its role is ``random``.
        """
        regions = self.regions if parameter == "uniqueBytes" else [self.regions[region or 0]]
        others = [FIELD_OF[name] for name in PARAMETERS if name != parameter]
        groups: dict[float, list[int]] = {}
        for index, point in enumerate(self.measured):
            if point.role == "random" or point.throughput_bytes_per_s <= 0:
                continue
            if any(
                all(_same(getattr(point.workload, name), getattr(area.focal, name)) for name in others)
                for area in regions
            ):
                value = getattr(point.workload, FIELD_OF[parameter])
                groups.setdefault(next((x for x in groups if _same(x, value)), value), []).append(index)
        x, repeated = sorted(groups), repeat_error(self.measured, self.regions)
        averages = [self._average(groups[value], repeated) for value in x]
        throughput, half_width = zip(*averages, strict=True) if x else ((), ())
        return Curve(parameter, np.array(x), np.array(throughput), np.array(half_width), [tuple(groups[v]) for v in x])

    def _average(self, indices: Iterable[int], repeated: float) -> tuple[float, float]:
        """Mean throughput of equal measurements and its half-width, never below what their own scatter makes it.

        That is told by all that was repeated (`repeat_error`), and at least by these ones, of
        which too few tell more than a standard error. Those that were too short to tell a half-width of their own are
        taken to have that of the others.
        """
        points = [self.measured[index] for index in indices]
        values = np.array([point.throughput_bytes_per_s for point in points])
        own = np.array([point.ci95_half_width_bytes_per_s for point in points])
        told = own[np.isfinite(own)]
        mean, root = float(values.mean()), math.sqrt(len(points))
        half_width = float(np.sqrt((told**2).mean())) / root if len(told) else math.inf
        if len(points) > 1:
            scatter = 1.96 * float(values.std(ddof=1)) / root
            half_width = max(half_width, scatter) if len(told) else scatter
        return mean, max(half_width, repeated * mean / root)

    def as_document(self) -> dict[str, Any]:
        """The JSON document flextrace.profile/1."""
        return {
            "schema": SCHEMA,
            "tool_version": self.tool_version,
            "command": self.command,
            "seed": self.seed,
            "created": self.created,
            "settings": self.settings,
            "environment": self.environment,
            "points": [point.as_document() for point in self.measured],
            "boundaries_bytes": self.boundaries_bytes,
            "regions": [
                {"low_bytes": area.low_bytes, "high_bytes": area.high_bytes, "focal": area.focal.as_document()}
                for area in self.regions
            ],
            "drift": self.drift,
            "complete": self.complete,
            **({"ended_early": self.ended_early} if self.ended_early else {}),
            "models": self.models,
            **({"knee": self.knee} if self.knee else {}),
            **({"table": self.table} if self.table else {}),
            **({"storage": [point.as_document() for point in self.storage]} if self.storage else {}),
            "findings": self.findings,
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the document, so that a reader never sees half a profile.

        Raises
        ------
        FlextraceError
            The file cannot be written.
        """
        path = Path(path)
        write_text(path, json.dumps(self.as_document(), indent=1, allow_nan=False), force=True)
        self.path = path
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, tables: bool = False) -> Profile:
        """Read a profile.

        Parameters
        ----------
        path : path-like
        tables : bool
            Whether the profile of a table, which says nothing of a machine, will do.

        Raises
        ------
        FlextraceError
            The file cannot be read, is not a profile, is of another version or damaged, or is of a table.
        """
        path = Path(path)
        document = read_document(path, "profile", SCHEMA, "make one with 'flextrace scale'")
        table = document.get("table") or {}
        if table and not tables:
            raise FlextraceError(
                f"{path} is a model of a table ('flextrace fit') and not of a machine: only 'flextrace predict' and "
                "'flextrace rank' can use it"
            )
        try:
            check_shape(document)
            points = [Point.from_document(point) for point in document["points"]]
            if table:
                points = [
                    replace(point, workload=TableWorkload.of_document(row["workload"], table["extra"]))
                    for point, row in zip(points, document["points"], strict=True)
                ]
            return cls(
                measured=points,
                boundaries_bytes=[float(value) for value in document["boundaries_bytes"]],
                regions=[
                    Region(float(area["low_bytes"]), float(area["high_bytes"]), Workload.from_document(area["focal"]))
                    for area in document["regions"]
                ],
                environment=document["environment"],
                drift=document.get("drift", {}),
                settings=document.get("settings", {}),
                seed=document["seed"],
                command=document.get("command", []),
                created=document.get("created", ""),
                tool_version=document.get("tool_version", ""),
                complete=bool(document["complete"]),
                models=document.get("models", {}),
                knee=document.get("knee", {}),
                table=table,
                storage=[Point.from_document(point) for point in document.get("storage", [])],
                findings=document.get("findings", {}),
                ended_early=str(document.get("ended_early", "")),
                path=path,
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise FlextraceError(
                f"profile {path} is damaged ({error!r}): make it again with 'flextrace {'fit' if table else 'scale'}'"
            ) from error


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-6 * max(abs(one), abs(other))
