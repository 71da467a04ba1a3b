# SPDX-License-Identifier: Apache-2.0
"""Scans of what is not cached, which the probes of storage measure, are learned from where they are workloads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from characterize.workload import Workload
from selfscale.explore import Exploration
from selfscale.exploring.plan import Settings
from selfscale.measure import Point
from selfscale.predict import Predictor
from selfscale.profile import Profile, Region
from selfscale.profiles.learned_points import cold_scans, learned_points
from tests.formulas.synthetic_machine import MIB, Machine

SCAN = Workload(512.0 * MIB, 1.0, 1.0, 131072.0, 1.0)
BORDER = 256 * MIB

pytestmark = pytest.mark.parallel


def probe(name: str, throughput: float = 1e9, **changes: float) -> Point:
    return Point(SCAN.replace(**changes), throughput, throughput / 50, role="storage", parameter=name)


@pytest.fixture(scope="module")
def profile() -> Profile:
    exploration = Exploration(Settings(BORDER, 120.0, 2), Machine([(BORDER, 500e-6)]).measure)
    exploration.run()
    return exploration.profile()


def test_of_the_probes_scans_of_what_no_cache_holds():
    regions = [Region(MIB, BORDER, SCAN), Region(BORDER, 1024 * MIB, SCAN)]
    kept = probe("scan")
    others = [probe("paced scan"), probe("random", seq_frac=0.0), probe("scan", unique_bytes=1.2 * BORDER)]
    explored = [Point(SCAN, 1.0, 0.0), Point(SCAN, 1.0, 0.0, role="random")]
    profile = Profile(
        measured=explored, regions=regions, boundaries_bytes=[BORDER], storage=[others[0], kept, *others[1:]]
    )
    assert cold_scans(profile) == [kept]
    assert learned_points(profile) == [explored[0], kept]
    assert cold_scans(replace(profile, boundaries_bytes=[])) == [], "the cache may be larger than what was scanned"


def test_what_counts_is_the_cache_and_not_the_last_border():
    """As on a machine whose writes fall once more behind the cache: the last border lies near what was scanned."""
    regions = [Region(MIB, BORDER, SCAN), Region(BORDER, 400 * MIB, SCAN), Region(400 * MIB, 1024 * MIB, SCAN)]
    reads = [
        Point(SCAN.replace(unique_bytes=size * MIB), speed, 0.0)
        for size, speed in ((64, 1e10), (256, 9e9), (264, 1e9), (700, 1e8))
    ]
    kept = probe("scan")
    profile = Profile(measured=reads, regions=regions, boundaries_bytes=[BORDER, 400 * MIB], storage=[kept])
    assert cold_scans(profile) == [kept]


def test_they_tell_the_speed_of_scans_and_of_little_else(profile):
    """A machine whose storage is scanned three times as fast as its points let expect."""
    before = Predictor(profile, "learned")
    expected = before.predict(SCAN).throughput_bytes_per_s
    told = replace(profile, storage=[probe("scan", 3 * expected * factor) for factor in (0.97, 1.0, 1.03)])
    after = Predictor(told, "learned")
    prediction = after.predict(SCAN)
    assert prediction.throughput_bytes_per_s == pytest.approx(3 * expected, rel=0.15)
    assert max(prediction.points_used) < len(profile.measured)
    cached = Workload(16.0 * MIB, 0.5, 0.5, 16384.0, 1.0)
    at_random = SCAN.replace(seq_frac=0.0, size_mean=4096.0)
    for workload in (cached, at_random):
        one, other = (each.predict(workload).throughput_bytes_per_s for each in (before, after))
        assert other == pytest.approx(one, rel=0.2)
