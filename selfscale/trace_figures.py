# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into figures: sizes, locality, time, place, response times."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from characterize.locality import Locality
from characterize.response_time import distribution
from characterize.sizes import size_histogram
from characterize.units import format_bytes
from selfscale.figures import LINE, READ, SYNC, WRITE, Figure, byte_ticks, log_axis, mark_size

POINTS_MAX = 8_000
"""Most points of a scatter plot: more cannot be told apart, and a page has few WebGL contexts, so they are SVG."""

TIME_BINS = 200
QUANTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100)


def sizes(requests: pd.DataFrame, layer: str) -> Figure:
    """Requests by power of two of their size."""
    data = size_histogram(requests)
    labels = [format_bytes(low) for low in data["low_bytes"]]
    figure = go.Figure()
    for name, colour in (("reads", READ), ("writes", WRITE)):
        figure.add_trace(go.Bar(x=labels, y=data[name].tolist(), name=name, marker_color=colour))
    figure.update_layout(barmode="group")
    figure.update_xaxes(title_text="size from (to twice as much)", type="category")
    figure.update_yaxes(title_text="requests")
    sentence = (
        f"How many requests of which size the {layer} saw; every bar holds sizes from its label up to twice that."
    )
    return Figure("Sizes", sentence, figure, data)


def miss_ratios(locality: Locality, unique_bytes: float, memory_limit_bytes: int | None) -> Figure:
    """Miss ratio of an LRU cache against its size."""
    data = locality.miss_ratio_curve()
    figure = go.Figure()
    x = data["cache_bytes"].tolist()
    line = {"color": LINE, "width": 2}
    figure.add_trace(go.Scatter(x=x, y=data["miss_ratio"].tolist(), mode="lines", line=line, name="miss ratio"))
    marks = [(unique_bytes, "uniqueBytes", 0.05), (locality.equivalent_unique_bytes, "equivalent uniqueBytes", 0.15)]
    if memory_limit_bytes:
        marks.append((float(memory_limit_bytes), "memory limit", 0.25))
    marks = [mark for mark in marks if np.isfinite(mark[0]) and mark[0] > 0]
    for value, text, level in marks:
        mark_size(figure, value, f"{text} {format_bytes(value)}", level=level)
    if x:
        values = [mark[0] for mark in marks]
        figure.update_xaxes(byte_ticks(min(x), max([*x, *values])))
    figure.update_xaxes(title_text="size of an LRU cache")
    figure.update_yaxes(title_text="share of blocks missed", range=[0, 1.02])
    sentence = (
        "Share of the 4 KiB blocks touched that an LRU cache of a given size would miss, first touches included; at "
        "its end it is level at the share that is touched for the first time."
    )
    return Figure("Miss-ratio curve", sentence, figure, data)


def over_time(requests: pd.DataFrame, layer: str) -> Figure:
    """Bytes per second over the trace, reads and writes."""
    start = requests["start_ns"].to_numpy()
    origin, end = int(start.min()), int(requests["end_ns"].max())
    edges = np.linspace(origin, max(end, origin + 1), TIME_BINS + 1)
    width_s = (edges[1] - edges[0]) / 1e9
    data = pd.DataFrame({"from_s": (edges[:-1] - origin) / 1e9})
    figure = go.Figure()
    for name, colour, read in (("reads", READ, True), ("writes", WRITE, False)):
        chosen = requests["read"].to_numpy() == read
        moved, _ = np.histogram(start[chosen], edges, weights=requests["bytes"].to_numpy()[chosen])
        data[f"{name}_MB_per_s"] = moved / width_s / 1e6
        line = {"color": colour, "width": 1.5, "shape": "hv"}
        y = data[f"{name}_MB_per_s"].tolist()
        figure.add_trace(go.Scatter(x=data["from_s"].tolist(), y=y, mode="lines", line=line, name=name))
    figure.update_xaxes(title_text="time since the first request, s")
    figure.update_yaxes(title_text="MB/s", rangemode="tozero")
    sentence = f"Bytes that the {layer} moved per second, in {TIME_BINS} steps of {1e3 * width_s:.3g} ms."
    return Figure("Throughput over time", sentence, figure, data)


def places(requests: pd.DataFrame, paths: dict[int, str], seed: int = 0) -> Figure:
    """Where in its files every request went, over time; files above each other in the order of their first use.

    At most `POINTS_MAX` requests, drawn without replacement; the note says how many of how many.
    """
    shown = requests
    if len(requests) > POINTS_MAX:
        chosen = np.sort(np.random.default_rng(seed).choice(len(requests), POINTS_MAX, replace=False))
        shown = requests.iloc[chosen]
    spans = requests.assign(end=requests["offset"] + requests["bytes"]).groupby("file", sort=False)["end"].max()
    base = spans.cumsum() - spans
    origin = int(requests["start_ns"].min())
    data = pd.DataFrame(
        {
            "time_s": (shown["start_ns"] - origin) / 1e9,
            "place_bytes": shown["offset"] + shown["file"].map(base),
            "file": [paths.get(int(file), f"file {file}") for file in shown["file"]],
            "offset": shown["offset"],
            "operation": np.where(shown["read"], "read", "write"),
        }
    )
    figure = go.Figure()
    for operation, colour in (("read", READ), ("write", WRITE)):
        part = data[data["operation"] == operation]
        figure.add_trace(
            go.Scatter(
                x=part["time_s"].round(7).tolist(),
                y=part["place_bytes"].tolist(),
                mode="markers",
                marker={"size": 3, "color": colour},
                name=operation,
                hovertemplate="%{x} s<extra></extra>",
            )
        )
    figure.update_xaxes(title_text="time since the first request, s")
    figure.update_yaxes(title_text="place in the files, one above the other", tickformat=".3s", ticksuffix="B")
    figure.update_layout(height=440)
    sentence = (
        f"Where every request went: its offset, with the files ({len(spans)}) put above each other in the order "
        "of their first use. Sequential access is a line, random access a cloud."
    )
    note = f"Shows {len(shown)} of {len(requests)} requests, drawn at random." if len(shown) < len(requests) else ""
    return Figure("Offsets over time", sentence, figure, data, note=note)


def response_times(requests: pd.DataFrame, syncs: pd.DataFrame, layer: str) -> Figure:
    """Quantiles of the response times of reads, writes and syncs."""
    duration = (requests["end_ns"] - requests["start_ns"]).to_numpy()
    read = requests["read"].to_numpy()
    groups = {
        "read": (duration[read], READ),
        "write": (duration[~read], WRITE),
        "sync": ((syncs["end_ns"] - syncs["start_ns"]).to_numpy(), SYNC),
    }
    figure, records = go.Figure(), []
    for name, (values, colour) in groups.items():
        if not len(values):
            continue
        microseconds = np.quantile(values, np.array(QUANTILES) / 100, method="inverted_cdf") / 1e3
        figure.add_trace(
            go.Scatter(
                x=[f"{quantile:g}" for quantile in QUANTILES],
                y=microseconds.tolist(),
                mode="lines+markers",
                line={"color": colour, "width": 2},
                name=name,
            )
        )
        summary = distribution(values)
        records.append(
            {
                "operation": name,
                "count": summary["count"],
                "mean_us": (summary["mean_ns"] or 0) / 1e3,
                **{f"p{quantile:g}_us": value for quantile, value in zip(QUANTILES, microseconds, strict=True)},
            }
        )
    figure.update_xaxes(title_text="percent of the operations that took at most this long", type="category")
    shown = [value for line in figure.data for value in line.y]
    figure.update_yaxes(title_text="response time, µs", **log_axis(shown))
    sentence = f"Response times at the {layer}: the time within which a share of the operations was over."
    return Figure("Response times", sentence, figure, pd.DataFrame(records))
