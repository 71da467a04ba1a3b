# SPDX-License-Identifier: Apache-2.0
"""Turns a comparison into a figure: throughput and response times of every row, with their range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from characterize.colours import LINE, READ, REGION, SYNC, WRITE
from selfscale.comparing.comparison import table_of
from selfscale.reporting.figures import Figure, log_axis

_TIMES = (
    ("read_mean_ns", "read", READ),
    ("write_mean_ns", "write", WRITE),
    ("mean_ns", "average", "#c9a227"),
    ("sync_per_request_ns", "sync per request", SYNC),
)


def comparison_bars(document: Mapping[str, Any]) -> Figure:
    """Bars of one comparison.

    Parameters
    ----------
    document : mapping
        Schema ``flextrace.comparison/1``.
    """
    table = table_of(document)
    labels = [row["label"] + ("" if row["trustworthy"] else " !") for row in document["rows"]]
    figure = make_subplots(rows=1, cols=2, subplot_titles=["throughput in I/O, MB/s", "response time, µs"])
    name = "throughput_in_io_bytes_per_s"
    low, high = (_bounds(document, table, name, side) for side in ("low", "high"))
    figure.add_trace(
        go.Bar(
            x=labels,
            y=(table[name] / 1e6).tolist(),
            error_y=_bars(table[name] / 1e6, low / 1e6, high / 1e6),
            marker_color=LINE,
            name="throughput",
            showlegend=False,
        ),
        row=1,
        col=1,
    )
    for name, title, colour in _TIMES:
        middle = table[name] / 1e3
        if not middle.gt(0).any():
            continue
        bars = _bars(middle, table[f"low_{name}"] / 1e3, table[f"high_{name}"] / 1e3)
        y = [value if value > 0 else None for value in middle]
        figure.add_trace(go.Bar(x=labels, y=y, error_y=bars, marker_color=colour, name=title), row=1, col=2)
    drawn = [value / 1e3 for name, _, _ in _TIMES for value in table[name]]
    figure.update_yaxes(log_axis(drawn), row=1, col=2)
    figure.update_yaxes(rangemode="tozero", row=1, col=1)
    figure.update_xaxes(tickangle=-35)
    figure.update_layout(barmode="group", height=480)
    sentence = (
        "Every row does the application's work by other means. Bars of measured rows span the repetitions, those of "
        "predictions their 90 % interval. A row with ! ran under other conditions than the application."
    )
    data = table.reset_index()[["label", *(column for column in table.columns if column != "label")]]
    return Figure("Application, replay, Willy, prediction", sentence, figure, data)


def _bounds(document: Mapping[str, Any], table: pd.DataFrame, name: str, side: str) -> pd.Series:
    """Ends of the bars: of the repetitions, or of the prediction's interval."""
    bounds = table[f"{side}_{name}"].copy()
    for row in document["rows"]:
        interval = row.get("interval_bytes_per_s")
        value = interval[0 if side == "low" else 1] if interval else None
        if value is not None:
            bounds[row["row"]] = value
    return bounds


def _bars(middle: pd.Series, low: pd.Series, high: pd.Series) -> dict[str, Any]:
    up, down = (high - middle).clip(lower=0).fillna(0), (middle - low).clip(lower=0).fillna(0)
    return {
        "type": "data",
        "symmetric": False,
        "array": up.tolist(),
        "arrayminus": down.tolist(),
        "thickness": 1.5,
        "color": REGION,
    }
