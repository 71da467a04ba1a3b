# SPDX-License-Identifier: Apache-2.0
"""Measurements that cannot clean up, or are interrupted while they do: what they have come to is told all the same."""

import os
import signal

import pytest

from characterize.errors import FlextraceError
from flextrace import scale
from flextrace.main import main
from flextrace.runs import measuring
from selfscale.profile import Profile
from tests.formulas.disturbed_scale import command
from tests.formulas.validated_machine import command as validation

pytestmark = pytest.mark.parallel
pytest_plugins = [
    "tests.formulas.disturbed_scale",
    "tests.machines.small_file_system",
    "tests.formulas.validated_machine",
]

LEFT = "cannot remove the memory group: Device or resource busy; rmdir it later"


class Group:
    """Of memory; something else is in it at the end."""

    path, end = None, FlextraceError(LEFT)

    def __init__(self, limit_bytes):
        self.limit_bytes = limit_bytes

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        raise self.end


@pytest.fixture
def stuck(monkeypatch):
    monkeypatch.setattr(scale, "MemoryGroup", Group)
    monkeypatch.setattr("flextrace.validate.MemoryGroup", Group)
    return Group


@pytest.mark.usefixtures("stuck")
def test_an_interruption_stays_one_and_how_to_go_on_is_told(tmp_path, disturbed, capsys):
    disturbed.before[5] = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert main(command(tmp_path / "d", tmp_path / "p.json", "--memory", "64M")) == 130
    told = capsys.readouterr().err
    assert LEFT in told
    assert "interrupted; continue with: flextrace scale --resume --directory" in told
    assert (tmp_path / "p.json.points.ndjson").exists()
    assert not (tmp_path / "d").exists()


@pytest.mark.usefixtures("stuck")
def test_a_failure_stays_the_first_thing_that_is_told_of_what_failed(tmp_path, disturbed, capsys):
    def fail():
        raise FlextraceError("the device is on fire")

    disturbed.before[5] = fail
    assert main(command(tmp_path / "d", tmp_path / "p.json", "--memory", "64M")) == 1
    told = capsys.readouterr().err
    assert LEFT in told
    assert told.splitlines()[-2] == "flextrace scale: the device is on fire"
    assert "continue with: flextrace scale --resume --directory" in told.splitlines()[-1]


@pytest.mark.parametrize("code", [1, 130])
@pytest.mark.usefixtures("disturbed")
def test_a_whole_profile_is_there_with_what_to_do_next(tmp_path, stuck, monkeypatch, capsys, code):
    """And nothing is left to be resumed."""
    monkeypatch.setattr(stuck, "end", FlextraceError(LEFT) if code == 1 else KeyboardInterrupt())
    assert main(command(tmp_path / "d", tmp_path / "p.json", "--memory", "64M")) == code
    told = capsys.readouterr().err
    assert "next: flextrace predict" in told
    assert told.splitlines()[-1] == f"flextrace scale: {LEFT if code == 1 else 'interrupted'}"
    assert Profile.load(tmp_path / "p.json").complete
    assert not (tmp_path / "p.json.points.ndjson").exists()


@pytest.mark.parametrize("code", [1, 130])
@pytest.mark.usefixtures("machine")
def test_a_whole_validation_is_told(place, stuck, monkeypatch, capsys, code):
    monkeypatch.setattr(measuring, "check_space", lambda *arguments: None)
    monkeypatch.setattr(stuck, "end", FlextraceError(LEFT) if code == 1 else KeyboardInterrupt())
    assert main(validation(place, "--no-orthogonal", "--memory", "64M")) == code
    told = capsys.readouterr()
    assert "error on 12 random workloads" in told.out
    assert f"every measured point is in {place / 'p-validation.json'}" in told.err
    assert told.err.splitlines()[-1] == f"flextrace validate: {LEFT if code == 1 else 'interrupted'}"
    assert not (place / "p-validation.json.points.ndjson").exists()


@pytest.mark.usefixtures("stuck")
def test_an_interrupted_validation_stays_one(place, machine, monkeypatch, capsys):
    monkeypatch.setattr(measuring, "check_space", lambda *arguments: None)
    machine.interrupt_at = 5
    assert main(validation(place, "--no-orthogonal", "--memory", "64M")) == 130
    told = capsys.readouterr().err
    assert LEFT in told
    assert "interrupted; continue with: flextrace validate --resume" in told


def test_a_directory_in_which_nothing_could_be_measured_goes_again(small_file_system, tmp_path, capsys):
    """As where it has too little room."""
    assert main(command(small_file_system / "new", tmp_path / "p.json")) == 1
    assert "are free; as root, give --memory SIZE, or take another directory" in capsys.readouterr().err
    assert os.listdir(small_file_system) == []
    assert os.listdir(tmp_path) == [small_file_system.name]


@pytest.mark.usefixtures("machine")
def test_a_directory_in_which_nothing_could_be_validated_goes_again(place, monkeypatch, capsys):
    def full(*arguments):
        raise FlextraceError("cannot measure here")

    monkeypatch.setattr(measuring, "check_space", full)
    words = validation(place, "--no-orthogonal")
    (place / "d").rmdir()
    assert main(words) == 1
    assert capsys.readouterr().err == "flextrace validate: cannot measure here\n"
    assert [path.name for path in place.iterdir()] == ["p.json"]
