# SPDX-License-Identifier: Apache-2.0
"""Turns the raw points of lab machines into the figures of ``make bench-predict``: one table for every bar.

An error is |predicted - measured| / measured (thesis 5.3), measured in the first of two passes; the repeatability error
has the second pass in the place of the prediction. Nothing is measured here, so that a table can be made again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from characterize.errors import FlextraceError
from selfscale.measure import Point
from selfscale.models.measured import region_of
from selfscale.predict import Predictor, record_scores
from selfscale.profile import Profile
from selfscale.profiles.conclusions import file_cache_bytes
from selfscale.profiles.learned_points import learned_points
from tests.bench.findings import Bar, Finding, frame
from tests.bench.lab_measurements import (
    HOST_COPY,
    POINTS_FEW,
    POINTS_MANY,
    TABLE_5_2,
    Document,
    grown_profile,
    names_of_models,
    profile_of,
)
from tests.bench.repeatability_cost import repeatability_cost
from tests.bench.spread import exactly, spread_of

WORKLOADS_MIN = 5
"""A region with fewer random workloads has no median."""
BORDER = (0.8, 1.5)
"""Times the size of the cache that was found: where a little more uniqueBytes costs much."""
ALL = "all machines"
AT_FULL_SPEED = ("parallel", "scan")
"""Probes of reads that the five parameters say all of."""


@dataclass(frozen=True)
class Judged:
    """One model's predictions of a machine's random workloads."""

    name: str
    points: int
    errors: np.ndarray
    inside: np.ndarray  # whether in the 90 % interval
    to_mean: np.ndarray  # errors against the mean of both measurements


class Results:
    """A lab machine's record with what follows from it.

    Parameters
    ----------
    name : str
    record : dict
        As `lab_measurements.measure_stages` fills it, and ``machine`` with ``memory_bytes``.
    """

    def __init__(self, name: str, record: Document):
        self.name = name
        self.record = record
        self.profile = profile_of(record["profile"])
        passes = [[Point.from_document(point) for point in record.get(f"random {repeat}", [])] for repeat in (0, 1)]
        self._grown: dict[int, Profile] = {}
        self._judged: dict[int, dict[str, Judged]] = {}
        self._passes = [
            {(point.role, point.workload): point.throughput_bytes_per_s for point in points} for points in passes
        ]
        drawn = [point.workload for point in passes[0] if point.role == "random"]
        self.workloads = [workload for workload in drawn if self._measured(("random", workload)) > 0]
        steady = {point.workload for point in passes[0] if point.role == "random" and point.steady}
        self.steady = np.array([workload in steady for workload in self.workloads], bool)
        self.measured = np.array([self._passes[0]["random", workload] for workload in self.workloads])
        self.again = np.array([self._passes[1].get(("random", workload), np.nan) for workload in self.workloads])

    def _measured(self, key: tuple[str, Any]) -> float:
        """In the first pass; 0 if in one of them nothing moved or it was not measured."""
        return self._passes[0].get(key, 0.0) if self._passes[1].get(key, 1.0) > 0 else 0.0

    @property
    def mean(self) -> np.ndarray:
        """Of both measurements, or the only one: closer to the truth than either."""
        return np.where(np.isfinite(self.again), np.sqrt(self.measured * self.again), self.measured)

    @cached_property
    def repeatability(self) -> np.ndarray:
        """Error of the second pass; of those that were measured twice."""
        errors = np.abs(self.again - self.measured) / self.measured
        return errors[np.isfinite(errors)]

    @cached_property
    def host_repeatability(self) -> np.ndarray:
        """How far the host's own speed, of copies in memory beside the workloads, differed between the passes."""
        first, second = (
            {
                Point.from_document(point).workload: point[HOST_COPY]
                for point in self.record.get(f"random {repeat}", [])
                if point["role"] == "random" and HOST_COPY in point
            }
            for repeat in (0, 1)
        )
        both = [workload for workload in self.workloads if workload in first and workload in second]
        return np.array([abs(second[workload] / first[workload] - 1) for workload in both])

    @cached_property
    def regions(self) -> np.ndarray:
        """Index of every random workload's region."""
        return np.array([region_of(self.profile.regions, workload.unique_bytes) for workload in self.workloads], int)

    def grown(self, points: int) -> Profile:
        """The profile with so many points, or as many as there are, and its models' errors found once."""
        if points not in self._grown:
            self._grown[points] = grown_profile(self.record, points)
            record_scores(self._grown[points])
        return self._grown[points]

    def judged(self, points: int) -> dict[str, Judged]:
        """Every model that can be fitted to so many points; ``best`` is the one that is used."""
        if points not in self._judged:
            self._judged[points] = self._judge(points)
        return self._judged[points]

    def _judge(self, points: int) -> dict[str, Judged]:
        profile = self.grown(points)
        found = {}
        for name in ["best", *names_of_models()]:
            try:
                predictor = Predictor(profile, name)
            except FlextraceError:
                continue
            table = predictor.table(self.workloads)
            predicted = table["throughput_bytes_per_s"].to_numpy()
            inside = (table["interval_low"] <= self.measured) & (self.measured <= table["interval_high"])
            errors = np.abs(predicted - self.measured) / self.measured
            label = f"best ({predictor.score.model})" if name == "best" else name
            to_mean = np.abs(predicted - self.mean) / self.mean
            found[name] = Judged(label, len(learned_points(profile)), errors, inside.to_numpy().astype(float), to_mean)
        return found

    def table_5_2(self, points: int) -> dict[str, tuple[float, float]]:
        """(measured, predicted) of the workloads of table 5.2 that were measured; the mean of both passes."""
        try:
            predictor = Predictor(self.grown(points))
        except FlextraceError:
            return {}
        found = {}
        for title, workload in TABLE_5_2.items():
            values = [one["table", workload] for one in self._passes if one.get(("table", workload), 0.0) > 0]
            if values:
                found[title] = (float(np.mean(values)), predictor.predict(workload).throughput_bytes_per_s)
        return found


def percent(row: str, what: str, bar: Bar | None, values: ArrayLike, statistic: Any = np.median) -> Finding:
    """Of errors, or of whether something is so."""
    return Finding(row, what, bar, spread_of(100 * np.asarray(values, float), statistic), "%")


def cache_sizes(machines: Sequence[Results]) -> list[Finding]:
    """Distance of the cache's size that was found from the limit."""
    lines = []
    for one in machines:
        limit, found = one.record["machine"]["memory_bytes"], file_cache_bytes(one.profile)
        error = abs(found / limit - 1) if found else float("nan")
        text = f"{found / (1 << 20):.1f}" if found else "no border found"
        lines.append(percent(one.name, f"{text} of {limit >> 20} MiB", Bar(5), [error]))
    return lines


def all_models(machines: Sequence[Results], points: int) -> pd.DataFrame:
    """Every model beside the repeatability, without a verdict; "of two" is the median error against the mean of both
    measurements, which has less of their noise in it."""
    rows = []
    for one in machines:
        none = np.array([])
        repeated = Judged("repeatability", 0, one.repeatability, none, none)
        host = Judged("the host's copies in memory, repeated", 0, one.host_repeatability, none, none)
        for judged in [host, repeated, *(each for name, each in one.judged(points).items() if name != "best")]:
            if len(judged.errors):
                median, upper, high = (f"{100 * value:.1f} %" for value in np.quantile(judged.errors, (0.5, 0.75, 0.9)))
                covered = f"{100 * judged.inside.mean():.0f} %" if len(judged.inside) else "-"
                smoothed = f"{100 * np.median(judged.to_mean):.1f} %" if len(judged.to_mean) else "-"
                cells = {"median": median, "75th": upper, "90th": high, "in 90 %": covered, "of two": smoothed}
                rows.append({"machine": one.name, "model": judged.name, "points": judged.points or "-", **cells})
    return pd.DataFrame(rows)


def best_model(machines: Sequence[Results], points: int, median: Bar, high: Bar | None) -> list[Finding]:
    """Errors of the model that is used, over the whole space."""
    lines = []
    for name, judged in _best(machines, points):
        what = f"{judged.name}, {judged.points} points"
        lines.append(percent(name, f"{what}, median", median, judged.errors))
        lines.append(percent(name, f"{what}, 90th percentile", high, judged.errors, partial(np.quantile, q=0.9)))
    return lines


def _best(machines: Sequence[Results], points: int) -> list[tuple[str, Judged]]:
    """Of every machine, and of all of them together."""
    found = [(one.name, one.judged(points)["best"]) for one in machines if "best" in one.judged(points)]
    if len(found) > 1:
        parts = ("errors", "inside", "to_mean")
        together = (np.concatenate([getattr(each, part) for _, each in found]) for part in parts)
        found.append((ALL, Judged("best", max(each.points for _, each in found), *together)))
    return found


def inside_regions(machines: Sequence[Results], points: int) -> list[Finding]:
    """Median within every region; the bar is 5 % or what two measurements differ by."""
    lines = []
    for one in machines:
        again = np.abs(one.again - one.measured) / one.measured
        for index in np.unique(one.regions):
            chosen = one.regions == index
            if "best" not in one.judged(points) or chosen.sum() < WORKLOADS_MIN:
                continue
            judged = one.judged(points)["best"]
            repeated = 100 * float(np.nanmedian(again[chosen])) if np.isfinite(again[chosen]).any() else 0.0
            what = f"region {index + 1}, {judged.points} points, median; repeatability {repeated:.1f} %"
            lines.append(percent(one.name, what, Bar(max(5.0, repeated)), judged.errors[chosen]))
    return lines


def places_of_errors(machines: Sequence[Results], points: int) -> pd.DataFrame:
    """Where the used model errs, without a verdict: by whether the truth was steady, and around the cache's border."""
    rows = []
    for one in machines:
        if "best" not in one.judged(points):
            continue
        judged = one.judged(points)["best"]
        again = np.abs(one.again - one.measured) / one.measured
        border = file_cache_bytes(one.profile) or np.inf
        place = np.array([workload.unique_bytes for workload in one.workloads]) / border
        explored = np.mean([point.steady for point in one.profile.measured])
        for name, chosen in {
            f"steady ({100 * explored:.0f} % of explored points were)": one.steady,
            "not steady": ~one.steady,
            f"below {BORDER[0]} of the cache": place < BORDER[0],
            f"{BORDER[0]} to {BORDER[1]} of it": (place >= BORDER[0]) & (place < BORDER[1]),
            "beyond": place >= BORDER[1],
        }.items():
            if chosen.any():
                median, high = (f"{100 * value:.0f} %" for value in np.quantile(judged.errors[chosen], (0.5, 0.9)))
                repeated = f"{100 * np.nanmedian(again[chosen]):.0f} %" if np.isfinite(again[chosen]).any() else "-"
                cells = {"n": chosen.sum(), "median": median, "90th": high, "repeatability": repeated}
                rows.append({"machine": one.name, "model": judged.name, "random workloads": name, **cells})
    return pd.DataFrame(rows)


def coverage(machines: Sequence[Results], points: int) -> list[Finding]:
    """Share of the random workloads inside the 90 % interval."""
    return [
        percent(name, f"{judged.name}, {judged.points} points", Bar(95, 85), judged.inside, np.mean)
        for name, judged in _best(machines, points)
    ]


def excess_over_product(machines: Sequence[Results], points: int) -> list[Finding]:
    """Percentage points by which the used model's median error is above the product form's, where it is worst."""
    lines = []
    for one in machines:
        judged = one.judged(points)
        if not {"best", "product"} <= set(judged) or not len(one.workloads):
            continue
        parts = {"everywhere": np.ones(len(one.regions), bool)}
        parts |= {f"region {index + 1}": one.regions == index for index in np.unique(one.regions)}
        excess = {
            place: float(np.median(judged["best"].errors[part]) - np.median(judged["product"].errors[part]))
            for place, part in parts.items()
            if part.sum() >= WORKLOADS_MIN or place == "everywhere"
        }
        worst = max(excess, key=lambda place: excess[place])
        what = f"{judged['best'].name}, {judged['best'].points} points, worst in: {worst}"
        lines.append(Finding(one.name, what, Bar(1), exactly(100 * excess[worst]), "points"))
    return lines


def ratios(machines: Sequence[Results], points: int) -> tuple[list[Finding], pd.DataFrame]:
    """Errors of predicted ratios between pairs of machines, and each of them."""
    tables = {one.name: one.table_5_2(points) for one in machines}
    rows = []
    for (one, first), (other, second) in itertools.combinations(tables.items(), 2):
        for title in TABLE_5_2:
            if title in first and title in second:
                measured, predicted = (first[title][kind] / second[title][kind] for kind in (0, 1))
                error = abs(predicted - measured) / measured
                cells = {"measured": measured, "predicted": predicted, "error %": 100 * error}
                rows.append({"machines": f"{one} / {other}", "workload": title, **cells})
    errors = [row["error %"] / 100 for row in rows]
    what = f"{len(rows)} ratios, {points} points or fewer, median"
    lines = [percent(ALL, what, Bar(10), errors), percent(ALL, "largest", None, errors, np.max)] if rows else []
    return lines, pd.DataFrame(rows)


def prediction_times(machines: Sequence[Results]) -> list[Finding]:
    """Wall-clock time of one prediction after loading and fitting."""
    return [
        Finding(one.name, "median", Bar(10), spread_of(one.record["prediction_ms"]), "ms")
        for one in machines
        if one.record.get("prediction_ms")
    ]


def application_lines(predictions: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Errors of predicted applications by every way of predicting, and how many lie within their 90 % intervals; the
    elapsed time has no bar."""
    lines = []
    line = partial(percent, "applications")
    for way in dict.fromkeys(prediction["way"] for prediction in predictions):
        chosen = [prediction for prediction in predictions if prediction["way"] == way]
        errors = [error_of(prediction) for prediction in chosen]
        lines += [line(f"{way}, median", Bar(15), errors), line(f"{way}, worst", Bar(40), errors, np.max)]
        elapsed = [error_of(each, "elapsed_s") for each in chosen if each["predicted_elapsed_s"] is not None]
        of_elapsed = {"median": np.median, "worst": np.max} if elapsed else {}
        lines += [line(f"{way}, elapsed time, {name}", None, elapsed, of) for name, of in of_elapsed.items()]
        for what, name in (("bytes_per_s", way), ("elapsed_s", f"{way}, elapsed time")):
            if inside := [inside_of(each, what) for each in chosen if each.get(f"interval_{what}")]:
                lines.append(line(f"{name}, within 90 % intervals", None, inside, np.mean))
    return lines


def inside_of(prediction: Mapping[str, Any], what: str) -> bool:
    """Whether what was measured lies within the 90 % interval of a prediction."""
    low, high = prediction[f"interval_{what}"]
    return low <= prediction[f"measured_{what}"] <= high


def error_of(prediction: Mapping[str, Any], what: str = "bytes_per_s") -> float:
    """|predicted - measured| / measured, of the throughput in I/O or of the elapsed time (``elapsed_s``)."""
    measured = prediction[f"measured_{what}"]
    return abs(prediction[f"predicted_{what}"] - measured) / measured


def cold_reads(machines: Sequence[Results], points: int) -> pd.DataFrame:
    """Probes of storage by reads as predicted from their five parameters; no verdict, since models learn from scans.

    Every round of them has a row. They begin with nothing cached, so the prediction is that of the largest uniqueBytes
    that was measured; but of drawn requests some hit, and there it is that of the uniqueBytes of which as many do.
    """
    rows = []
    for one in machines:
        probes = [probe for probe in one.profile.storage if probe.parameter in AT_FULL_SPEED]
        beyond_bytes = max(point.workload.unique_bytes for point in one.profile.measured)
        cache_bytes = file_cache_bytes(one.profile) or beyond_bytes
        hits = [1 - (probe.device_reads or 1.0) if probe.parameter == "parallel" else 0.0 for probe in probes]
        sizes = [cache_bytes / hit if hit > 0 else beyond_bytes for hit in hits]
        workloads = [probe.workload.replace(unique_bytes=size) for probe, size in zip(probes, sizes, strict=True)]
        predictions = Predictor(one.grown(points)).table(workloads) if probes else None
        for row, probe in enumerate(probes):
            measured = probe.throughput_bytes_per_s
            predicted = predictions["throughput_bytes_per_s"].iloc[row]  # type: ignore[index]
            cells = {"measured MB/s": measured / 1e6, "predicted / measured": predicted / measured}
            rows.append({"machine": one.name, "probe": probe.parameter, **cells})
    return pd.DataFrame(rows)


def tables_of(document: Document) -> list[tuple[str, pd.DataFrame]]:
    """Every table with its title, in the order of the issue's bars."""
    machines = [Results(name, record) for name, record in document["machines"].items() if "profile" in record]
    judged = [one for one in machines if one.workloads]
    many = [one for one in judged if one.record.get("more")]
    # What lies behind the stage "more" is judged with as many points as there are.
    later, points = (many, POINTS_MANY) if many else (judged, POINTS_FEW)
    ratio_lines, ratio_table = ratios(judged, points)
    predictions = document.get("predictions", [])
    few, more = f"{POINTS_FEW} points or fewer", f"{POINTS_MANY} points or fewer"
    beaten = excess_over_product(judged, POINTS_FEW) + excess_over_product(many, POINTS_MANY)
    covered = coverage(judged, POINTS_FEW) + coverage(many, POINTS_MANY)
    applications = pd.DataFrame([{**each, "error %": 100 * error_of(each)} for each in predictions])
    parts = [
        ("File-cache size: error of what was found", frame(cache_sizes(machines))),
        ("Repeatability, and the time that it cost", repeatability_cost(judged)),
        (f"Every model, {few} (product form as published: reported, no bar)", all_models(judged, POINTS_FEW)),
        (f"Every model, {more}", all_models(many, POINTS_MANY)),
        (f"Best model, {few}, whole space", frame(best_model(judged, POINTS_FEW, Bar(10), Bar(30)))),
        (f"Best model, {more}, whole space", frame(best_model(many, POINTS_MANY, Bar(7), None))),
        ("Inside one region", frame(inside_regions(later, points))),
        (f"Where the errors are, {points} points or fewer", places_of_errors(later, points)),
        (f"Reads of what is not cached, {points} points or fewer", cold_reads(later, points)),
        ("90 % intervals: share of unseen workloads inside", frame(covered)),
        ("Worse than the product form, percentage points", frame(beaten)),
        ("Applications, predicted on machines that they were not recorded on", frame(application_lines(predictions))),
        ("Each application", applications),
        ("Ratios between machines, workloads of table 5.2", frame(ratio_lines)),
        ("Each ratio", ratio_table),
        ("Time of one prediction after loading", frame(prediction_times(machines))),
    ]
    return [(title, table) for title, table in parts if len(table)]
