# SPDX-License-Identifier: Apache-2.0
"""Measuring past the page cache, really: O_DIRECT on files, raw devices, depth, and what the device counted of it."""

import json
import os
import signal
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

import characterize
from characterize.counting.intervals import union_length
from characterize.errors import FlextraceError
from characterize.layout import RecordKind
from characterize.workload import Workload
from flextrace.main import main
from flextrace.runs import measuring
from replayer.devices.device_trace import geometry_of
from selfscale.measure import measure
from selfscale.measuring.access import Access, direct_block_bytes
from selfscale.measuring.fill import fill
from selfscale.profile import Profile
from tests.formulas.disturbed_scale import fill_up
from tests.formulas.synthetic_machine import Machine
from tests.machines.block_device import loop_device, mounted
from tests.truths.page_cache import resident_pages
from tests.truths.straced import needs_engine

pytestmark = [needs_engine, pytest.mark.root]
pytest_plugins = ["tests.formulas.brief_points", "tests.machines.small_file_system"]

MIB = 1 << 20
SIZE = 64 * MIB
SHORT = {"max_seconds": 0.5, "min_seconds": 0.2}


@pytest.fixture
def disk(tmp_path):
    with loop_device(tmp_path / "disk", SIZE) as device:
        yield device


@pytest.fixture
def files(tmp_path):
    """A directory on an ext4 of its own, and its device."""
    with loop_device(tmp_path / "disk", 4 * SIZE) as device, mounted("ext4", device, tmp_path / "mount") as place:
        yield place / "image", device


def measured(workload, place, device, access, **more):
    """A point, and bytes that the device read and wrote for it."""
    before = device.statistics()
    point = measure(workload, place, access=access, **SHORT, **more)
    after = device.statistics()
    return point, after["read_bytes"] - before["read_bytes"], after["write_bytes"] - before["write_bytes"]


def resident(image: Path) -> int:
    return sum(sum(resident_pages(path)) for path in image.glob("f*"))


def test_direct_reads_and_writes_of_files_all_reach_the_device_and_leave_the_page_cache_empty(files):
    image, device = files
    workload = Workload(16 * MIB, 0.3, 0.5, 16384.0, 2.0)
    measure(workload, image, access=Access("direct"), **SHORT)  # lays the files out
    point, read_bytes, write_bytes = measured(workload, image, device, Access("direct"), seed=1)
    assert resident(image) == 0
    for name, moved in (("read", read_bytes), ("write", write_bytes)):
        # Sizes are drawn: their mean over thousands is within a few per cent.
        assert moved == pytest.approx(point.response_time[name]["count"] * 16384, rel=0.1)
    assert point.device_frac == pytest.approx(1, abs=0.1)
    point, read_bytes, _ = measured(workload.replace(read_frac=1.0), image, device, Access(), seed=1)
    assert resident(image) * 4096 >= 16 * MIB
    assert read_bytes <= 18 * MIB < point.response_time["read"]["count"] * 16384


def test_reads_of_a_raw_device_all_reach_it_and_nothing_is_written(disk, tmp_path):
    access = Access("device", disk.path, writes=False)
    point, read_bytes, write_bytes = measured(Workload(32 * MIB, 0.3, 1.0, 16384.0, 2.0), None, disk, access)
    assert read_bytes == pytest.approx(point.response_time["read"]["count"] * 16384, rel=0.1)
    assert write_bytes == 0
    assert (tmp_path / "disk").stat().st_blocks == 0
    with pytest.raises(FlextraceError, match="--write and --confirm"):
        measure(Workload(32 * MIB, 0.3, 0.9, 16384.0, 2.0), None, access=access)


def test_depth_keeps_so_many_requests_in_flight(disk):
    def most_in_flight(depth):
        """As the kernel counts them at the device, many times a millisecond."""
        ended = threading.Event()
        seen = []

        def watch():
            while not ended.is_set():
                seen.append(sum(map(int, (disk.system_directory / "inflight").read_text().split())))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            access = Access("device", disk.path, writes=False, engine="io_uring", depth=depth)
            measure(Workload(32 * MIB, 0.0, 1.0, 65536.0, 1.0), None, access=access, **SHORT)
        finally:
            ended.set()
            watcher.join()
        return max(seen)

    # Looking for signatures, the guard reads ahead before the replay: at depth 1 those are the only ones beside it.
    assert most_in_flight(8) >= 4
    assert most_in_flight(1) <= 3


@pytest.mark.usefixtures("brief_points")
def test_a_profile_of_a_device_is_made_predicted_from_and_validated_in_its_own_mode(disk, tmp_path, capsys):
    path = tmp_path / "p.json"
    written_bytes = disk.statistics()["write_bytes"]  # a loop device goes on counting where the last file's ended
    assert main(["scale", "--device", disk.path, "-o", str(path), "--budget", "25s"]) in {0, 3}
    told = capsys.readouterr().err
    assert "The page cache took no part" in told
    assert sorted(file.name for file in tmp_path.iterdir()) == ["disk", "p.json"]
    profile = Profile.load(path)
    assert profile.settings["access"] == Access("device", disk.path, writes=False).as_document()
    assert profile.environment["device_bytes"] == SIZE
    assert profile.range_of("readFrac") == (1, 1)
    assert profile.range_of("uniqueBytes")[1] <= SIZE
    five = ["--unique-bytes", "8M", "--seq-frac", "0.5", "--read-frac", "1", "--size-mean", "16K", "--process-num", "1"]
    assert main(["predict", str(path), *five, "--format", "json"]) == 0
    assert "O_DIRECT" in json.loads(capsys.readouterr().out)["predictions"][0]["extended_note"]
    before = disk.statistics()["read_bytes"]
    options = ["--workloads", "2", "--no-orthogonal", "--max-time", "0.5"]
    assert main(["validate", str(path), *options]) == 0
    document = json.loads((tmp_path / "p-validation.json").read_text())
    reads = sum(p["response_time"]["read"]["count"] * p["workload"]["sizeMean"] for p in document["points"])
    assert disk.statistics()["read_bytes"] - before == pytest.approx(reads, rel=0.15)
    assert disk.statistics()["write_bytes"] == written_bytes


@pytest.mark.usefixtures("brief_points")
def test_the_knee_of_files_with_direct_io(files, tmp_path, capsys):
    image, _ = files
    path = tmp_path / "p.json"
    place = ["--directory", str(image.parent), "--direct", "--span", "32M"]
    assert main(["scale", *place, "--focal", "knee", "-o", str(path), "--budget", "15s", "--keep-image"]) in {0, 3}
    assert "global knee" in capsys.readouterr().err
    profile = Profile.load(path)
    assert profile.knee["ranges"]
    assert len(profile.regions) == 1
    assert profile.settings["access"]["mode"] == "direct"
    assert profile.range_of("uniqueBytes")[1] <= 32 * MIB
    assert resident(image.parent / "flextrace-scale-image") == 0


@pytest.mark.usefixtures("brief_points")
def test_writing_a_device_needs_its_confirmation(disk, tmp_path, capsys):
    command = ["scale", "--device", disk.path, "-o", str(tmp_path / "p.json"), "--budget", "5s"]
    written_bytes = disk.statistics()["write_bytes"]
    assert main([*command, "--write", "--confirm", "4711"]) == 1
    assert "does not confirm" in capsys.readouterr().err
    assert main([*command, "--write"]) == 2
    assert main([*command, "--sync-frac", "0.5"]) == 2
    assert "only read without --write" in capsys.readouterr().err
    assert main([*command, "--keep-image"]) == 2
    assert "--keep-image is for files in a directory" in capsys.readouterr().err
    assert disk.statistics()["write_bytes"] == written_bytes
    assert not (tmp_path / "p.json.points.ndjson").exists()
    assert main([*command, "--write", "--confirm", str(SIZE)]) in {0, 3}
    assert disk.statistics()["write_bytes"] > written_bytes
    capsys.readouterr()
    assert main(["validate", str(tmp_path / "p.json"), "--workloads", "1"]) == 2
    assert "give --write and --confirm" in capsys.readouterr().err


@pytest.mark.usefixtures("brief_points")
def test_a_device_is_filled_to_its_end_before_it_is_measured(disk, tmp_path, capsys):
    command = ["scale", "--device", disk.path, "-o", str(tmp_path / "p.json"), "--budget", "5s", "--fill"]
    assert main(command) == 2
    assert "give --write and --confirm" in capsys.readouterr().err
    assert (tmp_path / "disk").stat().st_blocks == 0
    access = Access("device", disk.path)
    fill(float(SIZE), access, str(SIZE), lambda text: None)
    pages = np.fromfile(tmp_path / "disk", dtype=np.uint8).reshape(-1, 4096)
    assert len(pages) == SIZE // 4096
    assert pages.any(axis=1).all()
    assert len(zlib.compress(pages[:256].tobytes())) > 0.99 * MIB
    assert main([*command, "--write", "--confirm", str(SIZE)]) in {0, 3}
    assert "writing the first 64 MiB" in capsys.readouterr().err
    assert Profile.load(tmp_path / "p.json").settings["fill"]


def test_filling_touches_every_byte_of_a_larger_device_in_two_runs(tmp_path, monkeypatch):
    """With fewer requests than Willy needs it began in the middle, and left a gap."""
    written = []

    def replay(trace, directory, **options):
        io = characterize.open(trace).arrays[RecordKind.IO]
        written.append((io["offset"].astype(np.int64), io["offset"].astype(np.int64) + io["asked_bytes"]))
        return {"operations": {"io": {"failed": 0, "short": 0}}, "errors": {}}

    monkeypatch.setattr("replayer.run.replay", replay)
    for size in (3 << 29, 1 << 30, 5 << 28, 1 << 28):
        with loop_device(tmp_path / "large", size) as device:
            fill(float(size), Access("device", device.path), str(size), lambda text: None)
        start, end = written.pop()
        assert union_length(start, end) == size
        order = np.argsort(start, kind="stable")
        assert start[order][0] == 0
        assert (end.max(), int((start[1:] != end[:-1]).sum()) <= 3) == (size, True)


def test_a_device_that_fails_writes_is_not_called_filled(disk, monkeypatch):
    """The loop device does not fail; the engine's document says that it did."""
    result = {"operations": {"io": {"failed": 2, "short": 1}}, "errors": {"EIO": 2}}
    monkeypatch.setattr("replayer.run.replay", lambda *arguments, **options: result)
    with pytest.raises(FlextraceError, match=f"cannot fill {disk.path}: of 100 writes 3 failed or were short .2 EIO"):
        fill(float(SIZE), Access("device", disk.path), str(SIZE), lambda text: None)


def test_a_device_that_begins_to_fail_ends_the_run_and_what_was_measured_is_kept(disk, tmp_path, capsys, monkeypatch):
    """A loop device answers with EIO behind the end of a file that was cut: here before the third point."""
    taken = []

    def measure_in(image, group, access, confirm=None, known=(), **stopping):
        def step(request):
            if len(taken) == 2:
                os.truncate(tmp_path / "disk", 0)
            taken.append(request)
            return measure(request.workload, image, access=access, **SHORT)

        return step

    monkeypatch.setattr(measuring, "measure_in", measure_in)
    assert main(["scale", "--device", disk.path, "-o", str(tmp_path / "p.json"), "--budget", "30s"]) == 1
    error = capsys.readouterr().err
    assert "failed or were short (" in error
    assert " EIO)" in error
    journal = tmp_path / "p.json.points.ndjson"
    assert f"is kept in {journal}; continue with: flextrace scale --resume --device {disk.path}" in error
    assert len(journal.read_text().splitlines()) == 1 + 2
    kept = Profile.load(tmp_path / "p.json")
    assert len(kept.measured) == 2
    assert not kept.complete
    assert " EIO)" in kept.ended_early


def test_a_device_in_use_is_refused_and_nothing_is_left(files, tmp_path, capsys):
    _, device = files
    assert main(["scale", "--device", device.path, "-o", str(tmp_path / "p.json"), "--budget", "5s"]) == 1
    assert "is in use" in capsys.readouterr().err
    assert not list(tmp_path.glob("p.json*"))


@pytest.mark.parametrize(("kind", "block_bytes"), [("ext4", 512), ("xfs", 512), ("btrfs", 4096)])
def test_block_size_is_what_the_file_system_takes(tmp_path, kind, block_bytes):
    """Smaller reads from btrfs succeed as well, by the page cache."""
    with loop_device(tmp_path / "disk", 400 * MIB) as device, mounted(kind, device, tmp_path / "mount") as place:
        assert direct_block_bytes(place) == block_bytes
        assert not list(place.glob(".flextrace*"))


def test_a_file_system_without_a_device_is_refused(small_file_system, tmp_path, capsys):
    command = ["scale", "--directory", str(small_file_system), "--direct", "-o", str(tmp_path / "p.json")]
    assert main(command) == 2
    assert "O_DIRECT" in capsys.readouterr().err
    assert not list(tmp_path.glob("p.json*"))


def test_a_full_directory_is_not_taken_for_one_without_direct_io(tmp_path):
    with loop_device(tmp_path / "disk", 16 * MIB) as device, mounted("ext4", device, tmp_path / "mount") as place:
        fill_up(place)
        with pytest.raises(FlextraceError, match="No space left on device; make room there"):
            direct_block_bytes(place)
        assert not list(place.glob(".flextrace*"))


def test_requests_are_whole_blocks_of_a_device_with_large_ones(tmp_path):
    with loop_device(tmp_path / "disk", SIZE, "--sector-size", "4096") as device:
        access = Access("device", device.path, writes=False)
        assert geometry_of(Path(device.path)).block_bytes == 4096
        point, read_bytes, _ = measured(Workload(16 * MIB, 0.3, 1.0, 4096.0, 3.0), None, device, access)
        assert read_bytes == pytest.approx(point.response_time["read"]["count"] * 4096, rel=0.1)


def test_a_device_interrupted_and_resumed(disk, tmp_path, monkeypatch, capsys):
    """The device is real, what is measured of it a formula."""
    machine = Machine([])

    def step(request):
        if len(machine.measured) == 5 and not (tmp_path / "p.json").exists():
            os.kill(os.getpid(), signal.SIGTERM)
        return machine.measure(request)

    monkeypatch.setattr(measuring, "measure_in", lambda *of, **stopping: step)
    monkeypatch.setattr("selfscale.exploring.informative.most_informative", lambda profile, generator, count: [])
    monkeypatch.setattr("selfscale.predict.record_scores", lambda profile: None)
    command = ["scale", "--device", disk.path, "-o", str(tmp_path / "p.json"), "--budget", "100s"]
    assert main(command) == 130
    assert f"--resume --device {disk.path}" in capsys.readouterr().err
    assert len(Profile.load(tmp_path / "p.json").measured) == 5
    assert main([*command, "--span", "32M", "--resume"]) == 2
    assert "span_bytes was None" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr("selfscale.measuring.environment.identity_of", lambda device: "another one")
        assert main([*command, "--resume"]) == 2
    assert f"disk was {tmp_path / 'disk'}, {SIZE} bytes, is another one" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0
    assert len(Profile.load(tmp_path / "p.json").measured) == len(machine.measured)
    assert {step.workload.read_frac for step in machine.measured} == {1.0}
