# SPDX-License-Identifier: Apache-2.0
"""What storage takes: the probes' sums by hand, where they are measured and where not, and on real storage."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from characterize.characterization import characterize
from characterize.errors import FlextraceError
from characterize.layout import PROCESSOR_SHARE_ALL, Fileop, FileType, HeaderFlag, IoFlag, IoOp, RecordKind
from characterize.trace import open as open_trace
from characterize.workload import Workload
from flextrace.runs import measuring
from flextrace.runs.measuring import measure_in
from replayer.willy import PROCESSES_MAX
from selfscale.explore import Exploration
from selfscale.exploring.knee import KneeExploration
from selfscale.exploring.plan import END_SHARE, STORAGE_SHARE_MAX, Settings, Step
from selfscale.exploring.self_scaling import STORAGE_ROUNDS
from selfscale.measure import Point
from selfscale.measuring.access import BUFFERED
from selfscale.measuring.environment import read_ahead_bytes, request_bytes
from selfscale.measuring.probe_trace import PLACE_FILE
from selfscale.measuring.storage import (
    BRIEF_NS,
    PACE_NS,
    PAUSE_NS,
    REST_NS,
    ROLE,
    TIMED,
    StorageTimes,
    options_of,
    probes,
    storage_times,
)
from selfscale.profile import Profile
from tests.formulas.probed_profile import TIMES_US, measured
from tests.formulas.synthetic_machine import Machine
from tests.truths.straced import needs_engine

MIB = 1 << 20


def test_times_by_hand():
    expected = StorageTimes(
        read_ns=40_000.0,
        paused_read_ns=60_000.0,
        rested_read_ns=90_000.0,
        awake_read_ns=15_000.0,
        read_page_ns=2_000.0,
        read_busy_ns=20_000.0,
        read_page_busy_ns=2_000.0,
        behind_burst_ns=2_000_000.0,
        held_up_ns=1e6,
        ahead_page_ns=1_500.0,
        overwrite_call_ns=2_000.0,
        overwrite_page_ns=500.0,
        append_call_ns=2_000.0,
        append_page_ns=1_000.0,
        sync_ns=100_000.0,
        paused_sync_ns=250_000.0,
        append_sync_ns=300_000.0,
        sync_more_ns=70_000.0 / 5,
        sync_busy_ns=500_000.0,
        append_sync_busy_ns=1_000_000.0,
        sync_more_busy_ns=300_000.0 / 7,
        sync_held_up_ns=1e6,
        directory_sync_ns=150_000.0,
    )
    assert storage_times([measured(name) for name in TIMES_US]) == pytest.approx(expected)
    # What is read ahead takes its reader no more than a scan at full speed does.
    points = [measured(name, throughput_bytes_per_s=4096e6) if name == "scan" else measured(name) for name in TIMES_US]
    assert storage_times(points).ahead_page_ns == pytest.approx(1000)


def test_of_several_rounds_the_median_counts():
    """And of a scan the best: in others read-ahead was of no use. What was cached storage did not read."""
    points = [measured(name) for name in TIMES_US]
    once = storage_times(points)
    slow = [replaced(point, 9.0) for point in points]
    fast = [replaced(point, 0.1) for point in points if point.parameter != "scan"]
    half = dataclasses.replace(measured("scan", throughput_bytes_per_s=4e9), device_frac=0.5)
    assert storage_times([*slow, *points, *fast]) == pytest.approx(once)
    assert storage_times([*slow, half, *points]).read_page_busy_ns == pytest.approx(once.read_page_busy_ns)
    assert storage_times([*points, measured("random", throughput_bytes_per_s=0.0)]) == pytest.approx(once)


def replaced(point: Point, factor: float) -> Point:
    """So many times as slow."""
    times = {kind: {key: factor * value for key, value in found.items()} for kind, found in point.response_time.items()}
    rate = point.throughput_bytes_per_s / factor
    return dataclasses.replace(point, throughput_bytes_per_s=rate, response_time=times)


@pytest.mark.parametrize("name", TIMED)
def test_no_times_where_a_response_time_is_missing(name):
    points = {each: measured(each) for each in TIMES_US}
    (kind, times), *_ = points[name].response_time.items()
    for key in TIMED[name][1]:
        less = {kind: {other: value for other, value in times.items() if other != key}}
        broken = points | {name: dataclasses.replace(points[name], response_time=less)}
        assert storage_times(list(broken.values())) is None


@pytest.mark.parametrize(
    "change",
    [
        {"throughput_bytes_per_s": 0.0},
        {"response_time": {}},
        {"response_time": {"read": {"p999_ns": 1.0}}},
        {"parameter": "other"},
    ],
)
def test_no_times_where_a_probe_says_nothing(change):
    points = [measured(name) for name in TIMES_US]
    assert storage_times([*points[1:], dataclasses.replace(points[0], **change)]) is None


@pytest.mark.parallel
@pytest.mark.parametrize("benchmark", [Exploration, KneeExploration])
def test_probes_are_measured_where_the_budget_pays_for_them(benchmark):
    def storage(**changes) -> list[str]:
        machine, numbers = Machine([(64 * MIB, 5e-4)]), []

        def measure(step):
            numbers.append(step.number)
            return machine.measure(step)

        run = benchmark(Settings(64 * MIB, cpus=2, **changes), measure)
        run.run()
        assert numbers == list(range(1, len(numbers) + 1)), "progress counts points and probes"
        assert not {point.role for point in run.points} & {ROLE}
        return [point.parameter for point in run.profile().storage]

    assert storage(budget_s=300.0) == list(probes(1.0)) * STORAGE_ROUNDS, "though a fifth would pay for a fourth round"
    of_100_s = (1 - END_SHARE) * 100.0
    assert storage(budget_s=of_100_s) == list(probes(1.0)), "which predict's advice and docs/predicting.md state"
    assert storage(budget_s=30.0) == []
    for nothing in ({"read_only": True}, {"span_bytes": 512.0 * MIB}):
        assert storage(budget_s=of_100_s, **nothing) == []


def test_they_get_a_fifth_of_what_a_user_gives():
    assert STORAGE_SHARE_MAX * Settings(1.0, budget_s=(1 - END_SHARE) * 100.0).budget_s == pytest.approx(20.0)


@pytest.mark.parametrize("benchmark", [Exploration, KneeExploration])
def test_probes_do_not_go_beyond_a_budget_that_the_points_have_spent(benchmark):
    machine = Machine([(64 * MIB, 5e-4)])
    run = benchmark(
        Settings(64 * MIB, cpus=2, budget_s=100.0),
        lambda step: dataclasses.replace(machine.measure(step), cost_s=5.0, elapsed_s=5.0),
    )
    run.run()
    assert run.profile().storage == []
    assert run.spent_s <= 105


def test_a_directory_without_room_for_their_file_is_refused(tmp_path, monkeypatch):
    settings = Settings(64 * MIB, cpus=2, budget_s=100.0)
    # What is read, a file of 128 MiB and three of a quarter, and 16 MiB that are written.
    for beyond_bytes, refused in ((239 * MIB, True), (241 * MIB, False)):
        room = 1.05 * settings.image_bytes + beyond_bytes
        monkeypatch.setattr(measuring, "free_bytes", lambda _, room=room: room)
        with pytest.raises(FlextraceError, match="are free") if refused else nullcontext():
            measuring.check_space(tmp_path, 64 * MIB, settings)


@pytest.mark.parametrize("changes", [{"budget_s": 30.0}, {"stable_writes": True}, {"span_bytes": 256.0 * MIB}])
def test_no_room_is_needed_for_probes_that_are_not_made(tmp_path, monkeypatch, changes):
    settings = Settings(64 * MIB, cpus=2, **{"budget_s": 100.0, **changes})
    for room, refused in ((1.04 * settings.image_bytes, True), (1.06 * settings.image_bytes, False)):
        monkeypatch.setattr(measuring, "free_bytes", lambda _, room=room: room)
        with pytest.raises(FlextraceError, match="are free") if refused else nullcontext():
            measuring.check_space(tmp_path, 64 * MIB, settings)


def test_a_profile_keeps_them(tmp_path):
    profile = Profile(storage=[measured(name) for name in TIMES_US])
    path = profile.save(tmp_path / "p.json")
    assert storage_times(Profile.load(path).storage) == storage_times(profile.storage)
    document = json.loads(path.read_text())
    del document["storage"]
    path.write_text(json.dumps(document))
    assert Profile.load(path).storage == []
    point = measured("random").as_document()
    damages = [
        {"storage": 3},
        {"storage": [point | {"throughput_bytes_per_s": -1}]},
        {"storage": [point | {"response_time": None}]},
        {"storage": [point | {"response_time": {"read": {"p50_ns": "fast"}}}]},
        {"environment": {"read_ahead_bytes": "x"}},
        {"environment": {"cpus": "x"}},
        {"environment": {"request_bytes": -1}},
        {"environment": {"dirty_limit_bytes": "x"}},
        {"environment": {"kernel": 6.18}},
        {"models": {"scores": [{"model": "learned"}]}},
        {"models": {"scores": [{"model": "learned"}], "best": "other"}},
    ]
    for broken in damages:
        path.write_text(json.dumps(document | broken))
        with pytest.raises(Exception, match="damaged"):
            Profile.load(path)


def test_traces_of_the_probes(tmp_path):
    workload = Workload(4.0 * MIB, 0.0, 1.0, 4096.0, 1.0)
    traces = {}
    for name in TIMES_US:
        path = tmp_path / name
        reads = float(not any(word in name for word in ("sync", "append", "overwrite")))
        options_of(name)["make_trace"](workload.replace(read_frac=reads), path, 500, 3)
        traces[name] = open_trace(path)
    cached = {name for name, trace in traces.items() if trace.arrays[RecordKind.FILE]["resident_bytes"].any()}
    assert cached == {"sync", "paused sync", "sync of many"}
    for name, share in (("sync", 1), ("paused sync", 1), ("sync of many", 1 / 8)):
        assert (traces[name].arrays[RecordKind.FILEOP]["op"] == Fileop.FDATASYNC).sum() == round(500 * share), name
    options_of("append sync")["make_trace"](probes(1.0)["append sync"], tmp_path / "appends", 600, 3)
    appends = open_trace(tmp_path / "appends")
    operations = appends.arrays[RecordKind.FILEOP]
    assert [(operations["op"] == op).sum() for op in (Fileop.FDATASYNC, Fileop.TRUNCATE)] == [600, 3]
    assert characterize(appends).layers["vfs"].extended["appendFrac"] == 1
    unsynced = traces["append"].arrays[RecordKind.FILEOP]
    assert set(unsynced["op"]) == {Fileop.TRUNCATE}
    options_of("overwrite")["make_trace"](probes(1.0)["overwrite"], tmp_path / "overwrites", 600, 3)
    overwrites = open_trace(tmp_path / "overwrites")
    assert not len(overwrites.arrays[RecordKind.FILEOP])
    assert overwrites.arrays[RecordKind.IO]["offset"].tolist() == [at % 256 * 4096 for at in range(600)]
    read, written = {}, {}
    for name, trace in traces.items():
        io = trace.arrays[RecordKind.IO]
        read[name], written[name] = (set(io["file"][io["op"] == op]) for op in (IoOp.READ, IoOp.WRITE))
    points = {file for name in ("sync", "paused sync", "sync of many") for file in written[name]}
    assert points == {1}, "the file of a point, which is cached"
    only_read, others = set().union(*read.values()), set().union(*written.values()) | {PLACE_FILE}
    assert min(only_read) > PROCESSES_MAX
    assert not only_read & others, "what is read was never overwritten"
    pauses_ns = {"random": BRIEF_NS, "awake": BRIEF_NS, "paused": PAUSE_NS, "paused long": PAUSE_NS}
    pauses_ns["paused sync"] = PAUSE_NS
    for name, pause_ns in {**pauses_ns, "paced scan": PACE_NS, "rested": REST_NS}.items():
        io = traces[name].arrays[RecordKind.IO]
        assert set(io["start_ns"][1:] - io["start_ns"][:-1]) == {pause_ns}
        assert set(io["processor_share"]) == {0 if name == "rested" else PROCESSOR_SHARE_ALL}, name
        assert not traces[name].header.flags & HeaderFlag.UNTIMED
    writes, syncs = (traces["paused sync"].arrays[kind] for kind in (RecordKind.IO, RecordKind.FILEOP))
    assert (syncs["start_ns"] == writes["start_ns"] + 1).all(), "each right behind its write"


def test_reads_behind_bursts_come_right_after_what_is_to_be_written(tmp_path):
    options_of("behind burst")["make_trace"](probes(256.0 * MIB)["behind burst"], tmp_path / "t", 45, 3)
    trace = open_trace(tmp_path / "t")
    io, flushes, files = (trace.arrays[kind] for kind in (RecordKind.IO, RecordKind.FILEOP, RecordKind.FILE))
    assert set(flushes["op"]) == {Fileop.SYNC_FILE_RANGE}
    order = sorted(
        [(row["start_ns"], row["op"] == 2) for row in io] + [(start, "flush") for start in flushes["start_ns"]]
    )
    assert [what for _, what in order] == ([True] * 8 + ["flush", False]) * 5
    reads, writes = io[io["op"] == 1], io[io["op"] == 2]
    assert set(reads["asked_bytes"]) == {4096}
    assert set(writes["result"]) == {MIB}
    assert not set(reads["file"]) & set(writes["file"])
    assert set(flushes["file"]) == set(writes["file"])
    assert not files["resident_bytes"].any()
    begin, end = flushes["argument"], flushes["argument"] + flushes["length"]
    assert [int(place) for place in writes["offset"]] == [
        first + piece * MIB for first in begin.tolist() for piece in range(8)
    ]
    assert (begin[1:] != begin[:-1]).all(), "what was written last may be on its way"
    assert set(end - begin) == {8 * MIB}
    assert len({*io["id"], *flushes["id"]}) == 50


def test_the_trace_of_new_files(tmp_path):
    options_of("directory sync")["make_trace"](probes(1.0)["directory sync"], tmp_path / "t", 3, 0)
    trace = open_trace(tmp_path / "t")
    io, operations, files = (trace.arrays[kind] for kind in (RecordKind.IO, RecordKind.FILEOP, RecordKind.FILE))
    rows = sorted([(row["start_ns"], "write") for row in io] + [(row["start_ns"], row["op"]) for row in operations])
    assert [what for _, what in rows] == [Fileop.OPEN, "write", Fileop.FSYNC, Fileop.CLOSE, Fileop.UNLINK] * 3
    assert all(io["flags"] & IoFlag.DSYNC)
    synced = operations[operations["op"] == Fileop.FSYNC]
    (directory,) = files["file"][files["type"] == FileType.DIRECTORY]
    assert set(synced["file"]) == {directory}
    assert not set(io["file"]) & {directory}
    assert len({*io["id"], *operations["id"]}) == 15


def test_processors_compute_for_as_long_as_they_should():
    """Until the context ends; and not for long after who began it was killed."""
    code = (
        "import subprocess, sys, time, os\n"
        "from selfscale.measuring.computing import computing\n"
        "with computing(2):\n"
        "    print(*open(f'/proc/self/task/{os.getpid()}/children').read().split(), flush=True)\n"
        "    time.sleep({seconds})\n"
        "print('ended', flush=True)\n"
    )

    def computed_s(process: str) -> float:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return 0.0 if fields[0] == "Z" else int(fields[11]) / os.sysconf("SC_CLK_TCK")

    def alive(process: str) -> bool:
        try:
            return computed_s(process) > 0
        except FileNotFoundError:
            return False

    for killed in (False, True):
        command = [sys.executable, "-c", code.replace("{seconds}", "60" if killed else "1")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
            processes = starter.stdout.readline().split()
            assert len(processes) == 2
            deadline = time.monotonic() + 20
            while not all(map(alive, processes)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert all(map(alive, processes)), "both have had a processor"
            groups = [os.getpgid(int(process)) for process in processes]
            assert groups == list(map(int, processes)), "an interrupt at the terminal does not reach them"
            if killed:
                starter.kill()
            assert starter.wait() == (-signal.SIGKILL if killed else 0)
        while any(map(alive, processes)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(alive, processes))


@needs_engine
def test_on_real_storage(tmp_path):
    place = Path(os.environ.get("FLEXTRACE_TEST_DIRECTORY", tmp_path))
    image = place / "image"
    image.mkdir()
    measure = measure_in(image, None, BUFFERED)
    points = []
    for number, (name, workload) in enumerate(probes(64.0 * MIB).items()):
        step = Step(workload, ROLE, 0.4, parameter=name, seed=number)
        points.append(step.label(measure(step)))
    times = storage_times(points)
    # Of two probes: none where other work disturbs the first one more.
    differences = {"read_page_ns", "append_call_ns", "append_page_ns", "sync_more_ns", "sync_more_busy_ns"}
    differences |= {"overwrite_call_ns", "overwrite_page_ns"}
    assert {name for name, value in times._asdict().items() if value <= 0} <= differences
    rested = next(point for point in points if point.parameter == "rested")
    assert 20 <= rested.response_time["read"]["count"] <= 45, "one every 10 ms"
    made = [point for point in points if point.workload.read_frac == 0]
    assert [point.reason for point in made if "failed" in point.reason] == []
    counts = {point.parameter: point.response_time["sync"]["count"] for point in made}
    assert {name for name, count in counts.items() if not count} == {
        *("append", "append long", "overwrite", "overwrite long")
    }
    # A run that is stopped between making its file and removing it leaves it.
    left = [path.stat().st_size for path in (place / "image").glob("f00004097*")]
    assert sum(left) <= made[0].workload.unique_bytes


def test_requests_are_as_large_as_the_device_takes(tmp_path):
    number = os.stat(tmp_path).st_dev
    queue = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/queue/max_sectors_kb")
    if not queue.exists():
        pytest.skip(f"{tmp_path} is not on a whole disk")
    assert request_bytes(tmp_path) == 1024 * int(queue.read_text())


def test_read_ahead_is_that_of_the_device(tmp_path):
    number = os.stat(tmp_path).st_dev
    path = f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}/read_ahead_kb"
    if not os.path.exists(path):
        pytest.skip(f"no {path}")
    with open(path) as stream:
        assert read_ahead_bytes(tmp_path) == 1024 * int(stream.read())
