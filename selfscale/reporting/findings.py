# SPDX-License-Identifier: Apache-2.0
"""Turns a profile into sentences: its regions, how good the measurement is, and what the machine is good at."""

from __future__ import annotations

import numpy as np

from characterize.units import format_bytes
from selfscale.measuring.stop_rule import CONFIDENCE, stopping_of
from selfscale.predicting.cross_validation import Score, quantiles_of
from selfscale.predicting.prediction_errors import REPEATABILITY, errors_of, random_workloads
from selfscale.profile import Profile
from selfscale.profiles.conclusions import conclude, file_cache_bytes
from selfscale.profiles.direction_caches import READS, direction_cache
from selfscale.profiles.regions import APART
from selfscale.reporting.strengths import region_name, strengths

MEMORY = ("tmpfs", "ramfs")
"""File systems without a device."""
DRIFT_TOLD = 0.15
"""Spread of a reference point from which on it is told."""


def findings(profile: Profile) -> list[str]:
    """What the profile says in lines of text, for people who know storage but not the thesis."""
    sentences = [_cache(profile), *conditions(profile)]
    for index, region in enumerate(profile.regions):
        name = _name(profile, index).capitalize()
        sentences.append(
            f"{name}, uniqueBytes {format_bytes(region.low_bytes)} to {format_bytes(region.high_bytes)}; measured at "
            f"{format_bytes(region.focal.unique_bytes)}, sizeMean {format_bytes(region.focal.size_mean)}, "
            f"processNum {region.focal.process_num:g}."
        )
    return sentences + _quality(profile) + strengths(conclude(profile))


def _name(profile: Profile, region: int) -> str:
    return region_name(region, len(profile.regions), cached=profile.access.cached)


def conditions(profile: Profile) -> list[str]:
    """What the throughput of all points is with, where that is not the usual."""
    access, rule = profile.access, stopping_of(profile.settings)["rule"]
    sentences = []
    if access.stable:
        sentences.append(f"Measured with {access.syncs}: throughput is with the time until what was written is stable.")
    if rule != CONFIDENCE:
        sentences.append(f"Points were measured until the {rule} rule was met, which cuts no transient off.")
    return sentences


def _cache(profile: Profile) -> str:
    limit = profile.environment.get("memory_limit_bytes")
    inside = f" (memory limit {format_bytes(limit)})" if limit else ""
    if not profile.regions:
        return "Where throughput falls with uniqueBytes was not measured."
    access = profile.access
    if not access.cached:
        sizes = ", ".join(format_bytes(size) for size in profile.boundaries_bytes)
        falls = f"falls at uniqueBytes of {sizes}" if sizes else "does not fall with uniqueBytes"
        return f"The page cache took no part; throughput {falls}."
    if not profile.boundaries_bytes:
        hidden = ", or syncs take so much longer than reads that these do not show" if access.stable else ""
        return (
            f"Throughput does not fall with uniqueBytes{inside}: either nothing is cached, or the device is as fast as "
            f"the cache, or uniqueBytes did not reach the size of the cache{hidden}."
        )
    if access.stable and direction_cache(profile.measured, profile.regions, READS) is None:
        # Half of the requests of that curve are writes, whose syncs may be slower for reasons of their own.
        sizes = ", ".join(format_bytes(size) for size in profile.boundaries_bytes)
        return (
            f"Throughput falls at uniqueBytes of {sizes}{inside}; whether the page cache ends there is not known, no "
            "fall of reads alone was measured."
        )
    cache = file_cache_bytes(profile) or 0.0
    text = f"The effective size of the page cache is {format_bytes(cache)}{inside}."
    # A border near it is where half reads and half writes leave the same cache.
    if others := [format_bytes(size) for size in profile.boundaries_bytes if not 1 / APART < size / cache < APART]:
        text += f" Throughput also falls at {', '.join(others)}."
    return text


def _quality(profile: Profile) -> list[str]:
    sentences = []
    kind = profile.environment.get("filesystem")
    if kind in MEMORY:
        sentences.append(f"The files lay in memory ({kind}): no device was measured.")
    unsteady = sum(not point.steady for point in profile.measured)
    if unsteady:
        sentences.append(
            f"{unsteady} of {len(profile.measured)} points were not steady within the time they had: "
            "a larger --budget makes them better."
        )
    for entry in profile.drift.get("reference_points", []):
        if entry["spread"] > DRIFT_TOLD:
            sentences.append(
                f"The reference point of the {_name(profile, entry['region'])} was measured "
                f"{len(entry['throughput_bytes_per_s'])} times and differed by {entry['spread']:.0%}: "
                "the machine was not quiet, or its device changes with use."
            )
    return sentences + _models(profile) + _on_random_workloads(profile)


def _on_random_workloads(profile: Profile) -> list[str]:
    """How far off predictions of them were, if there are any, and their second measurements."""
    if not profile.complete or not random_workloads(profile.measured)[0]:
        return []
    errors = errors_of(profile, used_only=True)
    own, repeated = (errors.of(name)["error"].to_numpy() for name in (errors.used, REPEATABILITY))
    if not len(own):
        return []
    again = "none was measured twice"
    if len(repeated):
        again = f"measuring them twice differed by {np.median(repeated):.0%} (median)"
    quantiles = quantiles_of(own)
    return [
        f"On {len(own)} random workloads the {errors.used} model's error was {quantiles['median']:.0%} (median), "
        f"{own.mean():.0%} (mean), {quantiles['p90']:.0%} (90th percentile), {quantiles['max']:.0%} (largest); "
        f"{again}."
    ]


def _models(profile: Profile) -> list[str]:
    """The cross-validated errors that the profile carries."""
    scores = [Score.from_document(score) for score in profile.models.get("scores", [])]
    usable = [score for score in scores if score.usable]
    if not usable:
        return []
    errors = ", ".join(f"{score.model} {score.errors['median']:.0%}" for score in usable)
    return [
        f"Predictions use the {profile.models['best']} model; median errors on {usable[0].count} workloads that were "
        f"left out of the fit: {errors}."
    ]
