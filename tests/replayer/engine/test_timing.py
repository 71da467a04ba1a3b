# SPDX-License-Identifier: Apache-2.0
"""Due times, late policies, the verdict of accuracy, the null engine, and what --direct and --sync change.

Nothing is compared with a time that a fast machine reaches: the schedules are ones that no machine can keep, or that
every machine keeps.
"""

import json
import os
import resource
import subprocess

import pytest

import characterize
from characterize.layout import PROCESSOR_SHARE_ALL, PROCESSOR_SHARE_NONE, Fileop, HeaderFlag, IoFlag, Source
from flextrace.main import main
from tests.runs.running_replay import lines_and_document, stop_for
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, needs_engine, needs_strace, op, strace

pytestmark = needs_engine

PAGE = 4096
MIB = 1 << 20
ENGINES = ["sync", "io_uring"]


def run(path, *options, statuses=(0,), **keywords):
    done = subprocess.run([ENGINE, path, *options], capture_output=True, text=True, check=False, timeout=60, **keywords)
    assert done.returncode in statuses, done.stderr
    return json.loads(done.stdout)


def impossible(place, count=1009, size=PAGE):
    """Requests of one thread due 1 ns after each other, which take longer than that."""
    io = [read(0, size, 1000 + at, 0) for at in range(count)]
    return characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": size}]), place / "t.iotrace", force=True)


def easy(place, count=53, gap_ns=2_000_000):
    io = [read(PAGE * at, PAGE, 1000 + gap_ns * at, 1000) for at in range(count)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": PAGE * count}])
    return characterize.write(made, place / "easy.iotrace", force=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_catch_up_does_all_and_says_how_far_behind(tmp_path, engine):
    """101 requests of 1 MiB: the last starts when 100 have been read, behind by nearly all of the elapsed time."""
    path = impossible(tmp_path, 101, MIB)
    options = ["--timing=recorded", f"--engine={engine}"]
    document = run(path, f"--directory={tmp_path / 'image'}", *options, statuses=(3,))
    accuracy = document["accuracy"]
    assert document["operations"]["done"] == 101
    assert accuracy["behind"]["count"] == accuracy["lateness"]["count"] == 101
    assert accuracy["behind_share"] > 0.01
    assert accuracy["schedule_ns"] == 100
    assert accuracy["slip_ns"] == 0
    assert accuracy["behind"]["p50_ns"] <= accuracy["drift_ns"] <= accuracy["behind"]["max_ns"]
    assert document["accuracy"]["verdict"] in ("behind", "late")
    assert any("recorded time" in reason or "could have begun" in reason for reason in document["reasons"])
    times, from_due = document["response_time"]["read"], document["response_time_from_due"]["read"]
    assert times["count"] == from_due["count"] == 101
    # Response time from due = time behind + response time, for each of them.
    sums = accuracy["behind"]["mean_ns"] + times["mean_ns"]
    assert from_due["mean_ns"] == pytest.approx(sums, rel=0.01, abs=20_000)
    assert from_due["mean_ns"] > 5 * times["mean_ns"]


@pytest.mark.parametrize("engine", ENGINES)
def test_skip_leaves_out_what_is_beyond_the_limit(tmp_path, engine):
    """1009 requests due within 1 us: no machine starts more than a few of them within 0.1 us of their times."""
    options = ["--timing=recorded", "--late=skip", "--late-limit-ms=0.0001", f"--engine={engine}"]
    document = run(impossible(tmp_path), f"--directory={tmp_path / 'image'}", *options, statuses=(3,))
    operations = document["operations"]
    assert operations["records"] == 1009 == operations["done"] + operations["skipped"]
    assert document["skipped_reasons"] == {"late": operations["skipped"]}
    assert operations["skipped"] > 900
    assert document["requests"]["read"] == operations["done"]
    assert document["accuracy"]["skip_limit_ns"] == 100
    assert document["accuracy"]["behind_share"] > 0.8
    assert document["trustworthy"] is False


def test_file_operations_are_never_skipped(tmp_path):
    fileops = [op(kind, 1001 + 2 * at) for at in range(101) for kind in (Fileop.OPEN, Fileop.CLOSE)]
    made = made_trace([read(0, PAGE, 1000, 0)], fileops=fileops, files=[{"file": 1, "size_bytes": PAGE}])
    path = characterize.write(made, tmp_path / "t.iotrace")
    options = ["--timing=recorded", "--late=skip", "--late-limit-ms=0.0001"]
    document = run(path, f"--directory={tmp_path / 'image'}", *options, statuses=(0, 3))
    assert document["operations"]["fileop"]["done"] == 202


@pytest.mark.parametrize("engine", ENGINES)
def test_slip_moves_the_schedule_and_tells_by_how_much(tmp_path, engine):
    """The schedule moves by nearly all of the elapsed time, and what follows is behind the moved one by little."""
    path = impossible(tmp_path, 101, 4 * MIB)
    options = ["--timing=recorded", "--late=slip", f"--engine={engine}"]
    document = run(path, f"--directory={tmp_path / 'image'}", *options, statuses=(3,))
    accuracy = document["accuracy"]
    assert document["operations"]["done"] == 101
    assert 0 < accuracy["slip_ns"] <= document["elapsed_s"] * 1e9
    assert accuracy["slip_ns"] > 0.5 * document["elapsed_s"] * 1e9
    assert accuracy["drift_ns"] < accuracy["slip_ns"]
    assert any("slipped" in reason or "could have begun" in reason for reason in document["reasons"])


@needs_strace
@pytest.mark.parametrize("call", ["fsync", "io_uring_enter"])
def test_calls_that_hold_a_ring_worker_are_not_lateness_of_the_host(tmp_path, call):
    """strace makes calls take 15 ms more. What is due 1 ms after their start is behind, but could not have begun.

    Unless a busy host wakes the worker for both at once: then both are late, and neither is held up. One in ten at
    least is behind by what nobody was late; whoever takes the calls for lateness finds no difference at all.
    """
    rounds, round_ns = 10, 50_000_000
    starts = [1000 + round_ns * at for at in range(rounds)]
    fileops = [op(Fileop.FSYNC, start) for start in starts] if call == "fsync" else []
    io = [read(0, PAGE, start + 1_000_000, 1000) for start in starts]
    # In flight together with the one that follows, which so does not wait for its end.
    io += [read(0, PAGE, start, 2_000_000) for start in starts] if call == "io_uring_enter" else []
    made = made_trace(io, fileops=fileops, files=[{"file": 1, "size_bytes": PAGE}])
    path = characterize.write(made, tmp_path / "t.iotrace")
    slow = ["strace", "-f", "-o", tmp_path / "log", "-e", f"trace={call}", "-e", f"inject={call}:delay_exit=15000"]
    command = [*slow, ENGINE, path, f"--directory={tmp_path / 'image'}", "--timing=recorded", "--engine=io_uring"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    accuracy = json.loads(done.stdout)["accuracy"]
    assert accuracy["lateness"]["count"] == 2 * rounds
    assert accuracy["behind"]["p90_ns"] > 13_000_000
    assert accuracy["behind"]["mean_ns"] - accuracy["lateness"]["mean_ns"] > 13_000_000 / 10


@pytest.mark.parametrize("engine", [*ENGINES, "null"])
@pytest.mark.parametrize("timing", ["recorded", "think"])
def test_no_operation_begins_early(tmp_path, engine, timing):
    where = [] if engine == "null" else [f"--directory={tmp_path / 'image'}"]
    document = run(easy(tmp_path), *where, f"--timing={timing}", f"--engine={engine}", statuses=(0, 3))
    assert document["elapsed_s"] >= 52 * 0.002 - (0.001 if timing == "think" else 0)
    assert document["accuracy"]["lateness"]["count"] == 53
    fast = run(easy(tmp_path), *where, f"--timing={timing}", f"--engine={engine}", "--speed=10", statuses=(0, 3))
    assert fast["elapsed_s"] >= 52 * 0.0002 - (0.0001 if timing == "think" else 0)
    assert fast["speed"] == 10


def test_a_schedule_that_is_longer_than_any_counter(tmp_path):
    command = [ENGINE, easy(tmp_path), "--engine=null", "--timing=recorded", "--speed=1e-300", "--max-seconds=0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    accuracy = json.loads(done.stdout)["accuracy"]
    assert (accuracy["limit_ns"], accuracy["schedule_ns"]) == (10**18, 10**18)


def thinking_with_a_stop(path, *options):
    """A replay of a second of think times that is stopped for 0.8 s once it has begun; its document, and the stop."""
    command = [ENGINE, path, "--engine=null", "--timing=think", "--interval-ms=20", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout.readline().startswith('{"t_s"')
        stopped_s = stop_for(engine, 0.8)
        out = engine.communicate(timeout=60)[0]
    return lines_and_document(out)[1], stopped_s


def test_late_wake_ups_do_not_add_up_with_think_times(tmp_path):
    """A second of think times, through most of which the engine is stopped: the rest is thought faster.

    Whoever thinks for as long as ever is behind by all latenesses together, however many of these the host adds.
    """
    document, stopped_s = thinking_with_a_stop(easy(tmp_path, count=103, gap_ns=10_000_000))
    lateness = document["accuracy"]["lateness"]
    assert lateness["max_ns"] > (stopped_s - 0.02) * 1e9
    late_s = lateness["mean_ns"] * lateness["count"] / 1e9
    assert 102 * 0.0099 <= document["elapsed_s"] < 1.02 + late_s - stopped_s / 4


def test_late_wake_ups_of_others_do_not_add_up_with_think_times(tmp_path):
    """A second in which eight threads read what another one has just written, every 10 ms; it writes when they have.

    Through most of it the engine is stopped. Who then finds that the write is late, too, waits for it, and has no less
    to make up for than the writer.
    """
    rounds, gap_ns = 101, 10_000_000
    io = [write(0, PAGE, 1000 + gap_ns * at, 1000, thread=1) for at in range(rounds)]
    readers = range(2, 10)
    io += [read(0, PAGE, 5000 + gap_ns * at, 1000, thread=reader) for at in range(rounds) for reader in readers]
    path = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": PAGE}]), tmp_path / "t.iotrace")
    document, stopped_s = thinking_with_a_stop(path, "--order=resource")
    planned_s = (rounds - 1) * 0.0099
    assert planned_s <= document["elapsed_s"] < planned_s + stopped_s


def processor_s(path, *options):
    """Processor time that a replay without I/O took, seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(path, "--engine=null", "--timing=think", *options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_threads_compute_in_think_times_as_when_recorded(tmp_path):
    """A second of think times of 20 ms, a tenth of which a thread had a processor; one that began later, all before.

    Who computes until a time gets less of a processor that many others want, too; and never more.
    """
    tenth = PROCESSOR_SHARE_NONE + (PROCESSOR_SHARE_ALL - PROCESSOR_SHARE_NONE) // 10
    io = [read(PAGE * at, PAGE, 1000 + 20_000_000 * at, 1000, processor_share=tenth) for at in range(53)]
    io.append(read(0, PAGE, 900_000_000, thread=2, processor_share=PROCESSOR_SHARE_ALL))
    made = made_trace(io, files=[{"file": 1, "size_bytes": PAGE * 53}])
    path = characterize.write(made, tmp_path / "t.iotrace")
    started = processor_s(path, "--computing=off")
    assert 0.06 < processor_s(path) - started < 0.15
    assert 0.03 < processor_s(path, "--speed=2") - started < 0.09
    assert run(path, "--engine=null", "--timing=think")["computing"] == "recorded"
    assert "computing" not in run(path, "--engine=null", "--timing=recorded", statuses=(0, 3))


def test_think_times_of_traces_that_say_nothing_are_slept(tmp_path):
    assert processor_s(easy(tmp_path, gap_ns=20_000_000)) < 0.2


@pytest.mark.parametrize("timing", ["think", "recorded"])
def test_many_threads_that_sleep_are_let_sleep(tmp_path, timing):
    """For two seconds: one of a few threads would look for a stop forty times."""
    threads = range(1, 501)
    io = [read(0, PAGE, 1000 + 2_000_000_000 * at, 1000, thread=thread) for at in range(2) for thread in threads]
    path = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": PAGE}]), tmp_path / "t.iotrace")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw
    run(path, "--engine=null", f"--timing={timing}", statuses=(0, 3))
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw - before < 20 * len(threads)


def test_think_time_follows_what_had_ended_before(tmp_path):
    """Two at once, then two that think 20 ms after the later one has ended: no more than one think time in all.

    A third pair begins while the second is in flight, so it has no think time of its own but that of the first pair.
    """
    io = [
        read(0, PAGE, 0, 1_000_000, source=Source.IO_URING),
        read(PAGE, PAGE, 10, 2_000_000, source=Source.IO_URING),
        read(2 * PAGE, PAGE, 22_000_010, 5_000_000, source=Source.IO_URING),
        read(3 * PAGE, PAGE, 22_000_020, 5_000_000, source=Source.IO_URING),
        read(4 * PAGE, PAGE, 26_000_010, 5_000_000, source=Source.IO_URING),
    ]
    made = made_trace(io, files=[{"file": 1, "size_bytes": 5 * PAGE}])
    path = characterize.write(made, tmp_path / "t.iotrace")
    document = run(path, f"--directory={tmp_path / 'image'}", "--timing=think")
    assert document["engine"]["name"] == "io_uring"
    assert document["elapsed_s"] >= 0.024
    assert "response_time_from_due" not in document
    assert "behind" not in document["accuracy"]


@pytest.mark.parametrize("timing", ["asap", "think", "recorded"])
def test_every_result_has_a_verdict(tmp_path, timing):
    document = run(easy(tmp_path), f"--directory={tmp_path / 'image'}", f"--timing={timing}", statuses=(0, 3))
    accuracy = document["accuracy"]
    assert accuracy["wake_up_ns"] > 0
    assert accuracy["verdict"] in (["untimed"] if timing == "asap" else ["on_time", "late", "behind"])
    if timing == "recorded":
        late = accuracy["late_share"] > 0.01 or accuracy["behind_share"] > 0.01
        assert (accuracy["verdict"] == "on_time") is not late
        assert document["trustworthy"] is not late
        assert accuracy["limit_ns"] == 200_000  # a tenth of the mean gap
    elif timing == "think":
        assert document["trustworthy"] is True


def test_nobody_spins_where_there_is_one_processor(tmp_path):
    processor = min(os.sched_getaffinity(0))
    confined = run(
        easy(tmp_path),
        "--engine=null",
        "--timing=recorded",
        statuses=(0, 3),
        preexec_fn=lambda: os.sched_setaffinity(0, {processor}),
    )
    assert confined["accuracy"]["spin_margin_ns"] == 0
    assert confined["operations"]["done"] == 53
    if len(os.sched_getaffinity(0)) > 1:
        free = run(easy(tmp_path), "--engine=null", "--timing=recorded", statuses=(0, 3))
        assert 0 < free["accuracy"]["spin_margin_ns"] <= 300_000


@needs_strace
@pytest.mark.parametrize("order", ["resource", "recorded", "thread"])
def test_null_keeps_order_and_counts_and_opens_nothing(tmp_path, order):
    io = [write(PAGE * at, PAGE, 100 * at, 150, thread=1 + at % 3) for at in range(1009)]
    io += [read(0, PAGE, 200_000, 1, file=0), read(0, -14, 200_010, 1)]
    fileops = [op(Fileop.UNLINK, 300_000), op(Fileop.MKDIR, 300_010, file=2)]
    made = made_trace(io, fileops=fileops, files=[{"file": 1, "size_bytes": PAGE}])
    path = characterize.write(made, tmp_path / "t.iotrace")
    command = [str(ENGINE), str(path), "--engine=null", f"--order={order}", f"--directory={tmp_path / 'image'}"]
    done, calls = strace(command, tmp_path / "log", "%file,%desc")
    document = json.loads(done.stdout)
    assert document["engine"] == {"name": "null", "why": "asked for", "direct": "recorded", "sync": "recorded"}
    assert document["operations"]["done"] == 1011
    assert document["operations"]["skipped"] == 2
    assert document["requests"] == {"read": 0, "write": 1009}
    assert document["bytes"]["write"] == 1009 * PAGE
    assert document["response_time"]["write"]["count"] == 0
    touched = {call.arguments for call in calls if str(tmp_path) in call.arguments}
    assert all("t.iotrace" in arguments for arguments in touched)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["log", "t.iotrace"]


def test_null_needs_no_directory(tmp_path, capsys):
    io = [read(PAGE * at, PAGE, at, 0) for at in range(1009)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": MIB}], flags=HeaderFlag.UNTIMED)
    path = characterize.write(made, tmp_path / "s.iotrace")
    assert main(["replay", str(path), "--engine", "null"]) == 0
    out = capsys.readouterr().out
    assert "1009 = 1009 done" in out
    assert "engine        null (asked for)" in out
    looped = run(path, "--engine=null", "--loop", "--max-seconds=0.2")
    assert looped["passes"] > 1
    assert looped["operations"]["records"] % 1009 == 0 or looped["skipped_reasons"]
    assert main(["replay", str(path)]) == 2
    assert "--directory" in capsys.readouterr().err


@needs_strace
@pytest.mark.parametrize(("options", "direct", "syncs"), [([], 3, 2), (["--direct=off"], 0, 2), (["--sync=off"], 3, 0)])
def test_direct_and_sync_as_recorded_or_off(run_phase, options, direct, syncs):
    """Three files, each opened once in its class; O_DSYNC and fsync stand for the sync family."""
    io = [read(0, PAGE, 10 * file, 1, file=file, flags=int(IoFlag.DIRECT)) for file in (1, 2, 3)]
    io.append(write(0, PAGE, 50, 1, file=4, flags=int(IoFlag.DSYNC)))
    fileops = [op(Fileop.FSYNC, 60, file=4), op(Fileop.FDATASYNC, 70, file=4)]
    files = [{"file": file, "size_bytes": PAGE} for file in (1, 2, 3, 4)]
    document, calls = run_phase(made_trace(io, fileops=fileops, files=files), "%file,%desc", options)
    opened = [call.arguments for call in calls if call.name == "openat" and '"f0' in call.arguments]
    assert sum("O_DIRECT" in arguments for arguments in opened) == direct
    assert any("O_DSYNC" in arguments for arguments in opened) is bool(syncs)
    first = [call.name for call in calls].index("pread64")  # what is before it makes the page cache ready
    assert sum(call.name in ("fsync", "fdatasync") for call in calls[first:]) == syncs
    assert document["skipped_reasons"] == ({} if syncs else {"sync_off": 2})
    assert document["operations"]["done"] == 4 + syncs
    assert document["trustworthy"] is True


def test_direct_on_leaves_odd_requests_to_the_page_cache_and_says_so(tmp_path):
    io = [read(0, PAGE, 10, 1), read(1, 100, 20, 1), write(PAGE, 512, 30, 1), write(7, 512, 40, 1)]
    path = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 2 * PAGE}]), tmp_path / "t.iotrace")
    document = run(path, f"--directory={tmp_path / 'image'}", "--direct=on")
    assert document["operations"]["done"] == 4
    assert [warning for warning in document["warnings"] if warning.startswith("2 requests have no whole sectors")]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--engine=fast"], "fast"),
        (["--depth=0"], "--depth"),
        (["--depth=2.5"], "2.5"),
        (["--depth=5000"], "4096"),
        (["--depth=2", "--engine=sync"], "io_uring"),
        (["--late=skip"], "--timing recorded"),
        (["--late=never", "--timing=recorded"], "never"),
        (["--late-limit-ms=-1"], "-1"),
        (["--direct=maybe"], "maybe"),
        (["--sync=fua"], "--sync does not know 'fua'"),
        (["--engine=null", "--phase=prepare"], "prepare"),
    ],
)
def test_wrong_usage_names_the_option(tmp_path, options, word):
    command = [ENGINE, easy(tmp_path), f"--directory={tmp_path / 'image'}", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert word in done.stderr
    assert not (tmp_path / "image").exists()


def test_the_verb_passes_on_its_options(tmp_path, capsys):
    path = easy(tmp_path)
    arguments = [
        "replay",
        str(path),
        "--directory",
        str(tmp_path / "image"),
        "--format",
        "json",
        "--timing",
        "recorded",
    ]
    arguments += ["--engine", "io_uring", "--depth", "3", "--late", "skip", "--late-limit", "7s"]
    arguments += ["--direct", "on", "--sync", "off"]
    assert main(arguments) in (0, 3)
    document = json.loads(capsys.readouterr().out)
    engine, accuracy = document["engine"], document["accuracy"]
    assert (engine["name"], engine["depth"], engine["direct"], engine["sync"]) == ("io_uring", 3, "on", "off")
    assert (accuracy["late_policy"], accuracy["skip_limit_ns"]) == ("skip", 7_000_000_000)


def test_the_summary_tells_engine_lateness_and_verdict(tmp_path, capsys):
    arguments = ["replay", str(easy(tmp_path)), "--directory", str(tmp_path / "image"), "--timing", "recorded"]
    assert main(arguments) in (0, 3)
    out = capsys.readouterr().out
    assert "engine        sync (no requests of one thread were in flight at once)" in out
    lines = [line.split() for line in out.splitlines()]
    assert [line[1] for line in lines if line and line[0] in ("read", "read*", "late", "behind")] == ["53"] * 4
    assert "accuracy " in out
    assert "drift" in out
    assert all(len(line) <= 100 for line in out.splitlines()[1:])
