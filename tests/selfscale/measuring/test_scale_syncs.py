# SPDX-License-Identifier: Apache-2.0
"""Measuring with writes that are made stable, really: how often the device was told to flush, and what it costs."""

import json

import pytest

from characterize.errors import FlextraceError
from characterize.workload import Workload
from flextrace.main import main
from replayer.run import replay
from replayer.running.confine import MemoryGroup
from selfscale.measure import measure
from selfscale.measuring.access import Access
from selfscale.measuring.point_trace import write_willy
from selfscale.profile import Profile
from tests.machines.block_device import loop_device, mounted
from tests.truths.straced import ENGINE, needs_engine, needs_strace, strace

pytest_plugins = ["tests.formulas.brief_points"]
pytestmark = [needs_engine, pytest.mark.root]

MIB = 1 << 20
PRIME = 997
STRAY_FLUSHES = 12
"""Of the journal, and of the image that is laid out and sealed."""


@pytest.fixture
def place(tmp_path):
    """A directory on an ext4 of its own, and its device."""
    with loop_device(tmp_path / "disk", 512 * MIB) as device, mounted("ext4", device, tmp_path / "mount") as directory:
        yield directory, device


@pytest.fixture
def group():
    try:
        with MemoryGroup(64 * MIB) as made:
            yield made
    except FlextraceError as error:
        pytest.skip(str(error))


@needs_strace
@pytest.mark.parametrize(("sync_frac", "syncs"), [(1.0, PRIME), (0.1, 100), (0.0, 0)])
def test_a_prime_number_of_writes_is_followed_by_as_many_syncs(place, tmp_path, sync_frac, syncs):
    directory, device = place
    write_willy(Workload(1.0 * MIB, 0.5, 0.0, 4096.0, 1.0), tmp_path / "t", PRIME, 0, sync_frac=sync_frac)
    replay(tmp_path / "t", directory, phase="prepare", keep_image=True)
    before = device.statistics()["flushes"]
    command = [str(ENGINE), str(tmp_path / "t"), "--directory", str(directory), "--phase", "run", "--order", "thread"]
    done, calls = strace(command, tmp_path / "log", "fdatasync,pwrite64")
    assert done.returncode == 0, done.stderr
    names = [call.name for call in calls if call.file.startswith("f")]
    names = names[names.index("pwrite64") :]  # before, the engine makes the file clean to read it in
    assert names.count("pwrite64") == PRIME
    assert names.count("fdatasync") == syncs
    behind = [names[at - 1] for at, name in enumerate(names) if name == "fdatasync"]
    assert set(behind) <= {"pwrite64"}
    assert syncs <= device.statistics()["flushes"] - before <= syncs + STRAY_FLUSHES
    assert json.loads(done.stdout)["response_time"]["sync"]["count"] == syncs


@pytest.mark.parametrize("access", [Access(sync_frac=1.0), Access(dsync=True), Access("direct", sync_frac=1.0)])
def test_a_point_has_the_time_of_its_syncs_in_its_throughput(place, group, access):
    directory, device = place
    workload = Workload(8.0 * MIB, 0.3, 0.5, 16384.0, 1.0)
    without = measure(workload, directory / "image", memory_group=group, max_seconds=1.0, min_seconds=0.3)
    before = device.statistics()["flushes"]
    confined = group if access.cached else None
    point = measure(
        workload, directory / "image", access=access, memory_group=confined, max_seconds=1.0, min_seconds=0.3
    )
    flushes = device.statistics()["flushes"] - before
    times = point.response_time
    writes = times["write"]["count"]
    assert writes > 50
    assert writes <= flushes + 1
    if access.sync_frac:
        assert times["sync"]["count"] in {writes, writes - 1}
        assert flushes <= writes + STRAY_FLUSHES
    moved_bytes = 16384 * (times["read"]["count"] + writes)
    assert point.throughput_bytes_per_s == pytest.approx(moved_bytes / point.elapsed_s, rel=0.25)
    assert point.throughput_bytes_per_s < without.throughput_bytes_per_s / 2
    busy_s = sum(times[name]["count"] * times[name]["mean_ns"] for name in times if times[name]["count"]) / 1e9
    assert busy_s == pytest.approx(point.elapsed_s, rel=0.2)
    assert without.response_time["sync"]["count"] == 0


@pytest.mark.usefixtures("brief_points")
def test_a_profile_with_syncs_is_made_predicted_from_and_validated_with_them(place, group, tmp_path, capsys):
    directory, device = place
    path = tmp_path / "p.json"
    scale = ["scale", "--directory", str(directory), "-o", str(path), "--memory", "24M", "--budget", "15s"]
    assert main([*scale, "--sync-frac", "0.2", "--keep-image"]) in {0, 3}
    told = capsys.readouterr().err
    assert "Measured with an fdatasync behind 0.2 of the writes" in told
    assert "write-through" not in told
    profile = Profile.load(path)
    assert profile.settings["access"]["sync_frac"] == 0.2
    for point in profile.measured:
        writes, syncs = (point.response_time[name]["count"] for name in ("write", "sync"))
        assert syncs == pytest.approx(0.2 * writes, rel=0.5, abs=8)
    five = ["--unique-bytes", "8M", "--seq-frac", "0.5", "--read-frac", "0", "--size-mean", "16K", "--process-num", "1"]
    assert main(["predict", str(path), *five, "--format", "json"]) in {0, 3}
    note = json.loads(capsys.readouterr().out)["predictions"][0]["extended_note"]
    assert "an fdatasync behind 0.2 of the writes" in note
    before = device.statistics()["flushes"]
    options = ["--workloads", "2", "--no-orthogonal", "--max-time", "0.5"]
    assert main(["validate", str(path), *options]) in {0, 3}
    points = json.loads((tmp_path / "p-validation.json").read_text())["points"]
    syncs = sum(point["response_time"]["sync"]["count"] for point in points)
    # Syncs of several processes at once may share a flush.
    processes = max(point["workload"]["processNum"] for point in points)
    assert 0 < syncs / processes <= device.statistics()["flushes"] - before
    capsys.readouterr()
    assert main(["report", str(path), "-o", str(tmp_path / "r.html")]) == 0
    assert "Measured with an fdatasync behind 0.2 of the writes" in (tmp_path / "r.html").read_text()
