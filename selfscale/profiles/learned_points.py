# SPDX-License-Identifier: Apache-2.0
"""Turns what a profile holds into the points that its models learn from.

Besides what was explored these are the scans among the probes of storage. They begin with nothing cached, and a scan of
a file larger than an LRU cache never finds any of it there, so that they are a corner of the space of workloads,
and one that applications come to often: without them such reads of large files were predicted too slow
(docs/decisions/0016-models-and-their-choice.md). What reads at random would find a part of such a file cached, so those
probes say nothing of any uniqueBytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from selfscale.measure import Point
from selfscale.profile import Profile
from selfscale.profiles.conclusions import file_cache_bytes

BEYOND_MIN = 1.5
"""Times the size of the file cache: less than that a scan of the same file again may find a part of cached."""


def learnable(points: Sequence[Point]) -> list[Point]:
    """Points that models are fitted to: all but the random workloads, which are there to tell the error."""
    return [point for point in points if point.role != "random"]


def cold_scans(profile: Profile) -> list[Point]:
    """Probes of storage that say how fast one of the workloads is: scans of files that no cache holds."""
    cache_bytes = file_cache_bytes(profile)
    if cache_bytes is None:
        return []
    scans = [point for point in profile.storage if point.parameter == "scan"]
    return [point for point in scans if point.workload.unique_bytes >= BEYOND_MIN * cache_bytes]


def learned_points(profile: Profile) -> list[Point]:
    """What the profile's models are fitted to, the scans behind the points."""
    return [*learnable(profile.measured), *cold_scans(profile)]
