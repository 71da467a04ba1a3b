# SPDX-License-Identifier: Apache-2.0
"""The profile of a machine that is a formula, as `scale` leaves it: with what storage takes, and its models' errors."""

from __future__ import annotations

import dataclasses

from selfscale.explore import Exploration
from selfscale.exploring.plan import Settings
from selfscale.measure import Point
from selfscale.measuring.storage import ROLE, TIMED, probes
from selfscale.predict import record_scores
from selfscale.profile import Profile
from tests.formulas.synthetic_machine import MIB, Machine

TIMES_US = {"random": 40.0, "paused": 60.0, "paused long": 90.0, "rested": 90.0, "awake": 15.0, "parallel": 55.0}
TIMES_US |= {"scan": 30.0, "paced scan": 48.0, "sync": 100.0, "sync of many": 170.0, "append sync": 300.0}
TIMES_US |= {"paused sync": 250.0, "append": 3.0, "append long": 34.0, "directory sync": 150.0}
TIMES_US |= {"behind burst": 2040.0, "overwrite": 2.5, "overwrite long": 18.0}
MB_PER_S = {"random": 90.0, "paused": 15.0, "paused long": 200.0, "rested": 0.4, "awake": 240.0, "parallel": 204.8}
MB_PER_S |= {"scan": 2048.0, "paced scan": 65.5, "sync": 8.192, "sync of many": 40.96, "append sync": 4.096}
MB_PER_S |= {"paused sync": 8.0, "append": 900.0, "append long": 3000.0, "directory sync": 20.0}
MB_PER_S |= {"behind burst": 0.3, "overwrite": 1600.0, "overwrite long": 7000.0}


def measured(name: str, **changes) -> Point:
    """The time is the probe's, whether its median or its mean counts; the other one is not to be used."""
    kind, wanted = TIMED.get(name, ("read", ("p50_ns",)))
    times = {"mean_ns": 1.0, "p50_ns": 1.0, "p999_ns": 1e6, wanted[0]: 1e3 * TIMES_US[name]}
    workload = probes(512.0 * MIB)[name]
    point = Point(workload, 1e6 * MB_PER_S[name], 0.0, {kind: times}, role=ROLE, parameter=name)
    return dataclasses.replace(point, **changes)


def unscored_profile() -> Profile:
    """With a cache of 256 MiB, and without the models' errors."""
    exploration = Exploration(Settings(256 * MIB, 90.0, 2), Machine([(256 * MIB, 500e-6)]).measure)
    exploration.run()
    return dataclasses.replace(exploration.profile(), storage=[measured(name) for name in TIMES_US])


def probed_profile() -> Profile:
    profile = unscored_profile()
    record_scores(profile)
    return profile
