# SPDX-License-Identifier: Apache-2.0
"""Real programs, recorded, then replayed under the recorder: equal parameters, all operations found, none too early."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.layout import HeaderFlag, IoFlag
from characterize.workload import PARAMETERS
from flextrace.main import main
from replayer.checking.order_check import PROMISES
from replayer.run import INTERRUPTED
from replayer.running.recorder import check_recorder
from selfscale.comparing.recorded_replay import recorded_replay
from tests.machines.kernel import has_tracepoint
from tests.runs import ordinary_user
from tests.runs.running_replay import playing, slow, started, wait_until
from tests.truths.straced import ROOT, needs_engine
from tests.truths.told import PROGRAMS, arguments_of, run_recorder

pytestmark = [needs_engine, pytest.mark.records]

RELAY = ROOT / "tests" / "programs" / "relay.py"
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
    command = [PROGRAMS / "debit_credit", place / "bank.db"]
    subprocess.run([*command, "--accounts=997"], check=True, capture_output=True)
    return record(place, *command, "--transactions=53")


def sort(place: Path) -> Path:
    (place / "input").write_text("\n".join(str(number * 7919 % 100003) for number in range(60000)) + "\n")
    options = ["--parallel=4", "--buffer-size=200K", f"--temporary-directory={place}", "-o", place / "output"]
    return record(place, shutil.which("sort"), *options, place / "input")


def moved(place: Path) -> Path:
    """A file that nobody has opened gets another name, by which it is read; and another one gets the old name."""
    for name in ("old", "other"):
        (place / name).write_bytes(bytes(100_003))
    return record(place, "sh", "-c", 'cd "$0" && mv old new && mv other old && cat new old', place)


def program(name: str) -> Callable[[Path], Path]:
    """One of tests/programs; what it tells is not looked at here."""
    return lambda place: record(place, PROGRAMS / name, place, *arguments_of(name))


WORKLOADS = {
    "relay": relay,
    "debit_credit": bank,
    "sort": sort,
    "moved": moved,
    **{name: program(name) for name in ("names", "tasks", "descriptors", "splice", "mmap", "aio", "known_io")},
}


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


@pytest.mark.parametrize("kept", ["resource", "recorded"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_replay_has_the_parameters_of_its_original_and_keeps_its_order(place, name, kept, capsys):
    """The default order lets more operations overlap than did; the interval order does not."""
    trace = WORKLOADS[name](place)
    status, document = replay(trace, *([] if kept == "resource" else ["--order", kept]))
    assert document["order"] == kept
    assert status == 0, document["reasons"]
    fidelity, order = document["fidelity"], document["fidelity"]["order"]
    original, again = (fidelity[run]["parameters"] for run in ("original", "replay"))
    for parameter in PARAMETERS[:4]:
        assert again[parameter] == original[parameter], parameter
    assert kept == "resource" or again["processNum"] <= original["processNum"]
    assert fidelity["original"]["requests"] == fidelity["replay"]["requests"]
    assert (order["violations"], order["added"], order["shuffled_threads"]) == (0, 0, 0)
    # Of what the engine repeats by its rules it skips some for what went before, and says how many.
    found = order["compared"] + order["ambiguous"]
    assert order["expected"] - found <= document["operations"]["skipped"]
    assert found <= document["operations"]["done"]
    assert order["share"] == 1
    assert order["promised"] == list(PROMISES[kept])
    assert order["rules"]["interval_order"]["checked"] > 0
    assert fidelity["lost"] == {"original": {}, "replay": {}}
    text = capsys.readouterr().out
    assert all(len(line) < 80 for line in text[text.index("fidelity") :].splitlines())


def test_writes_find_times_asked_for_as_often_as_the_recorded_ones(place, tmp_path):
    """SQLite asks for the times of its database in every transaction (strace), which makes the next sync longer."""
    stat = subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, text=True, check=True)
    system = stat.stdout.strip()
    if not has_tracepoint("fill_mg_cmtime") or system not in {"ext2/ext3", "btrfs", "xfs", "tmpfs"}:
        pytest.skip(f"this kernel does not mark on {system} that times were asked for (Linux 6.13 on)")
    original, again = bank(place), tmp_path / "replay.iotrace"
    replay(original, "--record", str(again))
    for run in (original, again):
        assert ((characterize.open(run).io["flags"] & int(IoFlag.CTIME_QUERIED)) != 0).sum() == 53, run


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


def assert_part(document: dict, stopped: str) -> None:
    """Of a replay that was ended early what ran is compared, and the verdict says how little of the trace it was."""
    order = document["fidelity"]["order"]
    assert document["stopped"] == stopped
    assert order["compared"] == document["operations"]["done"] < 100
    assert (order["expected"], order["violations"], order["added"]) == (100, 0, 0)
    assert any("only a part" in note for note in document["fidelity"]["notes"])
    assert any(reason.startswith(f"only {order['compared']} of 100") for reason in document["reasons"])


def test_a_replay_that_is_ended_early_is_compared_as_far_as_it_got(tmp_path):
    status, document = replay(slow(tmp_path / "slow.iotrace"), "--timing", "think", "--max-time", "1")
    assert status == 3
    assert_part(document, "max-time")
    assert document["operations"]["done"] > 0


def test_an_interrupt_before_the_replay_has_begun_is_said(tmp_path, capsys, monkeypatch):
    """The recorder hands a signal on to its command, which has not become the engine yet."""
    stopped = tmp_path / "recorder"
    stopped.write_text("#!/bin/sh\ncase $* in *--dry-run*) exit 0 ;; esac\nkill -TERM $$\n")
    stopped.chmod(0o755)
    monkeypatch.setattr("replayer.running.recorder.find_binary", lambda name: stopped)
    assert (
        main(["replay", str(slow(tmp_path / "slow.iotrace")), "--directory", str(tmp_path / "image"), "--record"]) == 1
    )
    assert "before it had begun" in capsys.readouterr().err
    assert not (tmp_path / "image").exists()


def test_an_interrupt_ends_replay_and_recording_with_their_result(tmp_path):
    trace, image, kept = slow(tmp_path / "slow.iotrace"), tmp_path / "image", tmp_path / "kept.iotrace"
    process = started(trace, image, "--timing", "think", "--record", kept, "--format", "json")
    wait_until(lambda: playing(image))
    process.send_signal(signal.SIGINT)
    assert_part(json.loads(process.communicate(timeout=60)[0]), "signal")
    assert process.returncode == 130
    assert not image.exists()
    assert not characterize.open(kept).header.flags & HeaderFlag.INCOMPLETE


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


def test_a_recorder_that_names_a_directory_that_is_not_utf8_is_understood(tmp_path, monkeypatch):
    recorder = tmp_path / "flextrace-record"
    recorder.write_text("#!/bin/sh\nprintf 'flextrace record: cannot use \\377' >&2; exit 1\n")
    recorder.chmod(0o755)
    monkeypatch.setenv("FLEXTRACE_BINARIES", str(tmp_path))
    with pytest.raises(FlextraceError, match="the replay cannot be recorded: cannot use"):
        check_recorder(tmp_path)


def test_a_comparison_that_is_interrupted_in_a_compiled_function_was_interrupted(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr("selfscale.comparing.fidelity.fidelity_of", interrupted)
    trace, done = slow(tmp_path / "slow.iotrace"), {"reasons": [], "trustworthy": True}
    with ExitStack() as cleanup:
        document = recorded_replay(trace, tmp_path, lambda _: done, cleanup, keep_as=trace, force=True)
    assert document["fidelity_missing"] == INTERRUPTED
