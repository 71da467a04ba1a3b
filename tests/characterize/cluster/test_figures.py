# SPDX-License-Identifier: Apache-2.0
"""Figures of a trace in parts: whatever the cuts, the data behind them is what two looks at the whole find."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import characterize as package
from characterize.characterization import characterize
from characterize.cluster import plan
from characterize.cluster.characterize_set import characterize_recordings
from characterize.cluster.figures import figure_data_of_set
from characterize.cluster.recording_set import open_set
from characterize.figure_data import FigureData, figure_data_of
from characterize.layout import HeaderFlag
from characterize.places import FILES_SHOWN, OTHERS, POINTS_MAX, Places
from characterize.stream import open_stream
from tests.traces.busy_records import busy_records, written_as_is
from tests.traces.hosts import two_hosts
from tests.traces.made_trace import made_trace, read
from tests.traces.random_trace import random_trace

pytestmark = pytest.mark.parallel


def divided(paths: list[Path], **how: int) -> dict[str, FigureData]:
    recordings = open_set(paths, **how)
    return figure_data_of_set(recordings, characterize_recordings(recordings))


def undivided(path: Path) -> dict[str, FigureData]:
    stream = open_stream(path)
    return figure_data_of(stream, characterize(stream))


def assert_same(found: dict[str, FigureData], expected: dict[str, FigureData]) -> None:
    assert list(found) == list(expected)
    for layer, data in expected.items():
        for field in dataclasses.fields(FigureData):
            mine, its = getattr(found[layer], field.name), getattr(data, field.name)
            if isinstance(its, pd.DataFrame):
                pd.testing.assert_frame_equal(mine, its, check_exact=True)
            elif isinstance(its, Places):
                assert_same_places(mine, its)
            else:
                assert mine == its


def assert_same_places(found: Places, expected: Places) -> None:
    assert (found.names, found.window_s, found.band_bytes) == (expected.names, expected.window_s, expected.band_bytes)
    assert (found.counts == expected.counts).all()
    assert (found.moved == expected.moved).all()
    if expected.points() is None:
        assert found.points() is None
    else:
        pd.testing.assert_frame_equal(found.points(), expected.points(), check_exact=True)


@settings(max_examples=60, deadline=None)
@given(busy_records(), st.sets(st.integers(1, 31), max_size=12), st.sampled_from([1, 5, 1000]))
def test_whatever_the_cuts_the_figures_are_the_same(tmp_path_factory, rows, cuts, piece_records):
    path = written_as_is(tmp_path_factory.mktemp("figures"), rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_borders", lambda pieces, parts: sorted(cuts) if pieces else [])
        found = divided([path], piece_records=piece_records)
    assert_same(found, undivided(path))


@pytest.mark.parametrize("requests", [500, POINTS_MAX + 1])
def test_one_four_and_sixteen_parts(tmp_path, requests):
    """With each request for itself, and with too many for that; in both cases with more files than are shown."""
    trace, _ = random_trace(requests, FILES_SHOWN + 13)
    path = package.write(trace, tmp_path / "a.iotrace")
    expected = undivided(path)
    assert expected["vfs"].places.names[-1] == OTHERS
    assert (expected["vfs"].places.points() is None) == (requests > POINTS_MAX)
    for parts in (1, 4, 16):
        assert_same(divided([path], parts=parts, piece_records=700), expected)


def test_figures_of_two_hosts_tell_their_files_apart(tmp_path):
    paths = two_hosts(tmp_path)
    for parts in (1, 4):
        found = divided(paths, parts=parts, piece_records=7)
        assert found["vfs"].places.names == ["/data", "/data (2)"]
        assert found["block"].places.names == ["8:0", "8:0 (2)"]
        for layer in ("vfs", "block"):
            assert found[layer].places.moved.sum(axis=(0, 2)).tolist() == [20 * 4096, 19 * 4096]
        points = found["vfs"].places.points()
        assert np.unique(points["place_bytes"] - points["offset"]).tolist() == [0, 20 * 4096]


def test_without_times_there_are_no_places(tmp_path):
    path = package.write(made_trace([read(0, 4096)], flags=HeaderFlag.UNTIMED), tmp_path / "a.iotrace")
    assert_same(divided([path]), undivided(path))
    assert divided([path])["vfs"].places is None
