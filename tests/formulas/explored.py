# SPDX-License-Identifier: Apache-2.0
"""Turns a synthetic storage machine into its profile and a table of how far every model is off on it."""

from __future__ import annotations

import random

import numpy as np

from characterize.workload import Workload
from selfscale.explore import Exploration
from selfscale.exploring.plan import Settings
from selfscale.exploring.sampling import random_workload
from selfscale.models import make_model
from selfscale.models.measured import region_of
from selfscale.profile import Profile
from selfscale.profiles.learned_points import learnable
from tests.formulas.synthetic_storage import StorageMachine


def explored(machine: StorageMachine, budget_s: float, seed: int = 1) -> Profile:
    """The machine's profile."""
    exploration = Exploration(Settings(machine.cache_bytes, budget_s, 2, seed), machine.measure)
    exploration.run()
    return exploration.profile()


def unseen(profile: Profile, count: int, seed: int = 99) -> list[Workload]:
    """Random workloads that no exploration draws."""
    generator = random.Random(seed)
    return [random_workload(profile, generator) for _ in range(count)]


def relative_errors(name: str, profile: Profile, machine: StorageMachine, workloads: list[Workload]) -> np.ndarray:
    """|predicted - true| / true of a model that was fitted to the profile, shape (n,)."""
    model = make_model(name).fit(learnable(profile.measured), profile.regions)
    predicted = model.predict(workloads)["throughput_bytes_per_s"].to_numpy()
    true = np.array([machine.throughput(workload) for workload in workloads])
    return np.abs(predicted - true) / true


def regions_of(profile: Profile, workloads: list[Workload]) -> np.ndarray:
    """Region of every workload, shape (n,)."""
    return np.array([region_of(profile.regions, workload.unique_bytes) for workload in workloads])
