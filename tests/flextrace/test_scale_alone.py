# SPDX-License-Identifier: Apache-2.0
"""Two runs with one file for their points: the second one is refused, and nothing of the first is lost."""

import fcntl
import os
import signal
from pathlib import Path

import pytest

from flextrace.main import main
from flextrace.runs import measuring
from tests.formulas.disturbed_scale import command

pytestmark = pytest.mark.parallel
pytest_plugins = ["tests.formulas.disturbed_scale"]


def locked(path: Path) -> int:
    """A descriptor by which another run has a file."""
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def test_points_of_a_run_that_goes_on_are_left_alone(tmp_path, disturbed, capsys):
    """Also where it measures another directory, or a device, whose own lock it does not meet."""
    disturbed.before[5] = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert main(command(tmp_path / "d", tmp_path / "p.json")) == 130
    journal = tmp_path / "p.json.points.ndjson"
    before, other = journal.read_bytes(), locked(journal)
    for option in ("--resume", "--force"):
        capsys.readouterr()
        assert main(command(tmp_path / "d", tmp_path / "p.json", option)) == 1
        assert f"{journal} is used by another run of flextrace: wait for it, or choose" in capsys.readouterr().err
    assert journal.read_bytes() == before
    assert disturbed.measured == 5
    os.close(other)
    assert main(command(tmp_path / "d", tmp_path / "p.json", "--resume")) == 0


def test_a_run_has_its_journal_from_its_begin_to_its_end(tmp_path, disturbed, monkeypatch):
    """What was killed before it had written any point holds up nobody."""
    journal, refused = tmp_path / "p.json.points.ndjson", []
    journal.touch()

    def try_to_lock(*arguments, **options):
        with pytest.raises(BlockingIOError), journal.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        refused.append(True)
        return 0.0

    monkeypatch.setattr(measuring, "lay_out", try_to_lock)
    disturbed.before[3] = try_to_lock
    assert main(command(tmp_path / "d", tmp_path / "p.json")) == 0
    assert len(refused) == 2
    assert not journal.exists()
