# SPDX-License-Identifier: Apache-2.0
"""Archives on the command line: export and import, every verb that takes a trace, and recording into one."""

import hashlib
import json
import os
import shlex
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.trace_files.archive import pack
from flextrace.main import main
from flextrace.record import keep_as_archive, run_recorder
from selfscale.profile import Profile
from tests.formulas.probed_profile import probed_profile
from tests.traces.archived import RECORD, RECORD_COUNT_AT, assert_equal_traces, patch, trace_file
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ROOT, needs_engine
from tests.truths.told import wait_for_recording

pytest_plugins = ["tests.traces.archive_fixtures", "tests.machines.small_file_system"]
pytestmark = pytest.mark.parallel

WILLY = ["--unique-bytes", "1M", "--seq-frac", "0", "--read-frac", "1", "--size-mean", "4K", "--process-num", "1"]


def run_flextrace(*words):
    command = [sys.executable, "-m", "flextrace", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


# ---- the command line ----


def test_export_and_import(trace, tmp_path, cli):
    archive, back = tmp_path / "b.parquet", tmp_path / "b.iotrace"
    status, error = cli("export", trace, "-o", archive)
    assert status == 3, "it lacks nine records"
    assert "9 IO" in error
    assert "19 records in" in error
    assert f"next: flextrace characterize {archive}" in error
    assert cli("import", archive, "-o", back)[0] == 3
    assert back.read_bytes() == trace.read_bytes()
    assert sorted(tmp_path.iterdir()) == [trace, back, archive]


@pytest.mark.parametrize("verb", ["export", "import"])
def test_existing_files_are_kept_unless_forced(trace, archive, tmp_path, cli, verb):
    source = {"export": trace, "import": archive}[verb]
    output = tmp_path / {"export": "b.parquet", "import": "b.iotrace"}[verb]
    output.write_text("precious")
    status, error = cli(verb, source, "-o", output)
    assert (status, output.read_text()) == (2, "precious")
    assert "--force" in error
    assert cli(verb, source, "-o", output, "--force")[0] == 3, "what it lacks is told"
    assert_equal_traces(characterize.open(output), characterize.open(trace))


def test_nonsense_is_refused(trace, archive, tmp_path, cli):
    for words, message in (
        (("export", trace, "-o", tmp_path / "b.txt"), "use NAME.parquet"),
        (("export", archive, "-o", tmp_path / "b.parquet"), "is an archive already"),
        (("export", tmp_path / "none", "-o", tmp_path / "b.parquet"), "cannot read trace"),
        (("export", tmp_path, "-o", tmp_path / "b.parquet"), "cannot read trace"),
        (("export", __file__, "-o", tmp_path / "b.parquet"), "is not a flextrace trace"),
        (("export", trace, "-o", tmp_path / "none" / "b.parquet"), "its directory does not exist"),
        (("import", tmp_path / "none", "-o", tmp_path / "b.iotrace"), "No such file"),
        (("import", archive, "-o", tmp_path / "b.parquet"), "is the name of an archive"),
        (("willy", "-o", tmp_path / "b.parquet", *WILLY), "is the name of an archive"),
        (("import", trace, "-o", tmp_path / "b.iotrace"), "is a flextrace trace already"),
        *(
            ((*words, *options), "omit --input-format")
            for words in (
                ("import", archive, "-o", tmp_path / "b.iotrace"),
                ("characterize", archive),
                ("characterize", trace),
            )
            for options in (
                ("--input-format", "mqsim"),
                ("--columns", "start=when"),
                ("--time-unit", "us"),
                ("--sector-bytes", "4096"),
                ("--skip-bad",),
            )
        ),
    ):
        status, error = cli(*words)
        assert status in (1, 2), words
        assert message in error
        assert sorted(tmp_path.iterdir()) == [trace, archive]


def test_what_is_no_file_stays_what_it_is(trace, archive, tmp_path, cli):
    """Root may rename a file over a device: /dev/full must not become a trace."""
    for name, words in (
        ("p.iotrace", ("import", archive)),
        ("p.csv", ("export", trace)),
        ("p", ("record", "--", "true")),
        ("p.parquet", ("record", "--", "false")),
        ("p", ("scale", "--directory", tmp_path / "none")),
    ):
        pipe = tmp_path / name
        os.mkfifo(pipe)
        status, error = cli(words[0], "-o", pipe, "--force", *words[1:])
        assert (status, pipe.is_fifo()) == (2, True), words
        assert "not a regular file" in error
        pipe.unlink()
    os.mkfifo(tmp_path / "p.json")
    with pytest.raises(FlextraceError, match="not a regular file"):
        Profile().save(tmp_path / "p.json")


def test_a_trace_is_not_exported_over_itself(trace, cli):
    parquet = trace.rename(trace.with_suffix(".parquet"))
    before = parquet.read_bytes()
    status, error = cli("export", parquet, "-o", parquet, "--force")
    assert (status, parquet.read_bytes()) == (2, before)
    assert "is a file that is read" in error


def test_a_full_disk_leaves_nothing(trace, small_file_system, cli):
    rng = np.random.default_rng(1)
    records = rng.integers(0, 256, (150_000, RECORD), np.uint8)
    trace_file(trace, [records.tobytes()])
    patch(trace, RECORD_COUNT_AT, struct.pack("<Q", len(records)))
    status, error = cli("export", trace, "-o", small_file_system / "a.parquet")
    assert status == 1
    assert f"cannot write {small_file_system / 'a.parquet'}: No space left on device" in error
    assert list(small_file_system.iterdir()) == []
    pack(trace, archive := trace.with_suffix(".parquet"))
    status, error = cli("import", archive, "-o", small_file_system / "a.iotrace")
    assert status == 1
    assert f"cannot write {small_file_system / 'a.iotrace'}: No space left on device" in error
    assert list(small_file_system.iterdir()) == []


# ---- every verb ----


def workload(tmp_path):
    io = [read(4096 * at, 4096, 1 + 10 * at, 5) for at in range(64)]
    io += [write(4096 * (63 - at), 4096, 1001 + 10 * at, 5) for at in range(32)]
    trace = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 65536}]), tmp_path / "w.iotrace")
    pack(trace, tmp_path / "w.parquet")
    return trace, tmp_path / "w.parquet"


@pytest.mark.parametrize(
    "words", [("info", "--format", "json"), ("characterize", "--format", "json"), ("alter", "--read-frac", "0.5")]
)
def test_verbs_say_of_an_archive_what_they_say_of_its_trace(tmp_path, capsys, words):
    """But for its name, size and hash."""
    verb, *options = words
    said = []
    for source in workload(tmp_path):
        if verb == "alter":
            options[2:] = ["-o", str(tmp_path / f"altered-{source.suffix}.iotrace"), "--format", "json"]
        assert main([verb, str(source), *options]) in (0, 3)
        document = json.loads(capsys.readouterr().out)
        for key in ("input", "output", "parent", "parent_sha256", "command", "created"):
            document.pop(key, None)
        said.append(document)
    assert said[0] == said[1]
    if verb == "alter":
        altered = [characterize.open(tmp_path / f"altered-{suffix}.iotrace") for suffix in (".iotrace", ".parquet")]
        assert altered[0].io.equals(altered[1].io)


@needs_engine
def test_replay_expands_an_archive_for_the_while(tmp_path, capsys, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    _, archive = workload(tmp_path)
    assert main(["replay", str(archive), "--directory", str(tmp_path / "image"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["trace"] == str(archive)
    assert document["trace_sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert document["operations"]["done"] == 96
    assert list(temporary.iterdir()) == []


def test_expanding_without_room_says_what_to_do(tmp_path, small_file_system, monkeypatch, cli):
    trace = trace_file(tmp_path / "a.iotrace", [bytes([1]) + bytes(63)] * 100_000)
    pack(trace, tmp_path / "a.parquet")
    monkeypatch.setattr("tempfile.tempdir", str(small_file_system))
    status, error = cli("replay", tmp_path / "a.parquet", "--directory", tmp_path / "image")
    assert status == 1
    assert "TMPDIR" in error
    assert list(small_file_system.iterdir()) == []


@needs_engine
def test_predict_compare_and_report_take_an_archive(tmp_path, capsys, monkeypatch):
    """The replay of the comparison is of a trace that is expanded for the while."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    _, archive = workload(tmp_path)
    profile, comparison, report = (tmp_path / name for name in ("p.json", "c.json", "r.html"))
    probed_profile().save(profile)
    assert main(["predict", str(profile), "--trace", str(archive), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"][0]["workload"]["uniqueBytes"] == 262144
    words = ["compare", archive, "--profile", profile, "--directory", tmp_path / "scratch", "--repeat", 1]
    assert main([*map(str, words), "--max-time", "1s", "-o", str(comparison)]) in (0, 3)
    document = json.loads(comparison.read_text())
    assert document["trace"] == str(archive)
    (replayed,) = (row for row in document["rows"] if row["row"] == "replay")
    assert replayed["operations"]["done"] == 96
    assert not (tmp_path / "scratch").exists(), "it was made for that"
    words = ["report", "-o", report, "--profile", profile, "--trace", archive, "--comparison", comparison]
    assert main([str(word) for word in words]) in (0, 3)
    assert "w.parquet" in report.read_text()
    assert list(temporary.iterdir()) == []


# ---- recording into an archive ----


@pytest.mark.records
@pytest.mark.parametrize("confined", [[], ["--memory", "64M"]])
def test_record_into_an_archive(tmp_path, confined):
    """The command's status is passed on; nothing but the archive is left."""
    (tmp_path / "in").write_bytes(b"x" * 10_000)
    command = ["sh", "-c", f"dd if={tmp_path}/in of={tmp_path}/out bs=1000 status=none; exit 7"]
    done = run_flextrace("record", *confined, "-o", tmp_path / "a.parquet", "--", *command)
    assert done.returncode == 7, done.stderr
    said = [line.partition("next: ")[2] for line in done.stderr.splitlines() if "next: " in line]
    assert said == [f"flextrace characterize {tmp_path}/a.parquet"]
    trace = characterize.open(tmp_path / "a.parquet")
    names = {path: file for file, path in trace.paths.items()}
    reads = trace.requests[trace.requests["file"] == names[f"{tmp_path}/in"]]
    assert reads["offset"].tolist() == list(range(0, 10_000, 1000))
    assert trace.warnings == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "in", "out"]


@pytest.mark.records
def test_record_keeps_the_trace_if_there_is_no_room_for_the_archive(small_file_system):
    """Room for the trace and not for both: the file that the command leaves takes the rest."""
    fill = f"head -c 4130000 /dev/zero >{small_file_system}/rest"
    done = run_flextrace("record", "-o", small_file_system / "a.parquet", "--", "sh", "-c", fill)
    assert done.returncode == 1
    (kept,) = small_file_system.glob("a.*.iotrace")
    assert f"The recording is kept as {kept}" in done.stderr
    assert sorted(small_file_system.iterdir()) == [kept, small_file_system / "rest"]
    assert len(characterize.open(kept).io) > 0


def test_archiving_that_is_interrupted_keeps_the_trace_and_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(trace, archive, *, force):
        raise KeyboardInterrupt

    monkeypatch.setattr("flextrace.record.write_archive", interrupted)
    trace, archive = tmp_path / "a b.iotrace", tmp_path / "a b.parquet"
    trace.write_bytes(b"recorded")
    with pytest.raises(FlextraceError, match=r"^interrupted\. The recording is kept as") as caught:
        keep_as_archive(trace, archive, force=False, quiet=False)
    assert caught.value.exit_code == 130
    command = shlex.split(str(caught.value).partition("later: ")[2])
    assert command == ["flextrace", "export", str(trace), "-o", str(archive)]
    assert trace.read_bytes() == b"recorded"


@pytest.mark.records
def test_record_does_not_begin_over_an_existing_archive(tmp_path):
    (tmp_path / "a.parquet").write_text("precious")
    done = run_flextrace("record", "-o", tmp_path / "a.parquet", "--", "touch", tmp_path / "ran")
    assert done.returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    done = run_flextrace("record", "--force", "--dry-run", "-o", tmp_path / "a.parquet", "--", "true")
    assert done.returncode == 0
    assert (tmp_path / "a.parquet").read_text() == "precious"


def started(tmp_path, *words, hangup):
    """``flextrace record`` of a command into an archive, past the line that says that it runs; `hangup`: of SIGHUP."""
    command = [sys.executable, "-m", "flextrace", "record", "-o", str(tmp_path / "a.parquet"), "--", *words]
    recording = subprocess.Popen(
        ["env", f"--{hangup}-signal=HUP", *command], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for_recording(recording.stderr)
    return recording


@pytest.mark.records
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_recording_and_not_the_archiving(tmp_path, number):
    with started(tmp_path, "sleep", "60", hangup="default") as recording:
        recording.send_signal(number)
        rest = recording.stderr.read()
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"], rest
    metadata = characterize.open(tmp_path / "a.parquet").header.metadata
    assert metadata["command"] == ["sleep", "60"]
    assert metadata["exit_status"] == 128 + number


@pytest.mark.records
def test_nohup_keeps_a_recording_when_the_terminal_goes(tmp_path):
    with started(tmp_path, "sleep", "1", hangup="ignore") as recording:
        os.killpg(recording.pid, signal.SIGHUP)
        rest = recording.stderr.read()
    assert recording.returncode == 0, rest
    assert characterize.open(tmp_path / "a.parquet").header.metadata["stopped_by"] == "end"


TAKES_A_SIGNAL = """
import os, signal, time
signals = {signal.SIGHUP, signal.SIGTERM}
ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
time.sleep(0.3)
os.kill(os.getppid(), signal.SIGHUP)
taken = signal.sigtimedwait(signals, 1 if ignored else 60)
print("ignored" if ignored else "default", signal.Signals(taken.si_signo).name if taken else "nothing")
"""


@pytest.mark.parametrize(
    ("handler", "told"), [(signal.SIG_DFL, "default SIGHUP"), (signal.SIG_IGN, "ignored nothing")], ids=["", "nohup"]
)
def test_a_hangup_is_the_recorders_end_unless_it_is_ignored(capfd, handler, told):
    before = signal.signal(signal.SIGHUP, handler)
    try:
        assert run_recorder([sys.executable, "-c", TAKES_A_SIGNAL]) == 0
        assert signal.getsignal(signal.SIGHUP) == handler
    finally:
        signal.signal(signal.SIGHUP, before)
    assert capfd.readouterr().out.strip() == told
