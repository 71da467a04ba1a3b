# SPDX-License-Identifier: Apache-2.0
"""What stays of a measurement whose documents find no place, and of one that is interrupted again."""

import os
import shlex
import shutil
import signal
from pathlib import Path

import pytest

from flextrace.main import main
from flextrace.runs import interruption, measuring
from selfscale.profile import Profile
from tests.formulas.disturbed_scale import command, fill_up
from tests.machines.block_device import run

pytest_plugins = ["tests.formulas.disturbed_scale", "tests.machines.small_file_system"]
pytestmark = pytest.mark.parallel


def points_of(profile):
    return profile.measured + profile.storage


def test_an_interruption_of_a_compiled_function_keeps_what_was_measured(tmp_path, disturbed, capsys):
    """Which makes another error of it as it returns."""

    def interrupted():
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    disturbed.before[5] = interrupted
    assert main(command(tmp_path / "d", tmp_path / "p.json")) == 130
    assert "interrupted; continue with: flextrace scale --resume --directory" in capsys.readouterr().err
    assert len(points_of(Profile.load(tmp_path / "p.json"))) == 5


def test_what_was_measured_stays_where_another_machine_would_go_on_with_it(tmp_path, disturbed, capsys, monkeypatch):
    disturbed.before[5] = lambda: signal.raise_signal(signal.SIGTERM)
    assert main(command(tmp_path / "d", tmp_path / "p.json")) == 130
    with monkeypatch.context() as another:
        another.setattr("platform.release", lambda: "2.6.32")
        assert main(command(tmp_path / "d", tmp_path / "p.json", "--resume")) == 2
    assert ", is 2.6.32): go on where it was begun" in capsys.readouterr().err
    assert main(command(tmp_path / "d", tmp_path / "p.json", "--resume")) == 0
    assert disturbed.measured == len(points_of(Profile.load(tmp_path / "p.json")))


def test_a_signal_right_behind_another_one_does_not_interrupt_what_that_one_saves(monkeypatch):
    """So timeout(1) sends them, and a terminal that is closed."""
    saved = []

    def interrupted():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            saved.append(interruption.SAME_S)

    for same_s in (interruption.SAME_S, 0.0):
        monkeypatch.setattr(interruption, "SAME_S", same_s)
        with pytest.raises(KeyboardInterrupt), interruption.terminated_as_interrupted():
            interrupted()
    assert saved == [0.5]


def test_nohup_keeps_a_measurement_when_the_terminal_goes():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruption.terminated_as_interrupted():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_interruption_while_models_are_scored_leaves_the_profile(tmp_path, disturbed, monkeypatch, capsys):
    def interrupt(*profile):
        os.kill(os.getpid(), signal.SIGTERM)

    disturbed.before[5] = interrupt
    with monkeypatch.context() as patch:
        patch.setattr("selfscale.predict.record_scores", interrupt)
        patch.setattr(interruption, "SAME_S", 0.0)
        assert main(command(tmp_path / "d", tmp_path / "p.json")) == 130
    assert "flextrace scale --resume --directory" in capsys.readouterr().err
    kept = Profile.load(tmp_path / "p.json")
    assert len(points_of(kept)) == 5
    assert (kept.complete, kept.ended_early) == (False, "interrupted")
    assert main(command(tmp_path / "d", tmp_path / "p.json", "--resume")) == 0
    assert disturbed.measured == len(points_of(Profile.load(tmp_path / "p.json")))


def test_an_interruption_while_a_whole_profile_is_scored_leaves_it_and_what_to_do(
    tmp_path, disturbed, monkeypatch, capsys
):
    with monkeypatch.context() as patch:
        patch.setattr("selfscale.predict.record_scores", lambda profile: os.kill(os.getpid(), signal.SIGTERM))
        assert main(command(tmp_path / "d", tmp_path / "p.json")) == 130
    assert "flextrace scale --resume --directory" in capsys.readouterr().err
    kept = Profile.load(tmp_path / "p.json")
    assert kept.complete
    measured = disturbed.measured
    assert main(command(tmp_path / "d", tmp_path / "p.json", "--resume")) == 0
    assert points_of(Profile.load(tmp_path / "p.json")) == points_of(kept)
    assert disturbed.measured == measured


def test_the_command_that_is_told_goes_on_with_the_very_same_numbers(tmp_path, disturbed, capsys):
    disturbed.before[5] = lambda: os.kill(os.getpid(), signal.SIGTERM)
    more = ["--budget", "2.00000123m", "--cost", "1234567.89"]
    assert main(command(tmp_path / "d", tmp_path / "p.json", *more)) == 130
    told = capsys.readouterr().err.split("continue with: flextrace ")[1]
    assert main(shlex.split(told)) == 0
    assert Profile.load(tmp_path / "p.json").settings["cost"] == 1234567.89


@pytest.mark.parametrize("case", [("120s", 115.0, True), ("6s", 1.0, False)])
def test_what_laying_out_files_took_is_told_where_too_little_was_left(tmp_path, disturbed, monkeypatch, capsys, case):
    budget, before_s, told = case
    monkeypatch.setattr(measuring, "lay_out", lambda settings, image, say, **budget: before_s)
    assert main(command(tmp_path / "d", tmp_path / "p.json", "--budget", budget)) == 3
    error = capsys.readouterr().err
    assert ("had its ends: 1 min 55 s of it went to laying out files and ageing" in error) == told
    assert ("that took 1 min 55 s of the budget of 2 min 0 s: a larger --budget" in error) == told
    assert "predictions will be poor; use a larger --budget" in error


def test_what_laying_out_files_again_takes_counts_to_the_budget_of_a_run_that_is_resumed(
    tmp_path, disturbed, monkeypatch
):
    """Each time, and also where it was interrupted once more."""
    taken_s = iter([3.0, 20.0, 30.0])
    monkeypatch.setattr(measuring, "lay_out", lambda settings, image, say, **budget: next(taken_s))
    for points in (5, 12):
        disturbed.before[points] = lambda: os.kill(os.getpid(), signal.SIGTERM)
    command_line = command(tmp_path / "d", tmp_path / "p.json")
    assert main(command_line) == main([*command_line, "--resume"]) == 130
    assert main([*command_line, "--resume"]) in {0, 3}
    profile = Profile.load(tmp_path / "p.json")
    measured = points_of(profile)
    assert {index: point.resumed_s for index, point in enumerate(measured) if point.resumed_s} == {5: 20.0, 12: 30.0}
    assert profile.settings["spent_s"] == pytest.approx(3 + 20 + 30 + sum(point.cost_s for point in measured))
    assert profile.settings["spent_s"] <= 120 + max(point.cost_s for point in measured)


@pytest.mark.parametrize("points", [1, 5, 20])
def test_a_failure_leaves_a_profile_that_says_why_it_is_not_whole(tmp_path, disturbed, capsys, points):
    """A link that leads to itself cannot be opened: an error of the kernel with a number and a name."""

    def fail():
        (tmp_path / "link").symlink_to("link")
        (tmp_path / "link").read_bytes()

    disturbed.before[points] = fail
    assert main(command(tmp_path / "d", tmp_path / "p.json")) == 1
    error = capsys.readouterr().err
    journal = tmp_path / "p.json.points.ndjson"
    assert f"cannot read or write: [Errno 40] Too many levels of symbolic links: '{tmp_path / 'link'}'" in error
    assert f"is kept in {journal}; continue with: flextrace scale --resume --directory" in error
    kept = Profile.load(tmp_path / "p.json")
    assert len(points_of(kept)) == points
    assert not kept.complete
    assert "Too many levels" in kept.ended_early
    assert main(command(tmp_path / "d", tmp_path / "p.json", "--resume")) == 0
    whole = Profile.load(tmp_path / "p.json")
    assert points_of(whole)[:points] == points_of(kept)
    assert (whole.complete, whole.ended_early) == (True, "")
    assert disturbed.measured == len(points_of(whole))


def test_a_profile_stays_until_the_run_that_is_to_replace_it_has_a_point(tmp_path, disturbed):
    output = tmp_path / "p.json"
    output.write_text("old")
    for points in (0, 1):
        assert output.read_text() == "old"
        disturbed.measured = 0
        disturbed.before[points] = lambda: os.kill(os.getpid(), signal.SIGTERM)
        assert main(command(tmp_path / "d", output, "--force")) == 130
    assert len(points_of(Profile.load(output))) == 1


def test_a_journal_that_does_not_fit_leaves_the_better_profile(tmp_path, disturbed, capsys):
    """Of a run that was resumed, and fails before it has come to where it was."""
    disturbed.before[9] = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert main(command(tmp_path / "d", tmp_path / "p.json")) == 130
    journal = tmp_path / "p.json.points.ndjson"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([*lines[:4], lines[6], lines[5], *lines[7:]]))
    assert main(command(tmp_path / "d", tmp_path / "p.json", "--resume")) == 1
    assert "another version" in capsys.readouterr().err
    assert len(points_of(Profile.load(tmp_path / "p.json"))) == 9


@pytest.mark.root
def test_a_file_system_of_documents_that_fills_up(tmp_path, small_file_system, disturbed, capsys):
    output = small_file_system / "p.json"
    disturbed.before[5] = lambda: fill_up(small_file_system)
    assert main(command(tmp_path / "d", output)) == 1
    error = capsys.readouterr().err
    journal = small_file_system / "p.json.points.ndjson"
    assert f"cannot write {journal}: No space left on device; make room there" in error
    assert f"cannot write {output}: No space left on device; make room there" in error
    assert f"is kept in {journal}; continue with: flextrace scale --resume --directory" in error
    assert not output.exists()
    kept = sum(line.endswith("\n") for line in journal.read_text().splitlines(keepends=True)) - 1
    assert kept >= 5
    assert disturbed.measured == kept + 1  # the last one did not fit
    (small_file_system / "filler").unlink()
    assert main(command(tmp_path / "d", output, "--resume")) == 0
    assert disturbed.measured == len(points_of(Profile.load(output))) + 1


def test_a_directory_of_documents_that_vanishes(tmp_path, disturbed, capsys):
    output = tmp_path / "documents" / "p.json"
    output.parent.mkdir()
    disturbed.before[5] = lambda: shutil.rmtree(output.parent)
    assert main(command(tmp_path / "d", output)) == 1
    error = capsys.readouterr().err
    journal = output.with_name("p.json.points.ndjson")
    assert f"cannot write {journal}: No such file or directory" in error
    copy = Path(error.split("is kept in ")[1].split(";")[0])
    assert f"move it to {journal} and continue with: flextrace scale --resume --directory" in error
    output.parent.mkdir()
    shutil.move(copy, journal)
    copy.parent.rmdir()
    assert main(command(tmp_path / "d", output, "--resume")) == 0
    assert disturbed.measured == len(points_of(Profile.load(output)))


@pytest.mark.root
def test_no_journal_is_begun_below_a_mount_point_whose_file_system_vanished(
    tmp_path,
    small_file_system,
    disturbed,
    capsys,
):
    """What was written before is on the file system that went, and nothing of it where that was mounted."""
    (tmp_path / "bound").mkdir()
    run("mount", "--bind", small_file_system, tmp_path / "bound")
    output = tmp_path / "bound" / "p.json"
    disturbed.before[5] = lambda: run("umount", "--lazy", tmp_path / "bound")
    try:
        assert main(command(tmp_path / "d", output)) == 1
    finally:
        if os.path.ismount(tmp_path / "bound"):
            run("umount", "--lazy", tmp_path / "bound")
    assert "No such file or directory" in capsys.readouterr().err
    assert not (tmp_path / "bound" / "p.json.points.ndjson").exists()
    lines = (small_file_system / "p.json.points.ndjson").read_text().splitlines()
    assert len(lines) == 1 + 5
