# SPDX-License-Identifier: Apache-2.0
"""Turns numbers into Plotly figures that carry their own sentence and table.

Colours of lines mean the same everywhere (reads, writes, syncs) and are readable on white and on black; text, grid and
background take their colours from the page, which sets them when it is shown (dark, light, print).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from characterize.colours import LINE, REGION
from characterize.units import format_bytes

SHOWN_ROWS = 200
"""Longest "show data" table; the documents that the report is made from have all of it."""


@dataclass
class Figure:
    """A figure of a report.

    Attributes
    ----------
    title : str
    sentence : str
        What it shows and how to read it.
    plot : plotly.graph_objects.Figure
    data : DataFrame
        What is drawn, for the "show data" table.
    note : str
        What was left out, if anything.
    """

    title: str
    sentence: str
    plot: go.Figure
    data: pd.DataFrame
    note: str = ""

    @property
    def json(self) -> str:
        """The plot as JSON that can stand inside a ``<script>`` element whatever file names are in it."""
        self.plot.update_layout(
            template="none",
            paper_bgcolor="rgba(0,0,0,0)",
            plot_bgcolor="rgba(0,0,0,0)",
            margin={"l": 70, "r": 20, "t": self.plot.layout.margin.t or 56, "b": 55},
            legend={"orientation": "h", "yref": "container", "yanchor": "top", "y": 0.99, "xanchor": "left", "x": 0.0},
            modebar={"bgcolor": "rgba(0,0,0,0)", "color": REGION, "activecolor": LINE},
            autosize=True,
        )
        # plotly packs arrays as base64 of their bytes; lists are as short at these sizes and can be read by anybody.
        text = json.dumps(json.loads(self.plot.to_json(engine="json")), separators=(",", ":"))
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

    @property
    def height(self) -> int:
        """Height on the page in pixels."""
        return int(self.plot.layout.height or 340)

    @property
    def rows(self) -> list[list[str]]:
        """The first `SHOWN_ROWS` rows of the data as text."""
        return [[format_cell(value) for value in row] for row in self.data.head(SHOWN_ROWS).itertuples(index=False)]


def mark_size(figure: go.Figure, size_bytes: float, text: str, *, level: float = 1.0) -> None:
    """Draw a labelled vertical line at a size into a figure's first graph, whose x axis is logarithmic.

    Parameters
    ----------
    level : float
        Height of the label, from 0 at the bottom to 1 at the top.
    """
    figure.add_shape(
        type="line",
        xref="x",
        yref="y domain",
        x0=size_bytes,
        x1=size_bytes,
        y0=0,
        y1=1,
        line={"dash": "dot", "color": REGION, "width": 1.5},
    )
    # Shapes take the value of a logarithmic axis, annotations its exponent.
    figure.add_annotation(
        xref="x",
        yref="y domain",
        x=math.log10(size_bytes),
        y=level,
        text=text,
        showarrow=False,
        xanchor="right",
        xshift=-3,
    )


def as_shown(name: str) -> str:
    """What Plotly shows as this name: it takes <b>, <a> and others for what they are in HTML, and knows no &quot;."""
    return escape(name, quote=False)


def log_axis(values: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis with as many ticks as the spread of its values (positive numbers count) leaves room for."""
    positive = [value for value in values if value > 0]
    wide = bool(positive) and max(positive) / min(positive) > 30
    return {"type": "log", "dtick": 1 if wide else "D2"}


def format_cell(value: Any) -> str:
    """A number or text as it stands in a table."""
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def byte_ticks(low: float, high: float, most: int = 10) -> dict[str, Any]:
    """A logarithmic axis with ticks at powers of two in binary units, at most about `most` of them."""
    low, high = max(low, 1.0), max(high, 2.0)
    first, last = int(low).bit_length() - 1, int(high).bit_length()
    step = max(1, -(-(last - first) // (most - 1)))
    ticks = [2**power for power in range(first, last + 1, step)]
    return {"type": "log", "tickvals": ticks, "ticktext": [format_bytes(tick) for tick in ticks]}
