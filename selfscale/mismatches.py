# SPDX-License-Identifier: Apache-2.0
"""Turns an application and a profile into what to be warned of: where they do not go together."""

from __future__ import annotations

import os

from characterize.units import format_bytes
from selfscale.access import Access
from selfscale.application import Application
from selfscale.comparison import same_limit
from selfscale.predict import Predictor
from selfscale.profile import Profile
from selfscale.steadiness import REMEDY, WARNED_SHARE, unsteady
from selfscale.storage import storage_times
from selfscale.uncached import knows_device


def mismatches(application: Application, path: str | os.PathLike[str], predictor: Predictor) -> list[str]:
    """What a profile, read from `path`, cannot say of an application."""
    profile = predictor.profile
    warnings = []
    if profile.lacks:
        warnings.append(f"profile {path} {profile.lacks}")
    if (found := unsteady(profile.measured)).above(WARNED_SHARE):
        warnings.append(f"profile {path}: {found} that predictions rest on were not steady; {REMEDY}")
    access = Access.of(profile.settings)
    storage_known = storage_times(profile.storage) is not None
    simulated = application.operations is not None and knows_device(predictor) and storage_known
    texts = access.contradictions(application.extended, simulated=simulated)
    warnings += [f"profile {path}: {text}" for text in texts]
    if application.operations is None:
        return warnings
    if knows_device(predictor) and not storage_known and not access.stable:
        warnings.append(
            f"profile {path} does not say what storage takes, so the operations of the trace are not simulated; "
            "measure it again with 'flextrace scale --budget 100s' or more"
        )
    if profile.knee:
        warnings.append(
            f"profile {path} was measured around a knee, which tells no region beyond the cache: cold reads are "
            "predicted as cached ones, and the operations of the trace are not simulated; measure one with "
            "'flextrace scale --focal middle'"
        )
    return warnings


def other_memory(application: Application, path: str | os.PathLike[str], recorded_on: Profile) -> list[str]:
    """Whether the machine that an application was recorded on had other memory than its profile, read from `path`."""
    limits = [application.memory_limit_bytes, recorded_on.environment.get("memory_limit_bytes")]
    if same_limit(*limits):
        return []
    texts = [format_bytes(limit) if limit else "no limit" for limit in limits]
    return [
        f"the application was recorded with {texts[0]} of memory, {path} was measured with {texts[1]}: they are not "
        "the same machine; record it again with that 'record --memory'"
    ]
