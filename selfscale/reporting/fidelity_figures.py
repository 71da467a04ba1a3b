# SPDX-License-Identifier: Apache-2.0
"""Turns the comparison of a replay with its original into figures that lay both distributions over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from characterize.colours import LINE, READ, REGION, SYNC, WRITE
from selfscale.reporting.figures import Figure, log_axis

_COLOURS = {"read": READ, "write": WRITE, "sync": SYNC, "think": LINE}
_DASHES = {"original": "solid", "replay": "dot"}


def _distributions(fidelity: Mapping[str, Any], kinds: Sequence[str], title: str, sentence: str) -> Figure | None:
    """Distribution functions of times, original and replay over each other; None where neither run has any."""
    figure, columns, shown = go.Figure(), {}, []
    for kind in kinds:
        curve = fidelity["curves"][kind]
        for run, dash in _DASHES.items():
            if curve is None or curve[f"{run}_ns"] is None:
                continue
            microseconds = [value / 1e3 for value in curve[f"{run}_ns"]]
            columns["percent"] = curve["percent"]
            columns[f"{kind}_{run}_us"] = microseconds
            shown += microseconds
            figure.add_trace(
                go.Scatter(
                    x=microseconds,
                    y=curve["percent"],
                    mode="lines",
                    line={"color": _COLOURS[kind], "dash": dash, "width": 2},
                    name=f"{kind}, {run}",
                )
            )
    if not shown:
        return None
    figure.update_xaxes(title_text="time, µs", **log_axis(shown))
    figure.update_yaxes(title_text="percent of the operations that took at most this long", range=[0, 101])
    return Figure(title, sentence, figure, pd.DataFrame(columns))


def response_times(fidelity: Mapping[str, Any]) -> Figure | None:
    """Response times of both runs.

    Parameters
    ----------
    fidelity : mapping
        Document ``flextrace.fidelity/1``.
    """
    sentence = (
        "Response times of the original and of its replay: the closer the dotted line is to the solid one of its "
        "colour, the more alike they are. KS is the largest vertical distance of the two, EMD the area between them on "
        "a linear axis."
    )
    return _distributions(fidelity, ("read", "write", "sync"), "Response times, original and replay", sentence)


def think_times(fidelity: Mapping[str, Any]) -> Figure | None:
    """Think times of both runs; see `response_times`."""
    sentence = "Time from the end of a request to the start of its thread's next one; timing asap does not repeat it."
    return _distributions(fidelity, ("think",), "Think times, original and replay", sentence)


def in_flight(fidelity: Mapping[str, Any]) -> Figure | None:
    """Numbers in flight of both runs; see `response_times`."""
    frames = [
        pd.DataFrame(fidelity[run]["in_flight"]["shares"], columns=["in_flight", "share"]).set_index("in_flight")
        for run in _DASHES
    ]
    data = pd.concat([frame["share"].rename(run) for frame, run in zip(frames, _DASHES, strict=True)], axis=1)
    if data.empty:
        return None
    data = data.fillna(0.0).sort_index().reset_index()
    figure = go.Figure()
    for run, colour in zip(_DASHES, (REGION, LINE), strict=True):
        figure.add_trace(
            go.Bar(x=data["in_flight"].tolist(), y=(100 * data[run]).tolist(), name=run, marker_color=colour)
        )
    figure.update_layout(barmode="group")
    figure.update_xaxes(title_text="requests in flight")
    figure.update_yaxes(title_text="percent of the time in I/O", rangemode="tozero")
    sentence = "How long how many requests were in flight at once, of the time in which any was."
    return Figure("Requests in flight, original and replay", sentence, figure, data)


def lateness(fidelity: Mapping[str, Any]) -> Figure | None:
    """How late the replay's operations began; None with timing asap, which has no due times, and from older engines."""
    buckets = (fidelity["lateness"] or {}).get("buckets", {"counts": []})
    if not buckets["counts"]:
        return None
    data = pd.DataFrame({"below_us": [below / 1e3 for below in buckets["below_ns"]], "operations": buckets["counts"]})
    # A bar covers its bucket, from half of the bound to the bound: places and widths are linear on any axis.
    middle, width = 0.75 * data["below_us"], 0.5 * data["below_us"]
    figure = go.Figure(
        go.Bar(
            x=middle.tolist(),
            y=data["operations"].tolist(),
            width=width.tolist(),
            customdata=data["below_us"].tolist(),
            hovertemplate="%{y} below %{customdata} µs<extra></extra>",
            marker_color=LINE,
        )
    )
    figure.update_xaxes(title_text="late by, µs", **log_axis(data["below_us"]))
    figure.update_yaxes(title_text="operations", rangemode="tozero")
    sentence = (
        "How long after they were due and could have begun the operations of the replay began, by powers of two: what "
        "this host adds, not its storage."
    )
    return Figure("Lateness of the replay", sentence, figure, data)
