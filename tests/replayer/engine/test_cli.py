# SPDX-License-Identifier: Apache-2.0
"""The engine's command line, bad input, damaged traces, stopping, and its latency histogram."""

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import characterize
from characterize.layout import TRACE_VERSION_MINOR, FileFlag, Fileop, HeaderFlag, IoFlag
from tests.runs.image_engine import run
from tests.runs.ordinary_user import as_user, directory_of_user
from tests.runs.running_replay import conserved, lines_and_document, looped, own_process, wait_until
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, ROOT, needs_engine

pytestmark = [needs_engine, pytest.mark.parallel]
pytest_plugins = ["tests.machines.small_file_system"]


def processor_s(process):
    """Processor time that a process has had, seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_trace(path, requests=100, threads=1, flags=HeaderFlag.UNTIMED):
    io = [read(4096 * (at % 16), 4096, at, 0, thread=1 + at % threads, file=1) for at in range(requests)]
    return characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 65536}], flags=flags), path)


@pytest.fixture
def trace(tmp_path):
    return write_trace(tmp_path / "t.iotrace")


@pytest.fixture
def image(tmp_path):
    return f"--directory={tmp_path / 'image'}"


def test_version_is_the_packages():
    assert run("--version").stdout.split() == ["flextrace-replay", version("flextrace")]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--nonsense"], "nonsense"),
        (["--timing=sometimes"], "sometimes"),
        (["--order=none"], "none"),
        (["--cache=hot"], "hot"),
        (["--phase=half"], "half"),
        (["--speed=-1"], "-1"),
        (["--speed=0"], "positive"),
        (["--speed=fast"], "fast"),
        (["--max-seconds=-5"], "-5"),
        (["--interval-ms=nan"], "nan"),
        (["other.iotrace"], "more than one"),
        (["--timing=think"], "asap"),
        (["--order=recorded"], "thread"),
    ],
)
def test_wrong_usage_exits_with_2_and_names_it(trace, image, tmp_path, options, word):
    done = run(trace, image, *options)
    assert done.returncode == 2
    assert word in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "image").exists()


def test_trace_and_directory_are_required(trace, image):
    assert run(image).returncode == 2
    assert run(trace).returncode == 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "empty"),
        (lambda data: b"#!/bin/sh\n" * 1000, "not a flextrace trace"),
        (lambda data: b"FLEX", "not a flextrace trace"),
        (lambda data: data[:1000], "cut off within its header"),
        (lambda data: data[:-64], "truncated"),
        (lambda data: data[:8] + b"\x02\x00" + data[10:], f"version 2.{TRACE_VERSION_MINOR}"),
        (lambda data: data[:16] + b"\x80" + data[17:], "damaged"),
    ],
)
def test_foreign_newer_and_truncated_traces_are_refused(trace, image, tmp_path, damage, message):
    trace.write_bytes(damage(trace.read_bytes()))
    done = run(trace, image)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "image").exists()


def test_an_incomplete_trace_is_replayed_up_to_its_last_whole_record(trace, image):
    data = bytearray(trace.read_bytes())
    data[20] |= HeaderFlag.INCOMPLETE
    data[24:32] = bytes(8)  # record_count is not final
    trace.write_bytes(data[: -64 * 10 - 7])
    document = json.loads(run(trace, image).stdout)
    assert document["operations"]["done"] == 89
    # A crash of the machine can leave zeros behind what reached the disk.
    trace.write_bytes(data[: -64 * 10] + bytes(1000))
    document = json.loads(run(trace, image).stdout)
    assert document["operations"]["done"] == 90
    assert any("not closed cleanly" in warning for warning in document["warnings"])


def test_paths_that_are_not_what_they_should_be(trace, image, tmp_path):
    for arguments in (
        [tmp_path / "missing.iotrace", image],
        [tmp_path, image],
        [trace, f"--directory={trace}"],
        [trace, f"--directory={tmp_path}/no/such/parent"],
    ):
        done = run(*arguments)
        assert done.returncode == 1
        assert done.stderr.startswith("flextrace-replay: ")


@pytest.mark.root
def test_a_directory_that_may_not_be_entered_is_named():
    with directory_of_user() as place:
        engine, trace = shutil.copy(ENGINE, place), write_trace(place / "t.iotrace")
        closed, others = place / "closed", place / "others"
        closed.mkdir(mode=0o700)
        others.mkdir(mode=0o755)
        told = f": directory {closed} may not be entered; run as its owner or as root, or have it opened\n"
        for arguments, behind in (
            ([closed / "t.iotrace", f"--directory={place}/image"], told),
            ([trace, f"--directory={closed}/below/image"], told),
            ([trace, f"--device={closed}/disk"], told),
            ([trace, f"--directory={others}/image"], "image: Permission denied\n"),
        ):
            done = subprocess.run([*as_user(), engine, *arguments], capture_output=True, text=True, check=False)
            assert done.returncode == 1
            assert done.stderr.endswith(behind)


def test_a_trace_without_operations_is_refused(image, tmp_path):
    path = characterize.write(made_trace(files=[{"file": 1, "size_bytes": 5}]), tmp_path / "t.iotrace")
    done = run(path, image)
    assert done.returncode == 1
    assert "no operation" in done.stderr
    assert "by --device" in done.stderr


def test_intervals_add_up_to_no_more_than_the_result_and_come_while_it_runs(trace, image):
    with own_process([ENGINE, trace, image, "--loop", "--interval-ms=20"]) as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(5)]
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=30)[0]
    assert process.returncode == 0
    later, document = lines_and_document(rest)
    lines += later
    assert [line["t_s"] for line in lines] == sorted(line["t_s"] for line in lines)
    assert 0 < sum(line["requests"] for line in lines) <= document["requests"]["read"]
    assert sum(line["bytes"] for line in lines) <= document["bytes"]["read"]
    assert all(line["bytes"] == 4096 * line["requests"] for line in lines)
    assert document["stopped"] == "signal"


@pytest.mark.parametrize("options", [[], ["--interval-ms=20"]])
def test_a_replay_whose_reader_is_gone_ends_and_removes_its_files(trace, image, tmp_path, options):
    """As when a front end is killed: it forwards nothing."""
    with own_process([ENGINE, trace, image, "--loop", *options]) as process:
        wait_until((tmp_path / "image" / "f00000001").exists)
        process.stdout.close()
        assert process.wait(timeout=30) == 1
        assert "cannot print the result" in process.stderr.read()
    assert not (tmp_path / "image").exists()


def test_a_result_that_finds_no_room_is_a_failure(trace, image, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run([ENGINE, trace, image], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "flextrace-replay: cannot print the result: No space left on device\n"
    assert not (tmp_path / "image").exists()


@pytest.mark.parametrize("ignored", [False, True])
def test_a_hangup_ends_a_replay_unless_it_is_ignored(trace, image, ignored):
    command = [*(["nohup"] if ignored else []), ENGINE, trace, image, "--loop", "--interval-ms=20"]
    with own_process(command, stdin=subprocess.DEVNULL) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        if ignored:
            for _ in range(10):
                assert process.stdout.readline().startswith('{"t_s"')
            process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=30)[0]
    assert process.returncode == 0
    assert lines_and_document(out)[1]["stopped"] == "signal"


@pytest.mark.parametrize("threads", [1, 3])
def test_stopped_in_the_middle_every_record_is_accounted_for(image, tmp_path, threads):
    trace = write_trace(tmp_path / "t.iotrace", 999, threads)
    done = run(trace, image, "--loop", "--max-seconds=0.2")
    document = json.loads(done.stdout)
    operations = document["operations"]
    assert document["stopped"] == "max-time"
    assert operations["records"] == operations["done"] + operations["skipped"]
    assert operations["skipped"] == document["skipped_reasons"].get("stopped", 0)
    assert operations["records"] % (999 // threads) == 0
    assert document["passes"] == pytest.approx(operations["done"] / 999)
    assert document["requests"]["read"] == operations["done"]


def test_every_pass_begins_from_the_same_files(image, tmp_path):
    """A created file that is gone at the start of each pass, and a file that grows in each."""
    fileops = [
        {"op": Fileop.OPEN, "start_ns": 1, "duration_ns": 1, "file": 1, "flags": IoFlag.CREATED},
        {"op": Fileop.TRUNCATE, "start_ns": 50, "duration_ns": 1, "file": 2, "argument": 100},
    ]
    # Without the undoing, the second pass would read 1000 bytes where 500 are recorded.
    io = [read(0, 500, 5, file=2, asked_bytes=4096), write(0, 1000, 10, file=1), write(500, 500, 20, file=2)]
    files = [{"file": 1, "flags": FileFlag.CREATED}, {"file": 2, "size_bytes": 500}]
    trace = characterize.write(made_trace(io, fileops=fileops, files=files), tmp_path / "t.iotrace")
    document = looped([ENGINE, trace, image], requests=10)  # three in each pass
    assert document["passes"] > 2
    assert document["mismatches"] == {}
    assert document["operations"]["failed"] == 0


def test_a_pass_that_cannot_be_undone_ends_the_loop_and_loses_no_result(image, tmp_path):
    """A directory takes the place of a file of the image while it is read: no pass can begin with that file again."""
    fileops = [{"op": Fileop.TRUNCATE, "start_ns": 50, "duration_ns": 1, "file": 1, "argument": 100}]
    io = [read(0, 500, 5, file=1), read(0, 500, 20, file=2)]
    files = [{"file": file, "size_bytes": 500} for file in (1, 2)]
    trace = characterize.write(made_trace(io, fileops=fileops, files=files), tmp_path / "t.iotrace")
    taken = tmp_path / "image" / "f00000002"
    (tmp_path / "other").mkdir()
    requests = 0
    with own_process([ENGINE, trace, image, "--loop", "--interval-ms=20", "--keep-image"]) as process:
        while requests < 10:  # two in each pass
            requests += json.loads(process.stdout.readline())["requests"]
        while taken.is_file():
            taken.unlink()
            with suppress(OSError):  # the engine was first
                (tmp_path / "other").rename(taken)
        rest = process.communicate(timeout=30)[0]
    assert process.returncode == 3
    document = lines_and_document(rest)[1]
    assert document["stopped"] == "error"
    assert document["passes"] > 2
    assert document["requests"]["read"] > 4
    # Which error that is depends on what is done to the file just then: laying it out, or loading it into the cache.
    assert any("put back" in reason for reason in document["reasons"])


def test_an_interrupt_ends_the_planning_of_requests_that_all_overlap(tmp_path):
    """Of one thread, and then one of another, before which each of the first is compared with all others."""
    count = 100_003
    io = [write(0, 4096, 1 + at, count) for at in range(count)] + [write(0, 4096, 3 * count, thread=2, process=2)]
    trace = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 4096}]), tmp_path / "t.iotrace")
    with own_process([ENGINE, trace, "--engine=null"]) as process:
        # All but a small part of it is the planning, which takes minutes.
        wait_until(lambda: processor_s(process.pid) > 0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        document = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == 0
    assert document["stopped"] == "signal"
    assert document["skipped_reasons"] == {"stopped": count + 1}


def test_more_files_than_descriptors(image, tmp_path):
    io = [write(0, 100, at, 0, file=1 + at % 300) for at in range(900)]
    files = [{"file": file, "size_bytes": 100} for file in range(1, 301)]
    trace = characterize.write(made_trace(io, files=files, flags=HeaderFlag.UNTIMED), tmp_path / "t.iotrace")
    command = 'ulimit -n 120; exec "$0" "$@"'
    done = subprocess.run(["bash", "-c", command, ENGINE, trace, image], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["operations"]["done"] == 900


@pytest.mark.parametrize("holes", [[], [{"file": 1, "bytes": 61440}]])
def test_a_limit_on_sizes_is_told_and_leaves_nothing_behind(image, tmp_path, holes):
    """The kernel ends who writes beyond it, unless SIGXFSZ is ignored; bash counts it in KiB."""
    made = made_trace([read(0, 4096, 1)], files=[{"file": 1, "size_bytes": 65536}], holes=holes)
    trace = characterize.write(made, tmp_path / "t.iotrace")
    command = 'ulimit -f 32; exec "$0" "$@"'
    done = subprocess.run(["bash", "-c", command, ENGINE, trace, image], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    size = "its size of 65536 bytes" if holes else "(65536 bytes)"
    assert f"/f00000001 {size}: File too large; raise the limit on sizes of files (ulimit -f)" in done.stderr
    assert not (tmp_path / "image").exists()


def test_large_requests_are_one_call_each(image, tmp_path):
    io = [read(0, 40 << 20, 1), write(5, 40 << 20, 100)]
    trace = characterize.write(made_trace(io, files=[{"file": 1, "size_bytes": 41 << 20}]), tmp_path / "t.iotrace")
    document = json.loads(run(trace, image).stdout)
    assert document["requests"] == {"read": 1, "write": 1}
    assert document["bytes"] == {"read": 40 << 20, "write": 40 << 20}


def test_damaged_records_never_crash_or_hang_it(tmp_path, small_file_system):
    """Random bytes of the records changed; the counts add up or it says what is wrong."""
    random = np.random.default_rng(7)
    io = [read(4096 * at, 4096, 100 * at, 50, thread=1 + at % 3) for at in range(20)]
    fileops = [
        {"op": op, "start_ns": 3000 + op, "duration_ns": 1, "file": 2, "argument": 3 if op == 8 else 0}
        for op in range(1, 12)
    ]
    files = [{"file": 1, "size_bytes": 1 << 20}, {"file": 2, "flags": 1}, {"file": 3, "flags": 2}]
    path = characterize.write(made_trace(io, fileops=fileops, files=files), tmp_path / "t.iotrace")
    whole = path.read_bytes()
    replayed = 0
    for _ in range(60):
        data = bytearray(whole)
        for at in random.integers(4096, len(data), 6):
            data[at] = random.integers(256)
        path.write_bytes(data)
        done = run(path, f"--directory={small_file_system}", "--max-seconds=1")
        assert done.returncode in (0, 1, 3), done.stderr
        if done.returncode == 1:
            assert done.stderr.startswith("flextrace-replay: ")
            continue
        operations = json.loads(done.stdout)["operations"]
        assert conserved(operations)
        assert operations["records"] <= 31
        replayed += 1
    assert replayed > 10


HISTOGRAM_PROGRAM = """
#include <stdio.h>
#include "replayer/engine/histogram.h"
int main(void)
{
	static struct histogram histogram;
	unsigned long long value;
	while (scanf("%llu", &value) == 1)
		histogram_add(&histogram, value);
	for (int i = 1; i <= 1000; i++)
		printf("%llu\\n", (unsigned long long)histogram_quantile(&histogram, i / 1000.0));
}
"""


def test_histogram_percentiles_are_within_half_a_percent_of_sorting(tmp_path):
    (tmp_path / "main.c").write_text(HISTOGRAM_PROGRAM)
    sources = [tmp_path / "main.c", ROOT / "replayer" / "engine" / "histogram.c"]
    subprocess.run(["gcc", "-O1", f"-I{ROOT}", *sources, "-o", tmp_path / "main", "-lm"], check=True)
    values = np.random.default_rng(3).lognormal(9, 4, 20_000).astype(np.int64)
    text = "\n".join(map(str, values))
    out = subprocess.run([tmp_path / "main"], input=text, capture_output=True, text=True, check=True).stdout
    seen = np.array([int(line) for line in out.split()])
    ranks = np.ceil(np.arange(1, 1001) / 1000.0 * len(values)).astype(int)
    expected = np.sort(values)[ranks - 1]
    assert np.all(np.abs(seen - expected) <= 0.005 * expected + 1)
    assert seen[-1] <= values.max()
