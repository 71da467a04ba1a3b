# SPDX-License-Identifier: Apache-2.0
"""Figures of traces and of machines in a report: what is drawn is what was counted, and under its own name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from characterize.characterization import characterize as numbers_of
from characterize.figure_data import figure_data_of
from characterize.places import POINTS_MAX
from selfscale.reporting.machines_figures import machines_figures
from selfscale.reporting.trace_figures import by_file, places, trace_figures
from tests.traces.made_report import make_profile, make_trace
from tests.traces.made_trace import made_trace, read

pytestmark = pytest.mark.parallel


def test_plotly_shows_names_as_they_are(tmp_path: Path) -> None:
    """It takes tags for those of HTML, and of entities knows `&lt;`, `&gt;` and `&amp;`, but not `&quot;`."""
    trace = make_trace(tmp_path / "t.iotrace")
    data = figure_data_of(trace, numbers_of(trace))["vfs"].places
    assert data is not None
    shown = by_file(data, "file").plot.layout.yaxis.ticktext
    assert [text for text in shown if "quoted" in text] == ["…ipt&gt;alert('owned')&lt;/script&gt;&amp;\"quoted\".db"]
    profiles = [make_profile(), make_profile()]
    for name, profile in zip(("a<b>", "c"), profiles, strict=True):
        profile.path = tmp_path / f"{name}.json"
    figures = machines_figures(profiles)
    assert len(figures) == 5
    for figure in figures:
        drawn = json.dumps(json.loads(figure.json)["data"])
        assert "a<b>" not in drawn
        assert "a&lt;b&gt;" in drawn


def test_many_requests_are_counted_in_bins_and_the_note_says_so(tmp_path: Path) -> None:
    many = make_trace(tmp_path / "big.iotrace", requests=POINTS_MAX + 1000)
    data = figure_data_of(many, numbers_of(many))["vfs"].places
    assert data is not None
    figure = places(data, "file")
    assert f"{POINTS_MAX + 1000:,} requests" in figure.note
    reads, writes = figure.plot.data
    for drawn, name in ((reads, "reads"), (writes, "writes")):
        counts = [value for row in drawn.customdata for value in row if value]
        assert sum(counts) == figure.data[name].sum()
    assert figure.data[["reads", "writes"]].to_numpy().sum() == POINTS_MAX + 1000
    files = by_file(data, "file")
    requests = many.requests
    moved = sum(value for row in files.plot.data[0].customdata for value in row if value)
    assert moved == requests["bytes"].sum()
    few = make_trace(tmp_path / "small.iotrace", requests=100)
    data = figure_data_of(few, numbers_of(few))["vfs"].places
    assert data is not None
    small = places(data, "file")
    assert small.note == ""
    assert len(small.data) == 100 == sum(len(part.x) for part in small.plot.data)


def test_steps_of_seconds_have_no_exponent() -> None:
    slow = made_trace([read(0, 4096, 2 * 10**12 * at) for at in range(9)], files=[{"file": 1}])
    sentences = [figure.sentence for figure in trace_figures(figure_data_of(slow, numbers_of(slow))["vfs"])]
    steps = [sentence for sentence in sentences if "steps of" in sentence]
    assert len(steps) == 2
    assert not any("e+" in sentence for sentence in steps)
