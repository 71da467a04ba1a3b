# SPDX-License-Identifier: Apache-2.0
"""The profile document: round trip, foreign and newer files, curves among points, what is said of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from characterize.errors import FlextraceError
from characterize.workload import PARAMETERS
from selfscale.explore import Exploration
from selfscale.exploring.plan import Settings
from selfscale.measure import Point
from selfscale.measuring.access import Access
from selfscale.profile import Profile
from selfscale.reporting.findings import findings
from tests.formulas.synthetic_machine import MIB, Machine

pytestmark = pytest.mark.parallel


@pytest.fixture(scope="module")
def profile():
    exploration = Exploration(Settings(256 * MIB, 300.0, 2, random_points=3), Machine([(256 * MIB, 500e-6)]).measure)
    exploration.run()
    profile = exploration.profile()
    profile.environment = {"memory_limit_bytes": 256 * MIB, "kernel": "6"}
    profile.command = ["flextrace", "scale"]
    return profile


def test_round_trip(profile, tmp_path):
    path = profile.save(tmp_path / "p.json")
    loaded = Profile.load(path)
    assert loaded.as_document() == profile.as_document()
    assert loaded.measured == profile.measured
    assert loaded.path == path
    assert list(tmp_path.iterdir()) == [path]


def test_document_has_what_the_contract_names(profile):
    document = profile.as_document()
    assert document["schema"] == "flextrace.profile/1"
    assert {"tool_version", "command", "seed", "created", "environment", "points", "boundaries_bytes"} <= set(document)
    assert {"regions", "drift", "complete"} <= set(document)
    for point in document["points"]:
        assert set(point["workload"]) == set(PARAMETERS)
        assert point["role"] in {"explore", "curve", "reference", "direction", "inform", "random"}
        assert {"region", "parameter", "throughput_bytes_per_s", "ci95_half_width_bytes_per_s"} <= set(point)
        assert {"response_time", "steady", "seconds", "passes"} <= set(point)
    for region in document["regions"]:
        assert region["low_bytes"] < region["focal"]["uniqueBytes"] < region["high_bytes"]


def test_points_as_a_frame(profile):
    frame = profile.points
    assert len(frame) == len(profile.measured)
    assert set(PARAMETERS) <= set(frame.columns)
    assert (frame["read_mean_ns"] == 1.0).all()
    assert frame["role"].value_counts()["random"] == 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no JSON"),
        ("[1]", "some other JSON document"),
        ('{"schema": "flextrace.replay/1"}', "not a profile but flextrace.replay/1"),
        ('{"schema": "flextrace.profile/2"}', "use a newer"),
        ('{"schema": "flextrace.profile/1", "points": []}', "damaged"),
        ('{"schema": "flextrace.profile/1", "points": [1]}', "damaged"),
        ('{"schema": "flextrace.profile/1", "points": [{"workload": {}}], "boundaries_bytes": []}', "no uniqueBytes"),
    ],
)
def test_other_files_are_named(tmp_path, content, message):
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(FlextraceError, match=message):
        Profile.load(path)


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("environment", {"memory_limit_bytes": "64M"}),
        ("environment", {"memory_bytes": [1]}),
        ("drift", {"reference_points": [{"region": 0}]}),
        ("drift", {"reference_points": 5}),
        (
            "drift",
            {"reference_points": [{"region": 0, "throughput_bytes_per_s": ["x"], "spread": 0.1, "last_to_first": 0.1}]},
        ),
    ],
)
def test_damaged_parts_that_only_reports_look_at_are_told_at_once(profile, tmp_path, part, content):
    path = tmp_path / "p.json"
    path.write_text(json.dumps(profile.as_document() | {part: content}))
    with pytest.raises(FlextraceError, match="damaged"):
        Profile.load(path)


def test_missing_file(tmp_path):
    with pytest.raises(FlextraceError, match="cannot read profile"):
        Profile.load(tmp_path / "none.json")


def test_unknown_keys_of_a_later_minor_change_are_ignored(profile, tmp_path):
    document = profile.as_document()
    document["new"] = 1
    document["points"][0]["new"] = 2
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document))
    assert Profile.load(path).measured == profile.measured


def test_a_curve_holds_points_that_differ_from_the_focal_vector_in_its_parameter_only(profile):
    focal = profile.regions[1].focal
    curve = profile.curve("readFrac", 1)
    assert np.all(np.diff(curve.x) > 0)
    for value, indices in zip(curve.x, curve.indices, strict=True):
        for index in indices:
            assert profile.measured[index].workload == focal.replace(read_frac=value)
            assert profile.measured[index].role != "random"


def test_repeated_measurements_are_averaged_and_their_scatter_counts():
    exploration = Exploration(Settings(64 * MIB, 60.0), Machine([]).measure)
    exploration.run()
    profile = exploration.profile()
    focal = profile.regions[0].focal
    profile.measured = [Point(focal, 100.0, 1.0, role="reference"), Point(focal, 140.0, 1.0, role="reference")]
    curve = profile.curve("seqFrac", 0)
    assert curve.throughput.tolist() == [120.0]
    assert curve.half_width_95[0] == pytest.approx(1.96 * np.std([100, 140], ddof=1) / np.sqrt(2))


def test_findings_say_cache_size_and_what_every_parameter_brings(profile):
    text = " ".join(findings(profile))
    assert "effective size of the page cache is 2" in text
    assert "memory limit 256 MiB" in text
    for words in ("Cached region", "Disk region", "What this machine is good at", "requests of", "Sequential access"):
        assert words in text
    assert "3 random workloads" in text


def test_findings_of_a_device_call_no_region_one_of_a_cache(profile):
    text = " ".join(findings(replace(profile, settings={"access": Access("device", "/dev/x").as_document()})))
    assert "The page cache took no part" in text
    for words in ("Region 1, uniqueBytes", "Larger requests: region 1, ", "; region 2, "):
        assert words in text
    assert "ached region" not in text
    assert "isk region" not in text


def test_findings_of_a_flat_and_of_an_empty_profile():
    exploration = Exploration(Settings(64 * MIB, 60.0), Machine([]).measure)
    exploration.run()
    assert "does not fall" in findings(exploration.profile())[0]
    assert "was not measured" in findings(Profile())[0]


def test_findings_say_that_files_in_memory_have_no_device():
    assert "no device was measured" in " ".join(findings(Profile(environment={"filesystem": "tmpfs"})))
    assert "no device" not in " ".join(findings(Profile(environment={"filesystem": "ext4"})))


def test_findings_warn_of_drift_and_unsteady_points(profile):
    drifted = Profile(
        measured=[Point(profile.regions[0].focal, 1.0, 1.0, steady=False)],
        drift={
            "reference_points": [{"region": 0, "throughput_bytes_per_s": [1, 2], "spread": 0.66, "last_to_first": 1}]
        },
    )
    text = " ".join(findings(drifted))
    assert "1 of 1 points were not steady" in text
    assert "differed by 66%" in text
