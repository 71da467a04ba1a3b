# SPDX-License-Identifier: Apache-2.0
"""The verb scale: refusals, progress, interruption and resuming, on a machine that is a formula."""

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
from collections import namedtuple

import pytest

from characterize.errors import FlextraceError
from flextrace.main import main
from flextrace.runs import measuring
from selfscale.exploring.sampling import random_workload
from selfscale.measuring.storage import probes
from selfscale.profile import Profile
from tests.formulas.synthetic_machine import MIB, Machine

pytestmark = pytest.mark.parallel


@pytest.fixture
def place(tmp_path):
    (tmp_path / "d").mkdir()
    return tmp_path


@pytest.fixture
def formula(monkeypatch):
    """The verb on a machine that is a formula with a cache of 128 MiB; a list collects what was measured."""
    machine = Machine([(128 * MIB, 500e-6)])
    interrupt_at = []

    def step(request):
        if len(machine.measured) in interrupt_at:
            interrupt_at.clear()
            signal.raise_signal(signal.SIGTERM)
        return machine.measure(request)

    monkeypatch.setattr("selfscale.measuring.environment.cache_limit_bytes", lambda limit: 128 * MIB)
    monkeypatch.setattr(
        measuring,
        "lay_out",
        lambda settings, image, say, **budget: (image / "f1").write_text("") or machine.laying_out_s,
    )
    monkeypatch.setattr(measuring, "age_cache", lambda *arguments, **options: 0.0)
    monkeypatch.setattr(measuring, "measure_in", lambda *of, **stopping: step)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: namedtuple("Usage", "free")(1 << 50))
    machine.interrupt_at = interrupt_at
    machine.laying_out_s = 1.5
    return machine


@pytest.fixture
def unscored(monkeypatch):
    """No model is scored, which takes longer than all else."""
    monkeypatch.setattr("selfscale.predict.record_scores", lambda profile: None)


@pytest.fixture
def drawn(unscored, monkeypatch):
    """No model is fitted to choose workloads: what it finds may differ in its last digits from one time to the next."""
    monkeypatch.setattr(
        "selfscale.exploring.informative.most_informative",
        lambda profile, generator, count: [random_workload(profile, generator) for _ in range(count)],
    )


@pytest.fixture
def quick(unscored, monkeypatch):
    """No model is fitted: neither to choose workloads nor to be scored."""
    monkeypatch.setattr("selfscale.exploring.informative.most_informative", lambda profile, generator, count: [])
    monkeypatch.setattr("selfscale.measuring.access.direct_block_bytes", lambda directory: 4096)


def command(place, *more):
    return ["scale", "--directory", str(place / "d"), "-o", str(place / "p.json"), "--budget", "120s", *more]


def test_profile_is_complete_and_nothing_else_is_left(place, formula, capsys):
    assert main(command(place)) == 0
    assert sorted(path.name for path in place.iterdir()) == ["d", "p.json"]
    assert list((place / "d").iterdir()) == []
    profile = Profile.load(place / "p.json")
    assert profile.complete
    assert profile.boundaries_bytes == [pytest.approx(128 * MIB, rel=0.15)]
    assert profile.settings["budget_s"] == 120
    assert profile.environment["kernel"]
    assert profile.command[0] == "flextrace"
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if "ETA" in line or line.endswith("done")]
    assert len(lines) == len(profile.measured) + len(profile.storage)
    assert [point.parameter for point in profile.storage] == list(probes(1.0))
    assert "The effective size of the page cache is" in captured.err
    assert "What this machine is good at" in captured.err
    findings = captured.err.partition("The effective size")[2].partition("flextrace scale: next")[0]
    assert max(map(len, findings.splitlines())) < 100
    assert profile.findings["write_policy"]["kind"] == "write-cancelling"
    assert f"next: flextrace predict {place / 'p.json'} --trace" in captured.err


@pytest.mark.usefixtures("quick", "formula")
def test_a_directory_that_is_made_goes_with_its_files(place):
    assert main(["scale", "--directory", str(place / "new"), "-o", str(place / "p.json"), "--budget", "120s"]) == 0
    assert sorted(path.name for path in place.iterdir()) == ["d", "p.json"]


@pytest.mark.usefixtures("quick")
def test_a_cost_stands_in_the_profile(place, formula, capsys):
    assert main(command(place, "--cost", "1200.5")) == 0
    assert Profile.load(place / "p.json").settings["cost"] == 1200.5
    assert main(command(place, "--force", "--cost", "0")) == 2
    assert "--cost: number '0' is not understood: give one above 0" in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_laying_out_counts_to_the_budget(place, formula):
    assert main(command(place)) == 0
    profile = Profile.load(place / "p.json")
    assert profile.settings["spent_s"] == pytest.approx(
        1.5 + sum(point.cost_s for point in profile.measured + profile.storage)
    )


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("interrupt_at", [0, 1, 7, 20, 70])
def test_terminated_and_resumed(place, formula, capsys, monkeypatch, interrupt_at):
    formula.interrupt_at.append(interrupt_at)
    assert main(command(place)) == 130
    partial = Profile.load(place / "p.json")
    assert not partial.complete
    assert len(partial.measured + partial.storage) == interrupt_at
    assert list((place / "d").iterdir()) == []
    error = capsys.readouterr().err
    assert "flextrace scale --resume --directory" in error
    with monkeypatch.context() as preparing:
        preparing.setattr(
            measuring, "lay_out", lambda settings, image, say, **budget: signal.raise_signal(signal.SIGTERM)
        )
        assert main(command(place, "--resume")) == 130
    assert "the run so far is kept; continue with: flextrace scale --resume --directory" in capsys.readouterr().err
    with monkeypatch.context() as quickly:
        quickly.setattr(formula, "laying_out_s", 0.0)
        assert main(command(place, "--resume")) == 0
    resumed = Profile.load(place / "p.json")
    assert resumed.complete
    assert len(formula.measured) == len(resumed.measured + resumed.storage) > 80
    assert not (place / "p.json.points.ndjson").exists()
    assert main(command(place, "--force")) == 0
    assert Profile.load(place / "p.json").measured == resumed.measured


def test_a_failure_before_the_first_point_leaves_nothing(place, formula, capsys, monkeypatch):
    def fails(request):
        raise FlextraceError("--depth needs a whole number up to 4096", 2)

    monkeypatch.setattr(measuring, "age_cache", lambda *arguments, **options: 0.0)
    monkeypatch.setattr(measuring, "measure_in", lambda *of, **stopping: fails)
    assert main(command(place)) == 2
    assert "kept" not in capsys.readouterr().err
    assert not list(place.glob("p.json*"))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "mode",
    [
        ["--focal", "knee"],
        ["--direct"],
        ["--direct", "--span", "200M", "--depth", "4"],
        ["--sync-frac", "0.3"],
        ["--dsync"],
        ["--target", "0.07"],
        ["--stop-rule", "raidperf"],
    ],
)
def test_terminated_and_resumed_in_other_modes(place, formula, capsys, mode):
    formula.interrupt_at.append(13)
    assert main(command(place, *mode)) == 130
    assert len(Profile.load(place / "p.json").measured) == 13
    assert shlex.join(mode[-2:]) in capsys.readouterr().err
    formula.laying_out_s = 0.0
    assert main(command(place, *mode, "--resume")) == 0
    resumed = Profile.load(place / "p.json")
    assert len(formula.measured) == len(resumed.measured + resumed.storage)
    formula.laying_out_s = 1.5
    assert main(command(place, *mode, "--force")) == 0
    again = Profile.load(place / "p.json")
    assert again.measured == resumed.measured
    assert (again.knee, again.regions) == (resumed.knee, resumed.regions)
    assert bool(resumed.knee) == ("knee" in mode)
    assert resumed.settings["access"]["mode"] == ("direct" if "--direct" in mode else "buffered")
    if "--span" in mode:
        assert resumed.range_of("uniqueBytes")[1] == 200 * MIB
        assert (resumed.settings["access"]["engine"], resumed.settings["access"]["depth"]) == ("io_uring", 4)
    if "--direct" in mode:
        assert resumed.range_of("sizeMean")[0] == 4096


@pytest.mark.usefixtures("quick")
def test_resuming_in_another_mode_or_with_another_budget_is_refused(place, formula, capsys):
    formula.interrupt_at.append(3)
    assert main(command(place, "--sync-frac", "10%")) == 130
    for other, said in (
        (["--sync-frac", "0.1", "--focal", "knee"], "focal was middle, is knee"),
        (["--sync-frac", "0.2"], "sync_frac was 0.1, is 0.2"),
        (["--dsync"], "sync_frac was 0.1, is 0.0; dsync was False, is True"),
        ([], "sync_frac was 0.1, is 0.0"),
        (["--sync-frac", "0.1", "--target", "1%"], "target was 0.05, is 0.01"),
        (["--sync-frac", "0.1", "--stop-rule", "raidperf"], "stop_rule was confidence, is raidperf"),
        (["--sync-frac", "0.1", "--budget", "60s"], "budget_s was 120.0, is 60.0"),
    ):
        capsys.readouterr()
        assert main(command(place, "--resume", *other)) == 2
        assert said in capsys.readouterr().err
    assert main(command(place, "--resume", "--sync-frac", "0.1")) == 0
    assert Profile.load(place / "p.json").settings["access"]["sync_frac"] == 0.1


@pytest.mark.usefixtures("quick")
def test_points_stop_by_the_rule_that_was_asked_for_and_storage_is_not_probed_where_syncs_are_measured(
    place, formula, monkeypatch
):
    told = []

    def measure_in(*of, **stopping):
        told.append(stopping)
        return formula.measure

    monkeypatch.setattr(measuring, "measure_in", measure_in)
    assert main(command(place)) == 0
    assert Profile.load(place / "p.json").storage
    assert main(command(place, "--force", "--stop-rule", "raidperf", "--dsync")) == 0
    assert not Profile.load(place / "p.json").storage
    assert main(command(place, "--force", "--target", "3%")) == 0
    assert told == [
        {"rule": "confidence", "target": 0.05},
        {"rule": "raidperf", "target": 0.05},
        {"rule": "confidence", "target": 0.03},
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--direct", "--memory", "64M"], "--memory bounds the page cache"),
        (["--span", "64M"], "--span is for --direct and --device"),
        (["--write", "--confirm", "1"], "give --device as well"),
        (["--depth", "0"], "--depth needs a number"),
        (["--depth", "4", "--engine", "sync"], "--depth needs a number"),
        (["--device", "/dev/null"], "not allowed with"),
        (["--sync-frac=-0.1"], "give a number from 0 to 1"),
        (["--sync-frac", "1.01"], "give a number from 0 to 1"),
        (["--sync-frac", "nan"], "give a number from 0 to 1"),
        (["--sync-frac", "0.5", "--dsync"], "give one of both"),
        (["--target", "0"], "--target needs a share above 0"),
        (["--target", "nan"], "give a number from 0 to 1"),
        (["--target", "2%", "--stop-rule", "raidperf"], "and --stop-rule confidence"),
        (["--stop-rule", "lee"], "invalid choice"),
        (["--resume", "--force"], "--resume continues the interrupted run that --force forgets"),
    ],
)
def test_options_that_contradict_each_other_are_refused(place, formula, capsys, options, complaint):
    with contextlib.suppress(SystemExit):
        assert main(command(place, *options)) == 2
    assert complaint in capsys.readouterr().err
    assert formula.measured == []


@pytest.mark.usefixtures("quick")
def test_a_span_without_room_is_refused(place, formula, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: namedtuple("Usage", "free")(100 << 20))
    assert main(command(place, "--direct", "--span", "64M")) == 1
    assert "give another --span" in capsys.readouterr().err
    assert main(command(place, "--direct")) == 0
    profile = Profile.load(place / "p.json")
    # Of 1 to N processes the largest files are there: the k-th has a k-th of uniqueBytes.
    processes = int(profile.range_of("processNum")[1])
    needed = sum(profile.range_of("uniqueBytes")[1] / count for count in range(1, processes + 1))
    assert 80 * MIB < needed < 100 * MIB


@pytest.mark.usefixtures("quick")
def test_a_budget_that_is_too_small_is_exit_code_3(place, formula, capsys):
    formula.cost_s = 100.0
    assert main([*command(place), "--budget", "6s"]) == 3
    assert not Profile.load(place / "p.json").complete
    told = capsys.readouterr().err
    assert "larger --budget" in told
    assert "next:" not in told


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("disturbed", "code"), [(0.6, 0), (1.0, 3)])
def test_a_machine_that_never_becomes_steady_is_exit_code_3_and_one_that_seldom_does_is_not(
    place, formula, capsys, disturbed, code
):
    formula.disturbed = disturbed
    assert main(command(place)) == code
    profile = Profile.load(place / "p.json")
    assert profile.complete
    unsteady, points = sum(not point.steady for point in profile.measured), len(profile.measured)
    told = capsys.readouterr().err
    assert f"{unsteady} of {points} points were not steady within the time they had" in told
    assert (f"did not become steady: {unsteady} of {points} points (100%) were not" in told) == (code == 3)
    warned = f"predictions from {place / 'p.json'} carry that warning" if code else "predictions will warn that"
    assert warned in told
    assert told.splitlines()[-1].startswith("flextrace scale: next: flextrace predict") == (code == 0)
    assert unsteady > points / 2
    assert main(["rank", "--workloads", "table5.2", str(place / "p.json"), "--model", "product"]) == 0
    warned = f"{unsteady} of {points} points ({unsteady / points:.0%}) that predictions rest on were not steady"
    assert warned in capsys.readouterr().err


def test_random_workloads_that_the_budget_does_not_pay_for_leave_a_complete_profile(place, formula, capsys):
    formula.cost_s = 2.0
    assert main(command(place, "--random", "60")) == 3
    profile = Profile.load(place / "p.json")
    assert profile.complete
    again = sum(point.role == "random" and point.repeat == 1 for point in profile.measured)
    assert again < 60
    told = capsys.readouterr().err
    assert f"before more than {again} of 60 random workloads had been measured twice" in told
    assert "next: flextrace predict" in told.split("measured twice")[1]


@pytest.mark.usefixtures("quick")
def test_a_directory_that_somebody_measures_in_is_left_alone(place, formula, capsys):
    image = place / "d" / measuring.IMAGE
    image.mkdir()
    (image / "f1").write_text("theirs")
    descriptor = os.open(place / "d", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert main(command(place)) == 1
    assert f"{place / 'd'} is used by another run of flextrace: wait for it" in capsys.readouterr().err
    assert (image / "f1").read_text() == "theirs"
    assert formula.measured == []
    os.close(descriptor)
    assert main(command(place)) == 0


@pytest.mark.usefixtures("quick")
def test_image_is_kept_on_demand(place, formula):
    assert main(command(place, "--keep-image")) == 0
    assert [path.name for path in (place / "d").iterdir()] == [measuring.IMAGE]


def test_random_workloads_end_with_both_errors(place, formula, capsys):
    assert main(command(place, "--random", "5")) == 0
    used = Profile.load(place / "p.json").models["best"]
    told = capsys.readouterr().err
    assert f"On 5 random workloads the {used} model's error was" in told
    assert f"Predictions use the {used} model" in told


def test_refused_before_anything_is_measured(place, formula, capsys, monkeypatch):
    (place / "p.json").write_text("old")
    assert main(command(place)) == 2
    assert "--force" in capsys.readouterr().err
    (place / "p.json").unlink()
    (place / "p.json.points.ndjson").write_text("{}\n")
    assert main(command(place)) == 2
    assert "--resume" in capsys.readouterr().err
    (place / "p.json.points.ndjson").unlink()
    assert main(command(place, "--resume")) == 2
    assert "nothing to resume" in capsys.readouterr().err
    (place / "file").touch()
    assert main(["scale", "--directory", str(place / "file"), "-o", str(place / "p.json")]) == 2
    assert main(["scale", "--directory", str(place / "no" / "where"), "-o", str(place / "p.json")]) == 2
    assert main(["scale", "--directory", str(place / "new"), "-o", str(place / "none" / "p.json")]) == 2
    assert not (place / "new").exists()
    assert main([*command(place), "--budget", "1s"]) == 2
    image = place / "d" / measuring.IMAGE
    image.mkdir()
    capsys.readouterr()
    assert main(["scale", "--directory", str(place / "d"), "-o", str(image / "p.json")]) == 2
    assert "its directory is removed at the end" in capsys.readouterr().err
    image.rmdir()
    capsys.readouterr()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: namedtuple("Usage", "free")(100 * MIB))
    assert main(command(place)) == 1
    error = capsys.readouterr().err
    assert "100 MiB are free" in error
    assert "--memory" in error
    assert formula.measured == []
    assert list((place / "d").iterdir()) == []
