# SPDX-License-Identifier: Apache-2.0
"""Turns the data behind a trace's figures into Plotly figures: sizes, locality, time, place, response times.

`characterize.plots` draws the same data with matplotlib.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from characterize.colours import LINE, READ, SYNC, WRITE
from characterize.figure_data import PERCENTILES, TITLES, FigureData
from characterize.places import FILES_SHOWN, OTHERS, Places
from characterize.units import format_bytes, format_duration
from selfscale.reporting.figures import Figure, as_shown, byte_ticks, log_axis, mark_size

_DIRECTIONS = (("reads", READ), ("writes", WRITE))
_SINCE = "time since the trace's first operation, s"
_LABEL_LENGTH = 40
_PLACE_TICKS = {"tickformat": ".3s", "ticksuffix": "B"}


def trace_figures(data: FigureData) -> list[Figure]:
    """All figures of one layer that its data allows."""
    title = TITLES[data.layer]
    figures = [sizes(data.sizes, title), miss_ratios(data.miss_ratios, data.marks)]
    if data.rate_and_depth is not None:
        figures.append(rate_and_depth(data.rate_and_depth, title))
    if data.places is not None:
        thing = "file" if data.layer == "vfs" else "device"
        figures += [places(data.places, thing), by_file(data.places, thing)]
    if data.response_times is not None:
        figures.append(response_times(data.response_times, title))
    for figure in figures:
        figure.title = f"{figure.title}, {title}"
    return figures


def sizes(data: pd.DataFrame, layer: str) -> Figure:
    """Requests by power of two of their size."""
    labels = [format_bytes(low) for low in data["low_bytes"]]
    figure = go.Figure()
    for name, colour in _DIRECTIONS:
        figure.add_trace(go.Bar(x=labels, y=data[name].tolist(), name=name, marker_color=colour))
    figure.update_layout(barmode="group")
    figure.update_xaxes(title_text="size from (to twice as much)", type="category")
    figure.update_yaxes(title_text="requests")
    sentence = (
        f"How many requests of which size the {layer} saw; every bar holds sizes from its label up to twice that."
    )
    return Figure("Sizes", sentence, figure, data)


def miss_ratios(data: pd.DataFrame, marks: dict[str, float]) -> Figure:
    """Miss ratio of an LRU cache against its size, some sizes marked."""
    figure = go.Figure()
    x = data["cache_bytes"].tolist()
    line = {"color": LINE, "width": 2}
    figure.add_trace(go.Scatter(x=x, y=data["miss_ratio"].tolist(), mode="lines", line=line, name="miss ratio"))
    for number, (text, value) in enumerate(marks.items()):
        mark_size(figure, value, f"{text} {format_bytes(value)}", level=0.05 + 0.1 * number)
    if x:
        figure.update_xaxes(byte_ticks(min(x), max([*x, *marks.values()])))
    figure.update_xaxes(title_text="size of an LRU cache")
    figure.update_yaxes(title_text="share of blocks missed", range=[0, 1.02])
    sentence = (
        "Share of the 4 KiB blocks touched that an LRU cache of a given size would miss, first touches included; at "
        "its end it is level at the share that is touched for the first time."
    )
    return Figure("Miss-ratio curve", sentence, figure, data)


def rate_and_depth(data: pd.DataFrame, layer: str) -> Figure:
    """Bytes per second, reads and writes, and the number of requests in flight, over time."""
    deep = bool(data["in_flight_mean"].notna().any())
    figure = make_subplots(rows=1 + deep, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    x = data["from_s"].tolist()
    for name, colour in _DIRECTIONS:
        line = {"color": colour, "width": 1.5, "shape": "hv"}
        y = data[f"{name}_MB_per_s"].tolist()
        figure.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line, name=name), row=1, col=1)
    figure.update_yaxes(title_text="MB/s", rangemode="tozero", row=1, col=1)
    if deep:
        line = {"color": LINE, "width": 1.5, "shape": "hv"}
        y = data["in_flight_mean"].tolist()
        figure.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line, name="in flight"), row=2, col=1)
        figure.update_yaxes(title_text="requests in flight", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title_text=_SINCE, row=1 + deep, col=1)
    figure.update_layout(height=480 if deep else 340)
    width_s = x[1] - x[0] if len(x) > 1 else 0.0
    depth = ", and how many were in flight, on average over each step" if deep else ""
    sentence = (
        f"Bytes that the {layer} moved per second, by requests that start in a step{depth}; {len(x)} steps of "
        f"{format_duration(width_s)}."
    )
    return Figure("Rate and depth over time" if deep else "Rate over time", sentence, figure, data)


def places(data: Places, thing: str) -> Figure:
    """Where in its files (or devices, a `thing`) every request went, over time.

    A mark for each, or how many went where if they are too many.
    """
    about = (
        f"Where every request went: its offset, the {thing}s put above each other in the order of their first use. "
        "Sequential access is a line, random access a cloud."
    )
    points = data.points()
    if points is not None:
        figure = go.Figure()
        for (name, colour), read in zip(_DIRECTIONS, (True, False), strict=True):
            part = points[points["read"] == read]
            figure.add_trace(
                go.Scatter(
                    x=part["time_s"].round(7).tolist(),
                    y=part["place_bytes"].tolist(),
                    mode="markers",
                    marker={"size": 3, "color": colour},
                    name=name,
                    hovertemplate="%{x} s<extra></extra>",
                )
            )
        figure.update_xaxes(title_text=_SINCE)
        figure.update_yaxes(title_text=f"place in the {thing}s, bytes", **_PLACE_TICKS)
        figure.update_layout(height=440)
        return Figure("Offsets over time", about, figure, points)
    shown = [index for index in range(2) if data.counts[index].any()]
    figure = make_subplots(rows=len(shown), cols=1, shared_xaxes=True, vertical_spacing=0.06)
    x = (data.window_s * (np.arange(data.counts.shape[2]) + 0.5)).tolist()
    y = (data.band_bytes * (np.arange(data.counts.shape[1]) + 0.5)).tolist()
    scale = _logarithmic(data.counts[shown], lambda count: f"{count:,.0f}", "requests")
    for row, index in enumerate(shown, 1):
        figure.add_trace(_heat_map(x, y, data.counts[index], "%{x:.4g} s: %{customdata} requests"), row, 1)
        title = f"{_DIRECTIONS[index][0]}: place in the {thing}s, bytes"
        figure.update_yaxes(title_text=title, **_PLACE_TICKS, row=row, col=1)
    figure.update_xaxes(title_text=_SINCE, row=len(shown), col=1)
    figure.update_layout(height=180 + 280 * len(shown), coloraxis=scale)
    note = (
        f"{data.requests:,} requests are too many to be drawn one by one: counted in {len(x)} steps of "
        f"{format_duration(data.window_s)} and {len(y)} bands of {format_bytes(data.band_bytes)}."
    )
    return Figure("Offsets over time", about, figure, data.bins(), note=note)


def by_file(data: Places, thing: str) -> Figure:
    """Bytes by file (or device, a `thing`) and time."""
    moved = data.moved.sum(axis=0)
    figure = go.Figure()
    scale = _logarithmic(moved, format_bytes, "bytes")
    x = (data.window_s * (np.arange(moved.shape[1]) + 0.5)).tolist()
    # Files may end alike, and a category axis would put those into one row.
    labels = [name if len(name) <= _LABEL_LENGTH else "…" + name[1 - _LABEL_LENGTH :] for name in data.names]
    figure.add_trace(_heat_map(x, list(range(len(labels))), moved, "%{x:.4g} s: %{customdata:.3s}B"))
    figure.update_layout(height=160 + 22 * max(len(labels), 6), coloraxis=scale)
    figure.update_xaxes(title_text=_SINCE)
    figure.update_yaxes(tickvals=list(range(len(labels))), ticktext=list(map(as_shown, labels)), autorange="reversed")
    sentence = (
        f"Bytes that were read from and written to each {thing} in steps of {format_duration(data.window_s)}, the one "
        "with most bytes at the top; the colour is on a logarithmic scale."
    )
    note = f"The {FILES_SHOWN} {thing}s with most bytes; the last row is all others." if OTHERS in data.names else ""
    return Figure(f"Activity of each {thing}", sentence, figure, data.by_file(), note=note)


def _heat_map(x: list[float], y: list[float], values: np.ndarray, hover: str) -> go.Heatmap:
    """A heat map whose colour is the logarithm of what it shows; nothing where that is 0."""
    exponents = [[round(float(np.log10(value)), 2) if value else None for value in row] for row in values]
    counts = [[int(value) or None for value in row] for row in values]
    return go.Heatmap(
        x=x, y=y, z=exponents, customdata=counts, hovertemplate=f"{hover}<extra></extra>", coloraxis="coloraxis"
    )


def _logarithmic(values: np.ndarray, text_of: Any, title: str) -> dict[str, Any]:
    """A colour axis of the exponents of ten that `_heat_map` draws."""
    top = int(np.ceil(np.log10(max(int(values.max()), 10))))
    low = int(np.floor(np.log10(max(int(values[values > 0].min()), 1))))
    ticks = list(range(min(low, top - 1), top + 1))
    return {
        "colorscale": "Viridis",  # as plots.py: its lightness grows with the value
        "cmin": ticks[0],
        "cmax": ticks[-1],
        "colorbar": {
            "tickvals": ticks,
            "ticktext": [text_of(10**tick) for tick in ticks],
            "title": {"text": title},
        },
    }


def response_times(data: pd.DataFrame, layer: str) -> Figure:
    """Percentiles of the response times of reads, writes and syncs."""
    figure = go.Figure()
    colours = {"read": READ, "write": WRITE, "sync": SYNC}
    shown: list[float] = []
    for row in data.to_dict("records"):
        y = [row[f"p{percent:g}_us"] for percent in PERCENTILES]
        shown += y
        figure.add_trace(
            go.Scatter(
                x=[f"{percent:g}" for percent in PERCENTILES],
                y=y,
                mode="lines+markers",
                line={"color": colours[row["operation"]], "width": 2},
                name=row["operation"],
            )
        )
    figure.update_xaxes(title_text="percent of the operations that took at most this long", type="category")
    figure.update_yaxes(title_text="response time, µs", **log_axis(shown))
    sentence = f"Response times at the {layer}: the time within which a share of the operations was over."
    return Figure("Response times", sentence, figure, data)
