# SPDX-License-Identifier: Apache-2.0
"""Turns a machine's profile into the thesis's single parameter graphs (figure 4.7)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from characterize.colours import LINE, REGION
from characterize.units import format_bytes
from characterize.workload import FIELD_OF
from selfscale.measure import describe
from selfscale.profile import Curve, Profile
from selfscale.reporting.figures import Figure, byte_ticks, mark_size

CURVES = ("sizeMean", "readFrac", "processNum", "seqFrac")
"""Rows of figure 4.7, in its order."""

_BYTES = ("uniqueBytes", "sizeMean")


def single_parameter_graphs(profile: Profile) -> Figure:
    """Figure 4.7: the uniqueBytes curve on top, below it one column per performance region, one row per parameter.

    Parameters
    ----------
    profile : Profile
        With at least one region.
    """
    columns = len(profile.regions)
    titles = ["uniqueBytes"] + [
        f"{parameter}, region {number + 1}" for parameter in CURVES for number in range(columns)
    ]
    figure = make_subplots(
        rows=1 + len(CURVES),
        cols=columns,
        specs=[[{"colspan": columns}, *[None] * (columns - 1)], *[[{}] * columns] * len(CURVES)],
        subplot_titles=titles,
        row_heights=[1.6, *[1.0] * len(CURVES)],
        vertical_spacing=0.07,
        horizontal_spacing=0.09,
    )
    records = [_draw(figure, profile.curve("uniqueBytes", None), (1, 1))]
    _shade(figure, profile)
    for row, parameter in enumerate(CURVES, start=2):
        for number, region in enumerate(profile.regions):
            focal = getattr(region.focal, FIELD_OF[parameter])
            curve = profile.curve(parameter, number)
            records.append(_draw(figure, curve, (row, number + 1), focal=focal, region=number + 1, columns=columns))
    figure.update_layout(height=420 + 235 * len(CURVES), showlegend=False)
    focal_points = "; ".join(
        f"region {number + 1}: {describe(region.focal)}" for number, region in enumerate(profile.regions)
    )
    sentence = (
        "Throughput of Willy against one parameter at a time, the others at the focal vector of the region (thesis, "
        "figure 4.7). Error bars are 95 % confidence intervals, diamonds the focal points, shaded bands the "
        "performance regions that the self-scaling benchmark found."
    )
    data = pd.concat(records, ignore_index=True)
    return Figure("Single parameter graphs", sentence, figure, data, note=f"Focal vectors: {focal_points}.")


def _draw(
    figure: go.Figure,
    curve: Curve,
    place: tuple[int, int],
    *,
    focal: float | None = None,
    region: int | None = None,
    columns: int = 1,
) -> pd.DataFrame:
    """Draw one curve in the row and column `place`; returns its values as a table."""
    row, column = place
    most = 10 if row == 1 else max(4, 16 // columns)
    error = np.where(np.isfinite(curve.half_width_95), curve.half_width_95, 0.0)
    bars = {"type": "data", "array": (error / 1e6).tolist(), "thickness": 1.2, "width": 3, "color": REGION}
    line: dict[str, Any] = {"mode": "lines+markers", "line": {"color": LINE, "width": 2}, "marker": {"size": 6}}
    hover = "%{x} → %{y:.4g} MB/s<extra></extra>"
    x, y = curve.x.tolist(), (curve.throughput / 1e6).tolist()
    figure.add_trace(go.Scatter(x=x, y=y, error_y=bars, hovertemplate=hover, **line), row=row, col=column)
    if focal is not None and len(x):
        at = int(np.argmin(np.abs(curve.x - focal)))
        marker = {"symbol": "diamond-open", "size": 14, "color": REGION, "line": {"width": 2}}
        figure.add_trace(
            go.Scatter(x=[x[at]], y=[y[at]], mode="markers", marker=marker, hovertemplate="focal point<extra></extra>"),
            row=row,
            col=column,
        )
    if curve.parameter in _BYTES and len(x):
        figure.update_xaxes(byte_ticks(min(x), max(x), most), row=row, col=column)
    elif curve.parameter == "processNum":
        figure.update_xaxes(type="log", tickvals=x, ticktext=[f"{value:g}" for value in x], row=row, col=column)
    else:
        figure.update_xaxes(range=[-0.05, 1.05], row=row, col=column)
    figure.update_yaxes(rangemode="tozero", row=row, col=column)
    if column == 1:
        figure.update_yaxes(title_text="MB/s", row=row, col=column)
    return pd.DataFrame(
        {
            "parameter": curve.parameter,
            "region": "all" if region is None else region,
            "value": curve.x,
            "throughput_MB_per_s": curve.throughput / 1e6,
            "half_width_95_MB_per_s": curve.half_width_95 / 1e6,
        }
    )


def _shade(figure: go.Figure, profile: Profile) -> None:
    """Bands of the regions and their focal points in the uniqueBytes graph."""
    curve = profile.curve("uniqueBytes", None)
    for number, region in enumerate(profile.regions):
        figure.add_vrect(
            x0=max(region.low_bytes, 1),
            x1=region.high_bytes,
            fillcolor=REGION,
            opacity=0.10 if number % 2 else 0.22,
            line_width=0,
            layer="below",
            row=1,
            col=1,
        )
        low = max(region.low_bytes, min(curve.x, default=math.inf))
        figure.add_annotation(
            xref="x",
            yref="y domain",
            x=math.log10(low) if math.isfinite(low) else 0,
            y=0.02,
            xanchor="left",
            yanchor="bottom",
            text=f"region {number + 1}",
            showarrow=False,
        )
        if not len(curve.x):
            continue
        focal = region.focal.unique_bytes
        level = float(np.interp(math.log(focal), np.log(curve.x), curve.throughput)) / 1e6
        marker = {"symbol": "diamond-open", "size": 14, "color": REGION, "line": {"width": 2}}
        hover = f"focal point {format_bytes(focal)}<extra></extra>"
        figure.add_trace(
            go.Scatter(x=[focal], y=[level], mode="markers", marker=marker, hovertemplate=hover), row=1, col=1
        )
    limit = profile.environment.get("memory_limit_bytes")
    if limit:
        mark_size(figure, limit, f"memory limit {format_bytes(limit)}", level=0.98)
