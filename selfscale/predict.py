# SPDX-License-Identifier: Apache-2.0
"""Turns a profile and a workload into an estimated throughput: by the model with the smallest cross-validated error."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from characterize.errors import FlextraceError
from characterize.workload import PARAMETERS, Workload
from selfscale.models import MODELS, TABLE_MODELS, make_model
from selfscale.models.measured import region_of
from selfscale.predicting.cross_validation import Score, best_of, cross_validate, widened
from selfscale.predicting.relative import Estimated
from selfscale.profile import Profile
from selfscale.profiles.learned_points import cold_scans, learned_points
from selfscale.profiles.table_profile import Placement

if TYPE_CHECKING:
    import pandas as pd

    from selfscale.models.service_time import ServiceTimes

BEST = "best"


@dataclass(frozen=True)
class Prediction:
    """An estimated throughput.

    Attributes
    ----------
    throughput_bytes_per_s : float
    interval_low, interval_high : float
        90 % interval, bytes per s; what it rests on stands in `extended_note`.
    model : str
    region : int
        Index of the profile's region.
    inside_range : bool
        Whether every parameter lies within the measured values; `outside` names those that do not.
    points_used : list of int
        Indices into the profile's points; scans of storage (`selfscale.profiles.learned_points`) are not among these.
    extended_note : str
        What the interval covers, and what the prediction takes for granted.
    notes : list of str
        How far the workload lies outside, and what else the model says of it (such as its bottleneck).
    """

    throughput_bytes_per_s: float
    interval_low: float
    interval_high: float
    model: str
    region: int
    inside_range: bool
    points_used: list[int] = field(default_factory=list)
    extended_note: str = ""
    outside: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def estimated(self) -> Estimated:
        """Throughput with its interval."""
        return Estimated(self.throughput_bytes_per_s, self.interval_low, self.interval_high)

    def as_document(self) -> dict[str, Any]:
        """The prediction as it stands in JSON."""
        return asdict(self)


def models_of(profile: Profile) -> tuple[str, ...]:
    """Names of the models that a profile can be predicted with: those of machines need all five parameters."""
    if not profile.table:
        return tuple(MODELS)
    if len(profile.table["parameters"]) < len(PARAMETERS) or profile.table["extra"]:
        return tuple(TABLE_MODELS)
    return (*TABLE_MODELS, *(("product",) if profile.regions else ()), "utilization", "learned")


def scores_of(profile: Profile, names: Sequence[str] | None = None) -> list[Score]:
    """Cross-validated errors of models: those that the profile carries, if they are of its points, else computed."""
    names = models_of(profile) if names is None else names
    recorded = {score["model"]: score for score in profile.models.get("scores", []) if "mean_log" in score}
    if profile.models.get("points") == len(profile.measured) and set(names) <= set(recorded):
        return [Score.from_document(recorded[name]) for name in names]
    environment, scans = profile.cache_environment, cold_scans(profile)
    return cross_validate(profile.measured, profile.regions, names, profile.seed, environment, scans=scans)


def record_scores(profile: Profile) -> None:
    """Let a profile carry the errors of its models, so that predictions from it need not compute them."""
    scores = scores_of(profile)
    profile.models = {
        "points": len(profile.measured),
        "best": best_of(scores).model if any(score.usable for score in scores) else None,
        "scores": [asdict(score) for score in scores],
    }


class Predictor:
    """A profile with one model fitted to it.

    Parameters
    ----------
    profile : Profile
    model : str
        One of `models_of` the profile, or ``best`` for the one with the smallest cross-validated error.
    settings : mapping, optional
        Values of parameters beyond the five, of a profile that was made of a table; the others are at their medians.

    Attributes
    ----------
    profile : Profile
    scores : list of Score
        Of all models for ``best``, else of the one.
    score : Score
        Of the one that is used.

    Raises
    ------
    FlextraceError
        No such model or parameter, or the profile holds too little for it.
    """

    def __init__(self, profile: Profile, model: str = BEST, settings: Mapping[str, float] | None = None):
        known = (BEST, *models_of(profile))
        if model not in known:
            raise FlextraceError(f"there is no model {model!r} of this profile: choose one of {', '.join(known)}", 2)
        self._placement = Placement(profile.table, settings or {}) if profile.table or settings else None
        self.profile = profile
        self.scores = scores_of(profile) if model == BEST else scores_of(profile, [model])
        self.score = best_of(self.scores) if model == BEST else self.scores[0]
        indices = [index for index, point in enumerate(profile.measured) if point.role != "random"]
        self._index_of = dict(enumerate(indices))
        model_used = make_model(self.score.model, profile.cache_environment)
        self._model = model_used.fit(learned_points(profile), profile.regions)

    @cached_property
    def service_times(self) -> ServiceTimes:
        """The physics of the learned model, also where another one predicts."""
        from selfscale.models.combined import CombinedModel  # noqa: PLC0415
        from selfscale.models.learned import LearnedModel, service_times_of  # noqa: PLC0415
        from selfscale.models.measured import measured  # noqa: PLC0415

        if isinstance(self._model, LearnedModel | CombinedModel):
            return self._model.service_times
        return service_times_of(measured(learned_points(self.profile)), self.profile.regions)

    def table(self, workloads: Sequence[Workload]) -> pd.DataFrame:
        """Predictions of many workloads, a row each, with the columns of `Prediction`'s numbers."""
        if self._placement is not None:
            workloads = [self._placement.place(workload) for workload in workloads]
        table = self._model.predict(workloads)
        throughput = table["throughput_bytes_per_s"].to_numpy()
        own = np.log(table["interval_high"].to_numpy() / throughput)
        # By the region of uniqueBytes, as the errors of the score are counted; the product form has one of its own.
        regions = [region_of(self.profile.regions, workload.unique_bytes) for workload in workloads]
        width = np.exp([widened(self.score, region, each) for region, each in zip(regions, own, strict=True)])
        table["interval_low"], table["interval_high"] = throughput / width, throughput * width
        return table

    def predict(self, workload: Workload) -> Prediction:
        """Estimate one workload."""
        row = self.table([workload]).iloc[0]
        return Prediction(
            throughput_bytes_per_s=float(row["throughput_bytes_per_s"]),
            interval_low=float(row["interval_low"]),
            interval_high=float(row["interval_high"]),
            model=self.score.model,
            region=int(row["region"]),
            inside_range=not row["outside"],
            points_used=[self._index_of[index] for index in row["points_used"] if index in self._index_of],
            extended_note=self._note(inside=not row["outside"]),
            outside=row["outside"],
            notes=row["notes"] + (self._placement.notes(workload) if self._placement is not None else []),
        )

    def _note(self, *, inside: bool) -> str:
        conditions = "conditions are those of the table" if self.profile.table else self.profile.access.classic
        if not inside:
            conditions = f"outside of what was measured it may not hold; {conditions}"
        if not self.score.usable:
            return f"interval covers what the model itself knows only; {conditions}"
        return (
            f"interval covers 90 % of {self.score.count} measured workloads that the model had not learned from "
            f"(median error {self.score.errors['median']:.0%}); {conditions}"
        )


def predictor_of(
    path: str | os.PathLike[str], profile: Profile, model: str = BEST, settings: Mapping[str, float] | None = None
) -> Predictor:
    """A `Predictor` of a profile that was read from `path`, which its errors name: it may be one of several."""
    try:
        return Predictor(profile, model, settings)
    except FlextraceError as error:
        raise FlextraceError(f"profile {path}: {error}", error.exit_code) from error
