# SPDX-License-Identifier: Apache-2.0
"""Turns an application and a profile into what to be warned of: where they do not go together."""

from __future__ import annotations

import os
from collections.abc import Mapping

from characterize.units import format_bytes
from selfscale.measuring.environment import same_limit
from selfscale.predict import Predictor, predictor_of
from selfscale.predicting.application import Application
from selfscale.predicting.estimates import not_recorded
from selfscale.predicting.no_simulation import no_simulation
from selfscale.predicting.uncached import knows_device
from selfscale.profile import Profile
from selfscale.profiles.steadiness import unsteadiness
from selfscale.profiles.table_profile import known_settings


def mismatches(application: Application, path: str | os.PathLike[str], predictor: Predictor) -> list[str]:
    """What a profile, read from `path`, cannot say of an application."""
    profile = predictor.profile
    warnings = []
    if profile.lacks:
        warnings.append(f"profile {path} {profile.lacks}")
    if found := unsteadiness(profile.measured):
        warnings.append(f"profile {path}: {found}")
    access = profile.access
    nothing = no_simulation(predictor)
    simulated = application.operations is not None and nothing is None
    texts = access.contradictions(application.extended, simulated=simulated)
    warnings += [f"profile {path}: {text}" for text in texts]
    if application.operations is None or nothing is None or profile.table:
        return warnings
    lost = "the operations of the trace are not simulated"
    if access.cached and not knows_device(predictor):
        lost = f"cold reads are predicted as cached ones, and {lost}"
    return [*warnings, f"profile {path} {nothing.reason}: {lost}; {nothing.remedy}"]


def recorded_machine(
    application: Application,
    profile: Profile,
    path: str | os.PathLike[str],
    model: str,
    settings: Mapping[str, float],
) -> tuple[Predictor, list[str]]:
    """The machine that an application was recorded on, by its profile, and what that cannot say of the application.

    Raises
    ------
    FlextraceError
        How the application ran was not recorded, or the profile has not what the model needs.
    """
    if application.times is None:
        raise not_recorded(application.why_no_times)
    predictor = predictor_of(path, profile, model, known_settings(profile, settings))
    return predictor, mismatches(application, path, predictor) + _other_memory(application, path, profile)


def _other_memory(application: Application, path: str | os.PathLike[str], recorded_on: Profile) -> list[str]:
    """Whether the machine that an application was recorded on had other memory than its profile, read from `path`."""
    limits = [application.memory_limit_bytes, recorded_on.environment.get("memory_limit_bytes")]
    if same_limit(*limits):
        return []
    texts = [format_bytes(limit) if limit else "no limit" for limit in limits]
    return [
        f"the application was recorded with {texts[0]} of memory, {path} was measured with {texts[1]}: they are not "
        "the same machine; record it again with that 'record --memory'"
    ]
