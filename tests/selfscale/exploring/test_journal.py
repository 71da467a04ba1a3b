# SPDX-License-Identifier: Apache-2.0
"""Journals of measured points that were damaged: told by their place, and left as they are."""

import json
import os
import tempfile

import pytest

from characterize.errors import FlextraceError
from characterize.workload import Workload
from selfscale.exploring.journal import Journal
from selfscale.exploring.plan import Step
from tests.formulas.disturbed_scale import fill_up
from tests.formulas.synthetic_machine import MIB, Machine

pytestmark = pytest.mark.parallel
pytest_plugins = ["tests.machines.small_file_system"]

SETTINGS, MACHINE = {"seed": 1}, {"cache_bytes": 5.0, "cpus": 2, "read_only": False}


@pytest.fixture
def path(tmp_path):
    """A journal of three points."""
    journal = Journal(tmp_path / "p.json.points.ndjson", SETTINGS, MACHINE, resume=False)
    step = journal.wrap(Machine([]).measure)
    for size in (1, 2, 3):
        step(Step(Workload(size * MIB, 0.5, 0.5, 4096.0, 1.0), "curve", 1.0))
    return journal.path


def without(name):
    def change(document):
        del document[name]

    return change


@pytest.mark.parametrize(
    ("line", "change", "said"),
    [
        (0, lambda document: document.update(settings=5), "settings is no object"),
        (0, lambda document: document.update(machine=[5]), "machine is no object"),
        (0, lambda document: document["machine"].update(cache_bytes="5"), "machine has cache_bytes '5'"),
        (0, lambda document: document["machine"].update(cpus=0), "machine has cpus 0"),
        (0, lambda document: document["machine"].update(seed=1), "machine has seed, which is unknown"),
        (0, lambda document: document["machine"].pop("cpus"), "machine has no cpus"),
        (0, without("machine"), "machine"),
        (0, lambda document: document.update(host=[5]), "host is no object"),
        (0, lambda document: document["host"].update(memory_bytes="5"), "host has memory_bytes '5'"),
        (2, lambda document: document.update(steady="yes"), "point 2 has steady 'yes'"),
        (3, lambda document: document["workload"].update(readFrac=2), "point 3.workload has readFrac 2"),
        (3, without("workload"), "point 3 has no workload"),
    ],
)
def test_damage_is_told_by_its_place_and_nothing_is_cut_off(path, line, change, said):
    lines = path.read_text().splitlines()
    document = json.loads(lines[line])
    change(document)
    lines[line] = json.dumps(document)
    path.write_text("\n".join([*lines, ""]))
    before = path.read_bytes()
    with pytest.raises(FlextraceError, match="is damaged") as caught:
        Journal(path, SETTINGS, {}, resume=True, needed=["cache_bytes", "cpus"])
    assert said in str(caught.value)
    assert caught.value.exit_code == 2
    assert path.read_bytes() == before


@pytest.mark.parametrize("garbage", ["\0" * 80, "[" * 100_000, "5\n[]"])
def test_points_behind_a_line_of_garbage_are_not_thrown_away(path, garbage):
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], garbage, *lines[2:], ""]))
    before = path.read_bytes()
    with pytest.raises(FlextraceError, match="remove that line and all behind it"):
        Journal(path, SETTINGS, {}, resume=True)
    assert path.read_bytes() == before
    path.write_text("\n".join([*lines[:2], garbage.split("\n")[0] + "}"]))
    assert len(Journal(path, SETTINGS, {}, resume=True).points) == 1, "the last line was cut off"


def test_a_point_that_is_written_while_the_journal_is_read_stays(path, monkeypatch):
    """By a run that still goes on, which somebody wants to resume by mistake."""
    line = path.read_text().splitlines(keepends=True)[-1]

    def write_on(point, place):
        with path.open("a") as stream:
            stream.write(line)

    monkeypatch.setattr("selfscale.exploring.journal.check_point", write_on)
    assert len(Journal(path, SETTINGS, {}, resume=True).points) == 3
    assert len(path.read_text().splitlines()) == 1 + 3 + 3


def test_what_is_no_object_is_no_journal(path):
    path.write_text("[5]\n")
    with pytest.raises(FlextraceError, match="is not a journal"):
        Journal(path, SETTINGS, {}, resume=True)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"kernel": "6.12"}, "kernel was 6.1, is 6.12"),
        ({"cpus": 2, "memory_bytes": 8e9}, "cpus was 4, is 2; memory_bytes was 16000000000.0, is 8000000000.0"),
        ({"memory_bytes": 16.01e9}, ""),
    ],
)
def test_points_of_another_machine_are_not_gone_on_with(tmp_path, now, said):
    here = {"kernel": "6.1", "cpus": 4, "memory_bytes": 16e9}
    journal = Journal(tmp_path / "p.json.points.ndjson", SETTINGS, MACHINE, resume=False, host=here)
    before = journal.path.read_bytes()
    if not said:
        assert Journal(journal.path, SETTINGS, {}, resume=True, host=here | now).machine == MACHINE
        return
    with pytest.raises(FlextraceError, match="on another machine") as caught:
        Journal(journal.path, SETTINGS, {}, resume=True, host=here | now)
    assert said in str(caught.value)
    assert journal.path.read_bytes() == before


def test_a_journal_that_does_not_say_where_it_was_made_is_gone_on_with(path):
    """As those of before did not."""
    first, *points = path.read_text().splitlines()
    document = json.loads(first)
    del document["host"]
    path.write_text("\n".join([json.dumps(document), *points, ""]))
    assert len(Journal(path, SETTINGS, {}, resume=True, host={"kernel": "6.12"}).points) == 3


def test_a_copy_for_which_there_is_no_room_leaves_no_directory(path, small_file_system, monkeypatch):
    journal = Journal(path, SETTINGS, {}, resume=True)
    fill_up(small_file_system)
    monkeypatch.setattr(tempfile, "tempdir", str(small_file_system))
    with pytest.raises(OSError, match="No space left on device"):
        journal.copy_elsewhere()
    assert os.listdir(small_file_system) == ["filler"]
