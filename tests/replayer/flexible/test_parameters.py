# SPDX-License-Identifier: Apache-2.0
"""What each alteration promises beyond the five numbers: distances, order, schedules; and that the engine runs them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from characterize import trace as trace_file
from characterize.errors import FlextraceError
from characterize.layout import Fileop, IoFlag, IoOp, RecordKind
from characterize.workload import Workload
from replayer.alter import Relative, alter
from replayer.flexible.draft import UnreachableError
from replayer.run import replay
from replayer.willy import make_trace
from tests.traces.flexible_traces import Recording, database_like, recordings, sort_like, willy
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import needs_engine

pytestmark = pytest.mark.parallel


def stack_distances(io):
    """Reuse distance of every block in the order of use, by the definition: distinct blocks since its last use."""
    stack, distances = [], []
    for file, offset, size in zip(io["file"], io["offset"], io["result"], strict=True):
        for block in range(offset // 4096, (offset + size - 1) // 4096 + 1):
            if (file, block) in stack:
                distances.append(stack.index((file, block)))
                stack.remove((file, block))
            else:
                distances.append(-1)
            stack.insert(0, (file, block))
    return distances


def spans(trace):
    """Start, end, thread of every operation of a trace, by id."""
    arrays = [trace.arrays[kind] for kind in (RecordKind.IO, RecordKind.FILEOP)]
    return {
        int(row["id"]): (int(row["start_ns"]), int(row["start_ns"] + max(row["duration_ns"], 1)), int(row["thread"]))
        for array in arrays
        for row in array
    }


# ---- seqFrac ----


def test_relabelling_keeps_every_reuse_distance():
    recording = Recording()
    random = np.random.default_rng(0)
    file = recording.file("/data", 64 * 4096)
    for start in random.integers(0, 56, 80).tolist():
        for step in range(random.integers(1, 6)):
            recording.read(1, file, (start + step) * 4096, 4096)
    parent = recording.trace()
    altered, manifest = alter(parent, {"seqFrac": 0.3})
    steps = manifest.notes["seqFrac"]
    assert steps["relabelled_requests"] > 0
    assert steps["exchanged_requests"] == steps["continued_runs"] == 0
    assert stack_distances(altered.io) == stack_distances(parent.io)


# ---- readFrac ----


def test_flips_whole_runs_evenly():
    recording = Recording()
    file = recording.file("/data", 10**9)
    for run in range(200):
        for step in range(1 + run % 4):
            recording.write(1, file, run * 10**6 + step * 4096, 4096)
    parent = recording.trace()
    altered, _ = alter(parent, {"readFrac": 0.5})
    reads = (altered.io["op"] == IoOp.READ).to_numpy()
    run = (altered.io["offset"] // 10**6).to_numpy()
    by_run = [reads[run == number] for number in range(200)]
    # All of a run but for at most one, and half of the runs of every length.
    assert sum(0 < flags.mean() < 1 for flags in by_run) <= 1
    for length in range(1, 5):
        assert np.mean([flags.mean() for flags in by_run if len(flags) == length]) == pytest.approx(0.5, abs=0.05)


def test_reads_are_made_of_writes_to_existing_files_first():
    parent = database_like(200)
    altered, _ = alter(parent, {"readFrac": 0.3})
    assert (altered.files["flags"] == parent.files["flags"]).all()
    altered, _ = alter(parent, {"readFrac": 0.9})
    assert (altered.files["flags"] == 0).sum() > (parent.files["flags"] == 0).sum()


def test_only_writes_say_that_times_had_been_asked_for():
    parent = database_like(200)
    requests = parent.arrays[RecordKind.IO]
    requests["flags"][requests["op"] == IoOp.WRITE] |= np.uint32(IoFlag.CTIME_QUERIED)
    for altered, _ in (alter(parent, {"readFrac": 0.9}), alter(parent, {"readFrac": 0.3})):
        io = altered.arrays[RecordKind.IO]
        asked = (io["flags"] & IoFlag.CTIME_QUERIED) != 0
        assert asked.any()
        assert (io["op"][asked] == IoOp.WRITE).all()


# ---- uniqueBytes, sizeMean ----


def test_the_manifest_says_how_far_the_miss_ratios_moved():
    parent = make_trace(Workload(2 << 20, 0.5, 0.5, 16384, 1), requests=1000, size="fixed", seed=5)
    altered, manifest = alter(parent, {"uniqueBytes": Relative(2)})
    misses = {}
    for name, trace in (("parent", parent), ("altered", altered)):
        distances = np.array(stack_distances(trace.io))
        cold = distances < 0
        sizes = [share * cold.sum() // 64 for share in range(1, 64)]
        misses[name] = np.array([(cold | (distances >= size)).mean() for size in sizes])
    assert manifest.curve.mean_error == pytest.approx(np.abs(misses["parent"] - misses["altered"]).mean(), abs=1e-9)
    # Every request is of four blocks at a border of one; 0.99 of twice the footprint has to be referenced first.
    cold_share = 0.99 * 2 * manifest.before.unique_bytes / 4096 / (4 * 1000)
    least = np.maximum(cold_share - misses["parent"], 0).mean()
    assert manifest.curve.least_error == pytest.approx(least, abs=1e-9)
    assert least < manifest.curve.mean_error < least + 0.03


@pytest.mark.parametrize("factor", [0.25, 0.5, 0.8, 1.25])
@pytest.mark.parametrize("kind", ["database", "willy"])
def test_the_curve_stays_where_reuse_is_not_all_gone(kind, factor):
    parent = database_like() if kind == "database" else willy(1, "fixed")
    _, manifest = alter(parent, {"uniqueBytes": Relative(factor)})
    # Four times as much reuse of random places is at all distances: 1/8 of the references was cold, 1/32 is.
    allowed = 0.03 if factor == 0.25 else 0.02
    assert manifest.curve.mean_error - manifest.curve.least_error <= allowed


def test_journals_take_the_places_of_those_that_are_gone_the_longest():
    parent = database_like(200)
    altered, manifest = alter(parent, {"uniqueBytes": Relative(0.5)})
    assert manifest.notes["uniqueBytes"]["files_that_took_turns"] > 90
    journals = altered.io[altered.io["file"] != 1].groupby("file")["start_ns"].first()
    assert journals.is_monotonic_increasing


# ---- times ----


def independent_think_ns(trace):
    """Time in which a thread has nothing in flight, between its operations; summed over all of them."""
    total = 0
    rows = sorted(spans(trace).values())
    for thread in {row[2] for row in rows}:
        mine = [row for row in rows if row[2] == thread]
        reached = mine[0][1]
        for start, end, _ in mine[1:]:
            total += max(start - reached, 0)
            reached = max(reached, end)
    return total


def in_flight_max(trace):
    requests = trace.io[trace.io["result"] > 0]
    start, end = requests["start_ns"], requests["start_ns"] + requests["duration_ns"]
    return max(((start <= moment) & (end > moment)).sum() for moment in start)


@pytest.mark.parametrize("factor", [0.25, 0.5, 2, 7.3])
def test_think_times_are_scaled_and_what_was_ordered_stays_so(factor):
    parent = sort_like(3, 1 << 20)
    altered, manifest = alter(parent, {"thinkScale": Relative(factor)})
    before, after = spans(parent), spans(altered)
    assert independent_think_ns(altered) / independent_think_ns(parent) == pytest.approx(factor, rel=0.01)
    assert manifest.times["thinkScale"][1] == pytest.approx(factor, rel=0.01)
    for one, other in itertools.permutations(before, 2):
        if before[one][1] <= before[other][0]:
            assert after[one][1] <= after[other][0]
    assert all(after[name][1] - after[name][0] == end - start for name, (start, end, _) in before.items())
    assert altered.declared == {"processNum": in_flight_max(altered)}
    assert in_flight_max(altered) == in_flight_max(parent)
    assert not manifest.off


@pytest.mark.parametrize("factor", [0.25, 0.7, 3])
def test_a_time_scale_multiplies_every_moment(factor):
    parent = sort_like(3, 1 << 20)
    altered, manifest = alter(parent, {"timeScale": Relative(factor)})
    before, after = spans(parent), spans(altered)
    base = min(start for start, _, _ in before.values())
    assert base == min(start for start, _, _ in after.values())
    for name, (start, end, _) in before.items():
        assert after[name][0] - base == pytest.approx((start - base) * factor, abs=0.51)
        assert after[name][1] - base == pytest.approx((end - base) * factor, abs=1.01)
    assert manifest.achieved == manifest.before
    assert not manifest.moved


@pytest.mark.parametrize("layer", ["vfs", "block"])
def test_a_time_scale_leaves_losses_between_the_same_operations(layer):
    """The first began before the first operation, the last one was over by then."""
    starts = range(1000, 6000, 100)
    operations = {
        "vfs": {"io": [read(4096 * at, 4096, at, 10) for at in starts]},
        "block": {
            "blocks": [{"op": 1, "sector": at, "bytes": 512, "start_ns": at, "duration_ns": 10} for at in starts]
        },
    }
    gaps = [{"start_ns": start, "duration_ns": duration} for start, duration in ((500, 1550), (2045, 5), (10, 20))]
    altered, _ = alter(made_trace(gaps=gaps, **operations[layer]), {"timeScale": Relative(3)})
    times = altered.arrays[RecordKind.GAP][["start_ns", "duration_ns"]]
    assert times.tolist() == [(500, 3650), (4135, 15), (10, 20)]


def test_times_of_a_synthetic_trace_cannot_be_scaled_nor_below_the_clock():
    for name in ("timeScale", "thinkScale"):
        with pytest.raises(FlextraceError, match="has no times"):
            alter(willy(), {name: Relative(2)})
    with pytest.raises(FlextraceError, match=r"reachable is about 0\.001 to") as raised:
        alter(sort_like(1, 1 << 20), {"timeScale": Relative(1e-6)})
    assert raised.value.exit_code == 2


def test_threads_that_wait_for_each_other_cannot_think_less():
    recording = Recording()
    file = recording.file("/f", 1 << 20)
    for step in range(20):
        recording.read(1, file, step * 4096, 4096)
        recording.wait_for(2, [1])
        recording.write(2, file, step * 4096, 65536)
        recording.wait_for(1, [2])
    parent = recording.trace()
    with pytest.raises(
        FlextraceError, match=r"order and durations are held; reachable is about 0\.\d+ or more"
    ) as raised:
        alter(parent, {"thinkScale": Relative(0.01)})
    _, manifest = alter(parent, {"thinkScale": Relative(raised.value.low * 1.02)})
    assert not manifest.off


def test_stretching_keeps_alignment():
    altered, _ = alter(willy(1, "fixed"), {"sizeMean": Relative(1.5)})
    assert (altered.io["offset"] % 4096 == 0).all()
    assert (altered.io["result"] % 4096 == 0).all()


# ---- processNum ----


CONTENT = ["id", "file", "offset", "result", "op"]


@pytest.mark.parametrize(("kind", "target"), [("database", 3), ("sort", 4), ("sort", 7), ("willy", 6)])
def test_split_threads_do_the_same_requests_at_once(kind, target):
    parent = {"database": lambda: database_like(100), "sort": lambda: sort_like(2, 4 << 20), "willy": willy}[kind]()
    altered, manifest = alter(parent, {"processNum": target})
    assert altered.declared == {"processNum": target}
    assert altered.io[CONTENT].sort_values("id").values.tolist() == parent.io[CONTENT].sort_values("id").values.tolist()
    assert sorted(altered.fileops["id"]) == sorted(parent.fileops["id"])
    assert manifest.reuse == manifest.reuse_before
    assert altered.io["thread"].nunique() >= target
    assert altered.io.groupby("thread")["process"].nunique().eq(1).all()
    if not parent.untimed:
        assert in_flight_max(altered) == target
        after = spans(altered)
        for thread in {thread for _, _, thread in after.values()}:
            mine = sorted((start, end) for start, end, own in after.values() if own == thread)
            assert all(first[1] <= second[0] for first, second in itertools.pairwise(mine))
    assert manifest.curve.mean_error <= 0.02
    in_time = [trace.io[trace.io["result"] > 0].sort_values("start_ns", kind="stable") for trace in (parent, altered)]
    distances = [np.array(stack_distances(io)) for io in in_time]
    footprint = (distances[0] < 0).sum()
    ratios = [
        np.array([((mine < 0) | (mine >= share * footprint // 64)).mean() for share in range(1, 64)])
        for mine in distances
    ]
    assert np.abs(ratios[0] - ratios[1]).mean() == pytest.approx(manifest.curve.mean_error, abs=1e-9)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(parent=recordings(), target=st.integers(2, 6))
def test_splitting_keeps_the_order_around_what_changes_a_file(parent, target):
    try:
        altered, _ = alter(parent, {"processNum": target}, nearest=True)
    except UnreachableError as error:
        assert error.low <= error.high < target  # noqa: PT017 (either outcome is right, and each has its own truth)
        return
    before, after = spans(parent), spans(altered)
    changing = set(parent.fileops["id"])
    by_file = [set(trace["file"]) for trace in (parent.io, parent.fileops)]
    for file in by_file[0] & by_file[1]:
        ids = [mine for trace in (parent.io, parent.fileops) for mine in trace.loc[trace["file"] == file, "id"]]
        for one, other in itertools.permutations(ids, 2):
            if {one, other} & changing and before[one][1] <= before[other][0]:
                assert after[one][1] <= after[other][0]


def test_more_requests_in_flight_than_files_allow_are_refused():
    recording = Recording()
    file = recording.file("/f", created=True)
    for number in range(20):
        recording.write(1, file, number * 8192, 4096)
        recording.operate(Fileop.TRUNCATE, 1, file, argument=number * 8192 + 4096)
    with pytest.raises(UnreachableError, match=r"processNum 2 is not reachable.*reachable is about 1 to 1"):
        alter(recording.trace(), {"processNum": 2})


@pytest.mark.parametrize("target", [1, 8, 31])
def test_of_a_thread_with_several_in_flight_fewer_are(target):
    recording = Recording()
    data = recording.file("/data", 64 << 20)
    for number in range(256):
        recording.clock[1] = 1000 + number // 32 * 100_000 + number % 32
        recording.read(1, data, number * 37 % 256 * 4096, 4096)
    parent = recording.trace()
    assert in_flight_max(parent) == 32
    altered, manifest = alter(parent, {"processNum": target})
    assert in_flight_max(altered) == manifest.achieved.process_num == target
    assert altered.io["thread"].nunique() == 1


def test_merging_keeps_what_was_ordered():
    parent = sort_like(4, 4 << 20)
    before = spans(parent)
    records = [parent.arrays[kind][["id", "file"]] for kind in (RecordKind.IO, RecordKind.FILEOP)]
    everything = np.concatenate(records)
    # File 1 is only read; the others are written by one thread and read by another.
    changed_files = [everything["id"][everything["file"] == file].tolist() for file in range(2, 19)]
    for target in (1, 2, 3):
        # Of 1025 requests the 12 first ones of parts of the input do not follow the part before them any more.
        altered, _ = alter(parent, {"processNum": target}, nearest=True)
        after = spans(altered)
        assert set(after) == set(before)
        threads = {thread for _, _, thread in after.values()}
        assert len(threads) == target
        for thread in threads:
            mine = sorted((start, end) for start, end, own in after.values() if own == thread)
            assert all(first[1] <= second[0] for first, second in itertools.pairwise(mine))
        for data in changed_files:
            for one, other in itertools.permutations(data, 2):
                if before[one][1] <= before[other][0]:
                    assert after[one][1] <= after[other][0]


def test_merging_synthetic_threads_keeps_runs_and_their_order():
    parent = willy(4)
    altered, _ = alter(parent, {"processNum": 2})
    assert altered.io["thread"].nunique() == 2
    for _, mine in altered.io.groupby("thread"):
        assert mine["start_ns"].tolist() == list(range(len(mine)))
    for file, mine in altered.io.groupby("file"):
        assert mine["id"].tolist() == parent.io.loc[parent.io["file"] == file, "id"].tolist()


# ---- the engine ----


REPLAYED = {"sort": lambda: sort_like(2, 4 << 20), "database": lambda: database_like(200), "willy": willy}
CHANGES = [
    {"uniqueBytes": Relative(0.5)},
    {"uniqueBytes": Relative(1.2)},
    {"seqFrac": 0.3},
    {"readFrac": 0.9},
    {"readFrac": 0.1},
    {"sizeMean": Relative(1.5)},
    {"processNum": 1},
    {"processNum": 4},
]
CHANGES_OF_TIMES = [
    {"thinkScale": Relative(0.5)},
    {"timeScale": Relative(3), "readFrac": 0.6, "uniqueBytes": Relative(0.8)},
]


@needs_engine
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *((kind, changes) for kind in REPLAYED for changes in CHANGES),
        # A synthetic trace has no times.
        *((kind, changes) for kind in ("sort", "database") for changes in CHANGES_OF_TIMES),
    ],
    ids=str,
)
def test_the_engine_repeats_every_operation(kind, changes, tmp_path):
    altered, _ = alter(REPLAYED[kind](), changes)
    path = trace_file.write(altered, tmp_path / "altered.iotrace")
    result = replay(path, tmp_path / "image")
    assert result["trustworthy"], result["reasons"]
    operations = result["operations"]
    assert operations["done"] == operations["records"] == len(altered.io) + len(altered.fileops)
