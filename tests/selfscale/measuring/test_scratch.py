# SPDX-License-Identifier: Apache-2.0
"""Where files go that are gone with a replay or a measurement: memory if it has plenty, nowhere without room."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.layout import FileType, IoFlag
from characterize.stream import open_stream
from flextrace.main import main
from selfscale.measuring import scratch
from selfscale.measuring.scratch import device_trace_bytes, recording_bytes, scratch_directory
from tests.machines.block_device import loop_device
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import needs_engine

pytest_plugins = ["tests.machines.small_file_system"]

READS = 19_997


def direct_reads(path: Path, file_type: FileType = FileType.REGULAR) -> Path:
    """A trace of reads by O_DIRECT, each of which is a request to the device."""
    io = [
        read(4096 * (at * 7919 % 1024), 4096, 1 + 10 * at, 5, flags=IoFlag.DIRECT, thread=1 + at % 2)
        for at in range(READS)
    ]
    return characterize.write(made_trace(io, files=[{"file": 1, "type": file_type, "size_bytes": 4 << 20}]), path)


def available_bytes() -> int:
    """Of memory, by free(1)'s source."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def test_memory_takes_what_is_small_and_the_disk_the_rest():
    assert scratch_directory(1 << 20, "it") == Path("/dev/shm")
    room = min(shutil.disk_usage("/dev/shm").free, available_bytes())
    assert scratch_directory(room // 6, "it") == Path(tempfile.gettempdir())


def test_too_little_room_is_told_with_what_helps(small_file_system, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(small_file_system))
    with pytest.raises(FlextraceError) as caught:
        scratch_directory(1 << 40, "the recording", ", or give a name")
    words = f"the recording takes about 1 TiB, {small_file_system} has 4 MiB: set TMPDIR to a directory with more"
    assert str(caught.value) == f"{words}, or give a name"


@needs_engine
@pytest.mark.records
def test_a_recording_is_estimated_before_anything_is_laid_out(tmp_path, small_file_system, capsys, monkeypatch):
    trace, image = direct_reads(tmp_path / "t.iotrace"), tmp_path / "image"
    monkeypatch.setattr(scratch, "MEMORY_SHARE", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(small_file_system))
    assert main(["replay", str(trace), "--directory", str(image), "--record"]) == 1
    assert "--record REPLAY.iotrace" in capsys.readouterr().err
    assert not image.exists()
    assert list(small_file_system.iterdir()) == []
    kept = tmp_path / "kept.iotrace"
    main(["replay", str(trace), "--directory", str(image), "--record", str(kept)])
    taken = kept.stat().st_size
    assert 64 * READS < taken <= recording_bytes(trace) < 8 * taken


def test_a_copy_for_a_device_takes_no_more_than_its_operations(tmp_path):
    trace = direct_reads(tmp_path / "t.iotrace")
    assert device_trace_bytes(open_stream(trace)) == 4096 + 64 * (1 + READS)


@pytest.mark.root
def test_a_trace_for_a_device_is_not_begun_where_it_has_no_room(tmp_path, small_file_system, capsys, monkeypatch):
    monkeypatch.setattr(scratch, "MEMORY_SHARE", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(small_file_system))
    (small_file_system / "most").write_bytes(bytes(3 << 20))
    with loop_device(tmp_path / "disk", 8 << 20) as device:
        words = ["replay", direct_reads(tmp_path / "t.iotrace", FileType.BLOCK_DEVICE), "--device", device.path]
        assert main(list(map(str, words))) == 1
        said = capsys.readouterr().err
        assert "the trace as it runs on the device takes about 1.2" in said
        assert "set TMPDIR" in said
        (small_file_system / "most").unlink()
        assert main(list(map(str, words))) == 0
    assert list(small_file_system.iterdir()) == []
