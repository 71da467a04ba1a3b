# SPDX-License-Identifier: Apache-2.0
"""Turns synthetic storage machines into a table: every model's error on 300 random workloads, with equal points.

The truth is a formula (tests/formulas/synthetic_storage.py), so nothing is timed and the table is the same on every
machine. The product form also gets at least as many points, all of them on its curves, and the orthogonal sample as
many.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import numpy as np

from characterize.workload import Workload
from selfscale.explore import Exploration
from selfscale.exploring.plan import Step
from selfscale.exploring.sampling import orthogonal_sample
from selfscale.measure import Point
from selfscale.models import make_model
from selfscale.predict import Predictor
from selfscale.profile import Profile
from selfscale.profiles.learned_points import learnable
from tests.formulas.explored import explored, regions_of, unseen
from tests.formulas.synthetic_storage import DISK, RAM, SSD, StorageMachine

MACHINES = {"ssd": SSD, "disk": DISK, "memory": RAM}
WORKLOADS = 300


def main() -> None:
    """Print a line per machine and model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=200.0, metavar="SECONDS", help="of the exploration")
    parser.add_argument("--noise", type=float, default=0.04, help="of a measurement, as a share of it")
    parser.add_argument("--disturbed", type=float, default=0.02, help="share of points at 0.3 to 0.7 of the truth")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print("machine model                     points  median   75th   90th   by region")
    for name, parameters in MACHINES.items():
        machine = StorageMachine(**parameters, seed=arguments.seed, noise=arguments.noise)
        machine.disturbed = arguments.disturbed
        profile = explored(machine, arguments.budget, arguments.seed)
        workloads = unseen(profile, WORKLOADS)
        points = len(learnable(profile.measured))
        truth: dict[str, Any] = {"machine": machine, "workloads": workloads}
        curves = _curves_only(machine, arguments, points)
        for model in ("product", "utilization", "learned"):
            _line(name, model, profile=profile, points=learnable(profile.measured), **truth)
        _line(name, "product", profile=curves, points=learnable(curves.measured), note="all on curves", **truth)
        for multiple in (1, 2):
            sample = [_measured(machine, w) for _, w in orthogonal_sample(profile, multiple * points)]
            _line(name, "orthogonal", profile=profile, points=sample, note=f"x {multiple}", **truth)
        predictor = Predictor(profile)
        table = predictor.table(workloads)
        noise = np.random.default_rng(arguments.seed).normal(0, arguments.noise, WORKLOADS)
        measured = np.array([machine.throughput(workload) for workload in workloads]) * np.exp(noise)
        inside = (table["interval_low"] <= measured) & (measured <= table["interval_high"])
        print(f"{name:8}{predictor.score.model} is used; its 90 % intervals cover {inside.mean():.0%}")


def _curves_only(machine: StorageMachine, arguments: argparse.Namespace, points: int) -> Profile:
    """A profile with at least as many points, none of which was chosen off the curves."""
    share, Exploration.curves_share = Exploration.curves_share, 1.0
    try:
        profile = explored(machine, arguments.budget, arguments.seed)
        while len(learnable(profile.measured)) < points and arguments.budget < 3600:
            arguments = argparse.Namespace(**{**vars(arguments), "budget": arguments.budget * 1.2})
            profile = explored(machine, arguments.budget, arguments.seed)
        return profile
    finally:
        Exploration.curves_share = share


def _measured(machine: StorageMachine, workload: Workload) -> Point:
    return dataclasses.replace(machine.measure(Step(workload, "orthogonal", 3.0)), role="orthogonal")


def _line(
    machine_name: str,
    model_name: str,
    *,
    profile: Profile,
    points: list[Point],
    machine: StorageMachine,
    workloads: list[Workload],
    note: str = "",
) -> None:
    model = make_model(model_name).fit(points, profile.regions)
    predicted = model.predict(workloads)["throughput_bytes_per_s"].to_numpy()
    true = np.array([machine.throughput(workload) for workload in workloads])
    errors = np.abs(predicted - true) / true
    regions = regions_of(profile, workloads)
    by_region = "  ".join(f"{np.median(errors[regions == index]):6.1%}" for index in np.unique(regions))
    median, upper, high = (f"{np.quantile(errors, share):6.1%}" for share in (0.5, 0.75, 0.9))
    print(f"{machine_name:8}{f'{model_name} {note}':26}{len(points):6}  {median} {upper} {high}   {by_region}")


if __name__ == "__main__":
    main()
