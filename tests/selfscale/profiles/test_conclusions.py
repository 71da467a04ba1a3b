# SPDX-License-Identifier: Apache-2.0
"""What is concluded from a profile, as numbers and as sentences, on machines whose properties are known."""

import json
import math

import pytest

from characterize.workload import FIELD_OF, Workload
from selfscale.explore import Exploration
from selfscale.exploring.plan import Settings
from selfscale.measure import Point
from selfscale.profile import Profile, Region
from selfscale.profiles.conclusions import (
    GAIN,
    LOSS,
    NONE,
    UNCLEAR,
    benefit,
    conclude,
    file_cache_bytes,
    record_findings,
)
from selfscale.reporting.findings import findings
from selfscale.reporting.machine_report import machine_section
from selfscale.reporting.strengths import strengths
from tests.formulas.direction_machine import MIB, DirectionMachine

pytest_plugins = ["tests.formulas.only_curves"]
pytestmark = [pytest.mark.parallel, pytest.mark.usefixtures("only_curves")]

FOCAL = Workload(64 * MIB, 0.5, 0.5, 32768.0, 1.0)


def profile_of(machine, budget_s=180.0):
    exploration = Exploration(Settings(128 * MIB, budget_s, 2), machine.measure)
    exploration.run()
    return exploration.profile()


def curve_of(parameter, values, half_width=0.02, steady=True):
    """A profile of one region with one curve: throughputs by values of the parameter."""
    points = [
        Point(FOCAL.replace(**{FIELD_OF[parameter]: float(x)}), rate, half_width * rate, steady=steady)
        for x, rate in values.items()
    ]
    return Profile(measured=points, regions=[Region(10 * MIB, 128 * MIB, FOCAL)])


def benefit_of(parameter, values, **more):
    profile = curve_of(parameter, values, **more)
    return benefit(profile, profile.curve(parameter, 0))


def test_most_of_the_benefit_is_at_the_smallest_value_with_nine_tenths_of_the_best():
    one = benefit_of("sizeMean", {4096: 10.0, 16384: 35.0, 32768: 63.0, 65536: 70.0, 131072: 69.0})
    assert (one.verdict, one.factor, one.to, one.most_at, one.rising) == (GAIN, 7.0, 65536, 32768, False)
    # Of two values with 2 % each: exp(sqrt(2) * 2 %).
    assert one.high / one.factor == pytest.approx(math.exp(math.sqrt(2) * 0.02))
    rising = benefit_of("sizeMean", {4096: 10.0, 16384: 35.0, 32768: 63.0, 65536: 100.0})
    assert (rising.most_at, rising.rising) == (65536, True)


@pytest.mark.parametrize(
    ("values", "half_width", "verdict"),
    [
        ({0: 10.0, 0.5: 12.0, 1: 20.0}, 0.02, GAIN),
        ({0: 20.0, 0.5: 12.0, 1: 10.0}, 0.02, LOSS),
        ({0: 10.0, 0.5: 12.0, 1: 11.0}, 0.02, NONE),
        # Nearly the same, but for all that is known one may be twice the other.
        ({0: 10.0, 0.5: 12.0, 1: 11.0}, 0.5, UNCLEAR),
        ({0: 10.0, 0.5: 12.0, 1: 10.0}, math.inf, UNCLEAR),
        ({0: 10.0, 0.5: 12.0, 1: 13.0}, 0.3, UNCLEAR),
        # Without an interval a factor of two is nothing certain, but a hundred is.
        ({0: 10.0, 0.5: 12.0, 1: 20.0}, math.inf, UNCLEAR),
        ({0: 10.0, 0.5: 12.0, 1: 1000.0}, math.inf, GAIN),
    ],
)
def test_a_difference_counts_if_it_is_larger_than_its_uncertainty(values, half_width, verdict):
    assert benefit_of("seqFrac", values, half_width=half_width).verdict == verdict


def test_curves_without_both_ends_tell_no_benefit():
    assert benefit_of("readFrac", {0: 10.0, 0.5: 12.0}) is None
    assert benefit_of("processNum", {1: 10.0}) is None


def test_best_value_may_be_the_smallest():
    one = benefit_of("processNum", {1: 20.0, 2: 15.0, 4: 10.0})
    assert (one.verdict, one.factor, one.low, one.high, one.most_at) == (NONE, 1.0, 1.0, 1.0, 1)


def test_findings_of_a_machine_with_caches_apart_are_data_and_text(tmp_path):
    profile = profile_of(DirectionMachine(113 * MIB, 37 * MIB))
    record_findings(profile)
    document = json.loads(profile.save(tmp_path / "p.json").read_text())["findings"]
    assert document["caches_differ"]
    assert document["cache_bytes"]["read"]["effective"] == pytest.approx(113 * MIB, rel=0.15)
    assert document["cache_bytes"]["write"]["effective"] == pytest.approx(37 * MIB, rel=0.15)
    assert document["write_policy"]["kind"] == "write-cancelling"
    assert len(document["benefits"]["seqFrac"]) == len(profile.regions)
    assert Profile.load(tmp_path / "p.json").findings == profile.findings
    text = "\n".join(findings(profile))
    assert "File cache: larger for reads than for writes" in text
    assert "Write policy: write-cancelling" in text
    assert "  - Sequential access: " in text
    assert set(strengths(conclude(profile))) <= set(machine_section(profile).sentences)


def test_the_file_cache_is_that_of_reads_also_where_nobody_looked_for_that_of_writes():
    """A budget that ends there: the first border is the limit on what is dirty."""
    profile = profile_of(DirectionMachine(113 * MIB, 37 * MIB))
    profile.measured = [point for point in profile.measured if point.workload.read_frac > 0]
    assert profile.boundaries_bytes[0] == pytest.approx(37 * MIB, rel=0.2)
    assert file_cache_bytes(profile) == pytest.approx(113 * MIB, rel=0.06)


def test_borders_near_the_cache_are_not_told_as_others():
    profile = profile_of(DirectionMachine(113 * MIB, 37 * MIB))
    profile.boundaries_bytes = [37.0 * MIB, 113.0 * MIB, 121.0 * MIB]
    assert "also falls at 37 MiB." in findings(profile)[0]


def test_write_through_is_said():
    text = "\n".join(strengths(conclude(profile_of(DirectionMachine(128 * MIB, 0)))))
    assert "Write policy: write-through" in text
    assert "no such fall was found for writes (they go to storage anyway)" in text
    assert "goes to storage, however often it is written" in text


@pytest.mark.parametrize("access", [{"sync_frac": 1.0}, {"dsync": True}])
@pytest.mark.parametrize("write_cache_bytes", [0, 128 * MIB])
def test_syncs_of_the_workloads_are_not_taken_for_a_policy_of_the_machine(access, write_cache_bytes):
    profile = profile_of(DirectionMachine(128 * MIB, write_cache_bytes))
    profile.settings = {"access": access, "stop_rule": "raidperf"}
    record_findings(profile)
    assert profile.findings["write_policy"]["kind"] == "synced"
    text = "\n".join(findings(profile))
    assert "Write policy: not told, the workloads have what they write made stable themselves: at uniqueBytes" in text
    assert "write-through" not in text
    assert "write-cancelling" not in text
    conditions = [
        "Measured with O_DSYNC on every write: throughput is with the time until what was written is stable."
        if "dsync" in access
        else "Measured with an fdatasync behind every write: throughput is with the time until what was written is "
        "stable.",
        "Points were measured until the raidperf rule was met, which cuts no transient off.",
    ]
    assert all(sentence in text for sentence in conditions)
    assert set(conditions) <= set(machine_section(profile).sentences)
    assert findings(profile)[0].startswith("The effective size of the page cache is")
    # A fall of what is half writes may be one of their syncs.
    profile.measured = [point for point in profile.measured if point.workload.read_frac < 1]
    assert findings(profile)[0].startswith("Throughput falls at uniqueBytes of")
    assert findings(profile)[0].endswith("no fall of reads alone was measured.")


def test_one_cache_and_what_is_not_counted_are_said():
    text = "\n".join(strengths(conclude(profile_of(DirectionMachine(128 * MIB, 128 * MIB, counts_traffic=False)))))
    assert "no certain difference between reads and writes" in text
    assert "probably write-cancelling" in text
    assert "not counted here" in text


def test_nothing_is_said_of_a_cache_that_took_no_part():
    profile = profile_of(DirectionMachine(0, 0), budget_s=60.0)
    profile.settings = {"access": {"mode": "direct"}}
    text = "\n".join(strengths(conclude(profile)))
    assert "cache" not in text.lower()
    assert "Write policy" not in text
    assert "Sequential access: " in text


def test_a_profile_of_an_older_version_is_read_and_concluded_from(tmp_path):
    profile = profile_of(DirectionMachine(128 * MIB, 128 * MIB))
    document = profile.as_document()
    del document["findings"]
    focal = [region["focal"]["uniqueBytes"] for region in document["regions"]]
    document["points"] = [
        point
        for point in document["points"]
        if point["role"] != "direction" or point["workload"]["uniqueBytes"] in focal
    ]
    (tmp_path / "old.json").write_text(json.dumps(document))
    old = Profile.load(tmp_path / "old.json")
    assert old.findings == {}
    text = "\n".join(findings(old))
    assert "What this machine is good at" in text
    assert "Write policy: write-cancelling" in text  # the ends of the readFrac curves say it


def test_curves_with_few_or_unsteady_values_are_marked_and_nothing_is_said_of_nothing():
    profile = curve_of("seqFrac", {0: 10.0, 1: 30.0}, steady=False)
    text = "\n".join(strengths(conclude(profile)))
    assert "3 times as fast as random access" in text
    assert "[only 2 values measured, 2 of 2 values not steady]" in text
    for empty in (Profile(), curve_of("seqFrac", {0.5: 10.0})):
        text = "\n".join(strengths(conclude(empty)))
        assert "File cache: none was found" in text
        assert "Sequential access: not measured" in text
        assert "Repeatability: not known" in text
