# SPDX-License-Identifier: Apache-2.0
"""The profile of a machine that is a formula, as `scale` leaves it: with what storage takes, and its models' errors."""

from __future__ import annotations

from dataclasses import replace

from selfscale.explore import Exploration
from selfscale.exploring.plan import Settings
from selfscale.predict import record_scores
from selfscale.profile import Profile
from tests.synthetic_machine import MIB, Machine
from tests.test_storage import TIMES_US, measured


def unscored_profile() -> Profile:
    """With a cache of 256 MiB, and without the models' errors."""
    exploration = Exploration(Settings(256 * MIB, 90.0, 2), Machine([(256 * MIB, 500e-6)]).measure)
    exploration.run()
    return replace(exploration.profile(), storage=[measured(name) for name in TIMES_US])


def probed_profile() -> Profile:
    profile = unscored_profile()
    record_scores(profile)
    return profile
