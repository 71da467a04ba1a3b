# SPDX-License-Identifier: Apache-2.0
"""Files of a replay are gone however it ends, and nothing else is: real signals to real processes."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

import characterize
from flextrace.main import main
from replayer.run import prepare, replay
from replayer.running.files import LaidOut, remove_image, replay_in_files
from tests.runs.ordinary_user import NUMBER
from tests.runs.running_replay import endless_layout, playing, slow, started, wait_until
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ENGINE, needs_engine, needs_strace
from tests.truths.told import RECORDER

pytestmark = [needs_engine, pytest.mark.root, pytest.mark.parallel]

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def image(tmp_path):
    """An empty directory that is there, beside a file that is somebody's."""
    (tmp_path / "beside").write_text("precious")
    made = tmp_path / "image"
    made.mkdir()
    yield made
    assert (tmp_path / "beside").read_text() == "precious"


def small(path: Path, size_bytes: int = 65536) -> Path:
    return characterize.write(made_trace([read(0, 4096, 1)], files=[{"file": 1, "size_bytes": size_bytes}]), path)


def groups_of(process: int) -> list[Path]:
    return list(Path("/sys/fs/cgroup").rglob(f"flextrace-{process}-*"))


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("there", [True, False])
def test_a_signal_during_the_layout_leaves_neither_files_nor_group(image, tmp_path, number, there):
    directory = image if there else tmp_path / "new"
    trace = endless_layout(tmp_path / "large.iotrace")
    process = started(trace, directory, "--memory", "64M", "--force-space")
    file = directory / "f00000001"
    wait_until(lambda: file.exists() and file.stat().st_size > 1 << 20)
    assert groups_of(process.pid)
    process.send_signal(number)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    # Where the engine was told of it, that says what it was doing.
    assert said in {"flextrace replay: interrupted\n", f"flextrace replay: interrupted while laying out {directory}\n"}
    assert not groups_of(process.pid)
    assert directory.exists() == there
    assert not there or list(directory.iterdir()) == []


def test_a_signal_while_the_engine_is_started_ends_it(tmp_path, monkeypatch):
    started_engines = []

    class InterruptedStart(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            started_engines.append(self)
            signal.raise_signal(signal.SIGINT)

    trace = endless_layout(tmp_path / "large.iotrace")
    monkeypatch.setattr("replayer.run.subprocess.Popen", InterruptedStart)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell runs the tests aside
    try:
        with pytest.raises(KeyboardInterrupt):
            replay(trace, tmp_path / "image", force_space=True)
        (engine,) = started_engines
        assert engine.poll() in {1, -signal.SIGTERM}  # interrupted while it lays out; before it handles signals
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        for engine in started_engines:
            engine.kill()
            engine.wait()


def test_an_earlier_image_outlives_an_interrupted_layout(image, tmp_path):
    prepare(small(tmp_path / "small.iotrace"), image)
    other = characterize.write(
        made_trace([read(0, 4096, 1, file=2)], files=[{"file": 2, "size_bytes": 40 << 30}]), tmp_path / "other.iotrace"
    )
    process = started(other, image, "--memory", "64M", "--force-space")
    file = image / "f00000002"
    wait_until(lambda: file.exists() and file.stat().st_size > 1 << 20)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert (image / "f00000001").stat().st_size == 65536


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("options", "said_of_it"), [(["--memory", "64M"], "give a larger --memory"), ([], "too little memory: see dmesg")]
)
def test_an_engine_that_is_killed_leaves_no_files_unless_they_are_to_stay(image, tmp_path, options, said_of_it, kept):
    """In a group and without: it would have removed them itself."""
    trace, place = slow(tmp_path / "slow.iotrace"), "--image" if kept else "--directory"
    process = started(trace, image, *options, "--timing", "think", place=place)
    wait_until(lambda: playing(image))
    os.kill(playing(image), signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said_of_it in said
    assert not groups_of(process.pid)
    assert (image / "f00000001").exists() == kept
    assert kept or list(image.iterdir()) == []


@pytest.mark.skipif(not RECORDER.exists(), reason="recorder not built (make build)")
def test_a_recorder_that_fails_leaves_no_files(image, tmp_path, capsys, monkeypatch):
    failing = tmp_path / "recorder"
    failing.write_text("#!/bin/sh\ncase $* in *--dry-run*) exit 0 ;; esac\necho no ring buffers >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr("replayer.running.recorder.find_binary", lambda name: failing)
    assert main(["replay", str(small(tmp_path / "t.iotrace")), "--directory", str(image), "--record"]) == 1
    assert "no ring buffers" in capsys.readouterr().err
    assert list(image.iterdir()) == []


def test_no_other_replay_gets_in_between_layout_and_recorded_run(image, tmp_path):
    """While the recorder gets ready."""
    trace, said = small(tmp_path / "t.iotrace"), tmp_path / "said"
    script = f'{ENGINE} {trace} --directory={image} >/dev/null 2>{said}; exec "$@"'
    with ExitStack() as cleanup:
        recorder = ["sh", "-c", script, "recorder"]
        assert replay_in_files(trace, image, {}, cleanup, recorder=lambda _group: recorder)["trustworthy"]
    assert "is used by another replay: wait for it, or give another directory" in said.read_text()
    assert list(image.iterdir()) == []


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_no_other_replay_gets_in_right_behind_the_layout(image, tmp_path, monkeypatch, there, keep):
    """Before the run is begun."""
    trace, directory, said = small(tmp_path / "t.iotrace"), image if there else tmp_path / "new", []

    def and_another(*arguments, phase, **options):
        document = replay(*arguments, phase=phase, **options)
        if phase == "prepare":
            other = [ENGINE, trace, f"--directory={directory}"]
            said.append(subprocess.run(other, capture_output=True, text=True, check=False).stderr)
        return document

    monkeypatch.setattr("replayer.running.files.replay", and_another)
    with ExitStack() as cleanup:
        options = {"keep_image": keep}
        assert replay_in_files(trace, directory, options, cleanup, recorder=lambda _group: [])["trustworthy"]
    assert len(said) == 1
    assert "is used by another replay" in said[0]
    assert (directory / "f00000001").exists() == keep
    assert directory.exists() == (there or keep)


@pytest.mark.parametrize("there", [True, False])
def test_a_layout_for_a_recording_that_comes_to_nothing_goes_again(image, tmp_path, monkeypatch, there):
    """Also of files that are to stay, where the directory is new."""
    directory = image if there else tmp_path / "new"

    def interrupted(*arguments, **options):
        replay(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr("replayer.running.files.replay", interrupted)
    trace = small(tmp_path / "t.iotrace")
    with pytest.raises(KeyboardInterrupt), ExitStack() as cleanup:
        replay_in_files(trace, directory, {"keep_image": True}, cleanup, recorder=lambda _group: [])
    assert directory.exists() == (directory / "f00000001").exists() == there


def test_an_image_that_another_replay_makes_there_afterwards_stays(image, tmp_path):
    """While the first one is compared with its trace and told."""
    trace = small(tmp_path / "t.iotrace")
    with ExitStack() as cleanup:
        replay_in_files(trace, image, {}, cleanup)
        replay(trace, image, keep_image=True)
    assert (image / "f00000001").stat().st_size == 65536


def test_a_layout_whose_result_nobody_reads_is_taken_back(image, tmp_path):
    """As where flextrace is killed meanwhile: who does not hear of the files is not going to have them removed."""
    trace = small(tmp_path / "t.iotrace", 64 << 20)
    for directory, options in ((image, []), (tmp_path / "new", []), (image, ["--keep-image"])):
        command = [ENGINE, trace, f"--directory={directory}", "--phase=prepare", *options]
        engine = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        engine.stdout.close()
        assert engine.wait(timeout=60) == 1
        kept = [image / "f00000001"] if options else []
        assert [path for path in image.iterdir() if path.name.startswith("f")] == kept
        assert not (tmp_path / "new").exists()


def test_only_what_the_engine_made_is_removed(image, tmp_path):
    prepare(small(tmp_path / "t.iotrace"), image)
    (image / "thesis.tex").write_text("precious")
    (image / "f1").write_text("precious")
    remove_image(image)
    assert {path.name for path in image.iterdir()} == {"thesis.tex", "f1"}
    # No image: nothing is looked at, whatever its files are called.
    (image / "f00000001").write_text("precious")
    remove_image(image)
    remove_image(tmp_path / "none")
    assert (image / "f00000001").read_text() == "precious"
    done = subprocess.run(
        [ENGINE, "--phase=remove", f"--directory={image}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "holds files that are not a replay's" in done.stderr
    assert (image / "f00000001").read_text() == "precious"


@needs_strace
@pytest.mark.parametrize(("call", "when"), [("getdents64", "1+"), ("newfstatat", "3")])
def test_what_cannot_be_looked_at_is_not_taken_for_removed(image, tmp_path, call, when):
    """strace has a call fail as a disk does; the first two newfstatat are those of fdopendir(3)."""
    prepare(small(tmp_path / "t.iotrace"), image)
    failing = ["strace", "-f", "-o", tmp_path / "log", "-e", f"inject={call}:error=EIO:when={when}"]
    command = [*failing, ENGINE, "--phase=remove", f"--directory={image}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (image / "f00000001").exists()
    assert done.returncode == 1
    assert done.stderr.endswith(": Input/output error\n")


@pytest.mark.parametrize("options", [[], ["--device=/dev/null"]])
def test_a_removal_needs_a_directory(options):
    done = subprocess.run([ENGINE, "--phase=remove", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no --directory given" in done.stderr


def test_a_directory_that_may_not_be_looked_at_is_left_to_the_engine_to_tell(tmp_path):
    """Which says what failed, on which directory."""
    tmp_path.chmod(0o700)
    os.seteuid(NUMBER)
    try:
        with LaidOut(tmp_path / "image") as files:
            assert files.mine
    finally:
        os.seteuid(0)
