# SPDX-License-Identifier: Apache-2.0
"""Turns a profile's points into the error of every model on workloads that it did not learn from, and a choice.

What is tested are workloads off the curves, which differ from every focal vector in two parameters or more: on a curve
the product form only interpolates between neighbours, which says nothing of its error elsewhere. Points are left out
fold by fold, each fold from all regions alike; random workloads (thesis 5.3) are never learned from and always tested.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from characterize.errors import FlextraceError
from characterize.workload import FIELD_OF, PARAMETERS, Workload
from selfscale.measure import Point
from selfscale.models import MODELS, PARTS, Model, make_model
from selfscale.models.measured import region_of
from selfscale.profile import Region
from selfscale.profiles.learned_points import learnable

FOLDS = 6
TESTED_MIN = 10
"""With fewer points off the curves, those on the curves are tested too."""
REGION_TESTED_MIN = 20
"""A region with fewer tested points has no interval of its own: of ten, the rank for 90 % is the largest error."""
LEVEL = 0.90
FACTOR_MIN, FACTOR_MAX = 1 / 3, 3.0
"""What a model's own half-width is multiplied by, at least and at most."""
QUANTILES = {"median": 0.5, "p75": 0.75, "p90": 0.9}


@dataclass(frozen=True)
class Score:
    """How far a model was off on workloads that it had not learned from.

    Attributes
    ----------
    model : str
    reason : str
        Why it could not be fitted; empty if it could.
    count : int
        Predictions that were compared.
    errors : dict
        ``median``, ``p75``, ``p90``, ``max`` and ``mean`` of |predicted - measured| / measured (thesis 5.3).
    mean_log : float
        Mean of |ln(predicted / measured)|, by which models are chosen: half and twice as much are equally wrong.
    by_region : list of dict
        Of every region with a tested point: ``region``, ``count``, ``median``, ``p90``.
    widening : dict
        Region (as text; ``all`` where it has too few) to what makes the model's own interval cover 90 % of the tested
        points: ``factor`` multiplies its logarithmic half-width, ``added`` is added to that in squares.
    """

    model: str
    reason: str = ""
    count: int = 0
    errors: dict[str, float] = field(default_factory=dict)
    mean_log: float = 0.0
    by_region: list[dict[str, Any]] = field(default_factory=list)
    widening: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Score:
        """That of a profile; unknown keys are ignored."""
        return cls(**{name: document[name] for name in cls.__dataclass_fields__ if name in document})

    @property
    def usable(self) -> bool:
        """Whether the model could be fitted and tested."""
        return not self.reason


def on_a_curve(workload: Workload, regions: Sequence[Region]) -> bool:
    """Whether a workload differs from a focal vector in at most one parameter."""

    def differs(name: str, focal: Workload) -> bool:
        return not math.isclose(getattr(workload, FIELD_OF[name]), getattr(focal, FIELD_OF[name]), rel_tol=1e-6)

    return any(sum(differs(name, region.focal) for name in PARAMETERS) <= 1 for region in regions)


def cross_validate(
    points: Sequence[Point],
    regions: Sequence[Region],
    names: Sequence[str] = tuple(MODELS),
    seed: int = 0,
    environment: Mapping[str, Any] | None = None,
    *,
    scans: Sequence[Point] = (),
) -> list[Score]:
    """Score models, in the order of their names.

    Parameters
    ----------
    points : sequence of Point
        Of a profile, random workloads included.
    regions : sequence of Region
    names : sequence of str
        Of `selfscale.models.MODELS`.
    seed : int
        Of the division into folds.
    environment : mapping, optional
        For the models that need it, see `selfscale.models.make_model`.
    scans : sequence of Point
        Learned from by all and never tested: they are measured again and again (`selfscale.profiles.learned_points`).
    """
    candidates = [point for point in points if point.throughput_bytes_per_s > 0 and point.role != "orthogonal"]
    tested = [point for point in candidates if point.role == "random" or not on_a_curve(point.workload, regions)]
    if len({point.workload for point in tested}) < TESTED_MIN:
        tested = candidates
    folds = _folds([point for point in tested if point.role != "random"], regions, seed)
    random_points = [point for point in tested if point.role == "random"]
    learned = [*learnable(points), *scans]
    fits: dict[str, list[Model]] = {}
    scores = []
    for name in names:
        try:
            fits[name] = _fits(name, environment, learned, regions, folds=folds, known=fits)
            scores.append(_score(name, list(zip(fits[name], [random_points, *folds], strict=True)), regions))
        except FlextraceError as error:
            scores.append(Score(name, reason=str(error)))
    return scores


def _folds(tested: Sequence[Point], regions: Sequence[Region], seed: int) -> list[list[Point]]:
    """Divide points so that every fold has its share of every region; equal workloads stay together."""
    groups: dict[Workload, list[Point]] = {}
    for point in tested:
        groups.setdefault(point.workload, []).append(point)
    workloads = list(groups)
    random.Random(seed).shuffle(workloads)
    workloads.sort(key=lambda workload: region_of(regions, workload.unique_bytes))
    folds: list[list[Point]] = [[] for _ in range(FOLDS)]
    for position, workload in enumerate(workloads):
        folds[position % FOLDS] += groups[workload]
    return [fold for fold in folds if fold]


def _fits(
    name: str,
    environment: Mapping[str, Any] | None,
    learned: Sequence[Point],
    regions: Sequence[Region],
    *,
    folds: Sequence[Sequence[Point]],
    known: Mapping[str, Sequence[Model]],
) -> list[Model]:
    """A model fitted to all points, and once for every fold to all but its points; a mean of models of known ones."""
    if name in PARTS and all(part in known for part in PARTS[name]):
        return [
            make_model(name, environment, parts) for parts in zip(*(known[part] for part in PARTS[name]), strict=True)
        ]
    whole = make_model(name, environment).fit(learned, regions)
    fits = [whole]
    for fold in folds:
        left_out = {id(point) for point in fold}
        rest = [point for point in learned if id(point) not in left_out]
        try:
            fits.append(whole.again().fit(rest, regions))
        except FlextraceError as error:
            each = f"{len(learned)} points are too few to leave {len(fold)} of them out and test on these"
            raise FlextraceError(f"{each}: {error}") from error
    return fits


def _score(name: str, tested: Sequence[tuple[Model, Sequence[Point]]], regions: Sequence[Region]) -> Score:
    """Of models and the points that each was not fitted to."""
    parts = [_compare(model, points, regions) for model, points in tested if points]
    if not parts:
        return Score(name, reason="no measured workload is left to test it on")
    log_error, half_width, relative, region = np.concatenate(parts, axis=1)
    return Score(
        name,
        count=len(relative),
        errors={**quantiles_of(relative), "mean": float(relative.mean())},
        mean_log=float(log_error.mean()),
        by_region=[
            {
                "region": int(index),
                "count": int((region == index).sum()),
                "median": float(np.median(relative[region == index])),
                "p90": float(np.quantile(relative[region == index], 0.9)),
            }
            for index in np.unique(region)
        ],
        widening={
            "all": _widening(log_error, half_width),
            **{
                str(int(index)): _widening(log_error[region == index], half_width[region == index])
                for index in np.unique(region)
                if (region == index).sum() >= REGION_TESTED_MIN
            },
        },
    )


def quantiles_of(relative_errors: np.ndarray) -> dict[str, float]:
    """Median, 75th and 90th percentile and largest of absolute relative errors."""
    return {
        **{name: float(np.quantile(relative_errors, share)) for name, share in QUANTILES.items()},
        "max": float(relative_errors.max()),
    }


def _compare(model: Model, tested: Sequence[Point], regions: Sequence[Region]) -> np.ndarray:
    """|ln(measured / predicted)|, the model's logarithmic half-width, Chen's error, region; shape (4, workloads)."""
    throughputs: dict[Workload, list[float]] = {}
    for point in tested:
        throughputs.setdefault(point.workload, []).append(point.throughput_bytes_per_s)
    # What was measured twice is one workload, whose errors are not independent.
    measured = np.array([np.mean(values) for values in throughputs.values()])
    table = model.predict(list(throughputs))
    predicted = table["throughput_bytes_per_s"].to_numpy()
    return np.array(
        [
            np.abs(np.log(measured / predicted)),
            np.log(table["interval_high"].to_numpy() / predicted),
            np.abs(predicted - measured) / measured,
            [region_of(regions, workload.unique_bytes) for workload in throughputs],
        ]
    )


def _widening(log_error: np.ndarray, half_width: np.ndarray) -> dict[str, float]:
    """What makes the intervals cover `LEVEL` of the tested points.

    The rank is that of conformal prediction, (n + 1) x level. A factor keeps what the model knows of where it knows
    little. A model that takes itself as nearly exact cannot be widened by one: beyond `FACTOR_MAX` it gets a constant.
    """
    rank = min(len(log_error), math.ceil((len(log_error) + 1) * LEVEL)) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sort(np.where(log_error > 0, log_error / half_width, 0.0))
    if ratio[rank] <= FACTOR_MAX:
        return {"factor": float(max(ratio[rank], FACTOR_MIN)), "added": 0.0}
    missing = np.sort(np.maximum(log_error**2 - (FACTOR_MAX * half_width) ** 2, 0.0))
    return {"factor": FACTOR_MAX, "added": float(np.sqrt(missing[rank]))}


def widened(score: Score, region: int, half_width: float) -> float:
    """A model's logarithmic half-width as its tested points ask for."""
    widening = score.widening.get(str(region)) or score.widening.get("all") or {"factor": 1.0, "added": 0.0}
    return math.hypot(half_width * widening["factor"], widening["added"])


def best_of(scores: Sequence[Score]) -> Score:
    """The usable score with the smallest mean logarithmic error, a mean of models in the place of these.

    The median says nothing of the worse half: a model that is as good there and off by a factor of ten in every eighth
    prediction would be chosen by chance. Which of two models is better that are nearly as good is chance, too, with
    some tens of tested points: where there is their mean, it is taken whatever their errors.

    Raises
    ------
    FlextraceError
        No model could be fitted; the message has the reason of the first.
    """
    usable = [score for score in scores if score.usable]
    if not usable:
        raise FlextraceError(scores[0].reason)
    parts = {part for score in usable for part in PARTS.get(score.model, ())}
    return min((score for score in usable if score.model not in parts), key=lambda score: score.mean_log)
