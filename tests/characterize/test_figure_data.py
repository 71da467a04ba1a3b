# SPDX-License-Identifier: Apache-2.0
"""The tables behind a trace's figures: against hand calculation and naive counting; a stream gives the same."""

import numpy as np
import pandas as pd
import pytest

import characterize
from characterize.characterization import characterize as numbers_of
from characterize.figure_data import PERCENTILES, figure_data_of, rate_and_depth
from characterize.layout import BlockOp, HeaderFlag
from characterize.places import BANDS, FILES_SHOWN, OTHERS, POINTS_MAX, WINDOWS
from characterize.requests import OFFSET_MAX
from characterize.stream import open_stream
from tests.traces.made_trace import made_trace, read, write
from tests.traces.random_trace import random_trace

pytestmark = pytest.mark.parallel

PATHS = {1: "/data/one", 2: "/data/two"}


def data_of(trace, layer="vfs"):
    return figure_data_of(trace, numbers_of(trace))[layer]


def small_trace():
    """Windows of 10 ns (150 of them in 1500 ns) and bands of 100 bytes (100 of them in 2 files of 5000 bytes)."""
    return made_trace(
        [
            read(0, 1000, start=0, duration=7),
            write(4900, 100, start=15, duration=3, file=2),
            write(4900, 100, start=19, duration=3, file=2),
            read(4000, 1000, start=1490, duration=9),
        ],
        paths=PATHS,
    )


def test_points_by_hand():
    points = data_of(small_trace()).places.points()
    assert points["time_s"].tolist() == pytest.approx([0, 15e-9, 19e-9, 1490e-9])
    # The second file stands above the first, which is 5000 bytes high.
    assert points["place_bytes"].tolist() == [0, 9900, 9900, 4000]
    assert points["file"].tolist() == ["/data/one", "/data/two", "/data/two", "/data/one"]
    assert points["read"].tolist() == [True, False, False, True]
    assert points["offset"].tolist() == [0, 4900, 4900, 4000]


def test_bins_by_hand():
    places = data_of(small_trace()).places
    assert (places.window_s, places.band_bytes) == (1e-8, 100)
    bins = places.bins().sort_values("from_s")
    assert bins["from_s"].tolist() == pytest.approx([0, 10e-9, 1490e-9])
    assert bins["place_bytes"].tolist() == [0, 9900, 4000]
    assert bins[["reads", "writes"]].to_numpy().tolist() == [[1, 0], [0, 2], [1, 0]]


def test_activity_by_hand():
    activity = data_of(small_trace()).places.by_file()
    assert activity["file"].tolist() == ["/data/one", "/data/one", "/data/two"]
    assert activity["from_s"].tolist() == pytest.approx([0, 1490e-9, 10e-9])
    assert activity[["read_bytes", "written_bytes"]].to_numpy().tolist() == [[1000, 0], [1000, 0], [0, 200]]


def test_bins_and_activity_are_those_of_naive_counting():
    files = FILES_SHOWN + 13
    trace, rows = random_trace(POINTS_MAX + 1, files)
    places = data_of(trace).places
    assert places.points() is None
    ends, moved = {}, {}
    for row in rows:
        ends[row["file"]] = max(ends.get(row["file"], 0), row["offset"] + row["result"])
        moved[row["file"]] = moved.get(row["file"], 0) + row["result"]
    base, height = {}, 0
    for file, end in ends.items():
        base[file], height = height, height + end
    first, last = rows[0]["start_ns"], max(row["start_ns"] + 50 for row in rows)
    window_ns, band = -(-(last - first + 1) // WINDOWS), -(-height // BANDS)
    top = sorted(moved, key=lambda file: -moved[file])[:FILES_SHOWN]
    counts, by_file = {}, {}
    for row in rows:
        window = (row["start_ns"] - first) // window_ns
        direction = 0 if row["op"] == rows[0]["op"] else 1
        cell = (direction, (base[row["file"]] + row["offset"]) // band, window)
        counts[cell] = counts.get(cell, 0) + 1
        name = f"/f{row['file']}" if row["file"] in top else OTHERS
        by_file[name, direction, window] = by_file.get((name, direction, window), 0) + row["result"]
    flip = 0 if rows[0]["op"] == read(0, 1)["op"] else 1
    assert places.counts.sum() == len(rows) == sum(counts.values())
    for (direction, place, window), count in counts.items():
        assert places.counts[direction ^ flip, place, window] == count
    assert places.names == [f"/f{file}" for file in top] + [OTHERS]
    for (name, direction, window), size in by_file.items():
        assert places.moved[direction ^ flip, places.names.index(name), window] == size
    assert places.moved.sum() == sum(moved.values())


def test_files_that_end_next_to_the_largest_offset_stand_above_each_other():
    rows = [write(OFFSET_MAX, 4096, start=number, file=number + 1) for number in range(3)]
    places = data_of(made_trace([*rows, read(0, 1, start=9, file=3)])).places
    assert places.points()["place_bytes"].tolist() == pytest.approx([2**63, 2 * 2**63, 3 * 2**63, 2 * 2**63])
    assert places.band_bytes == pytest.approx(3 * 2**63 / BANDS)
    band, _ = places.counts.sum(axis=0).nonzero()
    assert sorted(band.tolist()) == [33, 66, 66, 99]


def test_a_stream_in_small_pieces_gives_the_same(tmp_path):
    trace, _ = random_trace(3000, 5)
    path = characterize.write(trace, tmp_path / "t.iotrace")
    whole = data_of(characterize.open(path))
    stream = data_of(open_stream(path, piece_records=101))
    assert (stream.places.counts == whole.places.counts).all()
    assert (stream.places.moved == whole.places.moved).all()
    pd.testing.assert_frame_equal(stream.places.points(), whole.places.points())
    for name in ("sizes", "miss_ratios", "rate_and_depth", "response_times"):
        pd.testing.assert_frame_equal(getattr(stream, name), getattr(whole, name))


def test_rate_and_depth_by_hand():
    over_time = pd.DataFrame(
        {
            "from_s": [0.0, 0.5, 1.0],
            "reads": [3, 0, 1],
            "writes": [0, 1, 0],
            "read_bytes": [3_000_000, 0, 500_000],
            "written_bytes": [0, 250_000, 0],
            "in_flight_mean": [1.5, 0.25, 0.0],
            "working_set_bytes": [4096, 4096, 8192],
        }
    )
    table = rate_and_depth(over_time)
    assert table["reads_MB_per_s"].tolist() == [6.0, 0.0, 1.0]
    assert table["writes_MB_per_s"].tolist() == [0.0, 0.5, 0.0]
    assert table["reads_per_s"].tolist() == [6.0, 0.0, 2.0]
    assert table["writes_per_s"].tolist() == [0.0, 2.0, 0.0]
    assert table["in_flight_mean"].tolist() == [1.5, 0.25, 0.0]


def test_rates_of_a_trace_add_up_to_its_bytes():
    trace, rows = random_trace(500, 3)
    table = data_of(trace).rate_and_depth
    width_s = table["from_s"][1]
    both = table["reads_MB_per_s"] + table["writes_MB_per_s"]
    assert both.sum() * width_s * 1e6 == pytest.approx(sum(row["result"] for row in rows))
    # Requests take 50 ns each, whether or not they overlap.
    assert table["in_flight_mean"].sum() * width_s == pytest.approx(500 * 50e-9)


def test_percentiles_of_response_times_are_values_that_occurred():
    trace = made_trace([read(4096 * i, 4096, start=10**6 * i, duration=1000 * (i + 1)) for i in range(100)])
    table = data_of(trace).response_times
    assert table["operation"].tolist() == ["read"]
    assert (table["count"][0], table["mean_us"][0]) == (100, 50.5)
    for percent in PERCENTILES:
        assert table[f"p{percent:g}_us"][0] == pytest.approx(np.ceil(percent), rel=0.004)


def test_marks_are_sizes_that_the_trace_has():
    trace = small_trace()
    trace.header.metadata["memory_limit_bytes"] = 2**20
    assert data_of(trace).marks["memory limit"] == 2**20
    assert data_of(trace).marks["uniqueBytes"] == 2100


def test_what_needs_times_is_left_out_without_them():
    rows = [read(0, 4096, start=1), read(4096, 4096, start=2000)]
    not_run = data_of(made_trace(rows, flags=HeaderFlag.UNTIMED))
    assert (not_run.rate_and_depth, not_run.places, not_run.response_times) == (None, None, None)
    assert not_run.sizes["reads"].tolist() == [2]
    no_durations = data_of(made_trace(rows, metadata={"durations": "unknown"}))
    assert no_durations.response_times is None
    assert no_durations.rate_and_depth["in_flight_mean"].isna().all()
    assert len(no_durations.places.points()) == 2


def test_a_layer_without_requests_has_no_figures():
    assert figure_data_of(made_trace(), numbers_of(made_trace())) == {}
    blocks = [{"op": BlockOp.READ, "sector": 8, "bytes": 4096, "start_ns": 5, "duration_ns": 9}]
    data = figure_data_of(trace := made_trace(blocks=blocks), numbers_of(trace))
    assert list(data) == ["block"]
    assert data["block"].places.points()["file"].tolist() == ["8:0"]
    assert data["block"].places.points()["offset"].tolist() == [4096]
