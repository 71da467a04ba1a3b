# SPDX-License-Identifier: Apache-2.0
"""Turns a profile and random workloads measured on its machine into the errors of every model (thesis 5.3, 5.4).

The random workloads are those of the profile itself (``flextrace scale --random``) or those that ``flextrace validate``
measured. A workload's second measurement taken as a prediction of its first one has the error called repeatability.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from characterize.errors import FlextraceError
from characterize.trace_files.provenance import sha256_of
from characterize.workload import PARAMETERS, Workload
from selfscale.exploring.sampling import orthogonal_sample
from selfscale.measure import Point
from selfscale.models import MODELS
from selfscale.models.measured import region_of
from selfscale.models.orthogonal import OrthogonalModel
from selfscale.predict import Predictor, record_scores
from selfscale.profile import TO_COMPLETE, Profile
from selfscale.profiles.learned_points import learned_points
from selfscale.profiles.profile_shape import check_point
from selfscale.read_document import read_document

SCHEMA = "flextrace.validation/1"
REPEATABILITY = "repeatability"
MULTIPLES = {1: "equal points", 2: "double points"}
"""How many times the points that a profile was fitted to an orthogonal sample may have, and what it is called."""
_IN_IO = "throughput_in_io_bytes_per_s"
BINS_MAX, BIN_WORKLOADS_MIN = 8, 5
LEVEL = 0.90
"""Of the confidence interval of the median error, as figure 5.3c has it."""


@dataclass(frozen=True)
class MeasuredAgain:
    """What ``flextrace validate`` measured.

    Attributes
    ----------
    path : Path
    created : str
        Of the profile that it was measured for.
    points : list of Point
        Roles ``random`` (each workload with repeat 0 and 1) and ``orthogonal``.
    warnings : list of str
        What of the machine was not as it had been.
    """

    path: Path
    created: str
    points: list[Point]
    warnings: list[str]

    def is_of(self, profile: Profile) -> bool:
        """Whether it was measured for this profile."""
        return self.created == profile.created


def load(path: str | os.PathLike[str]) -> MeasuredAgain:
    """Read a document ``flextrace.validation/1``.

    Raises
    ------
    FlextraceError
        The file cannot be read, is no such document or is damaged.
    """
    path = Path(path)
    document = read_document(path, "validation", SCHEMA, "make one with 'flextrace validate'")
    try:
        for number, point in enumerate(document["points"]):
            check_point(point, f"points[{number}]")
        points = [Point.from_document(point) for point in document["points"]]
        return MeasuredAgain(path, document["settings"]["created"], points, list(document.get("warnings", [])))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FlextraceError(
            f"validation {path} is damaged ({error!r}): make it again with 'flextrace validate --force'"
        ) from error


@dataclass(frozen=True)
class PredictionErrors:
    """Errors on random workloads.

    Attributes
    ----------
    table : DataFrame
        A row per workload and model, `REPEATABILITY` among the models: ``model``, ``workload`` (number, in the order of
        measuring), the five parameters, ``region`` (from 1), ``measured_bytes_per_s``, ``estimated_bytes_per_s``,
        ``error`` (|estimated - measured| / measured).
    used : str
        The model that predictions are made with; empty if none can be.
    unusable : dict of str to str
        Models that could not be fitted, and why.
    fitted_to : dict of str to int
        Points that each was fitted to, or was to be.
    coverage : dict of str to float
        Share of the workloads within the 90 % interval, of models that have one.
    """

    table: pd.DataFrame
    used: str
    unusable: dict[str, str]
    fitted_to: dict[str, int] = field(default_factory=dict)
    coverage: dict[str, float] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """In the order of the table, the repeatability last."""
        found = list(dict.fromkeys(self.table["model"]))
        return sorted(found, key=lambda model: model == REPEATABILITY)

    def of(self, model: str) -> pd.DataFrame:
        """The rows of one model."""
        return self.table[self.table["model"] == model]


def random_workloads(points: Sequence[Point]) -> tuple[dict[Workload, float], dict[Workload, float]]:
    """Bytes per s of the random workloads that moved something: when measured first, and when measured again."""
    passes: tuple[dict[Workload, float], dict[Workload, float]] = ({}, {})
    for point in points:
        if point.role == "random" and point.throughput_bytes_per_s > 0:
            passes[bool(point.repeat)][point.workload] = point.throughput_bytes_per_s
    return passes


def errors_of(
    profile: Profile,
    points: Sequence[Point] | None = None,
    *,
    used_only: bool = False,
    constants: Mapping[str, float] | None = None,
) -> PredictionErrors:
    """Errors of all models on random workloads.

    Parameters
    ----------
    profile : Profile
    points : sequence of Point, optional
        What `load` read; the profile's own random points if None.
    used_only : bool
        Of the models only that which predictions are made with.
    constants : mapping, optional
        By name, what else is taken as an estimate, of all workloads alike; of one point each.

    Raises
    ------
    FlextraceError
        The profile has no region, or no random workload was measured.
    """
    points = profile.measured if points is None else points
    first, again = random_workloads(points)
    if not profile.regions:
        raise FlextraceError(f"profile {profile.path or ''} has no region to predict from: {TO_COMPLETE}")
    if not first:
        raise FlextraceError(
            f"profile {profile.path or ''} has no random workload to compare predictions with: measure some with "
            "'flextrace validate' and give its document"
        )
    tested, measured = list(first), np.array(list(first.values()))
    scored = replace(profile)
    record_scores(scored)
    used = scored.models["best"] or ""
    names = list(MODELS) if not used_only else [used] if used else []
    estimates: dict[str, Any] = {}
    fitted_to, coverage, unusable = {}, {}, {}
    for name, count, estimate in _estimators(scored, names, points):
        fitted_to[name] = count
        try:
            table = estimate(tested)
        except FlextraceError as error:
            unusable[name] = str(error)
            continue
        estimates[name] = table["throughput_bytes_per_s"]
        if name in MODELS:
            inside = (table["interval_low"] <= measured) & (measured <= table["interval_high"])
            coverage[name] = float(inside.mean())
        else:
            unusable.pop(OrthogonalModel.name, None)
    for name, value in (constants or {}).items():
        fitted_to[name], estimates[name] = 1, np.full(len(tested), value)
    estimates[REPEATABILITY] = [again.get(workload, np.nan) for workload in tested]
    return PredictionErrors(_table(profile, first, estimates), used, unusable, fitted_to, coverage)


def _estimators(
    scored: Profile, names: Sequence[str], points: Sequence[Point]
) -> Iterator[tuple[str, int, Callable[[Sequence[Workload]], pd.DataFrame]]]:
    """Models, and interpolation in those of `points` that are of an orthogonal sample (thesis 5.4).

    Name, points that it is fitted to, and what fits it and estimates workloads.
    """

    def by_model(name: str, tested: Sequence[Workload]) -> pd.DataFrame:
        return Predictor(scored, name).table(tested)

    def by_sample(chosen: Sequence[Point], tested: Sequence[Workload]) -> pd.DataFrame:
        return OrthogonalModel().fit(chosen, scored.regions).predict(tested)

    learned = learned_points(scored)
    for name in names:
        yield name, len(learned), partial(by_model, name)
    grid = {point.workload: point for point in points if point.role == OrthogonalModel.name}
    for multiple, label in MULTIPLES.items() if grid else ():
        sample = dict.fromkeys(workload for _, workload in orthogonal_sample(scored, multiple * len(learned)))
        chosen = [grid[workload] for workload in sample if workload in grid]
        yield f"{OrthogonalModel.name}, {label}", len(chosen), partial(by_sample, chosen)


def _table(profile: Profile, measured: dict[Workload, float], estimates: Mapping[str, Any]) -> pd.DataFrame:
    """The table of `PredictionErrors`; what has no estimate is left out."""
    about = _about(profile, measured)
    frames = [
        about.assign(model=name, estimated_bytes_per_s=np.asarray(values, np.float64))
        for name, values in estimates.items()
    ]
    table = pd.concat(frames, ignore_index=True).dropna(subset="estimated_bytes_per_s", ignore_index=True)
    names = ["model", "workload", *PARAMETERS, "region", "measured_bytes_per_s", "estimated_bytes_per_s"]
    return _with_errors(table[names])


def _with_errors(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a column ``error``."""
    measured = table["measured_bytes_per_s"]
    return table.assign(error=(table["estimated_bytes_per_s"] - measured).abs() / measured)


def _about(profile: Profile, measured: dict[Workload, float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "workload": number,
                **workload.as_document(),
                "region": region_of(profile.regions, workload.unique_bytes) + 1,
                "measured_bytes_per_s": value,
            }
            for number, (workload, value) in enumerate(measured.items(), 1)
        ]
    )


def applications_of(profile: Profile, comparisons: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Real applications beside the random workloads, as the letters of figure 5.3a are.

    Parameters
    ----------
    profile : Profile
    comparisons : sequence of mapping
        Documents ``flextrace.comparison/1``; those made with other profiles are passed over.

    Returns
    -------
    DataFrame
        ``model, workload`` (name of the trace), ``measured_bytes_per_s`` (throughput in I/O of the application),
        ``estimated_bytes_per_s, error``.
    """
    own = sha256_of(profile.path) if profile.path and profile.path.exists() else None
    rows = []
    for document in comparisons:
        found = {row["row"]: row for row in document["rows"]}
        if own is None or document.get("profile_sha256") != own or not {"application", "prediction"} <= set(found):
            continue
        measured, estimated = (found[name]["median"].get(_IN_IO) for name in ("application", "prediction"))
        if measured and estimated:
            rows.append((found["prediction"].get("model"), Path(str(document.get("trace"))).stem, measured, estimated))
    table = pd.DataFrame(rows, columns=["model", "workload", "measured_bytes_per_s", "estimated_bytes_per_s"])
    return _with_errors(table)


def cumulative(errors: PredictionErrors) -> pd.DataFrame:
    """Figure 5.3b: the share of the workloads whose error is at most this.

    Returns
    -------
    DataFrame
        ``model, error, share``, a row per workload of each model, errors ascending.
    """
    frames = []
    for model in errors.models:
        error = np.sort(errors.of(model)["error"].to_numpy())
        share = np.arange(1, len(error) + 1) / len(error)
        frames.append(pd.DataFrame({"model": model, "error": error, "share": share}))
    return pd.concat(frames, ignore_index=True)


def median_interval(errors: Sequence[float] | np.ndarray) -> pd.DataFrame:
    """Figure 5.3c: what is known of the true median error after 1, 2, 3 ... workloads.

    The interval lies between two of the sorted errors, so that it takes nothing for granted of their distribution: how
    many of n errors lie below the true median is binomial with probability 1/2.

    Returns
    -------
    DataFrame
        ``workloads, median, low, high``; the interval of `LEVEL`, NaN for fewer than five workloads.
    """
    from scipy.stats import binom  # noqa: PLC0415 (slow to import)

    rows = []
    for count in range(1, len(errors) + 1):
        ordered = np.sort(np.asarray(errors[:count], np.float64))
        # Largest number of errors below the median that is rarer than half of 1 - LEVEL.
        below = int(binom.ppf((1 - LEVEL) / 2, count, 0.5))
        if binom.cdf(below, count, 0.5) > (1 - LEVEL) / 2:
            below -= 1
        low, high = (ordered[below], ordered[count - 1 - below]) if below >= 0 else (np.nan, np.nan)
        rows.append({"workloads": count, "median": float(np.median(ordered)), "low": low, "high": high})
    return pd.DataFrame(rows)


def by_parameter(errors: PredictionErrors, parameter: str) -> pd.DataFrame:
    """Figure 5.4: the median error against the value of one parameter.

    A parameter with few values has a bin for each, others as many bins of about as many workloads as give each
    `BIN_WORKLOADS_MIN`, up to `BINS_MAX`.

    Returns
    -------
    DataFrame
        ``model, parameter, value`` (median of the bin's), ``low, high`` (least and largest), ``workloads``,
        ``median_error``.
    """
    rows = []
    for model in errors.models:
        part = errors.of(model).sort_values(parameter, kind="stable")
        values = part[parameter].to_numpy(np.float64)
        distinct = np.unique(values)
        if len(distinct) <= BINS_MAX:
            bins = [np.flatnonzero(values == value) for value in distinct]
        else:
            bins = np.array_split(np.arange(len(values)), np.clip(len(values) // BIN_WORKLOADS_MIN, 1, BINS_MAX))
        for chosen in bins:
            rows.append(
                {
                    "model": model,
                    "parameter": parameter,
                    "value": float(np.median(values[chosen])),
                    "low": values[chosen[0]],
                    "high": values[chosen[-1]],
                    "workloads": len(chosen),
                    "median_error": float(np.median(part["error"].to_numpy()[chosen])),
                }
            )
    return pd.DataFrame(rows)
