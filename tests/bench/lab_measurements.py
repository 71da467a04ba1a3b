# SPDX-License-Identifier: Apache-2.0
"""Turns a machine into the raw points that its predictions are judged by, in stages that are kept one by one.

explore   the self-scaling benchmark, of at most `POINTS_FEW` points
random 0  the first pass over the random workloads (thesis 5.3), and over those of table 5.2
more      workloads that tell most about all others, until there are `POINTS_MANY`
random 1  the second pass in another order, so that two measurements of a workload lie minutes apart
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from characterize.workload import Workload
from selfscale.explore import Exploration
from selfscale.exploring.informative import most_informative
from selfscale.exploring.plan import Settings, Step
from selfscale.exploring.sampling import random_workload
from selfscale.measure import Point
from selfscale.measuring.measurable_sizes import align
from selfscale.models import MODELS
from selfscale.predict import Predictor
from selfscale.profile import Profile
from selfscale.profiles.learned_points import cold_scans
from selfscale.validate import plan
from tests.bench.host_speed import copy_bytes_per_s

POINTS_FEW, POINTS_MANY = 90, 200
"""The bars are set for these numbers of points."""
AT_ONCE = 10
"""Workloads that are chosen with one fit."""
PREDICTIONS_TIMED = 30
RETRIES_WITHOUT_PROGRESS = 3
HOST_COPY = "host_copy_bytes_per_s"
KB, MB = 1024, 10**6
# Thesis, table 5.2: uniqueBytes, seqFrac, readFrac, sizeMean, processNum.
TABLE_5_2 = {
    "workstation": Workload(align(1 * MB), 0.8, 0.8, 4.0 * KB, 1.0),
    "large utility": Workload(align(10 * MB), 0.9, 0.6, 8.0 * KB, 1.0),
    "scientific write": Workload(align(250 * MB), 0.5, 0.2, 100.0 * KB, 1.0),
    "scientific read": Workload(align(250 * MB), 0.5, 0.8, 100.0 * KB, 1.0),
    "database": Workload(align(500 * MB), 0.1, 0.2, 4.0 * KB, 2.0),
}

Measure = Callable[[Step], Point]
Document = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much is measured on a machine.

    Attributes
    ----------
    budget_s : float
        Of the exploration, which ends at `POINTS_FEW` points if it comes so far.
    points : int
        After the stage ``more``.
    workloads : int
        Random ones, each measured twice.
    seconds : float
        Longest run of a point after the exploration.
    """

    budget_s: float
    points: int
    workloads: int
    seconds: float
    seed: int


def settings_of(memory_bytes: int, effort: Effort) -> Settings:
    """Of the exploration of a machine whose page cache is limited, which ends at `POINTS_FEW` points."""
    cpus = len(os.sched_getaffinity(0))
    return Settings(memory_bytes, effort.budget_s, cpus, effort.seed, points_max=POINTS_FEW)


def explore(settings: Settings, measure: Measure, environment: Document | None = None) -> Profile:
    """The profile, with what is known of where it was measured.

    Raises
    ------
    FlextraceError
        A point could not be measured.
    """
    exploration = Exploration(settings, measure)
    exploration.run()
    return replace(exploration.profile(), environment=environment or {})


def add_points(profile: Profile, measure: Measure, effort: Effort) -> list[Point]:
    """What is measured beyond the profile's points, until it has `Effort.points` of them."""
    generator = random.Random(f"more {effort.seed}")
    grown = replace(profile, measured=list(profile.measured))
    idle = 0
    while len(grown.measured) < effort.points and idle < RETRIES_WITHOUT_PROGRESS:
        chosen = most_informative(grown, generator, min(AT_ONCE, effort.points - len(grown.measured)))
        for workload in chosen:
            number = len(grown.measured) + 1
            step = Step(
                workload, "inform", effort.seconds, number=number, planned=effort.points, seed=effort.seed + number
            )
            grown.measured.append(step.label(measure(step)))
        idle = 0 if chosen else idle + 1
    return grown.measured[len(profile.measured) :]


def random_pass(profile: Profile, measure: Measure, effort: Effort, repeat: int) -> list[Document]:
    """The random workloads once, then those of table 5.2, role ``table``; with `HOST_COPY`, the host's speed then."""
    validation = plan(profile, effort.workloads, seconds=effort.seconds, seed=effort.seed, orthogonal=False)
    steps = [step for step in validation.steps if step.repeat == repeat]
    steps += [
        Step(workload, "table", effort.seconds, repeat=repeat, number=number, planned=len(TABLE_5_2), seed=effort.seed)
        for number, workload in enumerate(TABLE_5_2.values(), 1)
    ]
    return [{**step.label(measure(step)).as_document(), HOST_COPY: copy_bytes_per_s()} for step in steps]


def prediction_ms(profile: Profile) -> list[float]:
    """Wall-clock time of one prediction by the model that is used, after loading and fitting, a value per workload.

    Of workloads that were not measured: what a page cache does for those was simulated when the model was fitted.
    """
    predictor = Predictor(profile)
    generator = random.Random("prediction time")
    times = []
    for _ in range(PREDICTIONS_TIMED):
        workload = random_workload(profile, generator)
        begin = time.perf_counter()
        predictor.predict(workload)
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def profile_of(document: Document) -> Profile:
    """A profile from its document, by the one reader of profiles, which reads files."""
    with tempfile.TemporaryDirectory(prefix="flextrace-bench-predict-") as scratch:
        path = Path(scratch) / "profile.json"
        path.write_text(json.dumps(document))
        return Profile.load(path)


def grown_profile(record: Document, points: int) -> Profile:
    """A record's profile with so many points to learn from, or as many as there are; scans of storage are of them."""
    profile = profile_of(record["profile"])
    more = [Point.from_document(point) for point in record.get("more", [])]
    return replace(profile, measured=(profile.measured + more)[: points - len(cold_scans(profile))], models={})


def measure_stages(
    record: Document,
    settings: Settings,
    measure: Measure,
    effort: Effort,
    keep: Callable[[], None],
    *,
    environment: Document | None = None,
) -> None:
    """Measure what a record does not have yet.

    Parameters
    ----------
    record : dict
        Gets ``profile``, ``random 0``, ``more``, ``random 1``, ``prediction_ms`` and ``seconds`` per stage; and in
        ``host_copies`` of ``profile`` and ``more`` how fast the host copied behind each of their measurements.
    keep : callable
        Called after every stage, to save what is known.
    environment : dict, optional
        Of the profile.
    """

    def stage(name: str, make: Callable[[], Any]) -> None:
        if name in record:
            return
        begin = time.monotonic()
        record[name] = make()
        record.setdefault("seconds", {})[name] = time.monotonic() - begin
        keep()

    def beside(name: str) -> Measure:
        copies = record.setdefault("host_copies", {})[name] = []

        def measure_and_copy(step: Step) -> Point:
            point = measure(step)
            copies.append({"role": step.role, HOST_COPY: copy_bytes_per_s()})
            return point

        return measure_and_copy

    stage("profile", lambda: explore(settings, beside("profile"), environment).as_document())
    profile = profile_of(record["profile"])
    stage("random 0", lambda: random_pass(profile, measure, effort, 0))
    stage("more", lambda: [point.as_document() for point in add_points(profile, beside("more"), effort)])
    stage("random 1", lambda: random_pass(profile, measure, effort, 1))
    stage("prediction_ms", lambda: prediction_ms(grown_profile(record, effort.points)))


def names_of_models() -> list[str]:
    """Every model that a profile without an orthogonal sample can be fitted with."""
    return [name for name in MODELS if name != "orthogonal"]
