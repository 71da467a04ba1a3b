# SPDX-License-Identifier: Apache-2.0
"""A replay that has come to its result tells it, whatever fails or is interrupted afterwards."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import characterize
from characterize.layout import HeaderFlag
from flextrace.main import main
from selfscale.profile import Profile
from tests.runs.running_replay import children, playing, slow, started, wait_until
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ROOT, needs_engine

pytest_plugins = ["tests.machines.small_file_system"]
pytestmark = needs_engine

READS = 10_007


def reads(path: Path, count: int = READS) -> Path:
    """A trace of reads of one cached file."""
    io = [read(4096 * (at % 256), 4096, 1 + 10 * at, 5) for at in range(count)]
    return characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 1 << 20}]), path)


def recorded(trace: Path, image: Path, *options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flextrace", "replay", trace, "--directory", image, "--record", *options]
    return subprocess.run(
        [*map(str, command), "--format", "json"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_hash_is_that_of_the_trace_as_it_was_before_the_replay(tmp_path):
    """So that nothing is hashed between the end of the replay and its result."""
    trace, image = slow(tmp_path / "slow.iotrace"), tmp_path / "image"
    before = hashlib.sha256(trace.read_bytes()).hexdigest()
    process = started(trace, image, "--timing", "think", "--format", "json")
    wait_until(lambda: playing(image))
    with trace.open("ab") as stream:
        stream.write(b"more")
    process.send_signal(signal.SIGINT)
    document = json.loads(process.communicate(timeout=60)[0])
    assert (process.returncode, document["stopped"]) == (130, "signal")
    assert document["trace_sha256"] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_comes_twice_is_one(tmp_path, number):
    """Of a terminal that is closed the kernel tells and the shell; timeout(1) tells the process and its group."""
    image = tmp_path / "image"
    process = started(slow(tmp_path / "slow.iotrace"), image, "--timing", "think", "--format", "json")
    wait_until(lambda: playing(image))
    for _ in range(4):
        process.send_signal(number)
        time.sleep(0.05)
    assert json.loads(process.communicate(timeout=60)[0])["stopped"] == "signal"
    assert process.returncode == 130
    assert not image.exists()


@pytest.mark.parametrize("options", [[], ["--output"]], ids=["printed", "written"])
def test_what_cannot_be_printed_is_written_and_the_reverse(tmp_path, small_file_system, options):
    trace, there = reads(tmp_path / "t.iotrace"), tmp_path / "there.json"
    fill = f"dd if=/dev/zero of={small_file_system}/full bs=4096"
    assert "No space left" in subprocess.run(fill.split(), capture_output=True, text=True, check=False).stderr
    output = there if options else small_file_system / "result.json"
    command = [sys.executable, "-m", "flextrace", "replay", trace, "--directory", tmp_path / "image", "-o", output]
    with Path("/dev/full").open("w") as nowhere:
        done = subprocess.run(
            [*map(str, command), "--format", "json"],
            cwd=ROOT,
            stdout=nowhere if options else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    document = json.loads(there.read_text() if options else done.stdout)
    assert document["operations"]["done"] == READS
    assert output.exists() == bool(options)
    assert not list(small_file_system.glob(".*"))


def test_a_comparison_is_printed_where_it_cannot_be_written(tmp_path, small_file_system, capsys, monkeypatch):
    document = {"note": "x" * (1 << 16)}
    result = SimpleNamespace(document=document, trustworthy=True)
    monkeypatch.setattr("selfscale.compare.compare", lambda *_, **__: result)
    (small_file_system / "full").write_bytes(bytes((4 << 20) - 4096))
    Profile().save(tmp_path / "p.json")
    words = ["compare", reads(tmp_path / "t.iotrace"), "--profile", tmp_path / "p.json", "--directory", tmp_path]
    assert main([*map(str, words), "--format", "json", "-o", str(small_file_system / "c.json")]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == document
    assert "No space left" in captured.err


class TestRecorded:
    pytestmark = pytest.mark.records

    def test_a_comparison_that_is_interrupted_is_missing_and_the_rest_is_there(self, tmp_path):
        count, image = 300_007, tmp_path / "image"
        process = started(reads(tmp_path / "t.iotrace", count), image, "--record", "--format", "json")
        wait_until((image / "f00000001").exists)
        wait_until(lambda: not (image / "f00000001").exists() and not children(process.pid))
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
        document = json.loads(out)
        assert process.returncode == 130, said
        assert document["operations"]["done"] == count
        assert "fidelity" not in document
        assert "not compared with the trace: it was interrupted" in said
        assert document["reasons"] == ["the replay was not compared with the trace: it was interrupted"]

    def test_a_comparison_that_fails_is_missing_and_the_rest_is_there(self, tmp_path, capsys, monkeypatch):
        def failing(*_):
            raise ZeroDivisionError("of nothing")

        monkeypatch.setattr("selfscale.comparing.fidelity.fidelity_of", failing)
        trace, kept = reads(tmp_path / "t.iotrace"), tmp_path / "kept.iotrace"
        words = ["replay", trace, "--directory", tmp_path / "image", "--record", kept]
        assert main([*map(str, words), "--format", "json"]) == 3
        captured = capsys.readouterr()
        document = json.loads(captured.out)
        assert document["operations"]["done"] == READS
        assert document["trustworthy"] is False
        assert f"ZeroDivisionError: of nothing; the recording is {kept}" in captured.err
        assert (characterize.open(kept).io["thread"].value_counts() == READS).any()

    def test_a_recorder_whose_disk_is_full_costs_the_recording_only(self, tmp_path, small_file_system):
        """Its records take more than the 4 MiB of the file system."""
        count, kept = 100_003, small_file_system / "kept.iotrace"
        done = recorded(reads(tmp_path / "t.iotrace", count), tmp_path / "image", kept)
        document = json.loads(done.stdout)
        assert done.returncode == 3, done.stderr
        assert document["operations"]["done"] == count
        assert "No space left" in done.stderr
        assert "lost records" in done.stderr
        assert 0 < document["fidelity"]["order"]["compared"] < count
        assert characterize.open(kept).header.flags & HeaderFlag.INCOMPLETE
        assert not (tmp_path / "image").exists()
