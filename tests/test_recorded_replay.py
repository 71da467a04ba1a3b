# SPDX-License-Identifier: Apache-2.0
"""Real programs, recorded, then replayed under the recorder: equal parameters, all operations found, none too early."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from straced import ENGINE, ROOT
from told import PROGRAMS, RECORDER, run_recorder

import characterize
from characterize.workload import PARAMETERS
from flextrace.main import main
from tests import ordinary_user

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not (RECORDER.exists() and ENGINE.exists()), reason="recorder or engine not built (make build)"),
]

RELAY = Path(__file__).with_name("relay.py")
ROUNDS = 37


def record(place: Path, *command: object) -> Path:
    """Record what a command does below `place`, in `place`.iotrace."""
    trace = place.with_suffix(".iotrace")
    done = run_recorder(trace, *map(str, command), options=("--quiet", f"--path={place}"))
    assert done.returncode == 0, done.stderr
    return trace


def relay(place: Path) -> Path:
    return record(place, sys.executable, RELAY, place, 5, ROUNDS)


def bank(place: Path) -> Path:
    program = [PROGRAMS / "debit_credit", place / "bank.db"]
    subprocess.run([*program, "--accounts=997"], check=True, capture_output=True)
    return record(place, *program, "--transactions=53")


def sort(place: Path) -> Path:
    (place / "input").write_text("\n".join(str(number * 7919 % 100003) for number in range(60000)) + "\n")
    options = ["--parallel=4", "--buffer-size=200K", f"--temporary-directory={place}", "-o", place / "output"]
    return record(place, shutil.which("sort"), *options, place / "input")


def test_program(name):
    """One of tests/programs, which says nothing here: its trace is compared with its replay."""
    return lambda place: record(place, PROGRAMS / name, place)


WORKLOADS = {
    "relay": relay,
    "debit_credit": bank,
    "sort": sort,
    **{name: test_program(name) for name in ("names", "tasks", "descriptors", "splice", "mmap", "aio", "known_io")},
}
del test_program
DIFFERENT_DEPTH = {"aio", "splice"}
"""The engine does the operations of a thread one after the other."""


@pytest.fixture
def place(tmp_path):
    made = tmp_path / "place"
    made.mkdir()
    return made


def replay(trace: Path, *options: str) -> tuple[int, dict]:
    """Status and result of the verb."""
    output = trace.with_suffix(".json")
    directory = trace.with_name("image")
    status = main(["replay", str(trace), "--directory", str(directory), "--record", *options, "--output", str(output)])
    assert not directory.exists()
    return status, json.loads(output.read_text())


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_replay_has_the_parameters_of_its_original_and_keeps_its_order(place, name, capsys):
    trace = WORKLOADS[name](place)
    status, document = replay(trace)
    assert status == 0, document["reasons"]
    fidelity, order = document["fidelity"], document["fidelity"]["order"]
    original, again = (fidelity[run]["parameters"] for run in ("original", "replay"))
    for parameter in PARAMETERS[:4]:
        assert again[parameter] == original[parameter], parameter
    assert again["processNum"] <= original["processNum"]
    assert fidelity["original"]["requests"] == fidelity["replay"]["requests"]
    assert (order["violations"], order["added"], order["shuffled_threads"]) == (0, 0, 0)
    # Of what the engine repeats by its rules it skips some for what went before, and says how many.
    assert order["expected"] - order["compared"] <= document["operations"]["skipped"]
    assert order["compared"] <= document["operations"]["done"]
    assert order["rules"]["interval_order"]["checked"] > 0
    assert fidelity["lost"] == {"original": {}, "replay": {}}
    text = capsys.readouterr().out
    assert all(len(line) < 80 for line in text[text.index("fidelity") :].splitlines())


def test_threads_that_hand_over_are_out_of_order_where_only_their_own_order_is_kept(place):
    """Of the relay every step needs the one before."""
    trace = relay(place)
    _, document = replay(trace, "--order", "thread")
    rules = document["fidelity"]["order"]["rules"]
    assert rules["program_order"]["violations"] == 0
    assert rules["interval_order"]["violations"] > 0
    assert rules["interval_order"]["examples"]
    assert any("does not promise interval_order" in note for note in document["fidelity"]["notes"])


def test_the_recording_is_kept_by_name_and_holds_only_files_of_the_image(place, tmp_path):
    trace = relay(place)
    kept = tmp_path / "kept.iotrace"
    status, document = replay(trace, str(kept))
    assert status == 0
    assert document["fidelity"]["recording"] == str(kept)
    recording = characterize.open(kept)
    image = str(tmp_path / "image")
    named = [recording.paths[file] for file in recording.files["file"] if file in recording.paths]
    assert all(path == image or path.startswith(f"{image}/") for path in named)
    status, _ = replay(trace, str(kept), "--force")
    assert status == 0


def test_a_memory_group_is_that_of_the_recorded_replay(place, tmp_path):
    trace = relay(place)
    kept = tmp_path / "kept.iotrace"
    status, document = replay(trace, str(kept), "--memory", "64M")
    assert status == 0, document["reasons"]
    assert characterize.open(kept).header.metadata["memory_limit_bytes"] == 64 << 20
    assert document["fidelity"]["order"]["violations"] == 0


def test_without_the_privileges_nothing_is_laid_out_and_the_message_names_them():
    probe = [*ordinary_user.as_user(), sys.executable, "-c", "import flextrace"]
    if subprocess.run(probe, cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("this checkout cannot be read by an ordinary user")
    with ordinary_user.directory_of_user() as made:
        trace = record(made, sys.executable, RELAY, made, 2, 3)
        trace.chmod(0o644)
        command = [sys.executable, "-m", "flextrace", "replay", str(trace), "--directory", str(made / "image")]
        try:
            done = subprocess.run(
                [*ordinary_user.as_user(), *command, "--record"], cwd=ROOT, capture_output=True, text=True, check=False
            )
        finally:
            trace.unlink()
        assert done.returncode == 1
        assert "cannot be recorded" in done.stderr
        assert "CAP_BPF" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (made / "image").exists()
