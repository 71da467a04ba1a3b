# SPDX-License-Identifier: Apache-2.0
"""What storage takes: the probes' sums by hand, where they are measured and where not, and on real storage."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from characterize.characterization import characterize
from characterize.layout import Fileop, HeaderFlag, RecordKind
from characterize.trace import open as open_trace
from characterize.workload import Workload
from flextrace.measuring import measure_in
from selfscale.access import BUFFERED
from selfscale.environment import read_ahead_bytes
from selfscale.explore import Exploration
from selfscale.knee import KneeExploration
from selfscale.measure import Point
from selfscale.plan import Settings, Step
from selfscale.profile import Profile, load
from selfscale.storage import REST_NS, ROLE, StorageTimes, options_of, probes, storage_times
from tests.synthetic_machine import Machine
from tests.test_scale import needs_engine

MIB = 1 << 20
TIMES_US = {"random": 40.0, "random long": 70.0, "rested": 90.0, "parallel": 55.0, "scan": 30.0}
TIMES_US |= {"sync": 10.0, "append sync": 10.0}
MB_PER_S = {"random": 90.0, "random long": 600.0, "rested": 0.4, "parallel": 204.8, "scan": 2048.0}
MB_PER_S |= {"sync": 8.192, "append sync": 4.096}


def measured(name: str, **changes) -> Point:
    times = {"mean_ns": 1.0, "p50_ns": 1e3 * TIMES_US[name], "p999_ns": 1e6}
    workload = probes(512.0 * MIB)[name]
    point = Point(workload, 1e6 * MB_PER_S[name], 0.0, {"read": times}, role=ROLE, parameter=name)
    return dataclasses.replace(point, **changes)


def test_times_by_hand():
    expected = StorageTimes(
        read_ns=40_000.0,
        rested_read_ns=90_000.0,
        read_page_ns=2_000.0,
        read_busy_ns=20_000.0,
        read_page_busy_ns=2_000.0,
        held_up_ns=1e6,
        sync_ns=500_000.0,
        append_sync_ns=1_000_000.0,
    )
    assert storage_times([measured(name) for name in TIMES_US]) == pytest.approx(expected)


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


@pytest.mark.parametrize("benchmark", [Exploration, KneeExploration])
def test_probes_are_measured_where_the_budget_pays_for_them(benchmark):
    def storage(**changes) -> list[str]:
        machine, numbers = Machine([(64 * MIB, 5e-4)]), []

        def measure(step):
            numbers.append(step.number)
            return machine.measure(step)

        run = benchmark(Settings(64 * MIB, cpus=2, **{"budget_s": 240.0, **changes}), measure)
        run.run()
        assert numbers == list(range(1, len(numbers) + 1)), "progress counts points and probes"
        assert not {point.role for point in run.points} & {ROLE}
        return [point.parameter for point in run.profile().storage]

    assert storage() == list(probes(1.0))
    assert storage(budget_s=30.0) == []
    assert storage(read_only=True) == []
    assert storage(span_bytes=512.0 * MIB) == []


def test_a_profile_keeps_them(tmp_path):
    profile = Profile(storage=[measured(name) for name in TIMES_US])
    path = profile.save(tmp_path / "p.json")
    assert storage_times(load(path).storage) == storage_times(profile.storage)
    document = json.loads(path.read_text())
    del document["storage"]
    path.write_text(json.dumps(document))
    assert load(path).storage == []
    point = measured("random").as_document()
    damages = [
        {"storage": 3},
        {"storage": [point | {"throughput_bytes_per_s": -1}]},
        {"storage": [point | {"response_time": None}]},
        {"storage": [point | {"response_time": {"read": {"p50_ns": "fast"}}}]},
        {"environment": {"read_ahead_bytes": "x"}},
    ]
    for broken in damages:
        path.write_text(json.dumps(document | broken))
        with pytest.raises(Exception, match="damaged"):
            load(path)


def test_traces_of_the_probes(tmp_path):
    workload = Workload(4.0 * MIB, 0.0, 1.0, 4096.0, 1.0)
    traces = {}
    for name in TIMES_US:
        path = tmp_path / name
        options_of(name)["make_trace"](workload.replace(read_frac=float("sync" not in name)), path, 500, 3)
        traces[name] = open_trace(path)
    cached = {name for name, trace in traces.items() if trace.arrays[RecordKind.FILE]["resident_bytes"].any()}
    assert cached == {"sync"}
    assert (traces["sync"].arrays[RecordKind.FILEOP]["op"] == Fileop.FDATASYNC).sum() == 500
    options_of("append sync")["make_trace"](probes(1.0)["append sync"], tmp_path / "appends", 600, 3)
    appends = open_trace(tmp_path / "appends")
    operations = appends.arrays[RecordKind.FILEOP]
    assert [(operations["op"] == op).sum() for op in (Fileop.FDATASYNC, Fileop.TRUNCATE)] == [600, 3]
    assert characterize(appends).layers["vfs"].extended["appendFrac"] == 1
    starts = traces["rested"].arrays[RecordKind.IO]["start_ns"]
    assert set(starts[1:] - starts[:-1]) == {REST_NS}
    assert not traces["rested"].header.flags & HeaderFlag.UNTIMED


def test_on_real_storage(tmp_path):
    needs_engine()
    place = Path(os.environ.get("FLEXTRACE_TEST_DIRECTORY", tmp_path))
    measure = measure_in(place / "image", None, BUFFERED)
    points = []
    for number, (name, workload) in enumerate(probes(64.0 * MIB).items()):
        step = Step(workload, ROLE, 0.4, parameter=name, seed=number)
        points.append(step.label(measure(step)))
    times = storage_times(points)
    assert all(value > 0 for value in times if value is not times.read_page_ns)
    rested = next(point for point in points if point.parameter == "rested")
    assert 20 <= rested.response_time["read"]["count"] <= 45, "one every 10 ms"
    (appended,) = (point for point in points if point.parameter == "append sync")
    assert "failed" not in appended.reason
    assert (place / "image" / "f00004097").stat().st_size <= appended.workload.unique_bytes


def test_read_ahead_is_that_of_the_device(tmp_path):
    number = os.stat(tmp_path).st_dev
    path = f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}/read_ahead_kb"
    if not os.path.exists(path):
        pytest.skip(f"no {path}")
    with open(path) as stream:
        assert read_ahead_bytes(tmp_path) == 1024 * int(stream.read())
