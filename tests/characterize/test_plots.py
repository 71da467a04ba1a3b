# SPDX-License-Identifier: Apache-2.0
"""matplotlib figures: their axes say what is on them in which unit, and show the data; files; what is refused."""

import os
import sys

import numpy as np
import pytest

import characterize
from characterize import plots
from characterize.characterization import characterize as numbers_of
from characterize.errors import FlextraceError
from characterize.figure_data import figure_data_of
from characterize.layout import HeaderFlag
from characterize.places import POINTS_MAX
from flextrace.main import main
from tests.formulas.disturbed_scale import fill_up
from tests.traces.made_trace import made_trace, read
from tests.traces.random_trace import random_trace

pytestmark = pytest.mark.parallel
pytest_plugins = ["tests.machines.small_file_system"]

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def trace():
    return random_trace(600, 3)[0]


@pytest.fixture(scope="module")
def data(trace):
    return figure_data_of(trace, numbers_of(trace))["vfs"]


def labels(axes):
    return axes.get_xlabel(), axes.get_ylabel()


def test_sizes(data):
    (axes,) = plots.sizes(data).axes
    assert labels(axes) == ("size from (to twice as much), bytes", "requests")
    reads, writes = axes.containers
    assert [bar.get_height() for bar in reads] == data.sizes["reads"].tolist()
    assert [bar.get_height() for bar in writes] == data.sizes["writes"].tolist()
    assert axes.get_xticklabels()[-1].get_text() == "8 KiB"


def test_miss_ratio_curve(data):
    (axes,) = plots.miss_ratio_curve(data).axes
    assert labels(axes) == ("size of an LRU cache, bytes", "share of 4 KiB blocks missed")
    curve = axes.get_lines()[0]
    assert np.array_equal(curve.get_xdata(), data.miss_ratios["cache_bytes"])
    assert np.array_equal(curve.get_ydata(), data.miss_ratios["miss_ratio"])
    assert [line.get_xdata()[0] for line in axes.get_lines()[1:]] == list(data.marks.values())


def test_rate_and_depth(data):
    rate, depth = plots.rate_and_depth(data).axes
    assert (rate.get_ylabel(), depth.get_ylabel()) == ("MB/s", "requests in flight")
    assert depth.get_xlabel().endswith(", s")
    drawn = {line.get_label(): line.get_ydata() for line in rate.get_lines()}
    assert np.array_equal(drawn["reads"], data.rate_and_depth["reads_MB_per_s"])
    assert np.array_equal(drawn["writes"], data.rate_and_depth["writes_MB_per_s"])
    assert np.array_equal(depth.get_lines()[0].get_ydata(), data.rate_and_depth["in_flight_mean"])


def test_offsets_of_few_requests_are_marks(data):
    (axes,) = plots.offsets_over_time(data).axes
    assert labels(axes) == ("time since the trace's first operation, s", "place in the files, bytes")
    points = data.places.points()
    drawn = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    assert np.array_equal(drawn["reads"], points["place_bytes"][points["read"]])
    assert np.array_equal(drawn["writes"], points["place_bytes"][~points["read"]])


def test_offsets_of_many_requests_are_binned():
    trace, _ = random_trace(POINTS_MAX + 1, 2)
    data = figure_data_of(trace, numbers_of(trace))["vfs"]
    reads, writes, *bars = plots.offsets_over_time(data).axes
    assert [bar.get_ylabel() for bar in bars] == ["requests", "requests"]
    assert reads.get_ylabel() == "reads: place in the files, bytes"
    for axes, counts in zip((reads, writes), data.places.counts, strict=True):
        assert np.array_equal(axes.collections[0].get_array().filled(0), counts)


def test_activity_of_files(data):
    axes, bar = plots.activity_of_files(data).axes
    assert labels(axes) == ("time since the trace's first operation, s", "file")
    assert bar.get_ylabel() == "bytes"
    assert [label.get_text() for label in axes.get_yticklabels()] == data.places.names
    assert np.array_equal(axes.collections[0].get_array().filled(0), data.places.moved.sum(axis=0))


def test_paths_are_no_formulas_and_may_be_of_any_bytes(tmp_path):
    """matplotlib takes what is between two dollar signs for TeX, and refuses what it cannot read."""
    paths = {1: "/A$x_$.class", 2: "/caf\udce9.db"}
    trace = made_trace([read(4096 * at, 4096, 10 * at, 5, file=1 + at % 2) for at in range(20)], paths=paths)
    figure = plots.activity_of_files(figure_data_of(trace, numbers_of(trace))["vfs"])
    figure.savefig(tmp_path / "a.svg")
    shown = {label.get_text() for label in figure.axes[0].get_yticklabels()}
    assert shown == {"/A$x_$.class", "/caf\\udce9.db"}


def test_response_times(data):
    (axes,) = plots.response_times(data).axes
    assert axes.get_ylabel() == "response time, µs"
    assert axes.get_lines()[0].get_ydata()[-1] == data.response_times["p100_us"][0]


def test_what_has_no_times_is_refused():
    trace = made_trace([read(0, 4096), read(4096, 4096)], flags=HeaderFlag.UNTIMED)
    data = figure_data_of(trace, numbers_of(trace))["vfs"]
    for draw in (plots.rate_and_depth, plots.offsets_over_time, plots.activity_of_files, plots.response_times):
        with pytest.raises(FlextraceError, match="replay and record"):
            draw(data)


def test_without_matplotlib_it_says_what_to_install(data, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(FlextraceError, match=r"flextrace\[figures\]"):
        plots.sizes(data)
    assert main(["characterize", "t.iotrace", "--figures", str(tmp_path / "d")]) == 1
    assert "matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(("suffix", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_verb_writes_every_figure_and_overwrites_none(trace, tmp_path, capsys, suffix, begin):
    path = str(characterize.write(trace, tmp_path / "t.iotrace"))
    command = ["characterize", path, "--layer", "vfs", "--figures", str(tmp_path / "a/b"), "--figure-format", suffix]
    assert main(command) == 0
    written = sorted((tmp_path / "a/b").iterdir())
    assert [file.name for file in written] == sorted(f"t-vfs-{name}.{suffix}" for name in plots.FIGURES)
    assert all(file.read_bytes().startswith(begin) for file in written)
    said = capsys.readouterr().err
    assert all(str(file) in said for file in written)
    assert main(command) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["characterize", path, path, "--figures", str(tmp_path / "c")]) == 2
    assert "equal names" in capsys.readouterr().err
    assert main(["characterize", path, "--figure-format", "svg"]) == 2
    assert "is for --figures" in capsys.readouterr().err
    assert main(["characterize", str(tmp_path)]) == 2
    assert "is a directory" in capsys.readouterr().err


def test_a_directory_in_which_nothing_can_be_drawn_goes_again(trace, small_file_system, tmp_path, capsys):
    path = characterize.write(trace, tmp_path / "t.iotrace")
    (small_file_system / "there").mkdir()
    fill_up(small_file_system)
    for figures in ("new/figures", "there/figures", "there"):
        assert main(["characterize", str(path), "--figures", str(small_file_system / figures)]) == 1
        assert "No space left on device; make room there" in capsys.readouterr().err
        assert sorted(os.listdir(small_file_system)) == ["filler", "there"]
        assert os.listdir(small_file_system / "there") == []


def test_no_directory_is_made_where_nothing_is_drawn(tmp_path, capsys):
    missing, empty = tmp_path / "missing.iotrace", characterize.write(made_trace([]), tmp_path / "empty.iotrace")
    for trace, code in ((missing, 1), (empty, 0)):
        assert main(["characterize", str(trace), "--figures", str(tmp_path / "new" / "figures")]) == code
    assert not (tmp_path / "new").exists()
    capsys.readouterr()
    assert main(["characterize", str(empty), "--figures", str(empty / "figures")]) == 1
    assert f"cannot write figures to {empty / 'figures'}: {empty} is no directory" in capsys.readouterr().err
