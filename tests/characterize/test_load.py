# SPDX-License-Identifier: Apache-2.0
"""Number in flight, time in I/O, response and think times, sizes: computed by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from characterize.characterization import characterize
from characterize.concurrency import ConcurrencySummary, littles_law
from characterize.counting.intervals import union_length
from characterize.grouping import Grouping
from characterize.layout import PROCESSOR_SHARE_ALL, BlockFlag, BlockOp, HeaderFlag
from characterize.requests import columns_of, requests_of
from characterize.response_time import syncs_of
from characterize.sizes import SizeSummary
from characterize.text import render
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

FSYNC, FDATASYNC, SYNC_FILE_RANGE, OPEN = 3, 4, 5, 1


def two_threads():
    """Thread 1 in flight in [0, 10), [30, 40); thread 2 in [5, 25), and with two at once in [50, 60) and [55, 65)."""
    return made_trace(
        [
            read(0, 100, 0, 10),
            write(0, 300, 5, 20, thread=2),
            read(100, 200, 30, 10),
            write(300, 400, 50, 10, thread=2),
            write(700, 500, 55, 10, thread=2),
        ],
        fileops=[
            {"op": FSYNC, "start_ns": 26, "duration_ns": 4},
            {"op": FDATASYNC, "start_ns": 28, "duration_ns": 10, "thread": 2},
            {"op": SYNC_FILE_RANGE, "start_ns": 70, "duration_ns": 1},
            {"op": FSYNC, "start_ns": 80, "duration_ns": 5, "result": -5},
            {"op": OPEN, "start_ns": 90, "duration_ns": 5},
        ],
    )


def load_of(trace, layer="vfs", *, measured=True):
    summary = ConcurrencySummary(measured)
    summary.add(columns_of(requests_of(trace, layer)))
    return summary.result()


def sizes_of(rows):
    summary = SizeSummary()
    summary.add(columns_of(requests_of(made_trace(rows))))
    return summary.result()


def test_load_by_hand():
    load = load_of(two_threads())
    assert load.threads == 2
    assert load.in_flight_max == 2
    # In flight: [0, 25), [30, 40), [50, 65) = 50 ns; durations 10 + 20 + 10 + 10 + 10 = 60 ns.
    assert load.time_in_io_s == pytest.approx(50e-9)
    assert load.in_flight_mean == pytest.approx(60 / 50)
    # Thread 1 is busy for 20 ns, thread 2 for 20 + 15 ns.
    assert load.queue_depth_per_thread == pytest.approx(60 / 55)
    assert load.per_thread["thread"].tolist() == [1, 2]
    assert load.per_thread["requests"].tolist() == [2, 3]
    assert load.per_thread["bytes"].tolist() == [300, 1200]
    assert load.per_thread["time_in_io_s"].tolist() == pytest.approx([20e-9, 35e-9])
    assert load.per_thread["response_mean_s"].tolist() == pytest.approx([10e-9, 40e-9 / 3])


def test_load_of_what_was_not_measured():
    load = load_of(two_threads(), measured=False)
    assert load.threads == 2
    assert math.isnan(load.in_flight_max)
    assert math.isnan(load.time_in_io_s)
    assert load.per_thread["time_in_io_s"].isna().all()


def test_load_of_nothing():
    load = load_of(made_trace())
    assert (load.threads, load.in_flight_max, load.time_in_io_s) == (0, 0, 0)
    assert math.isnan(load.in_flight_mean)


def test_threads_are_unknown_where_no_request_names_one():
    blocks = [{"op": 1, "bytes": 512, "start_ns": 1}]
    assert math.isnan(load_of(made_trace(blocks=blocks), "block").threads)


def test_response_times():
    times = characterize(two_threads()).layers["vfs"].response_time
    assert times["read"] == {
        "count": 2, "mean_ns": 10, "p50_ns": 10, "p90_ns": 10, "p99_ns": 10, "p999_ns": 10, "max_ns": 10
    }  # fmt: skip
    assert times["write"]["mean_ns"] == pytest.approx(40 / 3)
    assert (times["write"]["p50_ns"], times["write"]["p90_ns"], times["write"]["max_ns"]) == (10, 20, 20)
    assert times["sync"]["count"] == 3
    assert times["sync"]["mean_ns"] == 5


def test_a_block_request_whose_end_was_missed_has_no_response_time():
    blocks = [
        {"op": BlockOp.READ, "start_ns": 1000, "duration_ns": 500, "bytes": 4096},
        {"op": BlockOp.READ, "start_ns": 2000, "duration_ns": 0, "bytes": 4096, "flags": BlockFlag.END_UNSEEN},
    ]
    layer = characterize(made_trace(blocks=blocks)).layers["block"]
    assert layer.counts["reads"] == 2
    assert layer.response_time["read"]["count"] == 1
    assert layer.response_time["read"]["mean_ns"] == 500


def test_time_in_sync_is_a_union():
    # [26, 38) and [70, 71)
    assert characterize(two_threads()).layers["vfs"].time["time_in_sync_s"] == pytest.approx(13e-9)
    assert characterize(made_trace()).layers["vfs"].time["time_in_sync_s"] == 0


def test_flushes_are_the_syncs_of_the_block_layer():
    blocks = [{"op": 3, "start_ns": 5, "duration_ns": 7}, {"op": 3, "start_ns": 5, "duration_ns": 7, "status": 10}]
    syncs = syncs_of(made_trace(blocks=blocks), "block")
    assert (syncs["end_ns"] - syncs["start_ns"]).tolist() == [7]


def test_think_times():
    """Thread 1: 10 to 30. Thread 2: 25 to 50; its last request starts while one is in flight."""
    layer = characterize(two_threads()).layers["vfs"]
    assert layer.think_time == {
        "count": 3, "mean_ns": 15, "p50_ns": 20, "p90_ns": 25, "p99_ns": 25, "p999_ns": 25, "max_ns": 25
    }  # fmt: skip
    assert layer.think_per_thread["gaps"].tolist() == [1, 2]
    assert layer.think_per_thread["think_mean_s"].tolist() == pytest.approx([20e-9, 12.5e-9])


def test_what_share_of_think_times_is_computing():
    """Of pauses of 254, 508 and 1000 ns all, half and an unknown share; before its first request nobody thinks."""
    ends = (0, 10, 264, 274, 782, 792, 1792)
    shares = (0, PROCESSOR_SHARE_ALL, 128, 0)
    rows = [read(0, 1, ends[2 * at], 10, processor_share=share) for at, share in enumerate(shares)]
    rows[0]["processor_share"] = 77
    layer = characterize(made_trace(rows)).layers["vfs"]
    assert layer.computing == pytest.approx({"share": (254 + 254) / (254 + 508), "measured_share": 762 / 1762})
    assert "computing" in render(characterize(made_trace(rows)))


@pytest.mark.parametrize("rows", [[read(0, 1, 0, 10)], [read(0, 1, 0, 10), read(0, 1, 50, 10)]])
def test_no_share_is_told_where_none_was_measured(rows):
    found = characterize(made_trace(rows))
    assert math.isnan(found.layers["vfs"].computing["share"])
    assert found.as_document()["layers"]["vfs"]["computing"]["share"] is None
    assert "computing" not in render(found)


def test_how_often_calls_waited_for_those_of_others_and_for_how_long():
    """Pauses of 254 and 508 ns, in which 100 and 508 were slept, more having been so before an open in the second one.

    What was slept before the thread's first request is in no pause.
    """
    rows = [read(0, 1, start, 10, id=id_) for id_, start in ((1, 1000), (2, 1264), (4, 1782))]
    opened = {"op": OPEN, "start_ns": 1300, "duration_ns": 1, "id": 3}
    slept = {1: 990, 2: 100, 3: 20, 4: 600}
    starts = {1: 1000, 2: 1264, 3: 1300, 4: 1782}
    wakes = [{"id": id_, "start_ns": starts[id_], "slept_ns": time_ns, "cause": 9} for id_, time_ns in slept.items()]
    found = characterize(made_trace(rows, fileops=[opened], wakes=wakes))
    assert found.layers["vfs"].waits == pytest.approx({"count": 4, "slept_s": 1710e-9, "share": 608 / 762})
    assert found.as_document()["layers"]["vfs"]["waits"]["count"] == 4
    assert found.layers["block"].waits is None
    assert "calls after other threads'; slept 1.71 us, 0.7979 of think time" in render(found)
    without = characterize(made_trace(rows, fileops=[opened]))
    assert without.as_document()["layers"]["vfs"]["waits"] is None
    assert "waits" not in render(without)
    assert characterize(made_trace(rows, wakes=wakes, flags=HeaderFlag.PLANNED)).layers["vfs"].waits is None


def test_each_group_waits_for_itself():
    """By the file of the call that waited, whatever its kind, and by the window in which that starts."""
    rows = [read(0, 1, 100, 10, id=1), read(0, 1, 300, 10, id=2), read(0, 1, 400, 10, id=3, file=2)]
    fileops = [{"op": FSYNC, "start_ns": 350, "duration_ns": 10, "id": 4, "file": 2}]
    wakes = [{"id": id_, "start_ns": at, "slept_ns": 40 + id_} for id_, at in ((2, 300), (3, 400), (4, 350))]
    trace = made_trace(rows, fileops=fileops, wakes=wakes, files=[{"file": 1}, {"file": 2}])
    groups = characterize(trace, grouping=Grouping(by="file", window_s=245e-9)).groups
    waits = {(group.by, group.key): group.characterization.waits for group in groups}
    assert waits["file", 1] == pytest.approx({"count": 1, "slept_s": 42e-9, "share": 42 / 190})
    assert {name: waits["file", 2][name] for name in ("count", "slept_s")} == {"count": 2, "slept_s": 87e-9}
    assert math.isnan(waits["file", 2]["share"])
    assert [waits["window", number]["count"] for number in (0, 1)] == [1, 2]


def test_think_time_counts_from_the_latest_end():
    """A long request in flight covers a short one that ends before it."""
    rows = [read(0, 1, 0, 100), read(1, 1, 10, 10), read(2, 1, 130, 1)]
    thinks = characterize(made_trace(rows)).layers["vfs"].think_time
    assert [thinks[name] for name in ("count", "p50_ns", "max_ns")] == [2, 0, 30]


def test_littles_law_of_a_closed_system():
    """4 threads, each 1000 bytes in every 2 ms: 2 MB/s."""
    law = littles_law(1000, 0.0015, 0.0005, 4, 1e6)
    assert law["throughput_bytes_per_s"] == pytest.approx(2e6)
    assert law["ratio"] == pytest.approx(2)
    assert math.isnan(littles_law(1000, math.nan, 0, 4, 1e6)["ratio"])
    assert math.isnan(littles_law(1000, 0, 0, 4, 1e6)["throughput_bytes_per_s"])


def test_size_histogram():
    rows = [read(0, 1), read(0, 3), write(0, 4), write(0, 7), read(0, 8), read(0, 8)]
    histogram = sizes_of(rows).histogram()
    assert histogram.to_dict("list") == {
        "low_bytes": [1, 2, 4, 8],
        "high_bytes": [2, 4, 8, 16],
        "reads": [1, 1, 0, 2],
        "writes": [0, 0, 2, 0],
    }
    assert len(sizes_of([]).histogram()) == 0


@given(st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=50))
def test_every_size_falls_into_its_power_of_two(sizes):
    histogram = sizes_of([read(0, size) for size in sizes]).histogram()
    for low, high, reads, _ in histogram.itertuples(index=False):
        assert reads == sum(low <= size < high for size in sizes)
    assert histogram["reads"].sum() == len(sizes)


def test_common_sizes():
    rows = [read(0, 8192), read(0, 4096), write(0, 8192), read(0, 512)]
    common = sizes_of(rows).common(2)
    assert common.to_dict("list") == {"bytes": [8192, 512], "requests": [2, 1], "share": [0.5, 0.25]}


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 2)), max_size=30))
def test_union_is_the_size_of_a_set(rows):
    points = {(group, point) for start, size, group in rows for point in range(start, start + size)}
    start, size, group = np.array(rows, np.int64).reshape(-1, 3).T
    assert union_length(start, start + size, group) == len(points)
    assert union_length(start, start + size) == len({point for _, point in points})
