# SPDX-License-Identifier: Apache-2.0
"""What stays of a measurement whose file system vanishes, fills up or fails; the points are real ones."""

import os
import shutil
import subprocess

import pytest

from characterize.errors import FlextraceError
from flextrace.main import main
from flextrace.runs import measuring
from selfscale.measure import evict
from selfscale.profile import Profile
from tests.formulas.disturbed_scale import Disturbed, command, fill_up
from tests.formulas.synthetic_machine import MIB
from tests.machines.block_device import loop_device, mounted, run
from tests.truths.straced import needs_engine

pytestmark = pytest.mark.root
pytest_plugins = ["tests.formulas.brief_points"]


@pytest.fixture
def disturbed_engine(brief_points, monkeypatch):
    """What happens during the verb, with everything as it is but how long points are measured."""
    disturbed, measure_in = Disturbed(), measuring.measure_in
    monkeypatch.setattr(
        measuring, "measure_in", lambda *arguments, **stopping: disturbed.wrap(measure_in(*arguments, **stopping))
    )
    return disturbed


@pytest.fixture
def disk(tmp_path):
    with loop_device(tmp_path / "disk", 400 * MIB) as device:
        yield device


DIRECT = ("--direct", "--span", "16M", "--budget", "12s")


@needs_engine
def test_a_measured_file_system_that_vanishes(tmp_path, disk, disturbed_engine, capsys):
    """Unmounted under its users: its mount point is a directory of another file system, which nobody asked for."""
    output = tmp_path / "p.json"
    with mounted("ext4", disk, tmp_path / "mount") as place:
        disturbed_engine.before[4] = lambda: run("umount", "--lazy", place)
        assert main(command(place, output, *DIRECT)) == 1
        error = capsys.readouterr().err
        assert f"cannot measure in {place / measuring.IMAGE}: it is not there any more" in error
        assert "continue with: flextrace scale --resume --directory" in error
        assert list(place.iterdir()) == []
        kept = Profile.load(output)
        assert len(kept.measured) == disturbed_engine.measured == 4
        assert not kept.complete
        assert "not there any more" in kept.ended_early
        assert kept.environment["filesystem"] == "ext4"
        assert main(command(place, output, *DIRECT, "--resume")) == 2
        assert f"mounted was ext4 of {disk.path}, is " in capsys.readouterr().err
        run("mount", disk.path, place)
        assert main(command(place, output, *DIRECT, "--resume")) in {0, 3}
        resumed = Profile.load(output)
        assert resumed.measured[:4] == kept.measured
        assert len(resumed.measured) == disturbed_engine.measured > 4


@needs_engine
def test_a_measured_file_system_that_fills_up(tmp_path, disk, disturbed_engine, capsys):
    """On btrfs what is written again needs room, since somebody keeps a copy that shares the old."""
    output = tmp_path / "p.json"
    with mounted("btrfs", disk, tmp_path / "mount") as place:

        def fill():
            subprocess.run(["cp", "-r", "--reflink=always", place / measuring.IMAGE, place / "copy"], check=True)
            fill_up(place)

        disturbed_engine.before[4] = fill
        assert main(command(place, output, *DIRECT)) == 1
        error = capsys.readouterr().err
        told = f"cannot write to {place / measuring.IMAGE}: No space left on device; make room there, or give another"
        assert told in error
        assert "continue with: flextrace scale --resume --directory" in error
        kept = Profile.load(output)
        assert len(kept.measured) == disturbed_engine.measured >= 4
        assert "No space left on device" in kept.ended_early
        (place / "filler").unlink()
        shutil.rmtree(place / "copy")
        assert main(command(place, output, *DIRECT, "--resume")) in {0, 3}
        resumed = Profile.load(output)
        assert resumed.measured[: len(kept.measured)] == kept.measured
        assert len(resumed.measured) == disturbed_engine.measured > len(kept.measured)


def test_a_device_that_fails_while_pages_are_written_back_is_told_by_the_name_of_the_file(tmp_path):
    """It promises more than there is behind it, as thin provisioning does."""
    thin = tmp_path / "thin"
    thin.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=64M", "none", thin)
    try:
        with (
            loop_device(thin / "disk", 256 * MIB) as device,
            mounted("ext4", device, tmp_path / "mount", make_options=["-J", "size=4"]) as place,
        ):
            fill_up(thin)
            (place / "f1").write_bytes(os.urandom(MIB))
            with pytest.raises(FlextraceError, match=f"cannot write {place / 'f1'} back .*: .*(error|No space)"):
                evict(place)
            (thin / "filler").unlink()
    finally:
        run("umount", thin)
