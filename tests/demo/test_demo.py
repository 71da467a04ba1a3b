# SPDX-License-Identifier: Apache-2.0
"""The demo runs from end to end at tiny sizes, leaves what it promises and nothing else; and refuses politely."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import characterize
from characterize.errors import FlextraceError
from tests.demo import demo, sizes
from tests.truths.straced import ROOT, needs_engine
from tests.truths.told import PROGRAMS


def test_without_root_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(FlextraceError, match=r"needs root: run 'make demo' as root"):
        sizes.require(sizes.QUICK, tmp_path)


def test_without_room_it_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sizes, "find_binary", lambda name: tmp_path / name)
    monkeypatch.setattr(Path, "exists", lambda path: True)
    with pytest.raises(FlextraceError, match=r"GB free, the demo needs"):
        sizes.require(sizes.Sizes(free_bytes=10**18), tmp_path)


def test_a_failing_step_is_named_and_the_work_directory_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "require", lambda _sizes, _output: None)
    monkeypatch.setattr(demo, "run", lambda state: state.command("flextrace", "info", state.work / "missing.iotrace"))
    assert demo.main(["--quick", "--output", str(tmp_path / "out")]) == 1
    streams = capsys.readouterr()
    assert "$ flextrace info" in streams.out
    assert "failed with exit code 1" in streams.err
    assert list((tmp_path / "out").iterdir()) == []


def test_a_result_that_distrusts_itself_does_not_end_the_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = demo.Demo(tmp_path, tmp_path, sizes.QUICK)
    assert state.command(sys.executable, "-c", "print('a table'); raise SystemExit(3)") == "a table\n"
    assert len(state.doubts) == 1
    assert "not to be trusted" in capsys.readouterr().out


@pytest.mark.records
@needs_engine
@pytest.mark.skipif(
    not (PROGRAMS / "debit_credit").exists(), reason="debit_credit is not built (make build/test-programs)"
)
def test_quick_demo(tmp_path: Path) -> None:
    output = tmp_path / "out"
    process = subprocess.run(
        [sys.executable, "-m", "tests.demo.demo", "--quick", "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    assert str(output / "report.html") in process.stdout.splitlines()[-1]
    assert not (output / "work").exists()
    page = (output / "report.html").read_text()
    assert page.count('<section id="comparison-') == 2
    assert page.count('<section id="trace-') == 6
    for name in ("sort", "debit-credit"):
        trace = characterize.open(output / f"{name}.iotrace")
        assert trace.header.metadata["memory_limit_bytes"] == 32 * 2**20
        assert not trace.header.lost
        assert len(trace.blocks) > 0
        document = json.loads((output / f"{name}.comparison.json").read_text())
        assert document["conditions"]["equal_memory"]
        rows = {row["row"]: row for row in document["rows"]}
        assert {"application", "replay", "willy", "willy_extended", "prediction"} <= set(rows)
        assert rows["replay"]["operations"]["failed"] == 0
        # Warm, as Willy: the inputs were read into the memory group before the command started.
        assert rows["application"]["coldFrac"] < 0.05
        assert (output / f"{name}-sizeMean-4x.iotrace").exists()
        assert (output / f"{name}-processNum-4x.iotrace").exists()
    assert "consistent" in process.stdout
    # A replay as recorded has the parameters of the original within 1 %.
    tables = re.findall(r"replayed as recorded.*?\n((?:  \w+ .*\n){5})", process.stdout)
    assert len(tables) == 2
    for line in "".join(tables).splitlines():
        assert abs(float(line.split()[-1].rstrip("%"))) <= 1, line
