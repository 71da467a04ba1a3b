# SPDX-License-Identifier: Apache-2.0
"""How processors were used, also by the recorder: what a recording says of it, and what a replay makes of that."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pandas as pd
import pytest

import characterize
from characterize.layout import PROCESSOR_SHARE_ALL, PROCESSOR_SHARE_NONE
from flextrace.main import main
from replayer.alter import Relative, alter
from replayer.run import engine_command
from replayer.running.binaries import find_binary
from replayer.running.processors import processor_options
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ENGINE, needs_engine, needs_strace, strace
from tests.truths.told import run_recorder

PAGE = 4096
NS = 10**9


# Computes for 3 ms of processor time and sleeps for 5 ms, in turns.
OTHER = """
import time
while True:
    until = time.thread_time_ns() + 3_000_000
    while time.thread_time_ns() < until:
        pass
    time.sleep(0.005)
"""

# Tells the processor time (ns) that another process, and the whole machine, had in the two seconds between two writes.
PROGRAM = """
import os, sys, time
def had():
    ticks = [int(word) for word in open("/proc/stat").readline().split()[1:9]]
    busy = sum(ticks) - ticks[3] - ticks[4]
    return int(open(f"/proc/{sys.argv[2]}/schedstat").read().split()[0]), busy * 10**9 // os.sysconf("SC_CLK_TCK")
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.pwrite(file, b"x", 0)
before = had()
time.sleep(2)
after = had()
os.pwrite(file, b"x", 0)
print(after[0] - before[0], after[1] - before[1])
"""


@pytest.mark.records
def test_how_long_programs_had_processors_that_were_not_recorded(tmp_path):
    """As much as the kernel charged the one that ran, and no more than all had, as far as it is looked at."""
    other = subprocess.Popen([sys.executable, "-c", OTHER])
    try:
        program = [sys.executable, "-c", PROGRAM, tmp_path / "f", str(other.pid)]
        done = run_recorder(tmp_path / "t.iotrace", *program)
    finally:
        other.kill()
        other.wait()
    assert done.returncode == 0, done.stderr
    of_other_ns, of_all_ns = map(int, done.stdout.split())
    header = characterize.open(tmp_path / "t.iotrace").header
    told = header.metadata["processors"]
    recorded_ns = header.end_monotonic_ns - header.start_monotonic_ns
    rest_ns = recorded_ns - 2 * NS
    cpus = os.cpu_count() or 1
    # The machine's account is in ticks.
    assert 0.95 * of_other_ns <= told["others"] * recorded_ns <= 1.05 * of_all_ns + cpus * rest_ns
    if told["others"] * recorded_ns < 1.2 * of_other_ns:  # nobody else had much, in other bursts
        assert 1_000_000 < told["others_burst_ns"] < 4_000_000


@pytest.mark.records
def test_what_others_have_before_and_after_a_short_recording_does_not_count(tmp_path):
    """To attach and to detach takes as long. More compute than there are processors, so that they take turns."""
    cpus = os.cpu_count() or 1
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * cpus)]
    try:
        done = run_recorder(tmp_path / "t.iotrace", "sleep", "0.2")
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert done.returncode == 0, done.stderr
    told = characterize.open(tmp_path / "t.iotrace").header.metadata["processors"]["others"]
    assert 0.5 * cpus < told < 1.1 * cpus


@pytest.mark.records
def test_for_how_long_at_a_time_a_thread_computes_that_sleeps_between_its_calls(tmp_path):
    """Seven times 2 ms before each of 31 calls."""
    code = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for _ in range(31):
    for _ in range(7):
        until = time.thread_time_ns() + 2_000_000
        while time.thread_time_ns() < until:
            pass
        time.sleep(0.001)
    os.pwrite(file, b"x", 0)
"""
    done = run_recorder(
        tmp_path / "t.iotrace", sys.executable, "-c", code, tmp_path / "f", options=[f"--path={tmp_path}"]
    )
    assert done.returncode == 0, done.stderr
    told = characterize.open(tmp_path / "t.iotrace").header.metadata["processors"]
    assert 1_500_000 < told["thinking_burst_ns"] < 2_500_000


@pytest.mark.records
def test_what_recording_takes_of_the_time_between_two_calls(tmp_path):
    """Of a program that does nothing but calls it is all of that, with the way into the kernel and back."""
    done = run_recorder(tmp_path / "t.iotrace", find_binary("tests/burst"), tmp_path, options=[f"--path={tmp_path}"])
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t.iotrace")
    calls = trace.io.sort_values(["thread", "start_ns"])
    gaps = calls["start_ns"] - (calls["start_ns"] + calls["duration_ns"]).shift()
    between_ns = gaps[calls["thread"] == calls["thread"].shift()].median()
    told = trace.header.metadata["processors"]
    assert 0.6 * between_ns < told["recording_ns"] < 1.2 * between_ns
    assert told["call_ns"] > 0
    assert 0.7 * between_ns < told["recording_ns"] + told["call_ns"] < 1.5 * between_ns


@pytest.mark.records
def test_what_recording_takes_of_calls_that_take_turns(tmp_path):
    """The mean of all four, of which one takes far longer than the others."""
    program = [find_binary("tests/made_again"), tmp_path / "f"]
    done = run_recorder(tmp_path / "t.iotrace", *program, options=[f"--path={tmp_path / 'f'}"])
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t.iotrace")
    writes = trace.io.assign(op=-1)  # no operation on a file has this number
    calls = pd.concat([writes, trace.fileops])[["start_ns", "duration_ns", "op"]].sort_values("start_ns")
    gaps = calls["start_ns"].shift(-1) - (calls["start_ns"] + calls["duration_ns"])
    between_ns = gaps.groupby(calls["op"]).median()
    told = trace.header.metadata["processors"]
    assert len(between_ns) == 4
    assert 0.7 * between_ns.mean() < told["recording_ns"] + told["call_ns"] < 1.5 * between_ns.mean()


def trace_with(place, processors, io=None):
    made = made_trace(
        io or [read(0, PAGE, 1000, 1000)],
        files=[{"file": 1, "size_bytes": PAGE}],
        metadata={} if processors is None else {"processors": processors},
    )
    return characterize.write(made, place / "t.iotrace", force=True)


@pytest.mark.parametrize(
    ("processors", "expected"),
    [
        (None, {}),
        ({"others": 0.25}, {"others": 0.25}),
        (
            {"others": 1.5, "others_burst_ns": 19758, "thinking_burst_ns": 36802},
            {"others": 1.5, "others_burst_us": 19.758, "think_burst_us": 36.802},
        ),
        ({"recording_ns": 431}, {"recording_us": 0.431}),
        ({"recording_ns": 431, "thinking_burst_ns": 36802}, {"recording_us": 0.431, "think_burst_us": 36.802}),
        ({"recording_ns": 431, "call_ns": 120}, {"recording_us": 0.551}),
        ({"recording_ns": 431, "call_ns": "short"}, {"recording_us": 0.431}),
        ({"call_ns": 120}, {}),  # its times are not known to be those within the kernel
        ({"recording_ns": 0}, {}),
        ({"recording_ns": 2e6}, {}),  # no operation can have taken that
        ({"others": 0.001, "others_burst_ns": 19758}, {}),  # nothing that could be felt
        ({"others": 1e9, "thinking_burst_ns": 0}, {}),
        ({"others": "many", "thinking_burst_ns": None}, {}),
        ({"others": float("nan"), "thinking_burst_ns": -1}, {}),
        ({"others": 10**400}, {}),  # of which there is no float
        (["others"], {}),
    ],
)
def test_what_a_recording_says_becomes_options(tmp_path, processors, expected):
    path = trace_with(tmp_path, processors)
    assert processor_options(path) == expected
    own = {name: value for name, value in expected.items() if not name.startswith("others")}
    assert processor_options(path, others=False) == own
    recording = {name: value for name, value in expected.items() if name == "recording_us"}
    assert processor_options(path, computing=False) == recording


def test_only_think_times_are_computed(tmp_path):
    path = trace_with(tmp_path, {"others": 0.25, "thinking_burst_ns": 30_000, "recording_ns": 431})
    known = {"--others", "--think-burst-us", "--recording-us"}

    def arguments(**options):
        return {word.split("=")[0] for word in engine_command(path, None, {"engine": "null", **options})[2:]}

    assert arguments(timing="think") >= known
    assert "--others" not in arguments(timing="think", computing="alone")
    assert "--think-burst-us" in arguments(timing="think", computing="alone")
    assert arguments(timing="think", computing="off") & known == {"--recording-us"}
    for quiet in ({"timing": "asap"}, {"timing": "recorded"}):
        assert not arguments(**quiet) & known
    assert "--computing=recorded" in engine_command(path, None, {"timing": "asap", "computing": "alone"})


def replayed(path, *options):
    """The document of a replay without I/O that keeps think times."""
    command = [ENGINE, path, "--engine=null", "--timing=think", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def used_by(path, *options):
    """Processor time (s) and voluntary switches of such a replay."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    replayed(path, *options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    had_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return had_s, after.ru_nvcsw - before.ru_nvcsw


def second_of_thinking(place, share):
    """Think times of 20 ms."""
    code = PROCESSOR_SHARE_NONE + round((PROCESSOR_SHARE_ALL - PROCESSOR_SHARE_NONE) * share)
    return trace_with(
        place, None, [read(0, PAGE, 1000 + 20_000_000 * at, 1000, processor_share=code) for at in range(53)]
    )


@needs_engine
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="nobody spins on one processor anyway")
def test_nobody_spins_on_processors_that_the_control_group_does_not_give(tmp_path, monkeypatch):
    path = second_of_thinking(tmp_path, 0.0)
    for limit, given, spins in ((None, [], True), (1.5, ["--processors=1"], False), (0.5, ["--processors=1"], False)):
        monkeypatch.setattr("replayer.run.processor_limit", lambda limit=limit: limit)
        options = [word for word in engine_command(path, None, {}) if word.startswith("--processors")]
        assert options == given
        assert (replayed(path, "--speed=20", *options)["accuracy"]["spin_margin_ns"] > 0) is spins


@needs_engine
@pytest.mark.parametrize("speed", [1, 2])
def test_a_replay_leaves_out_what_recording_took(tmp_path, speed):
    """5 of 20 ms, 52 times, of threads that sleep and of threads that compute."""
    for share in (0.0, 1.0):
        document = replayed(second_of_thinking(tmp_path, share), "--recording-us=5000", f"--speed={speed}")
        assert document["recording_ns"] == 5_000_000
        assert 52 * 0.0149 / speed < document["elapsed_s"] < 52 * 0.0199 / speed


@needs_engine
def test_what_recording_took_beyond_a_think_time_is_left_out_of_the_next(tmp_path):
    """5 ms of each, of 1 and 19 ms in turns, 26 times: 10 of 20 are left, and not 14."""
    starts = [1000 + 20_000_000 * (at // 2) + 1_000_000 * (at % 2) for at in range(53)]
    path = trace_with(tmp_path, None, [read(0, PAGE, start) for start in starts])
    assert 26 * 0.0099 < replayed(path, "--recording-us=5000")["elapsed_s"] < 26 * 0.012


def test_what_recording_took_is_scaled_as_the_think_times_are(tmp_path):
    """A tenth of a think time holds a tenth of it; where nothing is scaled, it stays."""
    io = [read(PAGE * (at % 7), PAGE, 1000 + 20_000_000 * at, 1000) for at in range(53)]
    parent = characterize.open(trace_with(tmp_path, {"recording_ns": 400, "call_ns": 100, "others": 0.5}, io))
    for change in ({"timeScale": Relative(0.1)}, {"thinkScale": Relative(0.1)}):
        altered, _ = alter(parent, change)
        told = altered.header.metadata["processors"]
        assert told == pytest.approx({"recording_ns": 40, "call_ns": 10, "others": 0.5}, rel=0.01)
    told = alter(parent, {"readFrac": Relative(1)})[0].header.metadata["processors"]
    assert told == parent.header.metadata["processors"]


@needs_engine
@needs_strace
def test_others_are_as_many_threads_as_processors(tmp_path):
    """Begun ones count as whole ones; each says that it takes nobody's processor as it wakes up."""
    command = [ENGINE, trace_with(tmp_path, None), "--engine=null", "--timing=think"]
    for options, count in ([], 0), (["--others=2.5"], 3):
        done, calls = strace([*map(str, command), *options], tmp_path / "log", "sched_setscheduler")
        assert done.returncode == 0, done.stderr
        assert len({call.thread for call in calls if "SCHED_BATCH" in call.arguments}) == count


@needs_engine
def test_a_thread_computes_for_the_recorded_share_of_its_think_times(tmp_path):
    """A twentieth of 20 ms more, 52 times; who is late, on a busy host, makes up for it and computes less."""
    little_s, much_s = (used_by(second_of_thinking(tmp_path, share))[0] for share in (0.01, 0.06))
    assert 0.3 * 52 * 0.001 < much_s - little_s < 1.25 * 52 * 0.001


@needs_engine
def test_a_thread_computes_in_the_recorded_bursts(tmp_path):
    """1 ms of 20, 52 times: in bursts of 0.1 ms that is nine sleeps each and not one, but for who waits meanwhile."""
    path = second_of_thinking(tmp_path, 0.05)
    (_, once), (_, often) = used_by(path), used_by(path, "--think-burst-us=100")
    assert often - once > 52


@needs_engine
def test_a_replay_says_that_others_computed(tmp_path, capsys):
    """By default as the recording says, and not where they are to be left out."""
    path = trace_with(tmp_path, {"others": 0.25, "recording_ns": 431})
    replay = ["replay", str(path), "--engine", "null", "--timing", "think"]
    assert main(replay) == 0
    said = capsys.readouterr().out
    assert "0.25 processors are kept busy" in said
    assert "without 431 ns each, of recording and of entering the kernel" in " ".join(said.split())
    assert main([*replay, "--computing", "alone"]) == 0
    assert "kept busy" not in capsys.readouterr().out


@needs_engine
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--timing=asap", "--others=0.3"], "--others is for --timing think"),
        (
            ["--timing=think", "--computing=off", "--others=0.3"],
            "--others is for --timing think with --computing recorded",
        ),
        (["--timing=asap", "--recording-us=1"], "--recording-us is for --timing think"),
        (["--timing=think", "--others=0"], "--others needs a positive number"),
        (["--timing=think", "--others=257"], "--others can keep 256 processors busy"),
        (["--timing=think", "--think-burst-us=0.5"], "--think-burst-us needs 1 to 1000000 microseconds"),
        (["--timing=think", "--others-burst-us=2e6"], "--others-burst-us needs 1 to 1000000 microseconds"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, options, said):
    command = [ENGINE, trace_with(tmp_path, None), "--engine=null", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr
