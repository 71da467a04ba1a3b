# SPDX-License-Identifier: Apache-2.0
"""The verb replay and replayer.run: options, results, errors, stopping, memory groups, and a recording of a replay."""

import hashlib
import json
import os
import signal
import subprocess
import sys

import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.layout import FileFlag, Fileop, HeaderFlag, IoFlag, Source
from characterize.workload import Workload, workload_of
from flextrace.main import main
from replayer.run import prepare, replay
from replayer.running.confine import MemoryGroup
from replayer.willy import make_trace
from tests.runs.running_replay import own_process, playing, wait_until
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ROOT, needs_engine

pytestmark = needs_engine


@pytest.fixture
def trace(tmp_path):
    io = [read(4096 * at, 4096, 1 + 10 * at, 5) for at in range(10)] + [write(0, 4096, 200, 5)]
    return characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 65536}]), tmp_path / "t.iotrace")


@pytest.fixture
def synthetic(tmp_path):
    io = [read(4096 * (at % 16), 4096, at, 0) for at in range(2000)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": 65536}], flags=HeaderFlag.UNTIMED)
    return characterize.write(made, tmp_path / "s.iotrace")


def test_json_and_output_hold_the_result_and_where_it_comes_from(trace, tmp_path, capsys):
    output = tmp_path / "result.json"
    arguments = ["replay", str(trace), "--directory", str(tmp_path / "image"), "--output", str(output)]
    assert main([*arguments, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(output.read_text())
    assert document["schema"] == "flextrace.replay/1"
    assert document["operations"]["done"] == 11
    assert document["bytes"] == {"read": 40960, "write": 4096}
    assert document["order"] == "resource"
    assert document["trace_sha256"] == hashlib.sha256(trace.read_bytes()).hexdigest()
    assert document["environment"]["cpus"] == len(os.sched_getaffinity(0))
    assert document["command"][0] == "flextrace"
    assert not (tmp_path / "image").exists()
    assert main(arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0


def test_processors_are_those_that_it_may_run_on(trace):
    command = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))), sys.executable, "-m", "flextrace", "replay"]
    done = subprocess.run(
        [*command, trace, "--engine", "null", "--format", "json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["environment"]["cpus"] == 1


def test_text_names_the_counts_and_fits_a_screen(trace, tmp_path, capsys):
    assert main(["replay", str(trace), "--directory", str(tmp_path / "image"), "--timing", "think"]) == 0
    out = capsys.readouterr().out
    assert "11 = 11 done + 0 short + 0 failed + 0 skipped" in out
    assert "10 reads of 40 KiB, 1 writes of 4 KiB" in out
    assert all(len(line) <= 100 for line in out.splitlines()[1:])


def test_an_untrustworthy_result_exits_with_3_and_says_why(tmp_path, capsys):
    lost = made_trace([read(0, 4096, 1)], files=[{"file": 1, "flags": FileFlag.CREATED}])
    path = characterize.write(lost, tmp_path / "t.iotrace")
    assert main(["replay", str(path), "--directory", str(tmp_path / "image")]) == 3
    captured = capsys.readouterr()
    assert "1 short" in captured.out
    assert "not trustworthy" in captured.err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--loop"], "--max-time"),
        (["--speed", "-1"], "-1"),
        (["--timing", "think", "--speed", "2e9"], "--speed needs a positive number up to 1e9"),
        (["--memory", "lots"], "lots"),
        (["--memory", "1k"], "1024 bytes"),
        (["--output", "/no/such/place/r.json"], "/no/such/place"),
        (["--speed", "2"], "--timing"),
        (["--timing", "recorded", "--late-limit", "1ms"], "--late skip"),
        (["--fit", "wrap"], "--device"),
    ],
)
def test_wrong_usage(trace, tmp_path, capsys, options, word):
    assert main(["replay", str(trace), "--directory", str(tmp_path / "image"), *options]) == 2
    assert word in capsys.readouterr().err
    assert not (tmp_path / "image").exists()


@pytest.mark.root
@pytest.mark.parametrize("options", [["--late", "skip"], ["--engine", "sync", "--depth", "2"]], ids=" ".join)
def test_options_that_do_not_go_together_lay_nothing_out_in_a_group_either(trace, tmp_path, capsys, options):
    image = tmp_path / "image"
    assert main(["replay", str(trace), "--directory", str(image), "--memory", "64M", *options]) == 2
    assert options[-2] in capsys.readouterr().err
    assert not image.exists() or not list(image.iterdir())


@pytest.mark.parametrize("option", ["--output", "--record"])
def test_the_trace_that_is_replayed_is_not_overwritten(trace, tmp_path, capsys, option):
    before = trace.read_bytes()
    assert main(["replay", str(trace), "--directory", str(tmp_path / "image"), option, str(trace), "--force"]) == 2
    assert "is the trace that is read" in capsys.readouterr().err
    assert trace.read_bytes() == before


def test_result_and_recording_have_names_of_their_own(trace, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["replay", str(trace), "--directory", "image", "--record", "r", "--output", str(tmp_path / "r")]
    assert main(words) == 2
    assert "cannot be the result and the recording" in capsys.readouterr().err
    assert not (tmp_path / "image").exists()


def test_errors_of_the_engine_become_one_message(trace, synthetic, tmp_path, capsys):
    image = tmp_path / "image"
    with pytest.raises(FlextraceError, match="cannot read trace") as caught:
        replay(tmp_path / "missing.iotrace", image)
    assert caught.value.exit_code == 1
    with pytest.raises(FlextraceError, match="--timing asap") as caught:
        replay(synthetic, image, timing="think")
    assert caught.value.exit_code == 2
    with pytest.raises(FlextraceError, match="does not know 'warmish'") as caught:
        replay(trace, image, cache="warmish")
    assert caught.value.exit_code == 2
    assert main(["replay", str(trace), "--directory", str(trace)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_intervals_arrive_and_true_stops_the_run(synthetic, tmp_path):
    lines = []

    def enough(line):
        lines.append(line)
        return len(lines) == 4

    document = replay(synthetic, tmp_path / "image", loop=True, interval_ms=20, on_interval=enough)
    assert len(lines) == 4
    assert document["stopped"] == "signal"
    assert document["passes"] > 0
    assert sum(line["requests"] for line in lines) <= document["requests"]["read"]


def test_an_error_in_the_callback_ends_the_engine_and_removes_the_image(synthetic, tmp_path):
    def fail(line):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        replay(synthetic, tmp_path / "image", loop=True, interval_ms=20, on_interval=fail)
    assert not (tmp_path / "image").exists()


def test_prepare_then_run(synthetic, tmp_path):
    image = tmp_path / "image"
    assert prepare(synthetic, image)["image"]["built_bytes"] == 65536
    document = replay(synthetic, image, phase="run", cache="warm", keep_image=True)
    assert document["operations"]["done"] == 2000
    assert (image / "f00000001").stat().st_size == 65536


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_interrupt_ends_the_verb_with_its_result(synthetic, tmp_path, number):
    command = [sys.executable, "-m", "flextrace", "replay", str(synthetic), "--directory", str(tmp_path / "image")]
    with own_process([*command, "--loop", "--max-time", "60", "--format", "json"], cwd=ROOT) as process:
        wait_until(lambda: playing(tmp_path / "image"))
        process.send_signal(number)
        out = process.communicate(timeout=60)[0]
    assert json.loads(out)["stopped"] == "signal"
    assert process.returncode == 130
    assert not (tmp_path / "image").exists()


@pytest.mark.root
def test_in_a_memory_group_only_so_much_stays_cached(tmp_path, capsys):
    size = 64 << 20
    trace = made_trace([read(0, 4096, 1)], files=[{"file": 1, "size_bytes": size}])
    path = characterize.write(trace, tmp_path / "t.iotrace")
    arguments = ["replay", str(path), "--directory", str(tmp_path / "image"), "--format", "json", "--cache", "warm"]
    file_system = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True)
    if file_system.stdout.strip() == "tmpfs":
        pytest.skip("what a tmpfs holds cannot be evicted")
    assert main([*arguments, "--memory", "32M"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["image"]["cache_wanted_bytes"] == size
    assert document["image"]["cache_resident_bytes"] < 32 << 20
    assert document["image"]["built_bytes"] == size
    assert document["environment"]["memory_limit_bytes"] == 32 << 20
    assert document["phase"] == "all"  # one engine, which has its directory locked from the layout on
    assert not (tmp_path / "image").exists()


@pytest.mark.root
def test_what_the_engine_keeps_of_a_trace_takes_nothing_from_the_page_cache(tmp_path):
    """Of 2 M requests it keeps some 25 MB. With the file that is more than the limit; without, it fits."""
    workload = Workload(unique_bytes=56 << 20, seq_frac=0.5, read_frac=1.0, size_mean=4096.0, process_num=1.0)
    trace = characterize.write(make_trace(workload, requests=2_000_000, seed=1), tmp_path / "t.iotrace")
    options = {"timing": "asap", "order": "thread", "cache": "warm", "keep_image": True}
    prepare(trace, tmp_path / "image")
    lines = []
    with MemoryGroup(72 << 20) as group:
        document = replay(
            trace,
            tmp_path / "image",
            phase="run",
            memory_group=group,
            interval_ms=10,
            on_interval=lines.append,
            **options,
        )
        assert group.usage_bytes() <= 72 << 20
    assert document["image"]["cache_resident_bytes"] == 56 << 20
    assert len(lines) > 3
    # With 25 MB more it were 9 MB that do not fit; a few pages go for reasons of others, who have the host drop some.
    assert sum(line["device_read_bytes"] for line in lines) < 1 << 20


@pytest.mark.root
def test_what_the_engine_reads_to_takes_nothing_from_the_page_cache(tmp_path):
    """Eight threads read 4 MiB at a time: 32 MiB of buffers beside 16 MiB of file."""
    size = 4 << 20
    io = [read(size * (at % 4), size, at, 0, thread=1 + at % 8, file=1) for at in range(400)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": 4 * size}], flags=HeaderFlag.UNTIMED)
    trace = characterize.write(made, tmp_path / "t.iotrace")
    prepare(trace, tmp_path / "image")
    used_bytes = []
    with MemoryGroup(96 << 20) as group:
        options = {"phase": "run", "memory_group": group, "loop": True, "max_seconds": 0.5, "interval_ms": 20}
        replay(
            trace,
            tmp_path / "image",
            timing="asap",
            order="thread",
            cache="warm",
            on_interval=lambda line: used_bytes.append(group.usage_bytes()),
            **options,
        )
    assert 16 << 20 <= max(used_bytes) < 32 << 20


@pytest.mark.root
def test_a_group_that_is_none_is_refused(trace, tmp_path):
    class Nowhere:
        path = tmp_path / "nowhere"
        limit_bytes = 1 << 30

    with pytest.raises(FlextraceError, match=r"cannot join the control group .*nowhere: No such file"):
        replay(trace, tmp_path / "image", memory_group=Nowhere())


@pytest.mark.records
def test_a_recording_of_a_replay_equals_the_original(tmp_path):
    """The end of the chain: trace, replay, record, and the five parameters and every request are the same.

    The engine maps its own trace, and its files to put them into the page cache: what it maps is not what it replays.
    """
    io, fileops = [], []
    for at in range(120):
        thread = 1 + at % 3
        make = read if at % 4 else write
        io.append(make((at * 7919) % 200 * 4096, 4096 * (1 + at % 3), 1000 + 100 * at, 90, thread=thread))
    fileops.append({"op": Fileop.OPEN, "start_ns": 1, "duration_ns": 5, "file": 2, "flags": IoFlag.CREATED})
    io += [write(700 * at, 700, 20_000 + 100 * at, 50, file=2) for at in range(30)]
    fileops.append({"op": Fileop.FSYNC, "start_ns": 30_000, "duration_ns": 50, "file": 2})
    fileops.append({"op": Fileop.UNLINK, "start_ns": 31_000, "duration_ns": 50, "file": 2})
    files = [{"file": 1, "size_bytes": 1 << 20}, {"file": 2, "flags": FileFlag.CREATED}]
    path = characterize.write(made_trace(io, fileops=fileops, files=files), tmp_path / "t.iotrace")
    image = tmp_path / "image"
    prepare(path, image)
    engine = [str(ROOT / "build" / "flextrace-replay"), str(path), f"--directory={image}", "--phase=run"]
    engine += ["--order=recorded"]  # which alone keeps the number in flight
    again = tmp_path / "again.iotrace"
    record = [sys.executable, "-m", "flextrace", "record", "-o", str(again), "--", *engine]
    done = subprocess.run(record, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    original, recorded = characterize.open(path), characterize.open(again)
    columns = ["op", "offset", "asked_bytes", "result"]
    key = original.requests[columns].sort_values(columns).to_numpy().tolist()
    replayed = recorded.requests[recorded.requests["source"] == Source.SYSCALL]
    assert replayed[columns].sort_values(columns).to_numpy().tolist() == key
    first, second = workload_of(original), workload_of(recorded, "vfs", "none")
    assert second.unique_bytes == first.unique_bytes
    assert second.seq_frac == first.seq_frac
    assert second.read_frac == first.read_frac
    assert second.size_mean == first.size_mean
    assert second.process_num <= first.process_num


def test_warnings_of_the_recorder_are_called_so_once(trace, tmp_path):
    recorder = ["sh", "-c", 'echo "flextrace record: warning: of the recorder" >&2; exec "$@"', "sh"]
    options = {"timing": "asap", "keep_image": True}
    replay(trace, tmp_path / "image", phase="prepare", **options)
    document = replay(trace, tmp_path / "image", phase="run", recorder=recorder, **options)
    assert "of the recorder" in document["warnings"]
